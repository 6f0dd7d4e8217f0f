//! Exact counts of numbers in the `auto` bins of floats (FORMAT.md, *Bins*): the state of `loom_bins` and `loom_bins_merge` for one group.
//!
//! Invariant: all that can be asked of the state depends on the values alone, never on their order or on how parts were merged.

use std::sync::LazyLock;

use loom_engine::proven::at_mut;
use loom_engine::query::Quantile;
use loom_engine::schema::{BinMap, BinsDef};
use loom_engine::types::{Key, ValueKind};

use crate::error::{Problem, Result};

/// The most values that bins count, so that every count is a BIGINT.
const COUNT_MAX: u64 = i64::MAX as u64;

/// The most bins of a list. It is short enough to be searched fast, and a group of few values costs few bytes.
const LISTED_MAX: usize = 32;

/// An array covers whole octaves, each of which has this many bins.
const OCTAVE: u16 = 32;

static FLOATS: LazyLock<BinMap> = LazyLock::new(|| {
    BinMap::new(&BinsDef::Auto, ValueKind::Float).expect("auto bins have no edges to refuse")
});

pub fn bin_of(key: Key) -> u16 {
    FLOATS.bin(key)
}

/// The greatest bin, which holds 2^64 and everything above it, infinity and NaN.
pub fn last_bin() -> u16 {
    FLOATS.len() as u16 - 1
}

/// The range of the values, and what is known about them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Extent {
    pub least: Key,
    /// NaN is the greatest of all.
    pub greatest: Key,
    /// Whether every value is a whole number.
    pub is_whole: bool,
}

/// Counts of values by bin. Its size is that of an empty group; a group with values owns at most 64 KiB more.
#[derive(Clone, Debug)]
pub struct Bins {
    count: u64,
    extent: Extent,
    counts: Counts,
}

#[derive(Clone, Debug)]
enum Counts {
    /// Bins that hold values, ascending.
    Listed(Vec<(u16, u64)>),
    /// Counts of all bins from `first` on.
    Array { first: u16, counts: Vec<u64> },
}

impl Default for Bins {
    fn default() -> Bins {
        Bins {
            count: 0,
            extent: Extent {
                least: Key::MAX,
                greatest: Key::MIN,
                is_whole: true,
            },
            counts: Counts::Listed(Vec::new()),
        }
    }
}

impl Bins {
    /// Counts a value `times` times.
    ///
    /// # Errors
    /// The bins would count more values than a BIGINT can hold.
    #[inline]
    pub fn add(&mut self, value: f64, times: u64) -> Result<()> {
        if times == 0 {
            return Ok(());
        }
        self.count = total(self.count, times)?;
        let key = Key::from_f64(value);
        self.extent = Extent {
            least: self.extent.least.min(key),
            greatest: self.extent.greatest.max(key),
            is_whole: self.extent.is_whole & is_whole(value),
        };
        self.counts.add(bin_of(key), times);
        Ok(())
    }

    /// Counts all values of `other` too.
    ///
    /// # Errors
    /// As for [`Bins::add`].
    pub fn merge(&mut self, other: &Bins) -> Result<()> {
        self.merge_counts(other.extent, other.counts())
    }

    /// Counts values with this extent that lie in these bins.
    ///
    /// # Errors
    /// As for [`Bins::add`].
    pub fn merge_counts(
        &mut self,
        extent: Extent,
        counts: impl Iterator<Item = (u16, u64)>,
    ) -> Result<()> {
        self.extent = Extent {
            least: self.extent.least.min(extent.least),
            greatest: self.extent.greatest.max(extent.greatest),
            is_whole: self.extent.is_whole && extent.is_whole,
        };
        for (bin, times) in counts {
            self.count = total(self.count, times)?;
            self.counts.add(bin, times);
        }
        Ok(())
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// It means nothing if there are no values.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// The bins that hold values, ascending, with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (u16, u64)> {
        let (listed, first, array): (&[_], u16, &[u64]) = match &self.counts {
            Counts::Listed(listed) => (listed, 0, &[]),
            Counts::Array { first, counts } => (&[], *first, counts),
        };
        let filled = (first..).zip(array.iter().copied());
        let filled = filled.filter(|(_, count)| *count > 0);
        listed.iter().copied().chain(filled)
    }

