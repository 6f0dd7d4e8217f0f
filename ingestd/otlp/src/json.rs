//! Attributes as JSON text. Each is a text, a number, a boolean or a list; bytes become Base64, and numbers that JSON does not have become texts.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use serde::{Serialize, Serializer};

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
            Some(Value::KvlistValue(map)) => Object(&map.values).serialize(serializer),
            Some(Value::BytesValue(bytes)) => {
                serializer.serialize_str(&BASE64_STANDARD.encode(bytes))
            }
            // Only profiles have an index into a table of texts.
            Some(Value::StringValueStrindex(_)) | None => serializer.serialize_unit(),
        }
    }
}

/// Attributes as an object.
pub(crate) struct Object<'a>(&'a [KeyValue]);

impl Serialize for Object<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let attributes = self.0.iter();
        serializer.collect_map(attributes.map(|one| (&one.key, one.value.as_ref().map(Any))))
    }
}

/// An object of attributes; `None` if there are none.
pub(crate) fn object(attributes: &[KeyValue]) -> Option<Object<'_>> {
    (!attributes.is_empty()).then_some(Object(attributes))
}

/// A text that is not empty.
pub(crate) fn filled<T: AsRef<str>>(text: T) -> Option<T> {
    Some(text).filter(|text| !text.as_ref().is_empty())
}

/// A value as a text: a text stays as it is, and any other value becomes JSON.
pub(crate) fn plain(value: &AnyValue) -> Option<String> {
    match &value.value {
        Some(any_value::Value::StringValue(text)) => Some(text.clone()),
        Some(_) => Some(text(&Any(value))),
        None => None,
    }
}

/// A scope with its name, version and attributes.
pub(crate) fn scope(scope: &InstrumentationScope) -> Option<String> {
    #[derive(Serialize)]
    struct Scope<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        attributes: Option<Object<'a>>,
    }
    (*scope != InstrumentationScope::default()).then(|| {
        text(&Scope {
            name: filled(scope.name.as_str()),
            version: filled(scope.version.as_str()),
            attributes: object(&scope.attributes),
        })
    })
}

pub(crate) fn text(value: &impl Serialize) -> String {
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
        assert_eq!(text(&object(&attributes)), wanted);
        assert!(object(&[]).is_none());
        assert_eq!(
            plain(&any(StringValue("as it is".to_owned()))).unwrap(),
            "as it is"
        );
        assert_eq!(plain(&any(IntValue(7))).unwrap(), "7");
    }
}
