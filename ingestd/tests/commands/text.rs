//! `ingestd load` with text of others: times of any form, CSV and JSON as programs write them. The files of `tests/inputs/` are loaded as they
//! are.

use std::fs;
use std::io::Read;
use std::path::Path;

use loom_engine::testkit::oracle::read_records;
use loom_tests::command::{says, table};
use loom_tests::machine;

use super::place::{Loaded, Place};

/// The own times of the records of `s`.
fn times(loaded: &Loaded) -> Vec<i64> {
    let records = read_records(&loaded.dir).into_iter();
    let times = records.map(|record| record.layout.own_time(&record.payload));
    times.flatten().map(|time| time.0).collect()
}

/// Loads `n`, of one row at a time, with the times of the column `t`.
fn timed(place: &Place, args: &[&str], file: &Path) -> Loaded {
    place.load_into("n i64?", &[&["--ts", "t"], args].concat(), file)
}

#[test]
fn times_are_read_in_the_unit_and_the_format_that_the_user_names() {
    for [option, value, text, expected] in table(
        "
        --ts-unit   | s                     | 1700000000.25              | 1700000000250000000
        --ts-unit   | ms                    | 1700000000123.5            | 1700000000123500000
        --ts-unit   | us                    | -1                         | -1000
        --ts-unit   | ns                    | 12                         | 12
        --ts-format | %d/%b/%Y:%H:%M:%S %z  | 02/Jan/2024:03:04:05 +0100 | 1704161045000000000
        --ts-format | %d.%m.%Y %H:%M:%S%.f  | 02.01.2024 03:04:05.5      | 1704164645500000000
        --ts-format | %Y%m%d                | 20240102                   | 1704153600000000000
        --ts-format | %s.%f                 | 1700000000.25              | 1700000000250000000
        ",
    ) {
        let place = Place::new();
        let csv = place.file("a.csv", format!("t,n\n{text},1\n"));
        let json = place.file("a.jsonl", format!("{{\"t\":\"{text}\",\"n\":1}}\n"));
        for file in [csv, json] {
            let loaded = timed(&place, &[option, value], &file);
            loaded.gives("received=1 stored=1 refused=0 dropped=0", &[]);
            let expected: i64 = expected.parse().unwrap();
            let times = times(&loaded);
            assert!(
                times.iter().all(|time| *time == expected),
                "{text}: {times:?}"
            );
        }
    }
}

#[test]
fn integers_that_would_be_times_of_1970_are_warned_of() {
    for (text, unit) in [
        ("1700000000", "seconds: use --ts-unit s"),
        ("1700000000123", "milliseconds: use --ts-unit ms"),
        ("1700000000123456", "microseconds: use --ts-unit us"),
    ] {
        let place = Place::new();
        let file = place.file("a.csv", format!("t,n\n{text},1\n"));
        let loaded = timed(&place, &[], &file);
        loaded.gives("received=1 stored=1 refused=0 dropped=0", &[unit]);
        loaded.says(&["a.csv' lies in 1970, read as nanoseconds; 17"]);
    }
    let place = Place::new();
    let text = b"t,n\n1700000000123456789,1\n5,2\n2024-01-01,3\n1970-01-01T00:00:01Z,4\n";
    let loaded = timed(&place, &[], &place.file("a.csv", text));
    loaded.gives("received=4 stored=4 refused=0 dropped=0", &[]);
}

