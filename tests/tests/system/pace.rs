//! Readers cost the writer nothing, wherever in a query they stop or die.
//!
//! The first test shows it for every step: a reader only asks and copies, so a writer has nothing to wait for, and a writer that goes on
//! while a reader stands still never waits. Its producer lets each quarter of a block become durable before it pushes the next, so that the
//! next block is free however busy the machine is; any wait for a block has another cause. The second test shows it for the pace: it
//! compares rounds beside readers with rounds beside as much work that does not use the directory.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use ingestd::protocol::Shape;
use loom_engine::SourceId;
use loom_tests::daemon::{Daemon, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::probe;
use loom_tests::producer::Life;
use loom_tests::seed::Seed;
use loom_tests::strace::{Point, Tracer, calls_at};
use rustix::process::{Signal, kill_process};

use super::readers::{BLOCK_BYTES, CONFIG, RECORD_BYTES, RECORDS_OF_RECYCLES};
use super::{Place, all, joined, seconds};

const QUARTER_RECORDS: u64 = BLOCK_BYTES / 4 / RECORD_BYTES;
/// Stops of a reader in each version of DuckDB.
const STOPS: usize = 8;
const KILLS: usize = 4;
/// One stop in this many lasts beyond a stop and a start of the daemon.
const RESTART_EVERY: usize = 4;

/// Calls that neither change nor lock anything.
const ASKS: [&str; 13] = [
    "access",
    "close",
    "fadvise64",
    "fstat",
    "getdents64",
    "lseek",
    "newfstatat",
    "pread64",
    "preadv2",
    "read",
    "readahead",
    "readlink",
    "statx",
];

/// A daemon, and a producer that waits for it.
struct Scene {
    place: Place,
    daemon: Option<Daemon>,
    pushed: u64,
}

impl Scene {
    fn new() -> Result<Scene> {
        let place = Place::new()?;
        let mut scene = Scene {
            place,
            daemon: None,
            pushed: 0,
        };
        scene.restart()?;
        scene.advance(RECORDS_OF_RECYCLES)?;
        Ok(scene)
    }

    fn restart(&mut self) -> Result<()> {
        if let Some(daemon) = self.daemon.take() {
            daemon.stop()?;
        }
        let daemon = Daemon::start(&self.place.dir, &self.place.config(CONFIG))?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Pushes at least `records` records, without ever making the writer wait.
    fn advance(&mut self, records: u64) -> Result<()> {
        let end = self.pushed + records;
        let mut life = Life::from(self.pushed);
        life.live(&self.place.dir, |pushing| {
            pushing.push(QUARTER_RECORDS)?;
            pushing.sync_durable()?;
            Ok(pushing.life.durable < end)
        })?;
        ensure!(life.durable >= end, "the daemon has gone");
        self.pushed = life.durable;
        let status = Client::connect(&self.place.dir)?.status()?;
        let status: serde_json::Value = serde_json::from_str(&status)?;
        let stalls = status.get("log_stalls").context("no stalls")?;
        ensure!(*stalls == 0, "the writer has waited: {status}");
        Ok(())
    }

    fn dir(&self) -> String {
        self.place.dir.display().to_string()
    }

    fn scan(&self) -> String {
        probe::scan(&self.dir(), "")
    }

    /// The calls of a query on the directory and on staging. Fails if one of them does more than ask.
    fn steps(&self, version: Version) -> Result<Vec<Point>> {
        let mut session = reader(version)?;
        let tracer = Tracer::attach(session.pid(), &[])?;
        ensure!(probe::count_sound(&mut session, &self.scan())? == self.pushed);
        let trace = tracer.trace()?;
        let staging = self.place.staging.path().display().to_string();
        let calls = calls_at(&trace, &[&self.dir(), &staging]);
        for (point, text) in &calls {
            let asks = match point.call.as_str() {
                "open" | "openat" => text.contains("O_RDONLY") && !text.contains("O_CREAT"),
                "fcntl" => text.contains("F_OFD_GETLK"),
                call => ASKS.contains(&call),
            };
            ensure!(asks, "a reader does more than ask: {text}");
        }
        ensure!(
            calls.iter().any(|(_, text)| text.contains(&staging)),
            "nothing was staged"
        );
        Ok(calls.into_iter().map(|(point, _)| point).collect())
    }

    /// Stops a reader at `point` of a query until each block was used again, and lets it go on. Returns true if it reached the point.
    fn stop(&mut self, version: Version, point: &Point, restarts: bool) -> Result<bool> {
        let mut session = reader(version)?;
        let (pid, scan, before) = (session.pid(), self.scan(), self.pushed);
        let tracer = Tracer::attach(pid, &point.stop())?;
        let (struck, count) = thread::scope(|scope| {
            let query = scope.spawn(|| probe::count_sound(&mut session, &scan));
            ensure!(wait_until(|| Ok(
                tracer.has_stopped()? || query.is_finished()
            ))?);
            let struck = !query.is_finished();
            // It stays stopped without its tracer, and then goes on faster.
            drop(tracer);
            let writing = scope.spawn(|| {
                if restarts {
                    self.restart()?;
                }
                self.advance(RECORDS_OF_RECYCLES)
            });
            let went_on = wait_until(|| Ok(writing.is_finished()))?;
            kill_process(pid, Signal::CONT)?;
            ensure!(went_on, "the writer waits for a reader that stands still");
            joined(writing)?;
            let count = joined(query)?;
            Ok((struck, count))
        })?;
        let range = before..=self.pushed;
        ensure!(range.contains(&count), "{count} records, not {range:?}");
        Ok(struck)
    }

    /// Kills a reader at `point` of a query. Returns true if it reached the point.
    fn kill(&mut self, version: Version, point: &Point) -> Result<bool> {
        let mut session = reader(version)?;
        let tracer = Tracer::attach(session.pid(), &point.kill(&self.place.dir))?;
        let struck = probe::count_sound(&mut session, &self.scan()).is_err();
        drop(tracer);
        self.advance(RECORDS_OF_RECYCLES)?;
        Ok(struck)
    }
}

/// A session whose queries run on one thread.
fn reader(version: Version) -> Result<Session> {
    let mut session = Session::open(version)?;
    session.query("SET threads = 1")?;
    Ok(session)
}

// G6
#[test]
fn readers_that_stand_still_or_die_at_any_step_keep_the_writer_waiting_for_nothing() -> Result<()> {
    if !machine::has("steps of readers", &["strace"])? {
        return Ok(());
    }
    let mut seed = Seed::announced("steps of readers");
    let mut scene = Scene::new()?;
    let (mut struck, mut tried) = (0, 0);
    for version in Version::ALL {
        let steps = scene.steps(version)?;
        let mut chosen = |sample: usize| match all() {
            true => steps.clone(),
            false => (0..sample)
                .map(|_| Point::draw(&steps, &mut seed))
                .collect(),
        };
        let (stops, kills) = (chosen(STOPS), chosen(KILLS));
        println!(
            "steps of readers: DuckDB {}: {} of a query",
            version.name(),
            steps.len()
        );
        for (number, point) in stops.iter().enumerate() {
            let stopped = scene.stop(version, point, number % RESTART_EVERY == 0);
            struck += usize::from(stopped.with_context(|| format!("stopped at {point:?}"))?);
        }
        for point in &kills {
            let killed = scene.kill(version, point);
            struck += usize::from(killed.with_context(|| format!("killed at {point:?}"))?);
        }
        tried += stops.len() + kills.len();
    }
    println!(
        "steps of readers: {struck} of {tried} were reached, {} records",
        scene.pushed
    );
    ensure!(
        2 * struck > tried,
        "only {struck} of {tried} steps were reached"
    );
    scene.daemon.take().context("no daemon")?.stop()
}

/// The rate of records, and the longest push of a batch among 999 in 1000.
#[derive(Copy, Clone, Debug)]
struct Pace {
    per_second: u64,
    p99_9_ns: u64,
}

const BATCH_RECORDS: u64 = 100;
/// Rounds of each kind, one after the other.
const ROUNDS: u32 = 5;
/// The factor by which the best round beside readers may be worse than the middle one beside other work, because a round is short and other
/// programs use the machine. A writer that waited for its readers would be worse in every round.
const SLOWER_MOST: u64 = 2;
const LONGER_MOST: u64 = 4;

fn measure(client: &Client, source: SourceId, span: Duration) -> Result<Pace> {
    let mut payloads = Vec::new();
    (0..BATCH_RECORDS).for_each(|number| probe::append(number, &mut payloads));
    let shape = Shape::Fixed {
        record_bytes: probe::PAYLOAD_BYTES as u16,
    };
    let mut took = Vec::with_capacity(1 << 20);
    let began = Instant::now();
    let mut last = began;
    while last - began < span {
        client.push_batch(source, shape, &payloads)?;
        let now = Instant::now();
        took.push((now - last).as_nanos() as u64);
        last = now;
    }
    client.sync()?;
    let per_second =
        (took.len() as f64 * BATCH_RECORDS as f64 / began.elapsed().as_secs_f64()) as u64;
    let rank = (took.len() * 999 / 1000).min(took.len().saturating_sub(1));
    let (_, p99_9, _) = took.select_nth_unstable(rank);
    Ok(Pace {
        per_second,
        p99_9_ns: *p99_9,
    })
}

/// The writer's pace beside a reader of `scan` that is killed in the middle of its query, and replaced by the next one.
fn beside_dying(
    measured: impl FnOnce() -> Result<Pace>,
    scan: &str,
    seed: &mut Seed,
) -> Result<Pace> {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        let dying = scope.spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let mut session = Session::open(Version::V1)?;
                let (pid, delay) = (session.pid(), Duration::from_micros(seed.draw() % 40_000));
                thread::scope(|scope| {
                    scope.spawn(|| drop(session.query(scan)));
                    thread::sleep(delay);
                    kill_process(pid, Signal::KILL)
                })?;
            }
            Ok::<_, anyhow::Error>(())
        });
        let pace = measured();
        over.store(true, Ordering::Relaxed);
        joined(dying)?;
        pace
    })
}

