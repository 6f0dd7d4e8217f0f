//! Hosts that report their CPU every ten seconds, as in the benchmark TSBS (its use case "devops", CPU only): the same samples as groups of
//! Loom, as blocks of Prometheus and as a Parquet file.
//!
//! Samples are 5 s and some ms after full ten seconds, so none is on an edge of a question's window.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use loom_engine::Timestamp;
use loom_engine::schema::{FieldDef, FieldType, FieldValue, PayloadEncoder, SourceDef, TimeKind};
use loom_tests::daemon::wait_until;
use loom_tests::seed::Seed;

use super::ingest::open_writer;
use super::peer::{Peer, System};

/// The ten numbers of a host, in percent.
pub const METRICS: [&str; 10] = [
    "usage_user",
    "usage_system",
    "usage_idle",
    "usage_nice",
    "usage_iowait",
    "usage_irq",
    "usage_softirq",
    "usage_steal",
    "usage_guest",
    "usage_guest_nice",
];
const EVERY_S: i64 = 10;
/// The span of a block of Prometheus.
const BLOCK_S: i64 = 7200;
/// Hosts report a millisecond apart, because Prometheus has whole milliseconds.
const PHASES: i64 = 1000;

/// The number of hosts, and the time over which they report, up to now.
#[derive(Copy, Clone, Debug)]
pub struct Shape {
    pub hosts: usize,
    pub hours: i64,
    /// The first hour, in seconds since the epoch.
    pub first_s: i64,
}

impl Shape {
    pub fn samples(&self) -> u64 {
        let scrapes = self.hours * 3600 / EVERY_S;
        self.hosts as u64 * scrapes.unsigned_abs() * METRICS.len() as u64
    }

    pub fn end_s(&self) -> i64 {
        self.first_s + self.hours * 3600
    }

    /// The times at which a host reports, in ms.
    fn times_ms(&self, host: usize) -> impl Iterator<Item = i64> {
        let phase = host as i64 % PHASES;
        (self.first_s..self.end_s())
            .step_by(EVERY_S as usize)
            .map(move |second| (second + 5) * 1000 + phase)
    }
}

/// The same samples in each system.
pub struct Devops {
    pub shape: Shape,
    pub loom: PathBuf,
    pub loom_bytes: u64,
    pub prometheus: Prometheus,
    pub prometheus_bytes: u64,
    pub parquet: PathBuf,
    pub parquet_bytes: u64,
}

impl Devops {
    pub fn make(place: &Path, shape: Shape) -> Result<Devops> {
        let loom = place.join("devops.loom");
        record(&loom, shape)?;
        let tsdb = place.join("tsdb");
        make_blocks(&place.join("devops.txt"), &tsdb, shape)?;
        let parquet = place.join("devops.parquet");
        share(&place.join("devops.csv"), &parquet, shape)?;
        Ok(Devops {
            shape,
            loom_bytes: bytes_under(&loom)?,
            loom,
            prometheus_bytes: bytes_under(&tsdb)?,
            prometheus: Prometheus::start(place, &tsdb)?,
            parquet_bytes: parquet.metadata()?.len(),
            parquet,
        })
    }
}

/// The bytes that the files in a folder and below take on the disk.
fn bytes_under(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += match metadata.is_dir() {
            true => bytes_under(&entry.path())?,
            false => metadata.blocks() * 512,
        };
    }
    Ok(bytes)
}

