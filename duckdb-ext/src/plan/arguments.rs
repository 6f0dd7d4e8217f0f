//! The arguments of a call by name, with a getter for each type. NULL counts as not given. DuckDB casts arguments to the declared types;
//! one that is declared ANY keeps the type that the user wrote.

use std::path::Path;

use super::access::may_look;
use super::ambient::Ambient;
use super::datum::{Datum, Interval};
use super::parameters::Parameter;
use super::paths::Given;
use super::time::TimeArguments;
use crate::error::{Problem, Result};

#[derive(Debug)]
pub struct Arguments {
    /// The name of the function.
    function: &'static str,
    /// The parameters that the function takes by position.
    positional: &'static [Parameter],
    given: Vec<(&'static str, Datum)>,
}

impl Arguments {
    /// No arguments yet.
    pub fn of(function: &'static str, positional: &'static [Parameter]) -> Arguments {
        Arguments {
            function,
            positional,
            given: Vec::new(),
        }
    }

    pub fn set(&mut self, name: &'static str, value: Datum) {
        self.given.push((name, value));
    }

    /// The argument; `None` if it was not given or is NULL.
    pub fn get(&self, name: &str) -> Option<&Datum> {
        self.given
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
            .filter(|value| !value.is_null())
    }

    /// Whether the argument was given as NULL.
    pub fn is_null(&self, name: &str) -> bool {
        self.given
            .iter()
            .any(|(known, value)| *known == name && value.is_null())
    }

    pub fn text(&self, name: &str) -> Result<Option<&str>> {
        self.typed(name, "VARCHAR", Datum::text)
    }

    pub fn required_text(&self, name: &str) -> Result<&str> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// Microseconds since the epoch.
    pub fn timestamp(&self, name: &str) -> Result<Option<i64>> {
        self.typed(name, "TIMESTAMPTZ", Datum::timestamp_tz)
    }

    pub fn interval(&self, name: &str) -> Result<Option<Interval>> {
        self.typed(name, "INTERVAL", |value| match value {
            Datum::Interval(interval) => Some(*interval),
            _ => None,
        })
    }

    pub fn boolean(&self, name: &str) -> Result<Option<bool>> {
        self.typed(name, "BOOLEAN", |value| match value {
            Datum::Bool(value) => Some(*value),
            _ => None,
        })
    }

    pub fn required_count(&self, name: &str) -> Result<u64> {
        // If one argument is missing, DuckDB gives the one before it as the count.
        if let (Some(Datum::Text(_)), None) = (self.get(name), self.get("dir")) {
            return Err(self.no_directory());
        }
        self.count(name)?.ok_or_else(|| missing(name))
    }

    pub fn count(&self, name: &str) -> Result<Option<u64>> {
        let given = self.typed(name, "BIGINT", |value| match value {
            Datum::Int(value) => Some(*value),
            _ => None,
        })?;
        let count = |value: i128| {
            u64::try_from(value)
                .map_err(|_| Problem::binder(format!("{name} must not be negative: it is {value}")))
        };
        given.map(count).transpose()
    }

    /// Microseconds since the epoch.
    pub fn timestamps(&self, name: &str) -> Result<Option<Vec<i64>>> {
        self.list(name, "TIMESTAMPTZ[]", Datum::timestamp_tz)
    }

    pub fn doubles(&self, name: &str) -> Result<Option<Vec<f64>>> {
        self.list(name, "DOUBLE[]", |item| match item {
            Datum::Float(value) => Some(*value),
            _ => None,
        })
    }

    pub fn texts(&self, name: &str) -> Result<Option<Vec<String>>> {
        self.list(name, "VARCHAR[]", |item| item.text().map(str::to_owned))
    }

    fn typed<'a, T>(
        &'a self,
        name: &str,
        ty: &str,
        read: impl Fn(&'a Datum) -> Option<T>,
    ) -> Result<Option<T>> {
        let read = |value| read(value).ok_or_else(|| mismatch(name, ty, value));
        self.get(name).map(read).transpose()
    }

