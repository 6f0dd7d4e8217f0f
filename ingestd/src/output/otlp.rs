//! Spans and logs as OTLP in JSON: each line of a file is a request, as the Collector's file exporter writes and its receiver of OTLP files reads. A receiver
//! over HTTP gets the requests themselves.

use std::fmt;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, bail};
use loom_engine::proven;
use loom_engine::query::Poll;
use loom_engine::schema::Source;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value as Json, json};

use super::endpoint::Endpoint;
use super::out::Out;
use super::table::{self, Part, Table};
use super::values::{Row, Value};
use crate::config::{LOGS_SOURCE, SPANS_SOURCE, own_fields};

/// A line takes about so many bytes: the Collector's receiver takes 1 MiB.
const LINE_BYTES: usize = 256 << 10;

/// The requests that were written, and what the receiver says of records that it did not take.
#[derive(Default)]
pub(super) struct Written {
    pub table: Table,
    pub refused: Option<String>,
}

enum Sink {
    File(BufWriter<File>),
    Receiver(Endpoint),
}

/// # Errors
/// A source without spans and logs of OTLP, a read or a write that failed, an interruption. What was written until then stays.
pub(super) fn write(
    sources: Vec<(&Source, Part)>,
    out: &Out,
    token_file: Option<&Path>,
    poll: &Poll<'_>,
) -> anyhow::Result<Written> {
    let failed = || format!("cannot write {out}");
    let mut sink = Sink::open(out, token_file).with_context(failed)?;
    let mut all = Table::default();
    for (source, part) in sources {
        let mut lines = Lines::of(source)?;
        let read = table::batches(source, vec![part], poll, |batch| {
            for row in 0..batch.num_rows() {
                lines
                    .add(Row { batch, row }, &mut sink)
                    .with_context(failed)?;
            }
            Ok(())
        })?;
        lines.end(&mut sink).with_context(failed)?;
        all.rows += read.rows;
        all.gaps.extend(read.gaps);
    }
    Ok(Written {
        table: all,
        refused: sink.end(out).with_context(failed)?,
    })
}

impl Sink {
    fn open(out: &Out, token_file: Option<&Path>) -> anyhow::Result<Sink> {
        Ok(match out {
            Out::Endpoint(url) => Sink::Receiver(Endpoint::of(url, token_file)?),
            Out::File(_) | Out::Stdout => Sink::File(BufWriter::new(out.open()?)),
        })
    }

    fn put(&mut self, is_spans: bool, request: &str) -> anyhow::Result<()> {
        match self {
            Sink::File(file) => Ok(writeln!(file, "{request}")?),
            Sink::Receiver(receiver) => {
                let path = if is_spans { "/v1/traces" } else { "/v1/logs" };
                receiver.send(path, request)
            }
        }
    }

    fn end(mut self, out: &Out) -> anyhow::Result<Option<String>> {
        match &mut self {
            Sink::File(file) => {
                file.flush()?;
                if out.kept().is_some() {
                    file.get_ref().sync_all()?;
                }
                Ok(None)
            }
            Sink::Receiver(receiver) => Ok(receiver.refused()),
        }
    }
}

/// The lines of one source. The records of a line have the same resource and scope.
struct Lines<'a> {
    source: &'a Source,
    is_spans: bool,
    /// The places of promoted attributes among the fields.
    promoted: Vec<usize>,
    /// The texts of the resource and the scope, and what they are.
    origin: ([Option<String>; 2], Object, Scope),
    records: Vec<String>,
    bytes: usize,
}

