//! The declaration of how an index's values fall into bins: `"auto"`, `{ from, step, count }`, `{ from, factor, count }` or a list of
//! edges.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::number::Number;
use crate::error::{Error, Result};

/// The most bins that an index can define.
pub const BINS_MAX: u32 = 4096;

/// A declaration of bins. Two outlier bins are added to those declared.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum BinsDef {
    /// 32 bins for each octave, over all values.
    #[default]
    Auto,
    /// The edges from + i·step, for i from 0 to count.
    Linear {
        from: Number,
        step: Number,
        count: u32,
    },
    /// The edges from · factor^i, for i from 0 to count.
    Geometric {
        from: Number,
        factor: Number,
        count: u32,
    },
    /// The edges, one more than there are bins.
    Edges(Vec<Number>),
}

impl BinsDef {
    /// The edges in order, each finite; `None` for `auto`. Whole numbers stay exact while they fit 128 bits. Others are floats: from +
    /// i·step, or from multiplied i times by the factor.
    pub(super) fn edges(&self) -> Result<Option<Vec<Number>>> {
        let edges = match self {
            BinsDef::Auto => return Ok(None),
            &BinsDef::Linear { from, step, count } => {
                if step.to_f64() <= 0.0 {
                    return Err(Error::schema(format!(
                        "bins: step is {step}; it must be above 0"
                    )));
                }
                linear(from, step, checked_count(count as usize)?)
            }
            &BinsDef::Geometric {
                from,
                factor,
                count,
            } => {
                if from.to_f64() <= 0.0 || factor.to_f64() <= 1.0 {
                    return Err(Error::schema(format!(
                        "bins: from is {from} and factor is {factor}; from must be above 0 and factor above 1"
                    )));
                }
                geometric(from, factor, checked_count(count as usize)?)
            }
            BinsDef::Edges(edges) => {
                checked_count(edges.len().saturating_sub(1))?;
                edges.clone()
            }
        };
        match edges.iter().find(|edge| !edge.is_finite()) {
            Some(edge) => Err(Error::schema(format!(
                "bins: the edge {edge} is not finite"
            ))),
            None => Ok(Some(edges)),
        }
    }
}

fn checked_count(count: usize) -> Result<u32> {
    if (1..=BINS_MAX as usize).contains(&count) {
        return Ok(count as u32);
    }
    Err(Error::schema(format!(
        "bins: {count} bins are declared; 1 to {BINS_MAX} are allowed"
    )))
}

fn linear(from: Number, step: Number, count: u32) -> Vec<Number> {
    let edge = |i: u32| match (from, step) {
        (Number::Int(from), Number::Int(step)) => {
            Number::Int(from.saturating_add(step.saturating_mul(i.into())))
        }
        _ => Number::Float(from.to_f64() + f64::from(i) * step.to_f64()),
    };
    (0..=count).map(edge).collect()
}

fn geometric(from: Number, factor: Number, count: u32) -> Vec<Number> {
    let next = |edge: &Number| {
        let whole = match (*edge, factor) {
            (Number::Int(edge), Number::Int(factor)) => edge.checked_mul(factor),
            _ => None,
        };
        Some(whole.map_or(Number::Float(edge.to_f64() * factor.to_f64()), Number::Int))
    };
    std::iter::successors(Some(from), next)
        .take(count as usize + 1)
        .collect()
}

impl Serialize for BinsDef {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            BinsDef::Auto => to.serialize_str("auto"),
            BinsDef::Linear { from, step, count } => table(to, *from, ("step", *step), *count),
            BinsDef::Geometric {
                from,
                factor,
                count,
            } => table(to, *from, ("factor", *factor), *count),
            BinsDef::Edges(edges) => to.collect_seq(edges),
        }
    }
}

