//! The attributes that have a field of their own, their types, and their values in a record.

use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};

use crate::envelope::{Origin, value_of};

/// The type of a promoted attribute. An attribute of a different type stays among the others.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Kind {
    Text,
    Int,
    Double,
    Bool,
}

/// The value of a promoted attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum Scalar {
    Text(String),
    Int(i64),
    Double(f64),
    Bool(bool),
}

/// The names and types of the promoted attributes, in the order of their values.
#[derive(Clone, Default, Debug)]
pub struct Promoted(pub Vec<(String, Kind)>);

impl Promoted {
    /// The values in a record. The record comes before its scope, and the scope before its resource.
    pub(crate) fn values(&self, own: &[KeyValue], origin: &Origin) -> Vec<Option<Scalar>> {
        let of = |(name, kind): &(String, Kind)| {
            let places = [own, &origin.scope_attributes, &origin.resource_attributes];
            let mut found = places.iter().filter_map(|place| value_of(place, name));
            scalar(found.next()?, *kind)
        };
        self.0.iter().map(of).collect()
    }

    /// Whether an attribute of a record has a field, and so is not among the others.
    pub(crate) fn takes(&self, attribute: &KeyValue) -> bool {
        let is_it = |(name, kind): &(String, Kind)| {
            let value = attribute.value.as_ref();
            *name == attribute.key && value.is_some_and(|value| scalar(value, *kind).is_some())
        };
        self.0.iter().any(is_it)
    }
}

fn scalar(value: &AnyValue, kind: Kind) -> Option<Scalar> {
    use any_value::Value;
    match (value.value.as_ref()?, kind) {
        (Value::StringValue(text), Kind::Text) => Some(Scalar::Text(text.clone())),
        (Value::IntValue(value), Kind::Int) => Some(Scalar::Int(*value)),
        (Value::DoubleValue(value), Kind::Double) => Some(Scalar::Double(*value)),
        (Value::BoolValue(value), Kind::Bool) => Some(Scalar::Bool(*value)),
        _ => None,
    }
}
