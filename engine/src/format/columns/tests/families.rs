//! Units of many sources with few records each, which share row groups.

use super::*;

proptest! {
    #[test]
    fn rows_of_a_family_are_the_same_whatever_was_read_before(
        steps in prop::collection::vec((0..100u16, 0..8usize, 1..8usize, 0..4u8), 1..20),
    ) {
        // Two layouts take turns; the texts of one differ in length.
        let source_of = |nth: u16| 3 * nth + 1 + nth % 2;
        let record = |nth: u16| {
            let source = source_of(nth % 100);
            (source, 130, payload(source, 5000 + u64::from(nth), &b"a text"[..usize::from(nth % 7)]))
        };
        let records: Vec<Record> = (0..1800).map(record).collect();
        let bytes = encode(&some(chunks_of(&records)), template);
        let open = || Unit::of(&UUID, FIRST, CHUNK, bytes.clone()).unwrap();
        let mut unit = open();
        for (nth, first, count, how) in steps {
            let source = source_of(nth);
            let template = template(SourceId(source));
            let half = match kind(source) {
                1 => (1, NumberRange { first: -500i64 as u64, more: 501 }),
                _ => (0, NumberRange { first: 5000, more: 901 }),
            };
            let first = first % unit.chunks();
            let chunks = first..first + count;
            let take = Take { template: &template, wanted: &Wanted::all(&template), addresses: false };
            let read = |unit: &mut Unit, addresses| {
                let take = Take { addresses, ..take };
                let mut chunk = vec![0; CHUNK as usize];
                let end = match how {
                    0 | 1 => unit.columns(chunks.clone(), &take).unwrap(),
                    2 => unit.columns_where(chunks.clone(), &take, &[half]).unwrap(),
                    _ => {
                        unit.chunk(first, &mut chunk).unwrap();
                        None
                    }
                };
                let mut rows = found_rows(unit, template.pieces.len());
                rows.iter_mut().for_each(|row| row.3 = None);
                (end, rows, chunk)
            };
            prop_assert_eq!(read(&mut unit, how == 0), read(&mut open(), false));
        }
    }
}

#[test]
fn sources_with_few_records_each_take_a_fraction_of_their_rows() {
    let chunks = some(chunks_of(&of_many_sources(18)));
    let unit = encode(&chunks, template);
    let (decoded, is_raw) = decode(&unit).unwrap();
    assert_eq!(decoded, chunks);
    assert!(!is_raw);
    assert!(
        unit.len() * 5 < chunks.len(),
        "{} of {}",
        unit.len(),
        chunks.len()
    );
    // Sources of other layouts, and those with many rows, stay alone.
    let others = [(2, 0, payload(2, 7, b"text"))].into_iter();
    let many = (0..2000).map(|nth| (3, 1, payload(3, 0, &[nth as u8; 4])));
    let records: Vec<Record> = of_many_sources(3)
        .into_iter()
        .chain(others)
        .chain(many)
        .collect();
    let chunks = some(chunks_of(&records));
    let unit = encode(&chunks, template);
    assert_eq!(decode(&unit).unwrap().0, chunks);
}

/// Damage of a shared section is an error for each source that has rows in it, and for no other.
#[test]
fn a_damaged_row_group_of_a_family_is_damage_for_its_members_alone() {
    let chunks = some(chunks_of(&of_many_sources(18)));
    let mut bytes = encode(&chunks, template);
    let end = bytes.len() - 20;
    bytes[end] ^= 1;
    let mut unit = Unit::of(&UUID, FIRST, CHUNK, bytes).unwrap();
    let mut damaged = Vec::new();
    for nth in 0..100u16 {
        let template = template(SourceId(3 * nth + 1));
        let take = Take {
            template: &template,
            wanted: &Wanted::all(&template),
            addresses: false,
        };
        match unit.columns(0..1, &take) {
            Ok(_) => assert_eq!(unit.found().map(|found| found.count() > 0), Some(true)),
            Err(error) => {
                assert!(error.to_string().contains("checksum"), "{error}");
                damaged.push(nth);
            }
        }
    }
    assert_eq!(damaged, (90..100).collect::<Vec<u16>>());
    for nth in 0..unit.chunks() {
        unit.chunk(nth, &mut vec![0; CHUNK as usize]).unwrap_err();
    }
}
