//! Every byte of a small directory is flipped, and every file is cut to every length: no row is returned that was not written, damage is
//! confined to its place, and everything before and after it can be read. This is tested through the engine, and through DuckDB in a
//! process with limited memory and time.
//!
//! Each run takes a sample of `SAMPLE`. `LOOM_SEED` repeats it, and `LOOM_ALL` takes everything.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use loom_engine::check::check;
use loom_engine::query::{
    AggregateSpec, Ask, Directory, PayloadRoom, Poll, Predicate, Quantile, Scan, ScanSpec,
    Snapshot, aggregate, raw_scan,
};
use loom_engine::{Error, Key, TimeRange, Timestamp, ValueRange};
use loom_tests::duckdb::Version;
use loom_tests::machine;
use loom_tests::seed::Seed;
use loom_tests::small::{CHUNK_BYTES, Damage, Harm, Small, TAIL, is_segment, mark_of};

/// Six chunks, the last one not full. No unit is whole, and no node is above their summaries.
const FEW: u64 = 800;
/// Enough records for a roll-up and chunks after it.
const MANY: u64 = 11_000;
/// Damage to these logs keeps no other chunk from being read.
const LOGS: [&str; 4] = ["records", "tail", "chunks", "times"];
const DOUBLED: [&str; 4] = ["catalog", "catalog.copy", "loom.json", "loom.json.copy"];
const SAMPLE: usize = 1200;
const SAMPLE_DUCKDB: usize = 300;
const SAMPLE_COLUMNS: usize = 300;
const SAMPLE_COLUMNS_DUCKDB: usize = 40;
/// Two finished segments, and chunks after them.
const COLUMNS: u64 = 11_000;
/// Chunks in a unit of columns.
const UNIT_CHUNKS: u64 = 16;

/// A sample of all damages, or all of them if `LOOM_ALL` is set.
fn chosen(small: &Small, seed: &mut Seed, sample: usize) -> Vec<Damage> {
    let mut damages = small.damages(seed);
    if std::env::var_os("LOOM_ALL").is_none() {
        for at in 0..sample.min(damages.len()) {
            let other = seed.between(at as i64, damages.len() as i64) as usize;
            damages.swap(at, other);
        }
        damages.truncate(sample);
    }
    damages
}

/// The records that were written, in the form that the checks need.
struct Written {
    /// The chunks: each with the numbers of its rows and the span of their times.
    chunks: Vec<(u64, Vec<u64>, TimeRange)>,
    count: u64,
    sum: u64,
}

impl Written {
    fn of(small: &Small) -> Result<Written> {
        let snapshot = Directory::open(&small.dir)?.snapshot()?;
        let mut chunks = Vec::new();
        for (chunk, numbers) in small.chunks() {
            let mut times = TimeRange::EMPTY;
            for (address, ts, _) in rows_of(&snapshot, Predicate::All)?
                .into_iter()
                .flat_map(|(_, rows)| rows.unwrap_or_default())
            {
                if address / CHUNK_BYTES == chunk {
                    times.first = times.first.min(ts);
                    times.last = times.last.max(ts);
                }
            }
            chunks.push((chunk, numbers, times));
        }
        Ok(Written {
            chunks,
            count: small.rows.len() as u64,
            sum: small.rows.values().sum(),
        })
    }
}

/// Address, time and number of a row.
type Seen = (u64, Timestamp, u64);
/// The rows that were read from a chunk.
type Read = std::result::Result<Vec<Seen>, Error>;

