//! `loom_rate`: the number of records of a source in each bucket of time. It needs no index.

use loom_engine::query::{CountRow, CountSpec, Poll, RecordCounts};

use super::bucketed;
use super::buckets::{Buckets, POINTS_DEFAULT};
use super::columns::columns;
use super::function::Function;
use super::parameters::{
    AT, BUCKET, COMPLETE, DIR, FILTER, LAST, PARTIAL, POINTS, SOURCE, T_FROM, T_TO,
};
use super::selection::Selection;
use super::types::SqlType;
use crate::exec::cells::Cell;

pub const FUNCTION: Function = Function {
    name: "loom_rate",
    description: "The number of records of a source in each bucket of time, and per second. It needs no index.",
    columns: "`bucket`, `count`, `per_second`",
    examples: &[
        "FROM loom_rate('telemetry.loom', 'requests', bucket := INTERVAL 1 SECOND, last := INTERVAL 5 MINUTE)",
    ],
    positional: &[DIR, SOURCE],
    named: &[
        T_FROM, T_TO, LAST, FILTER, BUCKET, POINTS, PARTIAL, AT, COMPLETE,
    ],
    bind: |arguments, ambient| {
        let (selection, _) = Selection::bind(arguments, ambient)?;
        let buckets = Buckets::bind(arguments, Some(POINTS_DEFAULT))?;
        let columns = columns(&[
            ("bucket", SqlType::TimestampTz),
            ("count", SqlType::I64),
            ("per_second", SqlType::F64),
        ]);
        Ok(bucketed::bound(
            selection,
            buckets,
            columns,
            |parts, window, ambient| {
                let (time, bucket) = window.bucketed();
                let asked = parts.iter();
                let asked = asked.map(|part| (&part.snapshot, part.source.id, &part.chosen.filter));
                let spec = CountSpec {
                    time,
                    bucket,
                    threads: (ambient.threads)(),
                };
                let mut counts = RecordCounts::new(&asked.collect::<Vec<_>>(), spec)?;
                counts.keep(&window.kept);
                Ok(Box::new(move |poll: &Poll<'_>| {
                    let cells = |row: &CountRow| {
                        let start_us = bucket.start_us(row.bucket);
                        let seconds = (bucket.end_us(row.bucket) - start_us) as f64 / 1e6;
                        vec![
                            Cell::Int(start_us.into()),
                            Cell::from(row.count),
                            Cell::Float(row.count as f64 / seconds),
                        ]
                    };
                    let rows = counts.next(poll)?;
                    Ok(rows.map(|rows| rows.iter().map(cells).collect()))
                }))
            },
        ))
    },
};
