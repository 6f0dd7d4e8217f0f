//! Several directories asked as one, and histograms, agree with the oracle over all their records.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::aggregates::check_rows;
use super::question::random_filter;
use crate::query::{
    AggregateSpec, Bucket, CountRow, CountSpec, Histogram, HistogramRow, HistogramSpec, IndexAsked,
    Poll, Predicate, RecordCounts, Snapshot, TopSpec, aggregate_together, top,
};
use crate::schema::Filter;
use crate::testkit::Random;
use crate::testkit::asked::whole;
use crate::testkit::oracle::{self, OracleRow, Record};
use crate::testkit::world::{World, any_ops};
use crate::types::{IndexId, SourceId, TimeRange, Timestamp, ValueKind, ValueRange};

const QUANTILES: [f64; 4] = [0.0, 0.5, 0.99, 1.0];

/// An index of one world.
pub struct Place<'a> {
    pub world: &'a World,
    pub snapshot: Snapshot,
    pub source: SourceId,
    pub index: IndexId,
    /// Only records that pass this filter are asked for.
    pub filter: Option<Filter>,
    pub passing: Predicate,
}

/// The latest index of a name, if the world has one, and the records that pass a filter made from a seed.
fn place<'a>(world: &'a World, source: &str, index: &str, seed: Option<u64>) -> Option<Place<'a>> {
    let snapshot = world.snapshot();
    let found = snapshot.source(source).unwrap();
    let index = found.index(index)?.id;
    let filter = seed.and_then(|seed| random_filter(&mut Random(seed), &found));
    let passing = filter
        .as_ref()
        .map(|filter| Predicate::matching(filter, &found));
    Some(Place {
        world,
        source: found.id,
        snapshot,
        index,
        filter,
        passing: passing.unwrap_or(Predicate::All),
    })
}

impl Place<'_> {
    /// The records that are asked for.
    fn records(&self) -> impl Iterator<Item = Record> {
        let records = self.world.records().into_iter();
        records.filter(|record| record.source == self.source && record.passes(self.filter.as_ref()))
    }
}

