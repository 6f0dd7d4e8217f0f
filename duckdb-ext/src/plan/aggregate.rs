//! `loom_aggregate`: exact statistics of an index's values over a window, whole or by buckets of time.

use std::sync::Arc;

use loom_engine::query::{Aggregate, AggregateRow, Bucket, Poll, Quantile};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::bucket;
use super::buckets::Buckets;
use super::clause::Clause;
use super::columns::Column;
use super::function::{Function, Plan};
use super::parameters::{
    APPROX, AT, BUCKET, COMPLETE, DIR, FILTER, INDEX, LAST, PARTIAL, POINTS, Parameter, QUANTILES,
    SOURCE, T_FROM, T_TO, V_MAX, V_MIN,
};
use super::part::{Aggregated, Part};
use super::selection::Selection;
use super::stats;
use super::types::SqlType;
use super::values::Values;
use crate::error::{Problem, Result};
use crate::exec::cells::{Cell, Pieces, TableRun};
use crate::exec::run::Run;

const PARAMETERS: &[Parameter] = &[
    T_FROM, T_TO, LAST, FILTER, BUCKET, POINTS, PARTIAL, QUANTILES, APPROX, V_MIN, V_MAX, AT,
    COMPLETE,
];

pub const FUNCTION: Function = Function {
    name: "loom_aggregate",
    description: "Exact count, sum, min, max, avg and quantiles of an index of a source, from summaries.",
    columns: "`bucket` if it is asked for, `count`, `sum`, `min`, `max`, `avg`, one for each of `quantiles`",
    examples: &[
        "FROM loom_aggregate('telemetry.loom', 'requests', 'latency', bucket := INTERVAL 1 MINUTE, quantiles := [0.5, 0.9999])",
    ],
    positional: &[DIR, SOURCE, INDEX],
    named: PARAMETERS,
    bind: |arguments, ambient| Ok(Box::new(AggregatePlan::bind(arguments, ambient)?)),
};

struct AggregatePlan {
    selection: Selection,
    buckets: Buckets,
    quantiles: Vec<Quantile>,
    approx: bool,
    columns: Vec<Column>,
    values: Values,
}

impl AggregatePlan {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<AggregatePlan> {
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        let buckets = Buckets::bind(arguments, None)?;
        let values = Values::of(&parts)?;
        let quantiles = quantiles(arguments)?;
        Ok(AggregatePlan {
            columns: columns(buckets.is_bucketed(), values, &quantiles),
            approx: arguments.boolean("approx")?.unwrap_or(false),
            selection,
            buckets,
            quantiles,
            values,
        })
    }
}

impl Plan for AggregatePlan {
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
        let window = self.buckets.now(&self.selection, &parts, ambient)?;
        let asked = Aggregated {
            time: window.time(),
            bucket: window.bucket,
            quantiles: &self.quantiles,
            approx: self.approx,
            threads: (ambient.threads)(),
        };
        let mut aggregate = Aggregate::new(&asked.of(&parts)?)?;
        aggregate.keep(&window.kept);
        let pieces = AggregatePieces {
            aggregate,
            bucket: window.bucket,
            values: self.values,
            parts,
        };
        Ok(TableRun::of(pieces, projected))
    }
}

/// The rows of an execution, some buckets a piece.
struct AggregatePieces {
    aggregate: Aggregate,
    bucket: Option<Bucket>,
    values: Values,
    parts: Vec<Part>,
}

impl Pieces for AggregatePieces {
    fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>> {
        let Some(rows) = self.aggregate.next(poll)? else {
            return Ok(None);
        };
        let cells = |row| cells(self.values, self.bucket, row);
        Ok(Some(rows.iter().map(cells).collect()))
    }
}

impl Drop for AggregatePieces {
    fn drop(&mut self) {
        stats::remember_all(&self.parts);
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

pub fn quantiles(arguments: &Arguments) -> Result<Vec<Quantile>> {
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
