//! Summarises a sealed chunk: one walk over its records, then one tight loop for each (source, index).
//!
//! The same function serves the append path, where the chunk is still in the core's cache, recovery and `ingestd check`; so a
//! summary never says anything that the records do not. Its scratch lists are reused: a chunk costs no allocation.

use crate::format::{
    Bin, BinStats, FormatError, IndexSummary, NodeSummary, RECORD_HEADER_BYTES, RecordIter,
    SourceSummary, TOP_VALUES, Top,
};
use crate::schema::{Catalog, Index, Layout, Source};
use crate::types::{Address, ChunkNo, Key, SourceId, Timestamp, ValueRange};

use super::native::Natives;

/// The latest chunk of each source, by source id: what the chain of chunks links back to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LatestChunks(Vec<Option<ChunkNo>>);

impl LatestChunks {
    pub fn get(&self, source: SourceId) -> Option<ChunkNo> {
        self.0.get(usize::from(source.0)).copied().flatten()
    }

    pub fn set(&mut self, source: SourceId, chunk: ChunkNo) {
        let at = usize::from(source.0);
        if at >= self.0.len() {
            self.0.resize(at + 1, None);
        }
        if let Some(latest) = self.0.get_mut(at) {
            *latest = Some(chunk);
        }
    }
}

/// Where a record stands in the chunk, and when it arrived.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: u32,
    payload_bytes: u32,
    arrival: Timestamp,
    ts: Timestamp,
}

impl Place {
    #[inline]
    fn payload<'a>(&self, chunk: &'a [u8]) -> &'a [u8] {
        let start = self.offset as usize + RECORD_HEADER_BYTES;
        chunk
            .get(start..start + self.payload_bytes as usize)
            .unwrap_or_default()
    }
}

/// Scratch memory of summarising; one serves any number of chunks.
#[derive(Default)]
pub struct Summariser {
    /// Records of the chunk by source, in the order in which sources first appear.
    groups: Vec<(SourceId, Vec<Place>)>,
    groups_used: usize,
    /// By source id: 1 + its place in `groups`, 0 where the chunk has not held it.
    group_of: Vec<u32>,
    /// Counts by bin; zero between uses.
    counts: Vec<u32>,
    stats: Vec<Option<BinStats>>,
    touched: Vec<u16>,
}

impl Summariser {
    /// Fills `out` with the summary of chunk `chunk_no`, whose bytes are `chunk`, and moves `latest` on.
    pub fn summarise(
        &mut self,
        catalog: &Catalog,
        natives: &Natives,
        latest: &mut LatestChunks,
        chunk_no: ChunkNo,
        chunk: &[u8],
        out: &mut NodeSummary,
    ) -> Result<(), FormatError> {
        let chunk_bytes = chunk.len() as u32;
        let address = chunk_no.address(chunk_bytes);
        self.group(chunk, chunk_bytes)?;
        out.clear(chunk_no);
        for ordinal in 0..self.groups_used {
            let Some((source_id, places)) = self
                .groups
                .get_mut(ordinal)
                .map(|(id, places)| (*id, std::mem::take(places)))
            else {
                break;
            };
            let source = catalog.source(source_id);
            let summary = out
                .sources
                .entry(|other| other.source.cmp(&source_id), |_| ());
            let places = self.summarise_source(
                source.map(AsRef::as_ref),
                natives,
                address,
                chunk,
                source_id,
                places,
                summary,
            );
            summary.previous_chunk = latest.get(source_id);
            latest.set(source_id, chunk_no);
            out.records += summary.records;
            out.first_arrival = out.first_arrival.min(summary.first_arrival);
            out.last_arrival = out.last_arrival.max(summary.last_arrival);
            if let Some((_, slot)) = self.groups.get_mut(ordinal) {
                *slot = places;
            }
        }
        Ok(())
    }

    /// Sorts the chunk's records into `groups`.
    fn group(&mut self, chunk: &[u8], chunk_bytes: u32) -> Result<(), FormatError> {
        for (source, _) in self.groups.iter().take(self.groups_used) {
            if let Some(slot) = self.group_of.get_mut(usize::from(source.0)) {
                *slot = 0;
            }
        }
        self.groups_used = 0;
        for record in RecordIter::new(chunk, chunk_bytes) {
            let record = record?;
            let place = Place {
                offset: record.offset,
                payload_bytes: record.payload.len() as u32,
                arrival: record.arrival,
                ts: record.arrival,
            };
            self.group_mut(record.source).push(place);
        }
        Ok(())
    }