/// The writer's pace beside two readers that are stopped between two copies of a query.
fn beside_stopped(
    measured: impl FnOnce() -> Result<Pace>,
    scan: &str,
    seed: &mut Seed,
) -> Result<Pace> {
    let mut sessions = Version::ALL
        .into_iter()
        .map(reader)
        .collect::<Result<Vec<_>>>()?;
    let mut pids = Vec::new();
    let mut tracers = Vec::new();
    for session in &sessions {
        let point = Point {
            call: "pread64".to_owned(),
            file: None,
            nth: 40 + seed.draw() % 40,
        };
        tracers.push(Tracer::attach(session.pid(), &point.stop())?);
        pids.push(session.pid());
    }
    thread::scope(|scope| {
        for session in &mut sessions {
            // Its records may be evicted by the time it goes on, so its result does not matter.
            scope.spawn(|| drop(session.query(scan)));
        }
        let mut all_stopped = || {
            tracers
                .iter()
                .map(Tracer::has_stopped)
                .try_fold(true, |all, one| Ok(all && one?))
        };
        let stand_still = wait_until(&mut all_stopped)?;
        tracers.clear();
        let pace = measured();
        for pid in &pids {
            kill_process(*pid, Signal::CONT)?;
        }
        ensure!(stand_still, "the readers do not stand still");
        pace
    })
}

