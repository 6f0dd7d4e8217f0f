//! What a source holds, from the roots of the forest and the chunks past them.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::forest::walk::{Order, Visitor, Walk};
use super::poll::Poll;
use super::scan::chunk_cursor::ChunkCursor;
use super::snapshot::Snapshot;
use crate::error::Result;
use crate::format::{Node, RECORD_HEADER_BYTES};
use crate::types::{SourceId, Timestamp};

/// What a source holds, as far as it is visible and retained.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceTotals {
    pub records: u64,
    /// Bytes of the record log that its records take, headers and padding included.
    pub bytes: u64,
    /// Least and greatest `ts`.
    pub first_ts: Option<Timestamp>,
    pub last_ts: Option<Timestamp>,
}

impl SourceTotals {
    fn add(&mut self, records: u64, bytes: u64, first_ts: Timestamp, last_ts: Timestamp) {
        self.records = self.records.saturating_add(records);
        self.bytes = self.bytes.saturating_add(bytes);
        self.first_ts = Some(self.first_ts.map_or(first_ts, |first| first.min(first_ts)));
        self.last_ts = Some(self.last_ts.map_or(last_ts, |last| last.max(last_ts)));
    }
}

impl Snapshot {
    /// What a source holds.
    ///
    /// # Errors
    /// Damage, or eviction meanwhile.
    pub fn source_totals(&self, source: SourceId) -> Result<SourceTotals> {
        let source = self.source_by_id(source)?;
        let mut adding = Adding {
            source: source.id,
            totals: SourceTotals::default(),
        };
        let mut walk = Walk::new(Arc::clone(self.logs()), Order::OldestFirst);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        while let Some(chunk) = walk.next(&mut adding, &Poll::never())? {
            cursor.load(chunk)?;
            let _ = cursor.for_each(&source, |record, row| {
                let bytes = RECORD_HEADER_BYTES + usize::from(row.length).next_multiple_of(8);
                adding.totals.add(1, bytes as u64, record.ts, record.ts);
                ControlFlow::Continue(())
            })?;
        }
        Ok(adding.totals)
    }
}

struct Adding {
    source: SourceId,
    totals: SourceTotals,
}

impl Visitor for Adding {
    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        if let Some(stats) = node.source(self.source) {
            let (first_ts, last_ts) = (stats.first_ts, stats.last_ts);
            self.totals
                .add(stats.records, stats.bytes, first_ts, last_ts);
        }
        Ok(0)
    }
}
