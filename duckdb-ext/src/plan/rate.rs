//! `loom_rate`: how many records a source has in each bucket of time. It needs no index.

use std::sync::Arc;

use loom_engine::query::{Bucket, CountRow, CountSpec, Poll, RecordCounts};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::buckets::{Buckets, POINTS_DEFAULT};
use super::clause::Clause;
use super::columns::{Column, columns};
use super::function::{Function, Plan};
use super::parameters::{
    AT, BUCKET, COMPLETE, DIR, FILTER, LAST, PARTIAL, POINTS, Parameter, SOURCE, T_FROM, T_TO,
};
use super::part::Part;
use super::selection::Selection;
use super::stats;
use super::types::SqlType;
use crate::error::Result;
use crate::exec::cells::{Cell, Pieces, TableRun};
use crate::exec::run::Run;

const PARAMETERS: &[Parameter] = &[
    T_FROM, T_TO, LAST, FILTER, BUCKET, POINTS, PARTIAL, AT, COMPLETE,
];

pub const FUNCTION: Function = Function {
    name: "loom_rate",
    description: "The number of records of a source in each bucket of time, and per second. It needs no index.",
    columns: "`bucket`, `count`, `per_second`",
    examples: &[
        "FROM loom_rate('telemetry.loom', 'requests', bucket := INTERVAL 1 SECOND, last := INTERVAL 5 MINUTE)",
    ],
    positional: &[DIR, SOURCE],
    named: PARAMETERS,
    bind: |arguments, ambient| Ok(Box::new(RatePlan::bind(arguments, ambient)?)),
};

/// A bound call.
struct RatePlan {
    selection: Selection,
    buckets: Buckets,
    columns: Vec<Column>,
}

impl RatePlan {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<RatePlan> {
        let (selection, _) = Selection::bind(arguments, ambient)?;
        Ok(RatePlan {
            selection,
            buckets: Buckets::bind(arguments, Some(POINTS_DEFAULT))?,
            columns: columns(&[
                ("bucket", SqlType::TimestampTz),
                ("count", SqlType::I64),
                ("per_second", SqlType::F64),
            ]),
        })
    }
}

impl Plan for RatePlan {
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
        let (time, bucket) = window.bucketed();
        let asked: Vec<_> = parts
            .iter()
            .map(|part| (&part.snapshot, part.source.id, &part.chosen.filter))
            .collect();
        let spec = CountSpec {
            time,
            bucket,
            threads: (ambient.threads)(),
        };
        let mut counts = RecordCounts::new(&asked, spec)?;
        counts.keep(&window.kept);
        let pieces = RatePieces {
            counts,
            bucket,
            parts,
        };
        Ok(TableRun::of(pieces, projected))
    }
}

/// The rows of an execution, some buckets a piece.
struct RatePieces {
    counts: RecordCounts,
    bucket: Bucket,
    parts: Vec<Part>,
}

impl Pieces for RatePieces {
    fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>> {
        let Some(rows) = self.counts.next(poll)? else {
            return Ok(None);
        };
        let cells = |row: &CountRow| {
            let start_us = self.bucket.start_us(row.bucket);
            let seconds = (self.bucket.end_us(row.bucket) - start_us) as f64 / 1e6;
            vec![
                Cell::Int(start_us.into()),
                Cell::from(row.count),
                Cell::Float(row.count as f64 / seconds),
            ]
        };
        Ok(Some(rows.iter().map(cells).collect()))
    }
}

impl Drop for RatePieces {
    fn drop(&mut self) {
        stats::remember_all(&self.parts);
    }
}
