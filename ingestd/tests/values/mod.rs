//! Tests `ingestd load` of CSV and JSON with values of all kinds, and with rows of a wrong number of columns: each is stored unchanged, or its row is
//! refused and counted.

use std::fs;
use std::path::Path;

use crate::place::Place;

#[test]
fn values_are_kept_as_they_are_or_refused() {
    let columns = ["code", "count", "ratio", "ok", "at", "name"];
    // A column, a value of CSV, one of JSON, and whether it is stored.
    let later = [
        (0, "007", "\"007\"", false),
        (0, "+7", "\"7\"", false),
        (0, "12.0", "12.0", false),
        (1, "1e3", "1e3", false),
        (1, "-0", "-0", false),
        (1, "1000", "1000", true),
        (2, "007.5", "\"7.5\"", false),
        (2, "1e3", "1e3", true),
        (2, "NaN", "\"NaN\"", true),
        (3, "0", "\"0\"", false),
        (3, "1", "1", false),
        (3, "FALSE", "false", true),
        (4, "20240103", "20240103", false),
        (4, "1700000000", "\"1700000000\"", false),
        (4, "2024-01-03", "\"2024-01-03\"", true),
        (5, "007", "\"007\"", true),
        (5, "1e3", "1e3", true),
    ];
    let kept = later.iter().filter(|(.., kept)| *kept).count();
    let refused = later.len() - kept;
    let csv = |cells: [&str; 6]| cells.join(",") + "\n";
    let one = |place: usize, cell: &str| {
        let mut cells = [""; 6];
        cells[place] = cell;
        csv(cells)
    };
    let csv_later: String = later.iter().map(|(at, cell, ..)| one(*at, cell)).collect();
    let object = |at: usize, token: &str| format!("{{\"{}\":{token}}}\n", columns[at]);
    let json_later: String = later
        .iter()
        .map(|(at, _, token, _)| object(*at, token))
        .collect();
    let fields = "code i64?, count i64?, ratio f64?, ok bool?, at timestamp_ns?, name utf8?";
    for (name, text) in [("csv", csv(columns) + &csv_later), ("jsonl", json_later)] {
        let place = Place::new();
        let file = place.file(&format!("a.{name}"), text.as_bytes());
        let loaded = place.load_into(fields, &[], &file);
        let counts = format!(
            "received={} stored={kept} refused={refused} dropped=0",
            kept + refused
        );
        loaded.gives(
            &counts,
            &vec!["; a field of type utf8 keeps it (--fields)"; refused],
        );
        assert_eq!(loaded.output.status.code(), Some(1));
    }
}

#[test]
fn rows_of_another_number_of_columns_than_the_first_are_all_counted_and_refused() {
    for (text, args, fields, reason) in [
        (
            "Report of May\na,b\n1,2\n",
            &[][..],
            "Report of May i64",
            "it has 2 columns, not 1;",
        ),
        (
            "a,b\n1,2,\n3,4,\n",
            &[],
            "a i64, b i64",
            "it has 3 columns, not 2;",
        ),
        (
            "a,b\n0,1,2\n1,3,4\n",
            &[],
            "a i64, b i64",
            "it has 3 columns, not 2;",
        ),
        (
            "a;b,c\n1,5;2,5\n3,5;4,5\n",
            &["--delimiter", ","],
            "a;b i64, c i64",
            "it has 3 columns, not 2;",
        ),
        (
            "a,b\n1\n2\n",
            &[],
            "a i64, b i64",
            "it has 1 column, not 2;",
        ),
    ] {
        let place = Place::new();
        let file = place.file("a.csv", text.as_bytes());
        let piped = place.load_into_from(
            fields,
            &[&["--format", "csv"], args].concat(),
            Path::new("-"),
            fs::File::open(&file).unwrap().into(),
        );
        for loaded in [place.load_into(fields, args, &file), piped] {
            let none = "no row was stored: source 's' is not created";
            loaded.gives(
                "received=2 stored=0 refused=2 dropped=0",
                &[reason, reason, none],
            );
            assert_eq!(loaded.output.status.code(), Some(1));
            assert!(!loaded.dir.exists());
        }
    }
}