    /// A MAP or STRUCT from texts to texts.
    pub fn text_map(&self, name: &str) -> Result<Option<Vec<(String, String)>>> {
        const TAKES: &str = "texts by texts, such as MAP {'job': 'node.*'}";
        let text = |datum: &Datum| match datum {
            Datum::Text(text) => Ok(text.clone()),
            Datum::Null => Err(Problem::binder(format!(
                "{name} holds a NULL; remove it from the map"
            ))),
            Datum::List(_) => Err(Problem::binder(format!(
                "{name} takes one text for each name, not a list; write alternatives as in 'one|other'"
            ))),
            other => Err(mismatch(name, TAKES, other)),
        };
        match self.get(name) {
            None => Ok(None),
            Some(Datum::Struct(fields)) => fields
                .iter()
                .map(|(key, value)| Ok((key.clone(), text(value)?)))
                .collect::<Result<_>>()
                .map(Some),
            Some(Datum::Map(entries)) => entries
                .iter()
                .map(|(key, value)| Ok((text(key)?, text(value)?)))
                .collect::<Result<_>>()
                .map(Some),
            Some(other) => Err(mismatch(name, TAKES, other)),
        }
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
                .map(|value| match value {
                    Datum::Null => Err(Problem::binder(format!(
                        "{name} holds a NULL; remove it from the list"
                    ))),
                    value => item(value).ok_or_else(|| mismatch(name, ty, value)),
                })
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

    /// The Loom directories that the call reads.
    pub fn directories(&self, ambient: &Ambient<'_>) -> Result<Given> {
        const TAKES: &str = "VARCHAR, the path of a Loom directory or a glob, or a list of them";
        let text = |value: &Datum| match value {
            Datum::Text(path) => Ok(path.clone()),
            Datum::Null => Err(Problem::binder("dir holds a NULL; remove it from the list")),
            other => Err(mismatch("dir", TAKES, other)),
        };
        match self.get("dir") {
            Some(Datum::List(paths)) => Given::new(paths.iter().map(text).collect::<Result<_>>()?),
            Some(other) => Given::new(vec![text(other)?]),
            None => {
                let from_environment = || std::env::var("LOOM_DIR").ok();
                let named = (ambient.loom_dir)().or_else(from_environment);
                let named = named.filter(|path| !path.is_empty());
                Given::new(vec![named.ok_or_else(|| self.no_directory())?])
            }
        }
    }

    /// The error if neither argument nor setting nor variable names a directory. If one of two arguments is missing, DuckDB takes the other
    /// for the source, so the error says that.
    fn no_directory(&self) -> Problem {
        let function = self.function;
        let call = |dir: &str, source: &str| {
            let names = self
                .positional
                .iter()
                .map(|parameter| match parameter.name {
                    "dir" => dir,
                    "source" => source,
                    name => name,
                });
            format!("{function}({})", names.collect::<Vec<_>>().join(", "))
        };
        let is_null = self.given.iter().any(|(name, _)| *name == "dir");
        let why = match self.get("source") {
            _ if is_null => format!("dir is NULL; write {}", call("dir", "source")),
            Some(Datum::Text(source))
                if may_look(Path::new(source)) && Path::new(source).exists() =>
            {
                format!(
                    "an argument is missing: '{source}' was taken for the source; write {}",
                    call(&format!("'{source}'"), "source")
                )
            }
            Some(Datum::Text(source)) => format!(
                "no directory is given: '{source}' is the source; write {}",
                call("dir", &format!("'{source}'"))
            ),
            _ => format!("no directory is given; write {}", call("dir", "source")),
        };
        Problem::binder(format!(
            "{function}: {why}, or set loom_dir or the environment variable LOOM_DIR"
        ))
    }
}

fn missing(name: &str) -> Problem {
    Problem::binder(format!("{name} must be given, and must not be NULL"))
}

pub fn mismatch(name: &str, ty: &str, found: &Datum) -> Problem {
    Problem::binder(format!("{name} takes {ty}, not {}", found.type_name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::access::Access;
    use crate::plan::parameters::{DIR, INDEX, N, SOURCE};

    fn arguments(given: &[(&'static str, Datum)]) -> Arguments {
        Arguments {
            function: "loom_top",
            positional: &[DIR, SOURCE, INDEX, N],
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
        let problem = arguments(&[("last", Datum::Text("now".into()))])
            .interval("last")
            .unwrap_err();
        assert_eq!(problem.to_string(), "last takes INTERVAL, not VARCHAR");
    }

    #[test]
    fn the_directory_comes_from_the_argument_then_from_the_setting() {
        let ambient = Ambient {
            file: "duckdb-v1",
            views_grow: true,
            loom_dir: &|| Some("/set".into()),
            stop: &|| false,
            threads: &|| 1,
            access: Access::All,
        };
        let directories = |datum| arguments(&[("dir", datum)]).directories(&ambient);
        let given = |paths: &[&str]| Given::new(paths.iter().map(|path| (*path).into()).collect());
        let text = |path: &str| Datum::Text(path.into());
        assert_eq!(directories(text("/given")), given(&["/given"]));
        assert_eq!(directories(Datum::Null), given(&["/set"]));
        let list = vec![text("/a"), text("/b*")];
        assert_eq!(directories(Datum::List(list)), given(&["/a", "/b*"]));
        for refused in [
            Datum::Int(3),
            text(""),
            Datum::List(Vec::new()),
            Datum::List(vec![text("/a"), Datum::Null]),
        ] {
            assert!(directories(refused).is_err());
        }
    }

    #[test]
    fn the_error_of_a_call_without_a_directory_says_how_to_give_it() {
        let said = |given: &[(&'static str, Datum)]| {
            let problem = arguments(given).no_directory();
            problem.to_string()
        };
        assert!(said(&[("dir", Datum::Null)]).contains("dir is NULL"));
        assert!(said(&[]).contains("no directory is given"));
        let source = |name: &str| said(&[("source", Datum::Text(name.into()))]);
        assert!(source("requests").contains("loom_top(dir, 'requests', index, n)"));
        assert!(source("/").contains("loom_top('/', source, index, n)"));
    }

    #[test]
    fn a_forgotten_count_is_noticed() {
        let text = |text: &str| Datum::Text(text.into());
        let shifted = [
            ("source", text("/")),
            ("index", text("requests")),
            ("n", text("latency")),
        ];
        let problem = arguments(&shifted).required_count("n").unwrap_err();
        assert!(problem.to_string().contains("an argument is missing"));
        let given = [("dir", text("/")), ("n", text("3"))];
        let problem = arguments(&given).required_count("n").unwrap_err();
        assert_eq!(problem.to_string(), "n takes BIGINT, not VARCHAR");
    }

    #[test]
    fn a_null_in_a_list_is_refused() {
        let list = Datum::List(vec![Datum::TimestampTz(1), Datum::Null]);
        let problem = arguments(&[("around", list)])
            .timestamps("around")
            .unwrap_err();
        assert!(problem.to_string().contains("around holds a NULL"));
        let list = Datum::List(vec![Datum::TimestampTz(1), Datum::TimestampTz(2)]);
        assert_eq!(
            arguments(&[("around", list)]).timestamps("around").unwrap(),
            Some(vec![1, 2])
        );
    }
}
