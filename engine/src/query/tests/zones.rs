//! Units are passed over by the zones of their fields, and no question loses a row by it.

use super::aggregates::check_rows;
use super::rows::{expected, read, row_of};
use crate::query::{
    AggregateSpec, Ask, Bucket, CountSpec, Poll, Predicate, RawScan, RecordCounts, Scan, ScanSpec,
    Snapshot,
};
use crate::schema::{FieldDef, FieldType, FieldValue, Filter, PayloadEncoder, Source, SourceDef};
use crate::testkit::Random;
use crate::testkit::asked::{aggregated, scan_of, whole};
use crate::testkit::oracle::{self, Record};
use crate::testkit::world::{Op, Spread, World};
use crate::types::{Address, TimeRange, ValueRange};

const PHASES: u64 = 60;
const RECORDS: u64 = 400;
/// Before it, the last field is not there.
const GROWN: u64 = 37;

fn definition(fields: usize) -> SourceDef {
    let mut def = SourceDef::new("drift");
    let all = [
        ("step", FieldType::U64, false),
        ("delta", FieldType::I32, true),
        ("wave", FieldType::F64, true),
        ("thin", FieldType::F32, false),
        ("code", FieldType::Char(11), true),
        ("name", FieldType::Utf8, true),
        ("late", FieldType::I64, true),
    ];
    for (name, ty, nullable) in all.into_iter().take(fields) {
        let field = FieldDef::new(name, ty);
        def.fields.push(FieldDef { nullable, ..field });
    }
    let index = "name = 'delta'\nvalue = 'delta'";
    def.indexes.push(toml::from_str(index).unwrap());
    def
}

/// Fields whose values move from phase to phase, of which a few fill a unit; and other sources, some of them in raw units.
fn world() -> World {
    let mut world = World::new();
    let mut random = Random(11);
    let mut fields = 6;
    let mut id = world.writer().define_source(&definition(fields)).unwrap();
    for phase in 0..PHASES {
        if phase == GROWN {
            fields = 7;
            id = world.writer().define_source(&definition(fields)).unwrap();
        }
        let source = world.writer().catalog().source(id).unwrap();
        let mut encoder = PayloadEncoder::new(source.time, &source.fields).unwrap();
        for _ in 0..RECORDS {
            let noise = random.below(50);
            let text = format!("{}{}", phase_text(phase), noise % 10);
            let null_in = |phases: u64, value| match phase % phases {
                0 => FieldValue::Null,
                1 if noise.is_multiple_of(2) => FieldValue::Null,
                _ => value,
            };
            let wave = match (phase % 7, noise) {
                (3, 0) => f64::NAN,
                (4, _) => -0.0,
                (5, 1) => f64::NEG_INFINITY,
                _ => (phase as f64 - 30.0) * 8.0 + noise as f64 / 64.0,
            };
            let values = [
                FieldValue::U64(phase * 1000 + noise),
                null_in(5, FieldValue::I64(noise as i64 - 100 * phase as i64)),
                null_in(9, FieldValue::F64(wave)),
                FieldValue::F64(-(phase as f64) - noise as f64 / 64.0),
                null_in(8, FieldValue::Bytes(text.as_bytes())),
                null_in(6, FieldValue::Bytes(text.as_bytes())),
                null_in(4, FieldValue::I64(-((phase * 10 + noise) as i64))),
            ];
            let mut payload = Vec::new();
            encoder
                .encode(None, &values[..fields], &mut payload)
                .unwrap();
            world.writer().push(id, &payload).unwrap();
        }
        if phase % 10 == 3 {
            let raw = world.sources[2];
            for _ in 0..24 {
                let bytes: Vec<u8> = (0..3000).map(|_| random.next() as u8).collect();
                world.writer().push(raw, &bytes).unwrap();
            }
        }
        world.apply(&Op::batch(phase as usize % 2, 30, Spread::Any, phase));
        if phase % 3 == 0 && phase < PHASES - 6 {
            world.sync();
        }
    }
    world.writer().publish().unwrap();
    world
}

/// Texts of some phases differ in their first 8 bytes, and of some behind them.
fn phase_text(phase: u64) -> String {
    match phase % 3 {
        0 => format!("{phase:02}"),
        _ => format!("{:02}-------", phase / 10),
    }
}

fn literal(random: &mut Random, field: &FieldDef) -> String {
    let (phase, noise) = (random.below(PHASES + 3), random.below(50));
    match field.name.as_str() {
        "step" => (phase * 1000 + noise).to_string(),
        "delta" => (noise as i64 - 100 * phase as i64).to_string(),
        "wave" => ((phase as f64 - 30.0) * 8.0).to_string(),
        "thin" => (-(phase as f64)).to_string(),
        "late" => (-((phase * 10 + noise) as i64)).to_string(),
        _ => {
            let text = format!("{}{}", phase_text(phase), noise % 10);
            format!("'{}'", &text[..text.len() - random.below(3) as usize])
        }
    }
}

