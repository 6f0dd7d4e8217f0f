//! Queries from other processes while the daemon writes at full rate: every snapshot has every record below its position, whole and once,
//! although the staged blocks are recycled under the readers. This also holds when the daemon is killed.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use ingestd::client::Client;
use ingestd::protocol::Shape;
use loom_tests::daemon::{Daemon, ingestd, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::probe;
use loom_tests::producer::Life;
use loom_tests::seed::Seed;

const BLOCK_BYTES: u64 = 4 << 20;
const RECYCLES_MIN: u64 = 20;
const SNAPSHOTS_MIN: u64 = 10;
const RECORDS_MIN: u64 = 4_000_000;
const BATCH_RECORDS: u64 = 1000;
const KILLS: u32 = 5;

/// The progress that the producer and the readers share.
#[derive(Default)]
struct Progress {
    /// Records that a sync has acknowledged. Each later snapshot must hold them.
    acknowledged: AtomicU64,
    pushed: AtomicU64,
    /// Snapshots that each reader has checked.
    checked: [AtomicU64; Version::ALL.len()],
    /// Set if one side has failed, so that the others end.
    failed: AtomicBool,
}

impl Progress {
    /// Snapshots that the slowest reader has checked.
    fn checked_least(&self) -> u64 {
        let checked = self
            .checked
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        checked.min().unwrap_or(0)
    }

    fn enough(&self) -> bool {
        let pushed = self.pushed.load(Ordering::Relaxed);
        self.checked_least() >= SNAPSHOTS_MIN && pushed >= RECORDS_MIN
    }

    /// Waits for readers that are far behind: each snapshot takes longer than the one before, and a busy machine would never end.
    fn wait_for_readers(&self, pushed: u64) -> Result<()> {
        let is_near = || pushed <= RECORDS_MIN * (1 + self.checked_least());
        wait_until(|| Ok(self.ended() || is_near())).map(drop)
    }

    fn ended(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.enough()
    }
}

// G5
#[test]
fn no_snapshot_of_a_full_rate_stream_lacks_repeats_or_tears_a_record() -> Result<()> {
    let seed = Seed::announced("live").value();
    let place = tempfile::tempdir()?;
    let dir = place.path().join("live.loom");
    let daemon = Daemon::start(
        &dir,
        &format!("[log]\nblock = \"{}MiB\"\n", BLOCK_BYTES >> 20),
    )?;
    Client::connect(&dir)?.define(&probe::definition())?;

    let progress = Progress::default();
    let outcomes = thread::scope(|scope| {
        let mut sides = vec![scope.spawn(|| noting(&progress, || produce(&dir, &progress)))];
        for (reader, version) in Version::ALL.into_iter().enumerate() {
            let (dir, progress) = (&dir, &progress);
            sides
                .push(scope.spawn(move || {
                    noting(progress, || read(dir, version, reader, seed, progress))
                }));
        }
        sides
            .into_iter()
            .map(|side| side.join().map_err(|_| anyhow!("a side panicked")))
            .collect::<Vec<_>>()
    });
    for outcome in outcomes {
        outcome??;
    }

    let pushed = progress.pushed.load(Ordering::Relaxed);
    let from = probe::scan(&dir.display().to_string(), "");
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        ensure!(
            probe::count_sound(&mut session, &from)? == pushed,
            "not all of {pushed} records are there"
        );
        ensure!(
            session.value(&format!("SELECT count(DISTINCT number) FROM {from}"))?
                == pushed.to_string()
        );
    }
    daemon.stop()
}

// G1, G5
#[test]
fn open_sessions_of_both_versions_read_on_when_the_daemon_is_killed() -> Result<()> {
    let mut seed = Seed::announced("killed");
    let place = tempfile::tempdir()?;
    let dir = place.path().join("killed.loom");
    let config = "[log]\nblock = \"2MiB\"\n";
    let mut sessions = Version::ALL
        .into_iter()
        .map(Session::open)
        .collect::<Result<Vec<_>>>()?;
    let from = probe::scan(&dir.display().to_string(), "");
    let mut agreed = || -> Result<u64> {
        let counts = sessions
            .iter_mut()
            .map(|session| probe::count_sound(session, &from))
            .collect::<Result<Vec<_>>>()?;
        match counts.as_slice() {
            [first, others @ ..] if others.iter().all(|count| count == first) => Ok(*first),
            _ => bail!("the sessions see {counts:?} records"),
        }
    };
    let mut there = 0;
    for _ in 0..KILLS {
        let daemon = Daemon::start(&dir, config)?;
        if there > 0 {
            ensure!(agreed()? == there, "the start changed the records");
        }
        let enough = there + seed.between(1, 200_000).unsigned_abs();
        let acknowledged = AtomicU64::new(there);
        let mut life = Life::from(there);
        thread::scope(|scope| {
            let producer = scope.spawn(|| {
                life.live(&dir, |pushing| {
                    for _ in 0..7 {
                        pushing.push(500)?;
                    }
                    pushing.sync()?;
                    acknowledged.store(pushing.life.acknowledged(), Ordering::Relaxed);
                    Ok(true)
                })
            });
            let is_enough = || acknowledged.load(Ordering::Relaxed) >= enough;
            ensure!(
                wait_until(|| Ok(is_enough() || producer.is_finished()))? && is_enough(),
                "the daemon does not acknowledge {enough} records"
            );
            daemon.kill()?;
            producer
                .join()
                .map_err(|_| anyhow!("the producer panicked"))?
        })?;
        there = agreed()?;
        life.hold(there)?;
    }
    Daemon::start(&dir, config)?.stop()?;
    ensure!(agreed()? == there, "the last start changed the records");
    ingestd(["check".as_ref(), dir.as_os_str()]).map(drop)
}

