//! Compares the state after a crash with the client's list, promise by promise.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use super::client::{CHUNK, Client, Sent, options, payload, value};
use crate::check::check_logs;
use crate::error::{Error, Result};
use crate::ingest::WriterOptions;
use crate::log::tests::simulated::{Disk, loom};
use crate::log::{Durability, LogReader};
use crate::query::{Directory, Loss, Poll, Snapshot, aggregate, indexed_scan, raw_scan};
use crate::testkit::asked::whole;
use crate::types::{Address, Key, SourceId, Sum, TimeRange, ValueKind, ValueRange};

/// A promise that does not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    pub promise: &'static str,
    pub what: String,
}

impl Broken {
    /// The same promise, with the moment at which it was found broken.
    pub fn when(self, when: &str) -> Broken {
        Broken {
            what: format!("{when}: {}", self.what),
            ..self
        }
    }
}

fn broken(promise: &'static str, what: impl Into<String>) -> Broken {
    Broken {
        promise,
        what: what.into(),
    }
}

/// The records that the client is owed.
#[derive(Copy, Clone, Debug)]
pub struct Owed {
    pub promise: &'static str,
    /// This many of its records must be there, counted from the first.
    pub records: u64,
    /// Nothing at or above this address was evicted.
    pub begin_most: u64,
    /// Records that readers had seen. Those that are missing must be reported as lost.
    pub seen: u64,
    /// The pending losses count at least this many records.
    pub lost: u64,
}

/// The part of the list that is there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Found {
    pub first: u64,
    pub end: u64,
}

/// Reads everything in every way, as another process would.
pub fn read(disk: &Disk, sent: &[Sent], owed: &Owed) -> Result<Found, Broken> {
    let nothing = Found { first: 0, end: 0 };
    let reader = match LogReader::open_with(disk.storage(), &loom()) {
        Err(Error::NotLoom { .. }) if owed.records == 0 => return Ok(nothing),
        reader => reader.map_err(|error| broken(owed.promise, error.to_string()))?,
    };
    let unread = |error: Error| broken("readable", error.to_string());
    let begin = reader.tails().map_err(unread)?.begin.records;
    if begin.0 > owed.begin_most {
        return Err(broken(
            "retention",
            format!("the log begins at {begin}, above {}", owed.begin_most),
        ));
    }
    let report = check_logs(&reader, &mut |_| {}).map_err(unread)?;
    if let Some(damage) = report.damage.first() {
        let promise = if damage.what.contains("arrived before") {
            "G12"
        } else {
            "G11"
        };
        return Err(broken(promise, damage.to_string()));
    }
    let directory = Directory::of(reader);
    let snapshot = directory.snapshot().map_err(unread)?;
    let found = scan(&snapshot).map_err(unread)?;
    let first = sent.partition_point(|sent| sent.address < begin) as u64;
    let mut end = first;
    for (address, record) in &found {
        let listed = sent.get(end as usize);
        let expected = listed.map(|sent| (sent.address, (sent.source, payload(end))));
        if expected.as_ref() != Some(&(*address, record.clone())) {
            return Err(broken(
                "no hole",
                format!("at {address} stands another record than number {end}, sent to {listed:?}"),
            ));
        }
        end += 1;
    }
    if end < owed.records {
        return Err(broken(
            owed.promise,
            format!(
                "records {first}..{end} are there, {} are owed",
                owed.records
            ),
        ));
    }
    agree(&snapshot, &found)?;
    let losses = snapshot.losses(&Poll::never()).map_err(unread)?;
    let lost: u64 = losses.iter().filter_map(|loss| loss.records).sum();
    if lost < owed.lost {
        return Err(broken(
            "pending losses are kept",
            format!("{lost} lost records are reported, {} are owed", owed.lost),
        ));
    }
    Ok(Found { first, end })
}

type Records = BTreeMap<Address, (SourceId, Vec<u8>)>;

/// Every record, by the chains of its source.
fn scan(snapshot: &Snapshot) -> Result<Records> {
    let mut found = Records::new();
    for source in snapshot.catalog().sources() {
        raw_scan(
            snapshot,
            source.id,
            TimeRange::ALL,
            &Poll::never(),
            |record| {
                found.insert(record.address, (source.id, record.payload.to_vec()));
                ControlFlow::Continue(())
            },
        )?;
    }
    Ok(found)
}