#[test]
fn times_of_another_unit_are_counted_wherever_they_stand() {
    let second = 1_000_000_000_i64;
    let late = (0..40_000).map(|row| match row {
        39_998.. => format!("{},1\n", 1_700_000_000 + row),
        _ => format!("{},1\n", 1_700_000_000 * second + row),
    });
    let gives = |name: &str, text: &str, args: &[&str], rows: u64, said: &[&str]| {
        let place = Place::new();
        let loaded = timed(&place, args, &place.file(name, text));
        let counts = format!("received={rows} stored={rows} refused=0 dropped=0");
        loaded.gives(&counts, said);
    };
    let text = format!("t,n\n{}", late.collect::<String>());
    gives("a.csv", &text, &[], 40_000, &["2 times of column 't' in '"]);
    let all = format!("t,n\n{}", "1700000000,1\n".repeat(200_000));
    let said = [
        "in 1970, read as nanoseconds; 1700000000 looks like seconds: use --ts-unit s",
        "200000 times of column 't' in '",
    ];
    gives("a.csv", &all, &[], 200_000, &said);
    let seconds = "t,n\n1700000000,1\n1700000001.5,1\n";
    let said = "lie in 1970, read as milliseconds; 1700000000 looks like seconds: use --ts-unit s";
    gives("a.csv", seconds, &["--ts-unit", "ms"], 2, &[said]);
    let far = "{\"t\":8000000000,\"n\":1}\n{\"t\":1,\"n\":1}\n";
    let said = "f.jsonl' lies behind the year 2200; if that is wrong";
    gives("f.jsonl", far, &["--ts-unit", "s"], 2, &[said]);
}

#[test]
fn numbers_in_a_field_of_times_that_may_count_another_unit_are_refused() {
    let place = Place::new();
    let times = "1700000000 1700000000123 8000000000000000000 1700000000123456789 20240102";
    let times: Vec<&str> = times.split(' ').collect();
    let dates = ["2024-01-01", "1970-01-01T00:00:01Z", "2250-01-01"];
    let csv = [&times[..], &dates].concat().join("\n");
    let quoted = dates.map(|date| format!("\"{date}\""));
    let json = times
        .iter()
        .copied()
        .chain(quoted.iter().map(String::as_str));
    let json: String = json.map(|time| format!("{{\"at\":{time}}}\n")).collect();
    let refused = "does not fit field 'at' of type timestamp_ns; a field of type utf8 keeps it";
    let far = "1 time of field 'at' in '";
    for (name, text) in [("a.csv", format!("at\n{csv}")), ("a.jsonl", json)] {
        let loaded = place.load_into("at timestamp_ns", &[], &place.file(name, text));
        let said = [refused, refused, refused, far];
        loaded.gives("received=8 stored=5 refused=3 dropped=0", &said);
    }
}

#[test]
fn dates_beyond_nanoseconds_become_null_in_a_nullable_field_and_are_counted() {
    let rows = [
        ("9999-12-31", 1),
        ("2024-01-01 10:00", 2),
        ("0001-01-01T00:00:00Z", 300),
        ("soon", 4),
    ];
    let csv: String = rows.iter().map(|(t, n)| format!("{t},{n}\n")).collect();
    let json = |(t, n): &(&str, i32)| format!("{{\"t\":\"{t}\",\"n\":{n}}}\n");
    let json: String = rows.iter().map(json).collect();
    for (name, text) in [("a.csv", format!("t,n\n{csv}")), ("a.jsonl", json)] {
        let place = Place::new();
        let file = place.file(name, text);
        let loaded = place.load_into("t timestamp_ns?, n u8", &[], &file);
        // The third row is refused for its number, and its time does not count.
        let said = ["row 3 of", "row 4 of", "1 time of field 't' in '"];
        loaded.gives("received=4 stored=2 refused=2 dropped=0", &said);
        let place = Place::new();
        let loaded = place.load_into("t timestamp_ns, n u8", &[], &file);
        loaded
            .ended
            .prints("received=4 stored=1 refused=3 dropped=0\n");
    }
}

#[test]
fn a_refused_time_names_its_column() {
    let place = Place::new();
    let file = place.file("a.csv", b"t,n\nnever,1\n2024-01-01,2\n");
    let why = "is refused: its time, column 't', is 'never', which is not a time";
    let loaded = timed(&place, &[], &file);
    loaded.gives("received=2 stored=1 refused=1 dropped=0", &[why]);
}