/// The indexes in the form that operators take.
fn asked<'a>(places: &'a [Place<'_>]) -> Vec<IndexAsked<'a>> {
    let asked = |place: &'a Place<'_>| IndexAsked {
        snapshot: &place.snapshot,
        source: place.source,
        index: place.index,
        filter: &place.passing,
    };
    places.iter().map(asked).collect()
}

/// Half of the records' times, so that nodes are cut.
fn window(places: &[Place<'_>]) -> TimeRange {
    let mut times: Vec<Timestamp> = places
        .iter()
        .flat_map(|place| place.world.records())
        .map(|record| record.ts)
        .collect();
    times.sort_unstable();
    match (times.get(times.len() / 4), times.get(times.len() * 3 / 4)) {
        (Some(&first), Some(&last)) => TimeRange { first, last },
        _ => TimeRange::ALL,
    }
}

/// The values of all places by bucket, ascending.
fn expected(places: &[Place<'_>], time: TimeRange, bucket: Option<Bucket>) -> Vec<OracleRow> {
    let mut rows: Vec<OracleRow> = Vec::new();
    for place in places {
        let records: Vec<Record> = place.records().collect();
        let all = ValueRange::ALL;
        for row in oracle::aggregate(&records, place.source, place.index, time, all, bucket) {
            match rows.iter_mut().find(|known| known.bucket == row.bucket) {
                Some(known) => known.keys.extend(row.keys),
                None => rows.push(row),
            }
        }
    }
    rows.iter_mut().for_each(|row| row.keys.sort_unstable());
    rows.sort_by_key(|row| row.bucket);
    rows
}

fn check_aggregate(places: &[Place<'_>], time: TimeRange, bucket: Option<Bucket>) {
    let asked: Vec<(Snapshot, AggregateSpec)> = places
        .iter()
        .map(|place| {
            let spec = AggregateSpec {
                time,
                filter: place.passing.clone(),
                bucket,
                threads: 2,
                ..whole(place.source, place.index, &QUANTILES)
            };
            (place.snapshot.clone(), spec)
        })
        .collect();
    let found = aggregate_together(&asked, &Poll::never()).unwrap();
    let expected = expected(places, time, bucket);
    let index = places[0].snapshot.index(places[0].index).unwrap();
    check_rows(&found, &expected, &QUANTILES, &index, false);
}

fn signed(place: &Place<'_>) -> bool {
    place.snapshot.index(place.index).unwrap().kind == ValueKind::Signed
}

fn check_histogram(places: &[Place<'_>], time: TimeRange, bucket: Option<Bucket>) {
    let spec = HistogramSpec {
        time,
        bucket,
        threads: 2,
    };
    let mut histogram = Histogram::new(&asked(places), spec).unwrap();
    let bins = histogram.bins().clone();
    let mut found: Vec<HistogramRow> = Vec::new();
    while let Some(rows) = histogram.next(&Poll::never()).unwrap() {
        found.extend(rows);
    }
    let mut found = found.into_iter();
    for row in expected(places, time, bucket) {
        for keys in row.keys.chunk_by(|a, b| bins.bin(*a) == bins.bin(*b)) {
            let found = found.next().unwrap();
            assert_eq!((found.bucket, found.bin), (row.bucket, bins.bin(keys[0])));
            assert_eq!(found.count, keys.len() as u64);
            assert_eq!(found.stats.is_none(), bins.is_auto());
            if let Some(stats) = found.stats {
                assert_eq!((stats.min, stats.max), (keys[0], keys[keys.len() - 1]));
                let values = OracleRow {
                    bucket: None,
                    keys: keys.to_vec(),
                };
                assert!(values.has_sum(&stats.sum, signed(&places[0])));
            }
        }
    }
    assert_eq!(found.next(), None);
}

/// Checks the count of records by bucket, with any value or none.
pub fn check_counts(places: &[Place<'_>], time: TimeRange, bucket: Bucket) {
    let mut expected: BTreeMap<Timestamp, u64> = BTreeMap::new();
    for place in places {
        for record in place.records().filter(|record| time.contains(record.ts)) {
            *expected
                .entry(bucket.range_of(record.ts).first)
                .or_default() += 1;
        }
    }
    let expected: Vec<CountRow> = expected
        .into_iter()
        .map(|(bucket, count)| CountRow { bucket, count })
        .collect();
    let asked: Vec<_> = places
        .iter()
        .map(|place| (&place.snapshot, place.source, &place.passing))
        .collect();
    for threads in [1, 3] {
        let spec = CountSpec {
            time,
            bucket,
            threads,
        };
        let mut counts = RecordCounts::new(&asked, spec).unwrap();
        let mut found = Vec::new();
        while let Some(rows) = counts.next(&Poll::never()).unwrap() {
            found.extend(rows);
        }
        assert_eq!(found, expected);
    }
}

/// Checks the records with the greatest and the least values. Equal values come in log order.
pub fn check_top(places: &[Place<'_>], time: TimeRange, rows: u64) {
    let mut all = Vec::new();
    for (part, place) in places.iter().enumerate() {
        all.extend(
            place
                .records()
                .filter(|record| time.contains(record.ts))
                .filter_map(|record| {
                    Some((record.key(place.index)?, part, record.address, record.ts))
                }),
        );
    }
    for least in [false, true] {
        all.sort_by_key(|&(key, part, address, _)| {
            (if least { key.0 } else { !key.0 }, part, address)
        });
        let spec = TopSpec {
            time,
            rows,
            least,
            threads: 2,
        };
        let found = top(&asked(places), spec, &Poll::never()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|row| (row.key, row.part, row.address, row.ts))
            .collect();
        let expected: Vec<_> = all.iter().copied().take(rows as usize).collect();
        assert_eq!(found, expected, "least: {least}, rows: {rows}");
    }
}

fn check(places: &[Place<'_>]) {
    if places.is_empty() {
        return;
    }
    let window = window(places);
    let span = window.last.0.saturating_sub(window.first.0);
    let buckets = [
        None,
        Some(Bucket::nanos((span / 7).max(1))),
        Some(Bucket::nanos((span / 300).max(1))),
        Some(Bucket::Months(5)),
    ];
    for time in [TimeRange::ALL, window] {
        for rows in [0, 1, 7, 60, u64::MAX] {
            check_top(places, time, rows);
        }
        for bucket in buckets {
            // The times of any values at all are so far apart that short buckets would be too many.
            if time == TimeRange::ALL && bucket.is_some_and(|bucket| bucket != Bucket::Months(5)) {
                continue;
            }
            check_aggregate(places, time, bucket);
            if let Some(bucket) = bucket {
                check_counts(places, time, bucket);
            }
            let first = &places[0];
            let bins = |place: &Place<'_>| place.snapshot.index(place.index).unwrap().bins.clone();
            if places.iter().all(|place| bins(place) == bins(first)) {
                check_histogram(places, time, bucket);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20))]

    // case SQL: loom_rate
    // case SQL: filter of a question
    // case SQL: loom_top
    #[test]
    fn directories_asked_together_agree_with_the_oracle(
        one in any_ops(),
        other in any_ops(),
        filter in prop::option::of(any::<u64>()),
    ) {
        let (mut one, other) = (World::of(&one), World::of(&other));
        one.close();
        let asked = [
            ("metric", "size", "size"),
            ("metric", "ratio", "ratio"),
            ("metric", "change", "change"),
            ("metric", "large", "large"),
            ("metric", "ones", "ones"),
            // The same field with other bins.
            ("event", "level", "fine"),
            ("event", "level", "level"),
        ];
        for (source, here, there) in asked {
            let places = [place(&one, source, here, filter), place(&other, source, there, filter)];
            check(&places.into_iter().flatten().collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_cannot_be_counted_together_is_refused() {
    let (one, other) = (World::new(), World::new());
    let level = || place(&one, "event", "level", None).unwrap();
    let size = place(&other, "metric", "size", None).unwrap();
    let spec = HistogramSpec {
        time: TimeRange::ALL,
        bucket: None,
        threads: 1,
    };
    let histogram = |places: &[Place<'_>]| Histogram::new(&asked(places), spec).map(|_| ());
    assert!(histogram(&[level()]).is_ok());
    let refused = histogram(&[level(), size]).unwrap_err().to_string();
    assert!(refused.contains("kind"), "{refused}");
    assert!(histogram(&[]).is_err());
    assert!(aggregate_together(&[], &Poll::never()).is_err());
}
