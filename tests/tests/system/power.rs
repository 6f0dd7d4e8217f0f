//! The host loses its power under load: the journal of the file system keeps what was synced, staging is gone, the machine starts anew.
//!
//! Meanwhile segments are made, the catalog is written, and in one of the tests the oldest segments go. Where what is found is recovered, the
//! power may fail again.
//!
//! The power fails by `EXT4_IOC_SHUTDOWN` on a loop mount. The machine's new start is played by another boot id, which the recovering daemon
//! sees in a mount namespace of its own; where staging is left in place, it is thus that of an earlier boot.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loom_engine::query::Directory;
use loom_tests::daemon::{Daemon, configuration, wait_until};
use loom_tests::disk::Disk;
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::probe;
use loom_tests::producer::Life;
use loom_tests::seed::Seed;

use tempfile::NamedTempFile;

use super::{Place, apart, look, seconds, settle, sound};

const DISK_MIB: u64 = 4096;
/// No further round begins above: they take half of the disk, so nothing has to give way to others.
const RECORDS_MOST: u64 = 20_000_000;
const DURABILITY: Duration = Duration::from_millis(200);
/// More than a flush that is under way takes on a busy machine. What was seen is printed.
const FLUSH_MOST: Duration = Duration::from_secs(5);
const BATCH_RECORDS: u64 = 500;
const ROUNDS_MIN: u64 = 4;
/// Some four segments of records, the next, and what the index logs take.
const RETENTION: &str = "[retention]\nmax_bytes = \"44MiB\"\n";
const KEPT_BYTES_MOST: u64 = 64 << 20;
/// What a record takes in the log.
const RECORD_BYTES: u64 = probe::PAYLOAD_BYTES as u64 + 8;

/// With the boot id in the file `$0`, the daemon `$1 …`.
const ANOTHER_BOOT: &str = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";

/// What is kept for as long as a test lasts.
struct Scene {
    disk: Disk,
    place: Place,
    config: String,
    seed: Seed,
    /// Starts of the machine.
    boots: u64,
    /// How often the power fails again before a start has ended. Each time leaves a gap of addresses, which count as bytes to retention.
    again_percent: u64,
    /// Sources that the daemon said are defined.
    defined: Vec<String>,
}

impl Scene {
    fn dir(&self) -> &Path {
        &self.place.dir
    }

    /// What starts a daemon on a machine that has started anew, and the boot id that it is to see.
    fn anew(&mut self) -> Result<(Command, NamedTempFile)> {
        self.boots += 1;
        // Outside the file system that lost its power.
        let boot_id = NamedTempFile::new()?;
        let text = format!("00000000-0000-4000-8000-{:012}\n", self.boots);
        std::fs::write(boot_id.path(), text)?;
        let file = configuration(self.dir(), &self.config)?;
        let mut command = Command::new("unshare");
        command
            .args(["-m", "sh", "-c", ANOTHER_BOOT])
            .arg(boot_id.path());
        command
            .arg(machine::ingestd()?)
            .arg("run")
            .arg(self.dir())
            .arg("--config")
            .arg(&file);
        Ok((command, boot_id))
    }

    /// The power comes back. Every other time staging is left as it was, and of another boot.
    fn power_on(&mut self) -> Result<()> {
        if self.seed.chance(50) {
            for staging in std::fs::read_dir(self.place.staging.path())? {
                std::fs::remove_file(staging?.path())?;
            }
        }
        self.disk.unmount()?;
        self.disk.mount_again()
    }

    /// The power fails while a daemon recovers, or soon after it has.
    fn fail_again(&mut self) -> Result<()> {
        let (mut command, _boot_id) = self.anew()?;
        let delay = Duration::from_millis(self.seed.draw() % 60);
        let mut daemon = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        thread::sleep(delay);
        self.disk.fail_power()?;
        daemon.kill()?;
        daemon.wait()?;
        self.power_on()
    }
}

/// What a round of losing power came to.
struct Loss {
    oldest: u64,
    there: u64,
    /// How long before the power failed the first record that is lost was acknowledged.
    reach: Option<Duration>,
}

