//! A scan that several threads share: one hands out chunks in log order, each reads and filters chunks of its own.
//!
//! [`Scan::next`] prunes as it goes, from the roll-ups alone; a thread's [`ChunkReader`] looks at the chunk's summary where greatest
//! values may tell the records, and then reads those alone.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use super::counters::ScanStats;
use super::cursor::{ChunkCursor, RecordView, Row};
use super::forest::NodeId;
use super::interrupt::Poll;
use super::mask::NodeView;
use super::node_reader::NodeReader;
use super::predicate::{Predicate, Test};
use super::runs::rows_of_run;
use super::snapshot::Snapshot;
use super::snapshot_logs::SnapshotLogs;
use super::walk::{Order, Visitor, Walk};
use crate::error::Result;
use crate::format::Node;
use crate::schema::{Filter, Index, Layout, Source, TimeKind};
use crate::types::{Address, ChunkNo, IndexId, SourceId, TimeRange};

/// What to scan.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    pub source: SourceId,
    /// Rows are filtered by it, exactly.
    pub exact: Predicate,
    /// Rows that do not satisfy it may be left out, or not.
    pub prune: Predicate,
    /// Rows must match the filters of these indexes.
    pub index_filters: Vec<IndexId>,
}

/// One scan of one source, over one snapshot.
pub struct Scan {
    source: Arc<Source>,
    logs: Arc<SnapshotLogs>,
    filters: Filters,
    walk: Mutex<Walk>,
    prune: Pruning,
}

/// What a row must satisfy.
struct Filters {
    exact: Test,
    indexes: Vec<Arc<Index>>,
}

impl Filters {
    /// Whether every row of a chunk satisfies them, as far as two rows tell: arrival times do not decrease.
    fn hold_for_all(&self, time: TimeKind, rows: &[Row]) -> bool {
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return true;
        };
        self.indexes.is_empty()
            && match &self.exact {
                Test::All => true,
                Test::Time(times) => time == TimeKind::Arrival && times.covers(first.ts, last.ts),
                _ => false,
            }
    }

    fn matches(&self, layout: &Layout, row: Row, payload: &[u8]) -> bool {
        self.exact.matches(row.ts, layout, payload)
            && self
                .indexes
                .iter()
                .filter_map(|index| index.filter())
                .all(|filter: &Filter| filter.matches(layout, payload))
    }
}

/// Which children of a roll-up may hold rows.
#[derive(Clone)]
struct Pruning {
    source: SourceId,
    arrivals: TimeRange,
    test: Arc<Test>,
}

impl Visitor for Pruning {
    fn arrivals(&self) -> TimeRange {
        self.arrivals
    }

    fn visit(&mut self, node: &Node<'_>) -> Result<u64> {
        let Some(stats) = node.source(self.source) else {
            return Ok(0);
        };
        let view = NodeView { node: *node, stats };
        Ok(self.test.masks(&view).may)
    }

    fn opens_summaries(&self) -> bool {
        false
    }
}

impl Scan {
    /// Begins a scan, which counts its work apart from other queries of the snapshot.
    ///
    /// # Errors
    /// A source that does not exist, or an index that is not the source's.
    pub fn new(snapshot: &Snapshot, spec: ScanSpec) -> Result<Arc<Scan>> {
        let source = snapshot.source_by_id(spec.source)?;
        let value = |index| snapshot.value_of(spec.source, index);
        let exact = Test::prepare(&spec.exact, &value)?;
        let mut sides = vec![exact.clone(), Test::prepare(&spec.prune, &value)?];
        let mut indexes = Vec::new();
        for id in spec.index_filters {
            let index = snapshot.index_of(spec.source, id)?;
            if holds_every_match(&source, &index) {
                let every = Predicate::Value {
                    index: id,
                    range: crate::types::ValueRange::ALL,
                };
                sides.push(Test::prepare(&every, &value)?);
            }
            indexes.push(index);
        }
        let test = Test::and(sides);
        let arrivals = match source.time {
            TimeKind::Arrival => test.time_hull(),
            TimeKind::Own => TimeRange::ALL,
        };
        let logs = snapshot.logs().counted_apart();
        let walk = Walk::new(Arc::clone(&logs), Order::OldestFirst);
        Ok(Arc::new(Scan {
            prune: Pruning {
                source: source.id,
                arrivals,
                test: Arc::new(test),
            },
            filters: Filters { exact, indexes },
            walk: Mutex::new(walk),
            source,
            logs,
        }))
    }

    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The next chunk that may hold rows, ascending; each is handed out once, whichever thread asks.
    ///
    /// # Errors
    /// Damage in the index logs, and [`crate::Error::Interrupted`].
    pub fn next(&self, poll: &Poll<'_>) -> Result<Option<ChunkNo>> {
        let mut walk = self.walk.lock().unwrap_or_else(PoisonError::into_inner);
        walk.next(&mut self.prune.clone(), poll)
    }

