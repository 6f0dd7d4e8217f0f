//! `loom_heat`: how many values of an index lie in each cell of time and value, for pictures. A cell is some bins of an index in a bucket, so its
//! count is exact, and the same cells come back as the window moves.

use std::sync::Arc;

use loom_engine::query::{
    AggregateSpec, Bucket, Histogram, HistogramRow, HistogramSpec, Poll, aggregate_together,
};
use loom_engine::schema::BinMap;
use loom_engine::{Key, TimeRange, Timestamp, ValueKind, ValueRange};

use super::agreement;
use super::ambient::Ambient;
use super::arguments::Arguments;
use super::buckets::{Buckets, POINTS_DEFAULT};
use super::clause::Clause;
use super::columns::{Column, columns};
use super::function::{Function, Plan};
use super::parameters::{
    AT, BANDS, BUCKET, COMPLETE, DIR, FILTER, INDEX, LAST, PARTIAL, POINTS, Parameter, SOURCE,
    T_FROM, T_TO,
};
use super::part::{self, Part};
use super::selection::Selection;
use super::stats;
use super::types::SqlType;
use crate::error::{Problem, Result};
use crate::exec::cells::{Cell, Pieces, TableRun};
use crate::exec::run::Run;

const PARAMETERS: &[Parameter] = &[
    T_FROM, T_TO, LAST, FILTER, BUCKET, POINTS, PARTIAL, BANDS, AT, COMPLETE,
];

const BANDS_DEFAULT: u64 = 40;
/// An index has no more bins.
const BANDS_MOST: u64 = 65_536;

pub const FUNCTION: Function = Function {
    name: "loom_heat",
    description: "The number of values of an index of a source in each cell of time and value, for a heat map: from t1 to t2, from lower to upper. Empty cells are omitted.",
    columns: "`t1`, `t2`, `lower`, `upper`, `count`",
    examples: &[
        "FROM loom_heat('telemetry.loom', 'requests', 'latency', last := INTERVAL 1 HOUR, points := 200)",
    ],
    positional: &[DIR, SOURCE, INDEX],
    named: PARAMETERS,
    bind: |arguments, ambient| Ok(Box::new(HeatPlan::bind(arguments, ambient)?)),
};

/// A bound call.
struct HeatPlan {
    selection: Selection,
    buckets: Buckets,
    bands: u64,
    columns: Vec<Column>,
}

impl HeatPlan {
    fn bind(arguments: &Arguments, ambient: &Ambient<'_>) -> Result<HeatPlan> {
        let (selection, parts) = Selection::bind(arguments, ambient)?;
        agreement::bins(&parts)?;
        let bands = arguments.count("bands")?.unwrap_or(BANDS_DEFAULT);
        if !(1..=BANDS_MOST).contains(&bands) {
            return Err(Problem::binder(format!(
                "bands must be from 1 to {BANDS_MOST}: it is {bands}"
            )));
        }
        for part in &parts {
            part.chosen
                .required_values("loom_rate counts records without one")?;
        }
        Ok(HeatPlan {
            selection,
            buckets: Buckets::bind(arguments, Some(POINTS_DEFAULT))?,
            bands,
            columns: columns(&[
                ("t1", SqlType::TimestampTz),
                ("t2", SqlType::TimestampTz),
                ("lower", SqlType::F64),
                ("upper", SqlType::F64),
                ("count", SqlType::I64),
            ]),
        })
    }
}

impl Plan for HeatPlan {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn prunes(&self) -> bool {
        true
    }

