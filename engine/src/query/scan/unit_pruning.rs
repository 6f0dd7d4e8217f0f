//! Which chunks stand in units that hold no row that is wanted, by the zones of their fields and by look-ups. A walk asks it before it opens a node of them.
//!
//! The zones at the end of a finished segment answer for all of its units at once. Of any other segment the heads of its units are asked, one by one and as
//! late as they are needed, and kept in the cache of units. What cannot be read is left to whoever reads the rows, and reported there.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::format::{SourceZones, UNIT_CHUNKS, Zone};
use crate::proven::at_mut;
use crate::query::lookups::{KeyedUnit, OpenLookup};
use crate::query::predicate::Test;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::query::zone_test::Zones;
use crate::schema::{Layout, Pieces, Source};
use crate::types::ChunkNo;

/// Of the rows of a source that satisfy a test. Threads share it.
pub(crate) struct UnitPruning {
    logs: Arc<SnapshotLogs>,
    source: Arc<Source>,
    test: Test,
    /// The test reads a field that has look-ups.
    is_keyed: bool,
    /// The segment that was asked about last.
    latest: Mutex<Option<SegmentUnits>>,
}

/// What is known of the rows of one layout in the units of a segment.
struct SegmentUnits {
    chunks: Range<ChunkNo>,
    layout: Arc<Layout>,
    pieces: Pieces,
    /// What stands at its end.
    zones: Option<SourceZones>,
    lookup: Option<SpanLookup>,
    /// Of each unit whether a row in it may be wanted; `None`: it was not asked yet.
    may_have: Vec<Option<bool>>,
}

impl UnitPruning {
    pub fn new(logs: &Arc<SnapshotLogs>, source: &Arc<Source>, test: Test) -> UnitPruning {
        let mut is_keyed = false;
        test.each_field(&mut |field| {
            is_keyed |= source
                .fields
                .get(field)
                .is_some_and(|field| field.lookup || field.words);
        });
        UnitPruning {
            is_keyed,
            logs: Arc::clone(logs),
            source: Arc::clone(source),
            test,
            latest: Mutex::default(),
        }
    }

    pub fn test(&self) -> &Test {
        &self.test
    }

    /// Whether all of some chunks stand in such units. Of chunks of several segments it does not say so: they are asked about in parts.
    pub fn is_outside(&self, chunks: Range<ChunkNo>) -> bool {
        if !self.test.needs_fields() {
            return false;
        }
        let segment = self.logs.segment_of(chunks.start);
        if segment.end < chunks.end {
            return false;
        }
        let latest = self.latest.lock();
        let mut latest = latest.unwrap_or_else(PoisonError::into_inner);
        let units = chunks.start.0 / UNIT_CHUNKS..chunks.end.0.div_ceil(UNIT_CHUNKS);
        let mut units = units.map(|unit| ChunkNo(unit * UNIT_CHUNKS));
        units.all(|first| {
            let layout = (self.source).layout_at(first.address(self.logs.chunk_bytes()));
            let is_of = |known: &mut SegmentUnits| {
                known.chunks == segment && Arc::ptr_eq(&known.layout, layout)
            };
            let known = latest.take_if(is_of);
            let known = known.unwrap_or_else(|| self.ask(&segment, layout));
            let known = latest.insert(known);
            if self.is_keyed {
                known.look_up(first, &self.logs);
            }
            !known.may_have(first, &self.logs, &self.test)
        })
    }

    /// Reads what stands at the end of a segment.
    fn ask(&self, chunks: &Range<ChunkNo>, layout: &Arc<Layout>) -> SegmentUnits {
        let pieces = Pieces::of(self.source.id, layout);
        let zones = self.logs.segment_zones(chunks.start, pieces.template());
        let units = (chunks.end.0 - chunks.start.0).div_ceil(UNIT_CHUNKS);
        SegmentUnits {
            chunks: chunks.clone(),
            layout: Arc::clone(layout),
            pieces,
            zones: zones.unwrap_or(None),
            lookup: None,
            may_have: vec![None; units as usize],
        }
    }
}

/// The look-up of a span of chunks, if there is one.
struct SpanLookup {
    chunks: Range<ChunkNo>,
    lookup: Option<RefCell<OpenLookup>>,
}

impl SegmentUnits {
    /// Opens the look-up of the unit that begins with this chunk.
    fn look_up(&mut self, first: ChunkNo, logs: &Arc<SnapshotLogs>) {
        if !(self.lookup.as_ref()).is_some_and(|span| span.chunks.contains(&first)) {
            let chunks = logs.span_of(first);
            let lookup = OpenLookup::open(logs, &chunks).map(RefCell::new);
            self.lookup = Some(SpanLookup { chunks, lookup });
        }
    }

    /// Whether a row that satisfies a test may stand in the unit that begins with this chunk.
    fn may_have(&mut self, first: ChunkNo, logs: &SnapshotLogs, test: &Test) -> bool {
        let nth = ((first.0 - self.chunks.start.0) / UNIT_CHUNKS) as usize;
        let known = at_mut(&mut self.may_have, nth);
        let lookup = self.lookup.as_ref();
        let unit = lookup.and_then(|span| {
            Some(KeyedUnit {
                lookup: span.lookup.as_ref()?,
                source: self.pieces.template().source,
                unit: ((first.0 - span.chunks.start.0) / UNIT_CHUNKS) as usize,
            })
        });
        let may = |of_fields: &[Zone]| {
            test.may_pass(Zones {
                layout: &self.layout,
                of_fields,
                unit,
            })
        };
        if known.is_none() {
            *known = (self.zones.as_ref()).and_then(|zones| zones.may_have(nth, may));
        }
        if known.is_none() {
            // A unit that is not written yet is asked again.
            *known = (logs.may_have(first, self.pieces.template(), may)).unwrap_or(Some(true));
        }
        known.unwrap_or(true)
    }
}
