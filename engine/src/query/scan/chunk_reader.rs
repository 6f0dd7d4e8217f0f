//! One thread's part of a scan: the rows of a chunk, from the records that its summary names where it names them, else from all of it.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::chunk_cursor::{ChunkCursor, RecordView, Row};
use super::column_rows::Reads;
use super::columns::Columns;
use super::runs::rows_of_run;
use super::shared_scan::Scan;
use crate::error::Result;
use crate::format::record_bytes;
use crate::memory;
use crate::nodes::NodeId;
use crate::query::forest::cached_nodes::CachedNodes;
use crate::query::forest::mask::NodeView;
use crate::query::forest::summary_benefit::SummaryBenefit;
use crate::query::poll::Poll;
use crate::schema::Layout;
use crate::types::{Address, ChunkNo, LogKind, TimeRange};

/// Reads the chunks of a scan on one thread.
pub struct ChunkReader {
    scan: Arc<Scan>,
    cursor: ChunkCursor,
    nodes: CachedNodes,
    benefit: SummaryBenefit,
    reads: Reads,
    /// The fields that are read of rows that stand in their places: those that decide which are left out too.
    placed: Option<Vec<usize>>,
    /// Chunks that are read next, and what their summaries say of them.
    ahead: VecDeque<(ChunkNo, Hint)>,
    found: Found,
    rows: Vec<Row>,
}

/// How the rows of a chunk can be had.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Form {
    /// They were taken column by column.
    Columns,
    /// From columns to their places, perhaps.
    Places,
    /// From the chunk alone.
    Chunk,
}

/// What was read last.
enum Found {
    /// `rows`, and from one row's payload to the next, where that and the rows' length are the same for all.
    Rows { stride: Option<usize> },
    /// These of the cursor's.
    Columns(Range<usize>),
}

/// Rows in log order, as they were read.
#[derive(Copy, Clone)]
pub enum Batch<'a> {
    Rows(Rows<'a>),
    Columns(Columns<'a>),
}

impl Batch<'_> {
    pub fn count(&self) -> usize {
        match self {
            Batch::Rows(rows) => rows.rows.len(),
            Batch::Columns(columns) => columns.count(),
        }
    }
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
}

