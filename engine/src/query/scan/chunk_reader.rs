//! One thread's part of a scan: the rows of a chunk, from the records that its summary names where it names them, else from all of it.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use super::chunk_cursor::{ChunkCursor, Numbers, Reads, RecordView, Row};
use super::runs::rows_of_run;
use super::shared_scan::Scan;
use crate::error::Result;
use crate::format::record_bytes;
use crate::nodes::NodeId;
use crate::query::forest::cached_nodes::CachedNodes;
use crate::query::forest::mask::NodeView;
use crate::query::forest::summary_benefit::SummaryBenefit;
use crate::query::poll::Poll;
use crate::schema::Layout;
use crate::types::{Address, ChunkNo, TimeRange};

/// Reads the chunks of a scan on one thread.
pub struct ChunkReader {
    scan: Arc<Scan>,
    cursor: ChunkCursor,
    nodes: CachedNodes,
    rows: Vec<Row>,
    /// From one row's payload to the next, where that is the same for all.
    stride: Option<usize>,
    benefit: SummaryBenefit,
    reads: Reads,
    /// The rows' numbers can be had column by column.
    has_numbers: bool,
    /// What the summaries of the chunks say that are read next.
    ahead: VecDeque<(ChunkNo, Hint)>,
}

/// What the summary of a chunk says of the rows in it.
enum Hint {
    /// There are none.
    Nothing,
    /// They are among the records at these offsets. `span` is the arrival of the chunk's first and last record.
    Records { offsets: Vec<u32>, span: TimeRange },
    /// The chunk must be read whole.
    WholeChunk,
}

/// The rows of a chunk, in log order.
#[derive(Copy, Clone)]
pub struct Rows<'a> {
    /// The chunk's address.
    pub base: Address,
    /// The chunk. Where only some records were read, what lies between them is anything.
    pub bytes: &'a [u8],
    pub layout: &'a Layout,
    pub rows: &'a [Row],
    /// From one row's payload to the next, where that and the rows' length are the same for all.
    pub stride: Option<usize>,
    /// The rows' numbers column by column, where they stand so; of those, payloads hold anything.
    pub numbers: Option<Numbers<'a>>,
}

impl<'a> Rows<'a> {
    pub(super) fn records(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a> {
        let found = *self;
        found.rows.iter().map(move |row| RecordView {
            ts: row.ts,
            address: row.address(found.base),
            payload: row.payload(found.bytes),
            layout: found.layout,
        })
    }
}

impl Scan {
    /// A reader for one thread.
    pub fn reader(self: &Arc<Self>) -> ChunkReader {
        ChunkReader::new(Arc::clone(self))
    }
}

/// Reading more records than this one by one costs more than their chunk.
const RECORDS_MOST: usize = 8;

impl ChunkReader {
    fn new(scan: Arc<Scan>) -> ChunkReader {
        ChunkReader {
            cursor: ChunkCursor::new(Arc::clone(scan.logs())),
            nodes: CachedNodes::new(Arc::clone(scan.logs())),
            scan,
            rows: Vec::new(),
            stride: None,
            benefit: SummaryBenefit::default(),
            reads: Reads::ALL,
            has_numbers: false,
            ahead: VecDeque::new(),
        }
    }

    /// Says what of the rows is read, besides their times, before the first is. What else their payloads hold is anything.
    pub fn read_only(&mut self, reads: Reads) {
        // What a filter reads must be there too; those of a query's own are few.
        if !self.scan.exact().needs_values() && !self.scan.filters_by_index() {
            self.reads = reads;
        }
    }

    /// Says which chunks are read next, in this order, so that what must come from the disk is fetched all at once.
    ///
    /// # Errors
    /// Damage in the index logs, and [`crate::Error::Interrupted`].
    pub fn expect(&mut self, chunks: impl Iterator<Item = ChunkNo>, poll: &Poll<'_>) -> Result<()> {
        self.ahead.clear();
        for chunk in chunks {
            poll.check()?;
            let hint = self.look(chunk)?;
            self.ahead.push_back((chunk, hint));
        }
        let held = self.ahead.iter();
        let held = held.filter(|(_, hint)| !matches!(hint, Hint::Nothing));
        self.cursor.expect(held.map(|(chunk, _)| *chunk));
        Ok(())
    }

