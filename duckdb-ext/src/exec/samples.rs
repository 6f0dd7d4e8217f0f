//! A running `loom_samples` or `loom_series`: threads read the samples of one claim after the other, and return them in runs, each of one
//! series.

use std::ops::Range;
use std::sync::Arc;

use loom_engine::proven;
use loom_engine::query::Poll;

use super::run::{Run, Worker};
use super::series::{Found, SeriesReader, SeriesScan};
use super::vectors::{CAPACITY, Output, Plain};
use crate::error::Result;
use crate::plan::time::micros;

/// A column of samples.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SampleColumn {
    /// The number of the series.
    Series,
    Ts,
    TsNs,
    Value,
    Labels,
    Dir,
}

/// The state that the threads of one execution share.
pub struct SamplesRun {
    scan: SeriesScan,
    /// The content of each output column; `None` if DuckDB made it up.
    shown: Vec<Option<SampleColumn>>,
}

/// The state of one thread.
struct SamplesWorker {
    run: Arc<SamplesRun>,
    reader: SeriesReader,
    found: Samples,
}

/// Samples that were read and not all returned.
#[derive(Default)]
struct Samples {
    /// The position of a series, and the end of its samples.
    runs: Vec<(usize, usize)>,
    times: Vec<u64>,
    values: Vec<u64>,
    given: usize,
    /// The first run that is not returned completely.
    run: usize,
}

impl SamplesRun {
    pub fn new(scan: SeriesScan, shown: Vec<Option<SampleColumn>>) -> SamplesRun {
        SamplesRun { scan, shown }
    }
}

impl Run for SamplesRun {
    fn threads(&self) -> usize {
        self.scan.threads()
    }

    fn progress(&self) -> f64 {
        self.scan.progress()
    }

    fn worker(self: Arc<Self>) -> Box<dyn Worker> {
        Box::new(SamplesWorker {
            run: self,
            reader: SeriesReader::default(),
            found: Samples::default(),
        })
    }
}

impl Worker for SamplesWorker {
    fn batch(&self) -> u64 {
        self.reader.batch()
    }

    /// Writes at most one vector of rows, all of one claim, and returns their number; 0 at the end.
    fn fill(&mut self, out: &mut Output<'_>, poll: &Poll<'_>) -> Result<usize> {
        let run = &*Arc::clone(&self.run);
        let found = &mut self.found;
        while found.left() == 0 {
            found.clear();
            if !self.reader.read(&run.scan, poll, |more| found.take(more))? {
                return Ok(0);
            }
        }
        let (rows, runs) = found.next_vector();
        let series = |place: usize| proven::at(run.scan.series(), place);
        for (position, shown) in run.shown.iter().enumerate() {
            let times = proven::at(&found.times, rows.clone());
            match shown {
                Some(SampleColumn::Series) => {
                    let mut from = 0;
                    for &(place, rows) in &runs {
                        let number = series(place).number;
                        for entry in out.column::<u64>(position, from, rows)? {
                            entry.write(number);
                        }
                        from += rows;
                    }
                }
                Some(SampleColumn::Ts) => put(out, position, times, |time| micros(*time as i64))?,
                Some(SampleColumn::TsNs) => put(out, position, times, |time| *time)?,
                Some(SampleColumn::Value) => {
                    let values = proven::at(&found.values, rows.clone());
                    put(out, position, values, |value| *value)?;
                }
                Some(SampleColumn::Labels) => {
                    let labels = |(place, rows): &(usize, usize)| (*rows, series(*place).labels());
                    out.maps(position, &runs.iter().map(labels).collect::<Vec<_>>())?;
                }
                Some(SampleColumn::Dir) => {
                    let dirs = |(place, rows): &(usize, usize)| (*rows, series(*place).dir());
                    out.texts(position, runs.iter().map(dirs))?;
                }
                None => {}
            }
        }
        Ok(rows.len())
    }
}

impl Samples {
    fn left(&self) -> usize {
        self.values.len() - self.given
    }

    fn clear(&mut self) {
        self.runs.clear();
        self.times.clear();
        self.values.clear();
        self.given = 0;
        self.run = 0;
    }

    fn take(&mut self, found: Found<'_>) {
        self.times.extend_from_slice(found.times);
        self.values.extend_from_slice(found.values);
        self.runs.push((found.place, self.values.len()));
    }

    /// The next samples that fit into a vector: their range, and how many belong to which series.
    fn next_vector(&mut self) -> (Range<usize>, Vec<(usize, usize)>) {
        let start = self.given;
        let end = start + self.left().min(CAPACITY);
        let mut runs = Vec::new();
        while self.given < end
            && let Some((place, run_end)) = self.runs.get(self.run)
        {
            let upto = end.min(*run_end);
            runs.push((*place, upto - self.given));
            self.given = upto;
            self.run += usize::from(upto == *run_end);
        }
        (start..end, runs)
    }
}

fn put<S, T: Plain>(
    out: &mut Output<'_>,
    position: usize,
    from: &[S],
    value: impl Fn(&S) -> T,
) -> Result<()> {
    let column = out.column::<T>(position, 0, from.len())?;
    for (entry, from) in column.iter_mut().zip(from) {
        entry.write(value(from));
    }
    Ok(())
}