/// The middle rate and the middle latency of the rounds.
fn middle(rounds: &[Pace]) -> Pace {
    let of = |value: fn(&Pace) -> u64| {
        let mut values: Vec<u64> = rounds.iter().map(value).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Pace {
        per_second: of(|pace| pace.per_second),
        p99_9_ns: of(|pace| pace.p99_9_ns),
    }
}

/// The best rate and the best latency of the rounds.
fn best(rounds: &[Pace]) -> Pace {
    let per_second = rounds.iter().map(|pace| pace.per_second).max();
    let p99_9_ns = rounds.iter().map(|pace| pace.p99_9_ns).min();
    Pace {
        per_second: per_second.unwrap_or_default(),
        p99_9_ns: p99_9_ns.unwrap_or_default(),
    }
}

/// A directory without a writer, with as many records as the other has after its first rounds.
fn elsewhere() -> Result<Place> {
    let place = Place::new()?;
    let daemon = Daemon::start(&place.dir, &place.config(CONFIG))?;
    Life::from(0).push(&place.dir, 2_000_000)?;
    daemon.stop()?;
    Ok(place)
}

fn scan_of(dir: &Path) -> String {
    let scan = probe::scan(&dir.display().to_string(), "");
    format!("SELECT sum(w0), max(w6) FROM {scan}")
}

// G6
#[test]
fn readers_that_stand_still_or_die_do_not_slow_the_writer() -> Result<()> {
    if !machine::has("pace", &["strace"])? {
        return Ok(());
    }
    let mut seed = Seed::announced("pace");
    let place = Place::new()?;
    let retention = "[retention]\nmax_bytes = \"1GiB\"\n";
    let daemon = Daemon::start(&place.dir, &place.config(&format!("{CONFIG}{retention}")))?;
    let client = Client::connect(&place.dir)?;
    let source = client.define_one(&probe::definition())?;
    let other = elsewhere()?;
    let (scan, scan_elsewhere) = (scan_of(&place.dir), scan_of(&other.dir));
    let span = seconds(10) / (4 * ROUNDS);
    let measured = || measure(&client, source, span);
    measured()?;
    let [mut alone, mut stopped, mut beside_work, mut dying] = [const { Vec::new() }; 4];
    for _ in 0..ROUNDS {
        alone.push(measured()?);
        stopped.push(beside_stopped(measured, &scan, &mut seed)?);
        beside_work.push(beside_dying(measured, &scan_elsewhere, &mut seed)?);
        dying.push(beside_dying(measured, &scan, &mut seed)?);
    }
    for (what, readers, others) in [
        ("stand still", &stopped, &alone),
        ("die", &dying, &beside_work),
    ] {
        println!(
            "pace: beside readers that {what} {:?}, at best {:?}; without {:?}",
            middle(readers),
            best(readers),
            middle(others)
        );
        let (best, middle) = (best(readers), middle(others));
        ensure!(
            best.per_second * SLOWER_MOST >= middle.per_second,
            "readers that {what}: {readers:?}; without: {others:?}"
        );
        ensure!(
            best.p99_9_ns <= middle.p99_9_ns * LONGER_MOST,
            "readers that {what}: {readers:?}; without: {others:?}"
        );
    }
    daemon.stop()
}
