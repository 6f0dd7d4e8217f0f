//! C1, C2 and C4 to C7: a directory, and the same rows in DuckDB and ClickHouse: their sizes, and the cost of questions.
//!
//! The data are the demo's three sources, a host's gauges, and numbers that cannot be compressed.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use ingestd::config::Config;
use ingestd::daemon::Daemon;
use ingestd::demo::{self, DemoOptions};
use loom_engine::log::RecordSegments;
use loom_engine::query::Directory;
use loom_tests::seed::Seed;

use super::cache::drop_cached;
use super::figures::rounded;
use super::ingest::{LOGS, files_in, open_writer, place_in};
use super::options::Sizes;
use super::peer::{Peer, System};
use super::table::{Line, Times};

const LOG: &str = "[log]\nsegment = '32MiB'\nblock = '8MiB'\n";
const RATE: u64 = 2_000_000;
const GAUGES: &str = r#"[[source]]
name = "gauges"
field = [{ name = "host", type = "u32" }, { name = "cpu", type = "f64" }, { name = "temperature", type = "f64" }, { name = "load", type = "f64" }, { name = "received", type = "u64" }, { name = "sent", type = "u64" }]
index = [{ name = "cpu", value = "cpu" }]
"#;
const RANDOM: &str = r#"[[source]]
name = "random"
field = [{ name = "a", type = "u64" }, { name = "b", type = "u64" }, { name = "c", type = "u64" }, { name = "d", type = "u64" }, { name = "e", type = "u64" }, { name = "f", type = "u64" }]
index = [{ name = "a", value = "a" }]
"#;
/// The most by which a host's counter grows from one record to the next.
const COUNTED_MOST: u64 = 100_000;
const HOSTS: usize = 64;

/// One set of records in all systems.
struct Set {
    name: &'static str,
    sources: Vec<&'static str>,
    records: u64,
    dir: PathBuf,
    units: RecordSegments,
    duckdb: PathBuf,
    parquet_bytes: u64,
}

/// A question about one source of the demo. `DIR` is replaced by a directory.
struct Question {
    target: &'static str,
    measure: &'static str,
    owed: &'static str,
    loom: String,
    duckdb: String,
    clickhouse: Option<String>,
    is_cold_too: bool,
}

/// Runs the whole part.
pub fn of_units(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let place = place_in(folder)?;
    let records = sizes.column_records;
    let demo = place.path().join("demo.loom");
    make_demo(&demo, records)?;
    let demo = Set::of("demo", demo, vec!["redis_request", "syscall", "packet"])?;
    let mut lines = sizes_of(&demo, "≤ 11")?;
    for (name, toml, owed) in [
        ("gauges", GAUGES, "≤ 18"),
        ("random", RANDOM, "≤ 1.01 × rows"),
    ] {
        let dir = place.path().join(format!("{name}.loom"));
        make(&dir, toml, name, records / 2)?;
        lines.extend(sizes_of(&Set::of(name, dir, vec![name])?, owed)?);
    }
    lines.extend(ask(&demo, sizes)?);
    Ok(lines)
}

/// Records the demo with a daemon.
pub fn make_demo(dir: &Path, records: u64) -> Result<()> {
    let config = Config::parse(LOG).map_err(anyhow::Error::msg)?;
    let daemon = Daemon::start(dir, &config, false)?;
    let options = DemoOptions {
        rate: RATE,
        duration: Duration::from_secs_f64(records as f64 / RATE as f64),
        keep_bytes: u64::MAX,
        seed: 1,
        truth: None,
    };
    let client = Client::connect(dir)?;
    demo::run(&client, &options, &AtomicBool::new(false))?;
    drop(client);
    Ok(daemon.stop()?)
}

