//! Splits a JSON object into the values of its keys without a copy.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::de::Read;
use serde_json::value::RawValue;

use super::keys::Keys;
use super::values::Values;

/// Parses an object; the error says why the text is not a row, and `values` are undefined then.
pub(super) fn parse_object<'a>(
    text: impl Read<'a>,
    values: &mut Values<'a>,
    keys: &mut Keys,
) -> Result<(), String> {
    values.reset();
    keys.begin_row();
    let mut parser = serde_json::Deserializer::new(text);
    let object = Object { values, keys };
    let parsed = parser.deserialize_map(object).and_then(|()| parser.end());
    parsed.map_err(|error| {
        let text = error.to_string();
        let what = text.rsplit_once(" at line ");
        let what = what.map_or(&*text, |(what, _)| what);
        let column = error.column();
        format!("it is not a JSON object on one line: {what} at column {column}")
    })?;
    match values.twice {
        None => Ok(()),
        // Either value may be the right one.
        Some(number) => Err(format!(
            "it has two values for the name '{}'",
            keys.name(number)
        )),
    }
}

struct Object<'v, 'a> {
    values: &'v mut Values<'a>,
    keys: &'v mut Keys,
}

impl<'a> Visitor<'a> for Object<'_, 'a> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Object { values, keys } = self;
        while let Some(number) = map.next_key_seed(Key(keys))? {
            let value = map.next_value::<&'a RawValue>()?.get();
            match number {
                Some(number) => values.set(number, value),
                None => values.beyond += 1,
            }
        }
        Ok(())
    }
}

/// Looks a key up without copying it.
struct Key<'k>(&'k mut Keys);

impl<'a> DeserializeSeed<'a> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'a>>(self, parser: D) -> Result<Option<usize>, D::Error> {
        parser.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Option<usize>, E> {
        Ok(self.0.number(key))
    }
}
