//! `loom_histogram`: how many values each bin of an index holds over a window, whole or by buckets of time.

use std::sync::Arc;

use loom_engine::query::{Bucket, Histogram, HistogramRow, HistogramSpec, Poll};
use loom_engine::schema::BinMap;

use super::agreement;
use super::ambient::Ambient;
use super::arguments::Arguments;
use super::bucket;
use super::buckets::Buckets;
use super::clause::Clause;
use super::columns::Column;
use super::function::{Function, Plan};
use super::parameters::{
    AT, BUCKET, COMPLETE, DIR, FILTER, INDEX, LAST, PARTIAL, POINTS, Parameter, SOURCE, T_FROM,
    T_TO,
};
use super::part::{self, Part};
use super::selection::Selection;
use super::stats;
use super::types::SqlType;
use super::values::Values;
use crate::error::Result;
use crate::exec::cells::{Cell, Pieces, TableRun};
use crate::exec::run::Run;

const PARAMETERS: &[Parameter] = &[
    T_FROM, T_TO, LAST, FILTER, BUCKET, POINTS, PARTIAL, AT, COMPLETE,
];

pub const FUNCTION: Function = Function {
    name: "loom_histogram",
    description: "The number of values in each bin of an index of a source, with their sum, min and max where the bins are defined. A bin is [lower, upper); NULL means no end, or an end beyond the type. Empty bins are omitted.",
    columns: "`bucket` if it is asked for, `bin`, `lower`, `upper`, `count`, `sum`, `min`, `max`",
    examples: &[
        "FROM loom_histogram('telemetry.loom', 'requests', 'latency', bucket := INTERVAL 1 MINUTE)",
    ],
    positional: &[DIR, SOURCE, INDEX],
    named: PARAMETERS,
    bind: |arguments, ambient| Ok(Box::new(HistogramPlan::bind(arguments, ambient)?)),
};

/// A bound call.
struct HistogramPlan {
    selection: Selection,
    buckets: Buckets,
    columns: Vec<Column>,
    values: Values,
}

impl HistogramPlan {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<HistogramPlan> {
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        agreement::bins(&parts)?;
        let buckets = Buckets::bind(arguments, None)?;
        let values = Values::of(&parts)?;
        Ok(HistogramPlan {
            columns: columns(buckets.is_bucketed(), values),
            selection,
            buckets,
            values,
        })
    }
}

impl Plan for HistogramPlan {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn prunes(&self) -> bool {
        true
    }

    fn offer(&self, clause: Clause) {
        self.buckets.offer(clause);
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
        let parts = self.selection.now(ambient)?;
        agreement::bins(&parts)?;
        let window = self.buckets.now(&self.selection, &parts, ambient)?;
        let asked = part::indexed(&parts)?;
        let spec = HistogramSpec {
            time: window.time(),
            bucket: window.bucket,
            threads: (ambient.threads)(),
        };
        let mut histogram = Histogram::new(&asked, spec)?;
        histogram.keep(&window.kept);
        let pieces = HistogramPieces {
            histogram,
            bucket: window.bucket,
            values: self.values,
            parts,
        };
        Ok(TableRun::of(pieces, projected))
    }
}

/// The rows of an execution, some buckets a piece.
struct HistogramPieces {
    histogram: Histogram,
    bucket: Option<Bucket>,
    values: Values,
    parts: Vec<Part>,
}

impl Pieces for HistogramPieces {
    fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>> {
        let Some(rows) = self.histogram.next(poll)? else {
            return Ok(None);
        };
        let bins = self.histogram.bins();
        let cells = |row| cells(self.values, self.bucket, bins, row);
        Ok(Some(rows.iter().map(cells).collect()))
    }
}

impl Drop for HistogramPieces {
    fn drop(&mut self) {
        stats::remember_all(&self.parts);
    }
}

fn cells(values: Values, bucket: Option<Bucket>, bins: &BinMap, row: &HistogramRow) -> Vec<Cell> {
    let mut cells = Vec::with_capacity(8);
    cells.extend(bucket::cell(bucket, row.bucket));
    cells.push(Cell::Int(i128::from(row.bin)));
    cells.push(values.lower(bins, row.bin));
    cells.push(values.upper(bins, row.bin));
    cells.push(Cell::from(row.count));
    cells.extend(match &row.stats {
        Some(stats) => [
            values.sum(row.count, &stats.sum),
            values.value(Some(stats.min)),
            values.value(Some(stats.max)),
        ],
        None => [Cell::Null, Cell::Null, Cell::Null],
    });
    cells
}

fn columns(bucketed: bool, values: Values) -> Vec<Column> {
    let mut columns = Vec::new();
    if bucketed {
        columns.push(Column::new("bucket", SqlType::TimestampTz));
    }
    columns.push(Column::new("bin", SqlType::I32));
    columns.push(Column::new("lower", values.value_type()));
    columns.push(Column::new("upper", values.value_type()));
    columns.push(Column::new("count", SqlType::I64));
    columns.push(Column::new("sum", values.sum_type()));
    columns.push(Column::new("min", values.value_type()));
    columns.push(Column::new("max", values.value_type()));
    columns
}
