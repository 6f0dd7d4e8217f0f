//! A running `loom_series_aggregate`: each thread gathers what its claims hold of each series, bucket by bucket; the last one that finds no claim gives what all of
//! them gathered.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use loom_engine::query::{Bucket, Poll};
use loom_engine::{Sum, TimeRange, Timestamp, ValueKind, proven};

use super::series::{Found, SeriesReader, SeriesScan};
use super::vectors::{CAPACITY, Output, Plain, RawVectors};
use crate::error::{Problem, Result};

/// The most rows of one call: they are held until the last one is known.
const ROWS_MAX: usize = 1 << 24;
/// Of so many buckets that are merged, whether the query was interrupted is looked at once.
const POLL_EACH: usize = 1 << 14;

/// A column of the answer.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum SeriesColumn {
    Bucket,
    Labels,
    Count,
    Sum,
    Min,
    Max,
    Avg,
    Last,
    Dir,
}

/// What the threads of one execution share.
pub struct SeriesAggregateRun {
    scan: SeriesScan,
    bucket: Option<Bucket>,
    /// What each column of the output shows; `None`: DuckDB made it up.
    shown: Vec<Option<SeriesColumn>>,
    gathered: Mutex<Gathered>,
}

#[derive(Default)]
struct Gathered {
    /// Threads that may hold more.
    working: usize,
    /// Of those that are done.
    series: Gathering,
}

/// What one thread holds.
pub struct SeriesAggregateWorker {
    /// `None`: there is nothing left to read.
    reader: Option<SeriesReader>,
    /// What it gives: the place of a series, and one of its buckets.
    rows: Rows,
}

/// Series by their place, and the buckets of each, ascending.
type Rows = Box<dyn Iterator<Item = (usize, Totals)> + Send>;

/// For each series, by its place, its buckets, by their first time.
#[derive(Default)]
struct Gathering {
    series: Vec<BTreeMap<Timestamp, Totals>>,
    rows: usize,
}

/// The samples of one series in one bucket.
#[derive(Clone, Copy)]
struct Totals {
    times: TimeRange,
    count: u64,
    sum: Sum,
    /// NaN is the greatest value, as in SQL.
    min: f64,
    max: f64,
    /// The time of the latest sample, the batch that it is of, and its value: of those with one time, the last in the log.
    last: (Timestamp, u64, f64),
}

impl SeriesAggregateRun {
    pub fn new(
        scan: SeriesScan,
        bucket: Option<Bucket>,
        shown: Vec<Option<SeriesColumn>>,
    ) -> SeriesAggregateRun {
        SeriesAggregateRun {
            scan,
            bucket,
            shown,
            gathered: Mutex::default(),
        }
    }

    pub fn threads(&self) -> usize {
        self.scan.threads()
    }

    /// From 0 to 1.
    pub fn progress(&self) -> f64 {
        self.scan.progress()
    }

    pub fn worker(&self) -> SeriesAggregateWorker {
        SeriesAggregateWorker {
            reader: Some(SeriesReader::default()),
            rows: Box::new(std::iter::empty()),
        }
    }

