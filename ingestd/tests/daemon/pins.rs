//! The flight recorder of a running daemon: pins that a kill, a full disk or their budget ends.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use ingestd::client::Client;
use ingestd::output::pins::{Pinned, list};
use ingestd::rfc3339;
use loom_engine::Timestamp;
use loom_tests::command::{Ended, eventually, ingestd, run, says, until, word};
use loom_tests::daemon::configuration;
use loom_tests::disk::MemoryDisk;
use loom_tests::machine;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::rules::{
    Alert, FIRING, PIN_FAILED, PINNED, PINNING, RESOLVED, alerts, push, rule, states,
};
use crate::support::{Here, NUMBERS, Place, There, kill, stop};

/// A rule that 0 breaks, with a pin of all that was before.
fn breaks_at_zero() -> String {
    rule("min < 1", "20ms", "10ms", "pin = '1h'")
}

/// Numbers above 0 that do not compress.
fn noise(count: usize, rng: &mut fastrand::Rng) -> Vec<u64> {
    (0..count).map(|_| rng.u64(1..)).collect()
}

/// Breaks the rule by numbers with a 0, once it holds no longer.
fn fire(dir: &Path, client: &Client, numbers: &[u64]) {
    until(|| {
        let alerts = alerts(dir);
        let count = |state| alerts.iter().filter(|alert| alert.state == state).count();
        count(FIRING) == count(RESOLVED)
    });
    push(client, numbers);
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
        let reader = SerializedFileReader::new(file).unwrap();
        let rows = reader.metadata().file_metadata().num_rows();
        assert_eq!(rows as u64, source.records, "{}", source.file);
    }
}

/// The folders of pins that are not whole.
fn partial(dir: &Path) -> usize {
    let entries = fs::read_dir(dir.join("pins")).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name());
    let is_partial = |name: &std::ffi::OsString| name.to_str().unwrap().starts_with(".partial-");
    names.filter(is_partial).count()
}

// case Rules: pins
#[test]
fn a_kill_at_any_point_of_a_pin_leaves_it_whole_or_absent() {
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let place = Place::new();
    let dir = &place.dir;
    let budget = "[retention]\npin_max_bytes = '1GiB'\n";
    let start = || place.start(&format!("{budget}{NUMBERS}{}", breaks_at_zero()));
    let mut killed_within = 0;
    for round in 0..10 {
        let there = start();
        settled(dir);
        assert_eq!(partial(dir), 0, "a start removes what a kill left");
        let client = there.client().unwrap();
        let before = list(dir).unwrap().len();
        push(&client, &noise(100_000, &mut rng));
        fire(dir, &client, &[0]);
        until(|| partial(dir) > 0 || list(dir).unwrap().len() > before);
        // How far it gets is the point: from the first file to the move of the whole.
        std::thread::sleep(Duration::from_micros(rng.u64(0..1 + round * 20_000)));
        kill(there);
        killed_within += partial(dir);
        list(dir).unwrap().iter().for_each(require_whole);
    }
    assert!(killed_within > 0, "no kill came while a pin was written");
    let there = start();
    settled(dir);
    fire(dir, &there.client().unwrap(), &[0]);
    until(|| list(dir).unwrap().len() == 11);
    list(dir).unwrap().iter().for_each(require_whole);
    stop(there);
}

// case Rules: pins
#[test]
fn a_start_on_a_full_disk_removes_an_unfinished_pin_and_no_record() {
    let Some(disk) = MemoryDisk::mount("unfinished", "256m").unwrap() else {
        return;
    };
    let dir = &disk.at().join("loom");
    let config = format!("[log]\nsegment = '1MiB'\nblock = '1MiB'\n{NUMBERS}");
    let start = || There::start(dir, &config).unwrap();
    let there = start();
    push(
        &there.client().unwrap(),
        &noise(200_000, &mut fastrand::Rng::with_seed(7)),
    );
    pin(dir, "before").ends(0).says("records=200000 ");
    kill(there);
    let unfinished = dir.join("pins/.partial-x");
    fs::create_dir_all(&unfinished).unwrap();
    let filled = fs::write(unfinished.join("numbers.parquet"), vec![0; 256 << 20]);
    assert_eq!(filled.unwrap_err().kind(), ErrorKind::StorageFull);
    let there = start();
    assert!(!unfinished.exists());
    pin(dir, "after").ends(0).says("records=200000 ");
    stop(there);
}

