//! The flight recorder of a running daemon: pins that a kill, a full disk or their budget ends.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ingestd::client::Client;
use ingestd::output::pins::{Pinned, list};
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::rules::{
    Alert, FIRING, PIN_FAILED, PINNED, PINNING, RESOLVED, alerts, push, rule, states,
};
use crate::small_disk::Small;
use crate::support::{Here, NUMBERS, There, eventually};

/// A rule that 0 breaks, with a pin of all that was before.
fn breaks_at_zero() -> String {
    rule("min < 1", "20ms", "10ms", "pin = '1h'")
}

/// Numbers above 0 that do not compress.
fn noise(count: usize, rng: &mut fastrand::Rng) -> Vec<u64> {
    (0..count).map(|_| rng.u64(1..)).collect()
}

/// Breaks the rule, once it holds no longer.
fn fire(dir: &Path, client: &Client) {
    let count = |state| {
        alerts(dir)
            .iter()
            .filter(|alert| alert.state == state)
            .count()
    };
    eventually(|| (count(FIRING) == count(RESOLVED)).then_some(()));
    push(client, &[0]);
}

/// The latest alert about a pin, once there are so many.
fn outcome(dir: &Path, count: usize) -> Alert {
    eventually(|| {
        let is_about = |alert: &Alert| [PINNED, PIN_FAILED].contains(&alert.state);
        let found: Vec<Alert> = alerts(dir).into_iter().filter(is_about).collect();
        found.get(count - 1).cloned()
    })
}

/// Waits until each pin that was to be written is, or is recorded as failed.
fn settled(dir: &Path) {
    eventually(|| {
        let alerts = alerts(dir);
        let count = |state| alerts.iter().filter(|alert| alert.state == state).count();
        (count(PINNING) == count(PINNED) + count(PIN_FAILED)).then_some(())
    });
}

/// Whether each file of a pin is there and holds what the pin says.
fn require_whole(pinned: &Pinned) {
    assert!(!pinned.pin.sources.is_empty());
    for source in &pinned.pin.sources {
        let file = fs::File::open(pinned.path.join(&source.file)).unwrap();
        let rows = SerializedFileReader::new(file)
            .unwrap()
            .metadata()
            .file_metadata()
            .num_rows();
        assert_eq!(rows as u64, source.records, "{}", source.file);
    }
}

/// The folders of pins that are not whole.
fn partial(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir.join("pins")) else {
        return 0;
    };
    let names = entries.map(|entry| entry.unwrap().file_name());
    names
        .filter(|name| name.to_str().unwrap().starts_with(".partial-"))
        .count()
}

// case Rules: pins
#[test]
fn a_kill_at_any_point_of_a_pin_leaves_it_whole_or_absent() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("loom.toml");
    fs::write(
        &config,
        format!(
            "[retention]\npin_max_bytes = '1GiB'\n{NUMBERS}{}",
            breaks_at_zero()
        ),
    )
    .unwrap();
    let dir = place.path().join("loom");
    let arguments = ["--config", config.to_str().unwrap()];
    let mut killed_within = 0;
    for round in 0..10 {
        let there = There::start(&dir, &arguments);
        settled(&dir);
        assert_eq!(partial(&dir), 0, "a start removes what a kill left");
        let client = there.client();
        let before = list(&dir).unwrap().len();
        push(&client, &noise(100_000, &mut rng));
        fire(&dir, &client);
        eventually(|| (partial(&dir) > 0 || list(&dir).unwrap().len() > before).then_some(()));
        // How far it gets is the point: from the first file to the move of the whole.
        std::thread::sleep(Duration::from_micros(rng.u64(0..1 + round * 20_000)));
        there.signal("-KILL");
        there.wait();
        killed_within += partial(&dir);
        list(&dir).unwrap().iter().for_each(require_whole);
    }
    assert!(killed_within > 0, "no kill came while a pin was written");
    let there = There::start(&dir, &arguments);
    settled(&dir);
    fire(&dir, &there.client());
    eventually(|| (list(&dir).unwrap().len() == 11).then_some(()));
    list(&dir).unwrap().iter().for_each(require_whole);
    there.signal("-TERM");
    assert!(there.wait());
}

// case Rules: pins
#[test]
fn a_disk_that_fills_under_a_pin_is_an_alert_and_the_next_pin_is_kept() {
    let Some(small) = Small::mount("1m") else {
        return;
    };
    let here = Here::start(&format!("{NUMBERS}{}", breaks_at_zero()));
    symlink(small.path(), here.path().join("pins")).unwrap();
    let client = here.client();
    let mut rng = fastrand::Rng::with_seed(7);
    push(&client, &noise(200_000, &mut rng));
    fire(here.path(), &client);
    let failed = outcome(here.path(), 1);
    assert_eq!(failed.state, PIN_FAILED);
    assert!(failed.detail.contains("No space left"), "{}", failed.detail);
    assert_eq!(
        (list(here.path()).unwrap().len(), partial(here.path())),
        (0, 0)
    );
    small.grow("64m");
    fire(here.path(), &client);
    assert_eq!(outcome(here.path(), 2).state, PINNED);
    list(here.path()).unwrap().iter().for_each(require_whole);
    fs::remove_file(here.path().join("pins")).unwrap();
}

