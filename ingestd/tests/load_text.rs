//! Tests `ingestd load` with text from other programs: times of any form, CSV and JSON. The files of `tests/inputs/` are loaded unchanged.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod fields;
mod place;
mod values;

use std::fs;
use std::io::Read;
use std::path::Path;

use loom_engine::log::LogReader;
use loom_engine::query::read_catalog;
use place::{ALL, Loaded, Place};

/// The own times of the only source's records, from the bounds of the summary.
fn times(loaded: &Loaded) -> Vec<i64> {
    use loom_engine::LogKind;
    use loom_engine::format::RecordIter;
    let reader = LogReader::open(&loaded.dir).unwrap();
    let catalog = read_catalog(&reader).unwrap();
    let source = catalog.find("s").unwrap();
    let chunk_bytes = reader.meta().chunk_bytes;
    let end = reader.tails().unwrap().tail.records;
    let mut chunk = vec![0; end.0 as usize];
    reader
        .read(LogKind::Records, loom_engine::Address(0), &mut chunk)
        .unwrap();
    let layout = source.layout_at(loom_engine::Address(0));
    RecordIter::new(&chunk, chunk_bytes)
        .map(|record| record.unwrap())
        .filter(|record| record.source == source.id)
        .map(|record| layout.own_time(record.payload).unwrap().0)
        .collect()
}

