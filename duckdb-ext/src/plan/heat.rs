//! `loom_heat`: the number of values of an index in each cell of time and value, for pictures. A cell covers whole bins of an index in one
//! bucket of time, so its count is exact, and the cells stay the same as the window moves.

use loom_engine::query::{Histogram, HistogramRow, HistogramSpec, Poll, aggregate_together};
use loom_engine::schema::BinMap;
use loom_engine::{Key, TimeRange, ValueKind, ValueRange};

use super::agreement;
use super::bucketed;
use super::buckets::{Buckets, POINTS_DEFAULT};
use super::columns::columns;
use super::function::Function;
use super::parameters::{
    AT, BANDS, BUCKET, COMPLETE, DIR, FILTER, INDEX, LAST, PARTIAL, POINTS, SOURCE, T_FROM, T_TO,
};
use super::part::{self, Aggregated, Part};
use super::selection::Selection;
use super::types::SqlType;
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;

const BANDS_DEFAULT: u64 = 40;
/// The greatest number of bins that an index can have.
const BANDS_MOST: u64 = 65_536;

pub const FUNCTION: Function = Function {
    name: "loom_heat",
    description: "The number of values of an index of a source in each cell of time and value, for a heat map: from t1 to t2, from lower to upper. Empty cells are omitted.",
    columns: "`t1`, `t2`, `lower`, `upper`, `count`",
    examples: &[
        "FROM loom_heat('telemetry.loom', 'requests', 'latency', last := INTERVAL 1 HOUR, points := 200)",
    ],
    positional: &[DIR, SOURCE, INDEX],
    named: &[
        T_FROM, T_TO, LAST, FILTER, BUCKET, POINTS, PARTIAL, BANDS, AT, COMPLETE,
    ],
    bind: |arguments, ambient| {
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        agreement::bins(&parts)?;
        let most = arguments.count("bands")?.unwrap_or(BANDS_DEFAULT);
        if !(1..=BANDS_MOST).contains(&most) {
            return Err(Problem::binder(format!(
                "bands must be from 1 to {BANDS_MOST}: it is {most}"
            )));
        }
        for part in &parts {
            part.chosen
                .required_values("loom_rate counts records without one")?;
        }
        let buckets = Buckets::bind(arguments, Some(POINTS_DEFAULT))?;
        let columns = columns(&[
            ("t1", SqlType::TimestampTz),
            ("t2", SqlType::TimestampTz),
            ("lower", SqlType::F64),
            ("upper", SqlType::F64),
            ("count", SqlType::I64),
        ]);
        Ok(bucketed::bound(
            selection,
            buckets,
            columns,
            move |parts, window, ambient| {
                agreement::bins(parts)?;
                let (time, bucket) = window.bucketed();
                let poll = Poll::new(ambient.stop);
                let threads = (ambient.threads)();
                let asked = part::indexed(parts)?;
                let histogram = |time, bucket| {
                    let spec = HistogramSpec {
                        time,
                        bucket,
                        threads,
                    };
                    Histogram::new(&asked, spec)
                };
                // The bands depend on the window alone, so a filter changes no edge.
                let held = values_held(parts, window.asked, threads, &poll)?;
                let mut whole = histogram(window.asked, None)?;
                let mut bins = Vec::new();
                while let Some(rows) = whole.next(&poll)? {
                    bins.extend(rows.iter().map(|row| row.bin));
                }
                let bands = Bands::new(whole.bins(), held, &bins, most);
                let mut histogram = histogram(time, Some(bucket))?;
                histogram.keep(&window.kept);
                Ok(Box::new(move |poll: &Poll<'_>| {
                    let Some(rows) = histogram.next(poll)? else {
                        return Ok(None);
                    };
                    let place = |row: &HistogramRow| (row.bucket, bands.of(row.bin));
                    let cells = rows.chunk_by(|one, other| place(one) == place(other));
                    let cells = cells.filter_map(|rows| {
                        let (start, band) = place(rows.first()?);
                        let (lower, upper) = bands.edges(band);
                        Some(vec![
                            Cell::Int(bucket.start_us(start?).into()),
                            Cell::Int(bucket.end_us(start?).into()),
                            Cell::Float(lower),
                            Cell::Float(upper),
                            Cell::from(rows.iter().map(|row| row.count).sum::<u64>()),
                        ])
                    });
                    Ok(Some(cells.collect()))
                }))
            },
        ))
    },
};

