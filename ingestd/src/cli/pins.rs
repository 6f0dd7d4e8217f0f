//! `ingestd pins`: what rules kept around their alerts.

use std::path::PathBuf;
use std::process::ExitCode;

use ingestd::config::ByteSize;
use ingestd::output::pins::list;
use loom_engine::log::LogReader;

use super::stdout::show;
use super::table::Column::{Number, Text};
use super::table::Table;

/// List the pins: the records that rules kept around their alerts
///
/// Each pin is a folder with one Parquet file for each source. Remove a folder to remove its pin.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ingestd pins /var/lib/loom")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        LogReader::open(&self.dir)?;
        let mut table = Table::new([
            Text("rule"),
            Text("from"),
            Text("to"),
            Number("records"),
            Number("size"),
            Text("missing"),
            Text("path"),
        ]);
        for pinned in list(&self.dir)? {
            let pin = pinned.pin;
            let records: u64 = pin.sources.iter().map(|source| source.records).sum();
            table.row([
                pin.rule,
                shown(pin.from_ns),
                shown(pin.to_ns),
                records.to_string(),
                ByteSize(pinned.bytes).approximately(),
                pin.missing.unwrap_or_else(|| "-".to_owned()),
                pinned.path.display().to_string(),
            ]);
        }
        show(table.render())?;
        Ok(ExitCode::SUCCESS)
    }
}

fn shown(ns: i64) -> String {
    jiff::Timestamp::from_nanosecond(ns.into())
        .map_or_else(|_| ns.to_string(), |time| time.to_string())
}
