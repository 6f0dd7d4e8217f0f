//! Clocks that jump: arrival time never decreases, whatever the wall clock, the monotonic clock and the time since boot do across restarts
//! and during a run. Times that records bring along may have any value.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use loom_tests::daemon::{Daemon, configuration, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::producer::{Holding, Life};

use super::{Place, SMALL};

/// The library that `faketime` preloads.
fn preload() -> Result<String> {
    let output = Command::new("faketime")
        .args(["-f", "+0", "env"])
        .output()?;
    let told = String::from_utf8(output.stdout)?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("LD_PRELOAD="));
    // Programs with threads use a library of their own.
    Ok(line
        .context("faketime says no LD_PRELOAD")?
        .replace("libfaketime.so", "libfaketimeMT.so"))
}

/// A daemon with a clock shifted as by `faketime -f`, and with `--accept-clock` if `accepted`.
fn shifted(place: &Place, preload: &str, shift: &str, accepted: bool) -> Result<Command> {
    let mut command = Command::new(machine::ingestd()?);
    run_arguments(&mut command, place)?;
    command.env("LD_PRELOAD", preload).env("FAKETIME", shift);
    // Its handling of waits by the monotonic clock never ends. A time namespace shifts that clock instead.
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    if accepted {
        command.arg("--accept-clock");
    }
    Ok(command)
}

fn run_arguments(command: &mut Command, place: &Place) -> Result<()> {
    let file = configuration(&place.dir, &place.config(SMALL))?;
    command.arg("run").arg(&place.dir);
    command.arg("--config").arg(&file);
    Ok(())
}

/// Adds records, and stops the daemon. All records since the first must be there, in the order of their arrival.
fn live_and_stop(daemon: Daemon, place: &Place, there: &mut u64) -> Result<()> {
    let mut life = Life::from(*there);
    life.push(&place.dir, 3000)?;
    daemon.stop()?;
    *there += 3000;
    let holding = Holding::of(&place.dir)?;
    ensure!((holding.oldest, holding.end) == (0, *there), "{holding:?}");
    Ok(())
}

/// The year of the newest record.
fn newest_year(dir: &Path) -> Result<i32> {
    let sql = format!(
        "SELECT year(max(ts)) FROM loom_scan('{}', 'probe')",
        dir.display()
    );
    Ok(Session::open(Version::V2)?.value(&sql)?.parse()?)
}

// G12
// case Time: the wall clock a day back
// case Time: the wall clock a century ahead
#[test]
fn arrival_never_decreases_across_restarts_with_other_clocks() -> Result<()> {
    if !machine::has("clocks", &["faketime", "unshare"])? {
        return Ok(());
    }
    let preload = preload()?;
    let place = Place::new()?;
    let mut there = 0;
    let mut live = |shift: &str, accepted| {
        let command = shifted(&place, &preload, shift, accepted)?;
        let daemon = Daemon::spawn(command, &place.dir)?;
        live_and_stop(daemon, &place, &mut there).with_context(|| shift.to_owned())
    };
    let refused = |shift: &str| {
        let command = shifted(&place, &preload, shift, false)?;
        let ended = Daemon::spawn_or_end(command, &place.dir)?.err();
        let is_refused = ended.is_some_and(|status| !status.success());
        ensure!(is_refused, "a clock at {shift} is accepted");
        let said = std::fs::read_to_string(place.dir.with_extension("log"))?;
        ensure!(said.contains("--accept-clock"), "{said}");
        Ok(())
    };
    live("+0", false)?;
    let this_year = newest_year(&place.dir)?;
    live("-23h", false)?;
    refused("-25h")?;
    live("-25h", true)?;
    ensure!(newest_year(&place.dir)? - this_year <= 1);
    live("+36525d", false)?;
    let ahead = newest_year(&place.dir)? - this_year;
    ensure!(ahead == 100, "a forward step is followed");
    refused("+0")?;
    live("+0", true)?;
    let ahead = newest_year(&place.dir)? - this_year;
    ensure!(ahead == 100, "time stands still rather than going back");
    live("+36525d", false)
}