fn table<S: Serializer>(
    to: S,
    from: Number,
    (name, value): (&'static str, Number),
    count: u32,
) -> Result<S::Ok, S::Error> {
    let mut table = to.serialize_map(Some(3))?;
    table.serialize_entry("from", &from)?;
    table.serialize_entry(name, &value)?;
    table.serialize_entry("count", &count)?;
    table.end()
}

impl<'de> Deserialize<'de> for BinsDef {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<BinsDef, D::Error> {
        from.deserialize_any(BinsVisitor)
    }
}

struct BinsVisitor;

impl<'de> Visitor<'de> for BinsVisitor {
    type Value = BinsDef;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "bins: \"auto\", { from, step, count }, { from, factor, count } or a list of edges",
        )
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<BinsDef, E> {
        match text {
            "auto" => Ok(BinsDef::Auto),
            _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<BinsDef, A::Error> {
        let mut edges = Vec::new();
        while let Some(edge) = seq.next_element()? {
            if edges.len() > BINS_MAX as usize {
                return Err(A::Error::custom(format!(
                    "bins: more than {BINS_MAX} are declared"
                )));
            }
            edges.push(edge);
        }
        Ok(BinsDef::Edges(edges))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<BinsDef, A::Error> {
        let (mut from, mut step, mut factor, mut count) = (None, None, None, None);
        while let Some(key) = map.next_key::<String>()? {
            let number = match key.as_str() {
                "from" => &mut from,
                "step" => &mut step,
                "factor" => &mut factor,
                "count" => {
                    count = Some(map.next_value()?);
                    continue;
                }
                _ => {
                    return Err(A::Error::unknown_field(
                        &key,
                        &["from", "step", "factor", "count"],
                    ));
                }
            };
            *number = Some(map.next_value()?);
        }
        match (from, step, factor, count) {
            (Some(from), Some(step), None, Some(count)) => {
                Ok(BinsDef::Linear { from, step, count })
            }
            (Some(from), None, Some(factor), Some(count)) => Ok(BinsDef::Geometric {
                from,
                factor,
                count,
            }),
            _ => Err(A::Error::custom(
                "bins need from, count, and either step or factor: \
                 { from = 0, step = 10, count = 20 } or { from = 1, factor = 2, count = 20 }",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(json: &str) -> Result<BinsDef, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn each_form_is_read_and_written() {
        for json in [
            r#""auto""#,
            r#"{"from":1000,"factor":2,"count":24}"#,
            r#"{"from":-0.5,"step":0.1,"count":3}"#,
            "[1,2.5,18446744073709551615]",
        ] {
            assert_eq!(serde_json::to_string(&read(json).unwrap()).unwrap(), json);
        }
    }

    #[test]
    fn incomplete_and_unknown_forms_say_what_is_wanted() {
        assert!(
            read(r#"{"from":1,"count":3}"#)
                .unwrap_err()
                .contains("either step or factor")
        );
        assert!(read(r#"{"from":1,"step":1,"factor":2,"count":3}"#).is_err());
        assert!(
            read(r#"{"from":1,"width":1,"count":3}"#)
                .unwrap_err()
                .contains("unknown field")
        );
        assert!(read(r#""log""#).unwrap_err().contains("\"auto\""));
        assert!(read("3").is_err() && read("null").is_err());
        assert!(read(r#"["1"]"#).is_err());
    }

    #[test]
    fn whole_edges_are_exact() {
        let edges = read(r#"{"from":9007199254740993,"step":2,"count":2}"#)
            .unwrap()
            .edges();
        let expected = [9007199254740993, 9007199254740995, 9007199254740997].map(Number::Int);
        assert_eq!(edges.unwrap().unwrap(), expected);
        let edges = read(r#"{"from":3,"factor":10,"count":18}"#)
            .unwrap()
            .edges()
            .unwrap()
            .unwrap();
        assert_eq!(edges.last(), Some(&Number::Int(3_000_000_000_000_000_000)));
    }

    #[test]
    fn counts_steps_and_factors_are_checked() {
        for bad in [
            r#"{"from":1,"step":0,"count":3}"#,
            r#"{"from":1,"step":-1,"count":3}"#,
            r#"{"from":1,"step":1,"count":0}"#,
            r#"{"from":1,"step":1,"count":4097}"#,
            r#"{"from":0,"factor":2,"count":3}"#,
            r#"{"from":1,"factor":1,"count":3}"#,
            r#"{"from":1e300,"factor":1e300,"count":3}"#,
            "[]",
            "[1]",
        ] {
            assert!(read(bad).unwrap().edges().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn floats_survive_the_catalog(edges in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL, 2..20)) {
            let def = BinsDef::Edges(edges.into_iter().map(Number::Float).collect());
            let json = serde_json::to_string(&def).unwrap();
            prop_assert_eq!(read(&json).unwrap(), def);
        }
    }
}
