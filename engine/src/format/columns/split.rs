//! Splits the records of a unit's chunks by stream, with their places and arrivals. Their values are gathered later, column by column.

use super::template::Template;
use crate::format::bytes::u64_at;
use crate::format::{CHUNK_TRAILER_BYTES, Run, verify_chunk, walk_runs};
use crate::proven::{at, at_mut};
use crate::types::{Address, SourceId};

/// Keeps its memory from unit to unit.
#[derive(Default)]
pub struct Split {
    pub streams: Vec<Records>,
    /// The stream of each record, in the order of the log.
    pub order: Vec<u64>,
    /// The stored checksum of each chunk; 0 for one that was never written.
    pub checksums: Vec<u32>,
    /// For each chunk, whether it holds anchors besides its first.
    pub has_anchors: Vec<bool>,
    by_source: Vec<Latest>,
    /// Chunks that were split so far.
    chunks: u64,
    /// Streams of earlier units, whose memory is reused.
    spare: Vec<Records>,
}

/// The latest stream of a source.
#[derive(Copy, Clone, Default)]
struct Latest {
    /// The chunk that held it last, as the number of chunks split before it.
    chunk: u64,
    stream: usize,
}

pub struct Records {
    pub template: Template,
    fixed_bytes: usize,
    has_tails: bool,
    /// Rows in each chunk.
    pub counts: Vec<usize>,
    pub arrivals: Vec<u64>,
    /// Offsets of the records from the first chunk.
    pub places: Vec<u32>,
}

impl Split {
    /// Splits whole chunks, which begin at `first`. Returns false if a chunk does not match the templates or the writer's form, or if there are no records.
    pub fn fill(
        &mut self,
        uuid: &[u8; 16],
        first: Address,
        chunks: &[u8],
        chunk_bytes: usize,
        mut template_of: impl FnMut(SourceId, Address) -> Template,
    ) -> bool {
        self.spare.append(&mut self.streams);
        self.order.clear();
        self.checksums.clear();
        self.has_anchors.clear();
        let count = chunks.len() / chunk_bytes;
        let first_chunk = self.chunks + 1;
        for (nth, chunk) in chunks.chunks_exact(chunk_bytes).enumerate() {
            self.chunks += 1;
            let start = nth * chunk_bytes;
            let address = first + start as u64;
            let stored = u64_at(chunk, chunk_bytes - CHUNK_TRAILER_BYTES) as u32;
            let mut has_anchors = false;
            if chunk.iter().any(|byte| *byte != 0) {
                if verify_chunk(uuid, address, chunk).is_err() {
                    return false;
                }
                let (mut fits, mut anchor) = (true, None);
                let walked = walk_runs(chunk, |run| {
                    has_anchors |= *anchor.get_or_insert(run.anchor) != run.anchor;
                    let latest = self.latest(run.source);
                    let stream = match latest.chunk == self.chunks {
                        true => latest.stream,
                        false => {
                            let before = (latest.chunk >= first_chunk).then_some(latest.stream);
                            let template = template_of(run.source, address);
                            self.enter(before, template, count)
                        }
                    };
                    let records = run.records as usize;
                    self.order
                        .extend(std::iter::repeat_n(stream as u64, records));
                    let taken = at_mut(&mut self.streams, stream);
                    fits &= taken.take(nth, start as u32, chunk, &run);
                });
                if walked.is_err() || !fits {
                    return false;
                }
            }
            self.checksums.push(stored);
            self.has_anchors.push(has_anchors);
        }
        !self.streams.is_empty()
    }

    fn latest(&self, source: SourceId) -> Latest {
        let latest = self.by_source.get(usize::from(source.0));
        latest.copied().unwrap_or_default()
    }

    /// Finds or adds the stream of a source with this template in the chunk that is split.
    fn enter(&mut self, latest: Option<usize>, template: Template, chunks: usize) -> usize {
        let source = usize::from(template.source.0);
        let same = latest.filter(|stream| at(&self.streams, *stream).template == template);
        let stream = same.unwrap_or_else(|| {
            let records = match self.spare.pop() {
                Some(spare) => spare.renewed(template, chunks),
                None => Records::of(template, chunks),
            };
            self.streams.push(records);
            self.streams.len() - 1
        });
        if self.by_source.len() <= source {
            self.by_source.resize(source + 1, Latest::default());
        }
        *at_mut(&mut self.by_source, source) = Latest {
            chunk: self.chunks,
            stream,
        };
        stream
    }
}

impl Records {
    pub fn of(template: Template, chunks: usize) -> Records {
        Records {
            fixed_bytes: template.fixed_bytes(),
            has_tails: template.tails() > 0,
            counts: vec![0; chunks],
            arrivals: Vec::new(),
            places: Vec::new(),
            template,
        }
    }

    /// Empties it for another stream and keeps the memory.
    fn renewed(mut self, template: Template, chunks: usize) -> Records {
        self.arrivals.clear();
        self.places.clear();
        Records {
            arrivals: self.arrivals,
            places: self.places,
            ..Records::of(template, chunks)
        }
    }

    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// Appends another stream of the same pieces, without its counts.
    pub fn append(&mut self, other: &Records) {
        self.arrivals.extend_from_slice(&other.arrivals);
        self.places.extend_from_slice(&other.places);
    }

    /// Takes the records of a run in chunk `nth`, which begins at `start`. Returns false if their length does not match the template.
    #[inline]
    fn take(&mut self, nth: usize, start: u32, chunk: &[u8], run: &Run) -> bool {
        *at_mut(&mut self.counts, nth) += run.records as usize;
        let records = 0..run.records;
        let places = records.clone().map(|record| start + run.offset_of(record));
        self.places.extend(places);
        let arrivals = records.map(|record| run.arrival(chunk, record).0 as u64);
        self.arrivals.extend(arrivals);
        match usize::from(run.payload_bytes).checked_sub(self.fixed_bytes) {
            Some(0) => true,
            Some(_) => self.has_tails,
            None => false,
        }
    }
}
