//! Measures the cost of a record for the thread that pushes it: `cargo run --release -p loom-engine --example ingest_cost -- --help`.
//!
//! Prints one line a case: its thread's CPU time a record, records a second until all is synced, bytes on disk a record, stalls. Cases are
//! repeated in turn, so that runs of two builds of this program can be interleaved, and the median and both extremes are printed.

#![expect(clippy::unwrap_used, reason = "a benchmark fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loom_engine::SourceId;
use loom_engine::ingest::{Batch, Writer, WriterOptions};
use loom_engine::schema::parse_sources;

const HELP: &str = "ingest_cost [FOLDER=.] [key=value]...: records (millions), runs, mode (push|batch), batch, payload, indexes, sources, \
encoders, rate (millions a second), bins (auto|edges)";

struct Case {
    folder: PathBuf,
    records: usize,
    runs: usize,
    batch: usize,
    payload: usize,
    indexes: usize,
    sources: usize,
    encoders: usize,
    /// Records a second.
    rate: Option<f64>,
    edges: bool,
}

fn main() {
    let mut case = Case {
        folder: ".".into(),
        records: 20_000_000,
        runs: 5,
        batch: 1,
        payload: 48,
        indexes: 1,
        sources: 1,
        encoders: 1,
        rate: None,
        edges: false,
    };
    for argument in std::env::args().skip(1) {
        match argument.split_once('=') {
            None if argument == "--help" => return println!("{HELP}"),
            None => case.folder = argument.into(),
            Some(("records", millions)) => {
                case.records = millions.parse::<usize>().unwrap() * 1_000_000
            }
            Some(("runs", runs)) => case.runs = runs.parse().unwrap(),
            Some(("mode", mode)) => case.batch = if mode == "push" { 1 } else { 1024 },
            Some(("batch", batch)) => case.batch = batch.parse().unwrap(),
            Some(("payload", bytes)) => case.payload = bytes.parse().unwrap(),
            Some(("indexes", indexes)) => case.indexes = indexes.parse().unwrap(),
            Some(("sources", sources)) => case.sources = sources.parse().unwrap(),
            Some(("encoders", encoders)) => case.encoders = encoders.parse().unwrap(),
            Some(("rate", millions)) => case.rate = Some(1e6 * millions.parse::<f64>().unwrap()),
            Some(("bins", bins)) => case.edges = bins == "edges",
            Some((key, _)) => panic!("{key}? {HELP}"),
        }
    }
    let payloads = case.payloads();
    let mut runs: Vec<Run> = (0..case.runs).map(|_| case.run(&payloads)).collect();
    runs.sort_by_key(|run| run.cpu);
    let ns = |run: &Run| run.cpu.as_nanos() as f64 / case.records as f64;
    let [first, middle, last] = [0, runs.len() / 2, runs.len() - 1].map(|at| runs.get(at).unwrap());
    println!(
        "{} batch={} payload={} indexes={} sources={} encoders={}: {:.2} ns ({:.2} to {:.2}), {:.1} M/s; wall {:.1} M/s, {:.0} MB/s; {:.2} B on disk; stalls {} {:?}",
        if case.edges { "edges" } else { "auto" },
        case.batch,
        case.payload,
        case.indexes,
        case.sources,
        case.encoders,
        ns(middle),
        ns(first),
        ns(last),
        1e3 / ns(middle),
        case.records as f64 / 1e6 / middle.wall.as_secs_f64(),
        middle.disk_bytes as f64 / 1e6 / middle.wall.as_secs_f64(),
        middle.disk_bytes as f64 / case.records as f64,
        middle.stalls,
        middle.stall,
    );
}

struct Run {
    cpu: Duration,
    /// Until everything is on disk, synced.
    wall: Duration,
    disk_bytes: u64,
    stalls: u64,
    stall: Duration,
}

impl Case {
    /// 4096 payloads, back to back: their first field has values whose logarithms are even over 14 octaves.
    fn payloads(&self) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15u64;
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut payloads = Vec::new();
        for _ in 0..4096 {
            let octave = draw() % 14;
            let value = (1000 << octave) + draw() % (1000 << octave);
            payloads.extend_from_slice(&value.to_le_bytes());
            payloads.resize(payloads.len() + self.payload - 8, value as u8);
        }
        payloads
    }

    fn definition(&self, name: usize) -> String {
        let mut text = format!(
            "[[source]]\nname = \"s{name}\"\n[[source.field]]\nname = \"v\"\ntype = \"u64\"\n"
        );
        if self.payload > 8 {
            text += &format!(
                "[[source.field]]\nname = \"rest\"\ntype = \"bytes[{}]\"\n",
                self.payload - 8
            );
        }
        for index in 0..self.indexes {
            text += &format!("[[source.index]]\nname = \"i{index}\"\nvalue = \"v\"\n");
            if self.edges {
                text += "bins = { from = 1000, factor = 2, count = 14 }\n";
            }
        }
        text
    }

    fn run(&self, payloads: &[u8]) -> Run {
        let place = tempfile::Builder::new()
            .prefix("loom-cost-")
            .tempdir_in(&self.folder)
            .unwrap();
        let dir = place.path().join("cost.loom");
        let mut options = WriterOptions::default();
        options.log.encoders = self.encoders;
        let mut writer = Writer::open(&dir, options).unwrap();
        let sources: Vec<SourceId> = (0..self.sources)
            .map(|name| {
                let defs = parse_sources(&self.definition(name)).unwrap();
                writer.define_source(defs.first().unwrap()).unwrap()
            })
            .collect();
        let mut turn = sources.iter().copied().cycle();
        let (began, started) = (Instant::now(), cpu_time());
        let mut left = self.records;
        while left > 0 {
            for bytes in payloads.chunks(self.payload * self.batch) {
                let source = turn.next().unwrap();
                if self.batch == 1 {
                    writer.push(source, bytes).unwrap();
                } else {
                    let record_bytes = self.payload;
                    writer
                        .push_batch(
                            source,
                            &Batch::Fixed {
                                bytes,
                                record_bytes,
                            },
                        )
                        .unwrap();
                }
            }
            left = left.saturating_sub(4096);
            if let Some(rate) = self.rate {
                let due = Duration::from_secs_f64((self.records - left) as f64 / rate);
                std::thread::sleep(due.saturating_sub(began.elapsed()));
            }
            if left % (16 * 4096) < 4096 {
                writer.tick().unwrap();
            }
        }
        let cpu = cpu_time() - started;
        let log = writer.stats().log;
        writer.close().unwrap();
        Run {
            cpu,
            wall: began.elapsed(),
            disk_bytes: ["records", "chunks", "times"]
                .iter()
                .map(|log| folder_bytes(&dir.join(log)))
                .sum(),
            stalls: log.stalls,
            stall: log.stall,
        }
    }
}

fn folder_bytes(folder: &Path) -> u64 {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}

/// CPU time of this thread. The kernel brings its account up to date when the thread gives way.
fn cpu_time() -> Duration {
    std::thread::yield_now();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let ns = told.split_whitespace().next().unwrap();
    Duration::from_nanos(ns.parse().unwrap())
}