// case Rules: pins
#[test]
fn a_disk_without_room_for_a_pin_is_an_alert_and_the_next_pin_is_kept() {
    let Some(disk) = MemoryDisk::mount("pins", "1m").unwrap() else {
        return;
    };
    let here = Here::start(&format!("{NUMBERS}{}", breaks_at_zero()));
    symlink(disk.at(), here.path().join("pins")).unwrap();
    let client = here.client();
    let mut rng = fastrand::Rng::with_seed(7);
    push(&client, &noise(200_000, &mut rng));
    fire(here.path(), &client, &[0]);
    let failed = outcome(here.path(), 1);
    assert_eq!(failed.state, PIN_FAILED);
    says(&failed.detail, "beside what [retention] min_free");
    assert!(list(here.path()).unwrap().is_empty());
    assert_eq!(partial(here.path()), 0);
    disk.grow("64m").unwrap();
    fire(here.path(), &client, &[0]);
    assert_eq!(outcome(here.path(), 2).state, PINNED);
    list(here.path()).unwrap().iter().for_each(require_whole);
    fs::remove_file(here.path().join("pins")).unwrap();
}

// case Rules: pins
#[test]
fn a_pin_beyond_its_budget_stops_before_it_fills_the_disk() {
    let Some(disk) = MemoryDisk::mount("pins", "1m").unwrap() else {
        return;
    };
    let budget = "[retention]\npin_max_bytes = '500KiB'\n";
    let here = Here::start(&format!("{budget}{NUMBERS}{}", breaks_at_zero()));
    symlink(disk.at(), here.path().join("pins")).unwrap();
    let client = here.client();
    // As a pin 1.6 MB, and not so much that it is refused before it begins.
    push(&client, &noise(200_000, &mut fastrand::Rng::with_seed(7)));
    fire(here.path(), &client, &[0]);
    let failed = outcome(here.path(), 1);
    assert_eq!(failed.state, PIN_FAILED);
    let why = "takes more than pin_max_bytes, 512000 bytes";
    says(&failed.detail, why);
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
        let place = Place::new();
        let dir = &place.dir;
        let config = format!("{access}{NUMBERS}{}", breaks_at_zero());
        let file = configuration(dir, &config).unwrap();
        // As a shell that takes nothing away.
        let run = ingestd(["run", word(dir), "--config", word(&file)]);
        let mut shell = Command::new("sh");
        shell.args(["-c", "umask 0; exec \"$@\"", "sh"]);
        shell.arg(run.get_program()).args(run.get_args());
        let there = There::spawn(shell, dir).unwrap();
        fire(dir, &there.client().unwrap(), &[0]);
        assert_eq!(outcome(dir, 1).state, PINNED);
        assert_eq!(modes(&list(dir).unwrap()[0]), wanted);
        let folder = fs::metadata(dir.join("pins")).unwrap();
        assert_eq!(folder.mode() & 0o7777, wanted[0]);
        stop(there);
        // Pins of an earlier version get these rights at the next start.
        let pinned = list(dir).unwrap().remove(0);
        for path in [&pinned.path, &pinned.path.join(&pinned.pin.sources[0].file)] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        let there = place.start(&config);
        assert_eq!(modes(&pinned), wanted);
        stop(there);
    }
}

