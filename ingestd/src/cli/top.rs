//! `ingestd top`: shows rates of each source every second.

use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ingestd::client::Client;
use ingestd::config::ByteSize;
use ingestd::daemon::DaemonStatus;

use super::form::Form;
use super::state::{Before, State, lag};
use super::status::{heading, oldest};
use super::table::Column::{Number, Text};
use super::table::{Table, count};

const INTERVAL: Duration = Duration::from_secs(1);
const FIRST_INTERVAL: Duration = Duration::from_millis(250);
/// Clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Show rates and losses of each source every second, until Ctrl-C
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd top /var/lib/loom
  ingestd top /var/lib/loom --once --json")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,
    /// Show the rates of a quarter of a second once, and end; so does --json
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    form: Form,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let client = Client::connect(&self.dir)?;
        // The first screen has rates of a shorter interval.
        let mut before = Before::of(DaemonStatus::from_json(&client.status()?)?);
        let mut at = Instant::now();
        std::thread::sleep(FIRST_INTERVAL);
        let clear = if stdout().is_terminal() { CLEAR } else { "" };
        loop {
            let status = DaemonStatus::from_json(&client.status()?)?;
            let elapsed = at.elapsed();
            at = Instant::now();
            let oldest = oldest(&self.dir);
            let text =
                || heading(&status, oldest.as_deref()) + &rates(&status, &before, elapsed).render();
            if self.once || self.form.json {
                let document =
                    || State::of_daemon(&status, oldest.clone(), Some((&before, elapsed)));
                self.form.answer(document, text)?;
                return Ok(ExitCode::SUCCESS);
            }
            let mut out = stdout().lock();
            // A closed pipe ends the command.
            let written = write!(out, "{clear}{}", text()).and_then(|()| out.flush());
            if written.is_err() {
                return Ok(ExitCode::SUCCESS);
            }
            drop(out);
            before = Before::of(status);
            std::thread::sleep(INTERVAL);
        }
    }
}

fn rates(status: &DaemonStatus, before: &Before, interval: Duration) -> Table<7> {
    let mut table = Table::new([
        Text("source"),
        Number("records/s"),
        Number("payload/s"),
        Number("lag"),
        Number("stored"),
        Number("refused"),
        Number("dropped"),
    ]);
    for source in &status.sources {
        let rates = before.rates(source, interval).unwrap_or_default();
        table.row([
            source.name.clone(),
            count(rates.records_per_s as u64),
            ByteSize(rates.payload_bytes_per_s as u64).approximately(),
            lag(source).map_or_else(
                || "-".to_owned(),
                |lag| format!("{:.3} s", lag.as_secs_f64()),
            ),
            count(source.stored),
            count(source.refused),
            count(source.dropped),
        ]);
    }
    table
}
