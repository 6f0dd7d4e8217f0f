//! The Markdown table at the end of a run, and the description of the machine.

use std::fmt::Write;
use std::path::Path;

use super::figures::{Figures, rounded};
use super::peer::Answer;

/// One line: the measured quantity, Loom's figure, and a peer's.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// The target that it belongs to, such as `P4`.
    pub target: &'static str,
    pub measure: String,
    /// Loom's figure, with its unit.
    pub loom: String,
    pub loom_cpu: String,
    pub peer: String,
    pub peer_figure: String,
    pub peer_cpu: String,
    /// How many times better Loom is.
    pub ratio: String,
    pub owed: String,
    /// Sizes, cache, timestamp granularity, durability.
    pub how: String,
}

/// Times of a query in one state of the file cache: wall and CPU, in ms.
#[derive(Debug, Default)]
pub struct Times {
    pub wall_ms: Figures,
    pub cpu_ms: Figures,
}

impl Times {
    pub fn push(&mut self, answer: &Answer) {
        self.wall_ms.push(answer.wall * 1e3);
        self.cpu_ms.push(answer.cpu * 1e3);
    }
}

impl Line {
    pub fn with_times(mut self, loom: &Times, peer: Option<(&str, &Times)>) -> Line {
        self.loom = format!("{} ms", loom.wall_ms);
        self.loom_cpu = format!("{} ms", rounded(loom.cpu_ms.median()));
        if let Some((name, times)) = peer {
            self.peer = name.to_owned();
            self.peer_figure = format!("{} ms", times.wall_ms);
            self.peer_cpu = format!("{} ms", rounded(times.cpu_ms.median()));
            self.ratio = rounded(times.wall_ms.median() / loom.wall_ms.median());
        }
        self
    }
}

/// The whole run as text.
pub fn render(lines: &[Line], sizes: &str, disk: &Path) -> String {
    let mut text = format!(
        "{}; {}; {sizes}. Medians (least to greatest) of interleaved runs; CPU of all threads unless it says otherwise; ratio: how many times better Loom is.\n\n",
        today(),
        machine(disk)
    );
    text.push_str(
        "| | measure | Loom | CPU | peer | its figure | its CPU | ratio | owed | original Loom, as published | how |\n",
    );
    text.push_str("|---|---|---|---|---|---|---|---|---|---|---|\n");
    for line in lines {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            line.target,
            line.measure,
            line.loom,
            line.loom_cpu,
            line.peer,
            line.peer_figure,
            line.peer_cpu,
            line.ratio,
            line.owed,
            published(line.target),
            line.how
        );
    }
    text
}

/// The figures of a target in the paper of the original Loom (SOSP 2025). They are of another machine, with 36 cores at 2.7 GHz.
fn published(target: &str) -> &'static str {
    let fact = PUBLISHED.iter().find(|(of, _)| *of == target);
    fact.map_or("", |(_, fact)| fact)
}

const PUBLISHED: [(&str, &str); 5] = [
    ("P1", "up to 9 M records/s on one core (§1, §6.1)"),
    (
        "P3",
        "10 minutes of 4.7 M records/s: 253 GiB of records, 3 GiB and 256 MiB of indexes (§4.2)",
    ),
    ("P4", "maxima and tail latencies in 0.5 to 3.2 s (§6.1)"),
    (
        "P6",
        "slow calls of a window of 120 s in less than 5 s (§6.4)",
    ),
    ("P8", "the same at any lookback (§6.4)"),
];

/// The date in UTC, in the form of RFC 3339.
fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

fn machine(disk: &Path) -> String {
    let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let after = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.split_once(':'));
        value.map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let processor = after(&file("/proc/cpuinfo"), "model name");
    let memory = after(&file("/proc/meminfo"), "MemTotal");
    let memory_gib = memory
        .split_whitespace()
        .next()
        .and_then(|kib| kib.parse::<u64>().ok())
        .unwrap_or_default()
        >> 20;
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = file("/proc/sys/kernel/osrelease");
    format!(
        "{processor}, {cores} cores, {memory_gib} GiB, Linux {}, disk {}",
        kernel.trim(),
        file_system(&file("/proc/mounts"), disk)
    )
}

/// The type of the file system that holds a folder, from the longest mount point above it.
fn file_system(mounts: &str, disk: &Path) -> String {
    let disk = disk.canonicalize().unwrap_or_else(|_| disk.to_owned());
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(point, _)| disk.starts_with(point))
        .max_by_key(|(point, _)| point.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}
