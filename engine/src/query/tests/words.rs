//! Words pass over the units whose texts cannot contain a part, in any case and alphabet, and take a bounded part of the texts.

use std::sync::Arc;

use super::lookups::build;
use super::rows::{expected, read};
use crate::format::Case;
use crate::query::{Ask, Predicate, Scan};
use crate::schema::{Expr, FieldDef, FieldType, FieldValue, PayloadEncoder, SourceDef};
use crate::testkit::Random;
use crate::testkit::asked::scan_of;
use crate::testkit::world::World;
use crate::types::LOOKUPS_NAME;

const RECORDS: u64 = 20_000;
/// In one of so many records.
const SELDOM: u64 = 10_000;
const BODY: usize = 1;

/// A line of a log; of each kind that is seldom there is one for every `SELDOM` lines.
fn line(random: &mut Random, nth: u64) -> Vec<u8> {
    let (number, id) = (random.below(100_000), random.next());
    let text = match nth % SELDOM {
        7 => format!("payment {id:016x} ended in a TimeOut after {number} ms"),
        8 => "Größe \u{212A}elvin überſchritten, İstanbul, 時間切れ".to_owned(),
        9 => format!("disk sda{} is full", number % 3),
        10 => return b"broken \xff\xfetimeo\xe2\x82ut \xc3 bytes".to_vec(),
        11 => String::new(),
        _ => match random.below(3) {
            0 => format!(
                "GET /api/v1/users/{number}/orders 200 from 10.0.0.{}",
                number % 256
            ),
            1 => format!(
                "request {id:016x} finished in {} ms with status {}",
                number % 977,
                200 + number % 2
            ),
            _ => format!(
                "connection pool main-{} has {} active",
                number % 7,
                number % 50
            ),
        },
    };
    text.into_bytes()
}

#[test]
fn few_units_are_read_for_a_part_of_a_text_and_no_row_is_lost() {
    let mut world = World::new();
    let mut def = SourceDef::new("logs");
    def.fields.push(FieldDef::new("n", FieldType::U64));
    def.fields.push(FieldDef {
        words: true,
        ..FieldDef::nullable("body", FieldType::Utf8)
    });
    let source = world.writer().define_source(&def).unwrap();
    let known = world.writer().catalog().source(source).unwrap();
    let mut encoder = PayloadEncoder::new(known.time, &known.fields).unwrap();
    let mut random = Random(5);
    let (mut lines, mut bytes) = (Vec::new(), 0);
    for nth in 0..RECORDS {
        let line = line(&mut random, nth);
        let body = match nth % 100 {
            99 => FieldValue::Null,
            _ => FieldValue::Bytes(&line),
        };
        let mut payload = Vec::new();
        let values = [FieldValue::U64(nth), body];
        encoder.encode(None, &values, &mut payload).unwrap();
        world.writer().push(source, &payload).unwrap();
        bytes += line.len() as u64;
        lines.push(line);
    }
    world.sync();
    let records = world.records();
    let seldom = [
        (Case::Sensitive, "ended in a TimeOut"),
        (Case::Insensitive, "TIMEOUT"),
        (Case::Insensitive, "kelvin"),
        (Case::Insensitive, "ISTANBUL"),
        (Case::Sensitive, "sda1 is full"),
        (Case::Sensitive, "no such word"),
    ];
    let mut check = |world: &World| -> u64 {
        let mut asked = seldom.map(|(case, part)| (case, part.to_owned())).to_vec();
        for _ in 0..20 {
            // A part of a line, perhaps in another case.
            let line: &Vec<u8> = random.pick(&lines);
            let shown = String::from_utf8_lossy(line).into_owned();
            let from = random.below(30) as usize;
            let part = shown.chars().skip(from).take(random.below(20) as usize);
            let part: String = part
                .filter(|letter| *letter != char::REPLACEMENT_CHARACTER)
                .collect();
            asked.push(match random.below(3) {
                0 => (Case::Sensitive, part),
                1 => (Case::Insensitive, part.to_uppercase()),
                _ => (Case::Insensitive, part.to_lowercase()),
            });
        }
        let snapshot = world.snapshot();
        let mut read_for_seldom = 0;
        for (nth, (case, part)) in asked.into_iter().enumerate() {
            let contains = Expr::Contains {
                field: BODY,
                part: part.clone(),
                case,
                is_in: nth % 10 != 9,
            };
            let spec = scan_of(source, Predicate::Fields(Arc::new(contains)));
            let ask = Ask {
                fields: vec![0, BODY],
                ..Ask::default()
            };
            let scan = Scan::new(&snapshot, spec.clone()).unwrap();
            let found = read(&scan, &ask, usize::MAX).rows;
            let wanted = expected(&records, &spec, &ask, None);
            assert!(
                found == wanted,
                "{part:?}: {} of {}",
                found.len(),
                wanted.len()
            );
            if nth < seldom.len() {
                read_for_seldom += scan.stats().chunks_read;
            }
        }
        read_for_seldom
    };
    let without = check(&world);
    assert!(build(&world) > 0);
    let with = check(&world);
    assert!(with * 3 < without, "{with} and {without} chunks");
    let files = std::fs::read_dir(world.dir().join(LOOKUPS_NAME)).unwrap();
    let held: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(held * 100 < bytes * 12, "{held} bytes for {bytes}");
}

#[test]
fn texts_alone_have_words() {
    let mut def = SourceDef::new("logs");
    def.fields.push(FieldDef {
        words: true,
        ..FieldDef::new("id", FieldType::Char(8))
    });
    let error = def.validate().unwrap_err().to_string();
    assert!(
        error.contains("'id' is char[8]; only utf8 has words"),
        "{error}"
    );
}
