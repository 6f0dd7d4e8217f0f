//! Descends the roll-up forest from its roots and yields the chunks that must be scanned, in log order or against it.
//!
//! A visitor looks at each node, answers what it can from the node, and returns the other children, to which the walk descends. So a query
//! opens only the nodes on the edges of its predicate. Chunks past the last summary are yielded as they are. The walk keeps its place
//! between calls, so that several threads can share one.
//!
//! A node that does not verify costs time but no answer: its children are opened one by one, or its chunk is scanned, as if the node did
//! not exist.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use super::cached_nodes::CachedNodes;
use crate::error::{Error, Result};
use crate::format::Node;
use crate::nodes::{NodeId, OpenNode, roots};
use crate::query::poll::Poll;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::types::{Address, ChunkNo, TimeRange};

/// The level of the roll-ups above chunks. The visitor is asked about those below one node together.
const ASKED_LEVEL: u8 = 1;
/// So many of them that may be wanted are fetched before the first of them is opened, because a query may stop there; then all others.
const FETCHED_FIRST: u32 = 8;

/// A query's part in a walk: it answers from nodes and chooses the children to descend to.
pub(crate) trait Visitor {
    /// The arrival times of interest. Nodes outside of them are not opened.
    fn arrivals(&self) -> TimeRange {
        TimeRange::ALL
    }

    /// Whether none of some chunks holds what is wanted, as far as that is known without their nodes, which then are not opened.
    fn is_outside(&mut self, _chunks: Range<ChunkNo>) -> bool {
        false
    }

    /// Whether the query needs nothing further, so that the walk ends.
    fn is_answered(&self) -> bool {
        false
    }

    /// Returns the children to descend to. For a summary, returns nonzero if the chunk must be scanned.
    fn visit(&mut self, node: &Node<'_>) -> Result<u64>;

    /// Whether the next summary may say more than the roll-up above it. A summary without a roll-up is always opened.
    fn opens_summaries(&mut self) -> bool {
        true
    }

    /// Called if the chunk that is yielded next has no summary or its summary was not visited.
    fn unsummarised(&mut self) {}
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// In log order.
    OldestFirst,
    NewestFirst,
}

impl Order {
    /// Removes the next child.
    fn take(self, children: &mut u64) -> u32 {
        let child = match self {
            Order::OldestFirst => children.trailing_zeros(),
            Order::NewestFirst => 63 - children.leading_zeros(),
        };
        *children &= !(1 << child);
        child
    }
}

/// A visited node, and the children that remain.
struct Frame {
    id: NodeId,
    children: u64,
    /// Those that are visited before `children`, and were fetched.
    near: u64,
    /// Those that were asked about with `near` and are outside of what is wanted, as far as they are not passed yet.
    outside: u64,
    /// The number of children that come near together.
    window: u32,
    /// Whether a visitor chose the children. If not, they are all the node can have, and any of them may be a gap.
    chosen: bool,
}

pub(crate) struct Walk {
    reader: CachedNodes,
    logs: Arc<SnapshotLogs>,
    order: Order,
    /// Roots that remain, the next one last.
    roots: Vec<NodeId>,
    roots_are_expected: bool,
    stack: Vec<Frame>,
    /// Chunks past the last summary that remain.
    tail: Range<u64>,
    /// The chunk that the walk starts inside of. It is yielded before all others.
    lead: Option<u64>,
    begun: u64,
}

impl Walk {
    pub fn new(logs: Arc<SnapshotLogs>, order: Order) -> Walk {
        let first = logs.first_chunk().0;
        Walk::over(logs, order, first, None)
    }

    /// Walks oldest first, without the chunks that end at or below `after`. The chunk that `after` lies in is yielded without a visit,
    /// because its nodes also cover the records below `after`.
    pub fn after(logs: Arc<SnapshotLogs>, after: Address) -> Walk {
        let chunk_bytes = u64::from(logs.chunk_bytes());
        let (begin, end) = (logs.first_chunk().0, logs.end_chunk().0);
        let lead = after.0 / chunk_bytes;
        let is_cut = !after.0.is_multiple_of(chunk_bytes) && (begin..end).contains(&lead);
        let first = after.0.div_ceil(chunk_bytes).max(begin);
        Walk::over(logs, Order::OldestFirst, first, is_cut.then_some(lead))
    }