    /// The rows of a chunk that [`Scan::next`] handed out.
    ///
    /// # Errors
    /// A chunk that does not verify, or that retention removed meanwhile.
    pub fn read(&mut self, chunk: ChunkNo) -> Result<Rows<'_>> {
        self.read_of(chunk, ChunkNo(chunk.0.saturating_add(1)))
    }

    /// The same where all chunks from it to `end` were handed out and are read in a row: several may be read at once.
    ///
    /// # Errors
    /// As [`ChunkReader::read`].
    pub fn read_of(&mut self, chunk: ChunkNo, end: ChunkNo) -> Result<Rows<'_>> {
        self.rows.clear();
        self.stride = None;
        self.has_numbers = false;
        let hint = match self.ahead.pop_front() {
            Some((expected, hint)) if expected == chunk => hint,
            _ => self.look(chunk)?,
        };
        let is_read = match &hint {
            Hint::Nothing => {
                self.cursor.enter(chunk);
                true
            }
            // Of a row group in columns, one row costs as much as all.
            _ if self.read_columns(chunk) => true,
            Hint::Records { offsets, span } => self.read_records(chunk, offsets, *span)?,
            Hint::WholeChunk => false,
        };
        if !is_read {
            self.read_whole(chunk, end)?;
        }
        Ok(self.rows())
    }

    /// The rows of the last [`ChunkReader::read`] once more, none before any: for those who take them in several steps.
    pub fn rows(&self) -> Rows<'_> {
        let base = self.cursor.base();
        Rows {
            base,
            bytes: self.cursor.bytes(),
            layout: self.scan.source().layout_at(base),
            rows: &self.rows,
            stride: self.stride,
            numbers: self.cursor.numbers().filter(|_| self.has_numbers),
        }
    }

    /// Takes the rows straight from columns, where the chunk stands in them.
    fn read_columns(&mut self, chunk: ChunkNo) -> bool {
        let ChunkReader {
            scan,
            cursor,
            rows,
            reads,
            ..
        } = self;
        if !cursor.load_columns(chunk, scan.source(), reads, false) {
            return false;
        }
        rows.extend(cursor.column_rows());
        self.has_numbers = scan.takes_all(rows, cursor.base());
        if !self.has_numbers {
            // Which rows go may depend on more than is read; and columns do not say which are left.
            if !reads.is_all() {
                rows.clear();
                if !cursor.load_columns(chunk, scan.source(), reads, true) {
                    return false;
                }
                rows.extend(cursor.column_rows());
            }
            scan.filter(rows, cursor);
        }
        self.stride = stride_of(&self.rows);
        true
    }

    fn read_whole(&mut self, chunk: ChunkNo, end: ChunkNo) -> Result<()> {
        let ChunkReader {
            scan,
            cursor,
            rows,
            stride,
            ..
        } = self;
        cursor.load_of(chunk, end)?;
        let layout = scan.source().layout_at(cursor.base());
        match cursor.runs(scan.source())? {
            Some((bytes, runs)) => {
                for run in runs {
                    rows_of_run(layout, run, bytes, rows);
                }
                if let [run] = runs {
                    *stride = Some(run.entry_bytes());
                }
            }
            None => {
                let _ = cursor.for_each(scan.source(), |_, row| {
                    rows.push(row);
                    ControlFlow::Continue(())
                })?;
            }
        }
        let all = rows.len();
        scan.filter(rows, cursor);
        if rows.len() < all {
            *stride = None;
        }
        Ok(())
    }

    /// Looks at the chunk's summary, where that may say something.
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

    /// Reads the records that the chunk's summary names. False: the chunk must be read whole.
    fn read_records(&mut self, chunk: ChunkNo, offsets: &[u32], span: TimeRange) -> Result<bool> {
        let ChunkReader {
            scan, cursor, rows, ..
        } = self;
        if !cursor.load_records(scan.source(), chunk, offsets, span, rows)? {
            rows.clear();
            return Ok(false);
        }
        scan.filter(rows, cursor);
        Ok(true)
    }
}

/// From one row to the next, where that and their lengths are the same for all.
fn stride_of(rows: &[Row]) -> Option<usize> {
    let (first, last) = (rows.first()?, rows.last()?);
    let stride = record_bytes(first.length.into());
    let is_dense = (last.start - first.start) as usize == (rows.len() - 1) * stride;
    (is_dense && rows.iter().all(|row| row.length == first.length)).then_some(stride)
}
