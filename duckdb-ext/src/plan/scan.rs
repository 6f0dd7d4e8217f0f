//! `loom_scan`: binding settles the source's columns and the meaning of the arguments. Each execution settles the snapshots, `last` and the
//! index definitions of its instant.

use std::sync::Arc;

use loom_engine::query::{Predicate, Scan, ScanSpec};
use loom_engine::{Address, Timestamp};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::at;
use super::clause::{Clause, Offered};
use super::columns::Column;
use super::function::{Function, Plan};
use super::parameters::{
    AFTER, AROUND, AT, COMPLETE, DIR, FILTER, INDEX, LABELS, LAST, SOURCE, T_FROM, T_TO, V_MAX,
    V_MIN, WIDTH,
};
use super::part::Part;
use super::passing::PassingRows;
use super::prune;
use super::selection::{Selection, newest};
use super::stats::ScanEntry;
use super::time::TimeArguments;
use crate::error::{Problem, Result};
use crate::exec::fill::Fill;
use crate::exec::run::Run;
use crate::exec::scan::{ScanPart, ScanRun};

pub const FUNCTION: Function = Function {
    name: "loom_scan",
    description: "The records of a source of a Loom directory, in log order.",
    columns: "`source`, `ts`, `ts_ns`, the fields, `addr`, `dir`",
    examples: &[
        "FROM loom_scan('telemetry.loom', 'requests', last := INTERVAL 5 MINUTE) WHERE latency_ns > 1000000",
        "FROM loom_scan('hosts/*.loom', 'requests', index := 'latency', v_min := 1000000)",
    ],
    positional: &[DIR, SOURCE],
    named: &[
        T_FROM, T_TO, LAST, FILTER, AROUND, WIDTH, INDEX, V_MIN, V_MAX, AT, AFTER, LABELS, COMPLETE,
    ],
    bind: |arguments, ambient| Ok(Box::new(ScanPlan::bind(arguments, ambient)?)),
};

struct ScanPlan {
    selection: Selection,
    times: TimeArguments,
    after: Option<Address>,
    columns: Vec<Column>,
    /// The number of records in the source when the call was bound.
    records: u64,
    offered: Offered,
}

impl ScanPlan {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<ScanPlan> {
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
            offered: Offered::none(),
            selection,
            times,
            after,
        })
    }

    fn spec(
        &self,
        part: &Part,
        offered: &Clause,
        passing: &PassingRows,
        newest: Option<Timestamp>,
    ) -> Result<ScanSpec> {
        let Part {
            dir,
            source,
            chosen,
            ..
        } = part;
        let exact = [
            self.times.predicate(newest)?,
            chosen.predicate(),
            passing.predicate(),
        ];
        Ok(ScanSpec {
            source: source.id,
            after: self.after.unwrap_or(Address::ZERO),
            exact: Predicate::and(exact),
            prune: prune::predicate(offered, dir, source, self.selection.fields().len()),
            index_filters: chosen.index_filters(),
        })
    }
}

impl Plan for ScanPlan {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows_estimate(&self) -> Option<u64> {
        Some(self.records)
    }

    fn prunes(&self) -> bool {
        true
    }

    fn offer(&self, clause: Clause) {
        self.offered.set(clause);
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
        let parts = self.selection.now(ambient)?;
        require_present(self.after, &parts)?;
        let newest = newest(&parts, &self.times)?;
        self.selection
            .require_complete(&parts, &self.times.spans(newest)?, ambient)?;
        let offered = self.offered.get();
        let shown = self.selection.shown(projected);
        let fields = self.selection.fields().len();
        let mut chunks_before = 0;
        let mut running = Vec::with_capacity(parts.len());
        for part in &parts {
            let passing = PassingRows::of(&offered, &part.dir, &part.source, fields);
            let spec = self.spec(part, &offered, &passing, newest)?;
            let scan = Scan::new(&part.snapshot, spec)?;
            let fills = Fill::all(&shown, &part.source, &part.dir).into_iter();
            running.push(ScanPart {
                fills: fills.map(|fill| fill.of_passing(&passing)).collect(),
                passing,
                stats: ScanEntry::begin(&part.dir, &part.source.name, &scan),
                chunks_before,
                scan,
            });
            let chunk_bytes = u64::from(part.snapshot.chunk_bytes());
            chunks_before += part.snapshot.position() / chunk_bytes + 1;
        }
        let run = ScanRun::new(running, self.selection.source.clone(), ambient.stop)?;
        Ok(Arc::new(run))
    }
}

/// Requires that `after` is an address of the log and that everything after it is still retained; otherwise rows would be missing silently.
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

/// The number of records of the source in all directories.
pub fn records(parts: &[Part]) -> Result<u64> {
    let mut records = 0;
    for part in parts {
        records += part.totals()?.records;
    }
    Ok(records)
}
