//! Summarises a sealed chunk: its records are grouped by source as runs, and then each (source, index) takes a few tight loops over a
//! column.
//!
//! The same functions serve the append path, where the chunk is still in the core's cache, recovery and `ingestd check`, so a summary
//! always agrees with the records. Scratch lists are reused, so a chunk costs no allocation.

use std::sync::Arc;

use crate::format::{FormatError, NodeSummary, Run, SourceSummary, walk_runs};
use crate::proven::{at, at_mut};
use crate::schema::{Catalog, Index, Layout, Payloads};
use crate::types::{Address, ChunkNo, SourceId, Timestamp};

use super::columns::Columns;
use super::native::Natives;

/// The latest chunk of each source, by source id. The chain of chunks links back to these.
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
        *at_mut(&mut self.0, at) = Some(chunk);
    }
}

/// The records of one source in the chunk, in log order.
#[derive(Debug, Default)]
struct Group {
    source: u16,
    runs: Vec<Run>,
}

/// Groups the records of a chunk and summarises them. One summariser serves any number of chunks.
#[derive(Default)]
pub struct Summariser {
    /// Groups in the order in which sources first appear. Those from `group_count` on are left over from earlier chunks.
    groups: Vec<Group>,
    group_count: usize,
    /// By source id: 1 + its place in `groups`, or 0 if the chunk does not hold the source yet.
    group_of: Vec<u32>,
    columns: Columns,
    /// The `ts` of each record of a source.
    times: Vec<Timestamp>,
}

impl Summariser {
    /// Fills `out` with the summary of chunk `chunk_no`, whose bytes are `chunk`, and advances `latest`. If the bytes are not a chunk, it
    /// returns the error and does not advance `latest`.
    pub fn summarise(
        &mut self,
        catalog: &Catalog,
        natives: &Natives,
        latest: &mut LatestChunks,
        chunk_no: ChunkNo,
        chunk: &[u8],
        out: &mut NodeSummary,
    ) -> Result<(), FormatError> {
        self.forget();
        walk_runs(chunk, |run| self.gather(run))?;
        self.summarise_gathered(catalog, natives, latest, chunk_no, chunk, out);
        Ok(())
    }

    /// As `summarise`, for a chunk whose runs are known.
    pub fn summarise_runs(
        &mut self,
        catalog: &Catalog,
        natives: &Natives,
        latest: &mut LatestChunks,
        chunk_no: ChunkNo,
        (chunk, runs): (&[u8], &[Run]),
        out: &mut NodeSummary,
    ) {
        self.forget();
        runs.iter().for_each(|run| self.gather(*run));
        self.summarise_gathered(catalog, natives, latest, chunk_no, chunk, out);
    }

    fn summarise_gathered(
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
        let groups = at_mut(&mut self.groups, ..self.group_count);
        if !groups.is_sorted_by_key(|group| group.source) {
            groups.sort_unstable_by_key(|group| group.source);
        }
        for group in groups {
            let source = SourceId(group.source);
            let summary = out.sources.push();
            let (columns, times) = (&mut self.columns, &mut self.times);
            of_chunk.summarise_source(source, &group.runs, columns, times, summary);
            summary.previous_chunk = latest.get(source);
            latest.set(source, chunk_no);
            out.records += summary.records;
            out.first_arrival = out.first_arrival.min(summary.first_arrival);
            out.last_arrival = out.last_arrival.max(summary.last_arrival);
        }
    }

    #[inline]
    fn gather(&mut self, run: Run) {
        match self.group_of.get(usize::from(run.source.0)).copied() {
            Some(known @ 1..) => {
                let group = at_mut(&mut self.groups, known as usize - 1);
                group.runs.push(run);
            }
            _ => self.begin_group(run),
        }
    }

    #[cold]
    fn begin_group(&mut self, run: Run) {
        let id = usize::from(run.source.0);
        if id >= self.group_of.len() {
            self.group_of.resize(id + 1, 0);
        }
        if self.group_count == self.groups.len() {
            self.groups.push(Group::default());
        }
        let group = at_mut(&mut self.groups, self.group_count);
        group.source = run.source.0;
        group.runs.clear();
        group.runs.push(run);
        self.group_count += 1;
        *at_mut(&mut self.group_of, id) = self.group_count as u32;
    }

