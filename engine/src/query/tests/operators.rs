//! Every operator gives what the oracle gives: any windows, values, buckets, positions, live and closed.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree;

use super::oracle::{self, Record};
use super::world::{Op, Random, Spread, World, any_ops};
use crate::error::Error;
use crate::log::LogReader;
use crate::query::{
    AggregateSpec, Bucket, Poll, Predicate, Quantile, RawScan, Scan, ScanSpec, Snapshot, aggregate,
    indexed_scan, raw_scan,
};
use crate::schema::{BinsDef, TimeKind};
use crate::types::{Address, IndexId, Key, SourceId, TimeRange, Timestamp, ValueKind, ValueRange};

/// Address, `ts` and payload of a row.
type Found = (u64, i64, Vec<u8>);

const QUANTILES: [f64; 8] = [0.0, 0.01, 0.5, 0.9, 0.99, 0.9999, 1.0, 0.25];

/// Parts of a question, as places in what the world holds.
#[derive(Clone, Debug)]
struct Ask {
    source: usize,
    index: Index,
    times: Option<[Index; 2]>,
    keys: Option<[Index; 2]>,
    nudges: [i8; 4],
    /// Of the window's length, or months.
    bucket: Option<(bool, u8)>,
    quantiles: u8,
    position: Option<(Index, u8)>,
}

fn any_ask() -> impl Strategy<Value = Ask> {
    let pair = || prop::option::of(any::<[Index; 2]>());
    (
        (0usize..3, any::<Index>(), pair(), pair()),
        (any::<[i8; 4]>(), prop::option::of((any::<bool>(), 1u8..40))),
        (any::<u8>(), prop::option::of((any::<Index>(), 0u8..9))),
    )
        .prop_map(
            |((source, index, times, keys), (nudges, bucket), (quantiles, position))| Ask {
                source,
                index,
                times,
                keys,
                nudges: nudges.map(|nudge| nudge % 2),
                bucket,
                quantiles,
                position,
            },
        )
}

/// An `Ask` made concrete.
struct Question {
    snapshot: Snapshot,
    visible: Vec<Record>,
    source: SourceId,
    index: Option<IndexId>,
    time: TimeRange,
    value: ValueRange,
    bucket: Option<Bucket>,
    quantiles: Vec<f64>,
}

impl Question {
    fn new(world: &World, all: &[Record], ask: &Ask) -> Question {
        let source = world.sources[ask.source];
        let snapshot = match &ask.position {
            Some((at, words)) if !all.is_empty() => {
                // Any multiple of 8: in mid-record too.
                let record = at.get(all);
                let position =
                    (record.address.0 + 8 * u64::from(*words)).min(all[all.len() - 1].end().0);
                world.directory.snapshot_at(position).unwrap()
            }
            _ => world.snapshot(),
        };
        let visible: Vec<Record> = all
            .iter()
            .filter(|record| {
                record.address.0 + 8 + record.payload.len() as u64 <= snapshot.position()
            })
            .cloned()
            .collect();
        let own: Vec<&Record> = all
            .iter()
            .filter(|record| record.source == source)
            .collect();
        let indexes = world.indexes(source);
        let index = (!indexes.is_empty()).then(|| *ask.index.get(&indexes));
        let mut time = TimeRange::ALL;
        if let (Some(places), false) = (ask.times, own.is_empty()) {
            let mut ends = places.map(|place| place.get(&own).ts.0);
            ends.sort_unstable();
            time = TimeRange {
                first: Timestamp(ends[0].saturating_add(ask.nudges[0].into())),
                last: Timestamp(ends[1].saturating_add(ask.nudges[1].into())),
            };
        }
        let mut value = ValueRange::ALL;
        let keys: Vec<Key> = index.map_or(Vec::new(), |index| {
            own.iter().filter_map(|record| record.key(index)).collect()
        });
        if let (Some(places), false) = (ask.keys, keys.is_empty()) {
            let mut ends = places.map(|place| place.get(&keys).0);
            ends.sort_unstable();
            value.min = Key(ends[0].saturating_add_signed(ask.nudges[2].into()));
            // A bound above everything is the usual one.
            if ask.nudges[3] != 0 {
                value.max = Key(ends[1]);
            }
        }
        let span = match (time, own.as_slice()) {
            (TimeRange::ALL, []) => 1,
            (TimeRange::ALL, own) => {
                let times = || own.iter().map(|record| record.ts.0);
                times()
                    .max()
                    .unwrap()
                    .saturating_sub(times().min().unwrap())
            }
            (time, _) => time.last.0.saturating_sub(time.first.0),
        };
        let bucket = ask.bucket.map(|(months, parts)| {
            if months {
                Bucket::Months(parts.into())
            } else {
                Bucket::nanos((span / i64::from(parts)).max(1))
            }
        });
        let quantiles = QUANTILES
            .iter()
            .enumerate()
            .filter(|(bit, _)| ask.quantiles >> bit & 1 == 1)
            .map(|(_, q)| *q)
            .collect();
        Question {
            snapshot,
            visible,
            source,
            index,
            time,
            value,
            bucket,
            quantiles,
        }
    }

