//! Which chunks stand in units that hold no row that is wanted, by the zones of their fields and by look-ups. A walk asks it before it opens a node of them.
//!
//! The zones at the end of a finished segment answer for all of its units at once. Of any other segment the heads of its units are asked, one by one and as
//! late as they are needed, and kept in the cache of units. What cannot be read is left to whoever reads the rows, and reported there.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::format::{LOOKUP_CHUNKS, SourceZones, UNIT_CHUNKS, Zone};
use crate::proven::{at, at_mut};
use crate::query::lookups::{KeyedUnit, OpenLookup};
use crate::query::predicate::Test;
use crate::query::snapshot_logs::SnapshotLogs;
use crate::query::zone_test::Zones;
use crate::schema::{Layout, Pieces, Source};
use crate::types::ChunkNo;

/// A walk asks about 64 roll-ups of 64 chunks before it descends to them. They stand in one segment of the usual size, or in several that are smaller.
const SEGMENTS_KEPT: usize = 8;
/// As many look-ups are fetched together, so that a disk is awaited once for all.
const SPANS_TOGETHER: u64 = 16;

/// Of the rows of a source that satisfy a test. Threads share it.
pub(crate) struct UnitPruning {
    logs: Arc<SnapshotLogs>,
    source: Arc<Source>,
    test: Test,
    /// The test reads a field that has look-ups.
    is_keyed: bool,
    /// Some segments that were asked about, in the order of their first questions.
    latest: Mutex<Vec<SegmentUnits>>,
}

/// The zones and look-ups of the rows of one layout in the units of a segment.
struct SegmentUnits {
    chunks: Range<ChunkNo>,
    layout: Arc<Layout>,
    pieces: Pieces,
    /// The zones at the segment's end.
    zones: Option<SourceZones>,
    /// Those of some consecutive spans.
    lookups: Vec<SpanLookup>,
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
            let is_of = |known: &SegmentUnits| {
                known.chunks == segment && Arc::ptr_eq(&known.layout, layout)
            };
            let nth = latest.iter().rposition(is_of).unwrap_or_else(|| {
                if latest.len() == SEGMENTS_KEPT {
                    latest.remove(0);
                }
                latest.push(self.ask(&segment, layout));
                latest.len() - 1
            });
            !at_mut(&mut latest, nth).may_have(first, self)
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
            lookups: Vec::new(),
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
    /// Opens the look-up of the unit that begins with this chunk. If it is not cached, those of the units beside it in the segment are fetched, too.
    fn open_lookups(&mut self, first: ChunkNo, wanted: &UnitPruning) {
        let logs = &wanted.logs;
        let asked = logs.span_of(first);
        if self.open(vec![asked.clone()], wanted) {
            return;
        }
        let window = SPANS_TOGETHER * LOOKUP_CHUNKS;
        let before = (asked.start.0 - self.chunks.start.0) / window * window;
        let mut spans = vec![logs.span_of(ChunkNo(self.chunks.start.0 + before))];
        let end = self.chunks.end.min(logs.summarised_chunks()).max(asked.end);
        while let Some(last) = spans.last()
            && last.end < end
            && (spans.len() as u64) < SPANS_TOGETHER
        {
            spans.push(logs.span_of(last.end));
        }
        self.open(spans, wanted);
        for span in &self.lookups {
            let first = span.chunks.start;
            if let Some(zones) = &self.zones
                && let Some(unit) = self.keyed_unit(first, true)
            {
                let may = |of_fields: &[Zone]| self.may_pass(of_fields, Some(unit), wanted);
                // The answer of the first unit stands for all, and is asked for again.
                let _announced = zones.may_have(self.nth(first), may);
            }
        }
    }

    /// Opens the look-ups of some spans, and returns whether they were cached.
    fn open(&mut self, spans: Vec<Range<ChunkNo>>, wanted: &UnitPruning) -> bool {
        let (opened, are_cached) = OpenLookup::open_all(&wanted.logs, &spans);
        let opened = spans.into_iter().zip(opened);
        let opened = opened.map(|(chunks, lookup)| SpanLookup {
            chunks,
            lookup: lookup.map(RefCell::new),
        });
        self.lookups = opened.collect();
        are_cached
    }

    fn nth(&self, first: ChunkNo) -> usize {
        ((first.0 - self.chunks.start.0) / UNIT_CHUNKS) as usize
    }

    fn span_of(&self, first: ChunkNo) -> Option<&SpanLookup> {
        let mut spans = self.lookups.iter();
        spans.find(|span| span.chunks.contains(&first))
    }

    fn keyed_unit(&self, first: ChunkNo, announces: bool) -> Option<KeyedUnit<'_>> {
        let span = self.span_of(first)?;
        Some(KeyedUnit {
            lookup: span.lookup.as_ref()?,
            source: self.pieces.template().source,
            unit: ((first.0 - span.chunks.start.0) / UNIT_CHUNKS) as usize,
            announces,
        })
    }

    fn may_pass(
        &self,
        of_fields: &[Zone],
        unit: Option<KeyedUnit<'_>>,
        wanted: &UnitPruning,
    ) -> bool {
        wanted.test.may_pass(Zones {
            layout: &self.layout,
            of_fields,
            unit,
        })
    }

    /// Whether a row that is wanted may stand in the unit that begins with this chunk.
    fn may_have(&mut self, first: ChunkNo, wanted: &UnitPruning) -> bool {
        let nth = self.nth(first);
        if let Some(known) = *at(&self.may_have, nth) {
            return known;
        }
        if wanted.is_keyed && self.span_of(first).is_none() {
            self.open_lookups(first, wanted);
        }
        let unit = self.keyed_unit(first, false);
        let may = |of_fields: &[Zone]| self.may_pass(of_fields, unit, wanted);
        let mut known = (self.zones.as_ref()).and_then(|zones| zones.may_have(nth, may));
        if known.is_none() {
            // A unit that is not written yet is asked again.
            known =
                (wanted.logs.may_have(first, self.pieces.template(), may)).unwrap_or(Some(true));
        }
        *at_mut(&mut self.may_have, nth) = known;
        known.unwrap_or(true)
    }
}
