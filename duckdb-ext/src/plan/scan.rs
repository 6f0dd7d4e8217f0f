//! `loom_scan`: what bind settles (the source's columns, the arguments' sense) and what init fixes anew for each execution (the
//! snapshot, `last`, the index definitions of that instant).

use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::query::{Directory, Predicate, Scan, ScanSpec, Snapshot};
use loom_engine::schema::{Index, Source};
use loom_engine::{SourceId, Timestamp, ValueRange};

use super::arguments::{Ambient, Arguments, Parameter};
use super::columns::{self, Column};
use super::datum::Datum;
use super::directory;
use super::filter::Filter;
use super::number::{Domain, Number, Op};
use super::prune;
use super::stats::Entry;
use super::time::{TimeArguments, nanos};
use super::types::SqlType;
use crate::error::{Problem, Result};
use crate::exec::scan::ScanRun;

pub const PARAMETERS: &[Parameter] = &[
    Parameter {
        name: "t_from",
        ty: SqlType::TimestampTz,
    },
    Parameter {
        name: "t_to",
        ty: SqlType::TimestampTz,
    },
    Parameter {
        name: "last",
        ty: SqlType::Interval,
    },
    Parameter {
        name: "around",
        ty: SqlType::TimestampTzList,
    },
    Parameter {
        name: "width",
        ty: SqlType::Interval,
    },
    Parameter {
        name: "index",
        ty: SqlType::Text,
    },
    Parameter {
        name: "v_min",
        ty: SqlType::Any,
    },
    Parameter {
        name: "v_max",
        ty: SqlType::Any,
    },
    Parameter {
        name: "at",
        ty: SqlType::Any,
    },
];

/// A bound call. It may be executed many times, also at once.
pub struct ScanPlan {
    pub selection: Selection,
    times: TimeArguments,
    fields: usize,
    columns: Vec<Column>,
    /// The `WHERE` clause as last offered: each offer stands for all before it.
    offered: Mutex<Filter>,
}

impl ScanPlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<ScanPlan> {
        let selection = Selection::bind(arguments, ambient)?;
        let times = arguments.times()?;
        let snapshot = selection.snapshot()?;
        let source = snapshot.source(&selection.source)?;
        selection.resolve(&source)?;
        times.predicate(None)?;
        Ok(ScanPlan {
            columns: columns::of_source(&source),
            fields: source.fields.len(),
            offered: Mutex::new(Filter::Opaque),
            selection,
            times,
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Takes the `WHERE` clause, to prune by and no more.
    pub fn offer(&self, filter: Filter) {
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = filter;
    }

    /// Begins an execution that shows these columns.
    pub fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<ScanRun> {
        let snapshot = self.selection.snapshot()?;
        let source = self.selection.source_in(&snapshot)?;
        let chosen = self.selection.resolve(&source)?;
        let newest = match self.times.last {
            Some(_) => newest(&snapshot, &source)?,
            None => None,
        };
        let exact = [self.times.predicate(newest)?, chosen.predicate()];
        let offered = self
            .offered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let spec = ScanSpec {
            source: source.id,
            exact: prune::and(exact.into_iter()),
            prune: prune::predicate(&offered, &source, self.fields),
            index_filters: chosen
                .index
                .iter()
                .filter(|index| index.filter().is_some())
                .map(|index| index.id)
                .collect(),
        };
        let scan = Scan::new(&snapshot, spec)?;
        let entry = Entry::begin(&self.selection.dir, &source.name, &scan);
        let shown: Vec<_> = projected
            .iter()
            .map(|&column| columns::shown(column, self.fields))
            .collect();
        ScanRun::new(scan, &source, &shown, entry, ambient.stop)
    }
}

/// What `loom_scan` and `loom_aggregate` read: a source, and maybe values of an index, as of now or of a position.
pub struct Selection {
    pub dir: String,
    pub source: String,
    source_id: SourceId,
    directory: Arc<Directory>,
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
    fn predicate(&self) -> Predicate {
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
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<Selection> {
        let path = arguments.directory(ambient)?;
        let source = arguments.required_text("source")?.to_owned();
        let directory = directory::open(&path)?;
        let at = arguments.position("at")?;
        let selection = Selection {
            dir: path.display().to_string(),
            source_id: snapshot(&directory, at)?.source(&source)?.id,
            source,
            directory,
            index: arguments.text("index")?.map(str::to_owned),
            v_min: arguments.get("v_min").cloned(),
            v_max: arguments.get("v_max").cloned(),
            at,
        };
        Ok(selection)
    }

    /// What is published now, or was at the position asked for.
    pub fn snapshot(&self) -> Result<Snapshot> {
        snapshot(&self.directory, self.at)
    }

    /// The source that was bound, as a later snapshot has it.
    pub fn source_in(&self, snapshot: &Snapshot) -> Result<Arc<Source>> {
        match snapshot.catalog().source(self.source_id) {
            Some(source) => Ok(Arc::clone(source)),
            None => Ok(snapshot.source(&self.source)?),
        }
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

fn snapshot(directory: &Arc<Directory>, at: Option<u64>) -> Result<Snapshot> {
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
        (Some(loom_engine::schema::FieldType::TimestampNs), value) => {
            time_of(value).or_else(|| Number::of(value))
        }
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