    fn rows(&self, predicate: &Predicate) -> Vec<Found> {
        self.visible
            .iter()
            .filter(|record| record.source == self.source && record.matches(predicate))
            .map(|record| (record.address.0, record.ts.0, record.payload.clone()))
            .collect()
    }
}

fn check_raw_scan(question: &Question) {
    let mut found = Vec::new();
    raw_scan(
        &question.snapshot,
        question.source,
        question.time,
        &Poll::never(),
        |record| {
            found.push((record.address.0, record.ts.0, record.payload.to_vec()));
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    found.reverse();
    assert_eq!(
        found,
        question.rows(&Predicate::Time(question.time)),
        "raw scan"
    );
}

/// Steps of a scan without bounds: log order backwards, whatever times the records bring.
fn check_latest(question: &Question) {
    let mut scan = RawScan::new(&question.snapshot, question.source, TimeRange::ALL).unwrap();
    let mut found = Vec::new();
    while let Some(step) = scan.next(&Poll::never()).unwrap() {
        let rows = step.rows;
        assert_eq!(rows.rows.len(), step.arrivals.len());
        assert!(!rows.rows.is_empty());
        found.extend(rows.rows.iter().zip(step.arrivals).map(|(row, arrival)| {
            let payload = row.payload(rows.bytes).to_vec();
            (row.address(rows.base).0, arrival.0, payload)
        }));
    }
    assert!(scan.rows().rows.rows.is_empty() && scan.next(&Poll::never()).unwrap().is_none());
    let own = question.visible.iter().rev();
    let expected: Vec<Found> = own
        .filter(|record| record.source == question.source)
        .map(|record| (record.address.0, record.arrival.0, record.payload.clone()))
        .collect();
    assert_eq!(found, expected, "latest");
}

fn check_indexed_scan(question: &Question, index: IndexId) {
    let mut found = Vec::new();
    indexed_scan(
        &question.snapshot,
        index,
        question.time,
        question.value,
        &Poll::never(),
        |record| {
            found.push((record.address.0, record.ts.0, record.payload.to_vec()));
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    let range = question.value;
    let predicate = Predicate::And(vec![
        Predicate::Time(question.time),
        Predicate::Value { index, range },
    ]);
    assert_eq!(found, question.rows(&predicate), "indexed scan");
}

fn scanned(
    snapshot: &Snapshot,
    source: SourceId,
    exact: Predicate,
    prune: Predicate,
) -> (Vec<Found>, Option<u64>) {
    let spec = ScanSpec {
        source,
        exact,
        prune,
        index_filters: Vec::new(),
    };
    let count = Scan::new(snapshot, spec.clone())
        .unwrap()
        .count(&Poll::never())
        .unwrap();
    let scan = Scan::new(snapshot, spec).unwrap();
    let mut rows: Vec<Found> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let scan = Arc::clone(&scan);
                scope.spawn(move || {
                    let mut reader = scan.reader();
                    let mut rows = Vec::new();
                    while let Some(chunk) = scan.next(&Poll::never()).unwrap() {
                        let found = reader.read(chunk).unwrap();
                        rows.extend(found.rows.iter().map(|row| {
                            let payload = row.payload(found.bytes).to_vec();
                            (row.address(found.base).0, row.ts.0, payload)
                        }));
                    }
                    rows
                })
            })
            .collect();
        threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap())
            .collect()
    });
    rows.sort_unstable();
    let stats = scan.stats();
    assert!(stats.chunks_read <= stats.chunks_total, "{stats:?}");
    (rows, count)
}

