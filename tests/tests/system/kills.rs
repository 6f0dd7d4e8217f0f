//! SIGKILL at any system call of a run: the acknowledged records are there, whole and once, and the ledger is exact.
//!
//! The run recovers a directory after an earlier kill, changes the blocks of all logs, creates segments, writes the catalog, evicts the
//! oldest segment and stops. The recovery after the kill is killed too, and the one after that, before one may end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ingestd::client::ClientError;
use loom_tests::daemon::{Daemon, configuration};
use loom_tests::machine;
use loom_tests::producer::{Holding, Life, Pushing};
use loom_tests::seed::Seed;
use loom_tests::strace::{self, Point};
use rustix::process::Signal;

use super::{Place, SMALL, all, settle};

/// Records of a batch, which ends with a misfit and a sync.
const BATCH_RECORDS: u64 = 300;
const BATCHES: u64 = 40;
/// Five segments. The time entries of their 1,300 chunks leave little room in the first block of their log.
const RECORDS_BEFORE: u64 = 72_800;
/// Some five segments of records, the next one, and the index logs.
const RETENTION: &str = "[retention]\nmax_bytes = \"7424KiB\"\n";
const BLOCK_BYTES: u64 = 64 << 10;
/// An area of the tail: two units.
const AREA_BYTES: u64 = 2 * (64 << 10);
const SAMPLE: usize = 50;
/// The calls by which records become durable, and what they concern: the bytes of a unit and their write-back, after which its mark moves, then its sync,
/// pieces of the tail, and the slot that names both.
const STEPS: [(&str, &str); 7] = [
    ("pwrite64", "records/"),
    ("sync_file_range", "records/"),
    ("fdatasync", "records/"),
    ("pwrite64", "tail"),
    ("fdatasync", "tail"),
    ("pwrite64", "durable"),
    ("fdatasync", "durable"),
];
/// Kills at each step.
const OF_STEP: usize = 3;
/// Recoveries that are killed, one after the other.
const RECOVERIES: usize = 3;

struct Scene {
    place: Place,
    file: PathBuf,
    trace: PathBuf,
}

impl Scene {
    /// A directory whose daemon was killed.
    fn new() -> Result<(Scene, Life)> {
        let place = Place::new()?;
        let config = place.config(&format!("{SMALL}{RETENTION}"));
        let file = configuration(&place.dir, &config)?;
        let trace = place.dir.with_extension("trace");
        let daemon = Daemon::start(&place.dir, &config)?;
        let mut life = Life::from(0);
        life.push(&place.dir, RECORDS_BEFORE)?;
        daemon.kill()?;
        ensure!(life.acknowledged() == RECORDS_BEFORE);
        Ok((Scene { place, file, trace }, Life::from(RECORDS_BEFORE)))
    }

    fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// The run, with these options of `strace`. Returns true if the daemon was killed on its way.
    fn run(&self, life: &mut Life, options: &[String]) -> Result<bool> {
        let command = strace::run(self.dir(), &self.file, options, &self.trace)?;
        let Ok(daemon) = Daemon::spawn_or_end(command, self.dir())? else {
            return Ok(true);
        };
        let mut batches = 0;
        life.live(self.dir(), |pushing| {
            batches += 1;
            batch(pushing, batches)?;
            Ok(batches < BATCHES)
        })?;
        let status = daemon.end(Signal::TERM)?;
        Ok(!status.success())
    }

    /// A start that is killed or else stopped at once. Returns true if it was killed.
    fn recover(&self, options: &[String]) -> Result<bool> {
        let command = strace::run(self.dir(), &self.file, options, &self.trace)?;
        match Daemon::spawn_or_end(command, self.dir())? {
            Ok(daemon) => Ok(!daemon.end(Signal::TERM)?.success()),
            Err(_) => Ok(true),
        }
    }
}

fn batch(pushing: &mut Pushing<'_>, number: u64) -> Result<(), ClientError> {
    pushing.push(BATCH_RECORDS)?;
    match number {
        // Writes to the catalog.
        8 => drop(pushing.client.define("[[source]]\nname = \"later\"\n")?),
        16 => drop(
            pushing
                .client
                .add_index("probe", "name = \"first word\"\nvalue = \"w0\"\n")?,
        ),
        24 => pushing.client.close_source("later")?,
        _ => {}
    }
    pushing.push_misfit()?;
    match number % 8 {
        0 => pushing.sync_durable(),
        _ => pushing.sync(),
    }
}

/// The system calls of a run and of a recovery at which each can be killed. Fails if the run does not cover everything.
fn points() -> Result<[Vec<Point>; 2]> {
    let names_of_files = ["-y".to_owned()];
    let (scene, mut life) = Scene::new()?;
    ensure!(
        !scene.run(&mut life, &names_of_files)?,
        "the daemon of the recording failed"
    );
    let trace = std::fs::read_to_string(&scene.trace)?;
    covers(&trace)?;
    let run = strace::points(&trace, scene.dir());
    let (scene, _) = Scene::new()?;
    ensure!(
        !scene.recover(&names_of_files)?,
        "the daemon of the recording failed"
    );
    let trace = std::fs::read_to_string(&scene.trace)?;
    let recovery = strace::points(&trace, scene.dir());
    Ok([run, recovery].map(|points| points.into_iter().collect()))
}

