//! Tests `ingestd compact`: the log becomes smaller, and every answer stays the same.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::LogOptions;
use loom_engine::schema::SourceDef;

fn ingestd(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ingestd"))
        .args(args)
        .output()
        .unwrap()
}

/// A directory with some files of 1 MiB: a number, a price and a text.
fn recorded(home: &Path) -> String {
    let dir = home.join("loom");
    let log = LogOptions {
        block_bytes: 256 << 10,
        segment_bytes: [1 << 20; 3].into(),
        staging: Some(home.to_owned()),
        ..LogOptions::default()
    };
    let options = WriterOptions {
        log,
        ..WriterOptions::default()
    };
    let mut writer = Writer::open(&dir, options).unwrap();
    let def: SourceDef = serde_json::from_str(
        r#"{"name": "sale", "field": [{"name": "n", "type": "u64"}, {"name": "price", "type": "f64"}, {"name": "item", "type": "utf8"}],
            "index": [{"name": "price", "value": "price"}]}"#,
    )
    .unwrap();
    let sale = writer.define_source(&def).unwrap();
    for n in 0..120_000u64 {
        let item = format!("item {}", n % 50);
        let mut payload = n.to_le_bytes().to_vec();
        payload.extend_from_slice(&((n * 37 % 10_000) as f64 / 100.0).to_le_bytes());
        payload.extend_from_slice(&(item.len() as u16).to_le_bytes());
        payload.extend_from_slice(item.as_bytes());
        writer.push(sale, &payload).unwrap();
    }
    writer.close().unwrap();
    dir.to_str().unwrap().to_owned()
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

fn record_bytes(dir: &str) -> u64 {
    let files = fs::read_dir(Path::new(dir).join("records")).unwrap();
    files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum()
}

fn exported(dir: &str, to: &Path) -> Vec<u8> {
    let output = ingestd(&[
        "export",
        dir,
        "--source",
        "sale",
        "--out",
        to.to_str().unwrap(),
    ]);
    assert!(output.status.success(), "{}", said(&output));
    fs::read(to).unwrap()
}

#[test]
fn a_directory_becomes_smaller_and_says_the_same() {
    let home = tempfile::tempdir().unwrap();
    let dir = recorded(home.path());
    let (before, bytes) = (
        exported(&dir, &home.path().join("a.parquet")),
        record_bytes(&dir),
    );
    let output = ingestd(&["compact", &dir]);
    assert!(output.status.success(), "{}", said(&output));
    let line = said(&output);
    assert!(
        line.starts_with("compacted ") && line.contains(" MiB take "),
        "{line}"
    );
    assert!(
        record_bytes(&dir) * 2 < bytes,
        "{} of {bytes} bytes",
        record_bytes(&dir)
    );
    assert!(exported(&dir, &home.path().join("b.parquet")) == before);
    let output = ingestd(&["check", &dir]);
    assert!(
        output.status.success() && said(&output).starts_with("sound: "),
        "{}",
        said(&output)
    );
    // The last segment is too short to become smaller.
    let again = ingestd(&["compact", &dir]);
    assert!(
        said(&again).starts_with("compacted 0 segments"),
        "{}",
        said(&again)
    );
}

#[test]
fn a_directory_that_is_written_or_is_none_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let dir = recorded(home.path());
    let writer = Writer::open(Path::new(&dir), WriterOptions::default()).unwrap();
    let output = ingestd(&["compact", &dir]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("stop the daemon or load that writes it"),
        "{}",
        said(&output)
    );
    writer.close().unwrap();
    let none = home.path().join("none");
    let output = ingestd(&["compact", none.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("none"), "{}", said(&output));
    assert!(!none.exists());
}

/// A killed daemon leaves records that are only in staging; they are made durable first.
#[test]
fn a_directory_whose_writer_was_killed_is_compacted() {
    let home = tempfile::tempdir().unwrap();
    let dir = recorded(home.path());
    let mut writer = Writer::open(Path::new(&dir), WriterOptions::default()).unwrap();
    let sale = writer.catalog().find("sale").unwrap().id;
    let mut payload = vec![0; 16];
    payload.extend_from_slice(&[1, 0, b'x']);
    for _ in 0..1000 {
        writer.push(sale, &payload).unwrap();
    }
    writer.publish().unwrap();
    // A dropped writer is not closed.
    drop(writer);
    let output = ingestd(&["compact", &dir]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains(" MiB take "), "{}", said(&output));
    let output = ingestd(&["check", &dir]);
    assert!(
        said(&output).starts_with("sound: 121000 records"),
        "{}",
        said(&output)
    );
}