fn check_aggregate(question: &Question, index: IndexId, approx: bool) {
    let spec = AggregateSpec {
        source: question.source,
        index,
        time: question.time,
        value: question.value,
        bucket: question.bucket,
        quantiles: question
            .quantiles
            .iter()
            .map(|q| Quantile::new(*q).unwrap())
            .collect(),
        approx,
    };
    let found = aggregate(&question.snapshot, &spec, &Poll::never()).unwrap();
    let expected = oracle::aggregate(
        &question.visible,
        question.source,
        index,
        question.time,
        question.value,
        question.bucket,
    );
    let definition = question.snapshot.index(index).unwrap();
    let signed = definition.kind == ValueKind::Signed;
    assert_eq!(found.len(), expected.len(), "buckets");
    for (found, expected) in found.iter().zip(&expected) {
        assert_eq!(found.bucket, expected.bucket);
        assert_eq!(found.count, expected.keys.len() as u64, "count");
        assert_eq!(found.min, expected.keys.first().copied(), "min");
        assert_eq!(found.max, expected.keys.last().copied(), "max");
        assert!(expected.has_sum(&found.sum, signed), "sum {:?}", found.sum);
        for (q, quantile) in question.quantiles.iter().zip(&found.quantiles) {
            let exact = expected.quantile(*q);
            if approx {
                let bin = |key: &Option<Key>| key.map(|key| definition.bins.bin(key));
                assert_eq!(bin(quantile), bin(&exact), "approximate quantile {q}");
            } else {
                assert_eq!(*quantile, exact, "quantile {q}");
            }
        }
    }
}

fn check_totals(world: &World, all: &[Record]) {
    let snapshot = world.snapshot();
    let newest = all.last().map(|record| record.arrival);
    assert_eq!(snapshot.newest_ts().unwrap(), newest);
    for source in &world.sources {
        let own: Vec<&Record> = all
            .iter()
            .filter(|record| record.source == *source)
            .collect();
        let totals = snapshot.source_totals(*source).unwrap();
        assert_eq!(totals.records, own.len() as u64);
        let bytes: u64 = own
            .iter()
            .map(|record| record.end().0 - record.address.0)
            .sum();
        assert_eq!(totals.bytes, bytes);
        assert_eq!(totals.first_ts, own.iter().map(|record| record.ts).min());
        assert_eq!(totals.last_ts, own.iter().map(|record| record.ts).max());
    }
}

