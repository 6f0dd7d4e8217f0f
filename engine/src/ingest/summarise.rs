//! Summarises a sealed chunk: records are noted as they are appended, then each (source, index) takes a few tight loops over a column.
//!
//! The same functions serve the append path, where the chunk is still in the core's cache, recovery and `ingestd check`; so a
//! summary never says anything that the records do not. Scratch lists are reused: a chunk costs no allocation.

use std::sync::Arc;

use crate::format::{
    Bin, BinStats, FormatError, IndexSummary, NodeSummary, RECORD_HEADER_BYTES, RecordIter,
    SourceSummary, TOP_VALUES, Top, record_bytes,
};
use crate::schema::{BinMap, Catalog, Index, Layout};
use crate::types::{Address, ChunkNo, Key, SourceId, Sum, Timestamp, ValueRange};

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

/// Where a record stands in its chunk, and when it arrived.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Of the record's header, in bytes.
    pub offset: u32,
    pub payload_bytes: u32,
    pub arrival: Timestamp,
}

impl Place {
    #[inline]
    fn payload(self, chunk: &[u8]) -> &[u8] {
        let start = self.offset as usize + RECORD_HEADER_BYTES;
        chunk
            .get(start..start + self.payload_bytes as usize)
            .unwrap_or_default()
    }
}

/// The records of one source in the chunk, in log order.
#[derive(Debug, Default)]
struct Group {
    source: u16,
    places: Vec<Place>,
}

/// Gathers the records of a chunk and summarises them; one serves any number of chunks.
#[derive(Default)]
pub struct Summariser {
    /// By source, in the order in which sources first appear; beyond `group_count` from earlier chunks.
    groups: Vec<Group>,
    group_count: usize,
    /// By source id: 1 + its place in `groups`, 0 where the chunk has not held it.
    group_of: Vec<u32>,
    columns: Columns,
}

impl Summariser {
    /// Notes a record of the open chunk. Records are noted in log order.
    #[inline]
    pub fn note(&mut self, source: SourceId, place: Place) {
        let known = self
            .group_of
            .get(usize::from(source.0))
            .copied()
            .unwrap_or(0);
        match self.groups.get_mut((known as usize).wrapping_sub(1)) {
            Some(group) => group.places.push(place),
            None => self.begin_group(source, place),
        }
    }

    #[cold]
    fn begin_group(&mut self, source: SourceId, place: Place) {
        let id = usize::from(source.0);
        if id >= self.group_of.len() {
            self.group_of.resize(id + 1, 0);
        }
        if self.group_count == self.groups.len() {
            self.groups.push(Group::default());
        }
        if let (Some(group), Some(slot)) = (
            self.groups.get_mut(self.group_count),
            self.group_of.get_mut(id),
        ) {
            group.source = source.0;
            group.places.clear();
            group.places.push(place);
            self.group_count += 1;
            *slot = self.group_count as u32;
        }
    }

    /// Notes the records of a chunk that this writer did not append just now, and summarises it. Where its bytes are no chunk, it says so
    /// and nothing moves on.
    pub fn summarise(
        &mut self,
        catalog: &Catalog,
        natives: &Natives,
        latest: &mut LatestChunks,
        chunk_no: ChunkNo,
        chunk: &[u8],
        out: &mut NodeSummary,
    ) -> Result<(), FormatError> {
        self.note_chunk(chunk)?;
        self.summarise_noted(catalog, natives, latest, chunk_no, chunk, out);
        Ok(())
    }

    fn note_chunk(&mut self, chunk: &[u8]) -> Result<(), FormatError> {
        self.forget();
        for record in RecordIter::new(chunk, chunk.len() as u32) {
            let record = record?;
            let (offset, payload_bytes, arrival) =
                (record.offset, record.payload.len() as u32, record.arrival);
            self.note(
                record.source,
                Place {
                    offset,
                    payload_bytes,
                    arrival,
                },
            );
        }
        Ok(())
    }

    /// Forgets what was noted.
    fn forget(&mut self) {
        for group in self.groups.iter().take(self.group_count) {
            if let Some(slot) = self.group_of.get_mut(usize::from(group.source)) {
                *slot = 0;
            }
        }
        self.group_count = 0;
    }

