//! The arguments that the functions about a source share: a source of one or more directories, and perhaps a range of an index's values.
//! Directories are looked up by their paths each time, so a prepared statement reads the current data.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use loom_engine::query::{Poll, Predicate, Snapshot};
use loom_engine::schema::{
    Constant, FieldDef, FieldType, Filter, Index, Number, Op, RangeSet, Source,
};
use loom_engine::{Error, Key, Timestamp};

use super::agreement;
use super::ambient::Ambient;
use super::arguments::Arguments;
use super::at::At;
use super::columns::{self, Column, Shown};
use super::datum::Datum;
use super::directory;
use super::holders::{Holder, Holders, unknown};
use super::part::{Chosen, Part};
use super::paths::Given;
use super::quoting::literal;
use super::time::{TimeArguments, nanos, now};
use crate::error::{Problem, Result};

/// The most labels that an error lists.
const LABELS_LISTED: usize = 32;

/// A source, optionally with values of an index or a filter, now or at a position.
pub struct Selection {
    given: Given,
    pub source: String,
    /// The fields at the time of binding, which number the columns.
    fields: Vec<FieldDef>,
    index: Option<String>,
    v_min: Option<Datum>,
    v_max: Option<Datum>,
    /// The filter as text.
    filter: Option<String>,
    at: Option<At>,
    /// If false, each field shows as it is stored.
    labels: bool,
    complete: bool,
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
            filter: arguments.text("filter")?.map(str::to_owned),
            at: At::of(arguments)?,
            labels: arguments.boolean("labels")?.unwrap_or(true),
            complete: arguments.boolean("complete")?.unwrap_or(false),
        };
        let parts = selection.parts(selection.holders(ambient)?.with)?;
        selection.fields = agreement::fields(&parts)?.to_vec();
        Ok((selection, parts))
    }

    /// The source in each directory that has it, in what is published now or was published at the requested position.
    pub fn now(&self, ambient: &Ambient<'_>) -> Result<Vec<Part>> {
        self.parts(self.holders(ambient)?.noted())
    }

    fn holders(&self, ambient: &Ambient<'_>) -> Result<Holders> {
        let directories = snapshots(&self.given, self.at.as_ref(), ambient)?;
        Holders::find(directories, &self.source, &self.given)
    }

    fn parts(&self, holders: Vec<Holder>) -> Result<Vec<Part>> {
        let parts = holders.into_iter().map(|holder| self.part(holder));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let fields = agreement::fields(&parts)?;
        // Fields are only added. Other fields mean another directory at the same path, or a field that got its first label.
        let mut pairs = self.fields.iter().zip(fields);
        if fields.len() < self.fields.len()
            || !pairs.all(|(bound, now)| agreement::is_same_column(bound, now))
        {
            return Err(Problem::input(format!(
                "source '{}' has changed its columns since the statement was prepared; prepare it again",
                self.source
            )));
        }
        Ok(parts)
    }

    /// The columns of the source, as the call was bound.
    pub fn columns(&self) -> Vec<Column> {
        columns::of_source(&self.source, &self.fields)
    }

    /// The fields of the source, as the call was bound.
    pub fn fields(&self) -> &[FieldDef] {
        &self.fields
    }

    /// The content of the columns of these declared numbers.
    pub fn shown(&self, projected: &[usize]) -> Vec<Shown> {
        let fields = self.fields.len();
        projected
            .iter()
            .map(|&column| columns::shown(column, fields))
            .collect()
    }

    /// If the call asks for `complete`, fails if records of the source are known to be missing in one of the spans.
    pub fn require_complete(
        &self,
        parts: &[Part],
        spans: &RangeSet<Timestamp>,
        ambient: &Ambient<'_>,
    ) -> Result<()> {
        let poll = Poll::new(ambient.stop);
        let asked = if self.complete { parts } else { &[] };
        asked
            .iter()
            .try_for_each(|part| part.require_complete(spans, &poll))
    }

    fn part(&self, holder: Holder) -> Result<Part> {
        let Holder {
            dir,
            snapshot,
            source,
        } = holder;
        // A filter may name labels, even if the columns do not show them.
        let filter = self.filter_of(&source)?;
        let source = match self.labels {
            true => source,
            false => without_labels(&source),
        };
        let chosen = self.chosen(&source, &dir, filter)?;
        Ok(Part::new(dir, snapshot, source, chosen))
    }

    /// The predicate of the argument `filter`.
    fn filter_of(&self, source: &Source) -> Result<Predicate> {
        let Some(text) = &self.filter else {
            return Ok(Predicate::All);
        };
        match Filter::parse(text, &source.fields) {
            Ok(filter) => Ok(Predicate::matching(&filter, source)),
            Err(error) => Err(Problem::binder(format!("{error}"))),
        }
    }

    /// Looks up the index, and turns the bounds into its keys.
    fn chosen(&self, source: &Source, dir: &str, filter: Predicate) -> Result<Chosen> {
        let Some(name) = &self.index else {
            return match (&self.v_min, &self.v_max) {
                (None, None) => Ok(Chosen {
                    index: None,
                    keys: None,
                    filter,
                }),
                _ => Err(Problem::binder(format!(
                    "v_min and v_max bound the values of an index; give index too; loom_indexes('{dir}') lists them"
                ))),
            };
        };
        let index = source
            .index(name)
            .ok_or_else(|| unknown(source.unknown_index(name), &literal(dir)))?;
        let mut keys = None;
        for (name, op, value) in [
            ("v_min", Op::Ge, &self.v_min),
            ("v_max", Op::Le, &self.v_max),
        ] {
            let Some(value) = value else { continue };
            let within = bound(source, index, name, op, value)?;
            keys = Some(keys.map_or(within.clone(), |keys| within.intersect(&keys)));
        }
        Ok(Chosen {
            index: Some(Arc::clone(index)),
            keys,
            filter,
        })
    }
}