#[test]
fn times_are_read_in_the_unit_and_the_format_that_the_user_names() {
    for (args, text, expected) in [
        (
            &["--ts-unit", "s"][..],
            "1700000000.25",
            1_700_000_000_250_000_000,
        ),
        (
            &["--ts-unit", "ms"],
            "1700000000123.5",
            1_700_000_000_123_500_000,
        ),
        (&["--ts-unit", "us"], "-1", -1000),
        (&["--ts-unit", "ns"], "12", 12),
        (
            &["--ts-format", "%d/%b/%Y:%H:%M:%S %z"],
            "02/Jan/2024:03:04:05 +0100",
            1_704_161_045_000_000_000,
        ),
        (
            &["--ts-format", "%d.%m.%Y %H:%M:%S%.f"],
            "02.01.2024 03:04:05.5",
            1_704_164_645_500_000_000,
        ),
        (
            &["--ts-format", "%Y%m%d"],
            "20240102",
            1_704_153_600_000_000_000,
        ),
        (
            &["--ts-format", "%s.%f"],
            "1700000000.25",
            1_700_000_000_250_000_000,
        ),
    ] {
        let place = Place::new();
        let csv = place.file("a.csv", format!("t,n\n{text},1\n").as_bytes());
        let json = place.file(
            "a.jsonl",
            format!("{{\"t\":\"{text}\",\"n\":1}}\n").as_bytes(),
        );
        for file in [csv, json] {
            let loaded = place.load_into("n i64?", &[&["--ts", "t"], args].concat(), &file);
            loaded.gives("received=1 stored=1 refused=0 dropped=0", &[]);
            assert!(
                times(&loaded).iter().all(|time| *time == expected),
                "{text}: {:?}",
                times(&loaded)
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
        let file = place.file("a.csv", format!("t,n\n{text},1\n").as_bytes());
        let loaded = place.load_into("n i64?", &["--ts", "t"], &file);
        loaded.gives("received=1 stored=1 refused=0 dropped=0", &[unit]);
        loaded.says(&["a.csv' lies in 1970, read as nanoseconds; 17"]);
    }
    let place = Place::new();
    let text = b"t,n\n1700000000123456789,1\n5,2\n2024-01-01,3\n1970-01-01T00:00:01Z,4\n";
    place
        .load_into("n i64?", &["--ts", "t"], &place.file("a.csv", text))
        .gives("received=4 stored=4 refused=0 dropped=0", &[]);
}

#[test]
fn times_of_another_unit_are_counted_wherever_they_stand() {
    let late: String = (0..40_000)
        .map(|row| match row {
            39_998.. => format!("{},1\n", 1_700_000_000 + row),
            _ => format!("{},1\n", 1_700_000_000_000_000_000_i64 + row),
        })
        .collect();
    let place = Place::new();
    let file = place.file("late.csv", format!("t,n\n{late}").as_bytes());
    place.load_into("n i64?", &["--ts", "t"], &file).gives(
        "received=40000 stored=40000 refused=0 dropped=0",
        &["2 times of column 't' in '"],
    );
    let all = "1700000000,1\n".repeat(200_000);
    let place = Place::new();
    let file = place.file("all.csv", format!("t,n\n{all}").as_bytes());
    place.load_into("n i64?", &["--ts", "t"], &file).gives(
        "received=200000 stored=200000 refused=0 dropped=0",
        &[
            "in 1970, read as nanoseconds; 1700000000 looks like seconds: use --ts-unit s",
            "200000 times of column 't' in '",
        ],
    );
    let two = "received=2 stored=2 refused=0 dropped=0";
    let place = Place::new();
    let seconds = place.file("s.csv", b"t,n\n1700000000,1\n1700000001.5,1\n");
    place
        .load_into("n i64?", &["--ts", "t", "--ts-unit", "ms"], &seconds)
        .gives(
            two,
            &["lie in 1970, read as milliseconds; 1700000000 looks like seconds: use --ts-unit s"],
        );
    let place = Place::new();
    let far = place.file(
        "f.jsonl",
        b"{\"t\":8000000000,\"n\":1}\n{\"t\":1,\"n\":1}\n",
    );
    place
        .load_into("n i64?", &["--ts", "t", "--ts-unit", "s"], &far)
        .gives(
            two,
            &["f.jsonl' lies behind the year 2200; if that is wrong"],
        );
}

#[test]
fn numbers_in_a_field_of_times_that_may_count_another_unit_are_refused() {
    let place = Place::new();
    let times = [
        "1700000000",
        "1700000000123",
        "8000000000000000000",
        "1700000000123456789",
        "20240102",
    ];
    let dates = ["2024-01-01", "1970-01-01T00:00:01Z", "2250-01-01"];
    let csv: String = times
        .iter()
        .chain(&dates)
        .map(|time| format!("{time}\n"))
        .collect();
    let quoted = dates.map(|date| format!("\"{date}\""));
    let json = times.into_iter().chain(quoted.iter().map(String::as_str));
    let json: String = json.map(|time| format!("{{\"at\":{time}}}\n")).collect();
    let refused = "does not fit field 'at' of type timestamp_ns; a field of type utf8 keeps it";
    let far = "1 time of field 'at' in '";
    for (name, text) in [("a.csv", format!("at\n{csv}")), ("a.jsonl", json)] {
        let file = place.file(name, text.as_bytes());
        let loaded = place.load_into("at timestamp_ns", &[], &file);
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
    let json: String = rows
        .iter()
        .map(|(t, n)| format!("{{\"t\":\"{t}\",\"n\":{n}}}\n"))
        .collect();
    for (name, text) in [("a.csv", format!("t,n\n{csv}")), ("a.jsonl", json)] {
        let place = Place::new();
        let file = place.file(name, text.as_bytes());
        let loaded = place.load_into("t timestamp_ns?, n u8", &[], &file);
        // The third row is refused because of its number, so its time does not count.
        loaded.gives(
            "received=4 stored=2 refused=2 dropped=0",
            &["row 3 of", "row 4 of", "1 time of field 't' in '"],
        );
        let place = Place::new();
        let loaded = place.load_into("t timestamp_ns, n u8", &[], &file);
        let counts = String::from_utf8(loaded.output.stdout).unwrap();
        assert_eq!(counts, "received=4 stored=1 refused=3 dropped=0\n");
    }
}

#[test]
fn a_refused_time_names_its_column() {
    let place = Place::new();
    let file = place.file("a.csv", b"t,n\nnever,1\n2024-01-01,2\n");
    place.load_into("n i64?", &["--ts", "t"], &file).gives(
        "received=2 stored=1 refused=1 dropped=0",
        &["is refused: its time, column 't', is 'never', which is not a time"],
    );
}

#[test]
fn what_a_column_of_times_cannot_be_is_said_with_what_can_be_done() {
    for (name, text, args, words) in [
        (
            "a.csv",
            "t,n\n1600-01-01,1\n",
            &[][..],
            "its only value is not a time: '1600-01-01', which is out of range: times lie between 1677-09-21 and 2262-04-11",
        ),
        (
            "a.csv",
            "t,n\n99999999999,1\n99999999999,1\n",
            &["--ts-unit", "s"],
            "for instance '99999999999', which is out of range: times lie between",
        ),
        (
            "a.csv",
            "t,n\n2300,1\n",
            &["--ts-format", "%Y"],
            "which is not a time of --ts-format '%Y': ",
        ),
        (
            "a.csv",
            "t,n\n2024-01-01,1\n",
            &["--ts-unit", "s"],
            "its only value is not a time: '2024-01-01'; it is a date; omit --ts-unit",
        ),
        (
            "a.csv",
            "t,n\n0.5,1\n",
            &[],
            "numbers with a fraction have no unit; name it with --ts-unit",
        ),
        (
            "a.csv",
            "t,n\ntrue,1\n",
            &[],
            "its only value is not a time: 'true'; name another column",
        ),
        (
            "a.jsonl",
            "{\"t\":[1],\"n\":1}\n",
            &["--ts-unit", "s"],
            "its only value is not a time: '[1]'; they are not numbers of seconds; name another column",
        ),
    ] {
        let place = Place::new();
        let file = place.file(name, text.as_bytes());
        let loaded = place.load_into("n i64?", &[&["--ts", "t"], args].concat(), &file);
        loaded.says(&[words]);
        assert!(!loaded.dir.exists());
    }
    let place = Place::new();
    let file = place.file("a.csv", b"t,n\n1600-01-01,1\n2024-01-01,2\n");
    place.load_into("n i64?", &["--ts", "t"], &file).gives(
        "received=2 stored=1 refused=1 dropped=0",
        &["its time, column 't', is '1600-01-01', which is out of range: times lie between 1677-09-21"],
    );
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
        let file = place.file(name, text.as_bytes());
        let loaded = place.load_into("n i64?", &[&["--ts", "t"], args].concat(), &file);
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
    for (name, bytes, words) in [
        (
            "a.tar",
            &tar[..],
            "it is a tar archive; unpack it with 'tar -xOf FILE",
        ),
        (
            "b.csv",
            &tar,
            "it is a tar archive; unpack it with 'tar -xOf FILE",
        ),
        (
            "a.lz4",
            b"\x04\x22\x4D\x18\x64\x40",
            "it is compressed with lz4; unpack it with 'lz4 -dc FILE",
        ),
        (
            "a.csv.lzma",
            b"\x5D\0\0\x80\0\xFF\xFF",
            "it is compressed with lzma; unpack it with 'lzma -dc FILE",
        ),
        (
            "a.feather",
            b"FEA1\0\0\0\0\x01",
            "it is Feather of version 1, not Arrow IPC; write it as version 2",
        ),
    ] {
        let loaded = place.load(&[], &place.file(name, bytes));
        loaded.gives("received=0 stored=0 refused=0 dropped=0", &[words]);
        assert!(!loaded.dir.exists());
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
    for (format, file, words) in [
        (
            "parquet",
            &text,
            "as Parquet: it looks like text; use --format csv, or json",
        ),
        (
            "arrow",
            &text,
            "as Arrow IPC: it looks like text; use --format csv, or json",
        ),
        (
            "pcap",
            &text,
            "as pcap: it looks like text; use --format csv, or json",
        ),
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
        loaded.gives("received=0 stored=0 refused=0 dropped=0", &[words]);
        assert!(!loaded.dir.exists());
    }
}

#[test]
fn a_column_without_times_is_one_message_and_leaves_no_source() {
    let rows: String = (0..500).map(|row| format!("name{row},{row}\n")).collect();
    let place = Place::new();
    let file = place.file("a.csv", format!("name,n\n{rows}").as_bytes());
    let instance = "none of its first 500 values is a time, for instance 'name0'";
    for (args, words) in [
        (
            &[][..],
            "; name another column, or describe its values with --ts-unit or --ts-format",
        ),
        (
            &["--ts-unit", "ms"],
            "; they are not numbers of milliseconds; name another column",
        ),
        (
            &["--ts-format", "%Y"],
            ", which is not a time of --ts-format '%Y': ",
        ),
    ] {
        let loaded = place.load_into("n i64?", &[&["--ts", "name"], args].concat(), &file);
        loaded.says(&[&format!("{instance}{words}")]);
        assert_eq!(loaded.output.status.code(), Some(1));
        assert!(!loaded.dir.exists());
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
        let errors = loaded.said();
        assert!(errors.contains("declare them with --fields"), "{errors}");
        assert!(errors.contains(&copy) && errors.contains(&pipe), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert_eq!(loaded.output.status.code(), Some(1));
        assert!(!loaded.dir.exists());
    }
    // The statement repeats the options, and reads the other files of the same kind.
    let second = place.file("b.csv", b"3,4\n").display().to_string();
    let options = [
        "--delimiter",
        ";",
        "--no-header",
        "--ts",
        "column0",
        "--ts-unit",
        "s",
    ];
    let index = ["--index", "column1", &second];
    let errors = place.load(&[&options[..], &index].concat(), &csv).said();
    let read = format!(
        "read_csv(['{second}', '{}'], delim = ';', header = false)",
        csv.display()
    );
    for part in [
        format!("SELECT * FROM {read}) TO '/dev/stdout'"),
        "TS 'column0', TS_UNIT 's', INDEX ('column1'))".to_owned(),
        " --ts column0 --ts-unit s --index column1 --format parquet -".to_owned(),
    ] {
        assert!(errors.contains(&part), "{part}: {errors}");
    }
    // The pipe is written for a shell, and DuckDB does not decompress every file.
    let mut packed = Vec::new();
    let best = bzip2::Compression::best();
    let mut packer = bzip2::read::BzEncoder::new(&b"a,b\n1,2\n"[..], best);
    packer.read_to_end(&mut packed).unwrap();
    let odd = place.file("a $b.csv.bz2", &packed);
    let errors = place.load(&["--ts", "it's"], &odd).said();
    let path = odd.with_extension("").display().to_string();
    for part in [
        "unpack it, because DuckDB does not read .bz2, and let DuckDB 2 load it: ".to_owned(),
        format!("read_csv('{path}')) TO '"),
        format!("read_csv('{}')) TO '/dev/stdout'", path.replace('$', "\\$")),
        r"--ts 'it'\''s' ".to_owned(),
    ] {
        assert!(errors.contains(&part), "{part}: {errors}");
    }
    // An existing source decides.
    place.load_into("a i64, b i64?", &[], &csv);
    let one = "received=1 stored=1 refused=0 dropped=0";
    place.load(&[], &json).gives(one, &[]);
}

/// A file, arguments, the counts, the fields, and the text on standard error.
type Case<'a> = (&'a str, Words<'a>, &'a str, &'a str, Words<'a>);
type Words<'a> = &'a [&'a str];

#[test]
fn the_files_of_others_load_as_their_table_says() {
    let two = "received=2 stored=2 refused=0 dropped=0";
    let apache = ["--ts", "when", "--ts-format", "%d/%b/%Y:%H:%M:%S %z"];
    let cases: [Case; 10] = [
        (
            "access.csv.gz",
            &apache,
            two,
            "status i64?, path utf8?",
            &[],
        ),
        ("blank_line.csv", &[], ALL, "n i64?", &[]),
        (
            "padded.csv.gz",
            &["--delimiter", ";"],
            two,
            "at timestamp_ns?, share f64?",
            &[],
        ),
        (
            "cut_short.csv.gz",
            &[],
            "received=186 stored=186 refused=0 dropped=0",
            "n i64?, s utf8?",
            &["its gzip data ends too early: the file is cut short; get it again"],
        ),
        (
            "headerless.tsv",
            &["--no-header"],
            two,
            "n i64?, s utf8?, at timestamp_ns?",
            &[],
        ),
        ("members.csv.gz", &[], ALL, "n i64?, s utf8?", &[]),
        (
            "milliseconds.csv",
            &["--ts", "t", "--ts-unit", "ms"],
            two,
            "n i64?",
            &[],
        ),
        ("nested.jsonl.zst", &[], ALL, "id i64?, user json?", &[]),
        ("quotes.csv.bz2", &[], ALL, "n i64?, text utf8?", &[]),
        (
            "semicolons.csv",
            &["--delimiter", ";"],
            two,
            "n i64?, ratio utf8?, city utf8?",
            &[],
        ),
    ];
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/inputs");
    let table = fs::read_to_string(inputs.join("README.md")).unwrap();
    for (name, args, counts, fields, said) in cases {
        let place = Place::new();
        let loaded = place.load_into(fields, args, &inputs.join(name));
        loaded.gives(counts, said);
        assert!(table.contains(&format!("| `{name}` |")), "{name}");
    }
}

#[test]
fn names_of_time_zones_in_a_format_are_refused_by_name() {
    let place = Place::new();
    let file = place.file("a.csv", b"t,n\n2023-06-01 12:00 Europe/Berlin,1\n");
    let format = ["--ts", "t", "--ts-format", "%Y-%m-%d %H:%M %Q"];
    let loaded = place.load_into("n i64?", &format, &file);
    loaded.says(&["names of time zones (%Q) are not read; give times with an offset (%z)"]);
    assert!(!loaded.dir.exists());
}