fn filter_text(random: &mut Random, fields: &[FieldDef], depth: u32) -> String {
    if depth > 0 && random.below(3) == 0 {
        let join = random.pick(&[" AND ", " OR ", " AND NOT ", " OR NOT "]);
        let left = filter_text(random, fields, depth - 1);
        let right = filter_text(random, fields, depth - 1);
        return format!("({left}{join}{right})");
    }
    let field = random.pick(fields);
    let [a, b, c] = std::array::from_fn(|_| literal(random, field));
    let name = &field.name;
    match random.below(9) {
        0 => format!("{name} IS NULL"),
        1 => format!("{name} IS NOT NULL"),
        2 => format!("{name} IN ({a}, {b}, {c})"),
        3 => format!("{name} BETWEEN {a} AND {b}"),
        _ => {
            let op = random.pick(&["=", "=", "<>", "<", "<=", ">", ">="]);
            format!("{name} {op} {a}")
        }
    }
}

/// The rows of random filters, oldest first and newest first; returns how many chunks were passed over.
fn check_filters(world: &World, records: &[Record]) -> u64 {
    let snapshot = world.snapshot();
    let source = snapshot.source("drift").unwrap();
    let mut random = Random(5);
    let mut passed = 0;
    for round in 0..150u64 {
        let text = filter_text(&mut random, &source.fields, 2);
        let filter = Filter::parse(&text, &source.fields).unwrap();
        let mut spec = scan_of(source.id, Predicate::matching(&filter, &source));
        if round % 4 == 0 {
            spec.after = Address(
                records[random.below(records.len() as u64) as usize]
                    .address
                    .0,
            );
        }
        let ask = Ask {
            fields: (0..7).filter(|_| random.below(2) == 0).collect(),
            times: round % 3 == 0,
            addresses: round % 5 == 0,
            payloads: round % 11 == 0,
            ..Ask::default()
        };
        let scan = Scan::new(&snapshot, spec.clone()).unwrap();
        let found = read(&scan, &ask, [1, 40, usize::MAX][round as usize % 3]);
        let wanted = expected(records, &spec, &ask, None);
        assert!(
            found.rows == wanted,
            "{text}: {} of {}",
            found.rows.len(),
            wanted.len()
        );
        passed += scan.stats().chunks_outside_zones;

        let ask = Ask {
            addresses: true,
            ..Ask::default()
        };
        let mut scan = RawScan::new(&snapshot, source.id, &spec.exact, ask.clone()).unwrap();
        let mut found = Vec::new();
        while let Some(batch) = scan.next(&Poll::never()).unwrap() {
            found.extend_from_slice(batch.addresses());
        }
        let own = records.iter().filter(|record| record.source == source.id);
        let own = own.filter(|record| record.matches(&spec.exact));
        let wanted: Vec<u64> = own.rev().map(|record| row_of(record, &ask).1).collect();
        assert!(
            found == wanted,
            "{text}: {} of {}",
            found.len(),
            wanted.len()
        );
        passed += scan.stats().chunks_outside_zones;
        check_aggregates(&snapshot, &source, records, &spec, 1 + round as usize % 2);
    }
    passed
}

/// The aggregates of an index and the count of records, by so many threads, are those of the records that match.
fn check_aggregates(
    snapshot: &Snapshot,
    source: &Source,
    records: &[Record],
    spec: &ScanSpec,
    threads: usize,
) {
    let index = &source.indexes[0];
    let asked = AggregateSpec {
        filter: spec.exact.clone(),
        threads,
        ..whole(source.id, index.id, &[0.5])
    };
    let found = aggregated(snapshot, &asked);
    let matching = || records.iter().filter(|record| record.matches(&spec.exact));
    let all = (TimeRange::ALL, ValueRange::ALL);
    let wanted = oracle::aggregate(matching(), source.id, index.id, all.0, all.1, None);
    check_rows(&found, &wanted, &[0.5], index, false);

    let counted = CountSpec {
        time: TimeRange::ALL,
        bucket: Bucket::nanos(1_000_000_000),
        threads,
    };
    let mut counts = RecordCounts::new(&[(snapshot, source.id, &spec.exact)], counted).unwrap();
    let rows = std::iter::from_fn(|| counts.next(&Poll::never()).unwrap());
    let found: u64 = rows.flatten().map(|row| row.count).sum();
    let own = matching().filter(|record| record.source == source.id);
    assert_eq!(found, own.count() as u64);
}

#[test]
fn units_whose_zones_exclude_a_question_are_passed_over_and_no_row_is_lost() {
    let mut world = world();
    let records = world.records();
    assert!(!world.finished().is_empty());
    let live = check_filters(&world, &records);
    world.close();
    let ended = check_filters(&world, &records);
    assert!(live > 1000 && ended > 1000, "{live}, {ended}");
}
