//! `ingestd check`: what it says, and how it ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use loom_engine::format::PendingLoss;
use loom_engine::ingest::Writer;
use loom_engine::schema::{LossReason, SourceDef};
use loom_engine::testkit::{options, paths};
use loom_tests::command::{Ended, declared, file, ingestd, run, word};
use loom_tests::machine;
use tempfile::TempDir;

/// A directory with some thousand rows, as `load` leaves it.
struct Loaded {
    home: TempDir,
    dir: String,
}

impl Loaded {
    fn new() -> Loaded {
        let home = tempfile::tempdir().unwrap();
        let dir = word(&home.path().join("loom")).to_owned();
        let loaded = Loaded { home, dir };
        loaded.load();
        loaded
    }

    fn load(&self) {
        let rows = (0..20_000).map(|row| format!("{row},text {row}\n"));
        let rows = format!("n,s\n{}", rows.collect::<String>());
        let rows = file(self.home.path(), "rows.csv", rows);
        let fields = declared(Path::new(&self.dir), "s", "n i64, s utf8");
        let load = ["load", &self.dir, "--source", "s", "--index", "n", &rows];
        run(&[&load[..], &["--fields", &fields]].concat()).ends(0);
    }

    fn check(&self) -> Ended {
        run(&["check", &self.dir])
    }

    fn repair(&self) -> Ended {
        run(&["check", &self.dir, "--repair"])
    }

    fn is_sound(&self, records: u64) {
        let checked = self.check().ends(0);
        let sound = format!("sound: {records} records in ");
        assert!(checked.out.starts_with(&sound), "{checked:?}");
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(&self.dir).join(name)
    }

    fn only_segment(&self, log: &str) -> PathBuf {
        self.path(log).join(format!("{:020}.0", 0))
    }
}

/// Holds how a check of a damaged directory begins.
#[track_caller]
fn begins(checked: Ended, damage: &str) {
    let checked = checked.ends(1);
    assert!(checked.all().starts_with(damage), "{damage}: {checked:?}");
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    *bytes.get_mut(at).unwrap() ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn progress_is_shown_on_a_terminal_alone() {
    let loaded = Loaded::new();
    assert_eq!(loaded.check().err, "");
    let program = machine::ingestd().unwrap();
    let command = format!("{} check {}", program.display(), loaded.dir);
    let mut script = Command::new("script");
    script.args(["--quiet", "--return", "--command", &command, "/dev/null"]);
    let mut shown = Ended::of(script.env("TERM", "xterm").stdin(Stdio::null())).ends(0);
    for part in [" checked (", " %), ", " left", "sound: 20000 records"] {
        shown = shown.says(part);
    }
}

#[test]
fn sound_damaged_and_no_directory() {
    let loaded = Loaded::new();
    loaded.is_sound(20_000);
    // No unit is whole yet.
    let tail = loaded.path("tail");
    flip(&tail, 70_000);
    let named = tail.display();
    let checked = loaded.check();
    let last = checked.out.lines().last().unwrap();
    assert!(last.starts_with("damaged in 1 place: "), "{checked:?}");
    let damage = format!("damaged: {named}: record log, address 65536: ");
    begins(checked, &damage);
    let none = run(&["check", word(loaded.home.path())]).ends(1);
    none.says("is not a Loom directory");
}

#[test]
fn repair_makes_the_index_logs_anew() {
    let loaded = Loaded::new();
    flip(&loaded.only_segment("chunks"), 100);
    loaded.check().ends(1).says("chunk index, address 0: ");
    let repaired = loaded.repair().ends(0);
    repaired.says("rebuilt the index logs from the records");
    loaded.check().ends(0);
}

/// Replaces a segment's file by a folder, or by a link to the file.
fn displace(segment: &Path, by_link: bool) {
    let elsewhere = segment.with_file_name("elsewhere");
    fs::rename(segment, &elsewhere).unwrap();
    if by_link {
        std::os::unix::fs::symlink(&elsewhere, segment).unwrap();
    } else {
        fs::create_dir(segment).unwrap();
    }
}

#[test]
fn each_place_is_told_once_without_a_pointer_to_check_itself() {
    let loaded = Loaded::new();
    let segment = loaded.only_segment("chunks");
    fs::remove_file(&segment).unwrap();
    let named = segment.display();
    let line = format!("damaged: {named}: chunk index, address 0: the segment file is gone\n");
    begins(loaded.check(), &line);
    let nowhere = run(&["check", word(&loaded.home.path().join("nowhere"))]);
    assert!(nowhere.err.ends_with("it does not exist\n"), "{nowhere:?}");
}

#[test]
fn an_index_log_goes_on_beside_what_stands_in_place_of_a_segment() {
    for log in ["chunks", "times"] {
        for (by_link, repairs) in [(false, false), (false, true), (true, false), (true, true)] {
            let loaded = Loaded::new();
            let segment = loaded.only_segment(log);
            let before = fs::read(&segment).unwrap();
            displace(&segment, by_link);
            let checked = loaded.check().ends(1);
            checked.says("is in place of the file: move it away");
            if repairs {
                loaded.repair().ends(0);
            } else {
                loaded.load();
            }
            loaded.is_sound(if repairs { 20_000 } else { 40_000 });
            assert!(by_link || segment.is_dir() && segment.with_extension("1").is_file());
            let elsewhere = fs::read(segment.with_file_name("elsewhere")).unwrap();
            assert_eq!(elsewhere, before);
        }
    }
}

#[test]
fn a_folder_in_place_of_records_is_damage_and_ends_no_check() {
    let loaded = Loaded::new();
    // Two loads fill a unit.
    loaded.load();
    let segment = loaded.only_segment("records");
    displace(&segment, false);
    let found =
        "a folder is in place of the file: move it away, and restore the file if you have it";
    let named = segment.display();
    let damage = format!("damaged: {named}: record log, address 0: {found}\n");
    begins(loaded.repair(), &damage);
    // The log ends in that segment: what is appended would stand beside records that may be put back.
    let rows = loaded.home.path().join("rows.csv");
    let load = run(&["load", &loaded.dir, "--source", "s", word(&rows)]).ends(1);
    let line = format!("ingestd: {named}: damaged: {found}\n");
    assert!(load.err.ends_with(&line), "{load:?}");
    fs::remove_dir(&segment).unwrap();
    fs::rename(segment.with_file_name("elsewhere"), &segment).unwrap();
    loaded.load();
    loaded.is_sound(60_000);
}

// G9
#[test]
fn pending_losses_are_counted_and_damage_of_their_table_is_named() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("loom");
    let mut options = options(64 << 10, 1 << 20);
    options.log.staging = Some(home.path().to_owned());
    let mut writer = Writer::open(&dir, options.clone()).unwrap();
    let source = writer.define_source(&SourceDef::new("s")).unwrap();
    let recorded_at = writer.push(source, &[1; 8]).unwrap();
    let loss = |recorded_at| PendingLoss {
        reason: LossReason::Overload as u8,
        recorded_at,
        ..PendingLoss::UNKNOWN
    };
    writer.set_pending_losses(vec![loss(None), loss(Some(recorded_at)), loss(None)]);
    let check = || run(&["check", word(&dir)]);
    let says = |causes: &str| {
        let checked = check().ends(0).says("sound: ");
        checked.says(&format!("; pending losses of {causes}, "));
    };
    says("3 causes");
    writer.publish().unwrap();
    says("2 causes");
    // Dropped without being closed, a writer leaves what a kill leaves.
    drop(writer);
    says("2 causes");
    let staged = paths(home.path()).into_iter().find(|path| path.is_file());
    let staged = staged.unwrap();
    let mut bytes = fs::read(&staged).unwrap();
    bytes[4096..12288].iter_mut().for_each(|byte| *byte ^= 1);
    fs::write(&staged, bytes).unwrap();
    let named = staged.display();
    let damage = format!("damaged: {named}: its table of pending losses is damaged");
    begins(check(), &damage);
    let writer = Writer::open(&dir, options).unwrap();
    assert_eq!(writer.pending_losses(), [PendingLoss::UNKNOWN]);
    writer.close().unwrap();
    says("1 cause");
}

