//! What the functions about a source have in common: a source of one directory or of several, and maybe a range of an index's
//! values. Directories are looked up by their paths each time, so that a prepared statement sees what stands there now.

use std::path::Path;
use std::sync::Arc;

use loom_engine::query::{Poll, Predicate, Snapshot};
use loom_engine::schema::{FieldDef, FieldType, Index, Source};
use loom_engine::{Error, TimeRange, Timestamp, ValueRange};

use super::agreement;
use super::arguments::{Ambient, Arguments};
use super::columns::{self, Shown};
use super::datum::Datum;
use super::directory;
use super::number::{Domain, Number, Op};
use super::paths::Given;
use super::time::{TimeArguments, nanos};
use crate::error::{Problem, Result};

/// What a call reads: a source, and maybe values of an index, as of now or of a position.
pub struct Selection {
    given: Given,
    pub source: String,
    /// Those that the source had when the call was bound: columns are numbered by them.
    fields: Vec<FieldDef>,
    index: Option<String>,
    v_min: Option<Datum>,
    v_max: Option<Datum>,
    at: Option<u64>,
    complete: bool,
}

/// The source in one directory, at one instant.
pub struct Part {
    /// The directory's path as text.
    pub dir: String,
    pub snapshot: Snapshot,
    pub source: Arc<Source>,
    pub chosen: Chosen,
}

/// An index by name, and the range of its values that is asked for.
pub struct Chosen {
    pub index: Option<Arc<Index>>,
    pub range: Option<ValueRange>,
}

impl Chosen {
    /// The rows within the bounds.
    pub fn predicate(&self) -> Predicate {
        match (&self.index, self.range) {
            (Some(_), Some(range)) if range.is_empty() => Predicate::Nothing,
            (Some(index), Some(range)) => Predicate::Value {
                index: index.id,
                range,
            },
            _ => Predicate::All,
        }
    }

    pub fn required_index(&self) -> Result<&Arc<Index>> {
        self.index
            .as_ref()
            .ok_or_else(|| Problem::binder("index must be given, and not NULL"))
    }
}

impl Selection {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<(Selection, Vec<Part>)> {
        let given = arguments.directories(ambient)?;
        let mut selection = Selection {
            given,
            source: arguments.required_text("source")?.to_owned(),
            fields: Vec::new(),
            index: arguments.text("index")?.map(str::to_owned),
            v_min: arguments.get("v_min").cloned(),
            v_max: arguments.get("v_max").cloned(),
            at: arguments.position("at")?,
            complete: arguments.boolean("complete")?.unwrap_or(false),
        };
        let parts = selection.now(ambient)?;
        selection.fields = agreement::fields(&parts)?.to_vec();
        Ok((selection, parts))
    }

    /// What is published now, or was at the position asked for, and the source in it.
    pub fn now(&self, ambient: &Ambient<'_>) -> Result<Vec<Part>> {
        let paths = self.given.paths(ambient.stop)?;
        if let (Some(at), [_, _, ..]) = (self.at, paths.as_slice()) {
            return Err(Problem::binder(format!(
                "at is a position in one directory, and {} are read; {at} means something else in each",
                paths.len()
            )));
        }
        let parts: Vec<Part> = paths
            .iter()
            .map(|path| self.part(path))
            .collect::<Result<_>>()?;
        let fields = agreement::fields(&parts)?;
        // Fields are only ever added; others mean another directory at the same path, or a field that got its first label.
        let mut pairs = self.fields.iter().zip(fields);
        if fields.len() < self.fields.len()
            || !pairs.all(|(bound, now)| agreement::is_same_column(bound, now))
        {
            return Err(Problem::input(format!(
                "source '{}' has other columns than when the statement was prepared; prepare it again",
                self.source
            )));
        }
        Ok(parts)
    }

    /// Fields of the source that the call was bound with.
    pub fn fields(&self) -> &[FieldDef] {
        &self.fields
    }

    /// What the columns of these declared numbers show.
    pub fn shown(&self, projected: &[usize]) -> Vec<Shown> {
        let fields = self.fields.len();
        projected
            .iter()
            .map(|&column| columns::shown(column, fields))
            .collect()
    }

    /// Where `complete` was asked for: fails if records of the source are known to be missing in one of the spans.
    pub fn require_complete(
        &self,
        parts: &[Part],
        spans: &[TimeRange],
        ambient: &Ambient<'_>,
    ) -> Result<()> {
        let poll = Poll::new(ambient.stop);
        let asked = if self.complete { parts } else { &[] };
        for part in asked {
            for span in spans {
                part.snapshot
                    .require_complete(part.source.id, *span, &poll)
                    .map_err(|error| incomplete(error, &part.dir))?;
            }
        }
        Ok(())
    }