    fn offer(&self, clause: Clause) {
        self.buckets.offer(clause);
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
        let parts = self.selection.now(ambient)?;
        agreement::bins(&parts)?;
        let window = self.buckets.now(&self.selection, &parts, ambient)?;
        let (time, bucket) = window.bucketed();
        let poll = Poll::new(ambient.stop);
        // Bands depend on the window alone: a filter changes no edge.
        let threads = (ambient.threads)();
        let held = values_held(&parts, window.asked, threads, &poll)?;
        let asked = part::indexed(&parts)?;
        let histogram = |time, bucket| {
            let spec = HistogramSpec {
                time,
                bucket,
                threads,
            };
            Histogram::new(&asked, spec)
        };
        let mut whole = histogram(window.asked, None)?;
        let mut bins = Vec::new();
        while let Some(rows) = whole.next(&poll)? {
            bins.extend(rows.iter().map(|row| row.bin));
        }
        let mut histogram = histogram(time, Some(bucket))?;
        histogram.keep(&window.kept);
        let pieces = HeatPieces {
            bands: Bands::new(whole.bins(), held, &bins, self.bands),
            histogram,
            bucket,
            parts,
        };
        Ok(TableRun::of(pieces, projected))
    }
}

/// The least and the greatest value.
fn values_held(
    parts: &[Part],
    time: TimeRange,
    threads: usize,
    poll: &Poll<'_>,
) -> Result<ValueRange> {
    let spec = |part: &Part| -> Result<AggregateSpec> {
        Ok(AggregateSpec {
            source: part.source.id,
            index: part.chosen.required_index()?.id,
            time,
            value: ValueRange::ALL,
            filter: part.chosen.filter.clone(),
            bucket: None,
            quantiles: Vec::new(),
            approx: false,
            threads,
        })
    };
    let asked = parts
        .iter()
        .map(|part| Ok((part.snapshot.clone(), spec(part)?)))
        .collect::<Result<Vec<_>>>()?;
    let rows = aggregate_together(&asked, poll)?;
    let range = rows.first().and_then(|row| row.min.zip(row.max));
    Ok(range.map_or(ValueRange::EMPTY, |(min, max)| ValueRange { min, max }))
}

/// Some bins in a row each: as many as a power of two, so that their edges stay where they are while values come.
struct Bands {
    bins: BinMap,
    held: ValueRange,
    /// Bins of a band.
    width: u32,
    /// A bin with which a band begins: of `auto` bins one that begins with a power of two.
    origin: u16,
}

impl Bands {
    /// At most `most` bands hold all of `filled`, the bins with a value, ascending.
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
                // One band holds all, wherever the others would begin.
                bands.origin = 0;
            }
        }
        bands
    }

    /// How many bands hold one of these bins.
    fn count(&self, filled: &[u16]) -> u64 {
        filled
            .chunk_by(|one, other| self.of(*one) == self.of(*other))
            .count() as u64
    }

    fn of(&self, bin: u16) -> i64 {
        (i64::from(bin) - i64::from(self.origin)).div_euclid(i64::from(self.width))
    }

    /// Where a band begins, and the end that it does not hold. A band without an end of its own ends behind the greatest value; NaN and
    /// infinity have none behind them.
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

/// The rows of an execution, some buckets a piece.
struct HeatPieces {
    histogram: Histogram,
    bands: Bands,
    bucket: Bucket,
    parts: Vec<Part>,
}

impl HeatPieces {
    fn cell(&self, start: Timestamp, band: i64, count: u64) -> Vec<Cell> {
        let (lower, upper) = self.bands.edges(band);
        vec![
            Cell::Int(self.bucket.start_us(start).into()),
            Cell::Int(self.bucket.end_us(start).into()),
            Cell::Float(lower),
            Cell::Float(upper),
            Cell::from(count),
        ]
    }
}

impl Pieces for HeatPieces {
    fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>> {
        let Some(rows) = self.histogram.next(poll)? else {
            return Ok(None);
        };
        let place = |row: &HistogramRow| (row.bucket, self.bands.of(row.bin));
        let cells = rows.chunk_by(|one, other| place(one) == place(other));
        let cells = cells.filter_map(|rows| {
            let (start, band) = place(rows.first()?);
            let count = rows.iter().map(|row| row.count).sum();
            Some(self.cell(start?, band, count))
        });
        Ok(Some(cells.collect()))
    }
}

impl Drop for HeatPieces {
    fn drop(&mut self) {
        stats::remember_all(&self.parts);
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
