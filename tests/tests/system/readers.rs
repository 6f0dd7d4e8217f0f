//! Readers that are stopped, killed, forked or lose staging: each gets the right answer or an error. Their cost for the writer is tested in
//! `pace`.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use loom_tests::daemon::{Daemon, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::probe;
use loom_tests::producer::{Holding, Life};
use loom_tests::seed::Seed;
use loom_tests::strace::{Point, Tracer};
use rustix::process::{Signal, kill_process};

use super::{Place, joined};

pub const BLOCK_BYTES: u64 = 4 << 20;
pub const CONFIG: &str = "[log]\nblock = \"4MiB\"\nsegment = \"64MiB\"\n";
/// The size of a record in the log.
pub const RECORD_BYTES: u64 = probe::PAYLOAD_BYTES as u64 + 8;
/// More than three blocks, so that each of the two is used again at least once while a reader is stopped.
pub const RECORDS_OF_RECYCLES: u64 = 4 * BLOCK_BYTES / RECORD_BYTES;

/// The least number of copies of any query here.
const COPIES: u64 = 100;

/// A producer at full rate in a thread of its own, until it is stopped.
struct Stream {
    pushed: AtomicU64,
    acknowledged: AtomicU64,
    over: AtomicBool,
}

impl Stream {
    fn new() -> Stream {
        Stream {
            pushed: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            over: AtomicBool::new(false),
        }
    }

    fn run(&self, dir: &Path) -> Result<u64> {
        let mut life = Life::from(0);
        life.live(dir, |pushing| {
            for _ in 0..20 {
                self.pushed
                    .store(pushing.life.pushed + 1000, Ordering::Release);
                pushing.push(1000)?;
            }
            pushing.sync()?;
            self.acknowledged
                .store(pushing.life.acknowledged(), Ordering::Release);
            Ok(!self.over.load(Ordering::Relaxed))
        })?;
        Ok(life.acknowledged())
    }

    /// Waits until `records` more records are acknowledged.
    fn advance(&self, records: u64) -> Result<()> {
        let wanted = self.acknowledged.load(Ordering::Acquire) + records;
        let reached = wait_until(|| Ok(self.acknowledged.load(Ordering::Acquire) >= wanted))?;
        ensure!(reached, "{records} records are not acknowledged");
        Ok(())
    }

    fn end_after<T>(&self, result: Result<T>) -> Result<T> {
        self.over.store(true, Ordering::Relaxed);
        result
    }
}

/// Stops a reader in the middle of a query, between two of its copies, until each block was used again, and lets it go on.
fn stop_and_go(stream: &Stream, session: &mut Session, dir: &str, seed: &mut Seed) -> Result<()> {
    let pid = session.pid();
    let before = stream.acknowledged.load(Ordering::Acquire);
    let copy = Point {
        call: "pread64".to_owned(),
        file: None,
        nth: 1 + seed.draw() % COPIES,
    };
    let tracer = Tracer::attach(pid, &copy.stop())?;
    let count = thread::scope(|scope| {
        let query = scope.spawn(|| probe::count_sound(session, &probe::scan(dir, "")));
        let stopped = wait_until(|| Ok(tracer.has_stopped()? || query.is_finished()));
        // It stays stopped without its tracer, and then goes on faster.
        drop(tracer);
        let went_on = stream.advance(RECORDS_OF_RECYCLES);
        kill_process(pid, Signal::CONT)?;
        ensure!(stopped?, "neither stopped nor done");
        went_on?;
        joined(query)
    })?;
    let after = stream.pushed.load(Ordering::Acquire);
    ensure!(
        (before..=after).contains(&count),
        "{count} records, not {before} to {after}"
    );
    Ok(())
}

