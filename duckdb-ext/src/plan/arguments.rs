//! The arguments of a call, by name, each with a getter for its type. NULL means not given. DuckDB has cast them to the declared
//! types already; what is declared ANY is read as it comes.

use std::path::PathBuf;

use super::datum::{Datum, Interval};
use super::time::TimeArguments;
use super::types::SqlType;
use crate::error::{Problem, Result};

#[derive(Debug, Clone, Copy)]
pub struct Parameter {
    pub name: &'static str,
    pub ty: SqlType,
}

/// What a call depends on beside its arguments.
pub struct Ambient<'a> {
    /// The setting `loom_dir`, where the adapter has settings.
    pub loom_dir: Option<String>,
    /// Whether the user has interrupted the query.
    pub stop: &'a dyn Fn() -> bool,
}

#[derive(Debug, Default)]
pub struct Arguments {
    given: Vec<(&'static str, Datum)>,
}

impl Arguments {
    pub fn set(&mut self, name: &'static str, value: Datum) {
        self.given.push((name, value));
    }

    /// None where it was not given, or is NULL.
    pub fn get(&self, name: &str) -> Option<&Datum> {
        self.given
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
            .filter(|value| !value.is_null())
    }

    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        match self.get(name) {
            None => Ok(None),
            Some(Datum::Text(text)) => Ok(Some(text)),
            Some(other) => Err(mismatch(name, "VARCHAR", other)),
        }
    }

    /// A text that must be given.
    pub fn required_text(&self, name: &str) -> Result<&str> {
        self.text(name)?
            .ok_or_else(|| Problem::binder(format!("{name} must be given, and not NULL")))
    }

    /// Microseconds since the epoch.
    pub fn timestamp(&self, name: &str) -> Result<Option<i64>> {
        match self.get(name) {
            None => Ok(None),
            Some(Datum::TimestampTz(micros)) => Ok(Some(*micros)),
            Some(other) => Err(mismatch(name, "TIMESTAMPTZ", other)),
        }
    }

    pub fn interval(&self, name: &str) -> Result<Option<Interval>> {
        match self.get(name) {
            None => Ok(None),
            Some(Datum::Interval(interval)) => Ok(Some(*interval)),
            Some(other) => Err(mismatch(name, "INTERVAL", other)),
        }
    }

    pub fn boolean(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(Datum::Bool(value)) => Ok(Some(*value)),
            Some(other) => Err(mismatch(name, "BOOLEAN", other)),
        }
    }

    /// A position in the record log.
    pub fn position(&self, name: &str) -> Result<Option<u64>> {
        match self.get(name) {
            None => Ok(None),
            Some(Datum::Int(value)) => u64::try_from(*value).map(Some).map_err(|_| {
                Problem::binder(format!(
                    "{name}: {value} is no position; loom_snapshot(dir) gives one"
                ))
            }),
            Some(other) => Err(mismatch(
                name,
                "UBIGINT, a position from loom_snapshot(dir)",
                other,
            )),
        }
    }

    /// Microseconds since the epoch; NULLs in the list are left out.
    pub fn timestamps(&self, name: &str) -> Result<Option<Vec<i64>>> {
        self.list(name, "TIMESTAMPTZ[]", |item| match item {
            Datum::TimestampTz(micros) => Some(*micros),
            _ => None,
        })
    }

    pub fn doubles(&self, name: &str) -> Result<Option<Vec<f64>>> {
        self.list(name, "DOUBLE[]", |item| match item {
            Datum::Float(value) => Some(*value),
            _ => None,
        })
    }

    fn list<T>(
        &self,
        name: &str,
        ty: &str,
        item: impl Fn(&Datum) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        match self.get(name) {
            None => Ok(None),
            Some(Datum::List(items)) => items
                .iter()
                .filter(|value| !value.is_null())
                .map(|value| item(value).ok_or_else(|| mismatch(name, ty, value)))
                .collect::<Result<Vec<T>>>()
                .map(Some),
            Some(other) => Err(mismatch(name, ty, other)),
        }
    }

    pub fn times(&self) -> Result<TimeArguments> {
        let times = TimeArguments {
            t_from: self.timestamp("t_from")?,
            t_to: self.timestamp("t_to")?,
            last: self.interval("last")?,
            around: self.timestamps("around")?,
            width: self.interval("width")?,
        };
        times.windows()?;
        Ok(times)
    }

    /// The Loom directory that the call reads.
    pub fn directory(&self, ambient: &Ambient<'_>) -> Result<PathBuf> {
        let given = match self.get("dir") {
            Some(Datum::Text(path)) => Some(path.clone()),
            Some(other) => {
                return Err(mismatch(
                    "dir",
                    "VARCHAR, the path of a Loom directory",
                    other,
                ));
            }
            None => ambient.loom_dir.clone(),
        };
        let path = match given {
            Some(path) => PathBuf::from(path),
            None => std::env::var_os("LOOM_DIR").map(PathBuf::from).ok_or_else(|| {
                Problem::binder("dir is NULL, and neither the setting loom_dir nor the environment's LOOM_DIR names a Loom directory")
            })?,
        };
        match (path.strip_prefix("~"), std::env::home_dir()) {
            (Ok(rest), Some(home)) => Ok(home.join(rest)),
            _ => Ok(path),
        }
    }
}

fn mismatch(name: &str, ty: &str, found: &Datum) -> Problem {
    Problem::binder(format!("{name} takes {ty}, not {}", found.type_name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(given: &[(&'static str, Datum)]) -> Arguments {
        Arguments {
            given: given.to_vec(),
        }
    }

    #[test]
    fn null_means_not_given() {
        let given = arguments(&[("t_from", Datum::Null), ("t_to", Datum::TimestampTz(5))]);
        assert_eq!(given.timestamp("t_from").unwrap(), None);
        assert_eq!(given.timestamp("t_to").unwrap(), Some(5));
        assert_eq!(given.timestamp("last").unwrap(), None);
        assert!(
            arguments(&[("source", Datum::Null)])
                .required_text("source")
                .is_err()
        );
    }

    #[test]
    fn a_wrong_type_is_named() {
        let problem = arguments(&[("at", Datum::Text("now".into()))])
            .position("at")
            .unwrap_err();
        assert_eq!(
            problem.to_string(),
            "at takes UBIGINT, a position from loom_snapshot(dir), not VARCHAR"
        );
        assert!(arguments(&[("at", Datum::Int(-1))]).position("at").is_err());
    }

    #[test]
    fn the_directory_comes_from_the_argument_then_from_the_setting() {
        let ambient = Ambient {
            loom_dir: Some("/set".into()),
            stop: &|| false,
        };
        let directory = |datum| arguments(&[("dir", datum)]).directory(&ambient);
        assert_eq!(
            directory(Datum::Text("/given".into())).unwrap(),
            PathBuf::from("/given")
        );
        assert_eq!(directory(Datum::Null).unwrap(), PathBuf::from("/set"));
        assert!(directory(Datum::Int(3)).is_err());
    }

    #[test]
    fn lists_leave_out_nulls() {
        let list = Datum::List(vec![
            Datum::TimestampTz(1),
            Datum::Null,
            Datum::TimestampTz(2),
        ]);
        assert_eq!(
            arguments(&[("around", list)]).timestamps("around").unwrap(),
            Some(vec![1, 2])
        );
    }
}
