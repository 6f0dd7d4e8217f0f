//! Compares new samples with the latest ones: a sender with several connections sends a series in any order, and each
//! sample is stored once.
//!
//! A series takes a sample that is at most a window older than its newest. Older samples are forgotten, and further ones when memory is full. A series
//! refuses every sample that is as old as a forgotten one, so nothing is stored twice. [`super::GroupStore`] owns the windows of a target, and first adds the
//! samples that an earlier run has stored.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Slot;

pub(super) const OLDER: &str = "the sample is older than the one before";
pub(super) const LATE: &str = "the sample is older than its series' newest by more than [otlp] out_of_order; raise it, or send sooner";
const SEVERAL: &str = "a series has several values within a millisecond";

/// Enough for 10,000 series, each with a sample a second for seven minutes. A sample takes 16 bytes, and at most as many are free beside it.
const SAMPLES_MAX: usize = 4 << 20;

/// Counts the samples in the windows of several targets.
pub(in crate::metrics) struct Memory {
    samples: AtomicUsize,
    samples_max: usize,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            samples: AtomicUsize::new(0),
            samples_max: SAMPLES_MAX,
        }
    }
}

impl Memory {
    /// True if it is time to forget idle series.
    pub(in crate::metrics) fn is_scarce(&self) -> bool {
        self.samples() > self.samples_max / 2
    }

    // A count guards no other data, so its order does not matter.
    fn samples(&self) -> usize {
        self.samples.load(Ordering::Relaxed)
    }

    fn resize(&self, before: usize, after: usize) {
        match after.checked_sub(before) {
            Some(more) => self.samples.fetch_add(more, Ordering::Relaxed),
            None => self.samples.fetch_sub(before - after, Ordering::Relaxed),
        };
    }
}

/// The windows of all series of a target.
pub(super) struct Windows {
    length_ms: i64,
    memory: Arc<Memory>,
    series: HashMap<Slot, Window>,
    /// For each group, the time from which all stored samples were added.
    read_from_ms: HashMap<usize, i64>,
}

/// The known samples of one series; at least one.
struct Window {
    /// Times in milliseconds, ascending, and the bits of the values.
    samples: VecDeque<(i64, u64)>,
    /// Older samples are forgotten.
    from_ms: i64,
    /// Nothing came since [`Windows::forget_idle`].
    is_idle: bool,
}

impl Windows {
    pub(super) fn new(length: Duration, memory: Arc<Memory>) -> Windows {
        Windows {
            length_ms: i64::try_from(length.as_millis()).unwrap_or(i64::MAX),
            memory,
            series: HashMap::new(),
            read_from_ms: HashMap::new(),
        }
    }

    /// The times of each group whose stored samples must be read and added before these samples are compared.
    pub(super) fn unread(
        &self,
        samples: impl Iterator<Item = (Slot, i64)>,
    ) -> BTreeMap<usize, Range<i64>> {
        let mut unread: BTreeMap<usize, Range<i64>> = BTreeMap::new();
        for (slot, time_ms) in samples {
            let read_from_ms = self.read_from_ms.get(&slot.group);
            let read_from_ms = read_from_ms.copied().unwrap_or(i64::MAX);
            let window = self.series.get(&slot);
            if time_ms < read_from_ms && window.is_none_or(|window| time_ms >= window.from_ms) {
                // One more window, so that late samples seldom make it be read again.
                let from_ms = time_ms.saturating_sub(self.length_ms);
                let range = unread.entry(slot.group).or_insert(from_ms..read_from_ms);
                range.start = range.start.min(from_ms);
            }
        }
        unread
    }

    /// All stored samples of a group from this time on were added.
    pub(super) fn is_read(&mut self, group: usize, from_ms: i64) {
        self.read_from_ms.insert(group, from_ms);
    }

