//! What sources hold, from the roots of the forest and the chunks past them.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::forest::walk::{Order, Visitor, Walk};
use super::poll::Poll;
use super::scan::chunk_cursor::{ChunkCursor, record_ts};
use super::snapshot::Snapshot;
use crate::error::Result;
use crate::format::{Node, SourceStats, record_bytes};
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
        let id = self.source_by_id(source)?.id;
        let totals = self.add_up(Some(id))?;
        Ok(totals.get(&id).copied().unwrap_or_default())
    }

    /// What each source holds that holds any record, in one pass.
    ///
    /// # Errors
    /// As [`Snapshot::source_totals`].
    pub fn totals(&self) -> Result<HashMap<SourceId, SourceTotals>> {
        self.add_up(None)
    }

    /// Of one source, or of all.
    fn add_up(&self, only: Option<SourceId>) -> Result<HashMap<SourceId, SourceTotals>> {
        let mut adding = Adding {
            only,
            totals: HashMap::new(),
        };
        let mut walk = Walk::new(Arc::clone(self.logs()), Order::OldestFirst);
        let mut cursor = ChunkCursor::new(Arc::clone(self.logs()));
        while let Some(chunk) = walk.next(&mut adding, &Poll::never())? {
            cursor.load(chunk)?;
            let base = cursor.base();
            let _ = cursor.walk(|record| {
                let id = record.source;
                if only.is_none_or(|only| only == id)
                    && let Some(source) = self.catalog().source(id)
                {
                    let layout = source.layout_at(base);
                    let ts = record_ts(layout, record.arrival, record.payload);
                    let bytes = record_bytes(record.payload.len());
                    adding.of(id).add(1, bytes as u64, ts, ts);
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(adding.totals)
    }
}

struct Adding {
    only: Option<SourceId>,
    totals: HashMap<SourceId, SourceTotals>,
}

impl Adding {
    fn of(&mut self, source: SourceId) -> &mut SourceTotals {
        self.totals.entry(source).or_default()
    }

    fn add(&mut self, stats: &SourceStats<'_>) {
        let (first_ts, last_ts) = (stats.first_ts, stats.last_ts);
        self.of(stats.source)
            .add(stats.records, stats.bytes, first_ts, last_ts);
    }
}

impl Visitor for Adding {
    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        match self.only {
            Some(source) => node.source(source).iter().for_each(|stats| self.add(stats)),
            None => node.sources().for_each(|stats| self.add(&stats)),
        }
        Ok(0)
    }
}
