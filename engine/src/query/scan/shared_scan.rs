//! A scan that several threads share: one hands out chunks in log order, and each reads and filters chunks of its own.
//!
//! [`Scan::next`] prunes as it goes, from the zones of units and the roll-ups alone; a thread's `ChunkReader` looks at the chunk's summary where greatest
//! values may name the records, and then reads those alone.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::ask::Ask;
use super::source_reader::SourceReader;
use super::unit_pruning::UnitPruning;
use crate::error::Result;
use crate::format::Node;
use crate::query::forest::claims::Claims;
use crate::query::forest::mask::NodeView;
use crate::query::forest::walk::{Visitor, Walk};
use crate::query::poll::Poll;
use crate::query::predicate::{Predicate, Test};
use crate::query::scan_counters::ScanStats;
use crate::query::snapshot::Snapshot;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::schema::{RangeSet, Source, TimeKind};
use crate::types::{Address, ChunkNo, IndexId, SourceId, TimeRange};

/// The parameters of a scan.
#[derive(Clone, Debug)]
pub struct ScanSpec {
    pub source: SourceId,
    /// Rows have this address or a higher one; `Address::ZERO` for all.
    pub after: Address,
    /// The exact filter of rows.
    pub exact: Predicate,
    /// Rows that do not satisfy it may be omitted.
    pub prune: Predicate,
    /// Rows must match the filters of these indexes.
    pub index_filters: Vec<IndexId>,
}

/// One scan of one source over one snapshot.
pub struct Scan {
    source: Arc<Source>,
    logs: Arc<SnapshotLogs>,
    filters: Filters,
    claims: Mutex<Claims<()>>,
    prune: Pruning,
}

/// The conditions on a row.
struct Filters {
    after: Address,
    /// Includes the filters of the named indexes.
    exact: Test,
}

/// Selects the children of a roll-up that may hold rows.
struct Pruning {
    source: SourceId,
    arrivals: TimeRange,
    /// With the test that chunks are chosen by.
    units: UnitPruning,
}

impl Visitor for &Pruning {
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

    fn opens_summaries(&mut self) -> bool {
        false
    }
}

impl Scan {
    /// Begins a scan. It counts its work apart from other queries of the snapshot.
    ///
    /// # Errors
    /// An unknown source, or an index of another source.
    pub fn new(snapshot: &Snapshot, spec: ScanSpec) -> Result<Arc<Scan>> {
        let source = snapshot.source_by_id(spec.source)?;
        let exact = snapshot.test_of(spec.source, &spec.exact)?;
        let mut sides = vec![exact.clone(), snapshot.test_of(spec.source, &spec.prune)?];
        let mut exact = vec![exact];
        for id in spec.index_filters {
            let index = snapshot.index_of(spec.source, id)?;
            if source.holds_every_match(&index) {
                sides.push(Test::keys(
                    snapshot.value_of(spec.source, id)?,
                    RangeSet::all(),
                ));
            }
            let filter = index.filter();
            exact.extend(filter.map(|filter| Test::Fields(Arc::new(filter.expr().clone()))));
        }
        let test = Test::and(sides);
        let arrivals = match source.time {
            TimeKind::Arrival => test.time_hull(),
            TimeKind::Own => TimeRange::ALL,
        };
        let logs = snapshot.logs().counted_apart();
        let walk = Walk::after(Arc::clone(&logs), spec.after);
        Ok(Arc::new(Scan {
            prune: Pruning {
                source: source.id,
                arrivals,
                units: UnitPruning::new(&logs, &source, test),
            },
            filters: Filters {
                after: spec.after,
                exact: Test::and(exact),
            },
            claims: Mutex::new(Claims::of(walk)),
            source,
            logs,
        }))
    }

    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// Returns the next chunk that may hold rows, ascending. Each is handed out once, to any thread.
    ///
    /// # Errors
    /// Damage in the index logs, and [`crate::Error::Interrupted`].
    pub fn next(&self, poll: &Poll<'_>) -> Result<Option<ChunkNo>> {
        let next = self.claims().next(&mut &self.prune, |_| (), poll)?;
        Ok(next.map(|(chunk, ())| chunk))
    }

    /// Passes the next chunks to `each`: at least `least`, if there are so many, and those behind them that may be in the last one's unit.
    ///
    /// # Errors
    /// As [`Scan::next`].
    pub fn claim(
        &self,
        least: usize,
        poll: &Poll<'_>,
        mut each: impl FnMut(ChunkNo),
    ) -> Result<()> {
        let each = |chunk, ()| each(chunk);
        self.claims()
            .claim(&mut &self.prune, |_| (), least, poll, each)
    }

    fn claims(&self) -> MutexGuard<'_, Claims<()>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports whether values choose the chunks, and not only times.
    pub fn prunes_by_values(&self) -> bool {
        self.prune_test().needs_values()
    }

    pub fn stats(&self) -> ScanStats {
        self.logs.counters().stats()
    }

    /// Returns the fraction of the log behind the scan, from 0 to 1.
    pub fn progress(&self) -> f64 {
        self.stats().progress()
    }

    /// Creates a reader of the asked parts of the rows.
    pub(super) fn rows(&self, ask: Ask) -> SourceReader {
        let (times, test) = self.exact().split_times();
        SourceReader::new(&self.source, ask, test, times, self.after())
    }

    pub(in crate::query) fn logs(&self) -> &Arc<SnapshotLogs> {
        &self.logs
    }

    /// Creates a visitor that chooses the chunks of the scan.
    pub(in crate::query) fn pruning(&self) -> impl Visitor + '_ {
        &self.prune
    }

    /// Returns the test that chooses chunks.
    pub(super) fn prune_test(&self) -> &Test {
        self.prune.units.test()
    }

    /// Whether all of some chunks stand in units without a row of the scan.
    pub(super) fn is_outside(&self, chunks: Range<ChunkNo>) -> bool {
        self.prune.units.is_outside(chunks)
    }

    pub(super) fn exact(&self) -> &Test {
        &self.filters.exact
    }

    pub(super) fn after(&self) -> Address {
        self.filters.after
    }

    pub(super) fn arrivals(&self) -> TimeRange {
        self.prune.arrivals
    }
}