    fn gathered(&self) -> std::sync::MutexGuard<'_, Gathered> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SeriesAggregateWorker {
    /// Writes up to a vector of rows. 0: none are left, or another thread gives them.
    pub fn fill<V: RawVectors>(
        &mut self,
        run: &SeriesAggregateRun,
        out: &mut Output<'_, V>,
        poll: &Poll<'_>,
    ) -> Result<usize> {
        if let Some(reader) = self.reader.take() {
            self.rows = gather(run, reader, poll)?;
        }
        let rows: Vec<(usize, Totals)> = self.rows.by_ref().take(CAPACITY).collect();
        let series = |place: usize| proven::at(run.scan.series(), place);
        for (position, shown) in run.shown.iter().enumerate() {
            let Some(shown) = shown else {
                continue;
            };
            match shown {
                SeriesColumn::Bucket => put(out, position, &rows, |totals| {
                    let bucket = run
                        .bucket
                        .expect("a column of buckets is of a call with buckets");
                    bucket.start_us(totals.times.first)
                })?,
                SeriesColumn::Labels => {
                    let runs = rows.chunk_by(|one, next| one.0 == next.0);
                    let labels = |run: &[(usize, Totals)]| {
                        let place = run.first().map(|(place, _)| *place)?;
                        Some((run.len(), series(place).labels()))
                    };
                    out.maps(position, &runs.filter_map(labels).collect::<Vec<_>>())?;
                }
                SeriesColumn::Count => put(out, position, &rows, |totals| totals.count as i64)?,
                SeriesColumn::Sum => put(out, position, &rows, |totals| totals.sum.to_f64())?,
                // -0.0 and 0.0 are equal, and which came first depends on the threads: both are shown as 0.0.
                SeriesColumn::Min => put(out, position, &rows, |totals| totals.min + 0.0)?,
                SeriesColumn::Max => put(out, position, &rows, |totals| totals.max + 0.0)?,
                SeriesColumn::Avg => put(out, position, &rows, |totals| {
                    totals.sum.to_f64() / totals.count as f64
                })?,
                SeriesColumn::Last => put(out, position, &rows, |totals| totals.last.2)?,
                SeriesColumn::Dir => {
                    out.texts(position, rows.iter().map(|row| (1, series(row.0).dir())))?;
                }
            }
        }
        Ok(rows.len())
    }
}

/// Reads what is left to read. All rows, where this is the last thread that does.
fn gather(run: &SeriesAggregateRun, mut reader: SeriesReader, poll: &Poll<'_>) -> Result<Rows> {
    // Before the first claim: who finds none and works alone knows that all claims are done.
    run.gathered().working += 1;
    let mut own = Gathering::default();
    while reader.read(&run.scan, poll, |found| own.add(run.bucket, found))? {
        own.check()?;
    }
    let mut gathered = run.gathered();
    gathered.series.absorb(own, poll)?;
    gathered.series.check()?;
    gathered.working -= 1;
    if gathered.working > 0 {
        return Ok(Box::new(std::iter::empty()));
    }
    let all = std::mem::take(&mut gathered.series).series;
    let of_series = |(place, buckets): (usize, BTreeMap<Timestamp, Totals>)| {
        buckets.into_values().map(move |totals| (place, totals))
    };
    Ok(Box::new(all.into_iter().enumerate().flat_map(of_series)))
}

impl Gathering {
    fn check(&self) -> Result<()> {
        match self.rows {
            ..=ROWS_MAX => Ok(()),
            rows => Err(Problem::input(format!(
                "{rows} rows and more are too many for one call: {ROWS_MAX} are allowed; give a longer bucket, a shorter window or fewer series"
            ))),
        }
    }

    /// The bucket of a series that holds a time; it may have been made just now, without a sample.
    fn bucket_at(
        &mut self,
        place: usize,
        time: Timestamp,
        range_of: impl Fn(Timestamp) -> TimeRange,
    ) -> &mut Totals {
        if self.series.len() <= place {
            self.series.resize_with(place + 1, BTreeMap::new);
        }
        let buckets = proven::at_mut(&mut self.series, place);
        let range = match buckets.range(..=time).next_back() {
            Some((_, totals)) if totals.times.contains(time) => totals.times,
            _ => {
                self.rows += 1;
                range_of(time)
            }
        };
        let bucket = buckets.entry(range.first);
        bucket.or_insert_with(|| Totals::none(range))
    }

    fn add(&mut self, bucket: Option<Bucket>, found: Found<'_>) {
        let range_of = |time| bucket.map_or(TimeRange::ALL, |bucket: Bucket| bucket.range_of(time));
        let (mut times, mut values) = (found.times, found.values);
        while let Some(first) = times.first() {
            let totals = self.bucket_at(found.place, Timestamp(*first as i64), range_of);
            let range = totals.times;
            let is_outside = |time: &u64| !range.contains(Timestamp(*time as i64));
            let count = times.iter().position(is_outside).unwrap_or(times.len());
            let (here, later) = times.split_at(count);
            let (of_here, of_later) = values.split_at(count);
            totals.add(found.batch, here, of_here);
            (times, values) = (later, of_later);
        }
    }