#[test]
fn repair_writes_the_files_beside_the_logs_as_a_start_does() {
    for name in "catalog catalog.copy loom.json loom.json.copy durable".split(' ') {
        let loaded = Loaded::new();
        let path = loaded.path(name);
        let whole = fs::read(&path).unwrap();
        flip(&path, 20);
        // It is reported before the damage of the logs.
        let segment = loaded.only_segment("chunks");
        flip(&segment, 100);
        begins(loaded.check(), &format!("damaged: {}: ", path.display()));
        flip(&segment, 100);
        let repaired = loaded.repair().ends(0);
        let last = repaired.out.lines().last().unwrap();
        assert!(last.starts_with("sound: 20000 records in "), "{repaired:?}");
        assert!(
            name == "durable" || fs::read(&path).unwrap() == whole,
            "{name}"
        );
        loaded.check().ends(0);
    }
}

#[test]
fn a_catalog_that_lost_lines_is_told_alone() {
    let loaded = Loaded::new();
    let path = loaded.path("catalog");
    let catalog = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = catalog.split_inclusive('\n').collect();
    for kept in 0..lines.len() {
        for name in ["catalog", "catalog.copy"] {
            fs::write(path.with_file_name(name), lines[..kept].concat()).unwrap();
        }
        for checked in [loaded.check(), loaded.repair()] {
            let said = checked.all();
            let damaged = said.lines().filter(|line| line.starts_with("damaged: "));
            assert_eq!(damaged.count(), 1, "{said}");
            let line = format!("damaged: {}: its lines end at byte ", path.display());
            begins(checked, &line);
        }
    }
}

#[test]
fn what_is_printed_to_nobody_or_to_a_full_disk_ends_in_no_panic() {
    let loaded = Loaded::new();
    let printed_to = |out: Stdio| Ended::of(ingestd(["check", &loaded.dir]).stdout(out));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(printed_to(writer.into()).ends(0).err, "");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let full = printed_to(full.into()).ends(1);
    full.says("ingestd: cannot write to standard output: No space");
}
