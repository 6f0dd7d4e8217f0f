//! `ingestd pins`: lists the records that rules kept around their alerts.

use std::path::PathBuf;
use std::process::ExitCode;

use ingestd::config::ByteSize;
use ingestd::output::pins::list;
use ingestd::rfc3339;
use loom_engine::Timestamp;
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
            // If a pin cannot be read, `missing` says why.
            let known = |text: String| match pin.rule.is_empty() {
                true => "-".to_owned(),
                false => text,
            };
            table.row([
                known(pin.rule.clone()),
                known(rfc3339(Timestamp(pin.from_ns))),
                known(rfc3339(Timestamp(pin.to_ns))),
                known(records.to_string()),
                ByteSize(pinned.bytes).approximately(),
                pin.missing.unwrap_or_else(|| "-".to_owned()),
                pinned.path.display().to_string(),
            ]);
        }
        show(table.render())?;
        Ok(ExitCode::SUCCESS)
    }
}
