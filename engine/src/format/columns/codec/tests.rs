//! Compares blocks with the numbers that they encode, and each encoding's fast operations with the naive form.

use super::encoding::Decode;
use super::*;
use crate::format::bytes::FormatError;
use crate::format::columns::bits::{SLACK_BYTES, accumulate};
use crate::format::columns::number_range::tests::ranges;
use crate::format::columns::number_range::{NumberRange, RangeTotals};
use proptest::prelude::*;

/// The oracle: a block that can only decode everything.
struct Naive<'a>(&'a Block<'a>);

impl Decode for Naive<'_> {
    fn rows(&self) -> usize {
        self.0.rows()
    }

    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
        self.0.decode(out)
    }
}

fn encode(numbers: &[u64], floats: Option<u8>, members: &[usize]) -> Vec<u8> {
    let mut bytes = Vec::new();
    ColumnEncoder::default().put(numbers, floats, members, &mut bytes);
    bytes.extend_from_slice(&TAIL);
    bytes
}

/// Encodes the numbers, checks that they come back, and returns the bytes of the block.
fn round_trip(numbers: &[u64], floats: Option<u8>, members: &[usize]) -> usize {
    let bytes = encode(numbers, floats, members);
    let mut cursor = Cursor::new(&bytes);
    let block = open_block(&mut cursor, numbers.len(), floats, members).unwrap();
    assert_eq!(block.rows(), numbers.len());
    assert_eq!(block.decoded().unwrap(), numbers);
    assert_eq!(cursor.rest().len(), SLACK_BYTES);
    bytes.len() - SLACK_BYTES
}

/// Splits numbers into members of at least one.
fn members_of(rows: usize, cuts: &[prop::sample::Index]) -> Vec<usize> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(rows)).collect();
    ends.extend([0, rows]);
    ends.sort_unstable();
    ends.dedup();
    ends.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn counters_of_many_members_take_few_bytes() {
    let counter = |member: u64| (0..10).map(move |row| member * 1_000_003 + row * 10);
    let numbers: Vec<u64> = (0..100).flat_map(counter).collect();
    let length = round_trip(&numbers, None, &[10; 100]);
    assert!(length < 100, "{length}");
    let floats: Vec<u64> = numbers
        .iter()
        .map(|number| (*number as f64 / 4.0).to_bits())
        .collect();
    let length = round_trip(&floats, Some(8), &[10; 100]);
    assert!(length < 500, "{length}");
}

#[test]
fn each_shape_takes_few_bytes() {
    let rows = 1024u64;
    let shapes: [(&str, Vec<u64>, usize); 9] = [
        ("a constant", vec![77; 1024], 4),
        (
            "small numbers",
            (0..rows).map(|i| 1_000_000 + i * 7 % 16).collect(),
            520,
        ),
        (
            "times",
            (0..rows).map(|i| (1 << 60) + i * 1000 + i % 8).collect(),
            530,
        ),
        (
            "times of batches",
            (0..rows).map(|i| (1 << 60) + i / 64 * 65_536).collect(),
            40,
        ),
        (
            "few different numbers",
            (0..rows)
                .map(|i| [1 << 40, 99, 1 << 61, 5][(i * i % 7 % 4) as usize])
                .collect(),
            320,
        ),
        (
            "few different numbers that lie close together",
            (0..rows)
                .map(|i| [40, 9_000, 77, 5][(i * i % 7 % 4) as usize])
                .collect(),
            320,
        ),
        (
            "multiples of a power of two with a set bit",
            (0..rows)
                .map(|i| 1 << 62 | (i * 37 % 256) << 20 | 1)
                .collect(),
            1060,
        ),
        (
            "prices",
            (0..rows)
                .map(|i| ((i * 31 % 1000) as f64 / 100.0).to_bits())
                .collect(),
            1300,
        ),
        (
            "negative numbers",
            (0..rows).map(|i| (-3i64 - (i % 4) as i64) as u64).collect(),
            270,
        ),
    ];
    for (what, numbers, most) in shapes {
        let floats = (what == "prices").then_some(8);
        let length = round_trip(&numbers, floats, &[]);
        assert!(length <= most, "{what}: {length} bytes, {most} at most");
    }
}

fn shapes() -> impl Strategy<Value = Vec<u64>> {
    let number = prop_oneof![
        any::<u64>(),
        0..10u64,
        Just(u64::MAX),
        Just(1 << 63),
        any::<u32>().prop_map(u64::from),
        any::<i16>().prop_map(|number| i64::from(number) as u64),
        (0..1000u32).prop_map(|number| (f64::from(number) / 10.0).to_bits()),
    ];
    let some = prop::collection::vec((number, 1..20usize), 1..60);
    (some, any::<bool>(), 0..4u64).prop_map(|(runs, sums, few)| {
        let mut numbers: Vec<u64> = runs
            .into_iter()
            .flat_map(|(number, length)| std::iter::repeat_n(number, length))
            .collect();
        if sums {
            accumulate(7, &mut numbers);
        }
        if few > 0 {
            // Few different numbers in no order, close together or far apart.
            let step = 0x9E37_79B9_7F4A_7C15 >> (16 * few);
            for (nth, number) in (1..).zip(&mut numbers) {
                *number = (*number ^ (nth * nth)) % 11 * step;
            }
        }
        numbers
    })
}