    fn part(&self, path: &Path) -> Result<Part> {
        let dir = path.display().to_string();
        let snapshot = snapshot(path, &dir, self.at)?;
        let source = snapshot
            .source(&self.source)
            .map_err(|error| unknown(error, &dir))?;
        let chosen = self.resolve(&source, &dir)?;
        Ok(Part {
            dir,
            snapshot,
            source,
            chosen,
        })
    }

    /// The index by its name, and the bounds in its keys.
    fn resolve(&self, source: &Source, dir: &str) -> Result<Chosen> {
        let Some(name) = &self.index else {
            return match (&self.v_min, &self.v_max) {
                (None, None) => Ok(Chosen {
                    index: None,
                    range: None,
                }),
                _ => Err(Problem::binder(format!(
                    "v_min and v_max need index, whose values they bound; loom_indexes('{dir}') lists the indexes"
                ))),
            };
        };
        let index = source
            .index(name)
            .ok_or_else(|| unknown(source.unknown_index(name), dir))?;
        let range = match (&self.v_min, &self.v_max) {
            (None, None) => None,
            (v_min, v_max) => {
                let least = bound(source, index, "v_min", Op::Ge, v_min.as_ref())?;
                let most = bound(source, index, "v_max", Op::Le, v_max.as_ref())?;
                Some(least.intersect(most))
            }
        };
        Ok(Chosen {
            index: Some(Arc::clone(index)),
            range,
        })
    }
}

/// What `last` counts back from, where it was given: the newest record of the directories, or of the source where that brings its own times, which
/// compare with no arrival.
pub fn newest(parts: &[Part], times: &TimeArguments) -> Result<Option<Timestamp>> {
    let mut newest = None;
    if times.last.is_none() {
        return Ok(newest);
    }
    for Part {
        snapshot, source, ..
    } in parts
    {
        newest = newest.max(if source.own_time() {
            snapshot.source_totals(source.id)?.last_ts
        } else {
            snapshot.newest_ts()?
        });
    }
    Ok(newest)
}

/// A name that a directory does not know, with where to look names up.
pub fn unknown(error: Error, dir: &str) -> Problem {
    match &error {
        Error::UnknownSource { name, .. } => {
            let hint = if name.contains('/') && Path::new(name).exists() {
                "; the source follows the directory: (dir, source)"
            } else {
                ""
            };
            Problem::binder(format!(
                "{error}{hint}; loom_sources('{dir}') lists the sources"
            ))
        }
        Error::UnknownIndex { .. } => {
            Problem::binder(format!("{error}; loom_indexes('{dir}') lists the indexes"))
        }
        _ => error.into(),
    }
}

fn incomplete(error: Error, dir: &str) -> Problem {
    match error {
        Error::Incomplete { .. } => Problem::input(format!("{dir}: {error}")),
        error => error.into(),
    }
}

fn snapshot(path: &Path, dir: &str, at: Option<u64>) -> Result<Snapshot> {
    let directory = directory::open(path)?;
    let Some(position) = at else {
        return Ok(directory.snapshot()?);
    };
    let refused = |why: String| {
        Problem::binder(format!(
            "at: {position} is no position of {dir}: {why}; loom_snapshot('{dir}') gives one"
        ))
    };
    let snapshot = directory
        .snapshot_at(position)
        .map_err(|error| match error {
            Error::Query(_) => refused("it lies past what is published".to_owned()),
            Error::Evicted { begin, .. } => {
                refused(format!("retention has removed what lies below {begin}"))
            }
            error => error.into(),
        })?;
    if snapshot.ends_between_records()? {
        Ok(snapshot)
    } else {
        Err(refused("it lies inside a record".to_owned()))
    }
}

/// One bound on an index's value as a range of its keys.
fn bound(
    source: &Source,
    index: &Index,
    name: &str,
    op: Op,
    value: Option<&Datum>,
) -> Result<ValueRange> {
    let Some(value) = value else {
        return Ok(ValueRange::ALL);
    };
    let ty = index
        .value_field()
        .and_then(|field| source.fields.get(field))
        .map(|field| field.ty);
    let Some(domain) = ty.and_then(Domain::of) else {
        return Err(Problem::binder(format!(
            "{name}: the index '{}' has no value, it counts",
            index.name
        )));
    };
    let number = match (ty, value) {
        (Some(FieldType::TimestampNs), value) => time_of(value).or_else(|| Number::of(value)),
        (_, value) => Number::of(value),
    };
    match number {
        Some(number) => Ok(domain.keys(op, number)),
        None => Err(Problem::binder(format!(
            "{name} takes a number, not {}",
            value.type_name()
        ))),
    }
}

/// A time as its nanoseconds.
fn time_of(value: &Datum) -> Option<Number> {
    let nanos = match *value {
        Datum::Timestamp(micros) | Datum::TimestampTz(micros) => nanos(micros),
        Datum::TimestampNs(nanos) | Datum::TimestampTzNs(nanos) => nanos,
        _ => return None,
    };
    Some(Number::Int(i128::from(nanos)))
}
