//! The host loses its power under load: the file system's journal keeps everything that was synced, staging is lost, and the machine starts
//! again.
//!
//! The simulated disk (`engine/src/tests/crashes.rs`) loses its power at every operation and again in recovery. This test confirms on ext4
//! that the kernel behaves like the simulation. The power fails by `EXT4_IOC_SHUTDOWN` on a loop mount. Another boot id plays the new
//! start; the recovering daemon sees it in its own mount namespace. If staging is left in place, it thus belongs to an earlier boot.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use loom_tests::daemon::{Daemon, configuration, wait_until};
use loom_tests::disk::Disk;
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::probe;
use loom_tests::producer::Life;
use loom_tests::seed::Seed;
use tempfile::NamedTempFile;

use super::{Place, joined, look, seconds, settle, sound};

const DISK_MIB: u64 = 4096;
/// No further round begins above this. It is half of the disk, so nothing needs to be evicted.
const RECORDS_MOST: u64 = 20_000_000;
const DURABILITY: Duration = Duration::from_millis(200);
/// More than a flush that is under way takes on a busy machine. The observed times are printed.
const FLUSH_MOST: Duration = Duration::from_secs(5);
const ROUNDS_MIN: u64 = 4;

/// Runs the daemon `$1 …` with the boot id in the file `$0`.
const ANOTHER_BOOT: &str = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";

/// Starts a daemon as after a new start of the machine, and stops it once it has recovered.
fn recover(dir: &Path, config: &str, boot: u64) -> Result<()> {
    // The file is outside the file system that lost its power.
    let boot_id = NamedTempFile::new()?;
    std::fs::write(&boot_id, format!("00000000-0000-4000-8000-{boot:012}\n"))?;
    let file = configuration(dir, config)?;
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", ANOTHER_BOOT])
        .arg(boot_id.path());
    command.arg(machine::ingestd()?).arg("run").arg(dir);
    command.arg("--config").arg(&file);
    Daemon::spawn(command, dir)?.stop()
}

/// Pushes until the power fails after `lifetime`. Returns the client's list, and the time at which the power failed.
fn lose_power(
    disk: &Disk,
    dir: &Path,
    config: &str,
    first: u64,
    lifetime: Duration,
) -> Result<(Life, Instant)> {
    let daemon = Daemon::start(dir, config)?;
    let acknowledged = AtomicU64::new(first);
    let mut life = Life::from(first);
    let failed = thread::scope(|scope| {
        let (acknowledged, life) = (&acknowledged, &mut life);
        let producer = scope.spawn(move || {
            let mut batches = 0u64;
            life.live(dir, |pushing| {
                for _ in 0..10 {
                    pushing.push(500)?;
                }
                batches += 1;
                match batches % 16 {
                    0 => pushing.sync_durable()?,
                    _ => pushing.sync()?,
                }
                acknowledged.store(pushing.life.acknowledged(), Ordering::Relaxed);
                Ok(true)
            })
        });
        let under_load = wait_until(|| Ok(acknowledged.load(Ordering::Relaxed) > first))?;
        ensure!(under_load, "nothing is acknowledged");
        thread::sleep(lifetime);
        // While its power fails, a file system promises nothing: syncs that end at that moment may report success.
        let failed = Instant::now();
        disk.fail_power()?;
        daemon.kill()?;
        joined(producer)?;
        Ok::<_, anyhow::Error>(failed)
    })?;
    Ok((life, failed))
}

/// Rounds with one durability. Only records that were acknowledged within `allowed` before the power failed may be lost.
fn rounds(test: &str, durability: &str, allowed: Duration) -> Result<()> {
    let Some(mut disk) = Disk::mount(test, DISK_MIB)? else {
        return Ok(());
    };
    let place = Place::at(disk.at(), tempfile::tempdir()?)?;
    let config = place.config(&format!(
        "[log]\nblock = \"1MiB\"\nsegment = \"8MiB\"\ndurability = \"{durability}\"\n"
    ));
    let mut seed = Seed::announced(test);
    let begun = Instant::now();
    let (mut there, mut gaps, mut round) = (0, 0, 0);
    while round < ROUNDS_MIN || (begun.elapsed() < seconds(6) && there < RECORDS_MOST) {
        round += 1;
        let lifetime = Duration::from_millis(seed.draw() % 500);
        let (life, failed) = lose_power(&disk, &place.dir, &config, there, lifetime)?;
        if seed.chance(50) {
            for staging in std::fs::read_dir(place.staging.path())? {
                std::fs::remove_file(staging?.path())?;
            }
        }
        disk.unmount()?;
        disk.mount_again()?;
        recover(&place.dir, &config, round)?;
        let holding = look(&place.dir)?;
        let lost = life
            .acks
            .iter()
            .find(|ack| ack.below > holding.end && ack.at < failed);
        let reach = lost.map_or(Duration::ZERO, |ack| failed - ack.at);
        println!(
            "power: {} records acknowledged, {} durable, {} there; {reach:?} lost",
            life.acknowledged(),
            life.durable,
            holding.end
        );
        ensure!(
            (life.durable..=life.pushed).contains(&holding.end) && holding.oldest == 0,
            "{holding:?} is there, {} records were durable",
            life.durable
        );
        ensure!(
            reach <= allowed,
            "what was acknowledged {reach:?} before is lost"
        );
        ensure!(holding.unknown >= gaps, "{holding:?}, {gaps} gaps before");
        sound(&place.dir)?;
        (there, gaps) = (holding.end, holding.unknown);
    }
    ensure!(gaps > 0, "no crash left a gap that is reported");
    in_sql(&place.dir, there)
}

/// Checks the same in SQL: the records, and losses whose number is NULL.
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
    rounds("power", "200ms", DURABILITY + FLUSH_MOST)
}

// G3
#[test]
fn a_loss_of_power_loses_nothing_that_was_acknowledged_with_batch_durability() -> Result<()> {
    rounds("power, batch", "batch", Duration::ZERO)
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
    // These records stay in staging and are not acknowledged.
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
