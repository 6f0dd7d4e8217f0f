//! The samples of series: threads claim chunks of one directory after the other and take from them the values of each series that was asked for, of all groups at
//! once, without those that are NULL.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom_engine::query::{Batch, Poll, SourcesReader, SourcesScan, UnitChunks};
use loom_engine::schema::Source;
use loom_engine::{TimeRange, Timestamp, proven};

use crate::error::Result;
use crate::plan::stats::ScanEntry;

/// As much work as reading all series of so many chunks makes a further thread worth its start, which takes DuckDB up to a millisecond.
const THREAD_CHUNKS: f64 = 16.0;
/// What is looked for to say how much work there is.
const AHEAD_CHUNKS: u64 = 1024;

/// A series that was asked for.
pub struct Series {
    /// The same for the same directories in the same order.
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
    /// Of each group of the scan: fields, and the places of their series.
    pub groups: Vec<Vec<(usize, usize)>>,
    /// Chunks of the directories before it.
    pub chunks_before: u64,
    /// The part of the directory's sources that it reads, and the part of its series.
    pub shares: [f64; 2],
    pub stats: ScanEntry,
}

/// What the threads of one execution share.
pub struct SeriesScan {
    series: Vec<Series>,
    parts: Vec<SeriesPart>,
    range: TimeRange,
    threads: usize,
    /// Parts below it are handed out.
    turn: AtomicUsize,
}

/// What one thread holds.
#[derive(Default)]
pub struct SeriesReader {
    /// The part that it reads, and its reader.
    reader: Option<(usize, SourcesReader)>,
    taken: Taken,
}

/// Samples of one series in one claim.
#[derive(Copy, Clone)]
pub struct Found<'a> {
    /// Of the series.
    pub place: usize,
    /// Where the claim stands in the whole.
    pub batch: u64,
    /// In the bits of an `i64`.
    pub times: &'a [u64],
    /// The bits of the values.
    pub values: &'a [u64],
}

/// Samples of one series, where not all rows have one.
#[derive(Default)]
struct Taken {
    batch: u64,
    times: Vec<u64>,
    values: Vec<u64>,
}

impl SeriesPart {
    /// About how much there is to do: 1 for each chunk of which all series are read.
    fn work(&self, poll: &Poll<'_>) -> Result<f64> {
        let ahead = self.scan.look_ahead(AHEAD_CHUNKS, poll)?;
        let chunks = match ahead.more {
            true => self.scan.stats().chunks_total,
            false => ahead.chunks,
        };
        let [sources, series] = self.shares;
        // Of columns, what is not asked for is hardly looked at; of rows, all of it is.
        let of_columns = 0.02 + 0.2 * sources + series;
        Ok(chunks as f64 * of_columns + ahead.staged as f64 * 0.5)
    }
}

impl SeriesScan {
    /// Looks for the first of what is to be read.
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

    /// Threads that would find something to do.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// From 0 to 1.
    pub fn progress(&self) -> f64 {
        let done: f64 = self.parts.iter().map(|part| part.scan.progress()).sum();
        done / self.parts.len().max(1) as f64
    }

    /// The next chunks, and the part that they are of with its number.
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
    /// Where the samples of the last claim stand in the whole.
    pub fn batch(&self) -> u64 {
        self.taken.batch
    }

    /// Reads the chunks of one more claim; false where there is none. `each` gets some samples of a series after the other; those
    /// of one series come in log order.
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