    /// Says whether a sample is new, or why it is refused.
    pub(super) fn is_new(
        &self,
        slot: Slot,
        time_ms: i64,
        value: f64,
    ) -> Result<bool, &'static str> {
        let Some(window) = self.series.get(&slot) else {
            return Ok(true);
        };
        match window.at(time_ms) {
            Some(bits) if bits == value.to_bits() => Ok(false),
            Some(_) => Err(SEVERAL),
            None if time_ms >= window.from_ms => Ok(true),
            None if self.length_ms == 0 => Err(OLDER),
            None => Err(LATE),
        }
    }

    /// Remembers a stored sample.
    pub(super) fn add(&mut self, slot: Slot, time_ms: i64, value: f64) {
        let window = self.series.entry(slot).or_insert_with(|| Window {
            samples: VecDeque::new(),
            from_ms: i64::MIN,
            is_idle: false,
        });
        window.is_idle = false;
        let before = window.samples.len();
        window.insert(time_ms, value.to_bits());
        window.forget_before(window.newest_ms().saturating_sub(self.length_ms));
        let held = self.memory.samples() + window.samples.len() - before;
        window.forget_oldest(held.saturating_sub(self.memory.samples_max));
        self.memory.resize(before, window.samples.len());
    }

    /// Forgets all but the newest sample of each series that got nothing since the previous call.
    pub(super) fn forget_idle(&mut self) {
        for window in self.series.values_mut() {
            let before = window.samples.len();
            if window.is_idle {
                window.forget_oldest(before);
            }
            window.is_idle = true;
            self.memory.resize(before, window.samples.len());
        }
    }

    /// Forgets everything, also the times that were read.
    pub(super) fn clear(&mut self) {
        let held = self.series.values().map(|window| window.samples.len());
        self.memory.resize(held.sum(), 0);
        self.series.clear();
        self.read_from_ms.clear();
    }
}

impl Drop for Windows {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Window {
    fn newest_ms(&self) -> i64 {
        self.samples
            .back()
            .map_or(i64::MIN, |(time_ms, _)| *time_ms)
    }

    fn at(&self, time_ms: i64) -> Option<u64> {
        let found = self.samples.binary_search_by_key(&time_ms, |held| held.0);
        self.samples.get(found.ok()?).map(|(_, bits)| *bits)
    }

    fn insert(&mut self, time_ms: i64, bits: u64) {
        if time_ms < self.from_ms {
            return;
        }
        let found = self.samples.binary_search_by_key(&time_ms, |held| held.0);
        if let Err(at) = found {
            if self.samples.len() == self.samples.capacity() {
                self.samples.reserve_exact(1 + self.samples.len() / 4);
            }
            self.samples.insert(at, (time_ms, bits));
        }
    }

    fn forget_before(&mut self, from_ms: i64) {
        let count = self
            .samples
            .partition_point(|(time_ms, _)| *time_ms < from_ms);
        self.forget_oldest(count);
        self.from_ms = self.from_ms.max(from_ms);
    }

