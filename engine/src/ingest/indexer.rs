//! Appends summaries, the roll-ups that they complete, and the time entries of both.
//!
//! Every chunk of the record log passes here once, in order, as a summary or as a gap, so that the entry of any node stands where
//! `entry_of` says. Pointers only lead down: entries name nodes that stand below them, and nodes name chunks that are sealed.

use crate::error::Result;
use crate::format::{
    FANOUT, NodeSummary, TIME_ENTRY_BYTES, TimeEntry, encode_node, entries_before,
};
use crate::log::Logs;
use crate::proven::at_mut;
use crate::schema::Catalog;
use crate::types::{Address, ChunkNo, IndexId, LogKind, SourceId, Timestamp};

use super::rollup::Merger;

/// The reason why a chunk has no summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Its bytes were lost with staging, or its address never held any.
    Gap,
    /// Its bytes do not verify.
    Damaged,
}

/// The open roll-ups, and the number of the next chunk.
pub struct Indexer {
    uuid: [u8; 16],
    chunk_bytes: u32,
    next_chunk: ChunkNo,
    last_arrival: Timestamp,
    /// The open roll-up of level i + 1.
    open: Vec<NodeSummary>,
    merger: Merger,
    buffer: Vec<u8>,
    /// The length of the longest chunk's node.
    longest_bytes: u64,
    /// The bound of the bytes of a chunk's nodes, for the chunk whose room was last looked for.
    bound: Option<(ChunkNo, u64)>,
    /// Indexes by closures that ended with an earlier writer. Chunks that were indexed since then do not have them, so no roll-up answers
    /// for them.
    ended: Vec<IndexId>,
}

impl Indexer {
    /// Begins at chunk `next_chunk`. `open` are the roll-ups that it continues, from level 1 up.
    pub fn new(
        uuid: [u8; 16],
        chunk_bytes: u32,
        next_chunk: ChunkNo,
        open: Vec<NodeSummary>,
        last_arrival: Timestamp,
        ended: Vec<IndexId>,
    ) -> Self {
        let (merger, buffer) = (Merger::default(), Vec::new());
        Self {
            uuid,
            chunk_bytes,
            next_chunk,
            last_arrival,
            open,
            merger,
            buffer,
            longest_bytes: 0,
            bound: None,
            ended,
        }
    }

    pub fn next_chunk(&self) -> ChunkNo {
        self.next_chunk
    }

    /// A bound of the bytes of the next chunk's node and of the roll-ups that the chunk completes. A node that is more than twice as long as each before it may
    /// exceed it. A full log asks for the same chunk again and again, so the bound is held.
    pub fn next_nodes_bytes(&mut self) -> u64 {
        match self.bound {
            Some((chunk, bytes)) if chunk == self.next_chunk => bytes,
            _ => {
                let bytes = self.measure_nodes();
                self.bound.insert((self.next_chunk, bytes)).1
            }
        }
    }

    fn measure_nodes(&mut self) -> u64 {
        let longest = self.longest_bytes.max(self.chunk_bytes.into());
        // A roll-up takes up the node below it.
        let mut node = 2 * longest;
        let mut nodes = node;
        let mut ordinal = self.next_chunk.0;
        for open in &self.open {
            if ordinal % FANOUT != FANOUT - 1 {
                break;
            }
            self.buffer.clear();
            encode_node(
                &self.uuid,
                Address::ZERO,
                open,
                |_, _| true,
                &mut self.buffer,
            );
            node += 2 * self.buffer.len() as u64;
            nodes += node;
            ordinal /= FANOUT;
        }
        nodes
    }

    /// Indexes the next chunk.
    pub fn add(&mut self, logs: &mut Logs, catalog: &Catalog, summary: &NodeSummary) -> Result<()> {
        assert_eq!(summary.first_chunk, self.next_chunk);
        self.put_node(logs, catalog, summary)?;
        self.roll_up(logs, catalog, Some(summary))
    }

    /// Passes over the next chunk because it has no summary.
    pub fn add_missing(&mut self, logs: &mut Logs, catalog: &Catalog, why: Missing) -> Result<()> {
        self.put_missing(logs, 0, self.next_chunk, why)?;
        self.roll_up(logs, catalog, None)
    }

