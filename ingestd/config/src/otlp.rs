//! `[otlp]`: the receiver of metrics, logs and traces over OpenTelemetry's protocol, and the sources of logs and spans.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use loom_engine::schema::{FieldDef, FieldType, IndexDef, SourceDef, TimeKind};
use serde::Deserialize;

use super::scrape::{BODY_MAX, SERIES_MAX, TlsDef};
use super::units::{ByteSize, Span};

pub const LOGS_SOURCE: &str = "logs";
pub const SPANS_SOURCE: &str = "spans";

/// The numeric field of severities in `logs`; `severity` has their names.
const SEVERITY_NUMBER: &str = "severity_number";
/// The number of leading fields that both sources have had in all versions.
const FIRST_FIELDS: usize = 10;

const CATALOG_MAX: ByteSize = ByteSize(64 << 20);
/// The rest of the catalog is for the sources of the directory's owner.
const CATALOG_MAX_MAX: ByteSize = ByteSize(192 << 20);
const OUT_OF_ORDER: Duration = Duration::from_secs(300);
/// A restart reads this part of the log into memory.
const OUT_OF_ORDER_MAX: Duration = Duration::from_secs(3600);
/// The limit of attributes with a field of their own.
const PROMOTED_MAX: usize = 100;
const ADDRESSES_MAX: usize = 16;

/// The names of severities from 1 on.
pub const SEVERITIES: [&str; 24] = [
    "TRACE", "TRACE2", "TRACE3", "TRACE4", "DEBUG", "DEBUG2", "DEBUG3", "DEBUG4", "INFO", "INFO2",
    "INFO3", "INFO4", "WARN", "WARN2", "WARN3", "WARN4", "ERROR", "ERROR2", "ERROR3", "ERROR4",
    "FATAL", "FATAL2", "FATAL3", "FATAL4",
];
/// The names of the kinds of spans and of their status codes, from 0 on.
const KINDS: [&str; 6] = [
    "unspecified",
    "internal",
    "server",
    "client",
    "producer",
    "consumer",
];
const STATUSES: [&str; 3] = ["unset", "ok", "error"];

/// The checked table.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct OtlpDef {
    /// The addresses, each for gRPC and HTTP.
    pub listen: Vec<SocketAddr>,
    /// The attributes of logs and spans with a field of their own.
    pub promote: Vec<Promote>,
    /// The limit of a sender's series in one request, and of its new series in a day.
    pub series_max: usize,
    /// The limit of the catalog file for series of senders, in bytes.
    pub catalog_bytes_max: u64,
    /// The limit of a request in bytes, also after decompression.
    pub body_bytes_max: usize,
    /// The greatest age of a sample relative to the newest of its series.
    pub out_of_order: Duration,
    /// The file of a bearer token that senders must send.
    pub bearer_file: Option<PathBuf>,
    /// TLS with `cert` and `key`.
    pub tls: Option<TlsDef>,
}

/// An attribute with a field of its own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promote {
    pub name: String,
    #[serde(rename = "type", default = "text")]
    pub ty: FieldType,
}

fn text() -> FieldType {
    FieldType::Utf8
}