/// Fails unless the trace is of a run that covers everything.
fn covers(trace: &str) -> Result<()> {
    let (recovery, run) = trace
        .split_once(" listen(")
        .context("the daemon never listens")?;
    let covered = |what: &str, trace: &str, parts: &[&str]| {
        let found = trace
            .lines()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        found
            .then_some(())
            .with_context(|| format!("the run does not cover {what}"))
    };
    covered(
        "the recovery of staged bytes",
        recovery,
        &["pwrite64(", "/tail>"],
    )?;
    covered("the durable slot", recovery, &["pwrite64(", "/durable>"])?;
    covered(
        "the creation of a segment",
        run,
        &["open", "/records/", "O_CREAT"],
    )?;
    covered("units", run, &["pwrite64(", "/records/"])?;
    covered("the tail", run, &["pwrite64(", "/tail>"])?;
    let areas: BTreeSet<_> = run
        .lines()
        .filter_map(|line| part_written(line, "/tail", AREA_BYTES))
        .collect();
    ensure!(areas.len() == 2, "the run begins one area of the tail");
    covered("its name", run, &["fsync(", "/records>"])?;
    covered("retention", run, &["unlink", "/records/"])?;
    covered("the catalog", run, &["write", "source_closed"])?;
    covered("durability", run, &["fdatasync(", "/records/"])?;
    covered("the clean stop", run, &["unlink", "/staging\""])?;
    for log in ["/records/", "/chunks/", "/times/"] {
        let blocks: BTreeSet<_> = run
            .lines()
            .filter_map(|line| part_written(line, log, BLOCK_BYTES))
            .collect();
        ensure!(
            blocks.len() > 1,
            "the run does not change the blocks of {log}"
        );
    }
    Ok(())
}

/// The file and the part of it, of so many bytes, that are written in a line of a trace.
fn part_written<'a>(line: &'a str, name: &str, part_bytes: u64) -> Option<(&'a str, u64)> {
    let ended = line.rsplit_once(") =").map(|(call, _)| call);
    let call = ended.or(line.strip_suffix(" <unfinished ...>"))?;
    let (_, call) = call.split_once("pwrite64(")?;
    let (file, written) = call.split_once('>')?;
    let (_, offset) = written.rsplit_once(' ')?;
    let offset: u64 = offset.parse().ok()?;
    file.contains(name).then_some((file, offset / part_bytes))
}

/// Points at each step by which records become durable.
fn at_each_step(run: &[Point], seed: &mut Seed) -> Result<Vec<Point>> {
    let mut drawn = Vec::new();
    for (call, file) in STEPS {
        let is_of_step = |point: &&Point| {
            let concerns = point.file.as_deref().map(Path::to_string_lossy);
            point.call == call && concerns.is_some_and(|concerned| concerned.starts_with(file))
        };
        let alike: Vec<Point> = run.iter().filter(is_of_step).cloned().collect();
        ensure!(!alike.is_empty(), "the run makes no {call} of {file}");
        drawn.extend((0..OF_STEP).map(|_| Point::draw(&alike, seed)));
    }
    Ok(drawn)
}

/// A kill in the run, others in the recoveries that follow, and then a check of the records. Returns true if the first kill happened.
fn trial(first: &Point, later: &[Point]) -> Result<bool> {
    let (scene, mut life) = Scene::new()?;
    let killed = scene.run(&mut life, &first.kill(scene.dir()))?;
    let before = Holding::of(scene.dir())?;
    life.hold(before.end).context("before any restart")?;
    for point in later {
        scene.recover(&point.kill(scene.dir()))?;
        let between = Holding::of(scene.dir())?;
        ensure!(
            between.end == before.end,
            "{} records, {} after a recovery was killed at {point:?}",
            before.end,
            between.end
        );
    }
    // Runs without retention, which would evict more during the check.
    let after = settle(scene.dir(), &scene.place.config(SMALL), &life, 0)?;
    ensure!(
        after.end == before.end,
        "{} records before the restarts, {} after them",
        before.end,
        after.end
    );
    // Only a crash of the host leaves a gap of unknown size, never a kill of the process.
    ensure!(after.unknown == 0, "{} gaps are reported", after.unknown);
    ensure!(
        after.oldest <= RECORDS_BEFORE,
        "retention took {} records",
        after.oldest
    );
    Ok(killed)
}

// G1, G9
// case Crash: at a block switch
// case Crash: in recovery, again and again
// case Crash: while a segment is created
#[test]
fn a_kill_at_any_system_call_loses_nothing_acknowledged() -> Result<()> {
    if !machine::has("kills", &["strace"])? {
        return Ok(());
    }
    let mut seed = Seed::announced("kills");
    let [run, recovery] = points()?;
    let firsts: Vec<Point> = match all() {
        true => run.clone(),
        false => {
            let mut firsts = at_each_step(&run, &mut seed)?;
            firsts.extend((0..SAMPLE).map(|_| Point::draw(&run, &mut seed)));
            firsts
        }
    };
    println!(
        "kills: {} points in a run, {} in a recovery; {} tried",
        run.len(),
        recovery.len(),
        firsts.len()
    );
    let mut struck = 0;
    for first in &firsts {
        let later: Vec<Point> = (0..RECOVERIES)
            .map(|_| Point::draw(&recovery, &mut seed))
            .collect();
        let killed = trial(first, &later)
            .with_context(|| format!("killed at {first:?}, then at {later:?}"))?;
        struck += usize::from(killed);
    }
    println!("kills: {struck} of {} struck", firsts.len());
    // A run makes some calls less often than the recorded run.
    ensure!(
        2 * struck > firsts.len(),
        "only {struck} of {} kills struck",
        firsts.len()
    );
    Ok(())
}
