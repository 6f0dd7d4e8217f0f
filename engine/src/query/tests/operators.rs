//! Every operator agrees with the oracle: any windows, values, buckets and positions, live and closed.

use proptest::prelude::*;
use proptest::strategy::ValueTree;

use super::aggregates::check_aggregate;
use super::question::{Ask, Question, any_ask, predicate};
use super::raw_scans::{check_latest, check_raw_scan};
use super::scans::{check_indexed_scan, scanned};
use crate::query::Predicate;
use crate::testkit::Random;
use crate::testkit::oracle::Record;
use crate::testkit::world::{Op, Spread, World, any_ops};
use crate::types::{Address, Timestamp};

fn check_totals(world: &World, all: &[Record]) {
    let snapshot = world.snapshot();
    let newest = all.last().map(|record| record.arrival);
    assert_eq!(snapshot.newest_ts().unwrap(), newest);
    let oldest = all.first().map(|record| record.arrival);
    assert_eq!(snapshot.oldest_ts().unwrap(), oldest);
    for record in all.iter().step_by(1 + all.len() / 20) {
        let chunk_bytes = snapshot.chunk_bytes().into();
        let first = all.iter().find(|other| other.arrival >= record.arrival);
        let expected = first.unwrap().address.align_down(chunk_bytes);
        assert_eq!(snapshot.arrived_since(record.arrival).unwrap(), expected);
        let first = first.unwrap().address;
        assert_eq!(
            snapshot
                .first_arrived(record.arrival)
                .unwrap()
                .known()
                .unwrap(),
            first
        );
    }
    let together = snapshot.totals().unwrap();
    let later = newest.map_or(Timestamp::MIN, |newest| Timestamp(newest.0 + 1));
    let end = Address(snapshot.position());
    assert_eq!(snapshot.arrived_since(later).unwrap(), end);
    assert_eq!(snapshot.first_arrived(later).unwrap().known().unwrap(), end);
    for source in &world.sources {
        let own: Vec<&Record> = all
            .iter()
            .filter(|record| record.source == *source)
            .collect();
        let totals = snapshot.source_totals(*source).unwrap();
        assert_eq!(together.get(source).copied().unwrap_or_default(), totals);
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

fn check(world: &World, asks: &[Ask]) {
    let all = world.records();
    check_totals(world, &all);
    for (number, ask) in asks.iter().enumerate() {
        let question = Question::new(world, &all, ask);
        check_raw_scan(&question);
        check_latest(&question);
        let mut random = Random(number as u64 * 977 + u64::from(ask.quantiles));
        for _ in 0..3 {
            let exact = predicate(&question, &mut random, 2);
            let exact = Predicate::and([exact, question.passing()]);
            let (rows, count) = scanned(
                &question.snapshot,
                question.source,
                Address::ZERO,
                exact.clone(),
                Predicate::All,
            );
            assert_eq!(rows, question.rows(&exact), "{exact:?}");
            assert!(
                count.is_none_or(|count| count == rows.len() as u64),
                "{exact:?}"
            );
            // The address is where a record begins, inside one, at a chunk's edge, or past the end.
            let after = match random.next() % 4 {
                0 => all
                    .get((random.next() % all.len().max(1) as u64) as usize)
                    .map_or(Address::ZERO, |record| record.address),
                1 => Address(random.next() % (question.snapshot.position() + 64)),
                2 => Address(random.next() % (question.snapshot.position() + 64))
                    .align_down(question.snapshot.chunk_bytes().into()),
                _ => Address(question.snapshot.position()),
            };
            let (rows, count) = scanned(
                &question.snapshot,
                question.source,
                after,
                exact.clone(),
                Predicate::All,
            );
            let mut expected = question.rows(&exact);
            expected.retain(|(address, ..)| *address >= after.0);
            assert_eq!(rows, expected, "{exact:?} from {after} on");
            assert!(
                count.is_none_or(|count| count == rows.len() as u64),
                "{exact:?} from {after} on"
            );
            // A predicate that only prunes may not leave out a record that it holds for.
            let (rows, _) = scanned(
                &question.snapshot,
                question.source,
                Address::ZERO,
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

    // G11
    // case SQL: filter of a question
    // case Archive: read while both are written
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

/// There are enough chunks for roll-ups of roll-ups, with windows that cut them anywhere.
#[test]
fn windows_over_thousands_of_chunks_agree_with_the_oracle() {
    let mut ops = vec![Op::Define(0), Op::Define(1), Op::Define(3)];
    for round in 0..90u64 {
        ops.push(Op::batch(
            [0, 0, 1, 0, 2][round as usize % 5],
            400,
            [Spread::Skewed, Spread::Few, Spread::Any][round as usize % 3],
            round * 31 + 5,
        ));
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
        ops.push(Op::batch(
            [0, 1, 0, 2][round as usize % 4],
            500,
            Spread::Skewed,
            round,
        ));
    }
    let world = World::of(&ops);
    let all = world.records();
    let reader = world.scene.reader();
    for chunk in [1, 7, 63, 64, 100, 140] {
        let mut tails = reader.tails().unwrap();
        tails.begin.records = Address(chunk * 4096);
        assert!(tails.begin.records < tails.tail.records);
        let snapshot = world
            .directory
            .snapshot_of(tails, tails.tail.records)
            .unwrap();
        let retained: Vec<Record> = all
            .iter()
            .filter(|record| record.address >= tails.begin.records)
            .cloned()
            .collect();
        for source in &world.sources {
            let totals = snapshot.source_totals(*source).unwrap();
            let own = retained.iter().filter(|record| record.source == *source);
            assert_eq!(totals.records, own.count() as u64);
            let indexes = world.indexes(*source);
            let question = Question::plain(&snapshot, &retained, *source);
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
fn a_position_lies_between_records_or_is_told_from_those_that_do() {
    let mut ops = Vec::new();
    for seed in 0..6 {
        let (source, records) = (seed as usize % 3, 120);
        ops.push(Op::push(source, records, Spread::Any, seed));
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