/// Writes `records` records of a random source.
fn make(dir: &Path, toml: &str, name: &str, records: u64) -> Result<()> {
    let (mut writer, sources) = open_writer(dir, &format!("{LOG}{toml}"))?;
    let source = *sources.first().context("no source")?;
    let mut seed = Seed::of(7);
    let mut hosts = [(300i64, 450i64, 120i64, 0u64, 0u64); HOSTS];
    let mut payload = Vec::new();
    for nth in 0..records as usize {
        payload.clear();
        if name == "random" {
            let numbers = (0..6).map(|_| seed.draw() >> 4);
            numbers.for_each(|number| payload.extend_from_slice(&number.to_le_bytes()));
        } else {
            let host = nth % HOSTS;
            let (cpu, temperature, load, received, sent) = hosts.get_mut(host).context("a host")?;
            *cpu = (*cpu + seed.between(-20, 21)).clamp(0, 1000);
            *temperature = (*temperature + seed.between(-2, 3)).clamp(300, 900);
            *load = (*load + seed.between(-5, 6)).clamp(0, 6400);
            *received += seed.draw() % COUNTED_MOST;
            *sent += seed.draw() % COUNTED_MOST;
            payload.extend_from_slice(&(host as u32).to_le_bytes());
            for float in [
                *cpu as f64 / 10.0,
                *temperature as f64 / 10.0,
                *load as f64 / 100.0,
            ] {
                payload.extend_from_slice(&float.to_le_bytes());
            }
            payload.extend_from_slice(&received.to_le_bytes());
            payload.extend_from_slice(&sent.to_le_bytes());
        }
        writer.push(source, &payload)?;
        if nth % 4096 == 0 {
            writer.tick()?;
        }
    }
    Ok(writer.close()?)
}

impl Set {
    /// Copies the rows to DuckDB.
    fn of(name: &'static str, dir: PathBuf, sources: Vec<&'static str>) -> Result<Set> {
        let directory = Directory::open(&dir)?;
        let units = directory.status()?.record_segments;
        let snapshot = directory.snapshot()?;
        let mut records = 0;
        for source in &sources {
            records += snapshot.source_totals(snapshot.source(source)?.id)?.records;
        }
        let mut set = Set {
            name,
            records,
            duckdb: dir.with_extension("duckdb"),
            dir,
            sources,
            units,
            parquet_bytes: 0,
        };
        set.share()?;
        Ok(set)
    }

    /// Makes a table and a Parquet file of each source, with all columns of a scan except those that are equal in every row or another form
    /// of the time.
    fn share(&mut self) -> Result<()> {
        let mut duckdb = Peer::start(System::DuckDb, &self.duckdb)?;
        for source in &self.sources {
            let scan = scan(&self.dir, source);
            let rows = format!("SELECT * EXCLUDE (dir, source, ts) FROM {scan}");
            duckdb.query(&format!("CREATE TABLE {source} AS {rows}"))?;
            let file = self.dir.with_extension(format!("{source}.parquet"));
            let to = file.display();
            duckdb.query(&format!(
                "COPY ({rows}) TO '{to}' (FORMAT parquet, COMPRESSION zstd)"
            ))?;
            self.parquet_bytes += file.metadata()?.len();
        }
        duckdb.query("CHECKPOINT")?;
        Ok(())
    }

    fn a_record(&self, bytes: u64) -> f64 {
        bytes as f64 / self.records as f64
    }

    fn log_bytes(&self, log: &str) -> Result<u64> {
        let files = files_in(&self.dir.join(log))?;
        Ok(files.iter().map(|(_, bytes)| bytes).sum())
    }

    /// The bytes of all logs for each record, in the record log's addresses and on the disk; and those of the record log alone, on the
    /// disk.
    fn forms(&self) -> Result<(f64, f64, f64)> {
        let [records, chunks, times] = LOGS.map(|log| self.log_bytes(log));
        let (alone, indexes) = (self.a_record(records?), self.a_record(chunks? + times?));
        let rows = self.a_record(self.units.encoded_bytes);
        Ok((rows + indexes, alone + indexes, alone))
    }
}

fn scan(dir: &Path, source: &str) -> String {
    format!("loom_scan('{}', '{source}')", dir.display())
}

fn sizes_of(set: &Set, owed: &str) -> Result<Vec<Line>> {
    let (rows, columns, alone) = set.forms()?;
    let duckdb = set.a_record(set.duckdb.metadata()?.len());
    let parquet = set.a_record(set.parquet_bytes);
    let peers = [
        ("C1", "its rows", rows, owed),
        ("C2", "DuckDB 2, its file", duckdb, "> 1"),
        ("C2", "Parquet with zstd", parquet, "> 1"),
    ];
    let line = |(target, peer, figure, owed): (_, &str, f64, &str)| Line {
        target,
        measure: format!("bytes a record on disk, {}, all logs", set.name),
        loom: format!("{} B", rounded(columns)),
        peer: peer.to_owned(),
        peer_figure: format!("{} B", rounded(figure)),
        ratio: rounded(figure / columns),
        owed: owed.to_owned(),
        how: format!(
            "{} records; without the two index logs {} B",
            set.records,
            rounded(alone)
        ),
        ..Line::default()
    };
    Ok(peers.map(line).into())
}

