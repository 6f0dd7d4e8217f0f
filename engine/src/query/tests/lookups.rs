//! Look-ups pass over the units without a key, whether they were built before or after a field was declared, and no question loses a row by them.

use std::fs;
use std::ops::Range;

use super::rows::{expected, read};
use crate::log::Access;
use crate::query::lookups::damaged_lookups;
use crate::query::{Ask, Lookups, Poll, Predicate, Scan, Snapshot};
use crate::schema::{FieldDef, FieldType, FieldValue, Filter, PayloadEncoder, SourceDef};
use crate::testkit::Random;
use crate::testkit::asked::scan_of;
use crate::testkit::oracle::Record;
use crate::testkit::world::{Op, Spread, World};
use crate::types::LOOKUPS_NAME;

const RECORDS: u64 = 100_000;

fn definition(lookups: &[&str]) -> SourceDef {
    let mut def = SourceDef::new("keyed");
    let all = [
        ("id", FieldType::U64, false),
        ("trace", FieldType::Char(20), true),
        ("name", FieldType::Utf8, true),
        ("mac", FieldType::Bytes(3), false),
        ("small", FieldType::I16, true),
    ];
    for (name, ty, nullable) in all {
        def.fields.push(FieldDef {
            nullable,
            lookup: lookups.contains(&name),
            ..FieldDef::new(name, ty)
        });
    }
    def
}