/// Pushes until the power fails after `lifetime`, and starts anew.
fn lose_power(scene: &mut Scene, first: u64, lifetime: Duration) -> Result<Loss> {
    let daemon = Daemon::start(scene.dir(), &scene.config)?;
    let acknowledged = AtomicU64::new(first);
    let mut life = Life::from(first);
    let mut defined = Vec::new();
    let failed = thread::scope(|scope| {
        let dir = scene.place.dir.clone();
        let (acknowledged, life, defined) = (&acknowledged, &mut life, &mut defined);
        let producer = scope.spawn(move || {
            let mut batches = 0u64;
            life.live(&dir, |pushing| {
                for _ in 0..10 {
                    pushing.push(BATCH_RECORDS)?;
                }
                batches += 1;
                if batches % 8 == 4 {
                    let name = format!("after {}", pushing.life.pushed);
                    pushing
                        .client
                        .define(&format!("[[source]]\nname = \"{name}\"\n"))?;
                    defined.push((name, Instant::now()));
                }
                match batches % 16 {
                    0 => pushing.sync_durable()?,
                    _ => pushing.sync()?,
                }
                acknowledged.store(pushing.life.acknowledged(), Ordering::Relaxed);
                Ok(true)
            })
        });
        let under_load = wait_until(|| Ok(acknowledged.load(Ordering::Relaxed) > first))?;
        ensure!(under_load, "nothing is acknowledged in a minute");
        thread::sleep(lifetime);
        let failed = Instant::now();
        scene.disk.fail_power()?;
        daemon.kill()?;
        producer
            .join()
            .map_err(|_| anyhow::anyhow!("the producer panicked"))??;
        Ok::<_, anyhow::Error>(failed)
    })?;
    // What a file system says while its power fails is nobody's promise: syncs that end in that moment may report success.
    let before = defined.into_iter().filter(|(_, at)| *at < failed);
    scene.defined.extend(before.map(|(name, _)| name));
    scene.power_on()?;
    let mut again = 0;
    while scene.seed.chance(scene.again_percent) {
        scene.fail_again()?;
        again += 1;
    }
    let (command, _boot_id) = scene.anew()?;
    Daemon::spawn(command, scene.dir())?.stop()?;
    let holding = look(scene.dir())?;
    ensure!(
        (life.durable..=life.pushed).contains(&holding.end),
        "{} records are there, {} were durable",
        holding.end,
        life.durable
    );
    let mut acks = life.acks.iter().filter(|ack| ack.at < failed);
    let lost = acks.find(|ack| ack.below > holding.end);
    let reach = lost.map(|ack| failed - ack.at);
    println!(
        "power: {} records acknowledged, {} durable, {} to {} there; {reach:?} lost; the power failed {again} times in recovery",
        life.acknowledged(),
        life.durable,
        holding.oldest,
        holding.end
    );
    sound(scene.dir())?;
    // A line of the catalog is synced before anybody is told of it, whatever the durability of records is.
    let known = apart(|| Ok(Directory::open(scene.dir())?.snapshot()?))?;
    let gone = scene
        .defined
        .iter()
        .find(|name| known.catalog().find(name).is_none());
    ensure!(
        gone.is_none(),
        "source {gone:?} was defined and is not there"
    );
    Ok(Loss {
        oldest: holding.oldest,
        there: holding.end,
        reach,
    })
}

/// What the test of one durability comes to.
struct Terms {
    durability: &'static str,
    /// What is lost at most each time.
    allowed: Option<Duration>,
    retention: &'static str,
}