#[test]
fn what_a_column_of_times_cannot_be_is_said_with_what_can_be_done() {
    let refused = |text: &str, args: &[&str], words: &str| {
        let place = Place::new();
        let name = if text.starts_with('{') {
            "a.jsonl"
        } else {
            "a.csv"
        };
        let loaded = timed(&place, args, &place.file(name, text));
        loaded.says(&[words]).leaves_nothing();
    };
    let range = "which is out of range: times lie between";
    let whole = format!("not a time: '1600-01-01', {range} 1677-09-21 and 2262-04-11");
    refused(
        "t,n\n1600-01-01,1\n",
        &[],
        &format!("its only value is {whole}"),
    );
    let far = format!("for instance '99999999999', {range}");
    refused(
        "t,n\n99999999999,1\n99999999999,1\n",
        &["--ts-unit", "s"],
        &far,
    );
    let format = "which is not a time of --ts-format '%Y': ";
    refused("t,n\n2300,1\n", &["--ts-format", "%Y"], format);
    let date = "its only value is not a time: '2024-01-01'; it is a date; omit --ts-unit";
    refused("t,n\n2024-01-01,1\n", &["--ts-unit", "s"], date);
    let fraction = "numbers with a fraction have no unit; name it with --ts-unit";
    refused("t,n\n0.5,1\n", &[], fraction);
    let flag = "its only value is not a time: 'true'; name another column";
    refused("t,n\ntrue,1\n", &[], flag);
    let list =
        "its only value is not a time: '[1]'; they are not numbers of seconds; name another column";
    refused("{\"t\":[1],\"n\":1}\n", &["--ts-unit", "s"], list);
    let place = Place::new();
    let file = place.file("a.csv", "t,n\n1600-01-01,1\n2024-01-01,2\n");
    let why = format!("its time, column 't', is '1600-01-01', {range} 1677-09-21");
    let loaded = timed(&place, &[], &file);
    loaded.gives("received=2 stored=1 refused=1 dropped=0", &[&why]);
}

#[test]
fn leap_seconds_and_digits_behind_nanoseconds_are_read_alike_in_every_form() {
    let rows = [
        ("2016-12-31T23:59:60.5", 1_483_228_799_500_000_000),
        ("2024-01-01T00:00:00.12345678912", 1_704_067_200_123_456_789),
    ];
    let csv: String = rows.iter().map(|(text, _)| format!("{text},1\n")).collect();
    let json = |(text, _): &(&str, i64)| format!("{{\"t\":\"{text}\",\"n\":1}}\n");
    let json: String = rows.iter().map(json).collect();
    for (name, text, args) in [
        ("a.csv", format!("t,n\n{csv}"), &[][..]),
        ("a.jsonl", json, &[]),
        (
            "a.csv",
            format!("t,n\n{csv}"),
            &["--ts-format", "%Y-%m-%dT%H:%M:%S%.f"],
        ),
    ] {
        let place = Place::new();
        let loaded = timed(&place, args, &place.file(name, text));
        loaded.gives("received=2 stored=2 refused=0 dropped=0", &[]);
        assert_eq!(
            times(&loaded),
            rows.map(|(_, time)| time),
            "{name} {args:?}"
        );
    }
}

#[test]
fn archives_and_formats_of_others_are_named_with_what_reads_them() {
    let mut tar = vec![0; 1024];
    tar[..5].copy_from_slice(b"a.csv");
    tar[257..262].copy_from_slice(b"ustar");
    let place = Place::new();
    let untar = "it is a tar archive; unpack it with 'tar -xOf FILE";
    let unlz4 = "it is compressed with lz4; unpack it with 'lz4 -dc FILE";
    let unlzma = "it is compressed with lzma; unpack it with 'lzma -dc FILE";
    let feather = "it is Feather of version 1, not Arrow IPC; write it as version 2";
    for (name, bytes, words) in [
        ("a.tar", &tar[..], untar),
        ("b.csv", &tar, untar),
        ("a.lz4", b"\x04\x22\x4D\x18\x64\x40", unlz4),
        ("a.csv.lzma", b"\x5D\0\0\x80\0\xFF\xFF", unlzma),
        ("a.feather", b"FEA1\0\0\0\0\x01", feather),
    ] {
        let loaded = place.load(&[], &place.file(name, bytes));
        let loaded = loaded.gives("received=0 stored=0 refused=0 dropped=0", &[words]);
        loaded.leaves_nothing();
    }
}