/// Checks G11: answers with the index, without it, and counted by hand agree.
fn agree(snapshot: &Snapshot, records: &Records) -> Result<(), Broken> {
    let unequal = |what: String| broken("G11", what);
    let failed = |error: Error| unequal(error.to_string());
    let Ok(numbers) = snapshot.source("number") else {
        return Ok(());
    };
    let of_source = |source: SourceId| records.values().filter(move |(of, _)| *of == source);
    for source in snapshot.catalog().sources() {
        let counted = snapshot.source_totals(source.id).map_err(failed)?.records;
        let there = of_source(source.id).count() as u64;
        if counted != there {
            return Err(unequal(format!(
                "{counted} records of {} are counted, {there} are there",
                source.name
            )));
        }
    }
    let ordinals = of_source(numbers.id)
        .map(|(_, payload)| u64::from_le_bytes(*payload.first_chunk().unwrap()));
    let all: Vec<u64> = ordinals.map(value).collect();
    for index in &numbers.indexes {
        let of_index = |value: &u64| index.name == "value" || *value >= 512;
        let keys: Vec<Key> = all
            .iter()
            .filter(|value| of_index(value))
            .map(|value| Key::from_u64(*value))
            .collect();
        let spec = whole(numbers.id, index.id, &[]);
        let rows = aggregate(snapshot, &spec, &Poll::never()).map_err(failed)?;
        let [row] = rows.as_slice() else {
            return Err(unequal(format!("{} rows of one bucket", rows.len())));
        };
        let expected = (
            keys.len() as u64,
            Sum::of_keys(ValueKind::Unsigned, &keys),
            keys.iter().min().copied(),
            keys.iter().max().copied(),
        );
        if (row.count, row.sum, row.min, row.max) != expected {
            return Err(unequal(format!(
                "index {}: {row:?} instead of {expected:?}",
                index.name
            )));
        }
        let range = ValueRange {
            min: Key::from_u64(900),
            max: Key::from_u64(950),
        };
        let mut scanned = 0;
        indexed_scan(
            snapshot,
            index.id,
            TimeRange::ALL,
            range,
            &Poll::never(),
            |_| {
                scanned += 1;
                ControlFlow::Continue(())
            },
        )
        .map_err(failed)?;
        let there = keys.iter().filter(|key| range.contains(**key)).count();
        if scanned != there {
            return Err(unequal(format!(
                "index {}: {scanned} of {there} records in a range",
                index.name
            )));
        }
    }
    Ok(())
}

/// The first reported gap.
fn first_gap(disk: &Disk) -> Result<Option<Loss>> {
    let reader = LogReader::open_with(disk.storage(), &loom())?;
    let losses = Directory::of(reader).snapshot()?.losses(&Poll::never())?;
    Ok(losses.into_iter().find(|loss| loss.stage == "crash"))
}

/// A crash that kept staging lost nothing, so no loss may be reported.
pub fn tells_no_gap(disk: &Disk) -> Result<(), Broken> {
    let promise = "no false loss";
    match first_gap(disk).map_err(|error| broken(promise, error.to_string()))? {
        None => Ok(()),
        Some(gap) => Err(broken(promise, format!("{gap:?}"))),
    }
}

/// Records that were seen and are missing must be reported as lost.
pub fn is_named(disk: &Disk, found: Found, owed: &Owed) -> Result<(), Broken> {
    let failed = |error: Error| broken("losses are named", error.to_string());
    if found.end >= owed.seen || first_gap(disk).map_err(failed)?.is_some() {
        Ok(())
    } else {
        Err(broken(
            "losses are named",
            format!(
                "{} of {} records are there, and nothing is said",
                found.end, owed.seen
            ),
        ))
    }
}

/// A start removes the leftovers of a crash: files that were being written, and those that they replaced.
fn is_tidy(disk: &Disk) -> Result<(), Broken> {
    let names = disk.storage().list(&loom().join("records"));
    let names = names.map_err(|error| broken("tidy", error.to_string()))?;
    // The new writer has already made drafts of segments.
    let segments = names.iter().filter(|name| !name.ends_with(".0.new"));
    let firsts: Vec<_> = segments.filter_map(|name| name.split('.').next()).collect();
    if firsts.iter().collect::<BTreeSet<_>>().len() == firsts.len() {
        return Ok(());
    }
    Err(broken("tidy", format!("after a start there are {names:?}")))
}

/// Reads the state after a crash, recovers it, reads it again, goes on with it, and stops cleanly.
pub fn recover(disk: &Disk, sent: &[Sent], owed: &Owed) -> Result<Found, Broken> {
    recover_with(disk, sent, owed, &options(Durability::None))
}

pub fn recover_with(
    disk: &Disk,
    sent: &[Sent],
    owed: &Owed,
    options: &WriterOptions,
) -> Result<Found, Broken> {
    let failed = |error: Error| broken("recovery", error.to_string());
    let before = read(disk, sent, owed).map_err(|broken| broken.when("before recovery"))?;
    let known = sent.get(..before.end as usize).unwrap_or_default();
    let mut client = Client::start(disk, options, known.to_vec()).map_err(failed)?;
    is_tidy(disk)?;
    let found = read(disk, sent, owed).map_err(|broken| broken.when("after recovery"))?;
    if found != before {
        return Err(broken(
            "readers see what recovery keeps",
            format!("{before:?}, then {found:?}"),
        ));
    }
    is_named(disk, found, owed)?;
    client
        .push(3)
        .and_then(|()| client.sync())
        .map_err(failed)?;
    let owed = Owed {
        promise: "recovered logs go on",
        records: client.sent.len() as u64,
        lost: owed.lost.max(client.sent.len() as u64),
        ..*owed
    };
    read(disk, &client.sent, &owed).map_err(|broken| broken.when("after more records"))?;
    client.close().map_err(failed)?;
    read(disk, &client.sent, &owed).map_err(|broken| broken.when("after a clean stop"))?;
    Ok(found)
}

/// The end of the record log, in chunks, for tests that print how much they cover.
pub fn chunks(disk: &Disk) -> u64 {
    let reader = LogReader::open_with(disk.storage(), &loom()).unwrap();
    let tails = reader.tails().unwrap();
    tails.tail.records.0 / CHUNK
}
