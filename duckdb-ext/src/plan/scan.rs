//! `loom_scan`: bind settles the source's columns and the meaning of the arguments; init settles, for each execution, the snapshots,
//! `last` and the index definitions of that instant.

use std::sync::{Mutex, PoisonError};

use loom_engine::query::{Predicate, Scan, ScanSpec};
use loom_engine::{Address, Timestamp};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::at;
use super::clause::Clause;
use super::columns::Column;
use super::parameters::{
    AFTER, AROUND, AT, COMPLETE, FILTER, INDEX, LABELS, LAST, Parameter, T_FROM, T_TO, V_MAX,
    V_MIN, WIDTH,
};
use super::part::Part;
use super::prune;
use super::selection::{Selection, newest};
use super::stats::ScanEntry;
use super::time::TimeArguments;
use crate::error::{Problem, Result};
use crate::exec::fill::Fill;
use crate::exec::scan::{ScanPart, ScanRun};

pub const PARAMETERS: &[Parameter] = &[
    T_FROM, T_TO, LAST, FILTER, AROUND, WIDTH, INDEX, V_MIN, V_MAX, AT, AFTER, LABELS, COMPLETE,
];

/// A bound call. It may be executed many times, also at once.
pub struct ScanPlan {
    selection: Selection,
    times: TimeArguments,
    after: Option<Address>,
    columns: Vec<Column>,
    /// Of the whole source when it was bound.
    records: u64,
    /// The `WHERE` clause as last offered: each offer stands for all before it.
    offered: Mutex<Clause>,
}

impl ScanPlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<ScanPlan> {
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        let times = arguments.times()?;
        times.predicate(None)?;
        let after = arguments
            .get(AFTER.name)
            .map(|value| at::position(AFTER.name, "UBIGINT, the addr of a record", value));
        let after = after.transpose()?.map(Address);
        require_present(after, &parts)?;
        Ok(ScanPlan {
            columns: selection.columns(),
            records: records(&parts)?,
            offered: Mutex::new(Clause::Opaque),
            selection,
            times,
            after,
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
    pub fn offer(&self, clause: Clause) {
        *self.offered.lock().unwrap_or_else(PoisonError::into_inner) = clause;
    }

    /// Begins an execution that shows these columns.
    pub fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<ScanRun> {
        let parts = self.selection.now(ambient)?;
        require_present(self.after, &parts)?;
        let newest = newest(&parts, &self.times)?;
        self.selection
            .require_complete(&parts, &self.times.spans(newest)?, ambient)?;
        let offered = self
            .offered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let shown = self.selection.shown(projected);
        let fields = self.selection.fields().len();
        let mut chunks_before = 0;
        let mut running = Vec::with_capacity(parts.len());
        for part in &parts {
            let scan = Scan::new(&part.snapshot, self.spec(part, &offered, newest)?)?;
            running.push(ScanPart {
                keys: prune::known_keys(&offered, &part.dir, &part.source, fields),
                fills: Fill::all(&shown, &part.source, &part.dir),
                stats: ScanEntry::begin(&part.dir, &part.source.name, &scan),
                chunks_before,
                scan,
            });
            let chunk_bytes = u64::from(part.snapshot.chunk_bytes());
            chunks_before += part.snapshot.position() / chunk_bytes + 1;
        }
        ScanRun::new(running, self.selection.source.clone(), ambient.stop)
    }

    fn spec(&self, part: &Part, offered: &Clause, newest: Option<Timestamp>) -> Result<ScanSpec> {
        let Part {
            dir,
            source,
            chosen,
            ..
        } = part;
        let exact = [self.times.predicate(newest)?, chosen.predicate()];
        Ok(ScanSpec {
            source: source.id,
            after: self.after.unwrap_or(Address::ZERO),
            exact: Predicate::and(exact),
            prune: prune::predicate(offered, dir, source, self.selection.fields().len()),
            index_filters: chosen
                .index
                .iter()
                .filter(|index| index.filter().is_some())
                .map(|index| index.id)
                .collect(),
        })
    }
}

/// The address that a call reads from on must be one of the log, and what follows it must still be there: else rows would be missing
/// without a word.
fn require_present(after: Option<Address>, parts: &[Part]) -> Result<()> {
    let Some(after) = after else { return Ok(()) };
    let [part] = parts else {
        return Err(Problem::binder(format!(
            "after is an address in one directory, but the call reads {}; query each directory by itself",
            parts.len()
        )));
    };
    let begin = part.snapshot.begin();
    if after < begin {
        return Err(Problem::input(format!(
            "after: retention has removed the records of '{}' from address {after} to {begin}; run ingestd archive, and attach the archive again",
            part.dir
        )));
    }
    let end = part.snapshot.position();
    if after.0 > end {
        return Err(Problem::input(format!(
            "after: address {after} is past the end of '{}', which is {end}; take the addr of a record, or a position from loom_snapshot(dir)",
            part.dir
        )));
    }
    Ok(())
}

/// What the source holds in all directories.
pub fn records(parts: &[Part]) -> Result<u64> {
    let mut records = 0;
    for part in parts {
        records += part.totals()?.records;
    }
    Ok(records)
}
