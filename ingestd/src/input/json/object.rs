//! One JSON object, taken apart into the values of its keys without a copy.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The value of each column, as it is written; of a key that occurs twice the last.
pub(super) type Values<'a> = Vec<Option<&'a RawValue>>;

/// Parses a line. `column` finds the column of a key, or `None` where the key is left out.
pub(super) fn parse_object<'a>(
    line: &'a [u8],
    values: &mut Values<'a>,
    column: impl FnMut(&str) -> Option<usize>,
) -> serde_json::Result<()> {
    let mut parser = serde_json::Deserializer::from_slice(line);
    parser.deserialize_map(Object { values, column })?;
    parser.end()
}

struct Object<'v, 'a, F> {
    values: &'v mut Values<'a>,
    column: F,
}

impl<'a, F: FnMut(&str) -> Option<usize>> Visitor<'a> for Object<'_, 'a, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some(column) = map.next_key_seed(Key(&mut self.column))? {
            let value: &'a RawValue = map.next_value()?;
            let Some(column) = column else { continue };
            if self.values.len() <= column {
                self.values.resize(column + 1, None);
            }
            if let Some(cell) = self.values.get_mut(column) {
                *cell = Some(value);
            }
        }
        Ok(())
    }
}

/// Looks a key up without copying it.
struct Key<'k, F>(&'k mut F);

impl<'a, F: FnMut(&str) -> Option<usize>> DeserializeSeed<'a> for Key<'_, F> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, parser: D) -> Result<Option<usize>, D::Error> {
        parser.deserialize_str(self)
    }
}

impl<F: FnMut(&str) -> Option<usize>> Visitor<'_> for Key<'_, F> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok((self.0)(key))
    }
}
