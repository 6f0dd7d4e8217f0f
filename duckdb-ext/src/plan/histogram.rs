//! `loom_histogram`: the number of values in each bin of an index over a window, whole or by buckets of time.

use loom_engine::query::{Bucket, Histogram, HistogramRow, HistogramSpec, Poll};
use loom_engine::schema::BinMap;

use super::agreement;
use super::bucket;
use super::bucketed;
use super::buckets::Buckets;
use super::function::Function;
use super::parameters::{
    AT, BUCKET, COMPLETE, DIR, FILTER, INDEX, LAST, PARTIAL, POINTS, SOURCE, T_FROM, T_TO,
};
use super::part;
use super::selection::Selection;
use super::types::SqlType;
use super::values::Values;
use crate::exec::cells::Cell;

pub const FUNCTION: Function = Function {
    name: "loom_histogram",
    description: "The number of values in each bin of an index of a source, with their sum, min and max where the bins are defined. A bin is [lower, upper); NULL means that it has no end, or that the end is beyond the type. Empty bins are omitted.",
    columns: "`bucket` if it is given, `bin`, `lower`, `upper`, `count`, `sum`, `min`, `max`",
    examples: &[
        "FROM loom_histogram('telemetry.loom', 'requests', 'latency', bucket := INTERVAL 1 MINUTE)",
    ],
    positional: &[DIR, SOURCE, INDEX],
    named: &[
        T_FROM, T_TO, LAST, FILTER, BUCKET, POINTS, PARTIAL, AT, COMPLETE,
    ],
    bind: |arguments, ambient| {
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        agreement::bins(&parts)?;
        let buckets = Buckets::bind(arguments, None)?;
        let values = Values::of(&parts)?;
        let value = values.value_type();
        let columns = bucket::columns(
            buckets.is_bucketed(),
            &[
                ("bin", SqlType::I32),
                ("lower", value),
                ("upper", value),
                ("count", SqlType::I64),
                ("sum", values.sum_type()),
                ("min", value),
                ("max", value),
            ],
        );
        Ok(bucketed::bound(
            selection,
            buckets,
            columns,
            move |parts, window, ambient| {
                agreement::bins(parts)?;
                let bucket = window.bucket;
                let spec = HistogramSpec {
                    time: window.time(),
                    bucket,
                    threads: (ambient.threads)(),
                };
                let mut histogram = Histogram::new(&part::indexed(parts)?, spec)?;
                histogram.keep(&window.kept);
                Ok(Box::new(move |poll: &Poll<'_>| {
                    let rows = histogram.next(poll)?;
                    let cells = |row: &HistogramRow| cells(values, bucket, histogram.bins(), row);
                    Ok(rows.map(|rows| rows.iter().map(cells).collect()))
                }))
            },
        ))
    },
};

fn cells(values: Values, bucket: Option<Bucket>, bins: &BinMap, row: &HistogramRow) -> Vec<Cell> {
    let stats = row.stats.as_ref().map(|stats| {
        [
            values.sum(row.count, &stats.sum),
            values.value(Some(stats.min)),
            values.value(Some(stats.max)),
        ]
    });
    let bin = [
        Cell::Int(i128::from(row.bin)),
        values.lower(bins, row.bin),
        values.upper(bins, row.bin),
        Cell::from(row.count),
    ];
    let stats = stats.unwrap_or([Cell::Null, Cell::Null, Cell::Null]);
    let bucket = bucket::cell(bucket, row.bucket);
    bucket.into_iter().chain(bin).chain(stats).collect()
}
