//! `loom_top`: the records with the greatest or the least values of an index, in that order.

use std::sync::Arc;

use loom_engine::query::{Poll, TopSpec, top};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::columns::Column;
use super::function::{Function, Plan};
use super::parameters::{AT, COMPLETE, DIR, FILTER, INDEX, LAST, LEAST, N, SOURCE, T_FROM, T_TO};
use super::part;
use super::selection::{Selection, newest};
use super::stats;
use super::time::TimeArguments;
use crate::error::Result;
use crate::exec::fill::Fill;
use crate::exec::run::Run;
use crate::exec::top::{TopPart, TopRun};

pub const FUNCTION: Function = Function {
    name: "loom_top",
    description: "The n records of a source with the greatest values of an index, the greatest first. Equal values are in the order of arrival.",
    columns: "those of `loom_scan`",
    examples: &["FROM loom_top('telemetry.loom', 'requests', 'latency', 10)"],
    positional: &[DIR, SOURCE, INDEX, N],
    named: &[T_FROM, T_TO, LAST, FILTER, LEAST, AT, COMPLETE],
    bind: |arguments, ambient| Ok(Box::new(TopPlan::bind(arguments, ambient)?)),
};

struct TopPlan {
    selection: Selection,
    times: TimeArguments,
    rows: u64,
    least: bool,
    columns: Vec<Column>,
}

impl TopPlan {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<TopPlan> {
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
}

impl Plan for TopPlan {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn rows_estimate(&self) -> Option<u64> {
        Some(self.rows)
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
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
        Ok(Arc::new(TopRun::new(rows, parts.collect(), source)))
    }
}