// case Rules: a pin that ends the daemon each time
#[test]
fn a_pin_that_killed_the_daemon_three_times_is_given_up_aloud() {
    let place = Place::new();
    let dir = &place.dir;
    let rule = rule("min < 1", "20ms", "10ms", "pin = '1h'\npin_after = '300ms'");
    let start = || place.start(&format!("{NUMBERS}{rule}"));
    let there = start();
    fire(dir, &there.client().unwrap(), &[0]);
    until(|| states(dir).contains(&PINNING));
    kill(there);
    // Three daemons that had begun to write it and were killed.
    let mut alerts = alerts(dir).into_iter();
    let pinning = alerts.find(|alert| alert.state == PINNING);
    let end = jiff::Timestamp::from_nanosecond((pinning.unwrap().to + 300_000_000).into());
    let id = format!("{}-r", end.unwrap().strftime("%Y%m%dT%H%M%S.%9fZ"));
    fs::create_dir_all(dir.join("pins")).unwrap();
    fs::write(dir.join("pins").join(format!(".tries-{id}")), "...").unwrap();
    let there = start();
    let failed = outcome(dir, 1);
    assert_eq!(failed.state, PIN_FAILED);
    let why = "given up: the daemon ended 3 times while it wrote the pin";
    says(&failed.detail, why);
    // The next one is another.
    fire(dir, &there.client().unwrap(), &[0]);
    assert_eq!(outcome(dir, 2).state, PINNED);
    stop(there);
}

// case Rules: pins
#[test]
fn the_oldest_pins_make_room_within_the_budget() {
    let budget = "[retention]\npin_max_bytes = '390KiB'\n";
    let rule = rule("min < 1", "20ms", "10ms", "pin = '20ms'");
    let here = Here::start(&format!("{budget}{NUMBERS}{rule}"));
    let client = here.client();
    let mut rng = fastrand::Rng::with_seed(7);
    let mut paths = Vec::new();
    for round in 1..=5 {
        let mut numbers = noise(12_000, &mut rng);
        numbers.push(0);
        fire(here.path(), &client, &numbers);
        let done = outcome(here.path(), round);
        assert_eq!(done.state, PINNED, "{}", done.detail);
        paths.push(done.detail);
    }
    let kept = list(here.path()).unwrap();
    let bytes: u64 = kept.iter().map(|pinned| pinned.bytes).sum();
    let pins = kept.len();
    assert!(bytes <= 400_000 && pins < 5, "{bytes} bytes in {pins} pins");
    let newest = paths.len() - kept.len();
    for (pinned, path) in kept.iter().zip(&paths[newest..]) {
        assert!(path.starts_with(pinned.path.to_str().unwrap()), "{path}");
        require_whole(pinned);
    }
}

/// Pins the last hour of the source of numbers.
fn pin(dir: &Path, name: &str) -> Ended {
    let words = "--last 1h --source numbers --name".split(' ');
    Ended::of(&mut ingestd(
        ["pin", word(dir)].into_iter().chain(words).chain([name]),
    ))
}

// case Rules: a pin by hand
#[test]
fn pins_that_are_asked_for_at_once_are_all_written_without_a_rule() {
    let here = Here::start(NUMBERS);
    push(
        &here.client(),
        &noise(1000, &mut fastrand::Rng::with_seed(7)),
    );
    for round in 0..5 {
        std::thread::scope(|scope| {
            for nth in 0..4 {
                let (dir, name) = (here.path(), format!("{round}-{nth}"));
                scope.spawn(move || pin(dir, &name).ends(0).says("records=1000 "));
            }
        });
    }
    assert_eq!(list(here.path()).unwrap().len(), 20);
}

