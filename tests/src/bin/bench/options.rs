//! The options of the command line: the parts to run, and their sizes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};

/// Measures Loom beside other stores and prints one Markdown table.
#[derive(Parser)]
pub struct Options {
    /// The full sizes: up to 40 GB of disk
    #[arg(long)]
    pub full: bool,
    /// Only these parts; `lookback` and `column-lookback` run by this alone
    #[arg(long, value_enum)]
    pub only: Vec<Part>,
    /// A folder on the disk to measure
    #[arg(long, default_value = ".")]
    pub folder: PathBuf,
    /// A file for the table, beside standard output
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// A folder that keeps the directory of the queries and the peers' copies for the next run
    #[arg(long)]
    pub dataset: Option<PathBuf>,
    /// Runs of each thing; the median counts
    #[arg(long)]
    runs: Option<usize>,
    /// Cold runs of each query
    #[arg(long)]
    cold_runs: Option<usize>,
    /// Records of each ingest run
    #[arg(long)]
    ingest_records: Option<u64>,
    /// Records of the directory that is queried
    #[arg(long)]
    query_records: Option<u64>,
    /// `devops`: how many hosts report, in turn
    #[arg(long, value_delimiter = ',')]
    pub hosts: Vec<usize>,
    /// Both lookbacks: how long records come in
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Both lookbacks: records a second; 8,000,000 without columns, else 3,000,000
    #[arg(long)]
    rate: Option<u64>,
}

#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Part {
    /// P1 and P2: one source
    Ingest,
    /// P3 and F2: to disk, for a while
    Sustained,
    /// Sources and indexes
    Shapes,
    /// Tens of thousands of sources
    Sources,
    /// The daemon's path
    Socket,
    /// Shared memory: a push, and the way into the log
    Ring,
    /// Other stores
    Stores,
    /// Files of other formats
    Load,
    /// Other lengths of records; in the full run
    Lengths,
    /// P4 to P7
    Queries,
    /// No index, one, both; in the full run
    Ablation,
    /// C1 to C7: rows and columns
    Columns,
    /// Questions as a person types them, beside DuckDB's own table and Parquet
    Plain,
    /// F7: one key among many records
    Keys,
    /// Words in the lines of logs, beside a text index and grep
    Words,
    /// F3 to F5: what a daemon writes at a steady rate, and questions about its newest rows
    Flush,
    /// P9: live against idle
    Live,
    /// A dashboard's charts while records come in
    Charts,
    /// Dashboards of up to 16 processes while records come in
    Readers,
    /// The cost of rules, and the delay of their alerts
    Rules,
    /// Metrics of hosts: TSBS' queries beside Prometheus
    Devops,
    /// Starts and first queries of directories with many chunks and segments
    Large,
    /// P8: queries while records come in for minutes
    Lookback,
    /// C8: the same of the demo's daemon
    ColumnLookback,
}

/// The sizes of the parts.
pub struct Sizes {
    pub runs: usize,
    pub cold_runs: usize,
    pub ingest_records: u64,
    pub sustained: Duration,
    pub raw_bytes: u64,
    pub kept_bytes: u64,
    pub shape_records: u64,
    pub shape_runs: usize,
    pub store_records: u64,
    /// Rows of each loaded file.
    pub load_rows: u64,
    pub length_bytes: u64,
    pub query_records: u64,
    pub query_rate: u64,
    /// Records of the demo.
    pub column_records: u64,
    /// Records of the demo for plain SQL; a third as many lines of a log come to them.
    pub plain_records: u64,
    /// Records of which one key is looked up.
    pub key_records: u64,
    /// Lines in which words are looked for.
    pub word_lines: u64,
    pub live_rate: u64,
    /// How long the demo records before it is asked.
    pub flush_seconds: u64,
    /// The window of a chart.
    pub chart_seconds: u64,
    /// Sources of the part with many sources. Each has a record a second.
    pub sources: usize,
    pub source_seconds: usize,
    /// How long the dashboards of the processes are refreshed.
    pub reader_seconds: u64,
    /// How long the cost of rules is measured.
    pub rule_seconds: u64,
    pub rule_alerts: u64,
    /// The numbers of hosts in the part with metrics, in turn.
    pub devops_hosts: &'static [usize],
    /// Records of each large directory, 57 bytes each.
    pub large_records: &'static [u64],
}