fn without_labels(source: &Source) -> Arc<Source> {
    let mut source = source.clone();
    for field in &mut source.fields {
        field.labels.clear();
    }
    Arc::new(source)
}

/// The time from which `last` counts back, the same for all directories; `None` if the call has no `last`.
///
/// Sources with their own times, and directories of several hosts, have several clocks. One that is ahead must not hide the records of all
/// others, so no time counts past now. The arrivals in one directory have one clock, which does not go back where the host's clock does.
pub fn newest<'a>(
    parts: impl IntoIterator<Item = &'a Part>,
    times: &TimeArguments,
) -> Result<Option<Timestamp>> {
    if times.last.is_none() {
        return Ok(None);
    }
    let mut newest = None;
    let (mut count, mut own_time) = (0, false);
    for part in parts {
        newest = newest.max(part.newest()?);
        own_time |= part.source.own_time();
        count += 1;
    }
    Ok(match own_time || count > 1 {
        true => newest.map(|newest| newest.min(now())),
        false => newest,
    })
}

/// The directories of a call as they are now, or as they were at the requested position, each with its path as text.
pub fn snapshots(
    given: &Given,
    at: Option<&At>,
    ambient: &Ambient<'_>,
) -> Result<Vec<(String, Snapshot)>> {
    let paths = given.paths(ambient)?;
    if let Some(at) = at {
        at.require_present(ambient)?;
    }
    let snapshot = |path: &PathBuf| {
        let dir = path.display().to_string();
        let at = at.map(|at| at.position(path, paths.len())).transpose()?;
        let snapshot = snapshot(path, &dir, at)?;
        Ok((dir, snapshot))
    };
    paths.iter().map(snapshot).collect()
}

fn snapshot(path: &Path, dir: &str, at: Option<u64>) -> Result<Snapshot> {
    let directory = directory::open(path)?;
    let Some(position) = at else {
        return Ok(directory.snapshot()?);
    };
    let refused = |why: String| {
        Problem::binder(format!(
            "at: {position} is not a position of '{dir}': {why}; take one from loom_snapshot('{dir}')"
        ))
    };
    let snapshot = directory
        .snapshot_at(position)
        .map_err(|error| match error {
            Error::Query(_) => refused("it is past the published end".to_owned()),
            Error::Evicted { begin, .. } => {
                refused(format!("retention has removed everything below {begin}"))
            }
            error => error.into(),
        })?;
    if snapshot.ends_between_records()? {
        Ok(snapshot)
    } else {
        Err(refused("it is inside a record".to_owned()))
    }
}

/// The keys on one side of a bound.
fn bound(
    source: &Source,
    index: &Index,
    name: &str,
    op: Op,
    value: &Datum,
) -> Result<RangeSet<Key>> {
    let Some(field) = source.value_of(index) else {
        return Err(Problem::binder(format!(
            "{name}: index '{}' only counts records and has no values; omit {name}",
            index.name
        )));
    };
    let constant = match value {
        Datum::Text(text) if !field.labels.is_empty() => {
            let keys = field.keys(op, Constant::Shown(text));
            return keys.ok_or_else(|| unknown_label(field, name, text));
        }
        _ if field.ty == FieldType::TimestampNs => time_of(value).or_else(|| value.number()),
        _ => value.number(),
    };
    let keys = constant.and_then(|number| field.keys(op, Constant::Number(number)));
    keys.ok_or_else(|| Problem::binder(format!("{name} takes a number, not {}", value.type_name())))
}

fn unknown_label(field: &FieldDef, parameter: &str, label: &str) -> Problem {
    let mut known: Vec<&str> = field.labels.values().map(String::as_str).collect();
    let more = known.len().saturating_sub(LABELS_LISTED);
    known.truncate(LABELS_LISTED);
    let more = match more {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Problem::binder(format!(
        "{parameter}: '{label}' is not a label of '{}'; use a number, or one of {}{more}",
        field.name,
        known.join(", ")
    ))
}

/// The nanoseconds of a time.
fn time_of(value: &Datum) -> Option<Number> {
    let nanos = match *value {
        Datum::Timestamp(micros) | Datum::TimestampTz(micros) => nanos(micros),
        Datum::TimestampNs(nanos) | Datum::TimestampTzNs(nanos) => nanos,
        _ => return None,
    };
    Some(Number::Int(i128::from(nanos)))
}
