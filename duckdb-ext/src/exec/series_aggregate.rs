//! A running `loom_series_aggregate`: each thread aggregates its claims by group and bucket. The last thread that finds no more claims
//! returns the rows of all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loom_engine::query::{Bucket, Poll};
use loom_engine::{Sum, TimeRange, Timestamp, ValueKind, proven};

use super::run::{Run, Worker};
use super::series::{Found, SeriesReader, SeriesScan};
use super::series_groups::SeriesGroups;
use super::vectors::{CAPACITY, Output, Plain};
use crate::error::{Problem, Result};

/// The most rows of one call, which are held until the last one is known.
const ROWS_MAX: usize = 1 << 24;
/// An interrupt is checked once in this many merged buckets.
const POLL_EACH: usize = 1 << 14;

/// A column of the result.
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

/// The state that the threads of one execution share.
pub struct SeriesAggregateRun {
    scan: SeriesScan,
    groups: SeriesGroups,
    bucket: Option<Bucket>,
    /// The content of each output column; `None` if DuckDB made it up.
    shown: Vec<Option<SeriesColumn>>,
    pool: Pool,
}

/// The pool in which threads merge their rows.
struct Pool {
    rows_most: usize,
    /// The number of rows that all threads and the pool hold.
    held: AtomicUsize,
    state: Mutex<PoolState>,
}

#[derive(Default)]
struct PoolState {
    /// The number of threads that may hold more.
    working: usize,
    gathered: Gathering,
}

/// The state of one thread.
struct SeriesAggregateWorker {
    run: Arc<SeriesAggregateRun>,
    /// The reader; `None` after the end.
    reader: Option<SeriesReader>,
    /// The rows to return: groups, each with one of its buckets.
    rows: Rows,
}

/// Groups with their buckets, ascending.
type Rows = Box<dyn Iterator<Item = (usize, Totals)> + Send>;

/// The state of each group.
#[derive(Default)]
struct Gathering {
    groups: Vec<Buckets>,
    rows: usize,
    /// The number of these rows that the pool counts.
    counted: usize,
}

/// The buckets of a group.
#[derive(Default)]
struct Buckets {
    /// The bucket of the latest sample, which most likely also holds the next one.
    current: Option<Totals>,
    /// The other buckets, by their first time.
    others: BTreeMap<Timestamp, Totals>,
}

/// The samples of one group in one bucket.
#[derive(Clone, Copy)]
struct Totals {
    times: TimeRange,
    count: u64,
    sum: Sum,
    /// NaN is the greatest value, as in SQL.
    min: f64,
    max: f64,
    last: Latest,
}

/// The latest sample. Among samples of one time, the last series counts; among those of one series, the last in the log.
#[derive(Clone, Copy)]
struct Latest {
    time: Timestamp,
    /// The position of its series.
    place: usize,
    /// The claim that holds the sample.
    batch: u64,
    value: f64,
}

impl SeriesAggregateRun {
    pub fn new(
        scan: SeriesScan,
        groups: SeriesGroups,
        bucket: Option<Bucket>,
        shown: Vec<Option<SeriesColumn>>,
    ) -> SeriesAggregateRun {
        SeriesAggregateRun {
            scan,
            groups,
            bucket,
            shown,
            pool: Pool::new(ROWS_MAX),
        }
    }
}

impl Run for SeriesAggregateRun {
    fn threads(&self) -> usize {
        self.scan.threads()
    }

    fn progress(&self) -> f64 {
        self.scan.progress()
    }

    fn worker(self: Arc<Self>) -> Box<dyn Worker> {
        Box::new(SeriesAggregateWorker {
            run: self,
            reader: Some(SeriesReader::default()),
            rows: Box::new(std::iter::empty()),
        })
    }
}