/// The values of a record by its number, of which nearly all are elsewhere for the next one.
fn id(nth: u64) -> u64 {
    nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn trace(nth: u64) -> String {
    format!("{:016x}", id(nth))
}

fn world(lookups: &[&str]) -> World {
    let mut world = World::new();
    world.writer().define_source(&definition(lookups)).unwrap();
    push(&mut world, 0..RECORDS);
    world
}

fn push(world: &mut World, numbers: Range<u64>) {
    let source = world.snapshot().source("keyed").unwrap().id;
    let known = world.writer().catalog().source(source).unwrap();
    let mut encoder = PayloadEncoder::new(known.time, &known.fields).unwrap();
    for nth in numbers {
        let text = trace(nth);
        let null_in = |every: u64, value| match nth % every {
            0 => FieldValue::Null,
            _ => value,
        };
        let values = [
            FieldValue::U64(id(nth)),
            null_in(3, FieldValue::Bytes(text.as_bytes())),
            null_in(7, FieldValue::Bytes(&text.as_bytes()[..9])),
            FieldValue::Bytes(&text.as_bytes()[..3]),
            null_in(2, FieldValue::I64(nth as i64 / 2000 - 5)),
        ];
        let mut payload = Vec::new();
        encoder.encode(None, &values, &mut payload).unwrap();
        world.writer().push(source, &payload).unwrap();
        if nth % 5000 == 77 {
            world.apply(&Op::batch(1, 30, Spread::Any, nth));
            world.sync();
        }
    }
    world.sync();
}

pub fn build(world: &World) -> usize {
    let directory = world.snapshot().directory().clone();
    let mut lookups = Lookups::of(directory, Access::new(None));
    (0..)
        .find(|_| !lookups.build_next(&Poll::never()).unwrap())
        .unwrap()
}

/// Builds the look-up of the units at the end.
fn build_rest(world: &World) -> bool {
    let directory = world.snapshot().directory().clone();
    let mut lookups = Lookups::of(directory, Access::new(None));
    lookups.build_rest(&Poll::never()).unwrap()
}

/// A question for a key, which some record has if `nth` is less than `RECORDS`.
fn condition(random: &mut Random, nth: u64) -> String {
    let bytes = trace(nth);
    match random.below(7) {
        0 => format!("id = {}", id(nth)),
        1 => format!("id IN ({}, {}, 5)", id(nth), id(nth + 9)),
        2 => format!("trace = '{bytes}'"),
        3 => format!("name IN ('{}', 'x')", &bytes[..9]),
        4 => format!("mac = '{}' AND trace = '{bytes}'", &bytes[..3]),
        5 => format!("name = '{}' OR id = {}", &bytes[..9], id(nth / 2)),
        _ => format!("small = {} AND NOT id = {}", nth / 2000 - 5, id(nth)),
    }
}

/// Compares the rows of random questions, and returns how many chunks were read for one that only keys answer.
fn check(snapshot: &Snapshot, records: &[Record]) -> u64 {
    let source = snapshot.source("keyed").unwrap();
    let mut random = Random(3);
    let mut read_for_keys = 0;
    for round in 0..60 {
        let nth = 12_000 + random.below(RECORDS + RECORDS / 5);
        let text = condition(&mut random, nth);
        let filter = Filter::parse(&text, &source.fields).unwrap();
        let spec = scan_of(source.id, Predicate::matching(&filter, &source));
        let ask = Ask {
            fields: vec![round % 5],
            addresses: true,
            ..Ask::default()
        };
        let scan = Scan::new(snapshot, spec.clone()).unwrap();
        let found = read(&scan, &ask, usize::MAX);
        let wanted = expected(records, &spec, &ask, None);
        assert!(
            found.rows == wanted,
            "{text}: {} of {}",
            found.rows.len(),
            wanted.len()
        );
        if text.starts_with("id = ") || text.starts_with("trace = ") {
            read_for_keys += scan.stats().chunks_read;
        }
    }
    read_for_keys
}

#[test]
fn few_units_are_read_for_a_key_and_no_row_is_lost() {
    let mut world = world(&["id", "trace", "name", "mac"]);
    // Tables with so many fields are longer than most.
    let mut wide = SourceDef::new("wide");
    wide.fields.extend((0..30).map(|nth| FieldDef {
        lookup: true,
        ..FieldDef::new(format!("f{nth}"), FieldType::U8)
    }));
    world.writer().define_source(&wide).unwrap();
    let records = world.records();
    let segments = world.finished().len();
    assert!(segments > 3, "{segments}");
    let without = check(&world.snapshot(), &records);
    assert!(build(&world) >= segments - 1);
    assert_eq!(build(&world), 0, "each is built once");
    let directory = world.snapshot().directory().clone();
    let mut keeper = Lookups::of(directory, Access::new(None));
    assert!(!keeper.build_next(&Poll::never()).unwrap());
    let first = fs::read_dir(world.dir().join(LOOKUPS_NAME)).unwrap().next();
    fs::remove_file(first.unwrap().unwrap().path()).unwrap();
    assert!(
        keeper.build_next(&Poll::never()).unwrap(),
        "one that was removed is built again"
    );
    assert!(!keeper.build_next(&Poll::never()).unwrap());
    let with = check(&world.snapshot(), &records);
    assert!(with * 4 < without, "{with} and {without} chunks");

    // Damage is reported, and loses nothing.
    let folder = world.dir().join(LOOKUPS_NAME);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .collect();
    files.sort();
    let uuid = *world.snapshot().directory().uuid().as_bytes();
    assert_eq!(damaged_lookups(&world.dir(), &uuid).unwrap(), []);
    for (nth, path) in files.iter().enumerate() {
        let mut bytes = fs::read(path).unwrap();
        match nth % 3 {
            0 => bytes
                .iter_mut()
                .skip(1000)
                .step_by(97)
                .for_each(|byte| *byte = !*byte),
            1 => bytes[20] ^= 1,
            _ => bytes.truncate(bytes.len() / 2),
        }
        fs::write(path, bytes).unwrap();
    }
    let damaged = damaged_lookups(&world.dir(), &uuid).unwrap();
    assert_eq!(damaged.len(), files.len(), "{damaged:?}");
    check(&world.snapshot(), &records);
    assert!(
        build(&world) > 0,
        "those whose tables do not verify are built again"
    );

    // Those of one segment under the name of another are not used.
    fs::copy(&files[0], &files[1]).unwrap();
    check(&world.snapshot(), &records);
    world.close();
    check(&world.snapshot(), &records);
}

#[test]
fn a_field_that_is_declared_later_has_look_ups_of_old_records() {
    let mut world = world(&["mac"]);
    let records = world.records();
    let built = build(&world);
    let without = check(&world.snapshot(), &records);
    let all = definition(&["id", "trace"]);
    world.writer().define_source(&all).unwrap();
    world.writer().define_source(&definition(&[])).unwrap();
    world.sync();
    let snapshot = world.snapshot();
    let source = snapshot.source("keyed").unwrap();
    let declared: Vec<bool> = source.fields.iter().map(|field| field.lookup).collect();
    assert_eq!(
        declared,
        [true, true, false, true, false],
        "none is taken back"
    );
    assert!(build(&world) >= built);
    let with = check(&world.snapshot(), &records);
    assert!(with * 4 < without, "{with} and {without} chunks");
}

#[test]
fn the_units_at_the_end_have_a_look_up_until_there_is_one_of_more_units() {
    let mut world = world(&["id", "trace", "name", "mac"]);
    build(&world);
    let without = check(&world.snapshot(), &world.records());
    assert!(build_rest(&world));
    assert!(!build_rest(&world), "it is built once");
    let with = check(&world.snapshot(), &world.records());
    assert!(with < without, "{with} and {without} chunks");
    let before = world.snapshot();
    let records = world.records();
    let mut last = RECORDS;
    let mut replaced = 0;
    while replaced < 2 {
        push(&mut world, last..last + RECORDS / 16);
        last += RECORDS / 16;
        assert!(last < 4 * RECORDS, "{replaced}");
        check(&world.snapshot(), &world.records());
        replaced += build(&world).min(1);
        check(&world.snapshot(), &world.records());
        build_rest(&world);
        check(&world.snapshot(), &world.records());
    }
    check(&before, &records);
}

#[test]
fn look_ups_take_whole_numbers_texts_and_bytes() {
    let mut def = definition(&[]);
    def.fields.push(FieldDef {
        lookup: true,
        ..FieldDef::new("load", FieldType::F64)
    });
    let error = def.validate().unwrap_err().to_string();
    assert!(error.contains("'load' is f64; a look-up takes"), "{error}");
}
