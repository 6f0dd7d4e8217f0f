//! A filter selects the same records from columns and from live rows as from single records.

use std::sync::Arc;

use super::aggregates::check_aggregate;
use super::question::{Question, predicate, random_filter};
use super::rows::{Row, expected, read};
use super::together::{Place, check_counts, check_top};
use crate::query::{Ask, Bucket, Predicate, Scan, ScanSpec};
use crate::schema::{BinsDef, Filter};
use crate::testkit::Random;
use crate::testkit::asked::scan_of;
use crate::testkit::oracle::Record;
use crate::testkit::world::{Op, Spread, World};
use crate::types::{Address, Key, TimeRange, Timestamp, ValueKind, ValueRange};

/// Filters of each kind of test and field: on one field, on several, on one with an index.
const FILTERS: [(&str, &str); 16] = [
    ("metric", "kind = 2"),
    ("metric", "kind <> 2"),
    ("metric", "kind IN (0, 3) AND change < 5"),
    ("metric", "change BETWEEN -3 AND 4"),
    ("metric", "ratio > 0.02"),
    ("metric", "size = 3 OR ratio < 0"),
    ("metric", "size IS NULL"),
    ("metric", "size >= 3 AND kind = 1 AND ratio <= 0.1"),
    ("metric", "note < 'xxxxx'"),
    ("metric", "tag = 'abcdefghi'"),
    ("metric", "tag > 'abc' OR NOT note = 'x'"),
    ("metric", "tag IS NULL AND kind < 3"),
    ("metric", "tag IN ('abc', 'abcdefghi', '')"),
    ("metric", "note IN ('x', 'xx', 'xxxxx', 'y') OR tag > 'b'"),
    ("event", "level > 2"),
    ("event", "level NOT IN (1, 2, -3)"),
];

/// A world of units and, behind them, records that are not in a unit yet.
fn world() -> World {
    let batch = |nth: u64| {
        Op::batch(
            nth as usize % 3,
            400,
            [Spread::Few, Spread::Skewed, Spread::Any][nth as usize / 3 % 3],
            nth,
        )
    };
    let mut ops = vec![Op::Define(0), Op::Define(1), Op::Define(2)];
    ops.extend((0..90).map(batch));
    ops.push(Op::Sync);
    ops.extend((90..99).map(batch));
    World::of(&ops)
}

/// The tests are of times, of values, of fields of each type, and of all of them together.
#[test]
fn a_scan_that_reads_few_fields_gives_the_rows_that_satisfy_everything() {
    let world = world();
    let snapshot = world.snapshot();
    let records = world.records();
    let (mut together, mut omitted) = (0, 0);
    for source in snapshot.catalog().sources() {
        let question = Question::plain(&snapshot, &records, source.id);
        let mut random = Random(u64::from(source.id.0) * 77 + 5);
        for round in 0..60 {
            let of_records = predicate(&question, &mut random, 2);
            let fields = random_filter(&mut random, source).map_or(Predicate::All, |filter| {
                match round % 3 {
                    0 => Predicate::Fields(Arc::new(filter.expr().clone())),
                    _ => Predicate::matching(&filter, source),
                }
            });
            let exact = match round % 4 {
                0 => fields,
                1 => of_records,
                2 => Predicate::and([of_records, fields]),
                _ => Predicate::or([of_records, fields]),
            };
            let filtered = source.indexes.iter().find(|index| index.filter().is_some());
            let named = filtered.filter(|_| round % 5 == 0);
            let spec = ScanSpec {
                source: source.id,
                after: Address(records[records.len() / 3].address.0 * (round % 2)),
                exact,
                prune: Predicate::All,
                index_filters: named.map(|index| index.id).into_iter().collect(),
            };
            let omitting = random_filter(&mut random, source).filter(|_| round % 6 == 1);
            let ask = Ask {
                fields: (0..source.fields.len()).skip(round as usize % 7).collect(),
                payloads: round % 11 == 0,
                times: round % 8 < 6,
                addresses: round % 16 > 6,
                tests: omitting.iter().map(|test| test.expr().clone()).collect(),
                ..Ask::default()
            };
            let scan = Scan::new(&snapshot, spec.clone()).unwrap();
            let found = read(&scan, &ask, [1, 7, usize::MAX][round as usize % 3]);
            let filter = named.and_then(|index| index.filter());
            let most = expected(&records, &spec, &ask, filter);
            let passing = records
                .iter()
                .filter(|record| record.passes(omitting.as_ref()));
            let least = expected(passing, &spec, &ask, filter);
            assert!(
                is_within(&least, &found.rows) && is_within(&found.rows, &most),
                "{} {round}: {:?}",
                source.name,
                spec.exact
            );
            omitted += most.len() - found.rows.len();
            together += found.together;
        }
    }
    assert!(together > 100, "{together}");
    assert!(omitted > 1000, "{omitted}");
}