#[derive(Deserialize)]
#[serde(try_from = "String")]
struct Address(SocketAddr);

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Address, String> {
        text.parse().map(Address).map_err(|_| {
            format!("[otlp] listen has '{text}', which is not an address with a port; use 127.0.0.1:4317")
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    listen: Option<Vec<Address>>,
    #[serde(default)]
    promote: Vec<Promote>,
    series_max: Option<usize>,
    catalog_max: Option<ByteSize>,
    body_max: Option<ByteSize>,
    out_of_order: Option<Span>,
    bearer_file: Option<PathBuf>,
    tls: Option<TlsDef>,
}

impl TryFrom<Written> for OtlpDef {
    type Error = String;

    fn try_from(written: Written) -> Result<OtlpDef, String> {
        let of = |why: &str| format!("[otlp] {why}");
        let usual = || [4317, 4318].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let listen: Vec<SocketAddr> = match written.listen {
            Some(given) => given.into_iter().map(|Address(given)| given).collect(),
            None => usual().into(),
        };
        if !(1..=ADDRESSES_MAX).contains(&listen.len()) {
            return Err(of(
                "listen has no address or more than 16; use [\"127.0.0.1:4317\", \"127.0.0.1:4318\"]",
            ));
        }
        let again = |(at, address): &(usize, &SocketAddr)| {
            listen.iter().take(*at).any(|other| other == *address)
        };
        if let Some((_, address)) = listen.iter().enumerate().find(again) {
            return Err(of(&format!("listen has {address} twice; remove one")));
        }
        let far = listen.iter().find(|address| !address.ip().is_loopback());
        if let (Some(far), None) = (far, &written.tls) {
            return Err(of(&format!(
                "listen has {far}, which is not on loopback; add tls with cert and key"
            )));
        }
        if written
            .tls
            .as_ref()
            .is_some_and(|tls| tls.cert.is_none() || tls.key.is_none())
        {
            return Err(of("tls needs cert and key; give both"));
        }
        if written.promote.len() > PROMOTED_MAX {
            return Err(of("promote has more than 100 attributes"));
        }
        for Promote { name, ty } in &written.promote {
            let is_scalar = matches!(
                ty,
                FieldType::Utf8 | FieldType::I64 | FieldType::F64 | FieldType::Bool
            );
            if !is_scalar {
                return Err(of(&format!(
                    "promote gives '{}' the type {ty}; use utf8, i64, f64 or bool",
                    name.escape_debug()
                )));
            }
        }
        let series_max = written.series_max.unwrap_or(10_000);
        if !(1..=SERIES_MAX).contains(&series_max) {
            return Err(of("series_max is not from 1 to 100000; use 10000"));
        }
        let catalog_max = written.catalog_max.unwrap_or(CATALOG_MAX);
        if catalog_max.0 == 0 || catalog_max > CATALOG_MAX_MAX {
            return Err(of("catalog_max is 0 or more than 192MiB; use 64MiB"));
        }
        let body_max = written.body_max.unwrap_or(ByteSize(16 << 20));
        if body_max.0 == 0 || body_max > BODY_MAX {
            return Err(of("body_max is 0 or more than 1GiB; use 16MiB"));
        }
        let out_of_order = written.out_of_order.map_or(OUT_OF_ORDER, |span| span.0);
        if out_of_order > OUT_OF_ORDER_MAX {
            return Err(of("out_of_order is more than 1h; use 5m"));
        }
        let def = OtlpDef {
            listen,
            promote: written.promote,
            series_max,
            catalog_bytes_max: catalog_max.0,
            body_bytes_max: usize::try_from(body_max.0).map_err(|error| error.to_string())?,
            out_of_order,
            bearer_file: written.bearer_file,
            tls: written.tls,
        };
        for source in def.sources() {
            source.validate().map_err(|error| of(&error.to_string()))?;
        }
        Ok(def)
    }
}

impl OtlpDef {
    pub fn sources(&self) -> [SourceDef; 2] {
        let index = |name, field| IndexDef::new(name, Some(field));
        let severities = ["severity", SEVERITY_NUMBER].map(|name| index(name, name));
        let latency = [index("duration", "duration_ns")];
        [
            self.source(LOGS_SOURCE, log_fields(), severities.into()),
            self.source(SPANS_SOURCE, span_fields(), latency.into()),
        ]
    }

    /// Arranges the fields of a source in the order of the catalog, with new fields at the end. A field that is only in the catalog stays NULL.
    pub fn arranged(fields: &[FieldDef], known: &[FieldDef]) -> Vec<FieldDef> {
        let named = |fields: &[FieldDef], name: &str| {
            let mut fields = fields.iter();
            fields.find(|field| field.name == name).cloned()
        };
        let mut first = fields.iter().zip(known).take(FIRST_FIELDS);
        if known.len() < FIRST_FIELDS || !first.all(|(one, other)| one.name == other.name) {
            // The source has another origin; defining it again is an error.
            return fields.to_vec();
        }
        let before = known.iter();
        let before = before.map(|field| named(fields, &field.name).unwrap_or(field.clone()));
        let added = fields.iter();
        let added = added.filter(|field| named(known, &field.name).is_none());
        before.chain(added.cloned()).collect()
    }

    fn source(&self, name: &str, fields: Vec<FieldDef>, indexes: Vec<IndexDef>) -> SourceDef {
        let promoted = self.promote.iter();
        let promoted = promoted.map(|Promote { name, ty }| FieldDef::nullable(name, *ty));
        SourceDef {
            time: TimeKind::Own,
            fields: fields.into_iter().chain(promoted).collect(),
            indexes,
            ..SourceDef::new(name)
        }
    }
}

/// The fields of a source of logs or spans without those of promoted attributes; empty for another source.
pub fn own_fields(source: &str) -> Vec<FieldDef> {
    match source {
        LOGS_SOURCE => log_fields(),
        SPANS_SOURCE => span_fields(),
        _ => Vec::new(),
    }
}

fn log_fields() -> Vec<FieldDef> {
    use FieldType::{Char, I32, Json, U8, Utf8};
    vec![
        labelled("severity", I32, 1, &SEVERITIES),
        FieldDef::nullable("severity_text", Utf8),
        FieldDef {
            words: true,
            ..FieldDef::nullable("body", Utf8)
        },
        FieldDef::nullable("service", Utf8),
        FieldDef::nullable("event", Utf8),
        looked_up(FieldDef::nullable("trace_id", Char(32))),
        looked_up(FieldDef::nullable("span_id", Char(16))),
        FieldDef::nullable("attributes", Json),
        FieldDef::nullable("resource", Json),
        FieldDef::nullable("scope", Json),
        FieldDef::nullable(SEVERITY_NUMBER, U8),
    ]
}

fn span_fields() -> Vec<FieldDef> {
    use FieldType::{Char, I32, I64, Json, Utf8};
    vec![
        FieldDef::nullable("duration_ns", I64),
        FieldDef::new("name", Utf8),
        FieldDef::nullable("service", Utf8),
        labelled("kind", I32, 0, &KINDS),
        labelled("status", I32, 0, &STATUSES),
        FieldDef::nullable("status_message", Utf8),
        looked_up(FieldDef::new("trace_id", Char(32))),
        looked_up(FieldDef::new("span_id", Char(16))),
        FieldDef::nullable("parent_span_id", Char(16)),
        FieldDef::nullable("trace_state", Utf8),
        FieldDef::nullable("attributes", Json),
        FieldDef::nullable("events", Json),
        FieldDef::nullable("links", Json),
        FieldDef::nullable("resource", Json),
        FieldDef::nullable("scope", Json),
    ]
}

/// An id that people ask for.
fn looked_up(field: FieldDef) -> FieldDef {
    FieldDef {
        lookup: true,
        ..field
    }
}

fn labelled(name: &str, ty: FieldType, first: i128, labels: &[&str]) -> FieldDef {
    let labels = labels.iter().map(|label| (*label).to_owned());
    FieldDef {
        labels: (first..).zip(labels).collect(),
        ..FieldDef::nullable(name, ty)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        let parsed = Config::parse(&format!("[otlp]\n{text}\n"));
        parsed.map_err(|error| error.message)
    }

    #[test]
    fn what_is_not_given_has_the_documented_default() {
        let config = parse("").unwrap();
        let otlp = config.otlp.unwrap();
        assert_eq!(otlp.out_of_order, Duration::from_secs(300));
        let addresses: Vec<String> = otlp.listen.iter().map(SocketAddr::to_string).collect();
        assert_eq!(addresses, ["127.0.0.1:4317", "127.0.0.1:4318"]);
        assert_eq!((otlp.series_max, otlp.body_bytes_max), (10_000, 16 << 20));
        let names: Vec<&str> = config.sources.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["logs", "spans"]);
        assert_eq!(Config::parse("").unwrap().otlp, None);
    }

    // case Metrics: [otlp]
    #[test]
    fn promoted_attributes_are_fields_at_the_end_of_both_sources() {
        let config = parse(
            "promote = [{ name = 'http.route' }, { name = 'http.response.status_code', type = 'i64' }]",
        );
        for source in config.unwrap().sources {
            let [.., route, code] = &source.fields[..] else {
                panic!("no fields");
            };
            assert_eq!((&*route.name, route.ty), ("http.route", FieldType::Utf8));
            assert_eq!(code.ty, FieldType::I64);
            assert!(route.nullable && code.nullable);
        }
    }

    #[test]
    fn fields_keep_the_order_of_the_catalog_and_new_ones_follow() {
        let fields = |promote: &str| parse(promote).unwrap().sources[0].fields.clone();
        let names = |fields: &[FieldDef]| -> Vec<String> {
            let behind = fields.iter().skip(FIRST_FIELDS);
            behind.map(|field| field.name.clone()).collect()
        };
        // This directory is older than the numeric field.
        let mut known = fields("promote = [{ name = 'a' }, { name = 'b' }]");
        known.remove(FIRST_FIELDS);
        let wanted = fields("promote = [{ name = 'c' }, { name = 'b' }]");
        let arranged = OtlpDef::arranged(&wanted, &known);
        assert_eq!(names(&arranged), ["a", "b", "severity_number", "c"]);
        assert_eq!(OtlpDef::arranged(&wanted, &arranged), arranged);
        assert_eq!(OtlpDef::arranged(&wanted, &[]), wanted);
        let foreign = [FieldDef::nullable("x", FieldType::U8)];
        assert_eq!(OtlpDef::arranged(&wanted, &foreign), wanted);
    }

    // case Metrics: [otlp]
    #[test]
    fn each_mistake_is_named() {
        for (text, word) in [
            ("listen = []", "no address"),
            (
                "listen = ['localhost:4317']",
                "'localhost:4317', which is not an address with a port; use 127.0.0.1:4317",
            ),
            (
                "listen = ['127.0.0.1:7', '127.0.0.1:7']",
                "127.0.0.1:7 twice",
            ),
            (
                "listen = ['127.0.0.1:7']\n[metrics]\nlisten = '127.0.0.1:7'",
                "[otlp] listen and [metrics] listen are both 127.0.0.1:7",
            ),
            ("listen = ['0.0.0.0:4317']", "not on loopback; add tls"),
            ("tls = { cert = '/x' }", "cert and key"),
            ("promote = [{ name = 'a', type = 'u8' }]", "use utf8, i64"),
            ("promote = [{ name = 'Body' }]", "two fields"),
            ("promote = [{ name = 'ts' }]", "reserved"),
            ("series_max = 0", "series_max"),
            ("catalog_max = '256MiB'", "catalog_max"),
            ("body_max = '2GiB'", "body_max"),
            ("out_of_order = '2h'", "out_of_order"),
            ("port = 4317", "port"),
            ("[[source]]\nname = 'logs'", "two sources 'logs'"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        assert!(parse("listen = ['0.0.0.0:1']\ntls = { cert = '/c', key = '/k' }").is_ok());
    }
}
