//! A table of a list, such as a `[[rule]]`, that is checked as a whole: an error of the check has the table's own line.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads a table as it is written, and makes of it what it stands for. The check belongs to the reading: what an error of it is about, TOML knows
/// only until the table has been read.
pub fn table<'de, W, T, D>(from: D) -> Result<T, D::Error>
where
    W: Deserialize<'de>,
    T: TryFrom<W, Error = String>,
    D: Deserializer<'de>,
{
    from.deserialize_map(Checked(PhantomData::<(W, T)>))
}

struct Checked<W, T>(PhantomData<(W, T)>);

impl<'de, W, T> Visitor<'de> for Checked<W, T>
where
    W: Deserialize<'de>,
    T: TryFrom<W, Error = String>,
{
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<T, A::Error> {
        let written = W::deserialize(MapAccessDeserializer::new(entries))?;
        T::try_from(written).map_err(A::Error::custom)
    }
}
