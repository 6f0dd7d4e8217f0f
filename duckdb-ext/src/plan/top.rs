//! `loom_top`: the records with the greatest values of an index, or the least, in that order.

use loom_engine::query::{Poll, TopSpec, top};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::columns::Column;
use super::parameters::{AT, COMPLETE, FILTER, LAST, LEAST, Parameter, T_FROM, T_TO};
use super::part;
use super::selection::{Selection, newest};
use super::stats;
use super::time::TimeArguments;
use crate::error::Result;
use crate::exec::fill::Fill;
use crate::exec::top::{TopPart, TopRun};

pub const PARAMETERS: &[Parameter] = &[T_FROM, T_TO, LAST, FILTER, LEAST, AT, COMPLETE];

/// A bound call.
pub struct TopPlan {
    selection: Selection,
    times: TimeArguments,
    rows: u64,
    least: bool,
    columns: Vec<Column>,
}

impl TopPlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<TopPlan> {
        let rows = arguments.required_count("n")?;
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        for part in &parts {
            part.chosen
                .required_values("loom_tail gives the latest records")?;
        }
        let times = arguments.times()?;
        times.range(None)?;
        Ok(TopPlan {
            columns: selection.columns(),
            selection,
            times,
            rows,
            least: arguments.boolean("least")?.unwrap_or(false),
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// At most so many rows.
    pub fn rows_estimate(&self) -> u64 {
        self.rows
    }

    /// Begins an execution that shows these columns.
    pub fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<TopRun> {
        let parts = self.selection.now(ambient)?;
        let time = self.times.range(newest(&parts, &self.times)?)?;
        self.selection
            .require_complete(&parts, &time.into(), ambient)?;
        let asked = part::indexed(&parts)?;
        let spec = TopSpec {
            time,
            rows: self.rows,
            least: self.least,
            threads: (ambient.threads)(),
        };
        let rows = top(&asked, spec, &Poll::new(ambient.stop))?;
        stats::remember_all(&parts);
        let shown = self.selection.shown(projected);
        let parts = parts.into_iter().map(|part| TopPart {
            fills: Fill::all(&shown, &part.source, &part.dir),
            source: part.source,
        });
        let source = self.selection.source.clone();
        Ok(TopRun::new(rows, parts.collect(), source))
    }
}
