//! System calls that fail, with any error: nothing acknowledged is lost, and the next start finds a sound directory.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use loom_tests::daemon::{Daemon, configuration, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::probe;
use loom_tests::producer::{Holding, Life};
use loom_tests::seed::Seed;
use loom_tests::strace;
use rustix::process::Signal;

use super::{Place, SMALL, all, joined, settle};

const SAMPLE: usize = 14;
const BATCHES: u64 = 30;

/// The calls that may fail, and their errors.
const FAULTS: [(&str, &[&str]); 5] = [
    ("pwrite64", &["EIO", "ENOSPC", "EDQUOT", "EFBIG"]),
    ("fdatasync", &["EIO", "ENOSPC", "EDQUOT"]),
    ("fsync", &["EIO"]),
    ("fallocate", &["EIO", "ENOSPC", "EDQUOT", "EFBIG"]),
    ("openat", &["EMFILE", "ENFILE", "EIO", "EDQUOT"]),
];
/// The number of the call that fails, and how many after it.
const WHEN: [&str; 8] = ["2", "4", "7", "12", "30", "5..9", "10..14", "20+40"];

struct Fault {
    call: &'static str,
    error: &'static str,
    when: &'static str,
}

/// A run in which the fault occurs, and the directory that it leaves. Returns true if the daemon went on to the end.
fn trial(fault: &Fault) -> Result<bool> {
    let place = Place::new()?;
    let config = place.config(&format!("{SMALL}durability = \"batch\"\n"));
    let file = configuration(&place.dir, &config)?;
    let options = strace::inject(
        fault.call,
        &format!("error={}:when={}", fault.error, fault.when),
    );
    let command = strace::run(
        &place.dir,
        &file,
        &options,
        &place.dir.with_extension("trace"),
    )?;
    let mut life = Life::from(0);
    let mut went_on = false;
    match Daemon::spawn_or_end(command, &place.dir)? {
        Ok(daemon) => {
            life.live(&place.dir, |pushing| {
                pushing.push(2000)?;
                pushing.push_misfit()?;
                pushing.sync()?;
                went_on = pushing.life.acks.len() as u64 == BATCHES;
                Ok(!went_on)
            })?;
            daemon.end(Signal::KILL)?;
        }
        Err(_) => {
            let said = std::fs::read_to_string(place.dir.with_extension("log"))?;
            ensure!(
                said.contains("ingestd: "),
                "the message has no reason: {said}"
            );
        }
    }
    settle(&place.dir, &config, &life, 0)?;
    Ok(went_on)
}

// G10
// case Disk: EIO on write
// case Disk: EIO on fsync
// case Disk: EMFILE
// case Disk: EDQUOT
// case Disk: EFBIG
#[test]
fn a_call_that_fails_costs_nothing_acknowledged() -> Result<()> {
    if !machine::has("faults", &["strace"])? {
        return Ok(());
    }
    let mut seed = Seed::announced("faults");
    let every: Vec<Fault> = FAULTS
        .into_iter()
        .flat_map(|(call, errors)| {
            errors
                .iter()
                .flat_map(move |error| WHEN.map(|when| Fault { call, error, when }))
        })
        .collect();
    let mut chosen: Vec<&Fault> = every.iter().collect();
    if !all() {
        chosen = (0..SAMPLE).map(|_| seed.pick(&chosen)).collect();
    }
    for Fault { call, error, when } in chosen {
        let went_on = trial(&Fault { call, error, when })
            .with_context(|| format!("{call} fails with {error}, {when}"))?;
        println!(
            "faults: {call} {error} {when}: {}",
            if went_on { "went on" } else { "ended" }
        );
    }
    Ok(())
}