// G5, G6
// case Concurrency: a reader stopped over several recycles
#[test]
fn a_reader_stopped_while_blocks_are_used_again_sees_an_exact_snapshot() -> Result<()> {
    if !machine::has("stopped readers", &["strace"])? {
        return Ok(());
    }
    let mut seed = Seed::announced("stopped readers");
    let place = Place::new()?;
    let daemon = Daemon::start(&place.dir, &place.config(CONFIG))?;
    let stream = Stream::new();
    let dir = place.dir.display().to_string();
    let acknowledged = thread::scope(|scope| {
        let producer = scope.spawn(|| stream.run(&place.dir));
        let read = (|| {
            let mut sessions = Session::all()?;
            stream.advance(RECORDS_OF_RECYCLES)?;
            for _ in 0..4 {
                for session in &mut sessions {
                    stop_and_go(&stream, session, &dir, &mut seed)?;
                }
            }
            Ok(())
        })();
        stream.end_after(read)?;
        joined(producer)
    })?;
    println!(
        "stopped readers: {acknowledged} records, {} blocks",
        acknowledged * RECORD_BYTES / BLOCK_BYTES
    );
    daemon.stop()
}

// case Concurrency: staging cut short under a reader
#[test]
fn staging_that_is_cut_short_under_a_reader_is_an_error_and_ends_no_process() -> Result<()> {
    let place = Place::new()?;
    let daemon = Daemon::start(&place.dir, &place.config(CONFIG))?;
    let mut life = Life::from(0);
    life.push(&place.dir, 30_000)?;
    let scan = probe::scan(&place.dir.display().to_string(), "");
    let mut sessions = Session::all()?;
    for session in &mut sessions {
        ensure!(probe::count_sound(session, &scan)? == 30_000);
    }
    let staging = std::fs::read_dir(place.staging.path())?
        .next()
        .context("no staging")??
        .path();
    // The daemon has the file mapped, so it must not run while pages are missing.
    kill_process(daemon.pid(), Signal::STOP)?;
    for bytes in [1 << 20, 8192, 4096, 100, 0] {
        std::fs::File::options()
            .write(true)
            .open(&staging)?
            .set_len(bytes)?;
        for session in &mut sessions {
            let version = session.version().name();
            let said = session.query(&format!("SELECT sum(w0) FROM {scan}"));
            ensure!(
                said.is_err(),
                "DuckDB {version}: no error with {bytes} bytes of staging"
            );
            ensure!(session.value("SELECT 1").context(version)? == "1");
        }
    }
    daemon.kill()?;
    // A reader or a daemon that starts next gets an error with the cause and the remedy, and does nothing by itself.
    for session in &mut sessions {
        let said = session.query(&format!("SELECT count(w0) FROM {scan}"));
        ensure!(said.is_err(), "staging of no bytes is read: {said:?}");
    }
    let refused = Daemon::start(&place.dir, &place.config(CONFIG)).err();
    let said = refused
        .context("a daemon starts on staging of no bytes")?
        .to_string();
    let name = staging.display().to_string();
    ensure!(
        said.contains(&name) && said.contains("move the file away"),
        "{said}"
    );
    std::fs::remove_file(&staging)?;
    let daemon = Daemon::start(&place.dir, &place.config(CONFIG))?;
    let holding = Holding::of(&place.dir)?;
    ensure!(holding.oldest == 0 && holding.end <= 30_000, "{holding:?}");
    ensure!(holding.end == 30_000 || holding.unknown > 0, "{holding:?}");
    daemon.stop()
}

/// Forks after a read, and then reads on both sides.
const FORK: &str = "
import duckdb, os, sys
extension, scan = sys.argv[1:3]
connection = duckdb.connect(config={'allow_unsigned_extensions': 'true', 'threads': 1})
connection.execute(f\"LOAD '{extension}'\")
def count():
    return connection.execute(f'SELECT count(*), count(DISTINCT number), sum(w0) FROM {scan}').fetchall()
before = count()
child = os.fork()
for _ in range(5):
    assert count() == before, before
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(before[0][0])
";

// case Concurrency: fork after open
#[test]
fn a_process_that_forks_with_a_directory_open_reads_on_in_both() -> Result<()> {
    let place = Place::new()?;
    let daemon = Daemon::start(&place.dir, &place.config(CONFIG))?;
    let mut life = Life::from(0);
    life.push(&place.dir, 200_000)?;
    let output = Command::new(machine::python()?)
        .args(["-c", FORK])
        .arg(Version::V2.extension())
        .arg(probe::scan(&place.dir.display().to_string(), ""))
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && output.stdout == b"200000\n",
        "{}: {told}",
        output.status
    );
    daemon.stop()
}
