//! Units that are read in parts.

use super::*;

/// Questions in sequence, each about some chunks of a source.
fn questions() -> impl Strategy<Value = Vec<(u16, (usize, usize), u16, bool)>> {
    prop::collection::vec(
        (
            1..70u16,
            (0..16usize, 1..17usize),
            any::<u16>(),
            any::<bool>(),
        ),
        1..8,
    )
}

proptest! {
    #[test]
    fn a_unit_that_was_read_in_parts_holds_the_same_rows(records in records(), questions in questions(), sheds in any::<bool>()) {
        let bytes = encode(&some(chunks_of(&records)), template);
        let mut whole = Unit::of(&UUID, FIRST, CHUNK, bytes.clone()).unwrap();
        let mut unit = Unit::of_head(&UUID, FIRST, CHUNK, &bytes, bytes.len()).unwrap();
        unit.lend(Buffers::default());
        let mut spare = Vec::new();
        let mut all_read = 0;
        for (source, (first, count), bits, addresses) in questions {
            let template = template(SourceId(source));
            let wanted = Wanted {
                arrivals: bits & 1 != 0,
                lengths: addresses || bits & 2 != 0,
                pieces: (0..template.pieces.len()).map(|nth| bits >> (3 + nth) & 1 != 0).collect(),
                tails: (0..template.tails()).map(|nth| bits >> (10 + nth) & 1 != 0).collect(),
            };
            let first = first % unit.chunks();
            let chunks = first..(first + count).min(unit.chunks());
            let part = UnitPart::Columns(PartColumns {
                source: SourceId(source),
                chunks: chunks.clone(),
                wanted: Some(&wanted),
                addresses,
            });
            let missing = unit.missing(&part);
            prop_assert_eq!(unit.has(&part), missing.is_empty());
            let mut read = 0;
            unit.fill(&part, &mut spare, |start, out| {
                out.copy_from_slice(&bytes[start..start + out.len()]);
                read += out.len();
                let inside = missing.iter().any(|missing| missing.start <= start && start + out.len() <= missing.end + 8);
                inside.then_some(()).ok_or("read beside what is missing")
            }, |_| "no memory").unwrap();
            prop_assert!(unit.has(&part) && unit.missing(&part).is_empty());
            all_read += read;
            prop_assert!(all_read <= 2 * bytes.len() + (1 << 12), "{} of {}", all_read, bytes.len());
            let take = Take { template: &template, wanted: &wanted, addresses };
            let end = whole.columns(chunks.clone(), &take).unwrap();
            prop_assert_eq!(unit.columns(chunks, &take).unwrap(), end);
            let pieces = template.pieces.len();
            prop_assert_eq!(found_rows(&unit, pieces), found_rows(&whole, pieces));
            if sheds && bits & 128 != 0 {
                spare = unit.shed();
                all_read = 0;
            }
        }
        let mut chunk = vec![0; CHUNK as usize];
        unit.fill(&UnitPart::All, &mut spare, |start, out| {
            out.copy_from_slice(&bytes[start..start + out.len()]);
            Ok(())
        }, drop).unwrap();
        for nth in 0..unit.chunks() {
            let mut expected = vec![0; CHUNK as usize];
            whole.chunk(nth, &mut expected).unwrap();
            unit.chunk(nth, &mut chunk).unwrap();
            prop_assert!(chunk == expected);
        }
    }
}

/// A wrong bit in one part of a row group does not fail a question about another.
#[test]
fn a_damaged_part_leaves_the_others_of_its_row_group() {
    let number = |nth: u64| nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    let records: Vec<Record> = (0..900)
        .map(|nth| (1, 130, payload(1, number(nth), b"")))
        .collect();
    let mut bytes = encode(&some(chunks_of(&records)), template);
    let last = bytes.len() - 20;
    bytes[last] ^= 1;
    let template = template(SourceId(1));
    let outcome = |nth: usize| {
        let mut unit = Unit::of(&UUID, FIRST, CHUNK, bytes.clone()).unwrap();
        let wanted = Wanted {
            pieces: (0..3).map(|piece| piece == nth).collect(),
            ..Wanted::default()
        };
        let take = Take {
            template: &template,
            wanted: &wanted,
            addresses: false,
        };
        unit.columns(0..16, &take)
            .map_err(|error| error.to_string())
    };
    assert!(outcome(0).is_ok() && outcome(1).is_ok());
    let error = outcome(2).unwrap_err();
    assert!(error.contains("a section of a unit"), "{error}");
}

/// A question about one column does not read the others.
#[test]
fn a_question_about_one_column_reads_a_fraction() {
    // Numbers that take all their bytes lie between the lengths of the row groups.
    let number = |nth: u64| nth.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let records: Vec<Record> = (0..2000)
        .map(|nth| (2, 130, payload(2, number(nth), b"")))
        .collect();
    let bytes = encode(&some(chunks_of(&records)), template);
    let mut unit = Unit::of_head(&UUID, FIRST, CHUNK, &bytes, bytes.len()).unwrap();
    let wanted = Wanted {
        pieces: vec![false, true],
        ..Wanted::default()
    };
    let part = UnitPart::Columns(PartColumns {
        source: SourceId(2),
        chunks: 0..unit.chunks(),
        wanted: Some(&wanted),
        addresses: false,
    });
    let mut read = 0;
    let count = |_, out: &mut [u8]| {
        read += out.len();
        Ok(())
    };
    unit.fill(&part, &mut Vec::new(), count, drop).unwrap();
    assert!(read * 4 < bytes.len(), "{read} of {}", bytes.len());
}