/// Whether some rows are among others, in the same order.
fn is_within(rows: &[Row], others: &[Row]) -> bool {
    let mut others = others.iter();
    rows.iter().all(|row| others.any(|other| other == row))
}

/// A function may read any field, while the filter beside it names the fields that it needs.
#[test]
fn a_function_and_a_filter_together_give_the_rows_that_satisfy_both() {
    let mut world = world();
    let source = world.sources[0];
    let parity = |payload: &[u8]| {
        Some(Key(payload
            .iter()
            .map(|byte| u64::from(*byte))
            .sum::<u64>()
            % 2))
    };
    let kind = ValueKind::Unsigned;
    let index =
        world
            .writer()
            .define_index_fn(source, "parity", kind, &BinsDef::Auto, Box::new(parity));
    let index = index.unwrap();
    world.writer().publish().unwrap();
    world.directory.provide_function(index, Arc::new(parity));
    let snapshot = world.snapshot();
    let def = snapshot.source("metric").unwrap();
    let filter = Filter::parse("kind = 2 OR note < 'xxxxx'", &def.fields).unwrap();
    let odd = ValueRange {
        min: Key(1),
        max: Key(1),
    };
    let of_fields = Predicate::matching(&filter, &def);
    let records = world.records();
    for is_both in [true, false] {
        let sides = [Predicate::value(index, odd), of_fields.clone()];
        let exact = match is_both {
            true => Predicate::and(sides),
            false => Predicate::or(sides),
        };
        let scan = Scan::new(&snapshot, scan_of(source, exact)).unwrap();
        let found = read(&scan, &Ask::all(), 3);
        let wanted = records.iter().filter(|record| {
            let (is_odd, passes) = (
                parity(&record.payload) == Some(Key(1)),
                record.passes(Some(&filter)),
            );
            record.source == source
                && if is_both {
                    is_odd && passes
                } else {
                    is_odd || passes
                }
        });
        let wanted: Vec<u64> = wanted.map(|record| record.address.0).collect();
        assert!(!wanted.is_empty());
        let found: Vec<u64> = found.rows.iter().map(|row| row.1).collect();
        assert!(
            found == wanted,
            "{is_both}: {} of {}",
            found.len(),
            wanted.len()
        );
    }
}

/// Covers every index: whole, by bucket, in a part of the time and of the values.
#[test]
fn summaries_of_filtered_records_agree_with_the_oracle() {
    let world = world();
    let snapshot = world.snapshot();
    let records = world.records();
    for (name, text) in FILTERS {
        let source = snapshot.source(name).unwrap();
        let own: Vec<&Record> = (records.iter())
            .filter(|record| record.source == source.id)
            .collect();
        let mut times: Vec<Timestamp> = own.iter().map(|record| record.ts).collect();
        times.sort();
        let part = |first: usize, last: usize| TimeRange {
            first: times[(times.len() - 1) * first / 8],
            last: times[(times.len() - 1) * last / 8],
        };
        for index in &source.indexes {
            let mut keys: Vec<_> = own
                .iter()
                .filter_map(|record| record.key(index.id))
                .collect();
            keys.sort();
            let value = ValueRange {
                min: keys[keys.len() / 4],
                max: keys[keys.len() * 7 / 8],
            };
            for (time, value, by_bucket) in [
                (TimeRange::ALL, ValueRange::ALL, false),
                (TimeRange::ALL, value, false),
                (part(1, 6), ValueRange::ALL, false),
                (part(0, 7), value, true),
            ] {
                let span = i128::from(time.last.0) - i128::from(time.first.0);
                let bucket = by_bucket.then(|| Bucket::nanos((span / 5) as i64));
                let question = Question {
                    time,
                    value,
                    bucket,
                    filter: Some(Filter::parse(text, &source.fields).unwrap()),
                    ..Question::plain(&snapshot, &records, source.id)
                };
                check_aggregate(&question, index.id, false);
                check_aggregate(&question, index.id, true);
            }
        }
        let filter = Filter::parse(text, &source.fields).unwrap();
        let places = [Place {
            world: &world,
            snapshot: snapshot.clone(),
            source: source.id,
            index: source.indexes[0].id,
            passing: Predicate::matching(&filter, &source),
            filter: Some(filter),
        }];
        let time = part(1, 7);
        let span = i128::from(time.last.0) - i128::from(time.first.0);
        check_counts(&places, time, Bucket::nanos((span / 6) as i64));
        check_top(&places, time, 20);
    }
}