    /// A reader for one thread.
    pub fn reader(self: &Arc<Self>) -> ChunkReader {
        ChunkReader {
            cursor: ChunkCursor::new(Arc::clone(&self.logs)),
            nodes: NodeReader::new(Arc::clone(&self.logs)),
            scan: Arc::clone(self),
            rows: Vec::new(),
            stride: None,
            futile: 0,
        }
    }

    /// Whether chunks are chosen by their values, not by times alone.
    pub fn prunes_by_values(&self) -> bool {
        self.prune.test.needs_values()
    }

    pub fn stats(&self) -> ScanStats {
        self.logs.counters().stats()
    }

    /// How much of the log is behind the scan, from 0 to 1.
    pub fn progress(&self) -> f64 {
        let stats = self.stats();
        match stats.chunks_total {
            0 => 1.0,
            total => (stats.chunks_pruned + stats.chunks_read) as f64 / total as f64,
        }
    }

    /// Leaves the rows that satisfy everything.
    fn filter(&self, rows: &mut Vec<Row>, cursor: &ChunkCursor) {
        let layout = self.source.layout_at(cursor.base());
        if self.filters.hold_for_all(self.source.time, rows) {
            return;
        }
        rows.retain(|row| {
            let payload = row.payload(cursor.bytes());
            self.filters.matches(layout, *row, payload)
        });
    }

    pub(super) fn logs(&self) -> &Arc<SnapshotLogs> {
        &self.logs
    }

    pub(super) fn exact(&self) -> &Test {
        &self.filters.exact
    }

    /// Whether the rows are those of the exact predicate alone.
    pub(super) fn filters_by_index(&self) -> bool {
        !self.filters.indexes.is_empty()
    }

    pub(super) fn arrivals(&self) -> TimeRange {
        self.prune.arrivals
    }
}

/// Whether every record that matches the index's filter has a value, so that its entries tell where matches are.
fn holds_every_match(source: &Source, index: &Index) -> bool {
    let Some(field) = index.value_field() else {
        return true;
    };
    let never_null = source
        .fields
        .get(field)
        .is_some_and(|field| !field.nullable);
    never_null
        && source
            .layouts
            .iter()
            .all(|(_, layout)| layout.slot(field).is_some())
}

/// Reads the chunks of a scan on one thread.
pub struct ChunkReader {
    scan: Arc<Scan>,
    cursor: ChunkCursor,
    nodes: NodeReader,
    rows: Vec<Row>,
    /// From one row's payload to the next, where that is the same for all.
    stride: Option<usize>,
    /// Summaries that told nothing since one did: looking is given up for a while.
    futile: u32,
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

/// After so many summaries that told nothing, one in so many is looked at.
const FUTILE_MOST: u32 = 16;
/// Reading more records than this one by one costs more than their chunk.
const RECORDS_MOST: usize = 8;

impl ChunkReader {
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
        if !self.read_by_summary(chunk)? {
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
            layout: self.scan.source.layout_at(base),
            rows: &self.rows,
            stride: self.stride,
        }
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
        let layout = scan.source.layout_at(cursor.base());
        match cursor.runs(&scan.source)? {
            Some((bytes, runs)) => {
                for run in runs {
                    rows_of_run(layout, run, bytes, rows);
                }
                if let [run] = runs {
                    *stride = Some(run.entry_bytes());
                }
            }
            None => {
                let _ = cursor.for_each(&scan.source, |_, row| {
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

    /// Reads the records that the chunk's summary names, or none if it names none. False: the chunk must be read whole.
    fn read_by_summary(&mut self, chunk: ChunkNo) -> Result<bool> {
        let ChunkReader {
            scan,
            cursor,
            nodes,
            rows,
            futile,
            ..
        } = self;
        cursor.enter(chunk);
        let looks = chunk < scan.logs.summarised_chunks() && scan.prune.test.needs_values();
        *futile += u32::from(looks);
        if !looks || (*futile > FUTILE_MOST && !futile.is_multiple_of(FUTILE_MOST)) {
            return Ok(false);
        }
        let Some(open) = nodes.open(NodeId::summary(chunk))? else {
            return Ok(true);
        };
        let node = open.node();
        let Some(stats) = node.source(scan.source.id) else {
            *futile = 0;
            return Ok(true);
        };
        let view = NodeView { node, stats };
        if scan.prune.test.masks(&view).may == 0 {
            *futile = 0;
            return Ok(true);
        }
        let Some(mut offsets) = scan.prune.test.offsets(&view) else {
            return Ok(false);
        };
        *futile = 0;
        offsets.sort_unstable();
        offsets.dedup();
        if offsets.len() > RECORDS_MOST {
            return Ok(false);
        }
        let span = TimeRange {
            first: node.first_arrival(),
            last: node.last_arrival(),
        };
        if !cursor.load_records(&scan.source, chunk, &offsets, span, rows)? {
            rows.clear();
            return Ok(false);
        }
        scan.filter(rows, cursor);
        Ok(true)
    }
}