/// The rows of `r`, chunk by chunk; an error stands for a chunk that could not be read. Each row's mark must be that of its number.
fn rows_of(snapshot: &Snapshot, exact: Predicate) -> Result<Vec<(u64, Read)>> {
    let spec = ScanSpec {
        source: snapshot.source("r")?.id,
        after: loom_engine::Address::ZERO,
        exact,
        prune: Predicate::All,
        index_filters: Vec::new(),
    };
    let scan = Scan::new(snapshot, spec)?;
    let mut reader = scan.reader(Ask::all());
    let mut chunks = Vec::new();
    while let Some(chunk) = scan.next(&Poll::never())? {
        let rows = match reader.read(chunk) {
            Ok(rows) => rows,
            Err(error) => {
                chunks.push((chunk.0, Err(error)));
                continue;
            }
        };
        let mut seen = Vec::new();
        let mut room = PayloadRoom::default();
        let payloads = rows.payloads(&mut room);
        for ((address, time), payload) in rows.addresses().iter().zip(rows.times()).zip(payloads) {
            seen.push((*address, Timestamp(*time as i64), number(payload)?));
        }
        chunks.push((chunk.0, Ok(seen)));
    }
    Ok(chunks)
}

/// The number in a payload, if its mark is right.
fn number(payload: &[u8]) -> Result<u64> {
    let words: Vec<u64> = payload
        .chunks_exact(8)
        .filter_map(|word| Some(u64::from_le_bytes(*word.first_chunk()?)))
        .collect();
    match words.as_slice() {
        &[n, mark] if mark == mark_of(n) => Ok(n),
        other => bail!("a row that was never written: {other:?}"),
    }
}

/// Compares all of the engine's answers about a damaged directory with the written records.
fn look(small: &Small, written: &Written, damage: &Damage) -> Result<()> {
    let is_confined = [&LOGS[..], &DOUBLED[..]]
        .concat()
        .iter()
        .any(|name| damage.file().starts_with(name));
    let snapshot = match Directory::open(&small.dir).and_then(|directory| directory.snapshot()) {
        Ok(snapshot) => snapshot,
        Err(error) => {
            ensure!(!is_confined, "the whole directory is closed: {error}");
            return names(&error, small);
        }
    };
    let found = rows_of(&snapshot, Predicate::All);
    if !is_confined {
        // The directory's description of itself is damaged: rows may be out of reach, but those that are returned are right.
        for (_, rows) in found.unwrap_or_default() {
            subset(small, &rows.unwrap_or_default())?;
        }
        return Ok(());
    }
    let found = found?;
    // Not every byte is read: the tail keeps bytes that units have taken over.
    let mut is_hit = match damage.file() {
        file if is_segment(file) => small.reaches_directory(damage),
        file => file != Path::new(TAIL),
    };
    for (chunk, numbers, times) in &written.chunks {
        let hit = small.harm(damage, *chunk);
        let all = found.iter().find(|(found, _)| found == chunk);
        is_hit |= all.is_some_and(|(_, rows)| rows.is_err());
        complete(small, hit, numbers, all.map(|(_, rows)| rows), *chunk)?;
        // A question about one chunk alone is answered whatever is wrong with the others.
        let alone = rows_of(&snapshot, Predicate::time(*times))?;
        let alone = alone.iter().find(|(found, _)| found == chunk);
        complete(small, hit, numbers, alone.map(|(_, rows)| rows), *chunk).context("alone")?;
    }
    backward(small, &snapshot, damage)?;
    totals(small, written, &snapshot, damage)?;
    let report = check(&small.dir)?;
    if !is_hit && report.is_sound() {
        // No column needs the bit. A bit that only these questions do not need may be reported.
        return Ok(());
    }
    ensure!(!report.is_sound(), "check finds nothing");
    if is_segment(damage.file()) && !small.reaches_directory(damage) {
        for told in &report.damage {
            let harm = small.harm(damage, told.address.0 / CHUNK_BYTES);
            ensure!(harm != Harm::None, "check names {told:?}");
        }
    }
    let place = match damage.file().parent() {
        Some(log) if log != Path::new("") => small.dir.join(log),
        _ => small.dir.join(damage.file()),
    };
    let in_logs = report.damage.iter().map(|told| &told.path);
    let beside = report.files.iter().map(|told| &told.path);
    ensure!(
        in_logs.chain(beside).any(|path| path.starts_with(&place)),
        "check names {report:?}"
    );
    Ok(())
}