    /// Fills `out` with the summary of chunk `chunk_no`, whose bytes are `chunk` and whose records were noted; moves `latest` on, and
    /// forgets the records.
    pub fn summarise_noted(
        &mut self,
        catalog: &Catalog,
        natives: &Natives,
        latest: &mut LatestChunks,
        chunk_no: ChunkNo,
        chunk: &[u8],
        out: &mut NodeSummary,
    ) {
        let of_chunk = OfChunk {
            catalog,
            natives,
            chunk,
            address: chunk_no.address(chunk.len() as u32),
        };
        out.clear(chunk_no);
        for group in self.groups.iter().take(self.group_count) {
            let source = SourceId(group.source);
            let summary = out.sources.entry(|other| other.source.cmp(&source), |_| ());
            of_chunk.summarise_source(source, &group.places, &mut self.columns, summary);
            summary.previous_chunk = latest.get(source);
            latest.set(source, chunk_no);
            out.records += summary.records;
            out.first_arrival = out.first_arrival.min(summary.first_arrival);
            out.last_arrival = out.last_arrival.max(summary.last_arrival);
        }
        self.forget();
    }
}

/// The chunk under way, and what its bytes mean.
struct OfChunk<'a> {
    catalog: &'a Catalog,
    natives: &'a Natives,
    chunk: &'a [u8],
    address: Address,
}

impl OfChunk<'_> {
    fn summarise_source(
        &self,
        id: SourceId,
        places: &[Place],
        columns: &mut Columns,
        out: &mut SourceSummary,
    ) {
        let source = self.catalog.source(id).map(Arc::as_ref);
        let layout = source.map(|source| source.layout_at(self.address).as_ref());
        let own_time = layout.filter(|layout| layout.has_own_time());
        out.reset(id, own_time.is_some());
        out.records = places.len() as u64;
        if let (Some(first), Some(last)) = (places.first(), places.last()) {
            (out.first, out.last) = (first.offset, last.offset);
            (out.first_arrival, out.last_arrival) = (first.arrival, last.arrival);
        }
        out.bytes = places
            .iter()
            .map(|place| record_bytes(place.payload_bytes as usize) as u64)
            .sum();
        (out.first_ts, out.last_ts) = (out.first_arrival, out.last_arrival);
        if own_time.is_some() {
            let times = places.iter().map(|place| self.ts(own_time, *place));
            (out.first_ts, out.last_ts) = times
                .fold((Timestamp::MAX, Timestamp::MIN), |(first, last), ts| {
                    (first.min(ts), last.max(ts))
                });
        }
        let end = self.address + self.chunk.len() as u64;
        let indexes = source
            .map(|source| source.indexes.as_slice())
            .unwrap_or_default();
        for index in indexes
            .iter()
            .filter(|index| index.covers(self.address, end))
        {
            if self.load_keys(index, layout, places, columns) {
                let summary = out
                    .indexes
                    .entry(|other| other.index.cmp(&index.id), |_| ());
                columns.summarise(index, summary, |at| {
                    places
                        .get(at as usize)
                        .map_or((0, Timestamp::MIN), |place| {
                            (place.offset, self.ts(own_time, *place))
                        })
                });
            }
        }
    }

    fn ts(&self, own_time: Option<&Layout>, place: Place) -> Timestamp {
        own_time
            .and_then(|layout| layout.own_time(place.payload(self.chunk)))
            .unwrap_or(place.arrival)
    }

    /// Fills the columns with an index's keys. False: a closure that is gone made them, so nobody can.
    fn load_keys(
        &self,
        index: &Index,
        layout: Option<&Layout>,
        places: &[Place],
        columns: &mut Columns,
    ) -> bool {
        columns.clear();
        let payloads = places.iter().map(|place| place.payload(self.chunk));
        let native = self.natives.get(&index.id);
        match (native, layout) {
            (Some(key), _) => {
                for (at, key) in payloads
                    .enumerate()
                    .filter_map(|(at, payload)| Some((at, key(payload)?)))
                {
                    columns.push(at, key);
                }
            }
            (None, Some(layout)) if !index.is_native() => {
                index.keys(layout, payloads, |at, key| columns.push(at, key))
            }
            _ => return false,
        }
        true
    }
}

