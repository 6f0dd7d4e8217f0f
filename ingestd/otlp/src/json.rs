//! Attributes as JSON text: a text, a number, a truth value or a list each; bytes as Base64, numbers that JSON has not as texts.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use serde::ser::{Serialize, SerializeMap, Serializer};

struct Any<'a>(&'a AnyValue);

impl Serialize for Any<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use any_value::Value;
        match &self.0.value {
            Some(Value::StringValue(text)) => serializer.serialize_str(text),
            Some(Value::BoolValue(value)) => serializer.serialize_bool(*value),
            Some(Value::IntValue(value)) => serializer.serialize_i64(*value),
            Some(Value::DoubleValue(value)) if value.is_finite() => {
                serializer.serialize_f64(*value)
            }
            Some(Value::DoubleValue(value)) => serializer.serialize_str(match value {
                value if value.is_nan() => "NaN",
                value if *value > 0.0 => "Infinity",
                _ => "-Infinity",
            }),
            Some(Value::ArrayValue(list)) => serializer.collect_seq(list.values.iter().map(Any)),
            Some(Value::KvlistValue(map)) => Object(map.values.iter()).serialize(serializer),
            Some(Value::BytesValue(bytes)) => {
                serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
            }
            // An index into a table of texts stands in profiles alone.
            Some(Value::StringValueStrindex(_)) | None => serializer.serialize_unit(),
        }
    }
}

struct Object<I>(I);

impl<'a, I: Iterator<Item = &'a KeyValue> + Clone> Serialize for Object<I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for KeyValue { key, value, .. } in self.0.clone() {
            map.serialize_entry(key, &value.as_ref().map(Any))?;
        }
        map.end()
    }
}

/// An object of attributes; none where there are none.
pub(crate) fn object<'a>(
    attributes: impl IntoIterator<Item = &'a KeyValue, IntoIter: Clone>,
) -> Option<String> {
    let attributes = attributes.into_iter();
    let is_empty = attributes.clone().next().is_none();
    (!is_empty).then(|| text(&Object(attributes)))
}

/// A value as a text: a text as it is, any other as JSON.
pub(crate) fn plain(value: &AnyValue) -> Option<String> {
    match &value.value {
        Some(any_value::Value::StringValue(text)) => Some(text.clone()),
        Some(_) => Some(text(&Any(value))),
        None => None,
    }
}

pub(crate) fn scope(scope: &InstrumentationScope) -> Option<String> {
    struct Scope<'a>(&'a InstrumentationScope);
    impl Serialize for Scope<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            let mut map = serializer.serialize_map(None)?;
            for (key, text) in [("name", &self.0.name), ("version", &self.0.version)] {
                if !text.is_empty() {
                    map.serialize_entry(key, text)?;
                }
            }
            if !self.0.attributes.is_empty() {
                map.serialize_entry("attributes", &Object(self.0.attributes.iter()))?;
            }
            map.end()
        }
    }
    let is_empty = *scope == InstrumentationScope::default();
    (!is_empty).then(|| text(&Scope(scope)))
}

/// A list of what a span has besides its attributes.
pub(crate) fn list<T>(
    items: &[T],
    entries: impl Fn(&T, &mut dyn FnMut(&'static str, Entry<'_>)),
) -> Option<String> {
    (!items.is_empty()).then(|| {
        let maps = items.iter().map(|item| {
            let mut map = serde_json::Map::new();
            entries(item, &mut |key, entry| {
                if let Some(value) = entry.value() {
                    map.insert(key.to_owned(), value);
                }
            });
            serde_json::Value::Object(map)
        });
        serde_json::Value::Array(maps.collect()).to_string()
    })
}

/// A part of an event or a link. What is empty is left out.
pub(crate) enum Entry<'a> {
    Text(&'a str),
    Number(u64),
    Attributes(&'a [KeyValue]),
}

impl Entry<'_> {
    fn value(self) -> Option<serde_json::Value> {
        match self {
            Entry::Text("") | Entry::Number(0) | Entry::Attributes([]) => None,
            Entry::Text(text) => Some(text.into()),
            Entry::Number(number) => Some(number.into()),
            Entry::Attributes(attributes) => {
                let value = serde_json::to_value(Object(attributes.iter()));
                Some(value.expect("attributes have texts for keys"))
            }
        }
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("attributes have texts for keys, and a text takes all")
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::common::v1::{ArrayValue, KeyValueList};

    use super::*;

    // case Metrics: logs and spans over OTLP
    #[test]
    fn each_kind_of_value_has_its_form() {
        use any_value::Value::*;
        let any = |value| AnyValue { value: Some(value) };
        let attribute = |key: &str, value: Option<AnyValue>| KeyValue {
            key: key.to_owned(),
            value,
            ..KeyValue::default()
        };
        let inner = attribute("k\"", Some(any(BoolValue(true))));
        let attributes = [
            attribute("text", Some(any(StringValue("a\n\"b\"".to_owned())))),
            attribute("int", Some(any(IntValue(i64::MIN)))),
            attribute("double", Some(any(DoubleValue(0.1)))),
            attribute("nan", Some(any(DoubleValue(f64::NAN)))),
            attribute("bytes", Some(any(BytesValue(vec![0, 255])))),
            attribute(
                "list",
                Some(any(ArrayValue(self::ArrayValue {
                    values: vec![any(IntValue(1)), AnyValue::default()],
                }))),
            ),
            attribute(
                "map",
                Some(any(KvlistValue(KeyValueList {
                    values: vec![inner],
                }))),
            ),
            attribute("nothing", None),
        ];
        let wanted = r#"{"text":"a\n\"b\"","int":-9223372036854775808,"double":0.1,"nan":"NaN","bytes":"AP8=","list":[1,null],"map":{"k\"":true},"nothing":null}"#;
        assert_eq!(object(&attributes).unwrap(), wanted);
        assert_eq!(object(&[]), None);
        assert_eq!(
            plain(&any(StringValue("as it is".to_owned()))).unwrap(),
            "as it is"
        );
        assert_eq!(plain(&any(IntValue(7))).unwrap(), "7");
    }
}