pub struct LiveSizes {
    pub seconds: u64,
    pub rate: u64,
    pub lookbacks: Vec<u64>,
}

/// All parts together take less than three minutes on two cores.
const SMALL: Sizes = Sizes {
    runs: 3,
    cold_runs: 1,
    ingest_records: 5_000_000,
    sustained: Duration::from_secs(3),
    raw_bytes: 1 << 30,
    kept_bytes: 4 << 30,
    shape_records: 4_000_000,
    shape_runs: 1,
    store_records: 1_000_000,
    load_rows: 300_000,
    length_bytes: 200_000_000,
    query_records: 4_000_000,
    query_rate: 1_000_000,
    column_records: 4_000_000,
    plain_records: 4_000_000,
    key_records: 2_000_000,
    word_lines: 1_000_000,
    live_rate: 2_000_000,
    flush_seconds: 8,
    chart_seconds: 5,
    sources: 5_000,
    source_seconds: 3,
    reader_seconds: 4,
    rule_seconds: 4,
    rule_alerts: 500,
    devops_hosts: &[10],
    large_records: &[1_000_000, 4_000_000],
};

const FULL: Sizes = Sizes {
    runs: 5,
    cold_runs: 5,
    ingest_records: 40_000_000,
    sustained: Duration::from_secs(60),
    raw_bytes: 20 << 30,
    kept_bytes: 10 << 30,
    shape_records: 20_000_000,
    shape_runs: 5,
    store_records: 8_000_000,
    load_rows: 8_000_000,
    length_bytes: 1_000_000_000,
    query_records: 73_000_000,
    query_rate: 4_000_000,
    column_records: 60_000_000,
    plain_records: 60_000_000,
    key_records: 100_000_000,
    word_lines: 10_000_000,
    live_rate: 8_000_000,
    flush_seconds: 60,
    chart_seconds: 60,
    sources: 60_000,
    source_seconds: 60,
    reader_seconds: 20,
    rule_seconds: 20,
    rule_alerts: 10_000,
    devops_hosts: &[100, 1000],
    large_records: &[18_000_000, 180_000_000],
};

impl Options {
    pub fn sizes(&self) -> Sizes {
        let sizes = if self.full { FULL } else { SMALL };
        Sizes {
            runs: self.runs.unwrap_or(sizes.runs).max(1),
            cold_runs: self.cold_runs.unwrap_or(sizes.cold_runs),
            ingest_records: self.ingest_records.unwrap_or(sizes.ingest_records),
            query_records: self.query_records.unwrap_or(sizes.query_records),
            ..sizes
        }
    }

    /// The sizes with `rate` records a second, unless the command line gives another rate.
    pub fn live_sizes(&self, rate: u64) -> LiveSizes {
        let far = self.seconds.saturating_sub(10).max(1);
        let mut lookbacks: Vec<u64> = [1, 10, 30, 60, 110]
            .into_iter()
            .filter(|lookback| *lookback < far)
            .chain([far])
            .collect();
        lookbacks.dedup();
        LiveSizes {
            seconds: self.seconds,
            rate: self.rate.unwrap_or(rate),
            lookbacks,
        }
    }

    pub fn wants(&self, part: Part) -> bool {
        if !self.only.is_empty() {
            return self.only.contains(&part);
        }
        match part {
            Part::Lookback | Part::ColumnLookback => false,
            Part::Lengths | Part::Ablation => self.full,
            _ => true,
        }
    }
}
