//! One thread's part of a scan: the rows of its chunks. If a chunk is in no unit and its summary names records, only these are read.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ask::Ask;
use super::batch::Batch;
use super::chunk_cursor::ChunkCursor;
use super::shared_scan::Scan;
use super::source_reader::SourceReader;
use crate::error::Result;
use crate::nodes::NodeId;
use crate::query::forest::cached_nodes::CachedNodes;
use crate::query::forest::mask::NodeView;
use crate::query::forest::summary_benefit::SummaryBenefit;
use crate::query::poll::Poll;
use crate::types::{ChunkNo, TimeRange};

/// Reads the chunks of a scan on one thread.
pub struct ChunkReader {
    scan: Arc<Scan>,
    cursor: ChunkCursor,
    rows: SourceReader,
    nodes: CachedNodes,
    benefit: SummaryBenefit,
    /// Chunks that are read next, with the hints of their summaries.
    ahead: VecDeque<(ChunkNo, Hint)>,
}

/// The hint of a chunk's summary about its rows.
enum Hint {
    /// There are none.
    Nothing,
    /// They are among the records at these offsets. `span` is the arrival of the chunk's first and last record.
    Records { offsets: Vec<u32>, span: TimeRange },
    /// The chunk must be read whole.
    WholeChunk,
}

impl Scan {
    /// Creates a reader for one thread and the parts of the rows in `ask`.
    pub fn reader(self: &Arc<Self>, ask: Ask) -> ChunkReader {
        ChunkReader {
            cursor: ChunkCursor::new(Arc::clone(self.logs())),
            rows: self.rows(ask),
            nodes: CachedNodes::new(Arc::clone(self.logs())),
            scan: Arc::clone(self),
            benefit: SummaryBenefit::default(),
            ahead: VecDeque::new(),
        }
    }
}

/// Reading more records one by one costs more than reading their chunk.
const RECORDS_MOST: usize = 8;

impl ChunkReader {
    /// Takes chunks from [`Scan::next`] to read next in this order, and prefetches all of them from the disk at once.
    ///
    /// # Errors
    /// Damage in the index logs, and [`crate::Error::Interrupted`].
    pub fn take(&mut self, chunks: impl Iterator<Item = ChunkNo>, poll: &Poll<'_>) -> Result<()> {
        let before = self.ahead.len();
        for chunk in chunks {
            poll.check()?;
            let hint = self.look(chunk)?;
            self.ahead.push_back((chunk, hint));
        }
        let held = self.ahead.range(before..);
        let held = held.filter(|(_, hint)| !matches!(hint, Hint::Nothing));
        self.rows
            .expect(&self.cursor, held.map(|(chunk, _)| *chunk));
        Ok(())
    }

    /// Reads the next chunk, or several at once. Returns false when all are read, and then the last batch stays.
    ///
    /// # Errors
    /// A chunk that does not verify, or that retention removed in the meantime.
    pub fn read_next(&mut self) -> Result<bool> {
        let Some((chunk, hint)) = self.ahead.pop_front() else {
            return Ok(false);
        };
        if matches!(hint, Hint::Nothing) {
            self.rows.pass();
            return Ok(true);
        }
        let (cursor, rows) = (&mut self.cursor, &mut self.rows);
        let wanted = self.ahead.iter();
        let wanted = wanted.take_while(|(_, hint)| !matches!(hint, Hint::Nothing));
        let chunks = chunk..chunk.row_end(wanted.map(|(chunk, _)| *chunk));
        // One row of a row group in a unit costs as much as all.
        if let Some(end) = rows.read_unit(cursor, chunks.clone())? {
            self.ahead.drain(..(end.0 - chunk.0 - 1) as usize);
            return Ok(true);
        }
        if let Hint::Records { offsets, span } = &hint
            && rows.read_records(cursor, chunk, offsets, *span)?
        {
            return Ok(true);
        }
        rows.read_chunk(cursor, chunks)?;
        Ok(true)
    }

    /// Returns the rows that were read last; empty before the first.
    pub fn batch(&self) -> Batch<'_> {
        self.rows.batch(&self.cursor)
    }

    /// Reads the rows of a chunk from [`Scan::next`]. No other chunk may be waiting.
    ///
    /// # Errors
    /// As [`ChunkReader::take`] and [`ChunkReader::read_next`].
    pub fn read(&mut self, chunk: ChunkNo) -> Result<Batch<'_>> {
        self.ahead.clear();
        let hint = self.look(chunk)?;
        self.ahead.push_back((chunk, hint));
        self.read_next()?;
        Ok(self.batch())
    }

    /// Looks at the chunk's summary, if it may hold a hint.
    fn look(&mut self, chunk: ChunkNo) -> Result<Hint> {
        let ChunkReader {
            scan,
            nodes,
            benefit,
            ..
        } = self;
        let test = scan.prune_test();
        let may_help = chunk < scan.logs().summarised_chunks() && test.needs_values();
        if !may_help || !benefit.opens_next() {
            return Ok(Hint::WholeChunk);
        }
        let open = match nodes.open(NodeId::summary(chunk)) {
            Ok(Some(open)) => open,
            Ok(None) => return Ok(Hint::Nothing),
            Err(error) if error.is_damage() => return Ok(Hint::WholeChunk),
            Err(error) => return Err(error),
        };
        let node = open.node();
        let Some(stats) = node.source(scan.source().id) else {
            benefit.answered();
            return Ok(Hint::Nothing);
        };
        let view = NodeView { node, stats };
        if test.masks(&view).may == 0 {
            benefit.answered();
            return Ok(Hint::Nothing);
        }
        let Some(mut offsets) = test.offsets(&view) else {
            return Ok(Hint::WholeChunk);
        };
        benefit.answered();
        offsets.sort_unstable();
        offsets.dedup();
        if offsets.len() > RECORDS_MOST {
            return Ok(Hint::WholeChunk);
        }
        let span = TimeRange {
            first: node.first_arrival(),
            last: node.last_arrival(),
        };
        Ok(Hint::Records { offsets, span })
    }
}