// case Disk: EMFILE
#[test]
fn a_daemon_that_has_no_descriptors_left_goes_on_when_it_has() -> Result<()> {
    let place = Place::new()?;
    let config = place.config(SMALL);
    let file = configuration(&place.dir, &config)?;
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 40; exec \"$0\" run \"$1\" --config \"$2\""]);
    command.arg(machine::ingestd()?).arg(&place.dir).arg(&file);
    let daemon = Daemon::spawn(command, &place.dir)?;
    let watching = Client::connect(&place.dir)?;
    let in_trouble = || -> Result<bool> {
        let status: serde_json::Value = serde_json::from_str(&watching.status()?)?;
        Ok(status
            .get("trouble")
            .is_some_and(|trouble| !trouble.is_null()))
    };
    let mut life = Life::from(0);
    thread::scope(|scope| {
        let (connected, is_connected) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let life = &mut life;
        let dir = &place.dir;
        let producer = scope.spawn(move || {
            life.live(dir, |pushing| {
                // The receiver is gone if the test has failed.
                let _ = connected.send(());
                let _ = may_go.recv();
                pushing.push(100_000)?;
                pushing.sync_durable()?;
                Ok(false)
            })
        });
        is_connected.recv()?;
        // Connections that get no descriptor wait in the socket's queue.
        let mut holding = Vec::new();
        while holding.len() < 60 {
            holding.push(UnixStream::connect(daemon.socket())?);
        }
        go.send(())?;
        let arrived = wait_until(|| Ok(producer.is_finished() || in_trouble()?))?;
        ensure!(arrived, "neither done nor in trouble");
        println!(
            "without descriptors: {}",
            if producer.is_finished() {
                "done"
            } else {
                "in trouble"
            }
        );
        drop(holding);
        joined(producer)
    })?;
    ensure!(
        life.acknowledged() == 100_000,
        "{} are acknowledged",
        life.acknowledged()
    );
    ensure!(
        wait_until(|| Ok(!in_trouble()?))?,
        "the trouble does not end"
    );
    // There is room for other connections again.
    drop(Client::connect(&place.dir)?);
    daemon.end(Signal::KILL)?;
    settle(&place.dir, &config, &life, 0)?;
    Ok(())
}

/// A directory of several segments.
fn stopped(place: &Place) -> Result<()> {
    let daemon = Daemon::start(&place.dir, &place.config(SMALL))?;
    let mut life = Life::from(0);
    life.live(&place.dir, |pushing| {
        pushing.push(60_000)?;
        Ok(false)
    })?;
    daemon.stop()
}

/// Files like those of a log with the most pieces that can be made.
fn scatter(folder: &Path, count: u64) -> Result<()> {
    for number in 0..count {
        std::fs::write(
            folder.join(format!("{:020}.0", (1 << 40) + number * 4096)),
            "",
        )?;
    }
    Ok(())
}

// case Corruption: very many tiny segments
#[test]
fn a_directory_of_very_many_tiny_segments_is_read_in_bounded_memory() -> Result<()> {
    let place = Place::new()?;
    let count = if all() { 1_000_000 } else { 30_000 };
    stopped(&place)?;
    for log in ["records", "chunks", "times"] {
        scatter(&place.dir.join(log), count)?;
    }
    let dir = place.dir.display().to_string();
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        session.query("SET memory_limit = '512MiB'")?;
        let answer = session.query(&format!(
            "SELECT count(number) FROM {}",
            probe::scan(&dir, "")
        ));
        println!("tiny segments: {answer:?}");
        ensure!(session.value("SELECT 1")? == "1", "the session has ended");
        if let Ok(rows) = answer {
            ensure!(rows == [[Some("60000".to_owned())]], "{rows:?}");
        }
        let peak = peak_mib(session.pid().as_raw_nonzero().get())?;
        ensure!(peak < 1024, "{peak} MiB were taken");
    }
    let holding = Holding::of(&place.dir)?;
    ensure!((holding.oldest, holding.end) == (0, 60_000), "{holding:?}");
    Ok(())
}

/// The most memory that a process has used.
fn peak_mib(process: i32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .context("no VmHWM")?;
    let kib = line.split_whitespace().nth(1).context("no number")?;
    Ok(kib.parse::<u64>()? / 1024)
}