/// Rounds of one durability.
fn rounds(test: &str, terms: &Terms) -> Result<()> {
    let Some(disk) = Disk::mount(test, DISK_MIB)? else {
        return Ok(());
    };
    let place = Place::at(disk.at(), tempfile::tempdir()?)?;
    let Terms {
        durability,
        retention,
        ..
    } = terms;
    let config = place.config(&format!(
        "[log]\nblock = \"1MiB\"\nsegment = \"8MiB\"\ndurability = \"{durability}\"\n{retention}"
    ));
    let mut scene = Scene {
        disk,
        place,
        config,
        seed: Seed::announced(test),
        boots: 0,
        again_percent: if retention.is_empty() { 40 } else { 0 },
        defined: Vec::new(),
    };
    let begun = Instant::now();
    let (mut there, mut oldest, mut round, mut gaps) = (0, 0, 0, 0);
    // On a slow machine retention has nothing to take for longer.
    let within = |oldest| match oldest {
        0 if !terms.retention.is_empty() => seconds(60),
        _ => seconds(6),
    };
    while round < ROUNDS_MIN || (begun.elapsed() < within(oldest) && there < RECORDS_MOST) {
        round += 1;
        let lifetime = Duration::from_millis(scene.seed.draw() % 500);
        let loss = lose_power(&mut scene, there, lifetime)?;
        if let Some(reach) = loss.reach {
            let allowed = terms.allowed.context("what was acknowledged is lost")?;
            ensure!(
                reach <= allowed,
                "what was acknowledged {reach:?} before is lost"
            );
        }
        (there, oldest) = (loss.there, loss.oldest);
        // What is known of each crash: between which records something may be missing, and that nobody knows how much.
        let unknown = look(scene.dir())?.unknown;
        if terms.retention.is_empty() {
            ensure!(oldest == 0, "the records before {oldest} are missing");
            ensure!(unknown >= gaps, "{unknown} gaps, {gaps} before");
        }
        gaps = unknown;
    }
    ensure!(gaps > 0, "no crash left a gap that is told");
    if terms.retention.is_empty() {
        return in_sql(scene.dir(), there);
    }
    let kept = (there - oldest) * RECORD_BYTES;
    ensure!(
        oldest > 0 && kept < KEPT_BYTES_MOST,
        "retention left {kept} bytes of records, from {oldest} on"
    );
    Ok(())
}

/// The same in SQL: the records, and losses whose number is NULL.
fn in_sql(dir: &Path, there: u64) -> Result<()> {
    let mut session = Session::open(Version::V2)?;
    let dir = dir.display().to_string();
    let count = probe::count_sound(&mut session, &probe::scan(&dir, ""))?;
    ensure!(
        count == there,
        "{count} records in SQL, {there} in the engine"
    );
    let told = format!(
        "SELECT bool_and(stage = 'crash' AND records IS NULL AND bytes IS NULL) FROM loom_losses('{dir}')"
    );
    ensure!(session.value(&told)? == "true");
    let complete = session.query(&format!(
        "SELECT count(*) FROM {}",
        probe::scan(&dir, ", complete := true")
    ));
    ensure!(complete.is_err(), "a source with gaps is complete");
    Ok(())
}

// G2, G9
#[test]
fn a_loss_of_power_loses_a_suffix_no_longer_than_the_durability() -> Result<()> {
    let terms = Terms {
        durability: "200ms",
        allowed: Some(DURABILITY + FLUSH_MOST),
        retention: "",
    };
    rounds("power", &terms)
}

// G3
#[test]
fn a_loss_of_power_loses_nothing_that_was_acknowledged_with_batch_durability() -> Result<()> {
    let terms = Terms {
        durability: "batch",
        allowed: None,
        retention: RETENTION,
    };
    rounds("power, batch", &terms)
}

// case Disk: remounted read-only
#[test]
fn a_file_system_that_turns_read_only_is_still_queried_and_loses_nothing_acknowledged() -> Result<()>
{
    let Some(mut disk) = Disk::mount("read-only", DISK_MIB)? else {
        return Ok(());
    };
    let place = Place::at(disk.at(), tempfile::tempdir()?)?;
    let config =
        place.config("[log]\nblock = \"1MiB\"\nsegment = \"8MiB\"\ndurability = \"batch\"\n");
    let daemon = Daemon::start(&place.dir, &config)?;
    let mut life = Life::from(0);
    life.push(&place.dir, 100_000)?;
    disk.make_read_only()?;
    let mut session = Session::open(Version::V2)?;
    let scan = probe::scan(&place.dir.display().to_string(), "");
    ensure!(probe::count_sound(&mut session, &scan)? == 100_000);
    // What comes now stays in staging, and is not acknowledged.
    let mut later = Life::from(100_000);
    later.push(&place.dir, 1000)?;
    ensure!(
        later.acknowledged() == 100_000,
        "{} are acknowledged",
        later.acknowledged()
    );
    ensure!((100_000..=101_000).contains(&probe::count_sound(&mut session, &scan)?));
    let status = daemon.end(rustix::process::Signal::TERM)?;
    ensure!(
        !status.success(),
        "a stop that could write nothing says that it was clean"
    );
    ensure!((100_000..=101_000).contains(&probe::count_sound(&mut session, &scan)?));
    drop(session);
    disk.unmount()?;
    disk.mount_again()?;
    settle(&place.dir, &config, &later, 0)?;
    Ok(())
}
