//! The indexed aggregate agrees with the oracle, for any number of threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::question::Question;
use crate::error::Error;
use crate::query::{Aggregate, AggregateRow, AggregateSpec, Bucket, Poll, aggregate};
use crate::schema::{BinsDef, Index, TimeKind};
use crate::testkit::asked::{aggregated, whole};
use crate::testkit::oracle::{self, OracleRow, Record};
use crate::testkit::world::{Op, Spread, World};
use crate::types::{Address, IndexId, Key, TimeRange, ValueKind, ValueRange};

pub fn check_aggregate(question: &Question, index: IndexId, approx: bool) {
    for threads in [1, 3] {
        let visible = &question.visible;
        check_part(question, index, approx, threads, visible, None);
        // From one record up to another.
        let third = visible.len() / 3;
        if third > 0 {
            let (part, to) = (&visible[third..2 * third], visible[2 * third].address);
            check_part(question, index, approx, threads, part, Some(to));
        }
    }
}

pub fn check_part(
    question: &Question,
    index: IndexId,
    approx: bool,
    threads: usize,
    visible: &[Record],
    to: Option<Address>,
) {
    let spec = AggregateSpec {
        time: question.time,
        value: question.value,
        filter: question.passing(),
        bucket: question.bucket,
        approx,
        threads,
        ..whole(question.source, index, &question.quantiles)
    };
    let found = match to {
        None => aggregated(&question.snapshot, &spec),
        Some(to) => {
            let mut part = Aggregate::new(&[(question.snapshot.up_to(to), spec)]).unwrap();
            part.after(visible[0].address);
            let rows = std::iter::from_fn(|| part.next(&Poll::never()).unwrap());
            rows.flatten().collect()
        }
    };
    let passing = visible
        .iter()
        .filter(|record| record.passes(question.filter.as_ref()));
    let expected = oracle::aggregate(
        passing,
        question.source,
        index,
        question.time,
        question.value,
        question.bucket,
    );
    let index = question.snapshot.index(index).unwrap();
    check_rows(&found, &expected, &question.quantiles, &index, approx);
}

/// Rows of an index agree with those of the oracle.
pub fn check_rows(
    found: &[AggregateRow],
    expected: &[OracleRow],
    quantiles: &[f64],
    index: &Index,
    approx: bool,
) {
    let signed = index.kind == ValueKind::Signed;
    assert_eq!(found.len(), expected.len(), "buckets");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found.bucket, expected.bucket);
        assert_eq!(found.count, expected.keys.len() as u64, "count");
        assert_eq!(found.min, expected.keys.first().copied(), "min");
        assert_eq!(found.max, expected.keys.last().copied(), "max");
        assert!(expected.has_sum(&found.sum, signed), "sum {:?}", found.sum);
        let columns = found.quantiles.iter().zip(&found.bounds);
        for (q, (quantile, bounds)) in quantiles.iter().zip(columns) {
            let exact = expected.quantile(*q);
            let within = |key| bounds.is_some_and(|bounds| bounds.contains(key));
            assert!(exact.is_none_or(within), "quantile {q} within {bounds:?}");
            assert!(approx || bounds.is_none_or(|bounds| bounds.min == bounds.max));
            if approx {
                let bin = |key: &Option<Key>| key.map(|key| index.bins.bin(key));
                assert_eq!(bin(quantile), bin(&exact), "approximate quantile {q}");
            } else {
                assert_eq!(*quantile, exact, "quantile {q}");
            }
        }
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
    let spec = whole(source, index, &[0.5]);
    let snapshot = world.snapshot();
    let error = aggregate(&snapshot, &spec, &Poll::never()).unwrap_err();
    assert!(error.to_string().contains("function"), "{error}");
    world.directory.provide_function(index, Arc::new(length));
    let rows = aggregated(&snapshot, &spec);
    // The lengths are 11 to 299, before the index and after it.
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
    let spec = whole(source.id, source.indexes[0].id, &[0.5]);
    let rows = aggregated(&snapshot, &spec);
    assert_eq!((rows.len(), rows[0].count, rows[0].min), (1, 0, None));
    assert_eq!(rows[0].quantiles, [None]);
    let bucketed = AggregateSpec {
        bucket: Some(Bucket::nanos(1000)),
        ..spec
    };
    assert_eq!(aggregated(&snapshot, &bucketed), []);
}

#[test]
fn an_interrupted_aggregate_says_so_whoever_reads() {
    let batch = |seed| Op::batch(0, 800, Spread::Skewed, seed);
    let world = World::of(&(0..40).map(batch).collect::<Vec<_>>());
    let snapshot = world.snapshot();
    let source = snapshot.source("metric").unwrap();
    let index = source.index("size").unwrap().id;
    let spec = AggregateSpec {
        // Every chunk holds values on both sides of it.
        value: ValueRange {
            min: Key(1 << 10),
            max: Key::MAX,
        },
        threads: 3,
        ..whole(source.id, index, &[])
    };
    let poll = Poll::new(&|| true);
    let started = Instant::now();
    // Repeated until the closure is called: the directory is small, and the closure is called only after an interval.
    loop {
        match aggregate(&snapshot, &spec, &poll) {
            Err(Error::Interrupted) => break,
            rows => assert!(rows.unwrap()[0].count > 0),
        }
        assert!(started.elapsed() < Duration::from_secs(10));
    }
}

/// Buckets cut chunks. A chunk that is cut is read for at most both of its buckets.
#[test]
fn quantiles_from_bins_cost_no_chunk_that_the_totals_do_not() {
    let batch = |seed| Op::batch(0, 1500, Spread::Skewed, seed);
    let fill = || Op::Fill(70);
    let world = World::of(&[Op::Define(1), batch(1), fill(), batch(2), fill(), batch(3)]);
    let source = world.sources[0];
    let index = world.indexes(source)[0];
    let totals = world.snapshot().source_totals(source).unwrap();
    let time = TimeRange {
        first: totals.first_ts.unwrap(),
        last: totals.last_ts.unwrap(),
    };
    let read = |quantiles: &[f64]| {
        let snapshot = world.snapshot();
        let spec = AggregateSpec {
            time,
            bucket: Some(Bucket::nanos((time.last.0 - time.first.0) / 3 + 1)),
            approx: true,
            ..whole(source, index, quantiles)
        };
        let rows = aggregated(&snapshot, &spec);
        assert!(rows.len() > 1, "{rows:?}");
        snapshot.stats().chunks_read
    };
    let totals_alone = read(&[]);
    assert!(totals_alone > 0);
    assert_eq!(read(&[0.5, 0.9999]), totals_alone);
}
