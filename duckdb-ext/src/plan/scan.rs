//! `loom_scan`: what bind settles (the source's columns, the arguments' sense) and what init fixes anew for each execution (the
//! snapshot, `last`, the index definitions of that instant).

use std::sync::{Mutex, PoisonError};

use loom_engine::query::{Scan, ScanSpec};

use super::arguments::{Ambient, Arguments, Parameter};
use super::columns::{self, Column};
use super::filter::Filter;
use super::prune;
use super::selection::{Selection, newest};
use super::stats::Entry;
use super::time::TimeArguments;
use super::types::SqlType;
use crate::error::Result;
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
    selection: Selection,
    times: TimeArguments,
    columns: Vec<Column>,
    /// Of the whole source when it was bound.
    records: u64,
    /// The `WHERE` clause as last offered: each offer stands for all before it.
    offered: Mutex<Filter>,
}

impl ScanPlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<ScanPlan> {
        let (selection, snapshot, source) = Selection::bind(arguments, ambient)?;
        let times = arguments.times()?;
        selection.resolve(&source)?;
        times.predicate(None)?;
        Ok(ScanPlan {
            columns: columns::of_source(&source),
            records: snapshot.source_totals(source.id)?.records,
            offered: Mutex::new(Filter::Opaque),
            selection,
            times,
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// About how many rows there may be; no bound, for the source goes on growing.
    pub fn rows_estimate(&self) -> u64 {
        self.records
    }

    /// Takes the `WHERE` clause, to prune by and no more.
    pub fn offer(&self, filter: Filter) {
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = filter;
    }

    /// Begins an execution that shows these columns.
    pub fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<ScanRun> {
        let (snapshot, source) = self.selection.now()?;
        let fields = self.selection.fields();
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
            prune: prune::predicate(&offered, &source, fields),
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
            .map(|&column| columns::shown(column, fields))
            .collect();
        ScanRun::new(scan, &source, &shown, entry, ambient.stop)
    }
}
