//! Tests the messages and the exit status of `ingestd check`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod fields;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use fields::declared;
use loom_engine::format::PendingLoss;
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::LogOptions;
use loom_engine::schema::{LossReason, SourceDef};

fn ingestd(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ingestd"))
        .args(args)
        .output()
        .unwrap()
}

/// A directory with some thousand rows, from `load`.
fn loaded(home: &Path) -> String {
    let (dir, csv) = (home.join("loom"), home.join("rows.csv"));
    let rows: String = (0..20_000)
        .map(|row| format!("{row},text {row}\n"))
        .collect();
    fs::write(&csv, format!("n,s\n{rows}")).unwrap();
    let dir = dir.to_str().unwrap().to_owned();
    let csv = csv.to_str().unwrap();
    let fields = declared(&home.join("loom"), "s", "n i64, s utf8");
    let declared = ["--fields", &fields];
    let load = ["load", &dir, "--source", "s", "--index", "n", csv];
    let output = ingestd(&[&load[..], &declared].concat());
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
fn progress_is_shown_on_a_terminal_alone() {
    let home = tempfile::tempdir().unwrap();
    let dir = loaded(home.path());
    let output = ingestd(&["check", &dir]);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    let command = format!("{} check {dir}", env!("CARGO_BIN_EXE_ingestd"));
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    for part in [" checked (", " %), ", " left", "sound: 20000 records"] {
        assert!(said.contains(part), "{said:?}");
    }
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
        said.contains("rebuilt the index logs from the records"),
        "{said}"
    );
    assert_eq!(check(&[&dir]).0, Some(0));
}

/// An object in place of a segment's file: a folder, or a link to the file.
fn displace(segment: &Path, by_link: bool) {
    let elsewhere = segment.with_file_name("elsewhere");
    fs::rename(segment, &elsewhere).unwrap();
    if by_link {
        std::os::unix::fs::symlink(&elsewhere, segment).unwrap();
    } else {
        fs::create_dir(segment).unwrap();
    }
}

fn only_segment(dir: &str, log: &str) -> PathBuf {
    Path::new(dir).join(log).join(format!("{:020}.0", 0))
}

#[test]
fn each_place_is_told_once_without_a_pointer_to_check_itself() {
    let home = tempfile::tempdir().unwrap();
    let dir = loaded(home.path());
    let segment = only_segment(&dir, "chunks");
    fs::remove_file(&segment).unwrap();
    let (code, said) = check(&[&dir]);
    assert_eq!(code, Some(1));
    let first = said.lines().next().unwrap();
    let named = segment.display();
    let line = format!("damaged: {named}: chunk index, address 0: the segment file is gone");
    assert_eq!(first, line);
    let (_, said) = check(&[home.path().join("nowhere").to_str().unwrap()]);
    assert!(said.trim_end().ends_with("it does not exist"), "{said}");
}

#[test]
fn an_index_log_goes_on_beside_what_stands_in_place_of_a_segment() {
    for log in ["chunks", "times"] {
        for (by_link, repairs) in [(false, false), (false, true), (true, false), (true, true)] {
            let home = tempfile::tempdir().unwrap();
            let dir = loaded(home.path());
            let segment = only_segment(&dir, log);
            let before = fs::read(&segment).unwrap();
            displace(&segment, by_link);
            let (code, said) = check(&[&dir]);
            assert_eq!(code, Some(1));
            assert!(
                said.contains("stands in place of the file: move it away"),
                "{said}"
            );
            let records = if repairs {
                let (code, said) = check(&[&dir, "--repair"]);
                assert_eq!(code, Some(0), "{log}, {by_link}: {said}");
                20_000
            } else {
                loaded(home.path());
                40_000
            };
            let (code, said) = check(&[&dir]);
            assert_eq!(code, Some(0), "{log}, {by_link}: {said}");
            assert!(
                said.starts_with(&format!("sound: {records} records in ")),
                "{said}"
            );
            assert!(by_link || segment.is_dir() && segment.with_extension("1").is_file());
            let elsewhere = fs::read(segment.with_file_name("elsewhere")).unwrap();
            assert_eq!(elsewhere, before);
        }
    }
}

