//! What `loom_scan` and `loom_aggregate` have in common: a source of a directory, and maybe a range of an index's values. The
//! directory is looked up by its path each time, so that a prepared statement sees what stands there now.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use loom_engine::query::{Predicate, Snapshot};
use loom_engine::schema::{FieldDef, FieldType, Index, Source};
use loom_engine::{Timestamp, ValueRange};

use super::arguments::{Ambient, Arguments};
use super::datum::Datum;
use super::directory;
use super::number::{Domain, Number, Op};
use super::time::nanos;
use crate::error::{Problem, Result};

/// What `loom_scan` and `loom_aggregate` read: a source, and maybe values of an index, as of now or of a position.
pub struct Selection {
    path: PathBuf,
    /// The path as text.
    pub dir: String,
    source: String,
    /// Those that the source had when the call was bound: columns are numbered by them.
    fields: Vec<FieldDef>,
    index: Option<String>,
    v_min: Option<Datum>,
    v_max: Option<Datum>,
    at: Option<u64>,
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
}

impl Selection {
    pub fn bind(
        arguments: &Arguments,
        ambient: &Ambient<'_>,
    ) -> Result<(Selection, Snapshot, Arc<Source>)> {
        let path = arguments.directory(ambient)?;
        let name = arguments.required_text("source")?;
        let at = arguments.position("at")?;
        let snapshot = snapshot(&path, at)?;
        let source = snapshot.source(name)?;
        let selection = Selection {
            dir: path.display().to_string(),
            path,
            source: name.to_owned(),
            fields: source.fields.clone(),
            index: arguments.text("index")?.map(str::to_owned),
            v_min: arguments.get("v_min").cloned(),
            v_max: arguments.get("v_max").cloned(),
            at,
        };
        Ok((selection, snapshot, source))
    }

    /// What is published now, or was at the position asked for, and the source in it.
    pub fn now(&self) -> Result<(Snapshot, Arc<Source>)> {
        let snapshot = snapshot(&self.path, self.at)?;
        let source = snapshot.source(&self.source)?;
        // Fields are only ever added; others mean another directory at the same path.
        if !source.fields.starts_with(&self.fields) {
            return Err(Problem::input(format!(
                "source '{}' of {} is not the one that the statement was prepared for; prepare it again",
                self.source, self.dir
            )));
        }
        Ok((snapshot, source))
    }

    /// Fields of the source that the call was bound with.
    pub fn fields(&self) -> usize {
        self.fields.len()
    }

    /// The index by its name, and the bounds in its keys.
    pub fn resolve(&self, source: &Source) -> Result<Chosen> {
        let Some(name) = &self.index else {
            return match (&self.v_min, &self.v_max) {
                (None, None) => Ok(Chosen {
                    index: None,
                    range: None,
                }),
                _ => Err(Problem::binder(format!(
                    "v_min and v_max need index, whose values they bound; loom_indexes('{}') lists the indexes",
                    self.dir
                ))),
            };
        };
        let index = source
            .index(name)
            .ok_or_else(|| source.unknown_index(name))?;
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

/// What `last` counts back from: the newest record of the directory, or of the source where that brings its own times, which
/// compare with no arrival.
pub fn newest(snapshot: &Snapshot, source: &Source) -> Result<Option<Timestamp>> {
    Ok(if source.own_time() {
        snapshot.source_totals(source.id)?.last_ts
    } else {
        snapshot.newest_ts()?
    })
}

fn snapshot(path: &Path, at: Option<u64>) -> Result<Snapshot> {
    let directory = directory::open(path)?;
    Ok(match at {
        Some(position) => directory.snapshot_at(position)?,
        None => directory.snapshot()?,
    })
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
