//! One JSON object, taken apart into the values of its keys without a copy.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde_json::de::Read;
use serde_json::value::RawValue;

/// The values of one object, by the number of their name, each as it is written.
#[derive(Default)]
pub(in super::super) struct Values<'a> {
    cells: Vec<Option<&'a str>>,
    /// A name that has two values.
    twice: Option<usize>,
    /// How many values have a key that is not looked at.
    pub(super) beyond: u64,
}

impl<'a> Values<'a> {
    pub(super) fn with_capacity(names: usize) -> Values<'a> {
        Values {
            cells: Vec::with_capacity(names),
            ..Values::default()
        }
    }

    /// Without any value.
    pub(super) fn reset(&mut self) {
        self.cells.clear();
        (self.twice, self.beyond) = (None, 0);
    }

    /// Whether no name has two values.
    pub(super) fn are_single(&self) -> bool {
        self.twice.is_none()
    }

    pub(super) fn get(&self, number: usize) -> Option<&'a str> {
        self.cells.get(number).copied().flatten()
    }

    /// The value of each number in order, or none.
    pub(super) fn iter(&self) -> impl Iterator<Item = Option<&'a str>> {
        self.cells.iter().copied()
    }

    pub(super) fn clear(&mut self, number: usize) {
        if let Some(cell) = self.cells.get_mut(number) {
            *cell = None;
        }
    }

    pub(super) fn set(&mut self, number: usize, value: &'a str) {
        if self.cells.len() <= number {
            self.cells.resize(number + 1, None);
        }
        if let Some(cell) = self.cells.get_mut(number)
            && cell.replace(value).is_some()
        {
            self.twice = Some(number);
        }
    }
}

/// Why a text is not a row.
pub(super) enum Unread {
    NoObject(serde_json::Error),
    /// The name that has two values: no one knows which is meant.
    Twice(String),
}

/// The names of keys. The key `b` of the object of key `a` has the name `a.b`.
pub(super) trait Names {
    /// The number of a key's name, within the object of the parent's number; `None` where the key is not looked at.
    fn number(&mut self, parent: Option<usize>, key: &str) -> Option<usize>;

    /// Whether an object that is this name's value is taken apart.
    fn is_taken_apart(&self, number: usize) -> bool;

    fn text(&self, number: usize) -> &str;
}

/// The name of a key at the top of a row. No field has an empty one.
pub(super) fn name_of(key: &str) -> &str {
    if key.is_empty() { "_" } else { key }
}

/// Parses an object. Of what is not read, `values` means nothing.
pub(super) fn parse_object<'a>(
    text: impl Read<'a>,
    values: &mut Values<'a>,
    names: &mut impl Names,
) -> Result<(), Unread> {
    values.reset();
    let mut parser = serde_json::Deserializer::new(text);
    let parent = None;
    let object = Object {
        values,
        names,
        parent,
    };
    let parsed = parser.deserialize_map(object).and_then(|()| parser.end());
    parsed.map_err(Unread::NoObject)?;
    match values.twice {
        None => Ok(()),
        Some(number) => Err(Unread::Twice(names.text(number).to_owned())),
    }
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
            let value = map.next_value::<&'a RawValue>()?.get();
            let Some(number) = number else {
                values.beyond += 1;
                continue;
            };
            values.set(number, value);
            if value.starts_with('{') && names.is_taken_apart(number) {
                let parent = Some(number);
                let inner = Object {
                    values,
                    names,
                    parent,
                };
                serde_json::Deserializer::from_str(value)
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
