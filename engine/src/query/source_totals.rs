//! The totals of sources, from the roots of the forest and the chunks past them.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::forest::walk::{Order, Visitor, Walk};
use super::poll::Poll;
use super::scan::chunk_cursor::ChunkCursor;
use super::snapshot::Snapshot;
use crate::error::Result;
use crate::format::{Node, SourceStats, record_bytes};
use crate::types::{SourceId, Timestamp};

/// The totals of a source's visible and retained records.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct SourceTotals {
    pub records: u64,
    /// Bytes that its records take in the record log, with headers and padding.
    pub bytes: u64,
    /// Least and greatest `ts`.
    pub first_ts: Option<Timestamp>,
    pub last_ts: Option<Timestamp>,
}

/// The totals of some records of one source, at least one.
struct Part {
    records: u64,
    bytes: u64,
    first_ts: Timestamp,
    last_ts: Timestamp,
}

impl SourceTotals {
    fn add(&mut self, part: Part) {
        let (first, last) = (part.first_ts, part.last_ts);
        self.records = self.records.saturating_add(part.records);
        self.bytes = self.bytes.saturating_add(part.bytes);
        self.first_ts = Some(self.first_ts.map_or(first, |known| known.min(first)));
        self.last_ts = Some(self.last_ts.map_or(last, |known| known.max(last)));
    }
}

impl Snapshot {
    /// The totals of one source.
    ///
    /// # Errors
    /// Damage, or eviction meanwhile.
    pub fn source_totals(&self, source: SourceId) -> Result<SourceTotals> {
        let id = self.source_by_id(source)?.id;
        let mut totals = SourceTotals::default();
        self.add_up(Some(id), |_, part| totals.add(part))?;
        Ok(totals)
    }

    /// The totals of every source that holds a record, in one pass.
    ///
    /// # Errors
    /// As [`Snapshot::source_totals`].
    pub fn totals(&self) -> Result<HashMap<SourceId, SourceTotals>> {
        let mut totals: HashMap<SourceId, SourceTotals> = HashMap::new();
        self.add_up(None, |source, part| {
            totals.entry(source).or_default().add(part);
        })?;
        Ok(totals)
    }

    /// Calls `add` with the parts of one source or of all: of whole nodes, and of single records that no node covers.
    fn add_up(&self, only: Option<SourceId>, add: impl FnMut(SourceId, Part)) -> Result<()> {
        let mut adding = Adding { only, add };
        let mut walk = Walk::new(Arc::clone(self.logs()), Order::OldestFirst);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        while let Some(chunk) = walk.next(&mut adding, &Poll::never())? {
            cursor.load(chunk)?;
            let base = cursor.base();
            let _ = cursor.walk(|record| {
                if only.is_none_or(|only| only == record.source)
                    && let Some(source) = self.catalog().source(record.source)
                {
                    let layout = source.layout_at(base);
                    let ts = layout.own_time(record.payload).unwrap_or(record.arrival);
                    let part = Part {
                        records: 1,
                        bytes: record_bytes(record.payload.len()) as u64,
                        first_ts: ts,
                        last_ts: ts,
                    };
                    (adding.add)(record.source, part);
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }
}

struct Adding<F> {
    only: Option<SourceId>,
    add: F,
}

impl<F: FnMut(SourceId, Part)> Adding<F> {
    fn add_stats(&mut self, stats: &SourceStats<'_>) {
        let part = Part {
            records: stats.records,
            bytes: stats.bytes,
            first_ts: stats.first_ts,
            last_ts: stats.last_ts,
        };
        (self.add)(stats.source, part);
    }
}

impl<F: FnMut(SourceId, Part)> Visitor for Adding<F> {
    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        match self.only {
            Some(source) => (node.source(source).iter()).for_each(|stats| self.add_stats(stats)),
            None => node.sources().for_each(|stats| self.add_stats(&stats)),
        }
        Ok(0)
    }
}