/// Fails unless a chunk gave all of its rows, or, if it was hit, an error that names it.
fn complete(
    small: &Small,
    harm: Harm,
    numbers: &[u64],
    found: Option<&Read>,
    chunk: u64,
) -> Result<()> {
    match found.with_context(|| format!("chunk {chunk} is passed over"))? {
        Ok(rows) => {
            ensure!(
                harm != Harm::Sure,
                "chunk {chunk} was hit, and nobody saw it"
            );
            subset(small, rows)?;
            ensure!(
                rows.iter().map(|(_, _, n)| n).eq(numbers),
                "chunk {chunk} is not complete: {} of {} rows",
                rows.len(),
                numbers.len()
            );
            Ok(())
        }
        Err(error) => {
            ensure!(harm != Harm::None, "chunk {chunk} was not hit: {error}");
            let named = match error {
                Error::Corrupt { path, address, .. } => {
                    Some((address.0 / CHUNK_BYTES, is_segment(path)))
                }
                _ => None,
            };
            let within = named.is_some_and(|(named, in_columns)| {
                named == chunk || in_columns && named / UNIT_CHUNKS == chunk / UNIT_CHUNKS
            });
            ensure!(within, "chunk {chunk} is not named: {error}");
            names(error, small)
        }
    }
}

fn subset(small: &Small, rows: &[Seen]) -> Result<()> {
    for (address, _, n) in rows {
        ensure!(
            small.rows.get(address) == Some(n),
            "row {n} was not written at {address}"
        );
    }
    Ok(())
}

fn names(error: &Error, small: &Small) -> Result<()> {
    let (said, dir) = (error.to_string(), small.dir.display().to_string());
    ensure!(said.contains(&dir), "'{dir}' is not named: {said}");
    Ok(())
}

/// Reads from the newest record back to a chunk that was hit.
fn backward(small: &Small, snapshot: &Snapshot, damage: &Damage) -> Result<()> {
    let source = snapshot.source("r")?.id;
    let mut newest_first = Vec::new();
    let mut strange = Ok(());
    let scanned = raw_scan(snapshot, source, TimeRange::ALL, &Poll::never(), |record| {
        match number(record.payload) {
            Ok(n) => newest_first.push((record.address.0, record.ts, n)),
            Err(error) => strange = Err(error),
        }
        ControlFlow::Continue(())
    });
    strange?;
    subset(small, &newest_first)?;
    let mut expected = small.rows.keys().rev();
    for (address, ..) in &newest_first {
        ensure!(
            expected.next() == Some(address),
            "newest first, {address} is out of order"
        );
        let harm = small.harm(damage, address / CHUNK_BYTES);
        ensure!(
            harm != Harm::Sure,
            "a row at {address} is read, which was hit"
        );
    }
    let stopped_by = expected
        .next()
        .map(|address| small.harm(damage, address / CHUNK_BYTES));
    ensure!(
        scanned.is_ok() == stopped_by.is_none() && stopped_by != Some(Harm::None),
        "newest first, {} rows, then {scanned:?}",
        newest_first.len()
    );
    match scanned {
        Err(error) => names(&error, small),
        Ok(()) => Ok(()),
    }
}