impl Worker for SeriesAggregateWorker {
    /// Writes at most one vector of rows, and returns their number; 0 at the end, or if another thread returns the rows.
    fn fill(&mut self, out: &mut Output<'_>, poll: &Poll<'_>) -> Result<usize> {
        let run = &*Arc::clone(&self.run);
        if let Some(reader) = self.reader.take() {
            self.rows = gather(run, reader, poll)?;
        }
        let rows: Vec<(usize, Totals)> = self.rows.by_ref().take(CAPACITY).collect();
        let all = run.scan.series();
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
                    let labels = |of_one: &[(usize, Totals)]| {
                        let (group, _) = *of_one.first()?;
                        Some((of_one.len(), run.groups.labels(all, group)))
                    };
                    out.maps(position, &runs.filter_map(labels).collect::<Vec<_>>())?;
                }
                SeriesColumn::Count => put(out, position, &rows, |totals| totals.count as i64)?,
                SeriesColumn::Sum => put(out, position, &rows, |totals| totals.sum.to_f64())?,
                // -0.0 and 0.0 are equal, and the threads' timing decides which comes first, so both are shown as 0.0.
                SeriesColumn::Min => put(out, position, &rows, |totals| totals.min + 0.0)?,
                SeriesColumn::Max => put(out, position, &rows, |totals| totals.max + 0.0)?,
                SeriesColumn::Avg => put(out, position, &rows, |totals| {
                    totals.sum.to_f64() / totals.count as f64
                })?,
                SeriesColumn::Last => put(out, position, &rows, |totals| totals.last.value)?,
                SeriesColumn::Dir => {
                    // This column exists only if each series is a group.
                    let dirs = rows.iter().map(|row| (1, proven::at(all, row.0).dir()));
                    out.texts(position, dirs)?;
                }
            }
        }
        Ok(rows.len())
    }
}

/// Reads the rest. Returns all rows if this is the last thread to finish.
fn gather(run: &SeriesAggregateRun, mut reader: SeriesReader, poll: &Poll<'_>) -> Result<Rows> {
    // The thread registers before its first claim: if it finds none and works alone, all claims are done.
    run.pool.begin();
    let mut own = Gathering::default();
    let add = |own: &mut Gathering, found: Found<'_>| {
        own.add(run.groups.group_of(found.place), run.bucket, found);
    };
    while reader.read(&run.scan, poll, |found| add(&mut own, found))? {
        run.pool.count(&mut own, poll)?;
    }
    let all = run.pool.end(own, poll)?.groups;
    let of_group = |(group, buckets): (usize, Buckets)| {
        let ascending = buckets.into_ascending();
        ascending.map(move |totals| (group, totals))
    };
    Ok(Box::new(all.into_iter().enumerate().flat_map(of_group)))
}

impl Pool {
    fn new(rows_most: usize) -> Pool {
        Pool {
            rows_most,
            held: AtomicUsize::new(0),
            state: Mutex::default(),
        }
    }

    /// Registers another thread.
    fn begin(&self) {
        self.state().working += 1;
    }

    /// Counts the rows that a thread added. If all threads together hold too many, the thread's rows move to the pool, where rows that
    /// several threads hold become one.
    fn count(&self, own: &mut Gathering, poll: &Poll<'_>) -> Result<()> {
        let more = own.rows - own.counted;
        own.counted = own.rows;
        // The counter needs no ordering: the lock orders the rows themselves.
        if self.held.fetch_add(more, Ordering::Relaxed) + more > self.rows_most {
            self.absorb(&mut self.state(), std::mem::take(own), poll)?;
        }
        Ok(())
    }

    /// Ends a thread. The last one gets all rows, the others none.
    fn end(&self, mut own: Gathering, poll: &Poll<'_>) -> Result<Gathering> {
        self.count(&mut own, poll)?;
        let mut state = self.state();
        self.absorb(&mut state, own, poll)?;
        state.working -= 1;
        Ok(match state.working {
            0 => std::mem::take(&mut state.gathered),
            _ => Gathering::default(),
        })
    }

