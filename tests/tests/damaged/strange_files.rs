//! Directories whose files were exchanged, overwritten, or replaced by other things than files: the rows that can be read are those that
//! were written, all others are named in errors, and nothing takes long, whatever the names claim.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use loom_engine::check::check;
use loom_engine::format::SegmentDirectory;
use loom_engine::log::LogReader;
use loom_engine::query::{Ask, Directory, PayloadRoom, Poll, Predicate, Scan, ScanSpec, raw_scan};
use loom_engine::{Error, TimeRange};
use loom_tests::command::{Ended, word};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::small::{CHUNK_BYTES, SEGMENT_BYTES, Small, TAIL, is_segment};
use rustix::fs::{CWD, Mode};

use super::in_little_memory;

/// Two segments of one unit each, and half a unit in the tail.
const RECORDS: u64 = 6_000;

/// The chunks that cannot be read. Every row of all other chunks must be read, and no other row.
fn unreadable(small: &Small) -> Result<BTreeSet<u64>> {
    let snapshot = Directory::open(&small.dir)?.snapshot()?;
    let spec = ScanSpec {
        source: snapshot.source("r")?.id,
        after: loom_engine::Address::ZERO,
        exact: Predicate::All,
        prune: Predicate::All,
        index_filters: Vec::new(),
    };
    let scan = Scan::new(&snapshot, spec)?;
    let mut reader = scan.reader(Ask::all());
    let mut lost = BTreeSet::new();
    let mut seen = BTreeSet::new();
    while let Some(chunk) = scan.next(&Poll::never())? {
        match reader.read(chunk) {
            Ok(rows) => {
                let mut room = PayloadRoom::default();
                for (address, payload) in rows.addresses().iter().zip(rows.payloads(&mut room)) {
                    let n = u64::from_le_bytes(*payload.first_chunk().context("a payload")?);
                    ensure!(small.rows.get(address) == Some(&n), "row {n} at {address}");
                    seen.insert(*address);
                }
            }
            // Damage of a unit is an error for each of its chunks.
            Err(Error::Corrupt { address, .. } | Error::Gap { from: address, .. })
                if address.0 / SEGMENT_BYTES == chunk.0 * CHUNK_BYTES / SEGMENT_BYTES =>
            {
                lost.insert(chunk.0);
            }
            // If something that is not a file is in a file's place, the error names only its path.
            Err(Error::Damaged { .. }) => {
                lost.insert(chunk.0);
            }
            Err(error) => bail!("chunk {}: {error}", chunk.0),
        }
    }
    let expected = small
        .rows
        .keys()
        .filter(|address| !lost.contains(&(*address / CHUNK_BYTES)));
    ensure!(seen.iter().eq(expected), "rows of sound chunks are missing");
    Ok(lost)
}

fn segment(small: &Small, log: &str, number: u64) -> std::path::PathBuf {
    let name = format!("{:020}.0", number * SEGMENT_BYTES);
    small.dir.join(log).join(name)
}

/// Changes a file's bytes while `look` runs, and then restores them.
fn with_bytes<T>(
    path: &Path,
    change: impl FnOnce(&mut Vec<u8>),
    look: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let sound = fs::read(path)?;
    let mut bytes = sound.clone();
    change(&mut bytes);
    fs::write(path, &bytes)?;
    let seen = look();
    fs::write(path, &sound)?;
    seen
}

fn chunks(range: std::ops::Range<u64>) -> BTreeSet<u64> {
    range.collect()
}

// case Corruption: a tail of zeroes
#[test]
fn a_zeroed_end_of_a_file_loses_chunks_of_it_and_no_other() -> Result<()> {
    let small = Small::new(RECORDS)?;
    let last = *small.chunks().last_key_value().context("chunks")?.0;
    ensure!((34..47).contains(&last), "{last} chunks");
    let zero = |bytes: &mut Vec<u8>| bytes.iter_mut().skip(5000).for_each(|byte| *byte = 0);
    for (path, own) in [
        (segment(&small, "records", 1), 16..32),
        (small.dir.join(TAIL), 32..last + 1),
    ] {
        let lost = with_bytes(&path, zero, || {
            ensure!(!check(&small.dir)?.is_sound());
            unreadable(&small)
        })?;
        let is_confined = lost.is_subset(&chunks(own.clone()));
        ensure!(
            is_confined && lost.contains(&(own.end - 1)),
            "{own:?}: {lost:?}"
        );
    }
    // Index logs that are zeroes answer nothing and hide nothing.
    for log in ["chunks", "times"] {
        let path = segment(&small, log, 0);
        let zero = |bytes: &mut Vec<u8>| {
            let half = bytes.len() / 2;
            bytes.iter_mut().skip(half).for_each(|byte| *byte = 0);
        };
        let lost = with_bytes(&path, zero, || {
            ensure!(!check(&small.dir)?.is_sound(), "{log}");
            unreadable(&small)
        })?;
        ensure!(lost.is_empty(), "{log}: {lost:?}");
    }
    Ok(())
}