// case Network and input: malformed rows and packets
#[test]
fn a_format_that_a_file_does_not_have_is_one_sentence_that_says_what_it_looks_like() {
    let place = Place::new();
    let text = place.file("a", b"a,b\n1,2\n3,4\n");
    let json = place.file("b", b"{\"a\":1}\n");
    let little = place.file("c", b"a\0,\0b\0\n\x001\0,\x002\0");
    let big = place.file("d", b"\0a\0,\0b\0\n\x001\0,\x002");
    let binary: Vec<u8> = (0..4000_u32).map(|at| (at * 7 + 131) as u8).collect();
    let binary = place.file("e", &binary);
    let utf16 = "it is UTF-16 without a byte order mark; convert it with 'iconv -f UTF-16";
    let is_text = "it looks like text; use --format csv, or json";
    for (format, file, words) in [
        ("parquet", &text, &*format!("as Parquet: {is_text}")),
        ("arrow", &text, &format!("as Arrow IPC: {is_text}")),
        ("pcap", &text, &format!("as pcap: {is_text}")),
        (
            "parquet",
            &json,
            "as Parquet: it is JSON; use --format json",
        ),
        ("pcap", &json, "as pcap: it is JSON; use --format json"),
        ("parquet", &binary, "it does not begin as Parquet does"),
        ("csv", &little, utf16),
        ("json", &big, utf16),
    ] {
        let loaded = place.load_into("a i64", &["--format", format], file);
        let loaded = loaded.gives("received=0 stored=0 refused=0 dropped=0", &[words]);
        loaded.leaves_nothing();
    }
}

#[test]
fn a_column_without_times_is_one_message_and_leaves_no_source() {
    let rows: String = (0..500).map(|row| format!("name{row},{row}\n")).collect();
    let place = Place::new();
    let file = place.file("a.csv", format!("name,n\n{rows}"));
    let instance = "none of its first 500 values is a time, for instance 'name0'";
    let not_numbers = "; they are not numbers of milliseconds; name another column";
    for (args, words) in [
        (
            &[][..],
            "; name another column, or describe its values with --ts-unit or --ts-format",
        ),
        (&["--ts-unit", "ms"], not_numbers),
        (
            &["--ts-format", "%Y"],
            ", which is not a time of --ts-format '%Y': ",
        ),
    ] {
        let loaded = place.load_into("n i64?", &[&["--ts", "name"], args].concat(), &file);
        loaded.says(&[&format!("{instance}{words}")]);
        assert_eq!(loaded.ended.code, Some(1));
        loaded.leaves_nothing();
    }
}

