//! F3 to F5: what the daemon writes, reads and computes while it records the demo, and questions about the newest rows meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loom_engine::query::Directory;

use super::dataset::Span;
use super::figures::rounded;
use super::ingest::place_in;
use super::live::newest_us;
use super::options::Sizes;
use super::peer::{Peer, System};
use super::rules::{cpu_of, demo, end};
use super::table::{Line, Times};

/// The demo's records a second, of its three sources together.
const RATE: u64 = 1_000_000;
/// Enough to keep all of it.
const KEEP: &str = "48GiB";
const SOURCE: &str = "syscall";
/// The age of the oldest row that is asked for.
const NEWEST: Duration = Duration::from_secs(5);
/// Questions to the newest rows, how many times as fast as DuckDB's own table Loom must be, and whether only their newer half counts: a
/// table knows the greatest of all its values without a scan.
const QUESTIONS: [(&str, &str, &str, bool); 3] = [
    (
        "sum of an unindexed field",
        "SELECT sum(result) FROM ROWS",
        "≥ 0.7",
        false,
    ),
    (
        "count where an unindexed field is a common value",
        "SELECT count(*) FROM ROWS WHERE result = 64",
        "≥ 0.9",
        false,
    ),
    (
        "greatest of all fields of the newer half",
        "SELECT max(COLUMNS(* EXCLUDE (dir, source, ts))) FROM ROWS",
        "≥ 1.2",
        true,
    ),
];

/// Totals of a process since its start.
struct Spent {
    written: u64,
    read: u64,
    /// CPU time of all threads but the first, which generates the demo's records.
    cpu: Duration,
}

/// Records the demo, counts what that takes, and asks about the newest rows.
pub fn of_the_demo(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let place = place_in(folder)?;
    let dir = place.path().join("demo.loom");
    let daemon = demo(&dir, RATE, KEEP)?;
    let (began, from, before) = (Instant::now(), records(&dir)?, Spent::by(daemon.id())?);
    std::thread::sleep(Duration::from_secs(sizes.flush_seconds));
    let (length, pushed, after) = (
        began.elapsed(),
        records(&dir)? - from,
        Spent::by(daemon.id())?,
    );
    let a_record = |bytes: u64| rounded(bytes as f64 / pushed as f64);
    let line = Line {
        how: format!(
            "the demo's three sources, {pushed} records at {} M a second",
            rounded(pushed as f64 / 1e6 / length.as_secs_f64())
        ),
        ..Line::default()
    };
    let mut lines = vec![
        Line {
            target: "F3",
            measure: "bytes that the daemon writes to disk for each record, all logs".to_owned(),
            loom: format!("{} B", a_record(after.written - before.written)),
            owed: "≤ 12 B; reads nothing".to_owned(),
            how: format!(
                "{}; {} B read",
                line.how,
                a_record(after.read - before.read)
            ),
            ..line.clone()
        },
        Line {
            target: "F4",
            measure: "CPU of all the daemon's threads meanwhile".to_owned(),
            loom_cpu: format!(
                "{} % of a core",
                rounded((after.cpu - before.cpu).as_secs_f64() / length.as_secs_f64() * 100.0)
            ),
            ..line
        },
    ];
    lines.extend(ask_newest(&dir, sizes)?);
    end(daemon)?;
    Ok(lines)
}

/// Sends the questions to Loom and to a table of the same rows, in turn. Each round asks about the rows that are the newest then.
fn ask_newest(dir: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let mut loom = Peer::start(System::Loom, dir)?;
    let mut duckdb = Peer::start(System::DuckDb, &dir.with_extension("duckdb"))?;
    let mut times: [[Times; 2]; QUESTIONS.len()] = Default::default();
    let mut oldest = Duration::ZERO;
    for _ in 0..sizes.runs {
        let to_us = newest_us(dir)?;
        let began = Instant::now();
        let span = Span {
            from_us: to_us - i64::try_from(NEWEST.as_micros())?,
            to_us,
        };
        let scan = |span: Span| {
            let parameters = span.parameters();
            format!("loom_scan('{}', '{SOURCE}', {parameters})", dir.display())
        };
        let newer = Span {
            from_us: span.from_us.midpoint(to_us),
            to_us,
        };
        let all = scan(span);
        duckdb.query(&format!(
            "CREATE OR REPLACE TABLE newest AS SELECT * FROM {all}"
        ))?;
        duckdb.query("CHECKPOINT")?;
        let rows = [all, "newest".to_owned()];
        let newer_rows = [
            scan(newer),
            format!("(FROM newest WHERE {})", newer.condition()),
        ];
        for ((_, sql, _, is_of_half), times) in QUESTIONS.iter().zip(&mut times) {
            let rows = if *is_of_half { &newer_rows } else { &rows };
            let [own, other] = rows.each_ref().map(|rows| sql.replace("ROWS", rows));
            let (found, expected) = (loom.query(&own)?.rows, duckdb.query(&other)?.rows);
            ensure!(found == expected, "{own}: {found:?}, not {expected:?}");
            let [of_loom, of_duckdb] = times;
            of_loom.push(&loom.query(&own)?);
            of_duckdb.push(&duckdb.query(&other)?);
        }
        oldest = oldest.max(began.elapsed());
    }
    Ok(QUESTIONS
        .iter()
        .zip(&times)
        .map(|((measure, _, owed, _), [of_loom, of_duckdb])| {
            let line = Line {
                target: "F5",
                measure: format!("{measure}, newest {} s, live", NEWEST.as_secs()),
                owed: (*owed).to_owned(),
                how: format!(
                    "one of the demo's three sources at {} M records/s in all; a new window each round, at most {} s old; warm; all threads",
                    RATE / 1_000_000,
                    rounded(oldest.as_secs_f64())
                ),
                ..Line::default()
            };
            line.with_times(of_loom, Some((System::DuckDb.name(), of_duckdb)))
        })
        .collect())
}

fn records(dir: &Path) -> Result<u64> {
    let snapshot = Directory::open(dir)?.snapshot()?;
    let mut records = 0;
    for source in snapshot.catalog().sources() {
        records += snapshot.source_totals(source.id)?.records;
    }
    Ok(records)
}

impl Spent {
    fn by(process: u32) -> Result<Spent> {
        let text = std::fs::read_to_string(format!("/proc/{process}/io"))?;
        let count = |key: &str| -> Result<u64> {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            Ok(line.with_context(|| format!("no {key}"))?.trim().parse()?)
        };
        let mut cpu = Duration::ZERO;
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let path = thread?.path();
            if !path.ends_with(process.to_string()) {
                cpu += cpu_of(&path)?;
            }
        }
        Ok(Spent {
            written: count("write_bytes:")?,
            read: count("read_bytes:")?,
            cpu,
        })
    }
}