// case Corruption: swapped pages
#[test]
fn swapped_pages_are_damage_of_their_unit() -> Result<()> {
    let small = Small::new(RECORDS)?;
    let page = CHUNK_BYTES as usize;
    let swap = |bytes: &mut Vec<u8>| {
        let (low, high) = bytes.split_at_mut(3 * page);
        if let (Some(one), Some(other)) = (low.get_mut(page..2 * page), high.get_mut(..page)) {
            one.swap_with_slice(other);
        }
    };
    let lost = with_bytes(&segment(&small, "records", 0), swap, || unreadable(&small))?;
    ensure!(
        !lost.is_empty() && lost.is_subset(&chunks(0..16)),
        "{lost:?}"
    );
    Ok(())
}

// case Corruption: a segment of another directory
#[test]
fn a_segment_of_another_directory_is_not_believed() -> Result<()> {
    let (small, other) = (Small::new(RECORDS)?, Small::new(RECORDS)?);
    let foreign = fs::read(segment(&other, "records", 1))?;
    let lost = with_bytes(
        &segment(&small, "records", 1),
        |bytes| *bytes = foreign,
        || unreadable(&small),
    )?;
    ensure!(lost == chunks(16..32), "{lost:?}");
    // One of the directory's own segments under another name is not accepted either.
    let moved = fs::read(segment(&small, "records", 0))?;
    let lost = with_bytes(
        &segment(&small, "records", 1),
        |bytes| *bytes = moved,
        || unreadable(&small),
    )?;
    ensure!(lost == chunks(16..32), "{lost:?}");
    for log in ["chunks", "times"] {
        let foreign = fs::read(segment(&other, log, 0))?;
        let lost = with_bytes(
            &segment(&small, log, 0),
            |bytes| *bytes = foreign,
            || unreadable(&small),
        )?;
        ensure!(lost.is_empty(), "{log}: {lost:?}");
    }
    Ok(())
}

/// Things that can be in the place of a file.
fn put_strange(kind: &str, path: &Path) -> Result<()> {
    match kind {
        "fifo" => Ok(rustix::fs::mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?),
        "folder" => Ok(fs::create_dir(path)?),
        "link" => Ok(std::os::unix::fs::symlink("/dev/zero", path)?),
        _ => Ok(std::os::unix::fs::symlink(
            path.with_extension("sound"),
            path,
        )?),
    }
}

// case Corruption: no file in a segment's place
#[test]
fn what_is_no_file_is_named_and_keeps_nobody_waiting() -> Result<()> {
    let small = Small::new(RECORDS)?;
    let mut sessions = Session::all()?;
    let shown = small.dir.display().to_string();
    let sum = format!("SELECT sum(n) FROM loom_scan('{shown}', 'r')");
    let expected = vec![vec![Some((0..RECORDS).sum::<u64>().to_string())]];
    for kind in ["fifo", "folder", "link", "dangling link"] {
        for (file, rows_come) in [
            ("records", false),
            (TAIL, false),
            ("chunks", true),
            ("times", true),
            ("catalog", true),
            ("durable", false),
            ("loom.json", true),
        ] {
            let path = match file {
                "records" | "chunks" | "times" => segment(&small, file, 0),
                _ => small.dir.join(file),
            };
            let kept = path.with_extension("kept");
            fs::rename(&path, &kept)?;
            put_strange(kind, &path)?;
            for (version, session) in Version::ALL.into_iter().zip(&mut sessions) {
                // A session that has the segment open continues to read it, and reads the bytes that were written.
                match session.query(&sum) {
                    Ok(rows) => ensure!(rows == expected, "{kind} for {file}: {rows:?}"),
                    Err(error) => ensure!(
                        error.to_string().contains(&shown),
                        "{kind} for {file}: {error}"
                    ),
                }
                ensure!(session.value("SELECT 42")? == "42");
                let said = match Session::open(version)?.query(&sum) {
                    Ok(rows) if rows_come && rows == expected => continue,
                    Ok(rows) => bail!("{kind} for {file}: {rows:?}"),
                    Err(error) => error.to_string(),
                };
                ensure!(said.contains(&shown), "{kind} for {file}: {said}");
            }
            match fs::remove_file(&path) {
                Ok(()) => {}
                Err(_) => fs::remove_dir(&path)?,
            }
            fs::rename(&kept, &path)?;
        }
    }
    for session in &mut sessions {
        ensure!(session.query(&sum)? == expected);
    }
    Ok(())
}

