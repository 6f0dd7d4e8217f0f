//! `loom_rate`: how many records a source has in each bucket of time. It needs no index.

use loom_engine::query::{Bucket, CountRow, CountSpec, Poll, RecordCounts};

use super::ambient::Ambient;
use super::arguments::Arguments;
use super::buckets::{Buckets, POINTS_DEFAULT};
use super::columns::{Column, columns};
use super::parameters::{
    AT, BUCKET, COMPLETE, FILTER, LAST, PARTIAL, POINTS, Parameter, T_FROM, T_TO,
};
use super::part::Part;
use super::selection::Selection;
use super::stats;
use super::types::SqlType;
use crate::error::Result;
use crate::exec::cells::{Cell, Pieces};

pub const PARAMETERS: &[Parameter] = &[
    T_FROM, T_TO, LAST, FILTER, BUCKET, POINTS, PARTIAL, AT, COMPLETE,
];

/// A bound call.
pub struct RatePlan {
    selection: Selection,
    pub buckets: Buckets,
    columns: Vec<Column>,
}

impl RatePlan {
    pub fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<RatePlan> {
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

    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Begins an execution.
    pub fn start(&self, ambient: &Ambient<'_>) -> Result<RatePieces> {
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
        Ok(RatePieces {
            counts,
            bucket,
            parts,
        })
    }
}

/// The rows of an execution, some buckets a piece.
pub struct RatePieces {
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
