//! `ingestd export`: the Parquet file holds what was loaded, of the records that were asked for.

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use arrow::util::display::{ArrayFormatter, FormatOptions};
use loom_tests::command::{Ended, file, ingestd, run, says, word};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

const FIELDS: &str = "
[[source]]
name = 's'
time = 'own'
field = [
    { name = 'n', type = 'i32' },
    { name = 'op', type = 'u8', nullable = true, labels = { 1 = 'GET', 2 = 'SET' } },
    { name = 'name', type = 'char[4]' },
    { name = 'note', type = 'utf8', nullable = true },
    { name = 'id', type = 'bytes[2]' },
    { name = 'at', type = 'timestamp_ns' },
]
index = [{ name = 'n', value = 'n' }, { name = 'sets', value = 'n', where = \"op = 'SET'\" }]
";

const ROWS: &str = "\
time,n,op,name,note,id,at
1970-01-01T00:00:01Z,-5,GET,abc,ä,xy,1969-12-31T23:59:59.999999999Z
1970-01-01T00:00:02Z,7,2,,,00,1970-01-02
1970-01-01T00:00:03Z,2147483647,9,wxyz,\"q\"\"q\",zz,0
1969-12-31T23:59:59Z,0,,a,,aa,1970-01-01T00:00:00.000000001Z
";

struct Home {
    home: TempDir,
    dir: String,
}

impl Home {
    fn with_rows() -> Home {
        let home = tempfile::tempdir().unwrap();
        let dir = word(&home.path().join("loom")).to_owned();
        let fields = file(home.path(), "fields.toml", FIELDS);
        let rows = file(home.path(), "rows.csv", ROWS);
        let load = ["load", &dir, "--source", "s", "--ts", "time"];
        run(&[&load[..], &["--fields", &fields, &rows]].concat()).ends(0);
        Home { home, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn export_to(&self, out: &str, args: &[&str]) -> Ended {
        run(&[&["export", &self.dir, "--out", out], args].concat())
    }

    /// The rows of an export with these arguments, columns apart by a bar.
    fn export(&self, args: &[&str]) -> Vec<String> {
        let out = self.path("out.parquet");
        let exported = self.export_to(word(&out), &[&["--source", "s"], args].concat());
        let rows = read(&out);
        exported.ends(0).prints(&format!("rows={}\n", rows.len()));
        rows
    }

    /// An export to standard output.
    fn printing(&self) -> Command {
        ingestd(["export", &self.dir, "--source", "s", "--out", "-"])
    }
}

fn read(path: &Path) -> Vec<String> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let mut rows = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let options = FormatOptions::new().with_null("-");
        let columns = batch.columns().iter();
        let columns: Vec<_> = columns
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells = columns.iter().map(|column| column.value(row).to_string());
            rows.push(cells.collect::<Vec<_>>().join("|"));
        }
    }
    rows
}

#[test]
fn everything_comes_back_as_sql_would_show_it() {
    let expected = [
        "1970-01-01T00:00:01Z|-5|GET|abc|ä|7879|1969-12-31T23:59:59.999999999",
        "1970-01-01T00:00:02Z|7|SET||-|3030|1970-01-02T00:00:00",
        "1970-01-01T00:00:03Z|2147483647|9|wxyz|q\"q|7a7a|1970-01-01T00:00:00",
        "1969-12-31T23:59:59Z|0|-|a|-|6161|1970-01-01T00:00:00.000000001",
    ];
    assert_eq!(Home::with_rows().export(&[]), expected);
}

#[test]
fn windows_are_half_open_and_values_closed() {
    let home = Home::with_rows();
    for (args, expected) in [
        (
            "--from 1970-01-01T00:00:01Z --to 1970-01-01T00:00:03Z",
            "-5 7",
        ),
        ("--to 1970-01-01T00:00:00Z", "0"),
        ("--index n --min -5 --max 7", "-5 7 0"),
        ("--index n --min 8 --max 9", ""),
        ("--index sets", "7"),
        ("--index sets --max 6", ""),
    ] {
        let rows = home.export(&args.split(' ').collect::<Vec<_>>());
        let numbers = rows.iter().map(|row| row.split('|').nth(1).unwrap());
        assert_eq!(numbers.collect::<Vec<_>>().join(" "), expected, "{args}");
    }
}

#[test]
fn what_is_exported_loads_again() {
    let home = Home::with_rows();
    let first = home.export(&[]);
    let (out, copy) = (home.path("out.parquet"), home.path("copy.parquet"));
    let load = ["load", &home.dir, "--source", "again", "--ts", "ts"];
    run(&[&load[..], &[word(&out)]].concat()).ends(0);
    home.export_to(word(&copy), &["--source", "again"]).ends(0);
    assert_eq!(read(&copy), first);
}

#[test]
fn standard_output_and_a_pipe_get_the_rows_that_a_file_gets() {
    let home = Home::with_rows();
    let rows = home.export(&[]);
    let output = home.printing().output().unwrap();
    assert_eq!(
        (output.status.code(), &*output.stderr),
        (Some(0), &b"ingestd: rows=4\n"[..])
    );
    let redirected = home.path("redirected.parquet");
    fs::write(&redirected, &output.stdout).unwrap();
    assert_eq!(read(&redirected), rows);
    // A pipe that has a name stays one.
    let pipe = home.path("pipe");
    Ended::of(Command::new("mkfifo").arg(&pipe)).ends(0);
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    home.export_to(word(&pipe), &["--source", "s"])
        .prints("rows=4\n");
    fs::write(&redirected, reader.join().unwrap()).unwrap();
    assert_eq!(read(&redirected), rows);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn what_is_exported_to_standard_output_loads_from_a_pipe() {
    let home = Home::with_rows();
    let mut exported = home.printing().stdout(Stdio::piped()).spawn().unwrap();
    let mut load = ingestd(["load", &home.dir, "--source", "again", "--ts", "ts", "-"]);
    let loaded = Ended::of(load.stdin(exported.stdout.take().unwrap()));
    assert!(exported.wait().unwrap().success());
    loaded.ends(0);
    let copy = home.path("copy.parquet");
    home.export_to(word(&copy), &["--source", "again"]).ends(0);
    assert_eq!(read(&copy), home.export(&[]));
}

#[test]
fn a_reader_that_is_gone_and_a_full_device_fail_the_export() {
    let home = Home::with_rows();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gone = Ended::of(home.printing().stdout(writer)).ends(1);
    gone.says("cannot write to standard output: Broken pipe");
    let full = home.export_to("/dev/full", &["--source", "s"]).ends(1);
    full.says("cannot write '/dev/full': No space left");
}

#[test]
fn errors_name_the_thing_and_leave_no_file() {
    let home = Home::with_rows();
    let out = home.path("out.parquet");
    let fails = |args: &str, code: i32| {
        let args: Vec<&str> = args.split(' ').collect();
        let failed = home.export_to(word(&out), &args).ends(code);
        assert!(!out.exists() && !home.path("out.parquet.partial").exists());
        failed.err
    };
    for (args, words) in [
        (
            "--source ss",
            "ingestd: unknown source 'ss'; did you mean 's'?\n",
        ),
        ("--source s --index m", "has no index 'm'"),
        (
            "--source s --index latency",
            "has no index 'latency'; the indexes are: 'n', 'sets'",
        ),
        (
            "--source s --index n --min x",
            "ingestd: 'x' is not a value of field 'n' (i32)\n",
        ),
        (
            "--source s --from 2026-01-01T00:00:00Z --to 2026-01-01T00:00:00Z",
            "--to after --from",
        ),
    ] {
        says(&fails(args, 1), words);
    }
    for bounds in ["--min 9 --max 1", "--max -1e30", "--min 1e12"] {
        let named = format!("field 'n' (i32) lies within {bounds}");
        says(&fails(&format!("--source s --index n {bounds}"), 1), &named);
    }
    fails("--source s --min 1", 2);
    fails("--source s --from yesterday", 2);
    let nowhere = home.path("no/such/dir.parquet");
    let failed = home.export_to(word(&nowhere), &["--source", "s"]).ends(1);
    failed.says("cannot write '");
}
