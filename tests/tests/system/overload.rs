//! A disk that is slower than the producers: a source that waits loses nothing, a source that drops reports how much, and the ledger in the
//! log agrees, after a kill too.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use ingestd::protocol::{Counts, Shape};
use loom_engine::SourceId;
use loom_engine::query::{Directory, Poll};
use loom_engine::testkit::asked::records;
use loom_tests::daemon::{Daemon, configuration};
use loom_tests::machine;
use loom_tests::producer::{Holding, Life, losses_recorded};
use loom_tests::strace;
use rustix::process::Signal;

use super::{Place, SMALL, joined, seconds, settle};

const DROPS: &str = "[[source]]\nname = \"drops\"\non_overload = \"drop_new\"\n[[source.field]]\nname = \"n\"\ntype = \"u64\"\n";

/// Pushes for `span` to a source that drops, as fast as the socket takes it. Returns the counts of the last sync.
fn push_dropping(dir: &Path, span: Duration) -> Result<Counts> {
    let client = Client::connect(dir)?;
    let catalog: serde_json::Value = serde_json::from_str(&client.catalog()?)?;
    let sources = catalog.as_array().context("no sources")?;
    let found = sources
        .iter()
        .find(|source| source.get("name").is_some_and(|name| name == "drops"));
    let id = found
        .and_then(|source| source.get("id")?.as_u64())
        .context("no source 'drops'")?;
    let batch: Vec<u8> = (0..1000u64).flat_map(u64::to_le_bytes).collect();
    let until = Instant::now() + span;
    while Instant::now() < until {
        for _ in 0..20 {
            client.push_batch(
                SourceId(id as u16),
                Shape::Fixed { record_bytes: 8 },
                &batch,
            )?;
        }
        client.push(SourceId(id as u16), b"no number")?;
        client.sync()?;
    }
    Ok(client.sync()?.counts)
}

/// The records of the dropping source in the directory, and those in its ledger.
fn told(dir: &Path) -> Result<[u64; 3]> {
    let snapshot = Directory::open(dir)?.snapshot()?;
    let stored = records(&snapshot, snapshot.source("drops")?.id)?.len() as u64;
    let (mut refused, mut dropped) = (0, 0);
    for loss in snapshot.losses(&Poll::never())? {
        let records = loss.records.context("a loss of unknown size")?;
        match loss.reason.as_str() {
            "overload" => dropped += records,
            _ => refused += records,
        }
    }
    Ok([stored, refused, dropped])
}

/// A run on a disk that is slowed down by `options`, until a kill.
fn overload(test: &str, options: &[String], span: Duration) -> Result<()> {
    if !machine::has(test, &["strace"])? {
        return Ok(());
    }
    let place = Place::new()?;
    let config = place.config(&format!("{SMALL}durability = \"batch\"\n{DROPS}"));
    let file = configuration(&place.dir, &config)?;
    let command = strace::run(
        &place.dir,
        &file,
        options,
        &place.dir.with_extension("trace"),
    )?;
    let daemon = Daemon::spawn(command, &place.dir)?;
    let mut life = Life::from(0);
    let counts = thread::scope(|scope| {
        let dropping = scope.spawn(|| push_dropping(&place.dir, span));
        let until = Instant::now() + span;
        life.live(&place.dir, |pushing| {
            for _ in 0..4 {
                pushing.push(1000)?;
            }
            pushing.sync()?;
            Ok(Instant::now() < until)
        })?;
        joined(dropping)
    })?;
    println!(
        "{test}: {} records waited for room; of those that did not: {counts:?}",
        life.acknowledged()
    );
    ensure!(
        counts.received == counts.stored + counts.refused + counts.dropped,
        "{counts:?}"
    );
    ensure!(counts.dropped > 0, "the disk kept up: {counts:?}");
    daemon.end(Signal::KILL)?;
    let daemon = Daemon::start(&place.dir, &config)?;
    losses_recorded(&place.dir)?;
    daemon.stop()?;
    ensure!(
        told(&place.dir)? == [counts.stored, counts.refused, counts.dropped],
        "{:?} in the log, {counts:?} were told",
        told(&place.dir)?
    );
    let holding = Holding::of(&place.dir)?;
    ensure!(
        (holding.oldest, holding.end) == (0, life.acknowledged()),
        "{holding:?}"
    );
    Ok(())
}

// G9
// case Overload: a flusher slower than ingest for a minute
#[test]
fn a_flusher_slower_than_ingest_obeys_the_policies_and_the_identity_is_exact() -> Result<()> {
    overload(
        "slow flusher",
        &strace::inject("pwrite64", "delay_enter=20000"),
        seconds(6),
    )
}

// case Disk: an fsync of five seconds
#[test]
fn a_sync_that_takes_five_seconds_holds_back_or_drops_and_nothing_else() -> Result<()> {
    // One call of each thread is slow, somewhere on the way.
    overload(
        "slow fsync",
        &strace::inject("fdatasync", "delay_enter=5000000:when=6"),
        Duration::from_secs(7),
    )
}

/// A line of what the system counts of a process's input and output.
fn io_of(daemon: &Daemon, line: &str) -> Result<u64> {
    let io = std::fs::read_to_string(format!("/proc/{}/io", daemon.id()))?;
    let found = io.lines().find_map(|text| text.strip_prefix(line));
    Ok(found.context("no such line")?.trim().parse()?)
}

/// A sync writes records to the tail in pieces, not as the unit or the chunk that they lie in.
// G3
#[test]
fn a_sync_of_one_record_with_batch_durability_writes_some_pages() -> Result<()> {
    const SYNCS: u64 = 2000;
    /// A page of the tail, a slot, and a page of each index log, where a chunk ends.
    const BYTES_MOST: u64 = 16 << 10;
    let place = Place::new()?;
    let config = place.config("[log]\ndurability = \"batch\"\n");
    let daemon = Daemon::start(&place.dir, &config)?;
    let mut life = Life::from(0);
    life.push(&place.dir, 1)?;
    let before = [io_of(&daemon, "wchar:")?, io_of(&daemon, "write_bytes:")?];
    life = Life::from(1);
    life.live(&place.dir, |pushing| {
        pushing.push(1)?;
        pushing.sync()?;
        Ok(pushing.life.pushed <= SYNCS)
    })?;
    ensure!(life.acknowledged() == SYNCS + 1);
    let after = [io_of(&daemon, "wchar:")?, io_of(&daemon, "write_bytes:")?];
    let [written, to_disk] = [0, 1].map(|nth: usize| (after[nth] - before[nth]) / SYNCS);
    println!("a sync of one record: {written} bytes written, {to_disk} to the disk");
    ensure!(written <= BYTES_MOST && to_disk <= BYTES_MOST);
    daemon.kill()?;
    settle(&place.dir, &config, &life, 0).map(drop)
}
