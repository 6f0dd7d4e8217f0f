//! `loom_aggregate`: exact statistics of an index's values over a window, whole or by buckets of time.

use loom_engine::query::{Aggregate, AggregateRow, Bucket, Poll, Quantile};

use super::arguments::Arguments;
use super::bucket;
use super::bucketed;
use super::buckets::Buckets;
use super::columns::Column;
use super::function::Function;
use super::parameters::{
    APPROX, AT, BUCKET, COMPLETE, DIR, FILTER, INDEX, LAST, PARTIAL, POINTS, QUANTILES, SOURCE,
    T_FROM, T_TO, V_MAX, V_MIN,
};
use super::part::Aggregated;
use super::selection::Selection;
use super::types::SqlType;
use super::values::Values;
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;

pub const FUNCTION: Function = Function {
    name: "loom_aggregate",
    description: "Exact count, sum, min, max, avg and quantiles of an index of a source, from summaries.",
    columns: "`bucket` if it is given, `count`, `sum`, `min`, `max`, `avg`, one for each of `quantiles`",
    examples: &[
        "FROM loom_aggregate('telemetry.loom', 'requests', 'latency', bucket := INTERVAL 1 MINUTE, quantiles := [0.5, 0.9999])",
    ],
    positional: &[DIR, SOURCE, INDEX],
    named: &[
        T_FROM, T_TO, LAST, FILTER, BUCKET, POINTS, PARTIAL, QUANTILES, APPROX, V_MIN, V_MAX, AT,
        COMPLETE,
    ],
    bind: |arguments, ambient| {
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        let buckets = Buckets::bind(arguments, None)?;
        let values = Values::of(&parts)?;
        let quantiles = quantiles(arguments)?;
        let approx = arguments.boolean("approx")?.unwrap_or(false);
        let columns = columns(buckets.is_bucketed(), values, &quantiles);
        Ok(bucketed::bound(
            selection,
            buckets,
            columns,
            move |parts, window, ambient| {
                let asked = Aggregated {
                    time: window.time(),
                    bucket: window.bucket,
                    quantiles: &quantiles,
                    approx,
                    threads: (ambient.threads)(),
                };
                let mut aggregate = Aggregate::new(&asked.of(parts)?)?;
                aggregate.keep(&window.kept);
                let bucket = window.bucket;
                Ok(Box::new(move |poll: &Poll<'_>| {
                    let rows = aggregate.next(poll)?;
                    Ok(
                        rows.map(|rows| {
                            rows.iter().map(|row| cells(values, bucket, row)).collect()
                        }),
                    )
                }))
            },
        ))
    },
};

fn cells(values: Values, bucket: Option<Bucket>, row: &AggregateRow) -> Vec<Cell> {
    let sum = values.sum(row.count, &row.sum);
    let average = match sum {
        Cell::Null => Cell::Null,
        _ => Cell::Float(row.sum.to_f64() / row.count as f64),
    };
    let statistics = [
        Cell::from(row.count),
        sum,
        values.value(row.min),
        values.value(row.max),
        average,
    ];
    let quantiles = row.quantiles.iter().map(|quantile| values.value(*quantile));
    let bucket = bucket::cell(bucket, row.bucket);
    bucket
        .into_iter()
        .chain(statistics)
        .chain(quantiles)
        .collect()
}

fn columns(bucketed: bool, values: Values, quantiles: &[Quantile]) -> Vec<Column> {
    let value = values.value_type();
    let mut columns = bucket::columns(
        bucketed,
        &[
            ("count", SqlType::I64),
            ("sum", values.sum_type()),
            ("min", value),
            ("max", value),
            ("avg", SqlType::F64),
        ],
    );
    columns.extend(
        quantiles
            .iter()
            .map(|quantile| Column::new(quantile.name(), value)),
    );
    columns
}

pub fn quantiles(arguments: &Arguments) -> Result<Vec<Quantile>> {
    let mut quantiles: Vec<Quantile> = Vec::new();
    for q in arguments.doubles("quantiles")?.unwrap_or_default() {
        let quantile =
            Quantile::new(q).map_err(|error| Problem::binder(format!("quantiles: {error}")))?;
        let mut known = quantiles.iter();
        if known.any(|known| known.name() == quantile.name()) {
            return Err(Problem::binder(format!(
                "quantiles holds {q} twice; remove one"
            )));
        }
        quantiles.push(quantile);
    }
    Ok(quantiles)
}
