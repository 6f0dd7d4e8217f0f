//! JSON as protobuf means it (ProtoJSON): a member that is `null` is one that is not there, and a number of floating point may be a text, also `"NaN"`,
//! `"Infinity"` and `"-Infinity"`, which JSON has no other way to write.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserialize, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Number, Value};

/// The members of OTLP's messages that are numbers of floating point, or lists of them. Some are messages elsewhere: only texts are taken for numbers.
const DOUBLES: [&str; 9] = [
    "doubleValue",
    "asDouble",
    "sum",
    "min",
    "max",
    "quantile",
    "value",
    "zeroThreshold",
    "explicitBounds",
];

pub(crate) enum Tree {
    Null,
    Bool(bool),
    Number(Number),
    Double(f64),
    Text(String),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Tree {
    fn new(value: Value, is_double: bool) -> Tree {
        match value {
            Value::Null => Tree::Null,
            Value::Bool(value) => Tree::Bool(value),
            Value::Number(number) => Tree::Number(number),
            Value::String(text) => match double(&text).filter(|_| is_double) {
                Some(double) => Tree::Double(double),
                None => Tree::Text(text),
            },
            Value::Array(values) => {
                let values = values.into_iter();
                Tree::List(values.map(|value| Tree::new(value, is_double)).collect())
            }
            Value::Object(members) => {
                let members = members.into_iter().filter(|(_, value)| !value.is_null());
                let member = |(name, value): (String, Value)| {
                    let is_double = DOUBLES.contains(&name.as_str());
                    let value = Tree::new(value, is_double);
                    (name, value)
                };
                Tree::Map(members.map(member).collect())
            }
        }
    }
}

fn double(text: &str) -> Option<f64> {
    match text {
        "NaN" => Some(f64::NAN),
        "Infinity" => Some(f64::INFINITY),
        "-Infinity" => Some(f64::NEG_INFINITY),
        // Rust takes words too.
        text if text.ends_with(|last: char| last.is_ascii_digit()) => text.parse().ok(),
        _ => None,
    }
}

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Tree, D::Error> {
        Ok(Tree::new(Value::deserialize(json)?, false))
    }
}

impl IntoDeserializer<'_, Error> for Tree {
    type Deserializer = Tree;

    fn into_deserializer(self) -> Tree {
        self
    }
}

impl<'de> Deserializer<'de> for Tree {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Tree::Null => visitor.visit_unit(),
            Tree::Bool(value) => visitor.visit_bool(value),
            Tree::Number(number) => number.deserialize_any(visitor),
            Tree::Double(value) => visitor.visit_f64(value),
            Tree::Text(text) => visitor.visit_string(text),
            Tree::List(values) => visitor.visit_seq(SeqDeserializer::new(values.into_iter())),
            Tree::Map(members) => visitor.visit_map(MapDeserializer::new(members.into_iter())),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Tree::Null => visitor.visit_none(),
            some => visitor.visit_some(some),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::logs::v1::LogRecord;
    use opentelemetry_proto::tonic::metrics::v1::{Metric, metric, number_data_point};
    use opentelemetry_proto::tonic::trace::v1::Span;
    use serde::de::DeserializeOwned;
    use serde_json::json;

    use super::*;

    fn read<T: DeserializeOwned>(json: Value) -> T {
        T::deserialize(Tree::new(json, false)).unwrap()
    }