    fn absorb(&mut self, other: Gathering, poll: &Poll<'_>) -> Result<()> {
        if self.series.is_empty() {
            *self = other;
            return Ok(());
        }
        for (place, buckets) in other.series.into_iter().enumerate() {
            for (nth, totals) in buckets.into_values().enumerate() {
                if nth % POLL_EACH == 0 {
                    poll.check()?;
                }
                let own = self.bucket_at(place, totals.times.first, |_| totals.times);
                own.merge(&totals);
            }
        }
        Ok(())
    }
}

impl Totals {
    fn none(times: TimeRange) -> Totals {
        Totals {
            times,
            count: 0,
            sum: Sum::zero(ValueKind::Float),
            min: f64::NAN,
            max: f64::NEG_INFINITY,
            last: (Timestamp::MIN, 0, f64::NAN),
        }
    }

    fn add(&mut self, batch: u64, times: &[u64], values: &[u64]) {
        self.count += values.len() as u64;
        for (time, bits) in times.iter().zip(values) {
            let value = f64::from_bits(*bits);
            self.sum.add_float(value);
            self.bound(value, value);
            self.newest((Timestamp(*time as i64), batch, value));
        }
    }

    fn merge(&mut self, other: &Totals) {
        self.count += other.count;
        self.sum.merge(&other.sum);
        self.bound(other.min, other.max);
        self.newest(other.last);
    }

    fn bound(&mut self, min: f64, max: f64) {
        if min < self.min || self.min.is_nan() {
            self.min = min;
        }
        if max > self.max || max.is_nan() {
            self.max = max;
        }
    }

    fn newest(&mut self, other: (Timestamp, u64, f64)) {
        if (other.0, other.1) >= (self.last.0, self.last.1) {
            self.last = other;
        }
    }
}

fn put<T: Plain, V: RawVectors>(
    out: &mut Output<'_, V>,
    position: usize,
    rows: &[(usize, Totals)],
    value: impl Fn(&Totals) -> T,
) -> Result<()> {
    let column = out.column::<T>(position, 0, rows.len())?;
    for (entry, (_, totals)) in column.iter_mut().zip(rows) {
        entry.write(value(totals));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLES: u64 = 200_000;

    /// Adds a sample for each of these seconds, its value the second.
    fn gathered(seconds: impl Iterator<Item = u64>) -> Gathering {
        let bucket = Bucket::nanos(1_000_000_000);
        let mut gathering = Gathering::default();
        for second in seconds {
            gathering.add(
                Some(bucket),
                Found {
                    place: 0,
                    batch: second,
                    times: &[second * 1_000_000_000],
                    values: &[(second as f64).to_bits()],
                },
            );
        }
        gathering
    }

    /// As many buckets as samples: each takes its place without moving the others, or this takes minutes.
    #[test]
    fn many_buckets_in_any_order_become_ascending_rows() {
        let poll = Poll::never();
        let mut all = gathered((0..SAMPLES).rev().filter(|second| second % 2 == 0));
        all.absorb(
            gathered((0..SAMPLES).filter(|second| second % 3 == 0)),
            &poll,
        )
        .unwrap();
        assert_eq!(all.rows, all.series[0].len());
        let found: Vec<(i64, u64, f64)> = all.series[0]
            .values()
            .map(|totals| (totals.times.first.0, totals.count, totals.sum.to_f64()))
            .collect();
        let expected: Vec<(i64, u64, f64)> = (0..SAMPLES)
            .map(|second| {
                (
                    second,
                    u64::from(second % 2 == 0) + u64::from(second % 3 == 0),
                )
            })
            .filter(|(_, count)| *count > 0)
            .map(|(second, count)| {
                (
                    second as i64 * 1_000_000_000,
                    count,
                    (second * count) as f64,
                )
            })
            .collect();
        assert_eq!(found, expected);
    }
}
