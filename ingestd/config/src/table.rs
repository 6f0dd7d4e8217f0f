//! Reads a table such as `[[rule]]` and checks it as a whole, so that an error of the check has the table's line.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Reads a table as `W`, and converts it to `T`. The conversion must be part of the reading, because TOML knows the table's line only until then.
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
