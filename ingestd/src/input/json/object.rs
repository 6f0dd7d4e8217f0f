//! One JSON object, taken apart into the values of its keys without a copy.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The value of each name, by its number, as it is written; of a key that occurs twice the last.
pub(super) type Values<'a> = Vec<Option<&'a RawValue>>;

/// The names of keys. The key `b` of the object of key `a` has the name `a.b`.
pub(super) trait Names {
    /// The number of a key's name, within the object of the parent's number; `None` where the key is not looked at.
    fn number(&mut self, parent: Option<usize>, key: &str) -> Option<usize>;

    /// Whether an object that is this name's value is taken apart.
    fn is_taken_apart(&self, number: usize) -> bool;
}

/// Parses an object.
pub(super) fn parse_object<'a>(
    text: &'a [u8],
    values: &mut Values<'a>,
    names: &mut impl Names,
) -> serde_json::Result<()> {
    let mut parser = serde_json::Deserializer::from_slice(text);
    let parent = None;
    parser.deserialize_map(Object {
        values,
        names,
        parent,
    })?;
    parser.end()
}

struct Object<'v, 'a, N> {
    values: &'v mut Values<'a>,
    names: &'v mut N,
    parent: Option<usize>,
}

impl<'a, N: Names> Visitor<'a> for Object<'_, 'a, N> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Object {
            values,
            names,
            parent,
        } = self;
        while let Some(number) = map.next_key_seed(Key { names, parent })? {
            let value: &'a RawValue = map.next_value()?;
            let Some(number) = number else { continue };
            if values.len() <= number {
                values.resize(number + 1, None);
            }
            if let Some(cell) = values.get_mut(number) {
                *cell = Some(value);
            }
            if value.get().starts_with('{') && names.is_taken_apart(number) {
                let parent = Some(number);
                let inner = Object {
                    values,
                    names,
                    parent,
                };
                serde_json::Deserializer::from_str(value.get())
                    .deserialize_map(inner)
                    .map_err(serde::de::Error::custom)?;
            }
        }
        Ok(())
    }
}

/// Looks a key up without copying it.
struct Key<'n, N> {
    names: &'n mut N,
    parent: Option<usize>,
}

impl<'a, N: Names> DeserializeSeed<'a> for Key<'_, N> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, parser: D) -> Result<Option<usize>, D::Error> {
        parser.deserialize_str(self)
    }
}

impl<N: Names> Visitor<'_> for Key<'_, N> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.names.number(self.parent, key))
    }
}