// case Rules: pins
#[test]
fn a_pin_beyond_its_budget_stops_before_it_fills_the_disk() {
    let Some(small) = Small::mount("1m") else {
        return;
    };
    let budget = "[retention]\npin_max_bytes = '500KiB'\n";
    let here = Here::start(&format!("{budget}{NUMBERS}{}", breaks_at_zero()));
    symlink(small.path(), here.path().join("pins")).unwrap();
    let client = here.client();
    // As a pin 1.6 MB, and not so much that it is refused before it begins.
    push(&client, &noise(200_000, &mut fastrand::Rng::with_seed(7)));
    fire(here.path(), &client);
    let failed = outcome(here.path(), 1);
    assert_eq!(failed.state, PIN_FAILED);
    let why = "takes more than pin_max_bytes, 512000 bytes";
    assert!(failed.detail.contains(why), "{}", failed.detail);
    assert_eq!(partial(here.path()), 0);
    fs::remove_file(here.path().join("pins")).unwrap();
}

/// The mode of a pin's folder, and of a file in it.
fn modes(pinned: &Pinned) -> [u32; 2] {
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    let file = pinned.path.join(&pinned.pin.sources[0].file);
    [mode(&pinned.path), mode(&file)]
}

// case Rules: who may read a pin
#[test]
fn the_group_that_may_read_the_directory_may_read_its_pins_and_nobody_else() {
    let group = rustix::process::getegid().as_raw();
    let shared = format!("[access]\ngroup = '{group}'\n");
    for (access, wanted) in [(shared.as_str(), [0o750, 0o640]), ("", [0o700, 0o600])] {
        let place = tempfile::tempdir().unwrap();
        let (config, dir) = (place.path().join("loom.toml"), place.path().join("loom"));
        fs::write(&config, format!("{access}{NUMBERS}{}", breaks_at_zero())).unwrap();
        // As a shell that takes nothing away.
        let child = Command::new("sh")
            .args(["-c", "umask 0; exec \"$@\"", "sh"])
            .arg(env!("CARGO_BIN_EXE_ingestd"))
            .arg("run")
            .arg(&dir)
            .arg("--config")
            .arg(&config)
            .spawn()
            .unwrap();
        let there = There::of(child, &dir);
        fire(&dir, &there.client());
        assert_eq!(outcome(&dir, 1).state, PINNED);
        assert_eq!(modes(&list(&dir).unwrap()[0]), wanted);
        let folder = fs::metadata(dir.join("pins")).unwrap();
        assert_eq!(folder.mode() & 0o7777, wanted[0]);
        there.signal("-TERM");
        assert!(there.wait());
        // What an earlier version left is shared at the next start.
        let pinned = list(&dir).unwrap().remove(0);
        for path in [&pinned.path, &pinned.path.join(&pinned.pin.sources[0].file)] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        let there = There::start(&dir, &["--config", config.to_str().unwrap()]);
        assert_eq!(modes(&pinned), wanted);
        there.signal("-TERM");
        assert!(there.wait());
    }
}

// case Rules: a pin that ends the daemon each time
#[test]
fn a_pin_that_killed_the_daemon_three_times_is_given_up_aloud() {
    let place = tempfile::tempdir().unwrap();
    let (config, dir) = (place.path().join("loom.toml"), place.path().join("loom"));
    fs::write(
        &config,
        format!(
            "{NUMBERS}{}",
            rule("min < 1", "20ms", "10ms", "pin = '1h'\npin_after = '300ms'")
        ),
    )
    .unwrap();
    let arguments = ["--config", config.to_str().unwrap()];
    let there = There::start(&dir, &arguments);
    fire(&dir, &there.client());
    eventually(|| (states(&dir).contains(&PINNING)).then_some(()));
    there.signal("-KILL");
    there.wait();
    // Three daemons that had begun to write it and were killed.
    let pinning = alerts(&dir)
        .into_iter()
        .find(|alert| alert.state == PINNING);
    let end = jiff::Timestamp::from_nanosecond((pinning.unwrap().to + 300_000_000).into());
    let id = format!("{}-r", end.unwrap().strftime("%Y%m%dT%H%M%S.%9fZ"));
    fs::create_dir_all(dir.join("pins")).unwrap();
    fs::write(dir.join("pins").join(format!(".tries-{id}")), "...").unwrap();
    let there = There::start(&dir, &arguments);
    let failed = outcome(&dir, 1);
    assert_eq!(failed.state, PIN_FAILED);
    let why = "given up: the daemon ended 3 times while it wrote the pin";
    assert!(failed.detail.contains(why), "{}", failed.detail);
    // The next one is another.
    fire(&dir, &there.client());
    assert_eq!(outcome(&dir, 2).state, PINNED);
    there.signal("-TERM");
    assert!(there.wait());
}

// case Rules: pins
#[test]
fn the_oldest_pins_make_room_within_the_budget() {
    let budget = "[retention]\npin_max_bytes = '390KiB'\n";
    let here = Here::start(&format!(
        "{budget}{NUMBERS}{}",
        rule("min < 1", "20ms", "10ms", "pin = '20ms'")
    ));
    let client = here.client();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut paths = Vec::new();
    for round in 1..=5 {
        let count = |state| {
            alerts(here.path())
                .iter()
                .filter(|alert| alert.state == state)
                .count()
        };
        eventually(|| (count(FIRING) == count(RESOLVED)).then_some(()));
        let mut numbers = noise(12_000, &mut rng);
        numbers.push(0);
        push(&client, &numbers);
        let done = outcome(here.path(), round);
        assert_eq!(done.state, PINNED, "{}", done.detail);
        paths.push(done.detail);
    }
    let kept = list(here.path()).unwrap();
    let bytes: u64 = kept.iter().map(|pinned| pinned.bytes).sum();
    assert!(
        bytes <= 400_000 && kept.len() < 5,
        "{bytes} bytes in {} pins",
        kept.len()
    );
    let newest = paths.len() - kept.len();
    for (pinned, path) in kept.iter().zip(&paths[newest..]) {
        assert!(path.starts_with(pinned.path.to_str().unwrap()), "{path}");
        require_whole(pinned);
    }
}