#[test]
fn a_folder_in_place_of_records_is_damage_and_ends_no_check() {
    let home = tempfile::tempdir().unwrap();
    let dir = loaded(home.path());
    let segment = only_segment(&dir, "records");
    displace(&segment, false);
    let found =
        "a folder stands in place of the file: move it away, and restore the file if you have it";
    let (code, said) = check(&[&dir, "--repair"]);
    assert_eq!(code, Some(1));
    let named = segment.display();
    let line = format!("damaged: {named}: record log, address 0: {found}\n");
    assert!(said.starts_with(&line), "{said}");
    // The log ends in that segment, so appended records would be beside records that may be put back.
    let csv = home.path().join("rows.csv");
    let output = ingestd(&["load", &dir, "--source", "s", csv.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    let line = format!("ingestd: {named}: damaged: {found}\n");
    assert!(said.ends_with(&line), "{said}");
    fs::remove_dir(&segment).unwrap();
    fs::rename(segment.with_file_name("elsewhere"), &segment).unwrap();
    loaded(home.path());
    let (code, said) = check(&[&dir]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.starts_with("sound: 40000 records in "), "{said}");
}

// G9
#[test]
fn pending_losses_are_counted_and_damage_of_their_table_is_named() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("loom");
    let options = || WriterOptions {
        log: LogOptions {
            block_bytes: 64 << 10,
            segment_bytes: [1 << 20; 3].into(),
            staging: Some(home.path().to_owned()),
            ..LogOptions::default()
        },
        ..WriterOptions::default()
    };
    let mut writer = Writer::open(&dir, options()).unwrap();
    let source = writer.define_source(&SourceDef::new("s")).unwrap();
    let recorded_at = writer.push(source, &[1; 8]).unwrap();
    let loss = |recorded_at| PendingLoss {
        reason: LossReason::Overload as u8,
        recorded_at,
        ..PendingLoss::UNKNOWN
    };
    writer.set_pending_losses(vec![loss(None), loss(Some(recorded_at)), loss(None)]);
    let says = |causes: &str| {
        let (code, said) = check(&[dir.to_str().unwrap()]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.starts_with("sound: "), "{said}");
        assert!(
            said.contains(&format!("; pending losses of {causes}, ")),
            "{said}"
        );
    };
    says("3 causes");
    writer.publish().unwrap();
    says("2 causes");
    // A writer that is dropped without being closed leaves the same as a kill.
    drop(writer);
    says("2 causes");
    let staged = fs::read_dir(home.path())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let staged = staged.into_iter().find(|path| path.is_file()).unwrap();
    let mut bytes = fs::read(&staged).unwrap();
    bytes[4096..12288].iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(&staged, bytes).unwrap();
    let (code, said) = check(&[dir.to_str().unwrap()]);
    assert_eq!(code, Some(1), "{said}");
    let named = format!(
        "damaged: {}: its table of pending losses is damaged",
        staged.display()
    );
    assert!(said.starts_with(&named), "{said}");
    let writer = Writer::open(&dir, options()).unwrap();
    assert_eq!(writer.pending_losses(), [PendingLoss::UNKNOWN]);
    writer.close().unwrap();
    says("1 cause");
}

#[test]
fn repair_writes_the_files_beside_the_logs_as_a_start_does() {
    for name in [
        "catalog",
        "catalog.copy",
        "loom.json",
        "loom.json.copy",
        "durable",
    ] {
        let home = tempfile::tempdir().unwrap();
        let dir = loaded(home.path());
        let path = Path::new(&dir).join(name);
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        *bytes.get_mut(20).unwrap() ^= 1;
        fs::write(&path, bytes).unwrap();
        // This is reported before the faults of the logs.
        let segment = flip(&dir, "chunks", 100);
        let (code, said) = check(&[&dir]);
        assert_eq!(code, Some(1), "{name}: {said}");
        let named = format!("damaged: {}: ", path.display());
        assert!(said.starts_with(&named), "{name}: {said}");
        let mut index = fs::read(&segment).unwrap();
        *index.get_mut(100).unwrap() ^= 1;
        fs::write(&segment, index).unwrap();
        let (code, said) = check(&[&dir, "--repair"]);
        assert_eq!(code, Some(0), "{name}: {said}");
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("sound: 20000 records in "), "{said}");
        if name != "durable" {
            assert_eq!(fs::read(&path).unwrap(), whole, "{name}");
        }
        assert_eq!(check(&[&dir]).0, Some(0), "{name}");
    }
}

#[test]
fn a_catalog_that_lost_lines_is_told_alone() {
    let home = tempfile::tempdir().unwrap();
    let dir = loaded(home.path());
    let path = Path::new(&dir).join("catalog");
    let catalog = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = catalog.split_inclusive('\n').collect();
    for kept in 0..lines.len() {
        for name in ["catalog", "catalog.copy"] {
            fs::write(path.with_file_name(name), lines[..kept].concat()).unwrap();
        }
        for args in [&[&*dir][..], &[&dir, "--repair"]] {
            let (code, said) = check(args);
            assert_eq!(code, Some(1), "{said}");
            let line = format!("damaged: {}: its lines end at byte ", path.display());
            let damaged = said.lines().filter(|line| line.starts_with("damaged: "));
            assert_eq!(damaged.count(), 1, "{said}");
            assert!(said.starts_with(&line), "{said}");
        }
    }
}

#[test]
fn what_is_printed_to_nobody_or_to_a_full_disk_ends_in_no_panic() {
    let home = tempfile::tempdir().unwrap();
    let dir = loaded(home.path());
    let printed_to = |out: Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
        let child = command.args(["check", &dir]).stdout(out);
        let output = child.stderr(Stdio::piped()).output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(printed_to(writer.into()), (Some(0), String::new()));
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let (code, said) = printed_to(full.into());
    assert_eq!(code, Some(1));
    assert!(
        said.starts_with("ingestd: cannot write to standard output: No space"),
        "{said}"
    );
}
