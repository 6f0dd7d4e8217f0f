//! `ingestd compact` that is killed at a system call: rows or columns are there, whole; the next run goes on, and leaves no draft.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use loom_engine::Address;
use loom_engine::query::Directory;
use loom_engine::testkit::asked::records;
use loom_tests::daemon::ingestd;
use loom_tests::machine;
use loom_tests::seed::Seed;
use loom_tests::small::{Small, is_columns};
use loom_tests::strace::{self, Point};

use super::{all, apart, sound};

/// Five segments and a bit.
const RECORDS: u64 = 12_000;
const SAMPLE: usize = 12;

/// A compaction under `strace` with these options. True where it was killed.
fn compact(small: &Small, options: &[String]) -> Result<bool> {
    let status = Command::new("strace")
        .args(["-f", "-qq", "-s", "256", "-o"])
        .arg(trace(small))
        .args(options)
        .arg(machine::ingestd()?)
        .arg("compact")
        .arg(&small.dir)
        .stdout(Stdio::null())
        .status()
        .context("starting strace")?;
    Ok(!status.success())
}

fn trace(small: &Small) -> std::path::PathBuf {
    small.dir.with_extension("trace")
}

/// Fails unless every row is there once, in order, and nothing is damaged.
fn whole(small: &Small) -> Result<()> {
    sound(&small.dir)?;
    let rows = apart(|| rows(&small.dir))?;
    let (found, pushed) = (rows.len(), small.rows.len());
    let expected = small.rows.iter().map(|(address, n)| (*address, *n));
    ensure!(rows.into_iter().eq(expected), "{found} rows of {pushed}");
    Ok(())
}

/// Address and number of each row of `r`.
fn rows(dir: &Path) -> Result<Vec<(u64, u64)>> {
    let snapshot = Directory::open(dir)?.snapshot()?;
    let records = records(&snapshot, snapshot.source("r")?.id)?;
    let row = |(address, payload): (Address, Vec<u8>)| {
        let number = payload.first_chunk()?;
        Some((address.0, u64::from_le_bytes(*number)))
    };
    Ok(records.into_iter().filter_map(row).collect())
}

/// The names of the record log's files that are columns, and of those that are neither segments nor alone at their address.
fn files(dir: &Path) -> Result<(usize, Vec<String>)> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir.join("records"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let columns = names
        .iter()
        .filter(|name| is_columns(Path::new(name)))
        .count();
    let first = |name: &String| name.split('.').next().map(str::to_owned);
    let firsts: Vec<_> = names.iter().map(first).collect();
    let alone = |at: usize| {
        firsts
            .iter()
            .filter(|other| firsts.get(at) == Some(other))
            .count()
            == 1
    };
    let strange = names.iter().enumerate();
    let strange = strange.filter(|(at, name)| name.ends_with(".new") || !alone(*at));
    Ok((columns, strange.map(|(_, name)| name.clone()).collect()))
}

/// A kill, what is there then, and the run after it. True where it struck.
fn trial(point: &Point) -> Result<bool> {
    let small = Small::new(RECORDS)?;
    let killed = compact(&small, &point.kill(&small.dir))?;
    whole(&small).context("before the next run")?;
    ingestd(["compact".as_ref(), small.dir.as_os_str()])?;
    whole(&small).context("after the next run")?;
    let (columns, strange) = files(&small.dir)?;
    ensure!(columns >= 4, "{columns} column segments");
    ensure!(strange.is_empty(), "left: {strange:?}");
    Ok(killed)
}

// case Crash: while a segment becomes columns
#[test]
fn a_compaction_that_is_killed_at_any_system_call_loses_nothing_and_goes_on() -> Result<()> {
    if !machine::has("compactions", &["strace"])? {
        return Ok(());
    }
    let mut seed = Seed::announced("compactions");
    let small = Small::new(RECORDS)?;
    ensure!(
        !compact(&small, &["-y".to_owned()])?,
        "the compaction of the recording failed"
    );
    let told = std::fs::read_to_string(trace(&small))?;
    for call in ["rename", "unlink", "fsync(", "fdatasync("] {
        ensure!(
            told.lines().any(|line| line.contains(call)),
            "the run makes no {call}"
        );
    }
    let points: Vec<Point> = strace::points(&told, &small.dir).into_iter().collect();
    let tried: Vec<Point> = match all() {
        true => points.clone(),
        false => (0..SAMPLE)
            .map(|_| Point::draw(&points, &mut seed))
            .collect(),
    };
    let mut struck = 0;
    for point in &tried {
        struck += usize::from(trial(point).with_context(|| format!("killed at {point:?}"))?);
    }
    println!(
        "compactions: {} points, {} tried, {struck} struck",
        points.len(),
        tried.len()
    );
    ensure!(
        2 * struck > tried.len(),
        "only {struck} of {} kills struck",
        tried.len()
    );
    Ok(())
}
