//! Tests `ingestd export`: the Parquet file has the loaded records that were selected.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::fs::{self, File};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use arrow::util::display::{ArrayFormatter, FormatOptions};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;

const FIELDS: &str = r#"
[[source]]
name = "s"
time = "own"
[[source.field]]
name = "n"
type = "i32"
[[source.field]]
name = "op"
type = "u8"
nullable = true
labels = { 1 = "GET", 2 = "SET" }
[[source.field]]
name = "name"
type = "char[4]"
[[source.field]]
name = "note"
type = "utf8"
nullable = true
[[source.field]]
name = "id"
type = "bytes[2]"
[[source.field]]
name = "at"
type = "timestamp_ns"
[[source.index]]
name = "n"
value = "n"
[[source.index]]
name = "sets"
value = "n"
where = "op = 'SET'"
"#;

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
        let dir = home.path().join("loom").to_str().unwrap().to_owned();
        let home = Home { home, dir };
        fs::write(home.path("fields.toml"), FIELDS).unwrap();
        fs::write(home.path("rows.csv"), ROWS).unwrap();
        let (fields, rows) = (home.path("fields.toml"), home.path("rows.csv"));
        let (fields, rows) = (fields.to_str().unwrap(), rows.to_str().unwrap());
        let output = home.run(
            "load",
            &["--source", "s", "--ts", "time", "--fields", fields, rows],
        );
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn run(&self, command: &str, args: &[&str]) -> Output {
        let mut ingestd = Command::new(env!("CARGO_BIN_EXE_ingestd"));
        ingestd
            .arg(command)
            .arg(&self.dir)
            .args(args)
            .output()
            .unwrap()
    }

    /// The rows of an export with these arguments, with a bar between columns.
    fn export(&self, args: &[&str]) -> Vec<String> {
        let out = self.path("out.parquet");
        let all = [&["--source", "s", "--out", out.to_str().unwrap()], args].concat();
        let output = self.run("export", &all);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let rows = read(&out);
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            format!("rows={}\n", rows.len())
        );
        rows
    }
}

fn read(path: &Path) -> Vec<String> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
    let mut rows = Vec::new();
    for batch in reader.build().unwrap() {
        let batch = batch.unwrap();
        let options = FormatOptions::new().with_null("-");
        let columns: Vec<_> = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options).unwrap())
            .collect();
        for row in 0..batch.num_rows() {
            let cells: Vec<_> = columns
                .iter()
                .map(|column| column.value(row).to_string())
                .collect();
            rows.push(cells.join("|"));
        }
    }
    rows
}

#[test]
fn everything_comes_back_as_sql_would_show_it() {
    let rows = Home::with_rows().export(&[]);
    assert_eq!(
        rows,
        [
            "1970-01-01T00:00:01Z|-5|GET|abc|ä|7879|1969-12-31T23:59:59.999999999",
            "1970-01-01T00:00:02Z|7|SET||-|3030|1970-01-02T00:00:00",
            "1970-01-01T00:00:03Z|2147483647|9|wxyz|q\"q|7a7a|1970-01-01T00:00:00",
            "1969-12-31T23:59:59Z|0|-|a|-|6161|1970-01-01T00:00:00.000000001",
        ]
    );
}

#[test]
fn windows_are_half_open_and_values_closed() {
    let home = Home::with_rows();
    let numbers = |args: &[&str]| -> Vec<String> {
        let rows = home.export(args);
        rows.iter()
            .map(|row| row.split('|').nth(1).unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        numbers(&[
            "--from",
            "1970-01-01T00:00:01Z",
            "--to",
            "1970-01-01T00:00:03Z"
        ]),
        ["-5", "7"]
    );
    assert_eq!(numbers(&["--to", "1970-01-01T00:00:00Z"]), ["0"]);
    assert_eq!(
        numbers(&["--index", "n", "--min", "-5", "--max", "7"]),
        ["-5", "7", "0"]
    );
    assert_eq!(
        numbers(&["--index", "n", "--min", "8", "--max", "9"]),
        [""; 0]
    );
    assert_eq!(numbers(&["--index", "sets"]), ["7"]);
    assert_eq!(numbers(&["--index", "sets", "--max", "6"]), [""; 0]);
}

#[test]
fn what_is_exported_loads_again() {
    let home = Home::with_rows();
    let first = home.export(&[]);
    let (out, copy) = (home.path("out.parquet"), home.path("copy.parquet"));
    let (out, copy) = (out.to_str().unwrap(), copy.to_str().unwrap());
    let loaded = home.run("load", &["--source", "again", "--ts", "ts", out]);
    assert!(
        loaded.status.success(),
        "{}",
        String::from_utf8_lossy(&loaded.stderr)
    );
    assert!(
        home.run("export", &["--source", "again", "--out", copy])
            .status
            .success()
    );
    assert_eq!(read(Path::new(copy)), first);
}

#[test]
fn standard_output_and_a_pipe_get_the_rows_that_a_file_gets() {
    let home = Home::with_rows();
    let rows = home.export(&[]);
    let output = home.run("export", &["--source", "s", "--out", "-"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), &*said),
        (Some(0), "ingestd: rows=4\n")
    );
    let redirected = home.path("redirected.parquet");
    fs::write(&redirected, &output.stdout).unwrap();
    assert_eq!(read(&redirected), rows);
    // A named pipe stays a pipe.
    let pipe = home.path("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || fs::read(pipe).unwrap()
    });
    let output = home.run(
        "export",
        &["--source", "s", "--out", pipe.to_str().unwrap()],
    );
    assert_eq!(output.stdout, b"rows=4\n");
    fs::write(&redirected, reader.join().unwrap()).unwrap();
    assert_eq!(read(&redirected), rows);
    assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

