//! Tests `ingestd load` without a daemon on a disk that becomes full during the load.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod small_disk;

use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::TimeRange;
use loom_engine::check::check;
use loom_engine::query::{Directory, Poll, raw_scan};
use small_disk::Small;

const CONFIG: &str =
    "[log]\nchunk = '4KiB'\nblock = '256KiB'\nsegment = '2MiB'\nstaging = '/dev/shm'\n";
const ROWS: u64 = 1_500_000;

/// A directory of small segments on a small disk, and a file with more rows than fit.
struct Scene {
    small: Small,
    home: tempfile::TempDir,
}

impl Scene {
    fn new() -> Option<Scene> {
        let small = Small::mount("36m")?;
        let home = tempfile::tempdir().unwrap();
        let scene = Scene { small, home };
        let config = Config::parse(CONFIG).unwrap();
        let daemon = Daemon::start(&scene.dir(), &config, false).unwrap();
        daemon.stop().unwrap();
        let rows = (1..=ROWS).map(|row| format!("{row},{row:032}\n"));
        fs::write(scene.file(), format!("n,s\n{}", rows.collect::<String>())).unwrap();
        Some(scene)
    }

    fn dir(&self) -> PathBuf {
        self.small.path().join("loom")
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("rows.csv")
    }

    /// Loads the file, and returns how long that took.
    fn load(&self) -> (Output, Duration) {
        let since = Instant::now();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
        command.arg("load").arg(self.dir()).args(["--source", "s"]);
        let output = command
            .args(fields(&self.file()))
            .arg(self.file())
            .output()
            .unwrap();
        (output, since.elapsed())
    }
}

/// The option that declares the fields of a file's rows, in a second file.
fn fields(rows: &Path) -> [OsString; 2] {
    let toml = rows.with_extension("toml");
    let fields = "[{ name = 'n', type = 'i64' }, { name = 's', type = 'utf8', nullable = true }]";
    fs::write(&toml, format!("[[source]]\nname = 's'\nfield = {fields}\n")).unwrap();
    ["--fields".into(), toml.into()]
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// How many records of the source `s` a query sees.
fn visible(dir: &Path) -> u64 {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let source = snapshot.source("s").unwrap().id;
    let mut records = 0;
    raw_scan(&snapshot, source, TimeRange::ALL, &Poll::never(), |_| {
        records += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    records
}

#[test]
fn a_disk_too_small_for_a_new_directory_is_named_and_nothing_is_left_on_it() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("a.csv");
    fs::write(&file, "n\n1\n").unwrap();
    for (size, missing) in [("64m", 228), ("184m", 108)] {
        let Some(small) = Small::mount(size) else {
            return;
        };
        let dir = small.path().join("loom");
        let mut load = Command::new(env!("CARGO_BIN_EXE_ingestd"));
        load.arg("load")
            .arg(&dir)
            .args(["--source", "s"])
            .args(fields(&file))
            .arg(&file);
        let output = load.output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let at = small.path().display();
        let said = format!("its first files take 292 MiB, and the disk at '{at}' has ");
        let short =
            format!(", {missing} MiB too few; free some space, or create it with smaller files: ");
        let errors = text(&output.stderr);
        assert!(
            errors.contains(&said) && errors.contains(&short),
            "{errors}"
        );
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert_eq!(fs::read_dir(small.path()).unwrap().count(), 0);
    }
}

#[test]
fn a_directory_whose_first_segment_could_not_be_made_is_sound() {
    let home = tempfile::tempdir().unwrap();
    let (dir, file) = (home.path().join("loom"), home.path().join("a.csv"));
    fs::write(&file, "n\n1\n").unwrap();
    let load = |limit: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -f {limit} && exec \"$0\" \"$@\"")]);
        shell.arg(env!("CARGO_BIN_EXE_ingestd")).arg("load");
        shell.arg(&dir).args(["--source", "s"]).args(fields(&file));
        shell.arg(&file);
        shell.output().unwrap()
    };
    assert!(!load("1000").status.success());
    assert!(dir.join("durable").exists());
    let report = check(&dir).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let again = load("unlimited");
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(visible(&dir), 1);
}

// G13
#[test]
fn min_free_holds_while_the_log_allocates_its_files() {
    const MIB: u64 = 1 << 20;
    let Some(small) = Small::mount("120m") else {
        return;
    };
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("rows.csv");
    let rows = (1..=ROWS).map(|row| format!("{row},{row:032}\n"));
    fs::write(&file, format!("n,s\n{}", rows.collect::<String>())).unwrap();
    let config = "[log]\nblock = '1MiB'\nsegment = '8MiB'\n[retention]\nmin_free = '60MiB'\n";
    let dir = small.path().join("loom");
    let daemon = Daemon::start(&dir, &Config::parse(config).unwrap(), false).unwrap();
    let mut load = Command::new(env!("CARGO_BIN_EXE_ingestd"));
    load.arg("load")
        .arg(&dir)
        .args(["--source", "s"])
        .args(fields(&file))
        .arg(&file);
    let mut load = load.spawn().unwrap();
    let mut free_least = u64::MAX;
    let status = loop {
        let disk = rustix::fs::statvfs(small.path()).unwrap();
        free_least = free_least.min(disk.f_bavail * disk.f_frsize);
        if let Some(status) = load.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_micros(200));
    };
    assert!(status.success());
    let evicted = daemon.status().unwrap().evicted_segments;
    assert!(evicted > 0, "the load is longer than the disk");
    // At this rate a file is full within milliseconds, and another may be allocated before one that was given up is gone.
    assert!(free_least > 44 * MIB, "{} MiB", free_least / MIB);
    daemon.stop().unwrap();
    assert!(check(&dir).unwrap().is_sound());
}

// case Disk: full in mid-flush
#[test]
fn a_load_that_fills_the_disk_ends_with_its_counts_and_loses_no_row_that_it_counts() {
    let Some(scene) = Scene::new() else {
        return;
    };
    let (output, took) = scene.load();
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert_eq!(output.status.code(), Some(1));
    let (counts, said) = (text(&output.stdout), text(&output.stderr));
    let stored = counts.split("stored=").nth(1).unwrap();
    let stored: u64 = stored.split(' ').next().unwrap().parse().unwrap();
    assert!((100_000..ROWS).contains(&stored), "{counts}");
    assert_eq!(
        counts,
        format!("received={stored} stored={stored} refused=0 dropped=0\n")
    );
    let first_left = format!(
        "cannot store row {} of '{}' and the rows after it: ",
        stored + 1,
        scene.file().display()
    );
    assert!(said.contains(&first_left), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(
        said.contains("free some space, then load the others"),
        "{said}"
    );
    assert_eq!(visible(&scene.dir()), stored);

    scene.small.grow("400m");
    let (again, _) = scene.load();
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert_eq!(visible(&scene.dir()), stored + ROWS);
    let report = check(&scene.dir()).unwrap();
    assert!(report.is_sound(), "{report:?}");
}