/// A pin that the daemon did not write: its description is not a file, or claims a terabyte.
// G8
#[test]
fn a_pin_whose_words_are_no_file_is_named_and_keeps_nobody_waiting() -> Result<()> {
    let small = Small::new(100)?;
    let shown = small.dir.display().to_string();
    let pin = small.dir.join("pins/20260101T000000.000000000Z-rule");
    fs::create_dir_all(&pin)?;
    let about = pin.join("pin.json");
    for kind in ["fifo", "folder", "link", "dangling link", "terabyte"] {
        match kind {
            "terabyte" => fs::File::create(&about)?.set_len(1 << 40)?,
            _ => put_strange(kind, &about)?,
        }
        for version in Version::ALL {
            let missing = format!("SELECT missing FROM loom_pins('{shown}')");
            let told = Session::open(version)?.value(&missing)?;
            ensure!(told.contains("cannot read pin.json: "), "{kind}: {told}");
        }
        let (is_sound, said) = in_little_memory(&["pins", &shown])?;
        ensure!(
            is_sound && said.contains("cannot read pin.json: "),
            "{kind}: {said}"
        );
        match fs::remove_file(&about) {
            Ok(()) => {}
            Err(_) => fs::remove_dir(&about)?,
        }
    }
    // A start reads the pins and the added rules.
    let rules = small.dir.join("rules.toml");
    for path in [&about, &rules] {
        put_strange("fifo", path)?;
    }
    let mut run = Command::new("timeout");
    run.args(["-s", "KILL", "60"]).arg(machine::ingestd()?);
    Ended::of(run.args(["run", &shown]))
        .ends(1)
        .says("rules.toml");
    Ok(())
}

/// A hundred thousand names are enough to show the cost of a million.
// case Corruption: very many tiny segments
#[test]
fn names_of_segments_that_hold_nothing_cost_little() -> Result<()> {
    let small = Small::new(RECORDS)?;
    for number in 1000..101_000u64 {
        fs::File::create(segment(&small, "records", number))?;
    }
    // One of them claims the last possible address.
    fs::File::create(small.dir.join("records/04611686018427322368.0"))?;
    ensure!(unreadable(&small)?.is_empty());
    ensure!(check(&small.dir)?.is_sound());
    let snapshot = Directory::open(&small.dir)?.snapshot()?;
    let mut rows = 0;
    let source = snapshot.source("r")?.id;
    raw_scan(&snapshot, source, TimeRange::ALL, &Poll::never(), |_| {
        rows += 1;
        ControlFlow::Continue(())
    })?;
    ensure!(rows == RECORDS, "{rows} rows");
    Ok(())
}

/// The first segment of the record log.
fn first_segment(small: &Small) -> Result<PathBuf> {
    let entries = fs::read_dir(small.dir.join("records"))?;
    let segments = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| is_segment(path));
    segments.min().context("no segment")
}

/// A file may have any length. Its claims do not decide how much memory is used.
// G8
#[test]
fn a_segment_that_claims_a_terabyte_is_named_in_little_memory() -> Result<()> {
    const CLAIMED: u64 = 1 << 40;
    let small = Small::in_columns(RECORDS)?;
    let path = first_segment(&small)?;
    let uuid = LogReader::open(&small.dir)?.meta().uuid;
    let first = loom_engine::Address::ZERO;
    let forge = |starts: Option<Vec<u64>>| -> Result<()> {
        let mut end = Vec::new();
        if let Some(starts) = starts {
            SegmentDirectory::new(starts).encode(&uuid, first, &mut end);
        }
        let file = fs::OpenOptions::new().write(true).open(&path)?;
        file.set_len(CLAIMED)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &end, CLAIMED - end.len() as u64)?;
        Ok(())
    };
    // Without a directory, the units are found by their own lengths.
    forge(None)?;
    let (is_sound, said) = in_little_memory(&["check", word(&small.dir)])?;
    ensure!(
        !is_sound && said.contains("writes the directory again"),
        "{said}"
    );
    ensure!(unreadable(&small)?.is_empty());
    let (is_sound, said) = in_little_memory(&["check", word(&small.dir), "--repair"])?;
    ensure!(is_sound, "{said}");
    // The second unit claims the whole file.
    forge(Some(vec![0, 0, 1 << 39]))?;
    for option in [&[][..], &["--repair"]] {
        let words = [&["check", word(&small.dir)][..], option].concat();
        let (is_sound, said) = in_little_memory(&words)?;
        ensure!(!is_sound && said.contains("the length of a unit"), "{said}");
        ensure!(said.contains("/records/"), "{said}");
    }
    let scanned = Directory::open(&small.dir)?.snapshot()?;
    let source = scanned.source("r")?.id;
    let error = raw_scan(&scanned, source, TimeRange::ALL, &Poll::never(), |_| {
        ControlFlow::Continue(())
    });
    let told = error.err().context("the scan reads it")?.to_string();
    ensure!(told.contains(" a unit"), "{told}");
    Ok(())
}