#[test]
fn what_is_exported_to_standard_output_loads_from_a_pipe() {
    let home = Home::with_rows();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
    command.args(["export", &home.dir, "--source", "s", "--out", "-"]);
    let mut exported = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
    command.args(["load", &home.dir, "--source", "again", "--ts", "ts", "-"]);
    let loaded = command.stdin(exported.stdout.take().unwrap()).output();
    let loaded = loaded.unwrap();
    assert!(exported.wait().unwrap().success());
    assert!(
        loaded.status.success(),
        "{}",
        String::from_utf8_lossy(&loaded.stderr)
    );
    let copy = home.path("copy.parquet");
    let again = ["--source", "again", "--out", copy.to_str().unwrap()];
    assert!(home.run("export", &again).status.success());
    assert_eq!(read(&copy), home.export(&[]));
}

#[test]
fn a_reader_that_is_gone_and_a_full_device_fail_the_export() {
    let home = Home::with_rows();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
    command.args(["export", &home.dir, "--source", "s", "--out", "-"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("cannot write to standard output: Broken pipe"),
        "{said}"
    );
    let output = home.run("export", &["--source", "s", "--out", "/dev/full"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("cannot write '/dev/full': No space left"),
        "{said}"
    );
}

#[test]
fn errors_name_the_thing_and_leave_no_file() {
    let home = Home::with_rows();
    let out = home.path("out.parquet");
    let out_arg = out.to_str().unwrap();
    let fails = |args: &[&str], code: i32| {
        let output = home.run("export", &[args, &["--out", out_arg]].concat());
        assert_eq!(output.status.code(), Some(code));
        assert!(!out.exists() && !home.path("out.parquet.partial").exists());
        String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        fails(&["--source", "ss"], 1),
        "ingestd: unknown source 'ss'; did you mean 's'?\n"
    );
    assert!(fails(&["--source", "s", "--index", "m"], 1).contains("has no index 'm'"));
    let unlike = fails(&["--source", "s", "--index", "latency"], 1);
    assert!(
        unlike.contains("has no index 'latency'; the indexes are: 'n', 'sets'"),
        "{unlike}"
    );
    let wrong = fails(&["--source", "s", "--index", "n", "--min", "x"], 1);
    assert_eq!(wrong, "ingestd: 'x' is not a value of field 'n' (i32)\n");
    fails(&["--source", "s", "--min", "1"], 2);
    let t = "2026-01-01T00:00:00Z";
    let no_time = fails(&["--source", "s", "--from", t, "--to", t], 1);
    assert!(no_time.contains("--to after --from"), "{no_time}");
    let index = ["--source", "s", "--index", "n"];
    for bounds in [
        &["--min", "9", "--max", "1"][..],
        &["--max", "-1e30"],
        &["--min", "1e12"],
    ] {
        let no_value = fails(&[&index[..], bounds].concat(), 1);
        let named = format!("field 'n' (i32) lies within {}", bounds.join(" "));
        assert!(no_value.contains(&named), "{no_value}");
    }
    fails(&["--source", "s", "--from", "yesterday"], 2);
    let nowhere = home.path("no/such/dir.parquet");
    let output = home.run(
        "export",
        &["--source", "s", "--out", nowhere.to_str().unwrap()],
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write '"));
}
