//! The raw scan (paper §4.3): records of a source within a time range, from the newest to the oldest, with an optional filter.
//!
//! The newest chunk within the range is found by descending the forest from the right; from there the source's chain leads from
//! chunk to chunk, so a rare source costs what it holds. The chain goes by arrival: a source with its own times, in any order, is
//! walked through the forest instead where a range is asked for, which skips what lies outside it; so is one
//! with a filter of fields: summaries, or the zones of units, say where records pass.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::ask::Ask;
use super::batch::{Batch, PayloadRoom, RecordView};
use super::chunk_cursor::ChunkCursor;
use super::source_reader::SourceReader;
use super::unit_pruning::UnitPruning;
use crate::error::Result;
use crate::format::Node;
use crate::nodes::NodeId;
use crate::query::forest::mask::NodeView;
use crate::query::forest::walk::{Order, Visitor, Walk};
use crate::query::poll::Poll;
use crate::query::predicate::{Predicate, Test};
use crate::query::scan_counters::ScanStats;
use crate::query::snapshot::Snapshot;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{Source, TimeKind};
use crate::types::{ChunkNo, SourceId, TimeRange, Timestamp};

/// Passes the records of a source to `each`, newest first, until it breaks.
///
/// # Errors
/// An unknown source, damage, eviction, [`crate::Error::Interrupted`].
pub fn raw_scan(
    snapshot: &Snapshot,
    source: SourceId,
    time: TimeRange,
    poll: &Poll<'_>,
    mut each: impl FnMut(RecordView<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut scan = RawScan::new(snapshot, source, &Predicate::time(time), Ask::all())?;
    let outcome = scan.feed(poll, &mut each);
    snapshot.logs().counters().absorb(scan.logs.counters());
    outcome
}

/// A raw scan that continues where it stopped, one chunk a step.
pub struct RawScan {
    source: Arc<Source>,
    logs: Arc<SnapshotLogs>,
    visitor: Wanted,
    walk: Walk,
    cursor: ChunkCursor,
    next: Next,
    rows: SourceReader,
}

/// The origin of the next chunk.
enum Next {
    /// The forest, below a chunk, until it has led to one with a summary.
    Forest {
        below: ChunkNo,
    },
    Chain(Option<ChunkNo>),
}

/// The source's chain according to a summary.
enum Linked {
    To(Link),
    /// The summary does not verify.
    Damaged,
    /// A chain that led to it is broken.
    Nowhere(&'static str),
}

struct Link {
    previous: Option<ChunkNo>,
    last_arrival: Timestamp,
}

impl RawScan {
    /// Begins a scan of the records that satisfy a predicate. It counts its work apart from other queries of the snapshot.
    ///
    /// # Errors
    /// An unknown source, an index of another one.
    pub fn new(
        snapshot: &Snapshot,
        source: SourceId,
        wanted: &Predicate,
        ask: Ask,
    ) -> Result<RawScan> {
        let test = snapshot.test_of(source, wanted)?;
        let source = snapshot.source_by_id(source)?;
        let logs = snapshot.logs().counted_apart();
        let visitor = Wanted {
            source: source.id,
            arrivals: match source.time {
                TimeKind::Arrival => test.time_hull(),
                TimeKind::Own => TimeRange::ALL,
            },
            units: UnitPruning::new(&logs, &source, test),
        };
        Ok(RawScan {
            walk: Walk::new(Arc::clone(&logs), Order::NewestFirst),
            cursor: ChunkCursor::new(Arc::clone(&logs)),
            next: Next::Forest {
                below: ChunkNo(u64::MAX),
            },
            rows: SourceReader::newest_first(&source, ask, visitor.units.test().clone()),
            visitor,
            source,
            logs,
        })
    }

    /// Returns the records of the next chunk that holds any, the newest first; `None` after the oldest.
    ///
    /// # Errors
    /// Damage, eviction, [`crate::Error::Interrupted`].
    pub fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Batch<'_>>> {
        loop {
            poll.check()?;
            let Some(chunk) = self.next_chunk(poll)? else {
                self.rows.pass();
                return Ok(None);
            };
            self.rows
                .read(&mut self.cursor, chunk..ChunkNo(chunk.0 + 1))?;
            if self.batch().count() > 0 {
                return Ok(Some(self.batch()));
            }
        }
    }

    /// Returns the records of the last step again, empty before any, for callers that take them in several steps.
    pub fn batch(&self) -> Batch<'_> {
        self.rows.batch(&self.cursor)
    }

    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    pub fn stats(&self) -> ScanStats {
        self.logs.counters().stats()
    }

    fn feed(
        &mut self,
        poll: &Poll<'_>,
        each: &mut impl FnMut(RecordView<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut room = PayloadRoom::default();
        while let Some(batch) = self.next(poll)? {
            for record in batch.records(&mut room) {
                if each(record).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn next_chunk(&mut self, poll: &Poll<'_>) -> Result<Option<ChunkNo>> {
        let chunk = match self.next {
            Next::Forest { below } => {
                let mut chunk = self.walk.next(&mut self.visitor, poll)?;
                // The chain has passed these chunks, wherever the walk is.
                while chunk.is_some_and(|chunk| chunk >= below) {
                    chunk = self.walk.next(&mut self.visitor, poll)?;
                }
                if let Some(chunk) = chunk.filter(|chunk| self.begins_chain(*chunk))
                    && let Linked::To(link) = self.link(chunk)?
                {
                    self.next = Next::Chain(link.previous);
                }
                chunk
            }
            Next::Chain(previous) => {
                let first_retained = self.logs.first_chunk();
                match previous.filter(|chunk| *chunk >= first_retained) {
                    None => None,
                    Some(chunk) => {
                        // `Node::decode` ensures that the chain leads back, so this ends.
                        match self.link(chunk)? {
                            Linked::To(link) => {
                                self.next = Next::Chain(link.previous);
                                (link.last_arrival >= self.visitor.arrivals.first).then_some(chunk)
                            }
                            Linked::Damaged => {
                                self.next = Next::Forest { below: chunk };
                                Some(chunk)
                            }
                            Linked::Nowhere(what) => {
                                return Err(self.cursor.broken_chain(chunk, what));
                            }
                        }
                    }
                }
            }
        };
        let (counters, end) = (self.logs.counters(), self.logs.end_chunk().0);
        match chunk {
            Some(chunk) => counters.chunks_passed(end.saturating_sub(chunk.0)),
            None => {
                counters.chunks_passed(self.logs.chunks());
                self.next = Next::Chain(None);
            }
        }
        Ok(chunk)
    }

    fn begins_chain(&self, chunk: ChunkNo) -> bool {
        let test = self.visitor.units.test();
        let is_pruned = match self.source.time {
            TimeKind::Arrival => test.needs_fields(),
            TimeKind::Own => !matches!(test, Test::All),
        };
        !is_pruned && chunk < self.logs.summarised_chunks()
    }

    /// Follows the chain from a chunk.
    fn link(&mut self, chunk: ChunkNo) -> Result<Linked> {
        let open = match self.walk.reader().open(NodeId::summary(chunk)) {
            Ok(Some(open)) => open,
            Ok(None) => return Ok(Linked::Nowhere("leads into a gap")),
            Err(error) if error.is_damage() => return Ok(Linked::Damaged),
            Err(error) => return Err(error),
        };
        let Some(stats) = open.node().source(self.source.id) else {
            return Ok(Linked::Nowhere("leads to a chunk without the source"));
        };
        Ok(Linked::To(Link {
            previous: stats.previous_chunk,
            last_arrival: stats.last_arrival,
        }))
    }
}

/// Selects the children that may hold wanted records of the source.
struct Wanted {
    source: SourceId,
    arrivals: TimeRange,
    /// With the test of these records.
    units: UnitPruning,
}

impl Visitor for Wanted {
    fn arrivals(&self) -> TimeRange {
        self.arrivals
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        let Some(stats) = node.source(self.source) else {
            return Ok(0);
        };
        let view = NodeView { node: *node, stats };
        Ok(self.units.test().masks(&view).may)
    }

    fn is_outside(&mut self, chunks: Range<ChunkNo>) -> bool {
        self.units.is_outside(chunks)
    }
}