    /// Adds a chunk's summary, or its absence, to the roll-ups above it and appends those that are complete.
    fn roll_up(
        &mut self,
        logs: &mut Logs,
        catalog: &Catalog,
        summary: Option<&NodeSummary>,
    ) -> Result<()> {
        let mut open = std::mem::take(&mut self.open);
        let rolled_up = self.roll_up_into(&mut open, logs, catalog, summary);
        self.open = open;
        rolled_up?;
        self.next_chunk = ChunkNo(self.next_chunk.0 + 1);
        assert_eq!(
            logs.end(LogKind::Times).0,
            entries_before(self.next_chunk.0) * TIME_ENTRY_BYTES as u64,
            "the timestamp index holds one entry a node"
        );
        Ok(())
    }

    fn roll_up_into(
        &mut self,
        open: &mut Vec<NodeSummary>,
        logs: &mut Logs,
        catalog: &Catalog,
        summary: Option<&NodeSummary>,
    ) -> Result<()> {
        let mut ordinal = self.next_chunk.0;
        for level in 1u8.. {
            let below_count = usize::from(level) - 1;
            if open.len() == below_count {
                open.push(NodeSummary::new(level));
            }
            let (below, from_here) = open.split_at_mut(below_count);
            let rollup = at_mut(from_here, 0);
            if ordinal.is_multiple_of(FANOUT) {
                rollup.clear(ChunkNo(ordinal * FANOUT.pow(level.into()) / FANOUT));
            }
            let child = below.last().map_or(summary, |below| {
                Some(below).filter(|node| !node.sources.is_empty())
            });
            match child {
                Some(child) => self
                    .merger
                    .add_child(rollup, (ordinal % FANOUT) as u8, child),
                None => self.merger.pass_child(rollup),
            }
            if ordinal % FANOUT != FANOUT - 1 {
                break;
            }
            if rollup.sources.is_empty() {
                self.put_missing(logs, level, rollup.first_chunk, Missing::Gap)?;
            } else {
                self.put_node(logs, catalog, rollup)?;
            }
            ordinal /= FANOUT;
        }
        Ok(())
    }

    fn put_node(&mut self, logs: &mut Logs, catalog: &Catalog, node: &NodeSummary) -> Result<()> {
        let span_bytes = FANOUT.pow(node.level.into()) * u64::from(self.chunk_bytes);
        let from = node.first_chunk.address(self.chunk_bytes);
        let covers = |source: SourceId, index: IndexId| {
            !self.ended.contains(&index) && covers(catalog, source, index, from, from + span_bytes)
        };
        let address = logs.end(LogKind::Chunks);
        self.buffer.clear();
        encode_node(&self.uuid, address, node, covers, &mut self.buffer);
        logs.append(LogKind::Chunks, &self.buffer)?;
        if node.level == 0 {
            self.longest_bytes = self.longest_bytes.max(self.buffer.len() as u64);
        }
        self.last_arrival = self.last_arrival.max(node.last_arrival);
        let entry = TimeEntry {
            level: node.level,
            first_chunk: node.first_chunk,
            node: address,
            node_bytes: self.buffer.len() as u32,
            damaged: false,
            first_arrival: node.first_arrival,
            last_arrival: node.last_arrival,
        };
        self.put_entry(logs, &entry)
    }

    fn put_missing(
        &mut self,
        logs: &mut Logs,
        level: u8,
        first_chunk: ChunkNo,
        why: Missing,
    ) -> Result<()> {
        let entry = TimeEntry {
            level,
            first_chunk,
            node: logs.end(LogKind::Chunks),
            node_bytes: 0,
            damaged: why == Missing::Damaged,
            first_arrival: self.last_arrival,
            last_arrival: self.last_arrival,
        };
        self.put_entry(logs, &entry)
    }

    fn put_entry(&self, logs: &mut Logs, entry: &TimeEntry) -> Result<()> {
        let bytes = entry.encode(&self.uuid, logs.end(LogKind::Times));
        logs.append(LogKind::Times, &bytes)?;
        Ok(())
    }
}

/// Whether an index of a source covers every record of `[from, to)`.
pub fn covers(
    catalog: &Catalog,
    source: SourceId,
    index: IndexId,
    from: Address,
    to: Address,
) -> bool {
    let Some(source) = catalog.source(source) else {
        return false;
    };
    source
        .indexes
        .iter()
        .any(|known| known.id == index && known.covers(from, to))
}