/// The values of one index in a chunk, column by column, and scratch memory for counting them.
#[derive(Default)]
struct Columns {
    keys: Vec<Key>,
    /// Of each key, which of the source's records holds it.
    at: Vec<u32>,
    /// Counts by bin; zero between uses.
    counts: Vec<u32>,
    /// A bit for each bin whose count is not zero.
    counted: Vec<u64>,
    stats: Vec<Option<BinStats>>,
}

impl Columns {
    fn clear(&mut self) {
        self.keys.clear();
        self.at.clear();
    }

    #[inline]
    fn push(&mut self, at: usize, key: Key) {
        self.keys.push(key);
        self.at.push(at as u32);
    }

    /// `record` gives the offset and `ts` of a record.
    fn summarise(
        &mut self,
        index: &Index,
        out: &mut IndexSummary,
        record: impl Fn(u32) -> (u32, Timestamp),
    ) {
        out.reset(index.id);
        out.count = self.keys.len() as u64;
        out.sum = Sum::of_keys(index.kind, &self.keys);
        out.range = self
            .keys
            .iter()
            .fold(ValueRange::EMPTY, |range, key| ValueRange {
                min: range.min.min(*key),
                max: range.max.max(*key),
            });
        self.keep_greatest(&mut out.tops, |at| record(at).0);
        self.count(&index.bins);
        if !index.bins.is_auto() {
            self.gather_stats(index, |at| record(at).1);
        }
        self.take_bins(out);
    }

    /// Keeps the greatest values, descending, of equal ones those that came first.
    fn keep_greatest(&self, tops: &mut Vec<Top>, offset_of: impl Fn(u32) -> u32) {
        let mut least = None;
        for (key, at) in self.keys.iter().zip(&self.at) {
            if least.is_some_and(|least| *key <= least) {
                continue;
            }
            tops.truncate(TOP_VALUES - 1);
            let place = tops.partition_point(|top| top.key >= *key);
            tops.insert(
                place,
                Top {
                    key: *key,
                    offset: offset_of(*at),
                },
            );
            least = tops.get(TOP_VALUES - 1).map(|top| top.key);
        }
    }

    fn count(&mut self, bins: &BinMap) {
        if self.counts.len() < bins.len() {
            self.counts.resize(bins.len(), 0);
            self.counted.resize(bins.len().div_ceil(64), 0);
        }
        let (counts, counted) = (self.counts.as_mut_slice(), self.counted.as_mut_slice());
        bins.bins(&self.keys, |bin| {
            let bin = usize::from(bin);
            if let (Some(count), Some(word)) = (counts.get_mut(bin), counted.get_mut(bin / 64)) {
                *count += 1;
                *word |= 1 << (bin % 64);
            }
        });
    }

    fn gather_stats(&mut self, index: &Index, ts_of: impl Fn(u32) -> Timestamp) {
        if self.stats.len() < index.bins.len() {
            self.stats.resize(index.bins.len(), None);
        }
        for (key, at) in self.keys.iter().zip(&self.at) {
            let Some(slot) = self.stats.get_mut(usize::from(index.bins.bin(*key))) else {
                continue;
            };
            let (key, ts) = (*key, ts_of(*at));
            let zero = Sum::zero(index.kind);
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
    }

    /// Moves the bins that were counted into `out`, ascending, and leaves the scratch zero.
    fn take_bins(&mut self, out: &mut IndexSummary) {
        for (ordinal, word) in self.counted.iter_mut().enumerate() {
            while *word != 0 {
                let bin = ordinal * 64 + word.trailing_zeros() as usize;
                *word &= *word - 1;
                let count = self
                    .counts
                    .get_mut(bin)
                    .map(std::mem::take)
                    .unwrap_or_default();
                out.bins.push(Bin {
                    bin: bin as u16,
                    count: count.into(),
                    mask: 0,
                });
                out.bin_stats
                    .extend(self.stats.get_mut(bin).and_then(Option::take));
            }
        }
    }
}
