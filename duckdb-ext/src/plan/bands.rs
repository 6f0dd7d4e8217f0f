//! Bands of consecutive bins, for pictures and comparisons: few rows with exact counts.

use loom_engine::schema::BinMap;
use loom_engine::{Key, ValueKind, ValueRange};

/// Bands of consecutive bins. The number of bins in a band is a power of two, so edges stay where they are as values arrive.
pub struct Bands {
    bins: BinMap,
    /// The number of bins in a band.
    width: u32,
    /// The bin where some band begins: with `auto` bins, one that begins at a power of two.
    origin: u16,
}

impl Bands {
    /// Chooses the width at which at most `most` bands hold all of `filled`, the ascending bins with a value.
    pub fn new(bins: &BinMap, filled: &[u16], most: u64) -> Bands {
        let octave = match bins.kind() {
            ValueKind::Unsigned => Key::from_u64(32),
            ValueKind::Signed => Key::from_i64(32),
            ValueKind::Float => Key::from_f64(32.0),
        };
        let mut bands = Bands {
            origin: if bins.is_auto() { bins.bin(octave) } else { 1 },
            bins: bins.clone(),
            width: 1,
        };
        while bands.count(filled) > most {
            bands.width *= 2;
            if bands.width as usize >= bins.len() {
                // One band holds all bins, wherever the others would begin.
                bands.origin = 0;
            }
        }
        bands
    }

    /// The number of bands that hold at least one of these bins.
    fn count(&self, filled: &[u16]) -> u64 {
        filled
            .chunk_by(|one, other| self.of(*one) == self.of(*other))
            .count() as u64
    }

    /// The band of a bin.
    pub fn of(&self, bin: u16) -> i64 {
        (i64::from(bin) - i64::from(self.origin)).div_euclid(i64::from(self.width))
    }

    /// Whether the bands of these ascending bins have edges of their own.
    pub fn are_closed(&self, filled: &[u16]) -> bool {
        let start = |bin: Option<&u16>, after| bin.map(|bin| self.start(self.of(*bin) + after));
        start(filled.first(), 0) != Some(None) && start(filled.last(), 1) != Some(None)
    }

    /// The edges of a band: from, inclusive, to, exclusive. A band without an upper edge of its own ends just above the greatest value of
    /// `held`, apart from NaN and infinity, which nothing exceeds.
    pub fn edges(&self, band: i64, held: ValueRange) -> (f64, f64) {
        let lower = self.start(band).unwrap_or(held.min);
        let upper = match self.start(band + 1) {
            Some(end) => self.number(end),
            None => match (self.bins.kind(), self.number(held.max)) {
                (ValueKind::Float, greatest) if greatest.is_finite() => greatest.next_up(),
                (ValueKind::Float, _) => f64::INFINITY,
                (_, greatest) => (greatest + 1.0).max(greatest.next_up()),
            },
        };
        (self.number(lower), upper)
    }

    /// The least key of a band; `None` if it has no end below, or lies above all bins.
    pub fn start(&self, band: i64) -> Option<Key> {
        let bin = i64::from(self.origin) + band * i64::from(self.width);
        let bin = u16::try_from(bin).ok().filter(|bin| *bin > 0)?;
        (usize::from(bin) < self.bins.len()).then(|| self.bins.lower(bin))
    }

    /// A key as a number.
    pub fn number(&self, key: Key) -> f64 {
        match self.bins.kind() {
            ValueKind::Unsigned => key.to_u64() as f64,
            ValueKind::Signed => key.to_i64() as f64,
            ValueKind::Float => key.to_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use loom_engine::schema::BinsDef;

    fn bands(values: [u64; 2], most: u64) -> Vec<(f64, f64)> {
        let bins = BinMap::new(&BinsDef::Auto, ValueKind::Unsigned).unwrap();
        let [min, max] = values.map(Key::from_u64);
        let filled: Vec<u16> = (bins.bin(min)..=bins.bin(max)).collect();
        let bands = Bands::new(&bins, &filled, most);
        let of = |key| bands.of(bins.bin(key));
        (of(min)..=of(max))
            .map(|band| bands.edges(band, ValueRange { min, max }))
            .collect()
    }

    // case SQL: loom_heat
    #[test]
    fn one_band_holds_values_of_both_signs() {
        let bins = BinMap::new(&BinsDef::Auto, ValueKind::Float).unwrap();
        let [min, max] = [-300.0, f64::NAN].map(Key::from_f64);
        let filled = [min, max].map(|key| bins.bin(key));
        let bands = Bands::new(&bins, &filled, 1);
        let band = bands.of(bins.bin(min));
        assert_eq!(band, bands.of(bins.bin(max)));
        assert_eq!(
            bands.edges(band, ValueRange { min, max }),
            (-300.0, f64::INFINITY)
        );
    }

    #[test]
    fn one_value_far_away_leaves_the_bands_of_the_others_as_they_are() {
        let bins = BinMap::new(&BinsDef::Auto, ValueKind::Float).unwrap();
        let near: Vec<f64> = (10..60).map(f64::from).collect();
        let width = |values: &[f64]| {
            let mut filled: Vec<u16> = values
                .iter()
                .map(|value| bins.bin(Key::from_f64(*value)))
                .collect();
            filled.sort_unstable();
            filled.dedup();
            Bands::new(&bins, &filled, 40).width
        };
        assert_eq!(width(&near), width(&[&near[..], &[f64::INFINITY]].concat()));
    }

    // case SQL: loom_heat
    #[test]
    fn bands_are_few_follow_each_other_and_keep_their_edges() {
        for most in [1, 2, 9, 40, 1000] {
            let some = bands([1000, 900_000], most);
            assert!(some.len() as u64 <= most, "{} of {most}", some.len());
            assert!(some[0].0 <= 1000.0 && some[some.len() - 1].1 > 900_000.0);
            assert!(some.windows(2).all(|pair| pair[0].1 == pair[1].0));
        }
        let greatest = bands([5, u64::MAX], 3);
        assert!(greatest[greatest.len() - 1].1 > u64::MAX as f64);
        let (before, after) = (bands([1000, 600_000], 40), bands([1000, 650_000], 40));
        assert!(before.iter().all(|band| after.contains(band)));
    }
}