#[test]
fn text_without_declared_fields_is_one_message_with_the_statement_that_loads_it() {
    let place = Place::new();
    let csv = place.file("a.csv", b"a,b\n1,2\n");
    let json = place.file("a.jsonl", b"{\"a\":1}\n");
    for (file, function) in [(&csv, "read_csv"), (&json, "read_json")] {
        let loaded = place.load(&["--ts", "a"], file);
        let select = format!("COPY (SELECT * FROM {function}('{}')) TO ", file.display());
        let dir = loaded.dir.display();
        let copy = format!("{select}'{dir}' (FORMAT loom, SOURCE 's', TS 'a')");
        let pipe = format!(
            "duckdb -c \"{select}'/dev/stdout' (FORMAT parquet)\" | ingestd load {dir} --source s --ts a --format parquet -"
        );
        loaded.leaves_nothing();
        let ended = loaded.ended.ends(1).says("declare them with --fields");
        let ended = ended.says(&copy).says(&pipe);
        assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    }
    // The statement repeats the options, and reads the other files of the same kind.
    let second = place.file("b.csv", b"3,4\n").display().to_string();
    let times = ["--ts", "column0", "--ts-unit", "s"];
    let options = ["--delimiter", ";", "--no-header"];
    let index = ["--index", "column1", &second];
    let args = [&options[..], &times, &index].concat();
    let errors = place.load(&args, &csv).ended.err;
    let read = format!(
        "read_csv(['{second}', '{}'], delim = ';', header = false)",
        csv.display()
    );
    says(&errors, &format!("SELECT * FROM {read}) TO '/dev/stdout'"));
    says(&errors, "TS 'column0', TS_UNIT 's', INDEX ('column1'))");
    says(
        &errors,
        " --ts column0 --ts-unit s --index column1 --format parquet -",
    );
    // The words of the pipe are those of a shell, and DuckDB does not unpack every file.
    let mut packed = Vec::new();
    let best = bzip2::Compression::best();
    let mut packer = bzip2::read::BzEncoder::new(&b"a,b\n1,2\n"[..], best);
    packer.read_to_end(&mut packed).unwrap();
    let odd = place.file("a $b.csv.bz2", &packed);
    let errors = place.load(&["--ts", "it's"], &odd).ended.err;
    let path = odd.with_extension("").display().to_string();
    for part in [
        "unpack it, because DuckDB does not read .bz2, and let DuckDB 2 load it: ".to_owned(),
        format!("read_csv('{path}')) TO '"),
        format!("read_csv('{}')) TO '/dev/stdout'", path.replace('$', "\\$")),
        r"--ts 'it'\''s' ".to_owned(),
    ] {
        says(&errors, &part);
    }
    // An existing source decides.
    place.load_into("a i64, b i64?", &[], &csv);
    let one = "received=1 stored=1 refused=0 dropped=0";
    place.load(&[], &json).gives(one, &[]);
}

#[test]
fn the_files_of_others_load_as_their_table_says() {
    let cut = "its gzip data ends too early: the file is cut short; get it again";
    // A file, the options, the number of rows, the fields, and what is said on standard error.
    let cases = table(
        "
        access.csv.gz    | --ts=when --ts-format=%d/%b/%Y:%H:%M:%S_%z | 2 | status i64?, path utf8?                |
        blank_line.csv   |                                            | 3 | n i64?                                 |
        padded.csv.gz    | --delimiter=;                              | 2 | at timestamp_ns?, share f64?           |
        cut_short.csv.gz |                                            | 186 | n i64?, s utf8?                      | cut
        headerless.tsv   | --no-header                                | 2 | n i64?, s utf8?, at timestamp_ns?      |
        members.csv.gz   |                                            | 3 | n i64?, s utf8?                        |
        milliseconds.csv | --ts=t --ts-unit=ms                        | 2 | n i64?                                 |
        nested.jsonl.zst |                                            | 3 | id i64?, user json?                    |
        quotes.csv.bz2   |                                            | 3 | n i64?, text utf8?                     |
        semicolons.csv   | --delimiter=;                              | 2 | n i64?, ratio utf8?, city utf8?        |
        ",
    );
    let inputs = machine::root().join("tests/inputs");
    let listed = fs::read_to_string(inputs.join("README.md")).unwrap();
    for [name, args, rows, fields, said] in cases {
        let args: Vec<String> = args
            .split_whitespace()
            .map(|arg| arg.replace('_', " "))
            .collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let loaded = Place::new().load_into(fields, &args, &inputs.join(name));
        let counts = format!("received={rows} stored={rows} refused=0 dropped=0");
        let said: &[&str] = if said.is_empty() { &[] } else { &[cut] };
        loaded.gives(&counts, said);
        says(&listed, &format!("| `{name}` |"));
    }
}

#[test]
fn names_of_time_zones_in_a_format_are_refused_by_name() {
    let place = Place::new();
    let file = place.file("a.csv", b"t,n\n2023-06-01 12:00 Europe/Berlin,1\n");
    let loaded = timed(&place, &["--ts-format", "%Y-%m-%d %H:%M %Q"], &file);
    let why = "names of time zones (%Q) are not read; give times with an offset (%z)";
    loaded.says(&[why]).leaves_nothing();
}