/// A predicate over times and indexes, from random numbers.
fn predicate(question: &Question, random: &mut Random, depth: u32) -> Predicate {
    let own: Vec<&Record> = question
        .visible
        .iter()
        .filter(|record| record.source == question.source)
        .collect();
    let pick = |random: &mut Random| own.get((random.next() % (own.len() as u64).max(1)) as usize);
    let kind = random.next() % if depth == 0 { 4 } else { 8 };
    let sides = |random: &mut Random| {
        (0..random.next() % 4)
            .map(|_| predicate(question, random, depth - 1))
            .collect()
    };
    match kind {
        0 | 1 => {
            let (Some(a), Some(b)) = (pick(random), pick(random)) else {
                return Predicate::All;
            };
            let (first, last) = (a.ts.min(b.ts), a.ts.max(b.ts));
            Predicate::Time(TimeRange { first, last })
        }
        2 | 3 => {
            let indexes: Vec<IndexId> = own
                .first()
                .map(|record| record.keys.iter().map(|(id, _)| *id).collect())
                .unwrap_or_default();
            let Some(index) = indexes.get((random.next() % (indexes.len() as u64).max(1)) as usize)
            else {
                return Predicate::Nothing;
            };
            let key = |random: &mut Random| pick(random).and_then(|record| record.key(*index));
            let min = key(random).unwrap_or(Key::MIN);
            let max = match random.next() % 3 {
                0 => min,
                1 => key(random).unwrap_or(Key::MAX),
                _ => Key::MAX,
            };
            Predicate::Value {
                index: *index,
                range: ValueRange { min, max },
            }
        }
        4 | 5 => Predicate::And(sides(random)),
        _ => Predicate::Or(sides(random)),
    }
}

