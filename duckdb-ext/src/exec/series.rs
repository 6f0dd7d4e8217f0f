//! Reads the samples of series: threads claim chunks of one directory after the other, and take the non-NULL values of all requested series
//! of all groups in one pass.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom_engine::query::{Batch, Poll, SourcesReader, SourcesScan, UnitChunks};
use loom_engine::schema::Source;
use loom_engine::{TimeRange, Timestamp, proven};

use crate::error::Result;
use crate::plan::stats::ScanEntry;

/// The work that makes another thread worth its start, which takes DuckDB up to a millisecond: reading all series of this many chunks.
const THREAD_CHUNKS: f64 = 16.0;
/// The most chunks that are looked for to estimate the work.
const AHEAD_CHUNKS: u64 = 1024;

/// A requested series.
pub struct Series {
    /// The number of the series: the same for the same directories in the same order.
    pub number: u64,
    pub dir: Arc<str>,
    pub source: Arc<Source>,
    pub field: usize,
}

impl Series {
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &proven::at(&self.source.fields, self.field).series
    }

    pub fn dir(&self) -> &str {
        &self.dir
    }
}

/// The groups of one directory.
pub struct SeriesPart {
    pub scan: Arc<SourcesScan>,
    /// For each group of the scan, its fields and the positions of their series.
    pub groups: Vec<Vec<(usize, usize)>>,
    /// The number of chunks in earlier directories.
    pub chunks_before: u64,
    /// The share of the directory's sources that the call reads, and the share of its series.
    pub shares: [f64; 2],
    pub stats: ScanEntry,
}

/// The state that the threads of one execution share.
pub struct SeriesScan {
    series: Vec<Series>,
    parts: Vec<SeriesPart>,
    range: TimeRange,
    threads: usize,
    /// Parts below this one are handed out.
    turn: AtomicUsize,
}

/// The state of one thread.
#[derive(Default)]
pub struct SeriesReader {
    /// The part that the thread reads, and its reader.
    reader: Option<(usize, SourcesReader)>,
    taken: Taken,
}

/// Samples of one series in one claim.
#[derive(Copy, Clone)]
pub struct Found<'a> {
    /// The position of the series.
    pub place: usize,
    /// The position of the claim among all claims.
    pub batch: u64,
    /// The times, in the bits of `i64`.
    pub times: &'a [u64],
    /// The values, as bits.
    pub values: &'a [u64],
}

/// Samples of one series, if not all rows have one.
#[derive(Default)]
struct Taken {
    batch: u64,
    times: Vec<u64>,
    values: Vec<u64>,
}

impl SeriesPart {
    /// An estimate of the work: 1 for each chunk of which all series are read.
    fn work(&self, poll: &Poll<'_>) -> Result<f64> {
        let ahead = self.scan.look_ahead(AHEAD_CHUNKS, poll)?;
        let chunks = match ahead.more {
            true => self.scan.stats().chunks_total,
            false => ahead.chunks,
        };
        let [sources, series] = self.shares;
        // In units, data that is not requested costs almost nothing; in staging, all data is read.
        let of_columns = 0.02 + 0.2 * sources + series;
        Ok(chunks as f64 * of_columns + ahead.staged as f64 * 0.5)
    }
}

impl SeriesScan {
    /// Looks for the first chunks to read.
    pub fn new(
        series: Vec<Series>,
        parts: Vec<SeriesPart>,
        range: TimeRange,
        poll: &Poll<'_>,
    ) -> Result<SeriesScan> {
        let mut work = 0.0;
        for part in &parts {
            work += part.work(poll)?;
        }
        Ok(SeriesScan {
            series,
            parts,
            range,
            threads: (work / THREAD_CHUNKS).ceil().clamp(1.0, 256.0) as usize,
            turn: AtomicUsize::new(0),
        })
    }

    pub fn series(&self) -> &[Series] {
        &self.series
    }

    /// The number of threads that would find work.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The progress, from 0 to 1.
    pub fn progress(&self) -> f64 {
        let done: f64 = self.parts.iter().map(|part| part.scan.progress()).sum();
        done / self.parts.len().max(1) as f64
    }

    /// Claims the next chunks; returns them with their part and its number.
    fn claim(&self, poll: &Poll<'_>) -> Result<Option<(usize, &SeriesPart, UnitChunks)>> {
        loop {
            let turn = self.turn.load(Ordering::Acquire);
            let Some(part) = self.parts.get(turn) else {
                return Ok(None);
            };
            if let Some(chunks) = part.scan.next(poll)? {
                return Ok(Some((turn, part, chunks)));
            }
            self.turn.fetch_max(turn + 1, Ordering::AcqRel);
        }
    }
}

impl Drop for SeriesScan {
    fn drop(&mut self) {
        for part in &self.parts {
            part.stats.finish(part.scan.stats());
        }
    }
}

impl SeriesReader {
    /// The position of the last claim's samples among all.
    pub fn batch(&self) -> u64 {
        self.taken.batch
    }

    /// Reads the chunks of one more claim; returns false at the end. `each` gets samples of one series at a time; those of one series come
    /// in log order.
    pub fn read(
        &mut self,
        scan: &SeriesScan,
        poll: &Poll<'_>,
        mut each: impl FnMut(Found<'_>),
    ) -> Result<bool> {
        poll.check()?;
        let Some((nth, part, chunks)) = scan.claim(poll)? else {
            return Ok(false);
        };
        self.taken.batch = part.chunks_before + chunks.first.0;
        self.reader.take_if(|(of, _)| *of != nth);
        let (_, reader) = self.reader.get_or_insert_with(|| (nth, part.scan.reader()));
        let taken = &mut self.taken;
        reader.read(chunks, |group, batch| {
            let fields = proven::at(&part.groups, group);
            taken.of_batch(batch, fields, scan.range, &mut each);
        })?;
        Ok(true)
    }
}

impl Taken {
    /// Gives the values of some fields, field by field.
    fn of_batch(
        &mut self,
        rows: Batch<'_>,
        fields: &[(usize, usize)],
        range: TimeRange,
        each: &mut impl FnMut(Found<'_>),
    ) {
        let times = rows.times();
        let is_inside = |time: &u64| range.contains(Timestamp(*time as i64));
        let all_inside = times.iter().all(is_inside);
        for &(field, place) in fields {
            let Some(numbers) = rows.numbers(field) else {
                continue;
            };
            let nulls = rows.nulls(field);
            let is_null = |nth: usize| nulls.as_ref().is_some_and(|nulls| nulls(nth));
            if all_inside && !(0..times.len()).any(is_null) {
                each(Found {
                    place,
                    batch: self.batch,
                    times,
                    values: numbers,
                });
                continue;
            }
            let pairs = times.iter().zip(numbers).enumerate();
            let with_value = pairs
                .filter(|(nth, (time, _))| is_inside(time) && !is_null(*nth))
                .map(|(_, (time, number))| (*time, *number));
            self.give(with_value, place, each);
        }
    }

    fn give(
        &mut self,
        samples: impl Iterator<Item = (u64, u64)>,
        place: usize,
        each: &mut impl FnMut(Found<'_>),
    ) {
        self.times.clear();
        self.values.clear();
        for (time, value) in samples {
            self.times.push(time);
            self.values.push(value);
        }
        if !self.times.is_empty() {
            each(Found {
                place,
                batch: self.batch,
                times: &self.times,
                values: &self.values,
            });
        }
    }
}