impl<'a> Rows<'a> {
    pub(in crate::query) fn records(&self) -> impl Iterator<Item = RecordView<'a>> + use<'a> {
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
            benefit: SummaryBenefit::default(),
            reads: Reads::ALL,
            placed: None,
            ahead: VecDeque::new(),
            found: Found::Rows { stride: None },
            rows: Vec::new(),
        }
    }

    /// Says what of the rows is read, before the first is. What else their payloads hold is anything.
    pub fn read_only(&mut self, reads: Reads) {
        let exact = self.scan.exact();
        let mut of_test = Vec::new();
        if exact.each_field(&mut |field| of_test.push(field)) {
            self.placed = reads.fields.clone();
            self.placed
                .iter_mut()
                .for_each(|placed| placed.append(&mut of_test));
            self.reads = reads;
            // The rows are cut by their times, whether these are shown or not.
            self.reads.times |= exact.needs_times();
        }
    }

    /// Takes chunks that [`Scan::next`] handed out, to be read next in this order: what must come from the disk is fetched all at once.
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
        let (_, test) = self.scan.column_filter();
        let columns = self.reads.columns(test);
        let columns_of = columns.map(|reads| (&**self.scan.source(), reads));
        self.cursor
            .expect(held.map(|(chunk, _)| *chunk), columns_of);
        Ok(())
    }

    /// Reads the next chunk, or several at once; false where all are read, and the last batch stays.
    ///
    /// # Errors
    /// A chunk that does not verify, or that retention removed meanwhile.
    pub fn read_next(&mut self) -> Result<bool> {
        let Some((chunk, hint)) = self.ahead.pop_front() else {
            return Ok(false);
        };
        // Of a row group in columns, one row costs as much as all.
        let form = match hint {
            Hint::Nothing => Form::Places,
            _ => self.read_columns(chunk)?,
        };
        if form != Form::Columns {
            let end = chunk.row_end(self.ahead.iter().map(|(chunk, _)| *chunk));
            self.read_rows(chunk, &hint, form, end)?;
        }
        Ok(true)
    }

    /// What was read last, nothing before.
    pub fn batch(&self) -> Batch<'_> {
        match &self.found {
            Found::Columns(range) => Batch::Columns(self.cursor.columns().part(range.clone())),
            Found::Rows { stride } => Batch::Rows(self.rows(*stride)),
        }
    }

    /// The rows of a chunk that [`Scan::next`] handed out, each where it stands.
    ///
    /// # Errors
    /// As [`ChunkReader::read_next`].
    pub fn read(&mut self, chunk: ChunkNo) -> Result<Rows<'_>> {
        let hint = self.look(chunk)?;
        let end = ChunkNo(chunk.0.saturating_add(1));
        let stride = self.read_rows(chunk, &hint, Form::Places, end)?;
        Ok(self.rows(stride))
    }

    fn rows(&self, stride: Option<usize>) -> Rows<'_> {
        let base = self.cursor.base();
        Rows {
            base,
            bytes: self.cursor.bytes(),
            layout: self.scan.source().layout_at(base),
            rows: &self.rows,
            stride,
        }
    }

    /// Reads a chunk row by row, and returns the rows' stride. All chunks to `end` are read in a row.
    fn read_rows(
        &mut self,
        chunk: ChunkNo,
        hint: &Hint,
        form: Form,
        end: ChunkNo,
    ) -> Result<Option<usize>> {
        self.rows.clear();
        let mut stride = None;
        let is_read = match hint {
            Hint::Nothing => {
                self.cursor.enter(chunk)?;
                true
            }
            _ if form == Form::Places && self.read_column_rows(chunk)? => {
                stride = stride_of(&self.rows);
                true
            }
            Hint::Records { offsets, span } => self.read_records(chunk, offsets, *span)?,
            Hint::WholeChunk => false,
        };
        if !is_read {
            stride = self.read_whole(chunk, end)?;
        }
        self.found = Found::Rows { stride };
        Ok(stride)
    }

    /// Takes the rows of a chunk, and of those behind it as far as they go together, column by column, where they stand so.
    fn read_columns(&mut self, chunk: ChunkNo) -> Result<Form> {
        let (times, test) = self.scan.column_filter();
        let Some(reads) = self.reads.columns(test) else {
            return Ok(Form::Places);
        };
        // The rows of a chunk that is cut are told apart by their addresses.
        if chunk.address(self.scan.logs().chunk_bytes()) < self.scan.after() {
            return Ok(Form::Places);
        }
        let wanted = self.ahead.iter();
        let wanted = wanted.take_while(|(_, hint)| !matches!(hint, Hint::Nothing));
        let chunks = chunk..chunk.row_end(wanted.map(|(chunk, _)| *chunk));
        let source = self.scan.source();
        let Some(end) = self.cursor.load_columns(chunks, source, reads)? else {
            return Ok(Form::Chunk);
        };
        let columns = self.cursor.columns();
        let part = match times {
            TimeRange::ALL => Some(0..columns.count()),
            times => columns.within(times),
        };
        let Some(part) = part else {
            return Ok(Form::Places);
        };
        let more = end.0 - chunk.0 - 1;
        self.ahead.drain(..more as usize);
        self.found = Found::Columns(part);
        Ok(Form::Columns)
    }

    /// Takes the rows of a chunk to their places, where it stands in columns.
    fn read_column_rows(&mut self, chunk: ChunkNo) -> Result<bool> {
        let ChunkReader {
            scan,
            cursor,
            rows,
            placed,
            ..
        } = self;
        if !cursor.load_column_rows(chunk, scan.source(), placed.as_deref())? {
            return Ok(false);
        }
        let layout = scan.source().layout_at(cursor.base());
        rows.extend(cursor.column_rows(layout));
        scan.filter(rows, cursor);
        Ok(true)
    }

    /// Returns the rows' stride.
    fn read_whole(&mut self, chunk: ChunkNo, end: ChunkNo) -> Result<Option<usize>> {
        let ChunkReader {
            scan, cursor, rows, ..
        } = self;
        let mut stride = None;
        cursor.load_of(chunk, end)?;
        let base = cursor.base();
        let layout = scan.source().layout_at(base);
        match cursor.runs(scan.source())? {
            Some((bytes, runs)) => {
                let records = runs.iter().map(|run| run.records as usize).sum();
                let room = memory::reserve(rows, records);
                room.map_err(|refused| scan.logs().no_memory(LogKind::Records, base, refused))?;
                for run in runs {
                    rows_of_run(layout, run, bytes, rows);
                }
                if let [run] = runs {
                    stride = Some(run.entry_bytes());
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
            stride = None;
        }
        Ok(stride)
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