/// The labels of a host besides its name.
fn tags(host: usize) -> [(&'static str, String); 9] {
    let mut seed = Seed::of(host as u64 + 1);
    let mut one_of = |words: &[&str]| {
        let nth = seed.draw() as usize % words.len();
        words.get(nth).copied().unwrap_or_default().to_owned()
    };
    let region = one_of(&["eu-west-1", "us-east-1", "us-west-2", "ap-south-1"]);
    let zone = one_of(&["a", "b", "c"]);
    [
        ("datacenter", format!("{region}{zone}")),
        ("region", region),
        ("rack", (host % 100).to_string()),
        (
            "os",
            one_of(&["Ubuntu15.10", "Ubuntu16.04LTS", "Ubuntu16.10"]),
        ),
        ("arch", one_of(&["x64", "x86"])),
        ("team", one_of(&["SF", "NYC", "LON", "CHI"])),
        ("service", (host % 20).to_string()),
        ("service_version", one_of(&["0", "1"])),
        (
            "service_environment",
            one_of(&["production", "staging", "test"]),
        ),
    ]
}

/// The numbers of a host over time: each takes a step up or down, within 0 and 100.
struct Walk {
    seed: Seed,
    now: [i64; METRICS.len()],
}

impl Walk {
    fn of(host: usize) -> Walk {
        let mut seed = Seed::of(1000 + host as u64);
        Walk {
            now: std::array::from_fn(|_| seed.between(0, 101)),
            seed,
        }
    }

    fn next(&mut self) -> [i64; METRICS.len()] {
        for number in &mut self.now {
            *number = (*number + self.seed.between(-3, 4)).clamp(0, 100);
        }
        self.now
    }
}

/// Writes a group for each host in columns, as a scrape does.
fn record(dir: &Path, shape: Shape) -> Result<()> {
    // The configuration of a daemon that scrapes them.
    let targets: Vec<String> = (0..shape.hosts)
        .map(|host| format!("'host_{host}:9100'"))
        .collect();
    let toml = format!(
        "[log]\nsegment = '64MiB'\n[[scrape]]\njob = 'cpu'\nevery = '{EVERY_S}s'\ntargets = [{}]\n",
        targets.join(", ")
    );
    let (mut writer, _) = open_writer(dir, &toml)?;
    let mut hosts = Vec::new();
    for host in 0..shape.hosts {
        let mut def = SourceDef::new(format!("metrics/cpu/host_{host}"));
        def.time = TimeKind::Own;
        def.fields = METRICS.map(|metric| field(metric, host)).to_vec();
        let encoder = PayloadEncoder::new(def.time, &def.fields)?;
        let times = shape.times_ms(host);
        hosts.push((writer.define_source(&def)?, encoder, times, Walk::of(host)));
    }
    let mut payload = Vec::new();
    'all: loop {
        for (source, encoder, times, walk) in &mut hosts {
            let Some(ms) = times.next() else { break 'all };
            let values = walk.next().map(|number| FieldValue::F64(number as f64));
            payload.clear();
            encoder.encode(Some(Timestamp(ms * 1_000_000)), &values, &mut payload)?;
            writer.push(*source, &payload)?;
        }
        writer.tick()?;
    }
    writer.close()?;
    Ok(())
}

fn field(metric: &str, host: usize) -> FieldDef {
    let mut field = FieldDef::nullable(metric, FieldType::F64);
    field.series = tags(host)
        .into_iter()
        .chain([
            ("__name__", metric.to_owned()),
            ("hostname", format!("host_{host}")),
        ])
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    field
}

/// Writes the samples as blocks of Prometheus, from the OpenMetrics text of one block after the other, because promtool reads its whole
/// input for each block.
fn make_blocks(text: &Path, tsdb: &Path, shape: Shape) -> Result<()> {
    let mut hosts: Vec<_> = (0..shape.hosts)
        .map(|host| (host, shape.times_ms(host).peekable(), Walk::of(host)))
        .collect();
    let mut from_s = shape.first_s;
    while from_s < shape.end_s() {
        let end_s = (from_s / BLOCK_S + 1) * BLOCK_S;
        let mut out = BufWriter::new(File::create(text)?);
        for (host, times, walk) in &mut hosts {
            let mut labels = format!("hostname=\"host_{host}\"");
            for (name, value) in tags(*host) {
                write!(labels, ",{name}=\"{value}\"")?;
            }
            while let Some(ms) = times.next_if(|ms| *ms < end_s * 1000) {
                let (seconds, rest) = (ms / 1000, ms % 1000);
                for (metric, number) in METRICS.iter().zip(walk.next()) {
                    writeln!(out, "{metric}{{{labels}}} {number} {seconds}.{rest:03}")?;
                }
            }
        }
        out.write_all(b"# EOF\n")?;
        out.flush()?;
        let made = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([text, tsdb])
            .stdout(Stdio::null())
            .status()
            .context("starting promtool, of Debian's package prometheus")?;
        ensure!(made.success(), "promtool: {made}");
        from_s = end_s;
    }
    Ok(std::fs::remove_file(text)?)
}

/// Writes the samples as Parquet, in the order of time like a table that grows.
fn share(csv: &Path, parquet: &Path, shape: Shape) -> Result<()> {
    let mut out = BufWriter::new(File::create(csv)?);
    writeln!(out, "ts_ms,hostname,{}", METRICS.join(","))?;
    let mut hosts: Vec<_> = (0..shape.hosts)
        .map(|host| (shape.times_ms(host), Walk::of(host)))
        .collect();
    'all: loop {
        for (host, (times, walk)) in hosts.iter_mut().enumerate() {
            let Some(ms) = times.next() else { break 'all };
            let numbers = walk.next().map(|number| number.to_string()).join(",");
            writeln!(out, "{ms},host_{host},{numbers}")?;
        }
    }
    out.flush()?;
    let mut duckdb = Peer::start(System::DuckDb, Path::new(":memory:"))?;
    let doubles = METRICS.map(|metric| format!("{metric}::DOUBLE AS {metric}"));
    duckdb.query(&format!(
        "COPY (SELECT make_timestamptz(ts_ms * 1000) AS ts, hostname, {} FROM read_csv('{}')) TO '{}' (FORMAT parquet, COMPRESSION zstd)",
        doubles.join(", "),
        csv.display(),
        parquet.display()
    ))?;
    Ok(std::fs::remove_file(csv)?)
}

/// A server over existing blocks.
pub struct Prometheus {
    process: Child,
    pub address: String,
}

impl Prometheus {
    fn start(place: &Path, tsdb: &Path) -> Result<Prometheus> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let config = place.join("prometheus.yml");
        std::fs::write(&config, "global: {}\n")?;
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", tsdb.display()))
            .arg("--storage.tsdb.retention.time=100y")
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(File::create(place.join("prometheus.log"))?)
            .spawn()
            .context("starting prometheus, of Debian's package of that name")?;
        let prometheus = Prometheus { process, address };
        let answers = || {
            let asked = Peer::start(System::Prometheus, Path::new(&prometheus.address))?
                .query(r#"[{"query": "vector(1)", "time": 1}]"#);
            Ok(asked.is_ok())
        };
        ensure!(wait_until(answers)?, "prometheus does not answer");
        Ok(prometheus)
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _already_ended = self.process.kill();
        let _status = self.process.wait();
    }
}