fn check(world: &World, asks: &[Ask]) {
    let all = world.records();
    check_totals(world, &all);
    for (number, ask) in asks.iter().enumerate() {
        let question = Question::new(world, &all, ask);
        check_raw_scan(&question);
        check_latest(&question);
        let mut random = Random::new(number as u64 * 977 + u64::from(ask.quantiles));
        for _ in 0..3 {
            let exact = predicate(&question, &mut random, 2);
            let (rows, count) = scanned(
                &question.snapshot,
                question.source,
                exact.clone(),
                Predicate::All,
            );
            assert_eq!(rows, question.rows(&exact), "{exact:?}");
            assert!(
                count.is_none_or(|count| count == rows.len() as u64),
                "{exact:?}"
            );
            // What only prunes may leave out nothing that it holds for.
            let (rows, _) = scanned(
                &question.snapshot,
                question.source,
                Predicate::All,
                exact.clone(),
            );
            let rows: std::collections::BTreeSet<_> = rows.into_iter().collect();
            assert!(
                question.rows(&exact).iter().all(|row| rows.contains(row)),
                "{exact:?}"
            );
        }
        if let Some(index) = question.index {
            check_indexed_scan(&question, index);
            check_aggregate(&question, index, false);
            check_aggregate(&question, index, true);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn operators_agree_with_the_oracle_live_and_closed(
        ops in any_ops(),
        asks in prop::collection::vec(any_ask(), 1..12),
    ) {
        let mut world = World::of(&ops);
        check(&world, &asks);
        world.close();
        check(&world, &asks);
    }
}

/// Enough chunks for roll-ups of roll-ups, with windows that cut them anywhere.
#[test]
fn windows_over_thousands_of_chunks_agree_with_the_oracle() {
    let mut ops = vec![Op::Define(0), Op::Define(1), Op::Define(3)];
    for round in 0..90u64 {
        ops.push(Op::Batch {
            source: [0, 0, 1, 0, 2][round as usize % 5],
            records: 400,
            spread: [Spread::Skewed, Spread::Few, Spread::Any][round as usize % 3],
            seed: round * 31 + 5,
        });
        ops.push(Op::Fill(50));
    }
    let world = World::of(&ops);
    assert!(world.directory.status().unwrap().summarised_chunks > 64 * 64);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let asks = prop::collection::vec(any_ask(), 24)
        .new_tree(&mut runner)
        .unwrap()
        .current();
    check(&world, &asks);
}

#[test]
fn records_below_what_is_retained_are_not_seen() {
    let mut ops = vec![Op::Define(1), Op::Define(3)];
    for round in 0..24u64 {
        ops.push(Op::Batch {
            source: [0, 1, 0, 2][round as usize % 4],
            records: 500,
            spread: Spread::Skewed,
            seed: round,
        });
    }
    let world = World::of(&ops);
    let all = world.records();
    let reader = LogReader::open(&world.dir.path().join("loom")).unwrap();
    for chunk in [1, 7, 63, 64, 100, 150] {
        let mut tails = reader.tails().unwrap();
        tails.begin[0] = Address(chunk * 4096);
        let snapshot = world.directory.snapshot_of(tails, tails.tail[0]).unwrap();
        let retained: Vec<Record> = all
            .iter()
            .filter(|record| record.address >= tails.begin[0])
            .cloned()
            .collect();
        for source in &world.sources {
            let totals = snapshot.source_totals(*source).unwrap();
            let own = retained.iter().filter(|record| record.source == *source);
            assert_eq!(totals.records, own.count() as u64);
            let indexes = world.indexes(*source);
            let question = Question {
                snapshot: snapshot.clone(),
                visible: retained.clone(),
                source: *source,
                index: None,
                time: TimeRange::ALL,
                value: ValueRange::ALL,
                bucket: None,
                quantiles: vec![0.5, 0.99],
            };
            check_raw_scan(&question);
            check_latest(&question);
            indexes.iter().for_each(|index| {
                check_indexed_scan(&question, *index);
                check_aggregate(&question, *index, false);
            });
        }
        assert!(world.directory.snapshot_at(chunk).is_ok());
    }
}

#[test]
fn an_index_that_is_named_applies_its_filter_before_and_after_it_began() {
    let push = |seed| Op::Batch {
        source: 0,
        records: 600,
        spread: Spread::Skewed,
        seed,
    };
    // `large` takes a nullable value where kind is 2 or 3, `ones` counts where kind is 1.
    let world = World::of(&[push(1), Op::Define(1), Op::Define(2), push(2), push(3)]);
    let all = world.records();
    let snapshot = world.snapshot();
    let source = snapshot.source("metric").unwrap();
    for (name, kinds) in [("large", 2..=3), ("ones", 1..=1)] {
        let spec = ScanSpec {
            source: source.id,
            exact: Predicate::All,
            prune: Predicate::All,
            index_filters: vec![source.index(name).unwrap().id],
        };
        let scan = Scan::new(&snapshot, spec).unwrap();
        assert_eq!(scan.count(&Poll::never()).unwrap(), None);
        let mut reader = scan.reader();
        let mut found = Vec::new();
        while let Some(chunk) = scan.next(&Poll::never()).unwrap() {
            let rows = reader.read(chunk).unwrap();
            found.extend(rows.rows.iter().map(|row| row.address(rows.base)));
        }
        let kind = |record: &Record| record.keys.len() > 1 && kinds.contains(&record.kind());
        let expected: Vec<Address> = all
            .iter()
            .filter(|record| kind(record))
            .map(|record| record.address)
            .collect();
        assert!(!expected.is_empty());
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn the_latest_records_of_a_rare_source_are_found_by_its_chain() {
    for source in [0, 1] {
        let rare = |seed| Op::Push {
            source,
            records: 2,
            spread: Spread::Few,
            seed,
        };
        let world = World::of(&[
            rare(1),
            Op::Fill(300),
            rare(2),
            Op::Fill(300),
            rare(3),
            Op::Fill(300),
        ]);
        let snapshot = world.snapshot();
        let mut scan = RawScan::new(&snapshot, world.sources[source], TimeRange::ALL).unwrap();
        let mut records = 0;
        while let Some(step) = scan.next(&Poll::never()).unwrap() {
            records += step.arrivals.len();
        }
        assert_eq!(records, 6);
        let stats = scan.stats();
        // Three chunks hold it; what lies past the last summary is looked through besides.
        assert!(
            stats.chunks_read <= 6 && stats.chunks_total >= 900,
            "{stats:?}"
        );
        assert!(stats.nodes_opened < 100, "{stats:?}");
        assert_eq!(stats.chunks_read + stats.chunks_pruned, stats.chunks_total);
    }
}

#[test]
fn a_position_lies_between_records_or_is_told_from_those_that_do() {
    let mut ops = Vec::new();
    for seed in 0..6 {
        let (source, records) = (seed as usize % 3, 120);
        ops.push(Op::Push {
            source,
            records,
            spread: Spread::Any,
            seed,
        });
    }
    let mut world = World::of(&ops);
    for closed in [false, true] {
        if closed {
            world.close();
        }
        let all = world.records();
        let ends: std::collections::BTreeSet<u64> = all
            .iter()
            .flat_map(|record| [record.address.0, record.end().0])
            .collect();
        let inside = |position: u64| {
            all.iter()
                .any(|record| record.address.0 < position && position < record.end().0)
        };
        for position in ends
            .into_iter()
            .flat_map(|end| [end, end + 8, end.saturating_sub(8)])
        {
            let Ok(snapshot) = world.directory.snapshot_at(position) else {
                continue;
            };
            assert_eq!(
                snapshot.ends_between_records().unwrap(),
                !inside(position),
                "{position}"
            );
        }
    }
}

#[test]
fn an_interrupted_query_says_so() {
    let ops: Vec<Op> = (0..40).map(|_| Op::Fill(50)).collect();
    let world = World::of(&ops);
    let snapshot = world.snapshot();
    let stop = || true;
    let poll = Poll::new(&stop);
    let started = Instant::now();
    // Asked again until the closure may be asked: the directory is small and the interval not nothing.
    loop {
        let seen = raw_scan(&snapshot, world.sources[2], TimeRange::ALL, &poll, |_| {
            ControlFlow::Continue(())
        });
        match seen {
            Err(Error::Interrupted) => break,
            seen => seen.unwrap(),
        }
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

/// A function over the bytes, which only this process knows.
#[test]
fn an_index_given_as_a_closure_answers_its_library_user_alone() {
    let mut world = World::new();
    let source = world.sources[2];
    let length = |payload: &[u8]| (payload.len() > 10).then_some(Key(payload.len() as u64));
    let push = |world: &mut World| {
        for bytes in 0..300 {
            world.writer().push(source, &vec![1; bytes]).unwrap();
        }
    };
    push(&mut world);
    let bins = BinsDef::Auto;
    let index = world
        .writer()
        .define_index_fn(
            source,
            "length",
            ValueKind::Unsigned,
            &bins,
            Box::new(length),
        )
        .unwrap();
    push(&mut world);
    world.writer().publish().unwrap();
    let spec = AggregateSpec {
        source,
        index,
        time: TimeRange::ALL,
        value: ValueRange::ALL,
        bucket: None,
        quantiles: vec![Quantile::new(0.5).unwrap()],
        approx: false,
    };
    let snapshot = world.snapshot();
    let error = aggregate(&snapshot, &spec, &Poll::never()).unwrap_err();
    assert!(error.to_string().contains("function"), "{error}");
    world.directory.provide_function(index, Arc::new(length));
    let rows = aggregate(&snapshot, &spec, &Poll::never()).unwrap();
    // Lengths 11 to 299, before the index and after it.
    assert_eq!((rows[0].count, rows[0].min), (578, Some(Key(11))));
    assert_eq!(rows[0].quantiles, [Some(Key(155))]);
}

#[test]
fn an_empty_directory_has_no_rows_and_one_empty_aggregate() {
    let world = World::new();
    let snapshot = world.snapshot();
    assert_eq!(snapshot.newest_ts().unwrap(), None);
    let source = snapshot.source("metric").unwrap();
    assert_eq!(source.time, TimeKind::Arrival);
    let spec = AggregateSpec {
        source: source.id,
        index: source.indexes[0].id,
        time: TimeRange::ALL,
        value: ValueRange::ALL,
        bucket: None,
        quantiles: vec![Quantile::new(0.5).unwrap()],
        approx: false,
    };
    let rows = aggregate(&snapshot, &spec, &Poll::never()).unwrap();
    assert_eq!((rows.len(), rows[0].count, rows[0].min), (1, 0, None));
    assert_eq!(rows[0].quantiles, [None]);
    let bucketed = AggregateSpec {
        bucket: Some(Bucket::nanos(1000)),
        ..spec
    };
    assert!(
        aggregate(&snapshot, &bucketed, &Poll::never())
            .unwrap()
            .is_empty()
    );
}
