//! `ingestd check` as a user runs it: what it says, and how it ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn ingestd(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ingestd"))
        .args(args)
        .output()
        .unwrap()
}

/// A directory with some thousand rows, as `load` leaves it.
fn loaded(home: &Path) -> String {
    let (dir, csv) = (home.join("loom"), home.join("rows.csv"));
    let rows: String = (0..20_000)
        .map(|row| format!("{row},text {row}\n"))
        .collect();
    fs::write(&csv, format!("n,s\n{rows}")).unwrap();
    let dir = dir.to_str().unwrap().to_owned();
    let csv = csv.to_str().unwrap();
    let output = ingestd(&["load", &dir, "--source", "s", "--index", "n", csv]);
    assert!(output.status.success());
    dir
}

fn check(args: &[&str]) -> (Option<i32>, String) {
    let output = ingestd(&[&["check"], args].concat());
    let said =
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code(), said)
}

fn flip(dir: &str, log: &str, at: usize) -> PathBuf {
    let segment = fs::read_dir(Path::new(dir).join(log))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let mut bytes = fs::read(&segment).unwrap();
    *bytes.get_mut(at).unwrap() ^= 1;
    fs::write(&segment, bytes).unwrap();
    segment
}

#[test]
fn sound_damaged_and_no_directory() {
    let home = tempfile::tempdir().unwrap();
    let dir = loaded(home.path());
    let (code, said) = check(&[&dir]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("sound: 20000 records in "), "{said}");
    let segment = flip(&dir, "records", 70_000);
    let (code, said) = check(&[&dir]);
    assert_eq!(code, Some(1));
    let named = format!(
        "damaged: {}: record log, address 65536: ",
        segment.display()
    );
    assert!(said.starts_with(&named), "{said}");
    assert!(
        said.lines()
            .last()
            .unwrap()
            .starts_with("damaged in 1 place: "),
        "{said}"
    );
    let (code, said) = check(&[home.path().to_str().unwrap()]);
    assert_eq!(code, Some(1));
    assert!(said.contains("is not a Loom directory"), "{said}");
}

#[test]
fn repair_makes_the_index_logs_anew() {
    let home = tempfile::tempdir().unwrap();
    let dir = loaded(home.path());
    flip(&dir, "chunks", 100);
    let (code, said) = check(&[&dir]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("chunk index, address 0: "), "{said}");
    let (code, said) = check(&[&dir, "--repair"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("the index logs were made anew from the records"),
        "{said}"
    );
    assert_eq!(check(&[&dir]).0, Some(0));
}
