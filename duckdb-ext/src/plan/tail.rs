//! `loom_tail`: the latest records of a source, the newest first, found by its chain of chunks.

use std::sync::Arc;

use loom_engine::query::{Ask, RawScan};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::columns::Column;
use super::function::{Function, Plan};
use super::parameters::{DIR, FILTER, N, SOURCE};
use super::scan::records;
use super::selection::Selection;
use super::stats::ScanEntry;
use crate::error::Result;
use crate::exec::fill::Fill;
use crate::exec::run::Run;
use crate::exec::tail::{TailPart, TailRun};

pub const FUNCTION: Function = Function {
    name: "loom_tail",
    description: "The latest n records of a source of a Loom directory, newest first; records of several directories are ordered by arrival.",
    columns: "those of `loom_scan`",
    examples: &["FROM loom_tail('telemetry.loom', 'requests', 10)"],
    positional: &[DIR, SOURCE, N],
    named: &[FILTER],
    bind: |arguments, ambient| Ok(Box::new(TailPlan::bind(arguments, ambient)?)),
};

struct TailPlan {
    selection: Selection,
    columns: Vec<Column>,
    rows: u64,
    rows_estimate: u64,
}

impl TailPlan {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<TailPlan> {
        let rows = arguments.required_count("n")?;
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        Ok(TailPlan {
            columns: selection.columns(),
            rows_estimate: rows.min(records(&parts)?),
            selection,
            rows,
        })
    }
}

impl Plan for TailPlan {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows_estimate(&self) -> Option<u64> {
        Some(self.rows_estimate)
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
        let parts = self.selection.now(ambient)?;
        let shown = self.selection.shown(projected);
        let mut running = Vec::with_capacity(parts.len());
        for part in &parts {
            let fills = Fill::all(&shown, &part.source, &part.dir);
            let ask = Ask {
                arrivals: true,
                ..Fill::ask(&fills)
            };
            let scan = RawScan::new(&part.snapshot, part.source.id, &part.chosen.filter, ask)?;
            let stats = ScanEntry::pending(&part.dir, &part.source.name);
            running.push(TailPart::new(scan, fills, stats));
        }
        let source = self.selection.source.clone();
        Ok(Arc::new(TailRun::new(running, source, self.rows)))
    }
}
