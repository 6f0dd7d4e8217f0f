//! `ingestd load` of CSV and JSON with values of all kinds, and with rows of another number of columns: each is kept as it is, or its row is
//! refused and counted.

use std::fs;
use std::path::Path;

use loom_tests::command::table;

use super::place::Place;

#[test]
fn values_are_kept_as_they_are_or_refused() {
    let columns = ["code", "count", "ratio", "ok", "at", "name"];
    // A column, a value of CSV, one of JSON, and whether it is kept.
    let later = table::<4>(
        r#"
        code  | 007        | "007"        | refused
        code  | +7         | "7"          | refused
        code  | 12.0       | 12.0         | refused
        count | 1e3        | 1e3          | refused
        count | -0         | -0           | refused
        count | 1000       | 1000         | kept
        ratio | 007.5      | "7.5"        | refused
        ratio | 1e3        | 1e3          | kept
        ratio | NaN        | "NaN"        | kept
        ok    | 0          | "0"          | refused
        ok    | 1          | 1            | refused
        ok    | FALSE      | false        | kept
        at    | 20240103   | 20240103     | refused
        at    | 1700000000 | "1700000000" | refused
        at    | 2024-01-03 | "2024-01-03" | kept
        name  | 007        | "007"        | kept
        name  | 1e3        | 1e3          | kept
        "#,
    );
    let kept = later.iter().filter(|[.., kept]| *kept == "kept").count();
    let (received, refused) = (later.len(), later.len() - kept);
    let csv = later.iter().map(|[name, cell, ..]| {
        let cells = columns.map(|column| if column == *name { *cell } else { "" });
        cells.join(",") + "\n"
    });
    let csv = format!("{}\n{}", columns.join(","), csv.collect::<String>());
    let json = later
        .iter()
        .map(|[name, _, token, _]| format!("{{\"{name}\":{token}}}\n"));
    let fields = "code i64?, count i64?, ratio f64?, ok bool?, at timestamp_ns?, name utf8?";
    for (name, text) in [("csv", csv), ("jsonl", json.collect())] {
        let place = Place::new();
        let loaded = place.load_into(fields, &[], &place.file(&format!("a.{name}"), text));
        let counts = format!("received={received} stored={kept} refused={refused} dropped=0");
        let why = "; a field of type utf8 keeps it (--fields)";
        loaded.gives(&counts, &vec![why; refused]);
        assert_eq!(loaded.ended.code, Some(1));
    }
}

#[test]
fn rows_of_another_number_of_columns_than_the_first_are_all_counted_and_refused() {
    // The text, its delimiter if it is named, the fields, and why each of the two rows is refused.
    for [text, delimiter, fields, reason] in table(
        r"
        Report of May\na,b\n1,2\n |   | Report of May i64 | it has 2 columns, not 1;
        a,b\n1,2,\n3,4,\n         |   | a i64, b i64      | it has 3 columns, not 2;
        a,b\n0,1,2\n1,3,4\n       |   | a i64, b i64      | it has 3 columns, not 2;
        a;b,c\n1,5;2,5\n3,5;4,5\n | , | a;b i64, c i64    | it has 3 columns, not 2;
        a,b\n1\n2\n               |   | a i64, b i64      | it has 1 column, not 2;
        ",
    ) {
        let place = Place::new();
        let file = place.file("a.csv", text.replace("\\n", "\n"));
        let args: &[&str] = match delimiter {
            "" => &[],
            named => &["--delimiter", named],
        };
        let piped = place.load_into_from(
            fields,
            &[&["--format", "csv"], args].concat(),
            Path::new("-"),
            fs::File::open(&file).unwrap().into(),
        );
        for loaded in [place.load_into(fields, args, &file), piped] {
            let none = "no row was stored: source 's' is not created";
            let counts = "received=2 stored=0 refused=2 dropped=0";
            loaded
                .gives(counts, &[reason, reason, none])
                .leaves_nothing();
            assert_eq!(loaded.ended.code, Some(1));
        }
    }
}
