//! Loads the small files of `tests/inputs`, which other programs wrote. The README there says what each one shows.

use std::path::PathBuf;

use super::open;
use super::testing::{Loaded, options, read_all};

fn loaded(name: &str) -> anyhow::Result<Loaded> {
    let inputs = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/inputs");
    read_all(open(&[PathBuf::from(inputs).join(name)], None, options())?)
}

/// Checks the fields, rows and notes of a file, and that no row is refused.
fn becomes(name: &str, fields: &[&str], lines: &[&str], notes: &[&str]) {
    let loaded = loaded(name).unwrap();
    assert_eq!(loaded.fields(), fields, "{name}");
    assert_eq!(loaded.lines(), lines, "{name}");
    assert!(loaded.refused.is_empty(), "{name}: {:?}", loaded.refused);
    assert_eq!(
        loaded.notes.len(),
        notes.len(),
        "{name}: {:?}",
        loaded.notes
    );
    for (note, expected) in loaded.notes.iter().zip(notes) {
        assert!(note.contains(expected), "{name}: {note}");
    }
}

#[test]
fn nested_values_are_json() {
    becomes(
        "nested.arrow",
        &["tags json?", "counts json?", "either json?", "at json?"],
        &[
            r#"["a",null]|{"1":"one","2":null}|5|["01:02:03"]"#,
            r#"["b"]|{}|"x \"y\""|-"#,
        ],
        &["'tags'", "'counts'", "'either'", "'at'"],
    );
}

#[test]
fn two_columns_of_one_name_are_both_kept() {
    becomes(
        "twice.arrow",
        &["a i64?", "a_1 utf8?"],
        &["1|x", "2|y"],
        &["column 'a' becomes field 'a_1'"],
    );
}

#[test]
fn decimals_become_numbers_and_dates_that_nanoseconds_do_not_reach_null() {
    becomes(
        "decimals.parquet",
        &["price f64?", "huge json?", "day timestamp_ns?"],
        &[
            "12.34|12345678901234567890.5|-",
            "-0.01|-|1577923200000000000",
        ],
        &[
            "column 'price' of type Decimal128(18, 2) becomes f64",
            "column 'huge' of type Decimal128(38, 1) becomes json",
            "1 time of field 'day'",
        ],
    );
    becomes(
        "int96.parquet",
        &["at timestamp_ns?"],
        &["1577836800000001000", "-", "-"],
        &["1 time of field 'at'"],
    );
}

#[test]
fn footers_that_others_read_are_read() {
    let rows = ["7|a|[1,2]", "7|a|-", "8|b|[]"];
    for name in ["dictionary_at_zero.parquet", "no_rows_counted.parquet"] {
        assert_eq!(loaded(name).unwrap().lines(), rows, "{name}");
    }
}

#[test]
fn packets_are_dissected_behind_tags_and_checksums_and_in_first_fragments() {
    let udp = "17|1.2.3.4|5.6.7.8|53|12345|";
    for (name, expected) in [
        ("four_tags.pcap", vec![udp]),
        ("frame_checksum.pcap", vec![udp]),
        (
            "fragments.pcap",
            vec!["17|::1|::1|53|12345|", "17|::1|::1|-|-|"],
        ),
    ] {
        let lines = loaded(name).unwrap().lines();
        assert_eq!(lines.len(), expected.len(), "{name}");
        for (line, expected) in lines.iter().zip(expected) {
            assert!(line.contains(expected), "{name}: {line}");
        }
    }
}

// case Network and input: bytes that unpack to far more than they weigh
#[test]
fn what_would_be_read_as_something_else_or_take_too_much_is_an_error_that_says_so() {
    for (name, expected) in [
        ("big_endian.arrows", "its numbers are big-endian"),
        (
            "long_claim.arrow",
            "it claims 8589934736 bytes from byte 136 on, and has 474 bytes",
        ),
        (
            "long_unpacked.arrow",
            "a batch unpacks to 3072 MiB; the limit is 1024 MiB",
        ),
        (
            "many_nulls.arrow",
            "claims 2147483646 values of a column; the limit is 16777216",
        ),
        (
            "many_values.parquet",
            "a row group unpacks to 1041 MiB at once; the limit is 1024 MiB",
        ),
    ] {
        let error = format!("{:#}", loaded(name).err().unwrap());
        assert!(error.contains(name) && error.contains(expected), "{error}");
    }
}