    /// Forgets `count` samples, but never the newest.
    fn forget_oldest(&mut self, count: usize) {
        let count = count.min(self.samples.len().saturating_sub(1));
        if let Some((last_ms, _)) = self.samples.drain(..count).next_back() {
            self.from_ms = self.from_ms.max(last_ms + 1);
        }
        let held = self.samples.len();
        if self.samples.capacity() > 2 * held + 8 {
            self.samples.shrink_to(1 + held + held / 4);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const LENGTH_MS: i64 = 100;

    /// The stored samples of each series: times and values.
    type Stored = BTreeMap<Slot, BTreeMap<i64, u64>>;

    fn slot(nth: usize) -> Slot {
        Slot {
            group: nth / 2,
            field: nth % 2,
        }
    }

    fn windows(samples_max: usize) -> Windows {
        let memory = Memory {
            samples: AtomicUsize::new(0),
            samples_max,
        };
        Windows::new(Duration::from_millis(LENGTH_MS as u64), Arc::new(memory))
    }

    /// The oracle: compares a sample with everything that is stored.
    fn naive(stored: &Stored, slot: Slot, time_ms: i64, value: f64) -> Result<bool, &'static str> {
        let Some(stored) = stored.get(&slot) else {
            return Ok(true);
        };
        let newest_ms = *stored.keys().next_back().unwrap();
        match stored.get(&time_ms) {
            _ if time_ms < newest_ms - LENGTH_MS => Err(LATE),
            Some(bits) if *bits == value.to_bits() => Ok(false),
            Some(_) => Err(SEVERAL),
            None => Ok(true),
        }
    }

    fn read(windows: &mut Windows, stored: &Stored, samples: &[(Slot, i64, f64)]) {
        let samples = samples.iter().map(|(slot, time_ms, _)| (*slot, *time_ms));
        for (group, times) in windows.unread(samples) {
            let of_group = stored.iter().filter(|(slot, _)| slot.group == group);
            for (slot, stored) in of_group {
                // The newest first, as a scan gives them.
                for (time_ms, bits) in stored.range(times.clone()).rev() {
                    windows.add(*slot, *time_ms, f64::from_bits(*bits));
                }
            }
            windows.is_read(group, times.start);
        }
    }

    /// A restart of the daemon before the samples, and the samples.
    type Batch = (bool, Vec<(Slot, i64, f64)>);

    /// Batches in a row, some after a restart.
    fn batches() -> impl Strategy<Value = Vec<Batch>> {
        let sample = (0..6_usize, 0..300_i64, 0..2_u8);
        let batch = (proptest::bool::weighted(0.2), vec(sample, 1..20));
        vec(batch, 1..30).prop_map(|batches| {
            let batches = (0..).zip(batches);
            let later = |(nth, (restarts, samples)): (i64, (bool, Vec<_>))| {
                let samples = samples.into_iter();
                let samples = samples.map(|(series, time_ms, value): (usize, i64, u8)| {
                    (slot(series), nth * 15 + time_ms, f64::from(value))
                });
                (restarts, samples.collect())
            };
            batches.map(later).collect()
        })
    }

    proptest! {
        // case Metrics: points out of order, sent again, after a restart
        #[test]
        fn a_sample_is_taken_as_a_look_at_all_that_is_stored_says(batches in batches()) {
            let (mut stored, mut known) = (Stored::new(), windows(SAMPLES_MAX));
            for (restarts, samples) in batches {
                if restarts {
                    known.clear();
                }
                read(&mut known, &stored, &samples);
                for (slot, time_ms, value) in samples {
                    let found = known.is_new(slot, time_ms, value);
                    prop_assert_eq!(found, naive(&stored, slot, time_ms, value));
                    if found == Ok(true) {
                        known.add(slot, time_ms, value);
                        stored.entry(slot).or_default().insert(time_ms, value.to_bits());
                    }
                }
            }
        }

        // case Metrics: points out of order, sent again, after a restart
        #[test]
        fn whatever_is_forgotten_nothing_is_stored_twice(batches in batches()) {
            let (mut stored, mut known) = (Stored::new(), windows(12));
            for (forgets, samples) in batches {
                if forgets {
                    known.forget_idle();
                }
                read(&mut known, &stored, &samples);
                for (slot, time_ms, value) in samples {
                    let naively = naive(&stored, slot, time_ms, value);
                    match known.is_new(slot, time_ms, value) {
                        Ok(true) => {
                            prop_assert_eq!(naively, Ok(true));
                            known.add(slot, time_ms, value);
                            stored.entry(slot).or_default().insert(time_ms, value.to_bits());
                        }
                        Err(LATE) => {}
                        other => prop_assert_eq!(other, naively),
                    }
                    // The newest sample of each series is known.
                    let newest_ms = stored.get(&slot).map(|stored| *stored.keys().next_back().unwrap());
                    prop_assert_eq!(known.series.get(&slot).map(Window::newest_ms), newest_ms);
                }
                let held: usize = known.series.values().map(|window| window.samples.len()).sum();
                prop_assert_eq!(known.memory.samples(), held);
                prop_assert!(held <= 12 + known.series.len());
            }
            let memory = Arc::clone(&known.memory);
            drop(known);
            prop_assert_eq!(memory.samples(), 0);
        }
    }

    // case Metrics: points out of order, sent again, after a restart
    #[test]
    fn ten_thousand_series_with_a_sample_a_second_take_no_more_than_64_mib() {
        let mut known = Windows::new(Duration::from_secs(300), Arc::default());
        for second in 0..320 {
            for nth in 0..10_000 {
                known.add(slot(nth), second * 1000, 1.0);
            }
        }
        assert_eq!(known.memory.samples(), 10_000 * 301);
        let room = known
            .series
            .values()
            .map(|window| window.samples.capacity());
        let bytes = room.sum::<usize>() * size_of::<(i64, u64)>();
        assert!(bytes <= 64 << 20, "{bytes}");
    }

    #[test]
    fn a_series_that_gets_nothing_any_more_makes_room() {
        let mut known = windows(100);
        for time_ms in 0..90 {
            known.add(slot(0), time_ms, 1.0);
        }
        assert!(known.memory.is_scarce());
        known.forget_idle();
        for time_ms in 0..40 {
            known.add(slot(1), time_ms, 1.0);
        }
        // Ninety of the first, so there is no room for the first thirty of the second.
        assert_eq!(known.is_new(slot(1), 20, 1.0), Err(LATE));
        known.forget_idle();
        assert_eq!(known.memory.samples(), 1 + 10);
        assert_eq!(known.is_new(slot(0), 88, 1.0), Err(LATE));
        assert_eq!(known.is_new(slot(0), 89, 1.0), Ok(false));
        assert!(!known.memory.is_scarce());
    }
}
