//! `loom_estimate`: how much a scan, an aggregate and quantiles would read, without running them.

use loom_engine::Address;
use loom_engine::query::{Estimate, Poll, Predicate, Quantile, Scan, ScanSpec, estimate_aggregate};

use super::aggregate::quantiles;
use super::ambient::Ambient;
use super::buckets::{Buckets, Window};
use super::columns::columns;
use super::function::{Function, SmallTable};
use super::parameters::{
    APPROX, AT, BUCKET, COMPLETE, DIR, FILTER, INDEX, LAST, PARTIAL, POINTS, QUANTILES, SOURCE,
    T_FROM, T_TO, V_MAX, V_MIN,
};
use super::part::{Aggregated, Part};
use super::selection::Selection;
use super::types::SqlType;
use crate::error::Result;
use crate::exec::cells::Cell;

pub const FUNCTION: Function = Function {
    name: "loom_estimate",
    description: "An estimate of how much a scan of a source would read, and with an index its aggregate and its quantiles, in chunks and bytes. It reads summaries and no records.",
    columns: "`operation`, `chunks`, `bytes`",
    examples: &[
        "FROM loom_estimate('telemetry.loom', 'requests', index := 'latency', bucket := INTERVAL 1 SECOND, last := INTERVAL 1 HOUR)",
    ],
    positional: &[DIR, SOURCE],
    named: &[
        T_FROM, T_TO, LAST, FILTER, INDEX, V_MIN, V_MAX, BUCKET, POINTS, PARTIAL, QUANTILES,
        APPROX, AT, COMPLETE,
    ],
    bind: |arguments, ambient| {
        let (selection, _) = Selection::bind(arguments, ambient)?;
        let mut quantiles = quantiles(arguments)?;
        if quantiles.is_empty() {
            quantiles = vec![Quantile::new(0.5)?, Quantile::new(0.99)?];
        }
        let plan = EstimatePlan {
            selection,
            buckets: Buckets::bind(arguments, None)?,
            quantiles,
            approx: arguments.boolean("approx")?.unwrap_or(false),
        };
        let columns = columns(&[
            ("operation", SqlType::Text),
            ("chunks", SqlType::U64),
            ("bytes", SqlType::U64),
        ]);
        Ok(SmallTable::bound(columns, move |ambient| {
            plan.rows(ambient)
        }))
    },
};

struct EstimatePlan {
    selection: Selection,
    buckets: Buckets,
    quantiles: Vec<Quantile>,
    approx: bool,
}

impl EstimatePlan {
    /// One row for each operation.
    fn rows(&self, ambient: &Ambient<'_>) -> Result<Vec<Vec<Cell>>> {
        let parts = self.selection.now(ambient)?;
        let window = self.buckets.now(&self.selection, &parts, ambient)?;
        let poll = Poll::new(ambient.stop);
        let mut scan = Estimate::default();
        for part in &parts {
            let found = Scan::new(&part.snapshot, scan_spec(part, &window))?.estimate(&poll)?;
            scan.chunks += found.chunks;
            scan.bytes += found.bytes;
        }
        let mut rows = vec![row("scan", scan)];
        if parts.iter().all(|part| part.chosen.index.is_some()) {
            for (operation, quantiles) in [("aggregate", &[][..]), ("quantiles", &self.quantiles)] {
                let asked = Aggregated {
                    time: window.time(),
                    bucket: window.bucket,
                    quantiles,
                    approx: self.approx,
                    threads: (ambient.threads)(),
                };
                let estimate = estimate_aggregate(&asked.of(&parts)?, &poll)?;
                rows.push(row(operation, estimate));
            }
        }
        Ok(rows)
    }
}

fn scan_spec(part: &Part, window: &Window) -> ScanSpec {
    ScanSpec {
        source: part.source.id,
        after: Address::ZERO,
        exact: Predicate::and([
            Predicate::times(window.time().into()),
            part.chosen.predicate(),
        ]),
        prune: Predicate::All,
        index_filters: part.chosen.index_filters(),
    }
}

fn row(operation: &str, estimate: Estimate) -> Vec<Cell> {
    vec![
        Cell::from(operation),
        Cell::from(estimate.chunks),
        Cell::from(estimate.bytes),
    ]
}
