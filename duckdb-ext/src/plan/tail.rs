//! `loom_tail`: the latest records of a source, the newest first, found by its chain of chunks.

use loom_engine::query::RawScan;

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::columns::Column;
use super::parameters::{FILTER, Parameter};
use super::scan::records;
use super::selection::Selection;
use super::stats::ScanEntry;
use crate::error::Result;
use crate::exec::fill::Fill;
use crate::exec::tail::{TailPart, TailRun};

pub const PARAMETERS: &[Parameter] = &[FILTER];

/// A bound call.
pub struct TailPlan {
    selection: Selection,
    columns: Vec<Column>,
    rows: u64,
    rows_estimate: u64,
}

impl TailPlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<TailPlan> {
        let rows = arguments.required_count("n")?;
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        Ok(TailPlan {
            columns: selection.columns(),
            rows_estimate: rows.min(records(&parts)?),
            selection,
            rows,
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// About how many rows there are; no bound, for the source goes on growing.
    pub fn rows_estimate(&self) -> u64 {
        self.rows_estimate
    }

    /// Begins an execution that shows these columns.
    pub fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<TailRun> {
        let parts = self.selection.now(ambient)?;
        let shown = self.selection.shown(projected);
        let mut running = Vec::with_capacity(parts.len());
        for part in &parts {
            let scan = RawScan::new(&part.snapshot, part.source.id, &part.chosen.filter)?;
            let fills = Fill::all(&shown, &part.source, &part.dir);
            let stats = ScanEntry::pending(&part.dir, &part.source.name);
            running.push(TailPart::new(scan, fills, stats));
        }
        let source = self.selection.source.clone();
        Ok(TailRun::new(running, source, self.rows))
    }
}