/// Checks that a block gives the same answers, or errors, as its naive form.
fn same_answers(
    block: &Block<'_>,
    wanted: NumberRange,
    rows: &[u32],
    some: std::ops::Range<usize>,
) -> Result<(), TestCaseError> {
    let naive = Naive(block);
    let (mut found, mut expected) = (vec![77], vec![77]);
    let is_found = block.find(wanted, &mut found).is_ok();
    if naive.find(wanted, &mut expected).is_ok() {
        prop_assert!(is_found);
        prop_assert_eq!(found, expected);
    }
    let (mut picked, mut expected) = (vec![77], vec![77]);
    let is_picked = block.pick(rows, &mut picked).is_ok();
    if naive.pick(rows, &mut expected).is_ok() {
        prop_assert!(is_picked);
        prop_assert_eq!(picked, expected);
    }
    let totals = block.totals(some.clone(), wanted);
    if let Ok(expected) = naive.totals(some, wanted) {
        prop_assert_eq!(totals.unwrap(), expected);
    }
    let (mut runs, mut expected) = (Vec::new(), Vec::new());
    let are_runs = block.runs(&mut runs).is_ok();
    prop_assert_eq!(are_runs, naive.runs(&mut expected).is_ok());
    if are_runs {
        let numbers = |runs: Vec<Run>| {
            let each = runs.into_iter();
            each.flat_map(|run| std::iter::repeat_n(run.number, run.rows))
                .collect::<Vec<u64>>()
        };
        prop_assert_eq!(numbers(runs), numbers(expected));
    }
    Ok(())
}

fn floats() -> impl Strategy<Value = Option<u8>> {
    prop_oneof![Just(None), Just(Some(8)), Just(Some(4))]
}

proptest! {
    #[test]
    fn numbers_of_any_shape_are_read_back(numbers in shapes(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40)) {
        let members = members_of(numbers.len(), &cuts);
        for members in [&[], members.as_slice()] {
            round_trip(&numbers, None, members);
            round_trip(&numbers, Some(8), members);
            let narrow: Vec<u64> = numbers.iter().map(|number| u64::from(*number as u32)).collect();
            round_trip(&narrow, Some(4), members);
        }
    }

    #[test]
    fn an_encoder_makes_the_same_block_whatever_it_made_before(before in shapes(), numbers in shapes()) {
        let mut encoder = ColumnEncoder::default();
        encoder.put(&before, Some(8), &[], &mut Vec::new());
        let mut bytes = Vec::new();
        encoder.put(&numbers, None, &[], &mut bytes);
        bytes.extend_from_slice(&TAIL);
        prop_assert_eq!(bytes, encode(&numbers, None, &[]));
    }

    #[test]
    fn each_encoding_answers_as_its_naive_form(
        numbers in shapes(),
        any_range in ranges(),
        from in any::<prop::sample::Index>(),
        more in prop_oneof![Just(0u64), 0..200u64, any::<u64>()],
        is_any: bool,
        floats in floats(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let first = from.index(numbers.len());
        let wanted = match is_any {
            true => any_range,
            false => NumberRange { first: numbers[first], more },
        };
        let members = members_of(numbers.len(), &cuts);
        for members in [&[], members.as_slice()] {
            let numbers: Vec<u64> = numbers.iter().map(|number| if floats == Some(4) { number & 0xFFFF_FFFF } else { *number }).collect();
            let bytes = encode(&numbers, floats, members);
            let block = open_block(&mut Cursor::new(&bytes), numbers.len(), floats, members).unwrap();
            let rows: Vec<u32> = (0..numbers.len() as u32).step_by(1 + first % 3).collect();
            same_answers(&block, wanted, &rows, first..numbers.len())?;
            let mut found = Vec::new();
            block.find(wanted, &mut found).unwrap();
            let expected = (0..).zip(&numbers).filter(|(_, number)| wanted.contains(**number));
            prop_assert_eq!(found, expected.map(|(row, _)| row).collect::<Vec<u32>>());
            let totals = RangeTotals::of(numbers[first..].iter().copied(), wanted);
            prop_assert_eq!(block.totals(first..numbers.len(), wanted).unwrap(), totals);
        }
    }

    #[test]
    fn any_bytes_are_numbers_or_an_error(bytes in prop::collection::vec(prop_oneof![0..9u8, any::<u8>()], 0..200), rows in 1..50usize, floats in floats(), wanted in ranges(), are_members: bool) {
        let members = if are_members { vec![1; rows] } else { Vec::new() };
        if let Ok(block) = open_block(&mut Cursor::new(&bytes), rows, floats, &members) {
            let every: Vec<u32> = (0..rows as u32).collect();
            same_answers(&block, wanted, &every, 1..rows)?;
            let mut found = Vec::new();
            let _ = block.find(wanted, &mut found);
            prop_assert!(found.iter().all(|row| (*row as usize) < rows) && found.is_sorted());
        }
    }

    #[test]
    fn changed_bytes_are_numbers_or_an_error(numbers in shapes(), place in any::<prop::sample::Index>(), byte in any::<u8>(), wanted in ranges()) {
        let mut bytes = encode(&numbers, Some(8), &[]);
        let length = bytes.len() - SLACK_BYTES;
        *place.get_mut(&mut bytes[..length]) = byte;
        if let Ok(block) = open_block(&mut Cursor::new(&bytes), numbers.len(), Some(8), &[]) {
            let every: Vec<u32> = (0..numbers.len() as u32).collect();
            same_answers(&block, wanted, &every, 0..numbers.len())?;
        }
    }
}