    /// The middle of the values that the bin of this quantile can hold, or one of the extremes if it is that; `None` without values.
    pub fn quantile(&self, quantile: &Quantile) -> Option<f64> {
        let mut left = quantile.rank(self.count);
        if left == 1 {
            return Some(self.extent.least.to_f64());
        }
        if left == self.count && left > 0 {
            return Some(self.extent.greatest.to_f64());
        }
        let (bin, _) = self.counts().find(|(_, count)| {
            let is_here = left <= *count;
            left = left.saturating_sub(*count);
            is_here
        })?;
        Some(self.middle(bin))
    }

    /// A bin without an outer bound has no middle: its answer is the greatest or least value.
    fn middle(&self, bin: u16) -> f64 {
        let Extent {
            least,
            greatest,
            is_whole,
        } = self.extent;
        if bin == 0 {
            return least.to_f64();
        }
        if bin == last_bin() {
            return greatest.to_f64();
        }
        let low = FLOATS.lower(bin).max(least).to_f64();
        let high = FLOATS.upper(bin).min(greatest).to_f64();
        if is_whole {
            let (low, high) = (low.ceil(), high.floor());
            return low + ((high - low) / 2.0).floor();
        }
        low + (high - low) / 2.0
    }
}

fn total(count: u64, times: u64) -> Result<u64> {
    let total = count.checked_add(times);
    total.filter(|total| *total <= COUNT_MAX).ok_or_else(|| {
        Problem::input(format!(
            "bins cannot count more than {COUNT_MAX} values, and these are {count} and {times}; check the counts, or merge less"
        ))
    })
}

/// Whether a value is a whole number. Those above 2^63 count as others, which changes no answer: their bins are wide.
#[inline]
pub fn is_whole(value: f64) -> bool {
    (value as i64) as f64 == value
}

impl Counts {
    #[inline]
    fn add(&mut self, bin: u16, times: u64) {
        if let Counts::Array { first, counts } = self {
            let place = usize::from(bin.wrapping_sub(*first));
            if let Some(count) = counts.get_mut(place) {
                *count += times;
                return;
            }
        }
        self.add_elsewhere(bin, times);
    }