    fn over(logs: Arc<SnapshotLogs>, order: Order, first: u64, lead: Option<u64>) -> Walk {
        let end = logs.end_chunk().0;
        let summarised = logs.summarised_chunks().0;
        let mut roots = roots(first..summarised);
        if order == Order::OldestFirst {
            roots.reverse();
        }
        logs.counters().chunks_begun(logs.chunks());
        let reader = match first > logs.first_chunk().0 {
            true => CachedNodes::passing(Arc::clone(&logs)),
            false => CachedNodes::new(Arc::clone(&logs)),
        };
        Walk {
            reader,
            order,
            roots,
            roots_are_expected: false,
            stack: Vec::new(),
            tail: summarised.max(first)..end,
            lead,
            begun: logs.first_chunk().0,
            logs,
        }
    }

    /// Reads nodes for the caller through the walk's buffers.
    pub fn reader(&mut self) -> &mut CachedNodes {
        &mut self.reader
    }

    /// The next chunk to scan.
    pub fn next(&mut self, visitor: &mut impl Visitor, poll: &Poll<'_>) -> Result<Option<ChunkNo>> {
        while !visitor.is_answered() {
            poll.check()?;
            let found = if let Some(chunk) = self.lead.take() {
                self.visit_bare(chunk, visitor)
            } else if self.order == Order::NewestFirst
                && let Some(chunk) = self.tail.next_back()
            {
                self.visit_bare(chunk, visitor)
            } else if let Some((id, chosen)) = self.next_child(visitor, poll)? {
                self.visit_child(id, chosen, visitor)?
            } else if let Some(id) = self.roots.pop() {
                self.visit_root(id, visitor)?
            } else if let Some(chunk) = self.tail.next() {
                self.visit_bare(chunk, visitor)
            } else {
                break;
            };
            if let Some(chunk) = found {
                return Ok(self.yielded(chunk));
            }
        }
        self.logs.counters().chunks_passed(self.logs.chunks());
        Ok(None)
    }

    /// The next child, and whether a visitor chose it.
    fn next_child(
        &mut self,
        visitor: &mut impl Visitor,
        poll: &Poll<'_>,
    ) -> Result<Option<(NodeId, bool)>> {
        while let Some(mut frame) = self.stack.pop() {
            let approached = match frame.near {
                0 => self.approach(&mut frame, visitor, poll),
                _ => Ok(()),
            };
            let found = match frame.near {
                0 => None,
                _ => Some(self.order.take(&mut frame.near)),
            };
            self.pass(&mut frame, found);
            let child = found.and_then(|child| frame.id.child(child));
            let chosen = frame.chosen;
            if found.is_some() || approached.is_err() {
                self.stack.push(frame);
                approached?;
                return Ok(child.map(|id| (id, chosen)));
            }
        }
        Ok(None)
    }

    /// Chooses the next children, and fetches their nodes if they have roll-ups. About the roll-ups of chunks the visitor is asked before, because it often
    /// knows that nothing below them is wanted, and then they are not opened.
    fn approach(
        &mut self,
        frame: &mut Frame,
        visitor: &mut impl Visitor,
        poll: &Poll<'_>,
    ) -> Result<()> {
        if frame.id.level == ASKED_LEVEL + 1 {
            while frame.children != 0 && frame.near.count_ones() < frame.window {
                poll.check()?;
                let child = self.order.take(&mut frame.children);
                let id = frame.id.child(child);
                match id.is_some_and(|id| visitor.is_outside(id.chunks())) {
                    true => frame.outside |= 1 << child,
                    false => frame.near |= 1 << child,
                }
            }
            frame.window = u64::BITS;
        } else {
            frame.near = std::mem::take(&mut frame.children);
        }
        if frame.id.level > 1 {
            let is_near = |child: &u32| frame.near >> child & 1 == 1;
            let ids = (0..u64::BITS).filter(is_near);
            let ids = ids.filter_map(|child| frame.id.child(child));
            self.reader.expect(ids, TimeRange::ALL);
        }
        Ok(())
    }