// G12
// case Time: the wall clock a day back
// case Time: the wall clock a century ahead
#[test]
fn arrival_never_decreases_when_the_clock_is_stepped_under_a_running_daemon() -> Result<()> {
    if !machine::has("stepped clocks", &["faketime"])? {
        return Ok(());
    }
    let place = Place::new()?;
    let step = place.dir.with_extension("step");
    std::fs::write(&step, "+0\n")?;
    let daemon = Daemon::spawn(stepped(&place, &step)?, &place.dir)?;
    let watching = Client::connect(&place.dir)?;
    let newest = || -> Result<i64> {
        let status: serde_json::Value = serde_json::from_str(&watching.status()?)?;
        let sources = status
            .get("sources")
            .and_then(|sources| sources.as_array())
            .context("no sources")?;
        let times = sources
            .iter()
            .filter_map(|source| source.get("last_push_ns")?.as_i64());
        times.max().context("no record yet")
    };
    const DAY_NS: i64 = 86_400_000_000_000;
    let mut life = Life::from(0);
    life.push(&place.dir, 500)?;
    let began = newest()?;
    let mut life = Life::from(500);
    let mut steps = [
        ("-1d\n", 0),
        ("+2d\n", 2 * DAY_NS),
        ("-1d\n", 2 * DAY_NS),
        ("+36525d\n", 36_525 * DAY_NS),
        ("+0\n", 36_525 * DAY_NS),
    ]
    .into_iter();
    let mut reached = 0;
    let mut failure = None;
    life.live(&place.dir, |pushing| {
        let Some((shift, ahead)) = steps.next() else {
            return Ok(false);
        };
        let arrived = std::fs::write(&step, shift)
            .map_err(anyhow::Error::from)
            .and_then(|()| {
                // The writer reads the wall clock once a second.
                wait_until(|| {
                    pushing.push(100)?;
                    pushing.sync()?;
                    Ok(newest()? - began >= ahead)
                })
            });
        reached += 1;
        match arrived {
            Ok(true) => Ok(true),
            Ok(false) => {
                failure = Some(anyhow::anyhow!("the clock did not follow {shift}"));
                Ok(false)
            }
            Err(error) => {
                failure = Some(error);
                Ok(false)
            }
        }
    })?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    ensure!(reached == 5, "{reached} steps were taken");
    daemon.stop()?;
    let holding = Holding::of(&place.dir)?;
    ensure!(
        (holding.oldest, holding.end) == (0, life.pushed),
        "{holding:?}"
    );
    Ok(())
}

/// A command whose wall clock is always as far from the true one as the file says.
fn stepped(place: &Place, step: &Path) -> Result<Command> {
    let mut command = shifted(place, &preload()?, "+0", false)?;
    command
        .env_remove("FAKETIME")
        .env("FAKETIME_TIMESTAMP_FILE", step)
        .env("FAKETIME_NO_CACHE", "1");
    Ok(command)
}

// case Time: the wall clock a century ahead
#[test]
fn a_forward_step_is_an_alert_and_makes_no_record_too_old() -> Result<()> {
    if !machine::has("stepped clocks", &["faketime"])? {
        return Ok(());
    }
    let place = Place::new()?;
    let step = place.dir.with_extension("step");
    std::fs::write(&step, "+0\n")?;
    let start = || -> Result<Daemon> {
        let command = stepped(&place, &step)?;
        let aged = format!("{SMALL}[retention]\nmax_age = '1h'\n");
        configuration(&place.dir, &place.config(&aged))?;
        Daemon::spawn(command, &place.dir)
    };
    // At least three segments, so that the first could be evicted.
    let mut pushed = 0;
    let mut push = |records: u64| -> Result<()> {
        let mut life = Life::from(pushed);
        life.push(&place.dir, records)?;
        pushed += records;
        Ok(())
    };
    let daemon = start()?;
    push(60_000)?;
    std::fs::write(&step, "+2d\n")?;
    let steps = format!(
        "SELECT concat_ws(' ', count(*), min(to_ts - from_ts) > INTERVAL 1 DAY) FROM loom_scan('{}', 'loom_alerts') WHERE state = 'clock stepped'",
        place.dir.display()
    );
    let recorded = || -> Result<bool> {
        // The source exists once a step is recorded.
        Ok(Session::open(Version::V2)?
            .value(&steps)
            .is_ok_and(|found| found == "1 true"))
    };
    ensure!(wait_until(recorded)?, "the step is not in loom_alerts");
    push(1)?;
    daemon.stop()?;
    let said = std::fs::read_to_string(place.dir.with_extension("log"))?;
    ensure!(said.contains("the wall clock stepped forward by"), "{said}");
    // The next daemon reads the step from the directory.
    let daemon = start()?;
    push(1)?;
    daemon.stop()?;
    ensure!(recorded()?, "the step is there once");
    let holding = Holding::of(&place.dir)?;
    ensure!((holding.oldest, holding.end) == (0, pushed), "{holding:?}");
    Ok(())
}

