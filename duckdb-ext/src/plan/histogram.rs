//! `loom_histogram`: how many values each bin of an index holds over a window, whole or by buckets of time.

use loom_engine::query::{Bucket, Histogram, HistogramRow, HistogramSpec, Poll};
use loom_engine::schema::BinMap;

use super::agreement;
use super::arguments::{Ambient, Arguments};
use super::bucket;
use super::columns::Column;
use super::parameters::{AT, BUCKET, COMPLETE, LAST, Parameter, T_FROM, T_TO};
use super::part::Part;
use super::selection::{Selection, newest};
use super::stats;
use super::time::TimeArguments;
use super::types::SqlType;
use super::values::Values;
use crate::error::Result;
use crate::exec::cells::{Cell, Pieces};

pub const PARAMETERS: &[Parameter] = &[T_FROM, T_TO, LAST, BUCKET, AT, COMPLETE];

/// A bound call.
pub struct HistogramPlan {
    selection: Selection,
    times: TimeArguments,
    bucket: Option<Bucket>,
    columns: Vec<Column>,
    values: Values,
}

impl HistogramPlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<HistogramPlan> {
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        agreement::bins(&parts)?;
        let times = arguments.times()?;
        times.range(None)?;
        let values = Values::of(&parts)?;
        let bucket = bucket::of(arguments)?;
        Ok(HistogramPlan {
            columns: columns(bucket.is_some(), values),
            selection,
            times,
            bucket,
            values,
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Begins an execution.
    pub fn start(&self, ambient: &Ambient<'_>) -> Result<HistogramPieces> {
        let parts = self.selection.now(ambient)?;
        agreement::bins(&parts)?;
        let newest = newest(&parts, &self.times)?;
        let time = self.times.range(newest)?;
        self.selection
            .require_complete(&parts, &time.into(), ambient)?;
        let asked = parts
            .iter()
            .map(|part| {
                let index = part.chosen.required_index()?.id;
                Ok((&part.snapshot, part.source.id, index))
            })
            .collect::<Result<Vec<_>>>()?;
        let spec = HistogramSpec {
            time,
            bucket: self.bucket,
            threads: ambient.threads,
        };
        let histogram = Histogram::new(&asked, spec, &Poll::new(ambient.stop))?;
        Ok(HistogramPieces {
            histogram,
            bucket: self.bucket,
            values: self.values,
            parts,
        })
    }
}

/// The rows of an execution, some buckets a piece.
pub struct HistogramPieces {
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
        for part in &self.parts {
            stats::remember(&part.dir, &part.source.name, part.snapshot.stats());
        }
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
