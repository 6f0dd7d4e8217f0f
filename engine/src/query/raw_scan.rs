//! The raw scan (paper §4.3): records of a source within a time range, from the newest to the oldest.
//!
//! The newest chunk within the range is found by descending the forest from the right; from there the source's chain leads from
//! chunk to chunk, so a rare source costs what it holds. The chain goes by arrival: a source with its own times, in any order, is
//! walked through the forest instead, which skips what lies outside the range.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::cursor::{ChunkCursor, RecordView, Row};
use super::forest::NodeId;
use super::interrupt::Poll;
use super::mask::NodeView;
use super::node_reader::NodeReader;
use super::predicate::{Predicate, Test};
use super::snapshot::Snapshot;
use super::walk::{Order, Visitor, Walk};
use crate::error::Result;
use crate::format::Node;
use crate::schema::{Source, TimeKind};
use crate::types::{ChunkNo, SourceId, TimeRange};

/// Gives `each` the records of a source, newest first, until it breaks.
///
/// # Errors
/// An unknown source, damage, eviction, [`crate::Error::Interrupted`].
pub fn raw_scan(
    snapshot: &Snapshot,
    source: SourceId,
    time: TimeRange,
    poll: &Poll<'_>,
    each: impl FnMut(RecordView<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let source = snapshot.source_by_id(source)?;
    let unknown = |index| snapshot.value_of(source.id, index);
    let mut visitor = InRange {
        source: source.id,
        arrivals: match source.time {
            TimeKind::Arrival => time,
            TimeKind::Own => TimeRange::ALL,
        },
        test: Test::prepare(&Predicate::Time(time), &unknown)?,
    };
    let logs = snapshot.logs();
    let mut walk = Walk::new(Arc::clone(logs), Order::NewestFirst);
    let mut backwards = Backwards {
        cursor: ChunkCursor::new(Arc::clone(logs)),
        rows: Vec::new(),
        source: &source,
        time,
        each,
    };
    let chained = source.time == TimeKind::Arrival;
    while let Some(chunk) = walk.next(&mut visitor, poll)? {
        if backwards.chunk(chunk)?.is_break() {
            return Ok(());
        }
        if chained && chunk < logs.summarised_chunks() {
            return follow_chain(&mut backwards, walk.reader(), chunk, poll);
        }
    }
    Ok(())
}

/// Goes on from a chunk that was scanned to the earlier ones of its source.
fn follow_chain<F: FnMut(RecordView<'_>) -> ControlFlow<()>>(
    backwards: &mut Backwards<'_, F>,
    nodes: &mut NodeReader,
    from: ChunkNo,
    poll: &Poll<'_>,
) -> Result<()> {
    let mut chunk = from;
    let first_retained = backwards.cursor.first_chunk();
    loop {
        poll.check()?;
        // `Node::decode` holds that the chain leads back, so this ends.
        let Some(open) = nodes.open(NodeId::summary(chunk))? else {
            return Err(backwards.cursor.broken_chain(chunk, "leads into a gap"));
        };
        let Some(stats) = open.node().source(backwards.source.id) else {
            let what = "leads to a chunk without the source";
            return Err(backwards.cursor.broken_chain(chunk, what));
        };
        if stats.last_arrival < backwards.time.first {
            return Ok(());
        }
        if chunk != from && backwards.chunk(chunk)?.is_break() {
            return Ok(());
        }
        match stats.previous_chunk {
            Some(previous) if previous >= first_retained => chunk = previous,
            _ => return Ok(()),
        }
    }
}

/// Which children hold records of the source within the range.
struct InRange {
    source: SourceId,
    arrivals: TimeRange,
    test: Test,
}

impl Visitor for InRange {
    fn arrivals(&self) -> TimeRange {
        self.arrivals
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        let Some(stats) = node.source(self.source) else {
            return Ok(0);
        };
        Ok(self.test.masks(&NodeView { node: *node, stats }).may)
    }
}

struct Backwards<'a, F> {
    cursor: ChunkCursor,
    rows: Vec<Row>,
    source: &'a Source,
    time: TimeRange,
    each: F,
}

impl<F: FnMut(RecordView<'_>) -> ControlFlow<()>> Backwards<'_, F> {
    /// Lengths lead forward only, so a chunk's records are found from its start and given in reverse.
    fn chunk(&mut self, chunk: ChunkNo) -> Result<ControlFlow<()>> {
        let Backwards {
            cursor,
            rows,
            source,
            time,
            each,
        } = self;
        rows.clear();
        cursor.load(chunk)?;
        let _ = cursor.for_each(source, |_, row| {
            if time.contains(row.ts) {
                rows.push(row);
            }
            ControlFlow::Continue(())
        })?;
        let layout = source.layout_at(cursor.base());
        for row in rows.iter().rev() {
            let view = RecordView {
                ts: row.ts,
                address: row.address(cursor.base()),
                payload: row.payload(cursor.bytes()),
                layout,
            };
            if each(view).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
