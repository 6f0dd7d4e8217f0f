//! Requests in JSON become protobuf (ProtoJSON), and are then handled in the same way. One pass writes the members of an object as fields of a
//! message, as [`crate::schema`] says. A member that is `null` counts as missing, and numbers may be texts, also `"NaN"`, `"Infinity"` and
//! `"-Infinity"`. Only in OTLP, ids are hexadecimal. A mistake in a record or a data point does not affect the others.

use std::borrow::Cow;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use prost::encoding::{
    bool, double, fixed32, fixed64, int32, int64, sfixed64, sint32, uint32, uint64,
};
use prost_types::field_descriptor_proto::Type;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

use crate::schema::{Field, Message};
use crate::signal::Signal;
use crate::wire::{Malformed, put};

/// The longest JSON of a record, or of a metric with its points.
const PART_BYTES_MAX: usize = 4 << 20;

const IDS: [&str; 3] = ["traceId", "spanId", "parentSpanId"];

/// A request in JSON, without the parts that cannot be read.
pub(crate) struct Read {
    /// The request in protobuf.
    pub(crate) protobuf: Vec<u8>,
    /// How many records, spans or data points cannot be read, and the reason for the first.
    pub(crate) refused: Option<(u64, String)>,
    /// Whether texts were not UTF-8.
    pub(crate) is_repaired: bool,
}

pub(crate) fn protobuf(signal: Signal, body: &[u8]) -> Result<Read, Malformed> {
    let body = String::from_utf8_lossy(body);
    let request = Message::named(signal.names().request);
    let read = read(request, &body).map_err(not_json)?;
    Ok(Read {
        protobuf: read.bytes,
        refused: read.refused,
        is_repaired: matches!(body, Cow::Owned(_)),
    })
}

/// A message that is being written.
#[derive(Default)]
struct Out {
    bytes: Vec<u8>,
    refused: Option<(u64, String)>,
}

impl Out {
    fn refuse(&mut self, count: u64, why: String) {
        self.refused.get_or_insert((0, why)).0 += count;
    }
}

fn read(message: &'static Message, json: &str) -> serde_json::Result<Out> {
    let mut out = Out::default();
    let mut json = serde_json::Deserializer::from_str(json);
    json.deserialize_map(Members(message, &mut out))?;
    json.end()?;
    Ok(out)
}

/// Writes a record, metric or data point, or counts it if it cannot be read.
fn part(field: &Field, message: &'static Message, json: &str, out: &mut Out) {
    let read = match json.len() > PART_BYTES_MAX {
        true => Err(Malformed::Json(format!(
            "a record or a metric takes more than {PART_BYTES_MAX} bytes; send fewer points at once"
        ))),
        false => read(message, json).map_err(not_json),
    };
    match read {
        Ok(part) => {
            put(field.number, &part.bytes, &mut out.bytes);
            if let Some((count, why)) = part.refused {
                out.refuse(count, why);
            }
        }
        Err(why) => out.refuse(points(json).max(1), why.to_string()),
    }
}

/// The data points of a metric that cannot be read as a whole.
fn points(json: &str) -> u64 {
    #[derive(serde::Deserialize)]
    struct Metric {
        #[serde(alias = "sum", alias = "histogram", alias = "summary")]
        #[serde(alias = "exponentialHistogram")]
        gauge: Data,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        data_points: Vec<IgnoredAny>,
    }
    let metric: serde_json::Result<Metric> = serde_json::from_str(json);
    metric.map_or(0, |metric| metric.gauge.data_points.len() as u64)
}

/// Writes the members of an object as fields of a message.
struct Members<'a>(&'static Message, &'a mut Out);

