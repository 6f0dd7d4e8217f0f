//! `ingestd compact`: what becomes smaller, and that every answer stays as it is.

use std::fs;
use std::path::Path;

use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::schema::SourceDef;
use loom_engine::testkit::{options, paths};
use loom_tests::command::{run, word};
use tempfile::TempDir;

/// A directory with some files of 1 MiB: a number, a price and a text.
fn recorded(home: &TempDir) -> String {
    let dir = home.path().join("loom");
    let mut options = options(256 << 10, 1 << 20);
    options.log.staging = Some(home.path().to_owned());
    let mut writer = Writer::open(&dir, options).unwrap();
    let def: SourceDef = serde_json::from_str(
        r#"{"name": "sale", "field": [{"name": "n", "type": "u64"}, {"name": "price", "type": "f64"}, {"name": "item", "type": "utf8"}],
            "index": [{"name": "price", "value": "price"}]}"#,
    )
    .unwrap();
    let sale = writer.define_source(&def).unwrap();
    for n in 0..120_000u64 {
        let (price, item) = ((n * 37 % 10_000) as f64 / 100.0, format!("item {}", n % 50));
        let length = (item.len() as u16).to_le_bytes();
        let payload = [
            &n.to_le_bytes()[..],
            &price.to_le_bytes(),
            &length,
            item.as_bytes(),
        ];
        writer.push(sale, &payload.concat()).unwrap();
    }
    writer.close().unwrap();
    word(&dir).to_owned()
}

fn record_bytes(dir: &str) -> u64 {
    let files = paths(&Path::new(dir).join("records"));
    files
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum()
}

fn exported(dir: &str, to: &Path) -> Vec<u8> {
    run(&["export", dir, "--source", "sale", "--out", word(to)]).ends(0);
    fs::read(to).unwrap()
}

#[test]
fn a_directory_becomes_smaller_and_says_the_same() {
    let home = tempfile::tempdir().unwrap();
    let dir = recorded(&home);
    let before = exported(&dir, &home.path().join("a.parquet"));
    let bytes = record_bytes(&dir);
    run(&["compact", &dir])
        .ends(0)
        .says("compacted ")
        .says(" MiB take ");
    let compacted = record_bytes(&dir);
    assert!(compacted * 2 < bytes, "{compacted} of {bytes} bytes");
    assert!(exported(&dir, &home.path().join("b.parquet")) == before);
    run(&["check", &dir]).ends(0).says("sound: ");
    // The last segment is too short to gain anything.
    run(&["compact", &dir]).says("compacted 0 segments");
}

#[test]
fn a_directory_that_is_written_or_is_none_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let dir = recorded(&home);
    let writer = Writer::open(Path::new(&dir), WriterOptions::default()).unwrap();
    let refused = run(&["compact", &dir]).ends(1);
    refused.says("stop the daemon or load that writes it");
    writer.close().unwrap();
    let none = home.path().join("none");
    run(&["compact", word(&none)]).ends(1).says("none");
    assert!(!none.exists());
}

/// A daemon that was killed leaves what only staging holds; it is made durable first.
#[test]
fn a_directory_whose_writer_was_killed_is_compacted() {
    let home = tempfile::tempdir().unwrap();
    let dir = recorded(&home);
    let mut writer = Writer::open(Path::new(&dir), WriterOptions::default()).unwrap();
    let sale = writer.catalog().find("sale").unwrap().id;
    let payload = [&[0; 16][..], &[1, 0, b'x']].concat();
    for _ in 0..1000 {
        writer.push(sale, &payload).unwrap();
    }
    writer.publish().unwrap();
    // Dropped, it is not closed.
    drop(writer);
    run(&["compact", &dir]).ends(0).says(" MiB take ");
    run(&["check", &dir]).says("sound: 121000 records");
}
