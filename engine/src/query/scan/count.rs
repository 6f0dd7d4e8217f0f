//! Counts the rows of a scan, from summaries where possible.
//!
//! A child adds its count if every record satisfies the predicate, is skipped if none may, and is opened otherwise; so `count(*)` over a window reads only the
//! chunks on its edges.

use std::ops::Range;
use std::sync::Arc;

use super::ask::Ask;
use super::chunk_cursor::ChunkCursor;
use super::shared_scan::Scan;
use crate::error::Result;
use crate::format::Node;
use crate::query::forest::mask::NodeView;
use crate::query::forest::walk::{Visitor, Walk};
use crate::query::poll::Poll;
use crate::types::{ChunkNo, TimeRange};

/// Several threads scan more chunks faster than this counts them.
const CHUNKS_MOST: u64 = 1024;

struct Counting<'a> {
    scan: &'a Scan,
    count: u64,
}

impl Visitor for Counting<'_> {
    fn arrivals(&self) -> TimeRange {
        self.scan.arrivals()
    }

    fn is_outside(&mut self, chunks: Range<ChunkNo>) -> bool {
        self.scan.is_outside(chunks)
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        let Some(stats) = node.source(self.scan.source().id) else {
            return Ok(0);
        };
        let view = NodeView { node: *node, stats };
        let masks = self.scan.exact().masks(&view);
        if masks.all == view.held() {
            self.count = self.count.saturating_add(stats.records);
            return Ok(0);
        }
        for child in stats
            .children()
            .filter(|child| masks.all >> child.child & 1 == 1)
        {
            self.count = self.count.saturating_add(child.records);
        }
        Ok(masks.may & !masks.all)
    }
}

impl Scan {
    /// Returns the number of rows, or `None` if so many chunks must be read that a scan is faster.
    ///
    /// # Errors
    /// As [`Scan::next`] and [`super::chunk_reader::ChunkReader::read`].
    pub fn count(&self, poll: &Poll<'_>) -> Result<Option<u64>> {
        if self.exact().needs_records() {
            return Ok(None);
        }
        // Counted apart: if a scan must run after all, this work is not part of it.
        let logs = self.logs().counted_apart();
        let mut walk = Walk::after(Arc::clone(&logs), self.after());
        let mut cursor = ChunkCursor::new(Arc::clone(&logs));
        let mut rows = self.rows(Ask::default());
        let mut counting = Counting {
            scan: self,
            count: 0,
        };
        let mut chunks = 0;
        while let Some(chunk) = walk.next(&mut counting, poll)? {
            chunks += 1;
            if chunks > CHUNKS_MOST {
                return Ok(None);
            }
            rows.read(&mut cursor, chunk..ChunkNo(chunk.0 + 1))?;
            counting.count += rows.batch(&cursor).count() as u64;
        }
        self.logs().counters().absorb(logs.counters());
        Ok(Some(counting.count))
    }
}
