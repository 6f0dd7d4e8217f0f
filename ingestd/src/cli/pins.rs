//! `ingestd pins`: lists the records that rules kept around their alerts, and those that were pinned by hand.

use std::path::PathBuf;
use std::process::ExitCode;

use ingestd::config::ByteSize;
use ingestd::output::pins::{Pin, Pinned, PinnedSource, list};
use ingestd::rfc3339;
use loom_engine::Timestamp;
use loom_engine::log::LogReader;
use serde::Serialize;

use super::form::Form;
use super::table::Column::{Number, Text};
use super::table::Table;

/// List the pins: the records that rules kept around their alerts, or that were pinned by hand
///
/// Each pin is a folder with one Parquet file for each source. Remove a folder to remove its pin.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ingestd pins /var/lib/loom")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,
    #[command(flatten)]
    form: Form,
}

/// The document of `pins --json`, the oldest pin first.
#[derive(Serialize)]
struct Pins {
    pins: Vec<ListedPin>,
}

/// If a pin cannot be read, its id, size and path alone are known, and `missing` says why.
#[derive(Serialize)]
struct ListedPin {
    id: String,
    /// The rule, or the name that a person gave it.
    name: Option<String>,
    /// `rule` or `hand`.
    kept_by: Option<&'static str>,
    from: Option<String>,
    to: Option<String>,
    records: Option<u64>,
    bytes: u64,
    missing: Option<String>,
    path: PathBuf,
    sources: Option<Vec<PinnedSource>>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        LogReader::open(&self.dir)?;
        let pins = list(&self.dir)?.into_iter().map(listed);
        let pins = Pins {
            pins: pins.collect(),
        };
        self.form.answer(|| &pins, || text(&pins.pins))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn listed(Pinned { pin, path, bytes }: Pinned) -> ListedPin {
    let is_read = !pin.rule.is_empty();
    let Pin {
        id,
        rule: name,
        by_hand,
        sources,
        missing,
        ..
    } = pin;
    let kept_by = if by_hand { "hand" } else { "rule" };
    let time = |time_ns| is_read.then(|| rfc3339(Timestamp(time_ns)));
    let records = sources.iter().map(|source| source.records).sum();
    ListedPin {
        id,
        name: is_read.then_some(name),
        kept_by: is_read.then_some(kept_by),
        from: time(pin.from_ns),
        to: time(pin.to_ns),
        records: is_read.then_some(records),
        bytes,
        missing,
        path,
        sources: is_read.then_some(sources),
    }
}

fn text(pins: &[ListedPin]) -> String {
    let mut table = Table::new([
        Text("name"),
        Text("kept by"),
        Text("from"),
        Text("to"),
        Number("records"),
        Number("size"),
        Text("missing"),
        Text("path"),
    ]);
    let known = |text: Option<&str>| text.unwrap_or("-").to_owned();
    for pin in pins {
        table.row([
            known(pin.name.as_deref()),
            known(pin.kept_by),
            known(pin.from.as_deref()),
            known(pin.to.as_deref()),
            known(pin.records.map(|records| records.to_string()).as_deref()),
            ByteSize(pin.bytes).approximately(),
            known(pin.missing.as_deref()),
            pin.path.display().to_string(),
        ]);
    }
    table.render()
}