    /// Takes rows that are already counted.
    fn absorb(&self, state: &mut PoolState, own: Gathering, poll: &Poll<'_>) -> Result<()> {
        let apart = own.rows + state.gathered.rows;
        state.gathered.absorb(own, poll)?;
        let rows = state.gathered.rows;
        self.held.fetch_sub(apart - rows, Ordering::Relaxed);
        if rows <= self.rows_most {
            return Ok(());
        }
        Err(Problem::input(format!(
            "{rows} rows and more are too many for one call: {} are allowed; give a longer bucket, a shorter window, fewer series, or by",
            self.rows_most
        )))
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gathering {
    /// The bucket of a group that holds a time; it may be new and without a sample.
    fn bucket_at(
        &mut self,
        group: usize,
        time: Timestamp,
        range_of: impl Fn(Timestamp) -> TimeRange,
    ) -> &mut Totals {
        if self.groups.len() <= group {
            self.groups.resize_with(group + 1, Buckets::default);
        }
        let buckets = proven::at_mut(&mut self.groups, group);
        let is_of_it = |current: &Totals| current.times.contains(time);
        if !buckets.current.as_ref().is_some_and(is_of_it) {
            buckets.put_back();
            let before = buckets.others.range(..=time).next_back();
            let known = before.filter(|(_, totals)| is_of_it(totals));
            let first = known.map(|(first, _)| *first);
            buckets.current = first.and_then(|first| buckets.others.remove(&first));
            self.rows += usize::from(first.is_none());
        }
        buckets
            .current
            .get_or_insert_with(|| Totals::none(range_of(time)))
    }

    fn add(&mut self, group: usize, bucket: Option<Bucket>, found: Found<'_>) {
        let range_of = |time| bucket.map_or(TimeRange::ALL, |bucket: Bucket| bucket.range_of(time));
        let (mut times, mut values) = (found.times, found.values);
        while let Some(first) = times.first() {
            let totals = self.bucket_at(group, Timestamp(*first as i64), range_of);
            let range = totals.times;
            let is_outside = |time: &u64| !range.contains(Timestamp(*time as i64));
            let count = times.iter().position(is_outside).unwrap_or(times.len());
            let (here, later) = times.split_at(count);
            let (of_here, of_later) = values.split_at(count);
            totals.add(Found {
                times: here,
                values: of_here,
                ..found
            });
            (times, values) = (later, of_later);
        }
    }

    fn absorb(&mut self, other: Gathering, poll: &Poll<'_>) -> Result<()> {
        if self.groups.is_empty() {
            *self = other;
            return Ok(());
        }
        for (group, buckets) in other.groups.into_iter().enumerate() {
            for (nth, totals) in buckets.into_ascending().enumerate() {
                if nth % POLL_EACH == 0 {
                    poll.check()?;
                }
                let own = self.bucket_at(group, totals.times.first, |_| totals.times);
                own.merge(&totals);
            }
        }
        Ok(())
    }
}

impl Buckets {
    fn put_back(&mut self) {
        if let Some(current) = self.current.take() {
            self.others.insert(current.times.first, current);
        }
    }

    fn into_ascending(mut self) -> impl Iterator<Item = Totals> {
        self.put_back();
        self.others.into_values()
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
            last: Latest {
                time: Timestamp::MIN,
                place: 0,
                batch: 0,
                value: f64::NAN,
            },
        }
    }

    fn add(&mut self, found: Found<'_>) {
        self.count += found.values.len() as u64;
        for (time, bits) in found.times.iter().zip(found.values) {
            let value = f64::from_bits(*bits);
            self.sum.add_float(value);
            self.bound(value, value);
            self.newest(Latest {
                time: Timestamp(*time as i64),
                place: found.place,
                batch: found.batch,
                value,
            });
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

    fn newest(&mut self, other: Latest) {
        let order = |latest: &Latest| (latest.time, latest.place, latest.batch);
        if order(&other) >= order(&self.last) {
            self.last = other;
        }
    }
}

fn put<T: Plain>(
    out: &mut Output<'_>,
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

    /// Adds a sample for each of these seconds, with the second as its value.
    fn gathered(seconds: impl Iterator<Item = u64>) -> Gathering {
        let bucket = Bucket::nanos(1_000_000_000);
        let mut gathering = Gathering::default();
        for second in seconds {
            gathering.add(
                0,
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

    /// A bucket that several threads hold counts once, however often it enters the pool.
    #[test]
    fn the_rows_of_all_threads_together_are_limited() {
        let poll = Poll::never();
        let found = |rows_most: usize| {
            let pool = Pool::new(rows_most);
            let halves = [0..70, 30..100];
            halves.iter().for_each(|_| pool.begin());
            let mut rows = 0;
            for seconds in halves {
                let mut own = Gathering::default();
                for second in seconds.clone().chain(seconds) {
                    own.absorb(gathered(std::iter::once(second)), &poll)
                        .unwrap();
                    pool.count(&mut own, &poll)?;
                }
                rows += pool.end(own, &poll)?.rows;
            }
            assert_eq!(pool.held.load(Ordering::Relaxed), rows);
            Ok(rows)
        };
        assert_eq!(found(1000), Ok(100));
        assert_eq!(found(100), Ok(100));
        let problem: Problem = found(99).unwrap_err();
        assert!(problem.to_string().starts_with("100 rows and more"));
    }

    /// Each of as many buckets as samples must find its place without moving the others, or this test takes minutes.
    #[test]
    fn many_buckets_in_any_order_become_ascending_rows() {
        let poll = Poll::never();
        let mut all = gathered((0..SAMPLES).rev().filter(|second| second % 2 == 0));
        all.absorb(
            gathered((0..SAMPLES).filter(|second| second % 3 == 0)),
            &poll,
        )
        .unwrap();
        let rows = all.rows;
        let group = all.groups.into_iter().next().unwrap();
        let found: Vec<(i64, u64, f64)> = group
            .into_ascending()
            .map(|totals| (totals.times.first.0, totals.count, totals.sum.to_f64()))
            .collect();
        assert_eq!(rows, found.len());
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