/// Runs one side, and sets `failed` if it fails.
fn noting(progress: &Progress, side: impl FnOnce() -> Result<()>) -> Result<()> {
    let outcome = side();
    if outcome.is_err() {
        progress.failed.store(true, Ordering::Relaxed);
    }
    outcome
}

/// Pushes as fast as the socket accepts, with a sync now and then, a few million records for each snapshot.
fn produce(dir: &Path, progress: &Progress) -> Result<()> {
    let client = Client::connect(dir)?;
    let source = client.define_one(&probe::definition())?;
    let shape = Shape::Fixed {
        record_bytes: u16::try_from(probe::PAYLOAD_BYTES)?,
    };
    let mut payloads = Vec::new();
    let mut number = 0;
    while !progress.ended() {
        progress.wait_for_readers(number)?;
        for _ in 0..50 {
            payloads.clear();
            (number..number + BATCH_RECORDS)
                .for_each(|number| probe::append(number, &mut payloads));
            number += BATCH_RECORDS;
            progress.pushed.store(number, Ordering::Release);
            client.push_batch(source, shape, &payloads)?;
        }
        let counts = client.sync()?.counts;
        ensure!(
            counts.stored == number,
            "the daemon stored {} of {number} records",
            counts.stored
        );
        progress.acknowledged.store(number, Ordering::Release);
    }
    let recycled = number * (probe::PAYLOAD_BYTES as u64 + 8) / BLOCK_BYTES;
    println!("live: {number} records, {recycled} blocks of {BLOCK_BYTES} bytes");
    ensure!(
        recycled >= RECYCLES_MIN,
        "only {recycled} blocks were recycled"
    );
    Ok(())
}

/// Takes snapshots until there are enough, and compares each with the producer's counts before and after.
fn read(dir: &Path, version: Version, reader: usize, seed: u64, progress: &Progress) -> Result<()> {
    let mut session = Session::open(version)?;
    let mut seed = Seed::of(seed ^ reader as u64);
    let dir = dir.display().to_string();
    let checked = progress.checked.get(reader).context("no such reader")?;
    while !progress.ended() {
        let before = progress.acknowledged.load(Ordering::Acquire);
        let count = probe::count_sound(&mut session, &probe::scan(&dir, ""))?;
        let after = progress.pushed.load(Ordering::Acquire);
        ensure!(
            (before..=after).contains(&count),
            "a snapshot holds {count} records, not {before} to {after}"
        );
        check_position(&mut session, &dir, &mut seed)
            .with_context(|| format!("DuckDB {}", version.name()))?;
        checked.fetch_add(1, Ordering::Relaxed);
    }
    println!(
        "live: DuckDB {} checked {} snapshots",
        version.name(),
        checked.load(Ordering::Relaxed)
    );
    Ok(())
}

/// All questions agree at one position, whichever way they are answered.
fn check_position(session: &mut Session, dir: &str, seed: &mut Seed) -> Result<()> {
    session.query(&format!(
        "SET VARIABLE position = (SELECT position FROM loom_snapshot('{dir}'))"
    ))?;
    let at = ", at := getvariable('position')";
    let count = probe::count_sound(session, &probe::scan(dir, at))?;
    let aggregate =
        format!("SELECT count, max, sum FROM loom_aggregate('{dir}', 'probe', 'number'{at})");
    let row = session
        .query(&aggregate)?
        .into_iter()
        .next()
        .context("no aggregate")?;
    let sum = u128::from(count) * u128::from(count.saturating_sub(1)) / 2;
    let expected = [u128::from(count), u128::from(count.saturating_sub(1)), sum]
        .map(|number| Some(number.to_string()));
    ensure!(
        count == 0 || row == expected,
        "{row:?} in the summaries, {expected:?} in the records"
    );

    let first = seed.between(0, i64::try_from(count)?).unsigned_abs();
    let last = first + seed.draw() % 5000;
    let held = (last + 1).min(count).saturating_sub(first);
    let range = format!("{at}, index := 'number', v_min := {first}, v_max := {last}");
    let found = session.value(&format!(
        "SELECT count(number) FROM {}",
        probe::scan(dir, &range)
    ))?;
    ensure!(
        found == held.to_string(),
        "{found} of {held} records from {first} to {last} of {count}"
    );
    Ok(())
}
