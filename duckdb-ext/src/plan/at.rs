//! The argument `at`: a position in the one directory that a call reads, or a cut, which is the rows of `loom_snapshot` with a position for
//! each directory.

use std::fs;
use std::path::Path;

use super::access::may_look;
use super::ambient::Ambient;
use super::arguments::{Arguments, mismatch};
use super::datum::Datum;
use crate::error::{Problem, Result};

const NAME: &str = "at";
const TAKES: &str = "UBIGINT, a position from loom_snapshot(dir), or a list of its rows";

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum At {
    Position(u64),
    /// The directories, each with its position.
    Cut(Vec<(String, u64)>),
}

impl At {
    /// The argument; `None` if it is not given.
    pub fn of(arguments: &Arguments) -> Result<Option<At>> {
        Ok(match arguments.get(NAME) {
            None => None,
            Some(Datum::List(rows)) => Some(At::Cut(rows.iter().map(row).collect::<Result<_>>()?)),
            Some(value @ Datum::Struct(_)) => Some(At::Cut(vec![row(value)?])),
            Some(value) => Some(At::Position(position(NAME, TAKES, value)?)),
        })
    }

    /// Refuses a cut with a directory that no longer exists. A glob no longer matches such a directory, so its records would be missing
    /// without an error.
    ///
    /// # Errors
    /// One of the directories of the cut no longer exists.
    pub fn require_present(&self, ambient: &Ambient<'_>) -> Result<()> {
        let rows: &[(String, u64)] = match self {
            At::Position(_) => &[],
            At::Cut(rows) => rows,
        };
        let may_search = |dir: &Path| {
            let parent = dir.parent().is_some_and(|dir| ambient.access.allows(dir));
            parent || ambient.access.allows(dir)
        };
        let is_gone = |dir: &Path| may_search(dir) && !dir.join("loom.json").exists();
        match rows.iter().find(|(dir, _)| is_gone(Path::new(dir))) {
            None => Ok(()),
            Some((dir, _)) => Err(Problem::Io(format!(
                "at: Loom directory '{dir}' is in the cut but no longer exists; take another cut with loom_snapshot, or remove its row from at"
            ))),
        }
    }

    /// The position in one of the `directories` directories that a call reads.
    ///
    /// # Errors
    /// One position is given for several directories, or the cut does not have this one.
    pub fn position(&self, path: &Path, directories: usize) -> Result<u64> {
        match self {
            At::Position(position) if directories == 1 => Ok(*position),
            At::Position(_) => Err(Problem::binder(format!(
                "at is a position in one directory, but the call reads {directories}; give a cut: the rows of loom_snapshot over all of them"
            ))),
            At::Cut(rows) => {
                let real = |path: &Path| may_look(path).then(|| fs::canonicalize(path).ok())?;
                let is_this = |dir: &str| {
                    Path::new(dir) == path
                        || real(Path::new(dir)).is_some_and(|dir| Some(dir) == real(path))
                };
                let found = rows.iter().find(|(dir, _)| is_this(dir));
                found.map(|(_, position)| *position).ok_or_else(|| {
                    Problem::binder(format!(
                        "at has no position of '{}'; take the rows of loom_snapshot over all directories that the call reads",
                        path.display()
                    ))
                })
            }
        }
    }
}

/// Reads a position or an address from an argument; `takes` says what the argument takes.
pub fn position(name: &str, takes: &str, value: &Datum) -> Result<u64> {
    match value {
        Datum::Int(number) => u64::try_from(*number).map_err(|_| {
            Problem::binder(format!(
                "{name}: {number} is not a position; take one from loom_snapshot(dir)"
            ))
        }),
        other => Err(mismatch(name, takes, other)),
    }
}

/// Reads a row of `loom_snapshot`, and ignores other columns.
fn row(value: &Datum) -> Result<(String, u64)> {
    let Datum::Struct(fields) = value else {
        return Err(mismatch(NAME, TAKES, value));
    };
    let field = |name: &str| {
        let found = fields.iter().find(|(known, _)| known == name);
        found.map_or(&Datum::Null, |(_, value)| value)
    };
    match (field("dir"), position(NAME, TAKES, field("position"))) {
        (Datum::Text(dir), Ok(position)) => Ok((dir.clone(), position)),
        _ => Err(Problem::binder(
            "at holds a row without dir and position; take whole rows of loom_snapshot: list(row) FROM loom_snapshot(dirs) AS row",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(value: Datum) -> Result<Option<At>> {
        let mut arguments = Arguments::of("loom_scan", &[]);
        arguments.set(NAME, value);
        At::of(&arguments)
    }

    fn cut_row(dir: &str, position: i128) -> Datum {
        Datum::Struct(vec![
            ("dir".to_owned(), Datum::Text(dir.to_owned())),
            ("apart_ns".to_owned(), Datum::Int(0)),
            ("position".to_owned(), Datum::Int(position)),
        ])
    }

    // case Concurrency: a cut of several directories
    #[test]
    fn a_position_is_of_one_directory_and_a_cut_of_those_in_it() {
        let cut = at(Datum::List(vec![cut_row("/no/a", 8), cut_row("/no/b", 16)]));
        let cut = cut.unwrap().unwrap();
        assert_eq!(cut.position(Path::new("/no/b"), 2), Ok(16));
        let refused = |at: &At, path: &str, directories| {
            let problem = at.position(Path::new(path), directories).unwrap_err();
            problem.to_string()
        };
        assert!(refused(&cut, "/no/c", 2).contains("no position of '/no/c'"));
        let position = at(Datum::Int(8)).unwrap().unwrap();
        assert_eq!(position.position(Path::new("/no/c"), 1), Ok(8));
        assert!(refused(&position, "/no/c", 2).contains("reads 2"));
        assert_eq!(at(Datum::Null), Ok(None));
    }

    #[test]
    fn what_is_no_position_is_refused_by_its_type() {
        for (value, why) in [
            (Datum::Text("now".into()), "not VARCHAR"),
            (Datum::Int(-1), "-1 is not a position"),
            (Datum::List(vec![Datum::Int(1)]), "not an integer"),
            (Datum::Struct(Vec::new()), "without dir and position"),
            (cut_row("/no/a", -8), "without dir and position"),
        ] {
            let problem = at(value).unwrap_err().to_string();
            assert!(problem.contains(why), "{problem}");
        }
    }
}