    fn group_mut(&mut self, source: SourceId) -> &mut Vec<Place> {
        let id = usize::from(source.0);
        if id >= self.group_of.len() {
            self.group_of.resize(id + 1, 0);
        }
        #[expect(
            clippy::indexing_slicing,
            reason = "the table was just made to hold this id"
        )]
        let slot = &mut self.group_of[id];
        if *slot == 0 {
            if self.groups_used == self.groups.len() {
                self.groups.push((source, Vec::new()));
            }
            if let Some((id, places)) = self.groups.get_mut(self.groups_used) {
                *id = source;
                places.clear();
            }
            self.groups_used += 1;
            *slot = self.groups_used as u32;
        }
        #[expect(
            clippy::indexing_slicing,
            reason = "slots hold 1 + a place below `groups_used`"
        )]
        &mut self.groups[*slot as usize - 1].1
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one step of `summarise`, split off to fit a screen"
    )]
    fn summarise_source(
        &mut self,
        source: Option<&Source>,
        natives: &Natives,
        address: Address,
        chunk: &[u8],
        id: SourceId,
        mut places: Vec<Place>,
        out: &mut SourceSummary,
    ) -> Vec<Place> {
        let layout = source.map(|source| source.layout_at(address));
        let own_time = layout.is_some_and(|layout| layout.body_offset() > 0);
        out.reset(id, own_time);
        out.records = places.len() as u64;
        if let (Some(first), Some(last)) = (places.first(), places.last()) {
            (out.first, out.last) = (first.offset, last.offset);
            (out.first_arrival, out.last_arrival) = (first.arrival, last.arrival);
            (out.first_ts, out.last_ts) = (first.arrival, last.arrival);
        }
        if let (true, Some(layout)) = (own_time, layout) {
            (out.first_ts, out.last_ts) = (Timestamp::MAX, Timestamp::MIN);
            for place in &mut places {
                place.ts = layout
                    .own_time(place.payload(chunk))
                    .unwrap_or(place.arrival);
                out.first_ts = out.first_ts.min(place.ts);
                out.last_ts = out.last_ts.max(place.ts);
            }
        }
        let end = address + chunk.len() as u64;
        let indexes = source
            .map(|source| source.indexes.as_slice())
            .unwrap_or_default();
        for index in indexes.iter().filter(|index| index.covers(address, end)) {
            if index.is_native() && !natives.contains_key(&index.id) {
                continue;
            }
            let summary = out
                .indexes
                .entry(|other| other.index.cmp(&index.id), |_| ());
            match natives.get(&index.id) {
                Some(key) => {
                    self.summarise_index(index, chunk, &places, |payload| key(payload), summary)
                }
                None => self.summarise_declared(index, layout, chunk, &places, summary),
            }
        }
        places
    }

    fn summarise_declared(
        &mut self,
        index: &Index,
        layout: Option<&std::sync::Arc<Layout>>,
        chunk: &[u8],
        places: &[Place],
        out: &mut IndexSummary,
    ) {
        let layout = layout.map(AsRef::as_ref);
        self.summarise_index(
            index,
            chunk,
            places,
            |payload| index.key(layout?, payload),
            out,
        );
    }

    fn summarise_index(
        &mut self,
        index: &Index,
        chunk: &[u8],
        places: &[Place],
        key_of: impl Fn(&[u8]) -> Option<Key>,
        out: &mut IndexSummary,
    ) {
        out.reset(index.id);
        let mut sum = crate::types::Sum::zero(index.kind);
        let mut range = ValueRange::EMPTY;
        let full = !index.bins.is_auto();
        self.make_room(index.bins.len(), full);
        for place in places {
            let Some(key) = key_of(place.payload(chunk)) else {
                continue;
            };
            sum.add_key(index.kind, key);
            range.min = range.min.min(key);
            range.max = range.max.max(key);
            keep_greatest(&mut out.tops, key, place.offset);
            let bin = index.bins.bin(key);
            if let Some(count) = self.counts.get_mut(usize::from(bin)) {
                if *count == 0 {
                    self.touched.push(bin);
                }
                *count += 1;
            }
            if full {
                self.add_stats(index, bin, key, place.ts);
            }
        }
        (out.sum, out.range) = (sum, range);
        self.take_bins(out);
    }

    fn make_room(&mut self, bins: usize, full: bool) {
        if self.counts.len() < bins {
            self.counts.resize(bins, 0);
        }
        if full && self.stats.len() < bins {
            self.stats.resize(bins, None);
        }
    }

    fn add_stats(&mut self, index: &Index, bin: u16, key: Key, ts: Timestamp) {
        let Some(slot) = self.stats.get_mut(usize::from(bin)) else {
            return;
        };
        let zero = crate::types::Sum::zero(index.kind);
        let stats = slot.get_or_insert(BinStats {
            sum: zero,
            min: key,
            max: key,
            first_ts: ts,
            last_ts: ts,
        });
        stats.sum.add_key(index.kind, key);
        stats.min = stats.min.min(key);
        stats.max = stats.max.max(key);
        stats.first_ts = stats.first_ts.min(ts);
        stats.last_ts = stats.last_ts.max(ts);
    }

    /// Moves the bins that were touched into `out`, ascending, and leaves the scratch zero.
    fn take_bins(&mut self, out: &mut IndexSummary) {
        self.touched.sort_unstable();
        for bin in self.touched.drain(..) {
            if let Some(count) = self.counts.get_mut(usize::from(bin)) {
                let count = u64::from(std::mem::take(count));
                out.count += count;
                out.bins.push(Bin {
                    bin,
                    count,
                    mask: 0,
                });
            }
            out.bin_stats
                .extend(self.stats.get_mut(usize::from(bin)).and_then(Option::take));
        }
    }
}

/// Keeps the greatest values, descending, of equal ones those that came first.
#[inline]
fn keep_greatest(tops: &mut Vec<Top>, key: Key, offset: u32) {
    if tops.len() == TOP_VALUES {
        if tops.last().is_some_and(|least| key <= least.key) {
            return;
        }
        tops.pop();
    }
    let at = tops.partition_point(|top| top.key >= key);
    tops.insert(at, Top { key, offset });
}