    /// Counts in a list, or in an array that does not cover the bin yet.
    fn add_elsewhere(&mut self, bin: u16, times: u64) {
        let (least, greatest) = match self {
            Counts::Listed(listed) => match listed.binary_search_by_key(&bin, |(bin, _)| *bin) {
                Ok(place) => return at_mut(listed, place).1 += times,
                Err(place) if listed.len() < LISTED_MAX => {
                    return listed.insert(place, (bin, times));
                }
                Err(_) => {
                    let ends = listed.first().zip(listed.last());
                    ends.map_or((bin, bin), |(first, last)| (first.0, last.0))
                }
            },
            Counts::Array { first, counts } => (*first, *first + (counts.len() as u16 - 1)),
        };
        let first = least.min(bin) / OCTAVE * OCTAVE;
        let octaves = (greatest.max(bin) - first) / OCTAVE + 1;
        let mut wider = vec![0; usize::from(octaves * OCTAVE)];
        let mut put = |bin: u16, times| *at_mut(&mut wider, usize::from(bin - first)) += times;
        match self {
            Counts::Listed(listed) => listed.iter().for_each(|(bin, times)| put(*bin, *times)),
            Counts::Array { first, counts } => (*first..)
                .zip(counts)
                .for_each(|(bin, times)| put(bin, *times)),
        }
        put(bin, times);
        *self = Counts::Array {
            first,
            counts: wider,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bins_of(values: &[f64]) -> Bins {
        let mut bins = Bins::default();
        for &value in values {
            bins.add(value, 1).unwrap();
        }
        bins
    }

    fn ask(bins: &Bins, q: f64) -> f64 {
        bins.quantile(&Quantile::new(q).unwrap()).unwrap()
    }

    /// The value at the quantile by sorting.
    fn oracle(values: &[f64], q: f64) -> f64 {
        let mut sorted = values.to_vec();
        sorted.sort_by_key(|value| Key::from_f64(*value));
        let rank = Quantile::new(q).unwrap().rank(values.len() as u64);
        sorted[rank as usize - 1]
    }

    #[test]
    fn no_value_has_no_quantile() {
        let bins = Bins::default();
        assert_eq!(bins.quantile(&Quantile::new(0.5).unwrap()), None);
        assert_eq!((bins.count(), bins.counts().count()), (0, 0));
    }

    #[test]
    fn a_single_value_and_small_whole_numbers_are_exact() {
        for value in [
            0.0,
            1.5,
            -7e-9,
            1e30,
            -1e30,
            f64::INFINITY,
            f64::MAX,
            1e-300,
        ] {
            assert_eq!(ask(&bins_of(&[value; 3]), 0.5), value);
        }
        assert!(ask(&bins_of(&[f64::NAN]), 0.5).is_nan());
        let whole: Vec<f64> = (-64..=64).map(f64::from).collect();
        for q in [0.0, 0.1, 0.37, 0.5, 0.9, 1.0] {
            assert_eq!(ask(&bins_of(&whole), q), oracle(&whole, q), "{q}");
        }
    }

    #[test]
    fn values_without_a_bin_of_their_own_are_answered_by_the_extremes() {
        let values = [
            f64::NEG_INFINITY,
            -1e300,
            -1.0,
            0.0,
            1.0,
            1e20,
            f64::INFINITY,
            f64::NAN,
        ];
        let bins = bins_of(&values);
        assert_eq!(ask(&bins, 0.25), f64::NEG_INFINITY);
        assert_eq!(ask(&bins, 0.5), 0.0);
        assert!(ask(&bins, 0.75).is_nan());
        assert_eq!(ask(&bins_of(&values[..7]), 0.8), f64::INFINITY);
    }

    #[test]
    fn more_values_than_a_bigint_are_an_error_and_change_nothing() {
        let mut bins = bins_of(&[1.0]);
        let message = bins.add(2.0, COUNT_MAX).unwrap_err().to_string();
        assert!(message.contains("9223372036854775807"), "{message}");
        assert_eq!(bins.counts().count(), 1);
        bins.add(2.0, COUNT_MAX - 1).unwrap();
        assert_eq!(bins.count(), COUNT_MAX);
        assert!(bins.merge(&bins_of(&[1.0])).is_err());
    }

    #[test]
    fn an_array_takes_at_most_64_kib_and_some_octaves() {
        let mut bins = Bins::default();
        for exponent in -70..70 {
            for value in [2f64.powi(exponent), -(2f64.powi(exponent))] {
                bins.add(value, 1).unwrap();
            }
        }
        let Counts::Array { counts, .. } = &bins.counts else {
            panic!("{bins:?}");
        };
        assert!(counts.len() <= 8192 + 32, "{}", counts.len());
    }

    fn nasty() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<f64>(),
            any::<i32>().prop_map(f64::from),
            (-70i32..70, 1.0f64..2.0).prop_map(|(exponent, m)| m * 2f64.powi(exponent)),
            (-70i32..70, 1.0f64..2.0).prop_map(|(exponent, m)| -m * 2f64.powi(exponent)),
            (0u8..100).prop_map(f64::from),
            prop_oneof![Just(0.0), Just(-0.0), Just(f64::NAN), Just(f64::INFINITY)],
        ]
    }

    proptest! {
        #[test]
        fn a_quantile_is_near_the_value_of_its_rank(
            values in prop::collection::vec(nasty(), 1..200), q in 0.0f64..=1.0,
        ) {
            let (answer, exact) = (ask(&bins_of(&values), q), oracle(&values, q));
            if exact.abs() < 2f64.powi(64) {
                let error = (answer - exact).abs();
                prop_assert!(error <= exact.abs() / 64.0 + 2f64.powi(-63), "{answer} for {exact}");
            } else {
                let is_beyond = answer.is_nan() || answer.abs() >= 2f64.powi(64);
                prop_assert!(is_beyond, "{answer} for {exact}");
            }
        }

        #[test]
        fn bins_do_not_depend_on_the_order_of_merging(
            values in prop::collection::vec((nasty(), 0usize..4), 0..300), turn in 0usize..4,
        ) {
            let mut parts: Vec<Bins> = (0..4).map(|_| Bins::default()).collect();
            for &(value, part) in &values {
                parts[part].add(value, 1).unwrap();
            }
            parts.rotate_left(turn);
            let mut merged = Bins::default();
            parts.iter().for_each(|part| merged.merge(part).unwrap());
            let all: Vec<f64> = values.iter().map(|(value, _)| *value).collect();
            let whole = bins_of(&all);
            prop_assert_eq!(merged.extent(), whole.extent());
            prop_assert_eq!(merged.count(), whole.count());
            prop_assert!(merged.counts().eq(whole.counts()));
            let mut naive = std::collections::BTreeMap::new();
            for value in all {
                *naive.entry(bin_of(Key::from_f64(value))).or_insert(0) += 1;
            }
            prop_assert!(merged.counts().eq(naive));
        }
    }
}