/// Sends questions to Loom, DuckDB and ClickHouse in turn, once all agree.
fn ask(set: &Set, sizes: &Sizes) -> Result<Vec<Line>> {
    let mut loom = Peer::start(System::Loom, &set.dir)?;
    let mut duckdb = Peer::start(System::DuckDb, &set.duckdb)?;
    let mut clickhouse = Peer::start(System::ClickHouse, &set.dir.with_extension("clickhouse"))?;
    clickhouse.query(&format!(
        "CREATE TABLE bench.syscall ENGINE = MergeTree ORDER BY ts_ns AS SELECT * FROM file('{}', 'Parquet') SETTINGS schema_inference_make_columns_nullable = 0",
        set.dir.with_extension("syscall.parquet").display()
    ))?;
    let mut lines = Vec::new();
    for question in questions(&mut duckdb)? {
        eprintln!("  {}", question.measure);
        let own = question.loom.replace("DIR", &set.dir.display().to_string());
        let expected = duckdb.query(&question.duckdb)?.rows;
        let found = loom.query(&own)?.rows;
        ensure!(found == expected, "{own}: {found:?}, not {expected:?}");
        if let Some(sql) = &question.clickhouse {
            let found = clickhouse.query(sql)?.rows;
            ensure!(found == expected, "{sql}: {found:?}, not {expected:?}");
        }
        let mut times: [Times; 3] = Default::default();
        for _ in 0..sizes.runs {
            let [columns, of_duckdb, of_clickhouse] = &mut times;
            columns.push(&loom.query(&own)?);
            of_duckdb.push(&duckdb.query(&question.duckdb)?);
            if let Some(sql) = &question.clickhouse {
                of_clickhouse.push(&clickhouse.query(sql)?);
            }
        }
        let peers = [System::DuckDb.name(), System::ClickHouse.name()];
        let asked = 1 + usize::from(question.clickhouse.is_some());
        lines.extend(lines_of(
            &question,
            &times,
            "warm",
            peers.get(..asked).unwrap_or(&peers),
        ));
        if question.is_cold_too && sizes.cold_runs > 0 {
            let mut times: [Times; 2] = Default::default();
            for _ in 0..sizes.cold_runs {
                let [columns, of_duckdb] = &mut times;
                let mut loom = Peer::start(System::Loom, &set.dir)?;
                drop_cached(&set.dir)?;
                columns.push(&loom.query(&own)?);
                let mut duckdb = Peer::start(System::DuckDb, &set.duckdb)?;
                drop_cached(&set.duckdb)?;
                of_duckdb.push(&duckdb.query(&question.duckdb)?);
            }
            lines.extend(lines_of(&question, &times, "cold", &peers));
        }
    }
    Ok(lines)
}

/// The first of the times is Loom's. Each other one has a line with it.
fn lines_of(question: &Question, times: &[Times], cache: &str, peers: &[&str]) -> Vec<Line> {
    let Some((columns, others)) = times.split_first() else {
        return Vec::new();
    };
    let pairs = others.iter().zip(peers);
    let line = |(times, peer): (&Times, &&str)| {
        let line = Line {
            target: question.target,
            measure: format!("{}, columns", question.measure),
            owed: question.owed.to_owned(),
            how: format!("{cache}; all threads"),
            ..Line::default()
        };
        line.with_times(columns, Some((peer, times)))
    };
    pairs.map(line).collect()
}