impl<'a> Lines<'a> {
    fn of(source: &'a Source) -> anyhow::Result<Lines<'a>> {
        let own = own_fields(&source.name);
        let is_own = |at: usize| {
            let field = source.fields.get(at);
            own.iter()
                .any(|own| field.is_some_and(|field| field.name == own.name))
        };
        let has = |name: &str| source.fields.iter().any(|field| field.name == name);
        if own.is_empty() || !has("trace_id") || !has("resource") {
            bail!(
                "source '{}' has no spans or logs of OTLP; export '{SPANS_SOURCE}' or '{LOGS_SOURCE}'",
                source.name
            );
        }
        Ok(Lines {
            source,
            is_spans: source.name == SPANS_SOURCE,
            promoted: (0..source.fields.len()).filter(|at| !is_own(*at)).collect(),
            origin: Default::default(),
            records: Vec::new(),
            bytes: 0,
        })
    }

    fn add(&mut self, row: Row<'_>, sink: &mut Sink) -> anyhow::Result<()> {
        let texts = ["resource", "scope"].map(|name| self.text(row, name));
        let is_same = self.origin.0.iter().map(Option::as_deref).eq(texts);
        if !is_same || self.bytes > LINE_BYTES {
            self.end(sink)?;
        }
        if !is_same {
            let [resource, scope] = texts;
            self.origin = (
                texts.map(|text| text.map(str::to_owned)),
                parsed(resource)?.unwrap_or_default(),
                parsed(scope)?.unwrap_or_default(),
            );
        }
        let record = match self.is_spans {
            true => self.span(row)?,
            false => self.log(row)?,
        };
        let record = serde_json::to_string(&record)?;
        self.bytes += record.len();
        self.records.push(record);
        Ok(())
    }

    /// Writes the records since the last line.
    fn end(&mut self, sink: &mut Sink) -> anyhow::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        let [resources, scopes, records] = match self.is_spans {
            true => ["resourceSpans", "scopeSpans", "spans"],
            false => ["resourceLogs", "scopeLogs", "logRecords"],
        };
        let (_, resource, scope) = &self.origin;
        let resource = json!({"attributes": resource.0.iter().map(attribute).collect::<Vec<_>>()});
        let mut about = Map::new();
        put(&mut about, "name", scope.name.as_deref());
        put(&mut about, "version", scope.version.as_deref());
        put(
            &mut about,
            "attributes",
            scope.attributes.as_ref().map(Object::json),
        );
        let request = format!(
            r#"{{"{resources}":[{{"resource":{resource},"{scopes}":[{{"scope":{},"{records}":[{}]}}]}}]}}"#,
            Json::Object(about),
            self.records.join(",")
        );
        sink.put(self.is_spans, &request)?;
        self.records.clear();
        self.bytes = 0;
        Ok(())
    }

    fn span(&self, row: Row<'_>) -> anyhow::Result<Json> {
        let mut span = Map::new();
        let start = row.time();
        let length = row.integer(self.field("duration_ns"));
        let end = start
            .zip(length)
            .and_then(|(start, length)| start.checked_add_signed(length));
        put(
            &mut span,
            "startTimeUnixNano",
            start.map(|ns| ns.to_string()),
        );
        put(&mut span, "endTimeUnixNano", end.map(|ns| ns.to_string()));
        for (key, name) in [
            ("traceId", "trace_id"),
            ("spanId", "span_id"),
            ("parentSpanId", "parent_span_id"),
            ("traceState", "trace_state"),
            ("name", "name"),
        ] {
            put(&mut span, key, self.text(row, name));
        }
        put(&mut span, "kind", self.number(row, "kind"));
        let mut status = Map::new();
        put(&mut status, "code", self.number(row, "status"));
        put(&mut status, "message", self.text(row, "status_message"));
        put(&mut span, "status", Some(status));
        put(&mut span, "attributes", self.attributes(row)?);
        for list in ["events", "links"] {
            let parts: Option<Vec<Within>> = parsed(self.text(row, list))?;
            let parts = parts.map(|parts| parts.iter().map(Within::json).collect::<Vec<_>>());
            put(&mut span, list, parts);
        }
        Ok(Json::Object(span))
    }

    fn log(&self, row: Row<'_>) -> anyhow::Result<Json> {
        let mut log = Map::new();
        put(
            &mut log,
            "timeUnixNano",
            row.time().map(|ns| ns.to_string()),
        );
        put(&mut log, "severityNumber", self.number(row, "severity"));
        for (key, name) in [
            ("severityText", "severity_text"),
            ("eventName", "event"),
            ("traceId", "trace_id"),
            ("spanId", "span_id"),
        ] {
            put(&mut log, key, self.text(row, name));
        }
        let body = self
            .text(row, "body")
            .map(|text| json!({"stringValue": text}));
        put(&mut log, "body", body);
        put(&mut log, "attributes", self.attributes(row)?);
        Ok(Json::Object(log))
    }

    /// The attributes of a record. Promoted ones come first, unless they are those of the scope or the resource.
    fn attributes(&self, row: Row<'_>) -> anyhow::Result<Option<Json>> {
        let own: Object = parsed(self.text(row, "attributes"))?.unwrap_or_default();
        let (_, resource, scope) = &self.origin;
        let promoted = self.promoted.iter().filter_map(|at| {
            let key = &proven::at(&self.source.fields, *at).name;
            let value = scalar(&row.value(*at)?)?;
            let mut places = scope.attributes.iter().chain([resource]);
            let inherited = places.find_map(|place| place.value(key));
            (inherited != Some(&value)).then(|| (key.clone(), value))
        });
        let all = Object(promoted.chain(own.0).collect());
        Ok((!all.0.is_empty()).then(|| all.json()))
    }

    fn field(&self, name: &str) -> Option<usize> {
        let mut fields = self.source.fields.iter();
        fields.position(|field| field.name == name)
    }