    /// The value with each of its members in turn, at any depth, set to null; and without it.
    fn with_nulls(value: &Value) -> Vec<(Value, Value)> {
        let mut found = Vec::new();
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    let with = |member: Option<Value>| {
                        let mut all = members.clone();
                        match member {
                            Some(member) => all.insert(name.clone(), member),
                            None => all.remove(name),
                        };
                        Value::Object(all)
                    };
                    found.push((with(Some(Value::Null)), with(None)));
                    let inner = with_nulls(member).into_iter();
                    found.extend(inner.map(|(null, none)| (with(Some(null)), with(Some(none)))));
                }
            }
            Value::Array(values) => {
                for (at, value) in values.iter().enumerate() {
                    let with = |value: Value| {
                        let mut all = values.clone();
                        all[at] = value;
                        Value::Array(all)
                    };
                    let inner = with_nulls(value).into_iter();
                    found.extend(inner.map(|(null, none)| (with(null), with(none))));
                }
            }
            _ => {}
        }
        found
    }

    fn check_nulls<T: DeserializeOwned + PartialEq + std::fmt::Debug>(json: Value) {
        let cases = with_nulls(&json);
        assert!(cases.len() > 10);
        for (null, none) in cases {
            let asked = null.to_string();
            let [null, none] = [null, none].map(|json| T::deserialize(Tree::new(json, false)).ok());
            assert_eq!(null, none, "{asked}");
        }
    }

    #[test]
    fn a_member_that_is_null_is_one_that_is_not_there() {
        let attributes =
            json!([{"key": "k", "value": {"arrayValue": {"values": [{"intValue": "7"}]}}}]);
        check_nulls::<LogRecord>(json!({
            "timeUnixNano": "1", "observedTimeUnixNano": "2", "severityNumber": 9, "severityText": "INFO",
            "body": {"stringValue": "x"}, "attributes": attributes, "droppedAttributesCount": 1, "flags": 1,
            "traceId": "ab".repeat(16), "spanId": "cd".repeat(8), "eventName": "e",
        }));
        check_nulls::<Span>(json!({
            "traceId": "ab".repeat(16), "spanId": "cd".repeat(8), "traceState": "s", "parentSpanId": "", "flags": 1,
            "name": "n", "kind": 2, "startTimeUnixNano": "1", "endTimeUnixNano": "2", "attributes": attributes,
            "droppedAttributesCount": 1, "events": [{"timeUnixNano": "1", "name": "e", "attributes": attributes}],
            "droppedEventsCount": 1, "links": [{"traceId": "ab".repeat(16), "spanId": "cd".repeat(8)}],
            "droppedLinksCount": 1, "status": {"message": "m", "code": 2},
        }));
        let number = json!({"attributes": attributes, "startTimeUnixNano": "1", "timeUnixNano": "2", "asDouble": 0.5, "flags": 0});
        check_nulls::<Metric>(json!({
            "name": "m", "description": "d", "unit": "s",
            "sum": {"dataPoints": [number], "aggregationTemporality": 2, "isMonotonic": true},
        }));
        let histogram = json!({"timeUnixNano": "2", "count": "3", "sum": 6.5, "bucketCounts": ["1", "2"], "explicitBounds": [0.5], "min": 1.0, "max": 2.0});
        check_nulls::<Metric>(json!({
            "name": "m", "histogram": {"dataPoints": [histogram], "aggregationTemporality": 2},
        }));
    }

    #[test]
    fn a_number_of_floating_point_may_be_a_text() {
        for (text, wanted) in [
            ("0.25", 0.25),
            ("-1e300", -1e300),
            ("7", 7.0),
            ("Infinity", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
        ] {
            let points = json!({"gauge": {"dataPoints": [{"asDouble": text}]}});
            let metric: Metric = read(points);
            let Some(metric::Data::Gauge(gauge)) = metric.data else {
                panic!("{text}")
            };
            let wanted = Some(number_data_point::Value::AsDouble(wanted));
            assert_eq!(gauge.data_points[0].value, wanted, "{text}");
            let sum =
                json!({"histogram": {"dataPoints": [{"sum": text, "explicitBounds": [text]}]}});
            let metric: Metric = read(sum);
            assert!(metric.data.is_some(), "{text}");
            let quantiles = json!({"summary": {"dataPoints": [{"sum": text, "quantileValues": [{"quantile": "0.5", "value": text}]}]}});
            let metric: Metric = read(quantiles);
            assert!(metric.data.is_some(), "{text}");
            let log: LogRecord = read(json!({"body": {"doubleValue": text}}));
            assert!(log.body.unwrap().value.is_some(), "{text}");
        }
        let nan: LogRecord = read(json!({"body": {"doubleValue": "NaN"}}));
        assert!(format!("{:?}", nan.body).contains("DoubleValue(NaN)"));
        // A text stays a text, whatever it looks like.
        let log: LogRecord = read(json!({"body": {"stringValue": "0.25"}, "severityText": "NaN"}));
        assert!(format!("{log:?}").contains(r#"StringValue("0.25")"#));
        for text in ["nan", "inf", "", "1,5", "0x1"] {
            assert!(
                LogRecord::deserialize(Tree::new(json!({"body": {"doubleValue": text}}), false))
                    .is_err()
            );
        }
    }
}