fn questions(duckdb: &mut Peer) -> Result<Vec<Question>> {
    let (from, to) = middle(duckdb)?;
    let quantiles = "SELECT quantile_disc(latency_ns, [0.9, 0.99, 0.99995])::VARCHAR FROM syscall";
    let rows = duckdb.query(quantiles)?.rows;
    let text = rows
        .first()
        .and_then(|row| row.first())
        .context("no quantiles")?;
    let [low, high, needle] = <[&str; 3]>::try_from(
        text.trim_matches(['[', ']'])
            .split(", ")
            .collect::<Vec<_>>(),
    )
    .map_err(|found| anyhow::anyhow!("{found:?} are not three quantiles"))?;
    let scan = "loom_scan('DIR', 'syscall')";
    let aggregate = "loom_aggregate('DIR', 'syscall', 'latency'";
    let all = "SELECT max(COLUMNS(* EXCLUDE (dir, source, ts)))";
    let needles = format!("SELECT count(*), {} FROM", sums());
    Ok(vec![
        Question {
            target: "C4",
            measure: "max of all columns of one of three sources over half of it, each value read",
            owed: "≥ 1.3 × DuckDB",
            loom: format!(
                "{all} FROM loom_scan('DIR', 'syscall', t_from := make_timestamptz({from}::BIGINT), t_to := make_timestamptz({to}::BIGINT))"
            ),
            duckdb: format!(
                "SELECT max(COLUMNS(*)) FROM syscall WHERE ts_ns >= {from}000 AND ts_ns < {to}000"
            ),
            clickhouse: None,
            is_cold_too: true,
        },
        Question {
            target: "C5",
            measure: "exact quantile 0.5",
            owed: "> 1",
            loom: format!("SELECT p50 FROM {aggregate}, quantiles := [0.5])"),
            duckdb: "SELECT quantile_disc(latency_ns, 0.5) FROM syscall".to_owned(),
            clickhouse: Some(
                "SELECT quantileExactLow(0.5)(latency_ns) FROM bench.syscall".to_owned(),
            ),
            is_cold_too: false,
        },
        Question {
            target: "C5",
            measure: "count and sum of values between the quantiles 0.9 and 0.99",
            owed: "> 1",
            loom: format!("SELECT count, sum FROM {aggregate}, v_min := {low}, v_max := {high})"),
            duckdb: format!(
                "SELECT count(*), sum(latency_ns) FROM syscall WHERE latency_ns BETWEEN {low} AND {high}"
            ),
            clickhouse: Some(format!(
                "SELECT count(), sum(latency_ns) FROM bench.syscall WHERE latency_ns BETWEEN {low} AND {high}"
            )),
            is_cold_too: false,
        },
        Question {
            target: "C6",
            measure: "rows above a threshold that 1 in 20,000 passes, all columns",
            owed: "≤ 10 ms; cold no slower than rows",
            loom: format!("{needles} {scan} WHERE latency_ns > {needle}"),
            duckdb: format!("{needles} syscall WHERE latency_ns > {needle}"),
            clickhouse: None,
            is_cold_too: true,
        },
        Question {
            target: "C7",
            measure: "`count(*) WHERE` on a field without an index",
            owed: "≥ 0.7 × DuckDB",
            loom: format!("SELECT count(*) FROM {scan} WHERE result = 64"),
            duckdb: "SELECT count(*) FROM syscall WHERE result = 64".to_owned(),
            clickhouse: None,
            is_cold_too: false,
        },
    ])
}

/// The middle half of the time, in µs. A table knows the greatest values of its whole time without a scan.
fn middle(duckdb: &mut Peer) -> Result<(i64, i64)> {
    let rows = duckdb
        .query("SELECT min(ts_ns) // 1000, max(ts_ns) // 1000 FROM syscall")?
        .rows;
    let row = rows.first().context("no times")?;
    let [first, last] = <[i64; 2]>::try_from(
        row.iter()
            .map(|text| text.parse())
            .collect::<std::result::Result<Vec<i64>, _>>()?,
    )
    .map_err(|found| anyhow::anyhow!("{found:?} are not two times"))?;
    let quarter = (last - first) / 4;
    Ok((first + quarter, last - quarter))
}

/// An aggregate of each field.
fn sums() -> String {
    let numbers = [
        "ts_ns",
        "id",
        "latency_ns",
        "result",
        "cpu",
        "fd",
        "pid",
        "tid",
    ];
    let sums: Vec<String> = numbers
        .iter()
        .map(|field| format!("max({field})"))
        .collect();
    format!("{}, max(number), max(comm)", sums.join(", "))
}