// case Rules: a pin by hand
#[test]
fn a_person_pins_the_latest_records_within_the_budget_of_all_pins() {
    let place = Place::new();
    let dir = &place.dir;
    let other = "[[source]]\nname = 'other'\n";
    let budget = "[retention]\npin_max_bytes = '300KiB'\n";
    let there = place.start(&format!("{budget}{NUMBERS}{other}"));
    let client = there.client().unwrap();
    let mut rng = fastrand::Rng::with_seed(7);
    push(&client, &noise(12_000, &mut rng));
    let pinned = pin(dir, "first").ends(0);
    assert_eq!(pinned.err, "");
    says(&pinned.out, "records=12000 bytes=");
    let first = list(dir).unwrap().remove(0);
    require_whole(&first);
    assert!(
        first.pin.by_hand && pinned.out.ends_with("-first\n"),
        "{}",
        pinned.out
    );
    let names = |pinned: &Pinned| pinned.pin.sources[0].source.clone();
    assert_eq!(
        (names(&first), first.pin.sources.len()),
        ("numbers".to_owned(), 1)
    );

    // Two pins of all take more than the budget.
    push(&client, &noise(12_000, &mut rng));
    let room = format!("made room for it: {}", first.pin.id);
    pin(dir, "second")
        .ends(0)
        .says("records=24000 ")
        .says(&room);
    let listed = run(&["pins", word(dir)]).ends(0).out;
    let lines: Vec<&str> = listed.lines().skip(1).collect();
    assert!(
        lines.len() == 1 && lines[0].starts_with("second  hand "),
        "{listed}"
    );
    let json = run(&["pins", word(dir), "--json"]).ends(0).out;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let [name, kept_by, records] = ["name", "kept_by", "records"].map(|key| &json["pins"][0][key]);
    assert_eq!(
        serde_json::json!([name, kept_by, records]),
        serde_json::json!(["second", "hand", 24_000])
    );
    push(&client, &noise(40_000, &mut rng));
    pin(dir, "third")
        .ends(1)
        .says("more than pin_max_bytes, 307200 bytes; raise it");
    assert_eq!(list(dir).unwrap().len(), 1);

    let span = &list(dir).unwrap()[0].pin;
    let [from, to] = [span.from_ns, span.to_ns].map(|ns| rfc3339(Timestamp(ns)));
    let between = |from: &str, to: &str, name: &str| {
        let words = [
            "--source", "numbers", "--from", from, "--to", to, "--name", name,
        ];
        Ended::of(&mut ingestd(["pin", word(dir)].into_iter().chain(words)))
    };
    between(&from, &to, "again").ends(0).says("records=24000 ");
    let again = list(dir).unwrap().pop().unwrap().pin;
    assert_eq!((again.from_ns, again.to_ns), (span.from_ns, span.to_ns));
    between(&from, &to, "again")
        .ends(1)
        .says("ends at the same time; give another name");
    between(&to, &from, "x")
        .ends(1)
        .says("give a --to after --from");
    between(&from, "2200-01-01T00:00:00Z", "x")
        .ends(1)
        .says("is still to come; give an end that has passed");

    for (words, why) in [
        ("--last 1h --source nmbers", "did you mean 'numbers'"),
        ("--last 1h --source loom_metrics", "is built in"),
        (
            "--last 1h --source other",
            "no record arrived within the span",
        ),
        ("--last 0s", "use 5m"),
    ] {
        let words = words.split(' ');
        let mut refused = ingestd(["pin", word(dir)].into_iter().chain(words));
        Ended::of(&mut refused).ends(1).says(why);
    }
    stop(there);
    pin(dir, "late")
        .ends(1)
        .says("no daemon runs on")
        .says("ingestd export");
}

// case Rules: a pin by hand
#[test]
fn a_user_who_may_only_push_may_not_pin() {
    let here = Here::start(&format!(
        "{NUMBERS}[access]\ngroup = '0'\nsocket = 'group'\n"
    ));
    push(&here.client(), &[1]);
    // The program, the folders and the directory, where another user reaches them.
    let place = tempfile::tempdir().unwrap();
    let program = place.path().join("ingestd");
    fs::copy(machine::ingestd().unwrap(), &program).unwrap();
    let socket = here.path().join("ingest.sock");
    for path in [place.path(), &program, here.path(), &socket] {
        fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let mut setpriv = Command::new("setpriv");
    setpriv.args(["--reuid=65534", "--regid=0", "--clear-groups"]);
    setpriv
        .arg(&program)
        .args(["pin", word(here.path()), "--last", "1h"]);
    let ended = Ended::of(&mut setpriv);
    if ended.err.contains("setpriv") {
        return machine::skip("another user", &ended.err).unwrap();
    }
    ended
        .ends(1)
        .says("only user 0, who runs the daemon, and root may pin");
    assert!(list(here.path()).unwrap().is_empty());
    pin(here.path(), "mine").ends(0).says("records=1 ");
}