/// The least and the greatest value in the window.
fn values_held(
    parts: &[Part],
    time: TimeRange,
    threads: usize,
    poll: &Poll<'_>,
) -> Result<ValueRange> {
    let asked = Aggregated {
        time,
        bucket: None,
        quantiles: &[],
        approx: false,
        threads,
    };
    let rows = aggregate_together(&asked.of(parts)?, poll)?;
    let range = rows.first().and_then(|row| row.min.zip(row.max));
    Ok(range.map_or(ValueRange::EMPTY, |(min, max)| ValueRange { min, max }))
}

/// Bands of consecutive bins. The number of bins in a band is a power of two, so edges stay where they are as values arrive.
struct Bands {
    bins: BinMap,
    held: ValueRange,
    /// The number of bins in a band.
    width: u32,
    /// The bin where some band begins: with `auto` bins, one that begins at a power of two.
    origin: u16,
}

impl Bands {
    /// Chooses the width at which at most `most` bands hold all of `filled`, the ascending bins with a value.
    fn new(bins: &BinMap, held: ValueRange, filled: &[u16], most: u64) -> Bands {
        let octave = match bins.kind() {
            ValueKind::Unsigned => Key::from_u64(32),
            ValueKind::Signed => Key::from_i64(32),
            ValueKind::Float => Key::from_f64(32.0),
        };
        let mut bands = Bands {
            origin: if bins.is_auto() { bins.bin(octave) } else { 1 },
            bins: bins.clone(),
            held,
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

    fn of(&self, bin: u16) -> i64 {
        (i64::from(bin) - i64::from(self.origin)).div_euclid(i64::from(self.width))
    }

    /// The edges of a band: from, inclusive, to, exclusive. A band without an upper edge of its own ends just above the greatest value,
    /// apart from NaN and infinity, which nothing exceeds.
    fn edges(&self, band: i64) -> (f64, f64) {
        let first = i64::from(self.origin) + band * i64::from(self.width);
        let begins = |bin: i64| {
            let bin = u16::try_from(bin).ok().filter(|bin| *bin > 0)?;
            (usize::from(bin) < self.bins.len()).then(|| self.bins.lower(bin))
        };
        let lower =
            begins(first).map_or_else(|| self.number(self.held.min), |key| self.number(key));
        let upper = match begins(first + i64::from(self.width)) {
            Some(end) => self.number(end),
            None => match (self.bins.kind(), self.number(self.held.max)) {
                (ValueKind::Float, greatest) if greatest.is_finite() => greatest.next_up(),
                (ValueKind::Float, _) => f64::INFINITY,
                (_, greatest) => (greatest + 1.0).max(greatest.next_up()),
            },
        };
        (lower, upper)
    }

    fn number(&self, key: Key) -> f64 {
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
        let bands = Bands::new(&bins, ValueRange { min, max }, &filled, most);
        let of = |key| bands.of(bins.bin(key));
        (of(min)..=of(max)).map(|band| bands.edges(band)).collect()
    }

    // case SQL: loom_heat
    #[test]
    fn one_band_holds_values_of_both_signs() {
        let bins = BinMap::new(&BinsDef::Auto, ValueKind::Float).unwrap();
        let [min, max] = [-300.0, f64::NAN].map(Key::from_f64);
        let filled = [min, max].map(|key| bins.bin(key));
        let bands = Bands::new(&bins, ValueRange { min, max }, &filled, 1);
        let band = bands.of(bins.bin(min));
        assert_eq!(band, bands.of(bins.bin(max)));
        assert_eq!(bands.edges(band), (-300.0, f64::INFINITY));
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
            let max = Key::from_f64(values[values.len() - 1]);
            let min = Key::from_f64(values[0]);
            Bands::new(&bins, ValueRange { min, max }, &filled, 40).width
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