    /// Clears the state of the previous chunk.
    fn forget(&mut self) {
        for group in self.groups.iter().take(self.group_count) {
            *at_mut(&mut self.group_of, usize::from(group.source)) = 0;
        }
        self.group_count = 0;
    }
}

/// The chunk that is being summarised, and the meaning of its bytes.
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
        runs: &[Run],
        columns: &mut Columns,
        times: &mut Vec<Timestamp>,
        out: &mut SourceSummary,
    ) {
        let source = self.catalog.source(id).map(Arc::as_ref);
        let layout = source.map(|source| source.layout_at(self.address).as_ref());
        let own_time = layout.filter(|layout| layout.has_own_time());
        out.reset(id, own_time.is_some());
        for run in runs {
            out.records += u64::from(run.records);
            out.bytes += u64::from(run.records) * run.entry_bytes() as u64;
        }
        if let (Some(first), Some(last)) = (runs.first(), runs.last()) {
            let latest = last.records - 1;
            (out.first, out.last) = (first.offset, last.offset_of(latest));
            out.first_arrival = first.arrival(self.chunk, 0);
            out.last_arrival = last.arrival(self.chunk, latest);
        }
        let end = self.address + self.chunk.len() as u64;
        let indexes = || {
            source
                .into_iter()
                .flat_map(|source| &source.indexes)
                .filter(|index| index.covers(self.address, end))
        };
        times.clear();
        if own_time.is_some() || indexes().any(|index| !index.bins.is_auto()) {
            self.load_times(own_time, runs, times);
        }
        (out.first_ts, out.last_ts) = (out.first_arrival, out.last_arrival);
        if own_time.is_some() {
            let extremes = times.iter().min().zip(times.iter().max());
            let (first, last) = extremes.expect("a group has a record");
            (out.first_ts, out.last_ts) = (*first, *last);
        }
        for index in indexes() {
            if self.load_keys(index, layout, runs, columns) {
                let summary = out
                    .indexes
                    .entry(|other| other.index.cmp(&index.id), |_| ());
                columns.summarise(
                    index,
                    summary,
                    |holder| offset_of(runs, holder),
                    |holder| *at(times, holder as usize),
                );
            }
        }
    }

    /// Loads the own time of each record, or its arrival time if the source has none.
    fn load_times(&self, own_time: Option<&Layout>, runs: &[Run], times: &mut Vec<Timestamp>) {
        for run in runs {
            let payloads = (0u32..).zip(Payloads::of_run(run, self.chunk).iter());
            times.extend(payloads.map(|(nth, payload)| {
                own_time
                    .and_then(|layout| layout.own_time(payload))
                    .unwrap_or_else(|| run.arrival(self.chunk, nth))
            }));
        }
    }

    /// Fills the columns with an index's keys. Returns false if the index was made by a closure that no longer exists.
    fn load_keys(
        &self,
        index: &Index,
        layout: Option<&Layout>,
        runs: &[Run],
        columns: &mut Columns,
    ) -> bool {
        columns.clear();
        let native = self.natives.get(&index.id);
        let layout = match (native, layout) {
            (Some(_), _) => layout,
            (None, Some(layout)) if !index.is_native() => {
                let payloads = runs.iter().map(|run| Payloads::of_run(run, self.chunk));
                if index.load_keys(layout, payloads, columns.keys()) {
                    return true;
                }
                columns.clear();
                Some(layout)
            }
            _ => return false,
        };
        let payloads = runs
            .iter()
            .flat_map(|run| Payloads::of_run(run, self.chunk).iter());
        for (holder, payload) in (0u32..).zip(payloads) {
            let key = match native {
                Some(key) => key(payload),
                None => layout.and_then(|layout| index.key(layout, payload)),
            };
            if let Some(key) = key {
                columns.push(holder, key);
            }
        }
        true
    }
}

/// The offset in the chunk of a source's record, by its number among them.
fn offset_of(runs: &[Run], mut nth: u32) -> u32 {
    for run in runs {
        if nth < run.records {
            return run.offset_of(nth);
        }
        nth -= run.records;
    }
    unreachable!("the records end {nth} before the one that was asked for")
}