impl<'de> Visitor<'de> for Members<'_> {
    type Value = ();

    fn expecting(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        to.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Members(message, out) = self;
        while let Some(name) = members.next_key::<Cow<'_, str>>()? {
            match message.fields.iter().find(|field| field.name == *name) {
                Some(field) => members.next_value_seed(Member {
                    field,
                    is_one: !field.is_list,
                    out,
                })?,
                None => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// Writes the value of a member, or one of its values.
struct Member<'a> {
    field: &'static Field,
    is_one: bool,
    out: &'a mut Out,
}

impl<'de> DeserializeSeed<'de> for Member<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        match self.field.message().filter(|message| message.is_part()) {
            Some(message) if self.is_one => {
                let json = <&RawValue>::deserialize(json)?;
                part(self.field, message, json.get(), self.out);
                Ok(())
            }
            _ => json.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Member<'_> {
    type Value = ();

    fn expecting(&self, to: &mut Formatter<'_>) -> std::fmt::Result {
        write!(to, "the value of '{}'", self.field.name)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.field.is_list && self.is_one {
            true => Err(self.wrong()),
            false => Ok(()),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.scalar(Scalar::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.scalar(Scalar::Whole(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.scalar(Scalar::Whole(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.scalar(Scalar::Double(value))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.scalar(Scalar::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        if self.is_one {
            return Err(self.wrong());
        }
        while let Some(()) = values.next_element_seed(Member {
            field: self.field,
            is_one: true,
            out: self.out,
        })? {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<(), A::Error> {
        let Some(message) = self.field.message().filter(|_| self.is_one) else {
            return Err(self.wrong());
        };
        let around = std::mem::take(&mut self.out.bytes);
        Members(message, self.out).visit_map(members)?;
        let inner = std::mem::replace(&mut self.out.bytes, around);
        put(self.field.number, &inner, &mut self.out.bytes);
        Ok(())
    }
}

impl Member<'_> {
    fn wrong<E: Error>(&self) -> E {
        E::custom(format!("invalid type of '{}'", self.field.name))
    }

    fn scalar<E: Error>(self, scalar: Scalar<'_>) -> Result<(), E> {
        if !self.is_one {
            return Err(self.wrong());
        }
        write(self.field, scalar, &mut self.out.bytes).map_err(E::custom)
    }
}

#[derive(Copy, Clone)]
enum Scalar<'a> {
    Bool(bool),
    Whole(i128),
    Double(f64),
    Text(&'a str),
}

fn write(field: &Field, scalar: Scalar<'_>, out: &mut Vec<u8>) -> Result<(), String> {
    let number = field.number;
    match (field.ty, scalar) {
        (Type::String, Scalar::Text(text)) => put(number, text.as_bytes(), out),
        (Type::Bytes, Scalar::Text(text)) => match IDS.contains(&field.name.as_str()) {
            true => put(number, &id(text)?, out),
            false => put(number, &BASE64_STANDARD.decode(text).map_err(said)?, out),
        },
        (Type::Bool, Scalar::Bool(value)) => bool::encode(number, &value, out),
        (Type::Double, Scalar::Double(value)) => double::encode(number, &value, out),
        (Type::Double, Scalar::Whole(value)) => double::encode(number, &(value as f64), out),
        (Type::Double, Scalar::Text(text)) => double::encode(number, &of_text(text)?, out),
        (Type::Int32 | Type::Enum, _) => int32::encode(number, &whole(field, scalar)?, out),
        (Type::Int64, _) => int64::encode(number, &whole(field, scalar)?, out),
        (Type::Uint32, _) => uint32::encode(number, &whole(field, scalar)?, out),
        (Type::Uint64, _) => uint64::encode(number, &whole(field, scalar)?, out),
        (Type::Sint32, _) => sint32::encode(number, &whole(field, scalar)?, out),
        (Type::Fixed32, _) => fixed32::encode(number, &whole(field, scalar)?, out),
        (Type::Fixed64, _) => fixed64::encode(number, &whole(field, scalar)?, out),
        (Type::Sfixed64, _) => sfixed64::encode(number, &whole(field, scalar)?, out),
        _ => return Err(format!("invalid type of '{}'", field.name)),
    }
    Ok(())
}

fn whole<T>(field: &Field, scalar: Scalar<'_>) -> Result<T, String>
where
    T: FromStr<Err: Display> + TryFrom<i128, Error: Display>,
{
    match scalar {
        Scalar::Text(text) => text.parse().map_err(said),
        Scalar::Whole(value) => T::try_from(value).map_err(said),
        Scalar::Bool(_) | Scalar::Double(_) => Err(format!("invalid type of '{}'", field.name)),
    }
}

fn of_text(text: &str) -> Result<f64, String> {
    match text {
        "NaN" => Ok(f64::NAN),
        "Infinity" => Ok(f64::INFINITY),
        "-Infinity" => Ok(f64::NEG_INFINITY),
        text => match text.parse::<f64>() {
            // Rust also takes words, and turns a number that is too large into infinity.
            Ok(value) if value.is_finite() => Ok(value),
            _ => Err(format!("'{text}' is not a number of 64 bits")),
        },
    }
}

fn id(digits: &str) -> Result<Vec<u8>, String> {
    let byte = |two: &[u8]| {
        let two = str::from_utf8(two).ok().filter(|two| two.len() == 2)?;
        let are_digits = two.bytes().all(|digit| digit.is_ascii_hexdigit());
        u8::from_str_radix(two, 16).ok().filter(|_| are_digits)
    };
    let bytes = digits.as_bytes().chunks(2).map(byte);
    let bytes: Option<Vec<u8>> = bytes.collect();
    bytes.ok_or_else(|| "an id is not in hexadecimal digits".to_owned())
}

fn not_json(error: serde_json::Error) -> Malformed {
    Malformed::Json(error.to_string())
}

fn said(error: impl Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use opentelemetry_proto::tonic::metrics::v1::{Metric, metric};
    use prost::Message as _;
    use serde_json::{Value, json};

    use super::*;

    fn bytes(name: &str, json: &Value) -> Result<Vec<u8>, String> {
        let out = read(Message::named(name), &json.to_string()).map_err(said)?;
        assert_eq!(out.refused, None);
        Ok(out.bytes)
    }

    #[test]
    fn a_member_that_is_null_is_one_that_is_not_there() {
        let value = json!({"arrayValue": {"values": [{"intValue": "7", "stringValue": null}]}, "kvlistValue": null});
        let with_null = json!({"key": "k", "value": value});
        let none = json!({"key": "k", "value": {"arrayValue": {"values": [{"intValue": 7}]}}});
        for (name, null, none) in [
            (
                "logs.v1.LogRecord",
                json!({"timeUnixNano": null, "severityNumber": null, "severityText": null, "body": null,
                    "attributes": [with_null], "flags": null, "traceId": null}),
                json!({"attributes": [none]}),
            ),
            (
                "trace.v1.Span",
                json!({"attributes": null, "events": [{"name": null, "attributes": [with_null]}], "status": {"code": null}}),
                json!({"events": [{"attributes": [none]}], "status": {}}),
            ),
            (
                "metrics.v1.Metric",
                json!({"gauge": null, "sum": {"dataPoints": [{"asDouble": null, "asInt": 1}], "isMonotonic": null}}),
                json!({"sum": {"dataPoints": [{"asInt": 1}]}}),
            ),
            (
                "metrics.v1.HistogramDataPoint",
                json!({"count": null, "sum": null, "bucketCounts": null, "explicitBounds": [0.5]}),
                json!({"explicitBounds": [0.5]}),
            ),
        ] {
            assert_eq!(bytes(name, &null).unwrap(), bytes(name, &none).unwrap());
        }
        assert!(bytes("logs.v1.LogRecord", &json!({"attributes": [null]})).is_err());
    }

    #[test]
    fn a_number_of_floating_point_may_be_a_text() {
        let body = |text: &str| {
            let log = bytes("logs.v1.LogRecord", &json!({"body": {"doubleValue": text}}))?;
            let log = LogRecord::decode(&log[..]).map_err(said)?;
            Ok::<_, String>(format!("{:?}", log.body))
        };
        for (text, wanted) in [
            ("0.25", "0.25"),
            ("-1e300", "-1e300"),
            ("7", "7.0"),
            ("NaN", "NaN"),
            ("Infinity", "inf"),
            ("-Infinity", "-inf"),
        ] {
            let wanted = format!("DoubleValue({wanted})");
            assert!(body(text).unwrap().contains(&wanted), "{text}");
            let histogram = json!({"sum": text, "explicitBounds": [text]});
            let json = json!({"histogram": {"dataPoints": [histogram]}});
            let metric = bytes("metrics.v1.Metric", &json).unwrap();
            let metric = Metric::decode(&metric[..]).unwrap();
            let Some(metric::Data::Histogram(histogram)) = metric.data else {
                panic!("{text}")
            };
            let point = &histogram.data_points[0];
            let of_text = of_text(text).unwrap();
            for given in [point.sum.unwrap(), point.explicit_bounds[0]] {
                assert_eq!(given.to_bits(), of_text.to_bits(), "{text}");
            }
        }
        for text in ["nan", "inf", "", "1,5", "0x1", "1e400"] {
            assert!(body(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_mistake_spoils_its_data_point_or_all_of_its_metric() {
        let good = json!({"asInt": "1"});
        for (metric, refused, kept) in [
            (
                json!({"gauge": {"dataPoints": [good, {"asInt": "x"}, good, {"asInt": 0.5}]}}),
                2,
                2,
            ),
            (json!({"gauge": {"dataPoints": [good, null]}}), 1, 1),
            (
                json!({"sum": {"dataPoints": [good, good], "isMonotonic": 1}}),
                2,
                0,
            ),
            (json!({"name": 7}), 1, 0),
        ] {
            let request = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]});
            let read = protobuf(Signal::Metrics, request.to_string().as_bytes()).unwrap();
            assert_eq!(read.refused.unwrap().0, refused, "{metric}");
            let mut points = 0;
            crate::metrics(&read.protobuf, |_| points += 1).unwrap();
            assert_eq!(points, kept, "{metric}");
        }
    }
}
