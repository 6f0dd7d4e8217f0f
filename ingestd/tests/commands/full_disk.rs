//! `ingestd load` without a daemon, on a disk that fills on the way.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::check::check;
use loom_engine::testkit::{paths, payloads};
use loom_tests::command::{Ended, declared, ingestd, word};
use loom_tests::disk::MemoryDisk;
use loom_tests::machine;
use tempfile::TempDir;

const CONFIG: &str =
    "[log]\nchunk = '4KiB'\nblock = '256KiB'\nsegment = '2MiB'\nstaging = '/dev/shm'\n";
const ROWS: u64 = 1_500_000;

/// A file to load into a directory, of texts that hardly compress.
struct Rows {
    home: TempDir,
}

impl Rows {
    fn new(rows: u64) -> Rows {
        let home = tempfile::tempdir().unwrap();
        let mut noise = fastrand::Rng::with_seed(1);
        let mut text = || (0..64).map(|_| noise.alphanumeric()).collect::<String>();
        let lines = (1..=rows).map(|row| format!("{row},{}\n", text()));
        let text = format!("n,s\n{}", lines.collect::<String>());
        fs::write(home.path().join("rows.csv"), text).unwrap();
        Rows { home }
    }

    fn load(&self, dir: &Path) -> Command {
        let rows = self.home.path().join("rows.csv");
        let fields = declared(&rows, "s", "n i64, s utf8?");
        let load = ["load", word(dir), "--source", "s", "--fields", &fields];
        ingestd(load.into_iter().chain([word(&rows)]))
    }
}

/// How many records of the source `s` a query sees.
fn visible(dir: &Path) -> u64 {
    payloads(dir, "s").len() as u64
}

fn mount(size: &str) -> Option<MemoryDisk> {
    MemoryDisk::mount("full_disk", size).unwrap()
}

#[test]
fn a_disk_too_small_for_a_new_directory_is_named_and_nothing_is_left_on_it() {
    let rows = Rows::new(1);
    for (size, missing) in [("64m", 228), ("184m", 108)] {
        let Some(disk) = mount(size) else { return };
        let at = disk.at().display();
        let refused = Ended::of(&mut rows.load(&disk.at().join("loom"))).ends(1);
        assert_eq!(refused.err.lines().count(), 1, "{refused:?}");
        let has = format!("its first files take 292 MiB, and the disk at '{at}' has ");
        let remedy = "free some space, or create it with smaller files: ";
        let short = format!(", {missing} MiB too few; {remedy}");
        refused.says(&has).says(&short);
        assert!(paths(disk.at()).is_empty());
    }
}

#[test]
fn a_directory_whose_first_segment_could_not_be_made_is_sound() {
    let rows = Rows::new(1);
    let dir = rows.home.path().join("loom");
    let load = |limit: &str| {
        let command = rows.load(&dir);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -f {limit} && exec \"$0\" \"$@\"")]);
        shell.arg(command.get_program()).args(command.get_args());
        Ended::of(&mut shell)
    };
    assert_ne!(load("1000").code, Some(0));
    assert!(dir.join("durable").exists());
    let report = check(&dir).unwrap();
    assert!(report.is_sound(), "{report:?}");
    load("unlimited").ends(0);
    assert_eq!(visible(&dir), 1);
}

// G13
#[test]
fn min_free_holds_while_the_log_allocates_its_files() {
    const MIB: u64 = 1 << 20;
    let Some(disk) = mount("120m") else { return };
    let rows = Rows::new(ROWS);
    let config = "[log]\nblock = '1MiB'\nsegment = '8MiB'\n[retention]\nmin_free = '60MiB'\n";
    let dir = disk.at().join("loom");
    let daemon = Daemon::start(&dir, &Config::parse(config).unwrap(), false).unwrap();
    let mut load = rows.load(&dir).spawn().unwrap();
    let mut free_least = u64::MAX;
    let status = loop {
        free_least = free_least.min(machine::free_bytes(disk.at()).unwrap());
        if let Some(status) = load.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    assert!(status.success());
    let evicted = daemon.status().unwrap().evicted_segments;
    assert!(evicted > 0, "the load is longer than the disk");
    // At this rate a segment is full within milliseconds, and the next one grows before one that was given up is gone.
    assert!(free_least > 28 * MIB, "{} MiB", free_least / MIB);
    daemon.stop().unwrap();
    assert!(check(&dir).unwrap().is_sound());
}

// case Disk: full in mid-flush
#[test]
fn a_load_that_fills_the_disk_ends_with_its_counts_and_loses_no_row_that_it_counts() {
    let Some(disk) = mount("36m") else { return };
    let rows = Rows::new(ROWS);
    let dir = disk.at().join("loom");
    let daemon = Daemon::start(&dir, &Config::parse(CONFIG).unwrap(), false).unwrap();
    daemon.stop().unwrap();
    let since = Instant::now();
    let filled = Ended::of(&mut rows.load(&dir)).ends(1);
    let took = since.elapsed();
    assert!(took < Duration::from_secs(30), "{took:?}");
    let stored = filled.out.split("stored=").nth(1).unwrap();
    let stored: u64 = stored.split(' ').next().unwrap().parse().unwrap();
    assert!((100_000..ROWS).contains(&stored), "{filled:?}");
    let counts = format!("received={stored} stored={stored} refused=0 dropped=0\n");
    let file = rows.home.path().join("rows.csv");
    let (next, file) = (stored + 1, file.display());
    filled
        .prints(&counts)
        .says(&format!(
            "cannot store row {next} of '{file}' and the rows after it: "
        ))
        .says("No space left on device")
        .says("free some space, then load the others");
    assert_eq!(visible(&dir), stored);

    disk.grow("400m").unwrap();
    Ended::of(&mut rows.load(&dir)).ends(0);
    assert_eq!(visible(&dir), stored + ROWS);
    let report = check(&dir).unwrap();
    assert!(report.is_sound(), "{report:?}");
}