    fn text<'r>(&self, row: Row<'r>, name: &str) -> Option<&'r str> {
        row.text(self.field(name))
    }

    /// The number of a label.
    fn number(&self, row: Row<'_>, name: &str) -> Option<i64> {
        let at = self.field(name)?;
        let number = self
            .source
            .fields
            .get(at)?
            .value_of_text(row.text(Some(at))?)?;
        i64::try_from(number).ok()
    }
}

fn put(object: &mut Map<String, Json>, key: &str, value: Option<impl Into<Json>>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value.into());
    }
}

fn parsed<'t, T: Deserialize<'t>>(text: Option<&'t str>) -> anyhow::Result<Option<T>> {
    let parsed = text.map(serde_json::from_str).transpose();
    parsed.with_context(|| format!("not as the daemon writes it: {}", text.unwrap_or_default()))
}

/// The value of a promoted attribute.
fn scalar(value: &Value<'_>) -> Option<Json> {
    Some(match value {
        Value::Bool(value) => json!({"boolValue": value}),
        Value::Int(value) => json!({"intValue": value.to_string()}),
        Value::Double(value) if value.is_finite() => json!({"doubleValue": value}),
        Value::Double(value) if value.is_nan() => json!({"doubleValue": "NaN"}),
        Value::Double(value) if *value > 0.0 => json!({"doubleValue": "Infinity"}),
        Value::Double(_) => json!({"doubleValue": "-Infinity"}),
        Value::Text(value) => json!({"stringValue": value}),
        Value::Uint(_) | Value::Bytes(_) => return None,
    })
}

#[derive(Default, Deserialize)]
struct Scope {
    name: Option<String>,
    version: Option<String>,
    attributes: Option<Object>,
}

/// An event or a link.
#[derive(Deserialize)]
struct Within {
    attributes: Option<Object>,
    name: Option<String>,
    span_id: Option<String>,
    time_ns: Option<u64>,
    trace_id: Option<String>,
    trace_state: Option<String>,
}

impl Within {
    fn json(&self) -> Json {
        let mut within = Map::new();
        put(
            &mut within,
            "attributes",
            self.attributes.as_ref().map(Object::json),
        );
        put(&mut within, "name", self.name.as_deref());
        put(&mut within, "spanId", self.span_id.as_deref());
        put(
            &mut within,
            "timeUnixNano",
            self.time_ns.map(|ns| ns.to_string()),
        );
        put(&mut within, "traceId", self.trace_id.as_deref());
        put(&mut within, "traceState", self.trace_state.as_deref());
        Json::Object(within)
    }
}

/// Attributes in their order, with values as OTLP has them. A key may come twice.
#[derive(Default)]
struct Object(Vec<(String, Json)>);

impl Object {
    fn value(&self, key: &str) -> Option<&Json> {
        let found = self
            .0
            .iter()
            .find(|(name, value)| name == key && !is_nothing(value));
        found.map(|(_, value)| value)
    }

    fn json(&self) -> Json {
        self.0.iter().map(attribute).collect()
    }
}

fn attribute((key, value): &(String, Json)) -> Json {
    match is_nothing(value) {
        true => json!({"key": key}),
        false => json!({"key": key, "value": value}),
    }
}

fn is_nothing(value: &Json) -> bool {
    value.as_object().is_some_and(Map::is_empty)
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Object, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of attributes")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, Any(value))) = map.next_entry()? {
                    pairs.push((key, value));
                }
                Ok(Object(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// A value as OTLP has it.
struct Any(Json);

impl<'de> Deserialize<'de> for Any {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Any, D::Error> {
        struct Value;
        impl<'de> Visitor<'de> for Value {
            type Value = Any;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value of an attribute")
            }

            fn visit_unit<E>(self) -> Result<Any, E> {
                Ok(Any(json!({})))
            }

            fn visit_bool<E>(self, value: bool) -> Result<Any, E> {
                Ok(Any(json!({"boolValue": value})))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Any, E> {
                Ok(Any(json!({"intValue": value.to_string()})))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Any, E> {
                Ok(Any(json!({"intValue": value.to_string()})))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Any, E> {
                Ok(Any(json!({"doubleValue": value})))
            }

            fn visit_str<E>(self, value: &str) -> Result<Any, E> {
                Ok(Any(json!({"stringValue": value})))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Any, A::Error> {
                let mut values = Vec::new();
                while let Some(Any(value)) = list.next_element()? {
                    values.push(value);
                }
                Ok(Any(json!({"arrayValue": {"values": values}})))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Any, A::Error> {
                let map = serde::de::value::MapAccessDeserializer::new(map);
                let object = Object::deserialize(map)?;
                Ok(Any(json!({"kvlistValue": {"values": object.json()}})))
            }
        }
        deserializer.deserialize_any(Value)
    }
}