    /// Counts the children outside of what is wanted that come before a child, or all of them.
    fn pass(&self, frame: &mut Frame, child: Option<u32>) {
        let passed = match (child, self.order) {
            (None, _) => u64::MAX,
            (Some(child), Order::OldestFirst) => (1 << child) - 1,
            (Some(child), Order::NewestFirst) => u64::MAX << child,
        };
        let count = (frame.outside & passed).count_ones();
        if let Some(child) = frame.id.child(0).filter(|_| count > 0) {
            let chunks = child.chunks();
            let chunks = u64::from(count) * (chunks.end.0 - chunks.start.0);
            self.logs.counters().chunks_outside_zones(chunks);
            frame.outside &= !passed;
        }
    }

    /// A chunk without a node to look at.
    fn visit_bare(&mut self, chunk: u64, visitor: &mut impl Visitor) -> Option<u64> {
        if self.skips(NodeId::summary(ChunkNo(chunk)), visitor) {
            return None;
        }
        visitor.unsummarised();
        Some(chunk)
    }

    /// Whether nothing below a node is wanted, as far as that is known before it is opened.
    fn skips(&self, id: NodeId, visitor: &mut impl Visitor) -> bool {
        let chunks = id.chunks();
        let count = chunks.end.0 - chunks.start.0;
        let is_outside = visitor.is_outside(chunks);
        if is_outside {
            self.logs.counters().chunks_outside_zones(count);
        }
        is_outside
    }

    /// The times of a root come from its entry, because it has no parent.
    fn visit_root(&mut self, id: NodeId, visitor: &mut impl Visitor) -> Result<Option<u64>> {
        if !std::mem::replace(&mut self.roots_are_expected, true) {
            let roots = self.roots.iter().rev().copied();
            (self.reader).expect(iter::once(id).chain(roots), visitor.arrivals());
        }
        let entry = match self.reader.entry(id) {
            Ok(entry) => entry,
            Err(error) => return self.pass_over(id, visitor, error),
        };
        if entry.node_bytes == 0 || !visitor.arrivals().overlaps(entry.arrivals()) {
            return Ok(None);
        }
        // Larger roots cost less to open than what else is known of their chunks, and often their times suffice.
        if id.level <= ASKED_LEVEL && self.skips(id, visitor) {
            return Ok(None);
        }
        let opened = self.reader.open_at(&entry);
        self.visit_opened(id, visitor, opened)
    }

    fn visit_child(
        &mut self,
        id: NodeId,
        chosen: bool,
        visitor: &mut impl Visitor,
    ) -> Result<Option<u64>> {
        if id.level != ASKED_LEVEL && self.skips(id, visitor) {
            return Ok(None);
        }
        if id.level == 0 && chosen && !visitor.opens_summaries() {
            visitor.unsummarised();
            return Ok(Some(id.ordinal));
        }
        let opened = self.reader.open(id);
        self.visit_opened(id, visitor, opened)
    }

    fn visit_opened(
        &mut self,
        id: NodeId,
        visitor: &mut impl Visitor,
        opened: Result<Option<OpenNode>>,
    ) -> Result<Option<u64>> {
        match opened {
            Ok(Some(open)) => {
                let children = visitor.visit(&open.node())?;
                Ok(self.descend(id, children, true))
            }
            Ok(None) => Ok(None),
            Err(error) => self.pass_over(id, visitor, error),
        }
    }

    /// Descends below a node that does not verify.
    fn pass_over(
        &mut self,
        id: NodeId,
        visitor: &mut impl Visitor,
        error: Error,
    ) -> Result<Option<u64>> {
        if !error.is_damage() {
            return Err(error);
        }
        if id.level == 0 {
            visitor.unsummarised();
        }
        Ok(self.descend(id, u64::MAX, false))
    }

    fn descend(&mut self, id: NodeId, children: u64, chosen: bool) -> Option<u64> {
        if children == 0 {
            return None;
        }
        if id.level == 0 {
            return Some(id.ordinal);
        }
        self.stack.push(Frame {
            id,
            children,
            near: 0,
            outside: 0,
            window: FETCHED_FIRST,
            chosen,
        });
        None
    }

    fn yielded(&self, chunk: u64) -> Option<ChunkNo> {
        let passed = match self.order {
            Order::OldestFirst => (chunk + 1).saturating_sub(self.begun),
            Order::NewestFirst => self.logs.end_chunk().0.saturating_sub(chunk),
        };
        self.logs.counters().chunks_passed(passed);
        Some(ChunkNo(chunk))
    }
}