// case Rules: a pin after a step of the clock
#[test]
fn a_pin_after_a_step_of_the_clock_has_the_records_with_own_times() -> Result<()> {
    if !machine::has("stepped clocks", &["faketime"])? {
        return Ok(());
    }
    const RULE: &str = "[[source]]\nname = 'numbers'\n[[source.field]]\nname = 'n'\ntype = 'u64'\n[[source.index]]\nname = 'n'\nvalue = 'n'\n\
        [[rule]]\nname = 'r'\nsource = 'numbers'\nindex = 'n'\nwhen = 'max > 100'\nover = '100ms'\nevery = '10ms'\npin = '1m'\n";
    let place = Place::new()?;
    let step = place.dir.with_extension("step");
    std::fs::write(&step, "+0\n")?;
    let command = stepped(&place, &step)?;
    configuration(&place.dir, &place.config(&format!("{SMALL}{RULE}{OWN}")))?;
    let daemon = Daemon::spawn(command, &place.dir)?;
    // The clock goes an hour forward and back again, so arrival time is ahead for weeks.
    std::fs::write(&step, "+1h\n")?;
    let shown = place.dir.display();
    let value = |sql: &str| Session::open(Version::V2)?.value(sql);
    let stepped = format!(
        "SELECT count(*) FROM loom_scan('{shown}', 'loom_alerts') WHERE state = 'clock stepped'"
    );
    ensure!(wait_until(|| Ok(
        value(&stepped).is_ok_and(|count| count == "1")
    ))?);
    std::fs::write(&step, "+0\n")?;
    let client = Client::connect(&place.dir)?;
    let own = client.define_one(OWN)?;
    let source = format!("SELECT id FROM loom_sources('{shown}') WHERE name = 'numbers'");
    let numbers = loom_engine::SourceId(value(&source)?.parse()?);
    for n in 0..7_u64 {
        let now = ingestd::wall_clock().0;
        client.push(own, &[now.to_le_bytes(), n.to_le_bytes()].concat())?;
    }
    client.push(numbers, &4711_u64.to_le_bytes())?;
    client.sync()?;
    let pinned =
        format!("SELECT detail FROM loom_scan('{shown}', 'loom_alerts') WHERE state = 'pinned'");
    ensure!(wait_until(|| Ok(value(&pinned).is_ok()))?);
    let path = value(&pinned)?;
    ensure!(value(&format!("SELECT count(*) FROM '{path}/own.parquet'"))? == "7");
    let about: serde_json::Value =
        serde_json::from_slice(&std::fs::read(Path::new(&path).join("pin.json"))?)?;
    let ns = |name: &str| about[name].as_i64().context("a time");
    let ahead_s = (ns("to_ns")? - ns("own_to_ns")?) / 1_000_000_000;
    ensure!((3590..=3600).contains(&ahead_s), "{about}");
    // The hour of the step has not passed, so the records before it are in the span.
    ensure!(ns("to_ns")? - ns("from_ns")? > 3_600_000_000_000, "{about}");
    ensure!(about["missing"].is_null(), "{about}");
    daemon.stop()
}

// G12
// case Time: another time since boot
#[test]
fn arrival_never_decreases_where_the_time_since_boot_is_another() -> Result<()> {
    if !machine::has("time namespaces", &["unshare"])? {
        return Ok(());
    }
    let place = Place::new()?;
    let mut there = 0;
    for seconds in ["0", "100000000", "1000", "0"] {
        let mut command = Command::new("unshare");
        command
            .args(["-T", "--boottime", seconds, "--monotonic", seconds])
            .arg(machine::ingestd()?);
        run_arguments(&mut command, &place)?;
        let daemon = Daemon::spawn(command, &place.dir)?;
        live_and_stop(daemon, &place, &mut there)
            .with_context(|| format!("{seconds} s after boot"))?;
    }
    Ok(())
}

const OWN: &str =
    "[[source]]\nname = \"own\"\ntime = \"own\"\n[[source.field]]\nname = \"n\"\ntype = \"u64\"\n";

// case Time: equal times
// case Time: own times of 0, negative, far ahead
#[test]
fn records_bring_any_times_in_any_order() -> Result<()> {
    let place = Place::new()?;
    let daemon = Daemon::start(&place.dir, &place.config(SMALL))?;
    let client = Client::connect(&place.dir)?;
    let source = client.define_one(OWN)?;
    // Zero, negative, as far ahead and back as the type allows, and two thousand at one instant.
    let (back, ahead) = (-1_000_000_000_000, 9_000_000_000_000_000_000);
    let strange = [0, -1, 1, i64::MAX, i64::MIN, i64::MIN + 1, back, ahead];
    let same = 1_700_000_000_000_000_007;
    let times = [&strange[..], &[same; 2000], &strange].concat();
    for (ts, n) in times.iter().zip(0u64..) {
        client.push(source, &[ts.to_le_bytes(), n.to_le_bytes()].concat())?;
    }
    client.sync()?;
    daemon.stop()?;
    let dir = place.dir.display().to_string();
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let came = format!("SELECT ts_ns FROM loom_scan('{dir}', 'own') ORDER BY n");
        let expected = times.iter().map(i64::to_string);
        let are_equal = session.cells(&came)?.into_iter().eq(expected);
        ensure!(
            are_equal,
            "DuckDB {}: not the times that came",
            version.name()
        );
        let mut count = |window: &str| {
            session.value(&format!(
                "SELECT count(n) FROM loom_scan('{dir}', 'own'{window})"
            ))
        };
        let at = |us: i64| format!("make_timestamptz({us})");
        let instant = format!(
            ", t_from := {}, t_to := {}",
            at(same / 1000),
            at(same / 1000 + 1)
        );
        ensure!(count(&instant)? == "2000", "not all of one instant");
        let early = format!(", t_to := {}", at(0));
        ensure!(count(&early)? == "8", "not all before the epoch");
        let late = format!(", t_from := {}", at(same / 1000 + 1));
        ensure!(count(&late)? == "4", "not all of the far future");
    }
    Ok(())
}
