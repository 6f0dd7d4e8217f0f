//! `loom_aggregate`: exact statistics of an index's values over a window, whole or by buckets of time.

use loom_engine::TimeRange;
use loom_engine::query::{AggregateRow, AggregateSpec, Bucket, Poll, Quantile, aggregate_together};

use super::arguments::{Ambient, Arguments};
use super::bucket;
use super::columns::Column;
use super::parameters::{
    APPROX, AT, BUCKET, COMPLETE, LAST, Parameter, QUANTILES, T_FROM, T_TO, V_MAX, V_MIN,
};
use super::part::Part;
use super::selection::{Selection, newest};
use super::stats;
use super::time::TimeArguments;
use super::types::SqlType;
use super::values::Values;
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;

pub const PARAMETERS: &[Parameter] = &[
    T_FROM, T_TO, LAST, BUCKET, QUANTILES, APPROX, V_MIN, V_MAX, AT, COMPLETE,
];

pub struct AggregatePlan {
    selection: Selection,
    times: TimeArguments,
    bucket: Option<Bucket>,
    quantiles: Vec<Quantile>,
    approx: bool,
    columns: Vec<Column>,
    values: Values,
}

impl AggregatePlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<AggregatePlan> {
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        let times = arguments.times()?;
        times.range(None)?;
        let values = Values::of(&parts)?;
        let quantiles = quantiles(arguments)?;
        let bucket = bucket::of(arguments)?;
        Ok(AggregatePlan {
            columns: columns(bucket.is_some(), values, &quantiles),
            approx: arguments.boolean("approx")?.unwrap_or(false),
            selection,
            times,
            bucket,
            quantiles,
            values,
        })
    }

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub fn rows(&self, ambient: &Ambient<'_>) -> Result<Vec<Vec<Cell>>> {
        let parts = self.selection.now(ambient)?;
        let newest = newest(&parts, &self.times)?;
        let time = self.times.range(newest)?;
        self.selection
            .require_complete(&parts, &time.into(), ambient)?;
        let asked = parts
            .iter()
            .map(|part| Ok((part.snapshot.clone(), self.spec(part, time, ambient)?)))
            .collect::<Result<Vec<_>>>()?;
        let rows = aggregate_together(&asked, &Poll::new(ambient.stop))?;
        for part in &parts {
            stats::remember(&part.dir, &part.source.name, part.snapshot.stats());
        }
        Ok(rows
            .iter()
            .map(|row| cells(self.values, self.bucket, row))
            .collect())
    }

    fn spec(&self, part: &Part, time: TimeRange, ambient: &Ambient<'_>) -> Result<AggregateSpec> {
        Ok(AggregateSpec {
            source: part.source.id,
            index: part.chosen.required_index()?.id,
            time,
            value: part.chosen.range(),
            bucket: self.bucket,
            quantiles: self.quantiles.clone(),
            approx: self.approx,
            threads: ambient.threads,
        })
    }
}

fn cells(values: Values, bucket: Option<Bucket>, row: &AggregateRow) -> Vec<Cell> {
    let sum = values.sum(row.count, &row.sum);
    let average = match sum {
        Cell::Null => Cell::Null,
        _ => Cell::Float(row.sum.to_f64() / row.count as f64),
    };
    let mut cells = Vec::new();
    cells.extend(bucket::cell(bucket, row.bucket));
    cells.push(Cell::from(row.count));
    cells.push(sum);
    cells.push(values.value(row.min));
    cells.push(values.value(row.max));
    cells.push(average);
    cells.extend(row.quantiles.iter().map(|quantile| values.value(*quantile)));
    cells
}

fn columns(bucketed: bool, values: Values, quantiles: &[Quantile]) -> Vec<Column> {
    let mut columns = Vec::new();
    if bucketed {
        columns.push(Column::new("bucket", SqlType::TimestampTz));
    }
    columns.push(Column::new("count", SqlType::I64));
    columns.push(Column::new("sum", values.sum_type()));
    columns.push(Column::new("min", values.value_type()));
    columns.push(Column::new("max", values.value_type()));
    columns.push(Column::new("avg", SqlType::F64));
    columns.extend(
        quantiles
            .iter()
            .map(|quantile| Column::new(quantile.name(), values.value_type())),
    );
    columns
}

fn quantiles(arguments: &Arguments) -> Result<Vec<Quantile>> {
    let mut quantiles: Vec<Quantile> = Vec::new();
    for q in arguments.doubles("quantiles")?.unwrap_or_default() {
        let quantile =
            Quantile::new(q).map_err(|error| Problem::binder(format!("quantiles: {error}")))?;
        if quantiles
            .iter()
            .any(|known| known.name() == quantile.name())
        {
            return Err(Problem::binder(format!(
                "quantiles holds {q} twice; remove one"
            )));
        }
        quantiles.push(quantile);
    }
    Ok(quantiles)
}