/// Checks that aggregates are right. They need no damaged chunk unless a quantile reads it.
fn totals(small: &Small, written: &Written, snapshot: &Snapshot, damage: &Damage) -> Result<()> {
    let source = snapshot.source("r")?;
    let index = source.index("n").context("the index")?.id;
    for quantiles in [&[][..], &[0.5, 0.99]] {
        let spec = AggregateSpec {
            source: source.id,
            index,
            time: TimeRange::ALL,
            value: ValueRange::ALL,
            filter: Predicate::All,
            bucket: None,
            quantiles: quantiles
                .iter()
                .map(|q| Quantile::new(*q))
                .collect::<std::result::Result<_, _>>()?,
            approx: false,
            threads: 1,
        };
        match aggregate(snapshot, &spec, &Poll::never()) {
            Ok(rows) => {
                let [row] = rows.as_slice() else {
                    bail!("{} rows", rows.len());
                };
                ensure!(row.count == written.count, "count {}", row.count);
                ensure!(row.sum.to_f64() == written.sum as f64, "sum {:?}", row.sum);
                for (q, key) in quantiles.iter().zip(&row.quantiles) {
                    let rank = (q * written.count as f64).ceil() as u64;
                    ensure!(*key == Some(Key::from_u64(rank - 1)), "p{q}: {key:?}");
                }
            }
            Err(error) => {
                let of_records = is_segment(damage.file()) || damage.file() == Path::new(TAIL);
                let excused = of_records && !quantiles.is_empty();
                ensure!(excused, "{error}");
                names(&error, small)?;
            }
        }
    }
    Ok(())
}

fn through_the_engine(test: &str, small: &Small, sample: usize) -> Result<()> {
    let mut seed = Seed::announced(test);
    let written = Written::of(small)?;
    ensure!(check(&small.dir)?.is_sound());
    let damages = chosen(small, &mut seed, sample);
    let mut wrong = Vec::new();
    for damage in &damages {
        if let Err(error) = small.damaged(damage, || look(small, &written, damage)) {
            wrong.push(format!("{error:#}"));
        }
    }
    println!(
        "{test}: {} damages of a directory of {} bytes in {} chunks",
        damages.len(),
        small.bytes(),
        written.chunks.len()
    );
    ensure!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        damages.len(),
        wrong
            .iter()
            .take(20)
            .cloned()
            .collect::<Vec<_>>()
            .join("\n")
    );
    Ok(())
}

// G7
#[test]
fn damage_of_a_few_chunks_stays_where_it_is() -> Result<()> {
    through_the_engine("every_byte_few", &Small::new(FEW)?, SAMPLE)
}

// case Corruption: a flipped byte
#[test]
fn damage_below_and_in_a_roll_up_stays_where_it_is() -> Result<()> {
    through_the_engine("every_byte_many", &Small::new(MANY)?, SAMPLE)
}

// G7
#[test]
fn damage_of_column_segments_stays_in_its_unit() -> Result<()> {
    through_the_engine(
        "every_byte_columns",
        &Small::in_columns(COLUMNS)?,
        SAMPLE_COLUMNS,
    )
}

/// One process reads all of the damaged directories. A crash, a hang or unbounded memory ends it.
fn through_duckdb(test: &str, small: &Small, sample: usize) -> Result<()> {
    let mut seed = Seed::announced(test);
    let damages = chosen(small, &mut seed, sample);
    let mut child = Command::new(machine::python()?)
        .args(["-c", include_str!("../../src/every_byte.py")])
        .arg(Version::V2.extension())
        .arg(&small.dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    let rows: Vec<(u64, u64, u64)> = small
        .rows
        .iter()
        .map(|(address, n)| (*address, *n, mark_of(*n)))
        .collect();
    let told: Vec<_> = damages.iter().map(|damage| damage.json(small)).collect();
    // It reads all of its input before it answers, so neither side waits for the other.
    writeln!(
        input,
        "{}",
        serde_json::json!({ "rows": rows, "chunk_bytes": CHUNK_BYTES, "damages": told })
    )?;
    drop(input);
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{test}: {}", said.trim_end());
    ensure!(output.status.success(), "{} after: {said}", output.status);
    Ok(())
}

// G8
#[test]
fn duckdb_survives_every_damage_and_gives_no_wrong_row() -> Result<()> {
    through_duckdb("every_byte_duckdb", &Small::new(FEW)?, SAMPLE_DUCKDB)
}

// G8
#[test]
fn duckdb_survives_every_damage_of_column_segments_and_gives_no_wrong_row() -> Result<()> {
    let small = Small::in_columns(COLUMNS / 2)?;
    through_duckdb("every_byte_columns_duckdb", &small, SAMPLE_COLUMNS_DUCKDB)
}
