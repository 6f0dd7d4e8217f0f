//! Descends the roll-up forest from its roots and yields the chunks that must be scanned, in log order or against it.
//!
//! A visitor looks at each node and says which children to go on to; what it answers from the node it leaves out. So a query
//! opens the nodes on the edges of its predicate and no others. Chunks past the last summary are yielded as they are. The walk
//! holds its place between calls, which lets several threads share one.
//!
//! A node that does not verify costs time and no answer: its children are opened one by one, or its chunk is scanned, as if it were not there.

use std::sync::Arc;

use super::cached_nodes::CachedNodes;
use crate::error::{Error, Result};
use crate::format::Node;
use crate::nodes::{NodeId, OpenNode, roots};
use crate::query::poll::Poll;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::types::{Address, ChunkNo, TimeRange};

/// What a query makes of the nodes that a walk opens.
pub(crate) trait Visitor {
    /// Arrival times outside which nothing is of interest; nodes apart from them are not opened.
    fn arrivals(&self) -> TimeRange {
        TimeRange::ALL
    }

    /// Whether nothing further is wanted: the walk ends.
    fn is_answered(&self) -> bool {
        false
    }

    /// The children to go on to. Of a summary: not 0 if the chunk must be scanned.
    fn visit(&mut self, node: &Node<'_>) -> Result<u64>;

    /// Whether the next summary may say more than the roll-up above it; those that have none above are opened in any case.
    fn opens_summaries(&mut self) -> bool {
        true
    }

    /// The chunk that is yielded next has no summary that was visited.
    fn unsummarised(&mut self) {}
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// As the log was written.
    OldestFirst,
    NewestFirst,
}

/// A node that was visited, and the children still to go on to.
struct Frame {
    id: NodeId,
    children: u64,
    /// Whether a visitor chose the children; else they are all there are, and any of them may be a gap.
    chosen: bool,
}

pub(crate) struct Walk {
    reader: CachedNodes,
    logs: Arc<SnapshotLogs>,
    order: Order,
    /// Roots still to be visited, the next one last.
    roots: Vec<NodeId>,
    stack: Vec<Frame>,
    /// Chunks past the last summary, still to be yielded.
    tail: std::ops::Range<u64>,
    /// The chunk that the walk starts inside of, still to be yielded before all others.
    lead: Option<u64>,
    begun: u64,
}

impl Walk {
    pub fn new(logs: Arc<SnapshotLogs>, order: Order) -> Walk {
        let first = logs.first_chunk().0;
        Walk::over(logs, order, first, None)
    }

    /// Oldest first, without the chunks that end at or below `after`. The chunk that reaches past it is yielded unseen, for its nodes speak of
    /// the records below `after` too.
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
            if let Some(chunk) = self.lead.take() {
                visitor.unsummarised();
                return Ok(self.yielded(chunk));
            }
            if self.order == Order::NewestFirst
                && let Some(chunk) = self.tail.next_back()
            {
                visitor.unsummarised();
                return Ok(self.yielded(chunk));
            }
            if let Some((id, chosen)) = self.next_child() {
                if id.level == 0 && chosen && !visitor.opens_summaries() {
                    visitor.unsummarised();
                    return Ok(self.yielded(id.ordinal));
                }
                if let Some(chunk) = self.visit(id, visitor)? {
                    return Ok(self.yielded(chunk));
                }
            } else if let Some(id) = self.roots.pop() {
                if let Some(chunk) = self.visit_root(id, visitor)? {
                    return Ok(self.yielded(chunk));
                }
            } else if let Some(chunk) = self.tail.next() {
                visitor.unsummarised();
                return Ok(self.yielded(chunk));
            } else {
                break;
            }
        }
        self.logs.counters().chunks_passed(self.logs.chunks());
        Ok(None)
    }

    /// With it, whether a visitor chose it.
    fn next_child(&mut self) -> Option<(NodeId, bool)> {
        while let Some(frame) = self.stack.last_mut() {
            if frame.children != 0 {
                let child = match self.order {
                    Order::OldestFirst => frame.children.trailing_zeros(),
                    Order::NewestFirst => 63 - frame.children.leading_zeros(),
                };
                frame.children &= !(1 << child);
                return frame.id.child(child).map(|id| (id, frame.chosen));
            }
            self.stack.pop();
        }
        None
    }

    /// A root has no parent that says its times: its entry does.
    fn visit_root(&mut self, id: NodeId, visitor: &mut impl Visitor) -> Result<Option<u64>> {
        let entry = match self.reader.entry(id) {
            Ok(entry) => entry,
            Err(error) => return self.pass_over(id, visitor, error),
        };
        let arrivals = TimeRange {
            first: entry.first_arrival,
            last: entry.last_arrival,
        };
        if entry.node_bytes == 0 || !visitor.arrivals().overlaps(arrivals) {
            return Ok(None);
        }
        let opened = self.reader.open_at(&entry);
        self.visit_opened(id, visitor, opened)
    }

    fn visit(&mut self, id: NodeId, visitor: &mut impl Visitor) -> Result<Option<u64>> {
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

    /// Goes on below a node that does not verify.
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
