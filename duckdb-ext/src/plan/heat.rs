//! `loom_heat`: the number of values of an index in each cell of time and value, for pictures. A cell covers whole bins of an index in one
//! bucket of time, so its count is exact, and the cells stay the same as the window moves.

use loom_engine::query::{Histogram, HistogramRow, HistogramSpec, Poll, aggregate_together};
use loom_engine::schema::RangeSet;
use loom_engine::{TimeRange, ValueRange};

use super::agreement;
use super::bands::Bands;
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
/// The rows that are held until the bands are known; for more, the window is read once for the bands alone.
const HELD_MOST: usize = 1 << 18;

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
                let mut rows = histogram(time, Some(bucket))?;
                rows.keep(&window.kept);
                let mut held = Vec::new();
                let mut is_all = false;
                while !is_all && held.len() < HELD_MOST {
                    match rows.next(&poll)? {
                        Some(more) => held.extend(more),
                        None => is_all = true,
                    }
                }
                // The bands depend on the window alone, so a clause on `t1` changes no edge.
                let mut bins = Vec::new();
                if is_all && window.kept == RangeSet::from(window.asked) {
                    bins.extend(held.iter().map(|row| row.bin));
                    bins.sort_unstable();
                } else {
                    let mut whole = histogram(window.asked, None)?;
                    while let Some(rows) = whole.next(&poll)? {
                        bins.extend(rows.iter().map(|row| row.bin));
                    }
                }
                let bands = Bands::new(rows.bins(), &bins, most);
                let ends = match bands.are_closed(&bins) {
                    true => ValueRange::EMPTY,
                    false => values_held(parts, window.asked, threads, &poll)?,
                };
                Ok(Box::new(move |poll: &Poll<'_>| {
                    let rows = match held.is_empty() {
                        true => rows.next(poll)?,
                        false => Some(std::mem::take(&mut held)),
                    };
                    let Some(rows) = rows else {
                        return Ok(None);
                    };
                    let place = |row: &HistogramRow| (row.bucket, bands.of(row.bin));
                    let cells = rows.chunk_by(|one, other| place(one) == place(other));
                    let cells = cells.filter_map(|rows| {
                        let (start, band) = place(rows.first()?);
                        let (lower, upper) = bands.edges(band, ends);
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
