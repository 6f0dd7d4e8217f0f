//! `ingestd top`: shows rates of each source every second.

use std::collections::HashMap;
use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ingestd::client::Client;
use ingestd::config::ByteSize;
use ingestd::daemon::{DaemonStatus, SourceStatus};
use ingestd::wall_clock;

use super::status::{heading, oldest};
use super::table::Column::{Number, Text};
use super::table::{Table, count};

const INTERVAL: Duration = Duration::from_secs(1);
const FIRST_INTERVAL: Duration = Duration::from_millis(250);
/// Clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Show rates and losses of each source every second, until Ctrl-C
#[derive(clap::Args)]
#[command(after_help = "Example:\n  ingestd top /var/lib/loom")]
pub struct Args {
    /// Loom directory
    dir: PathBuf,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let client = Client::connect(&self.dir)?;
        let clear = if stdout().is_terminal() { CLEAR } else { "" };
        // The first screen has rates of a shorter interval.
        let mut before = by_id(DaemonStatus::from_json(&client.status()?)?);
        let mut at = Instant::now();
        std::thread::sleep(FIRST_INTERVAL);
        loop {
            let status = DaemonStatus::from_json(&client.status()?)?;
            let elapsed = at.elapsed();
            at = Instant::now();
            let table = rates(&status, &before, elapsed);
            let mut out = stdout().lock();
            // A closed pipe ends the command.
            if write!(
                out,
                "{clear}{}{}",
                heading(&status, oldest(&self.dir).as_deref()),
                table.render()
            )
            .and_then(|()| out.flush())
            .is_err()
            {
                return Ok(ExitCode::SUCCESS);
            }
            drop(out);
            before = by_id(status);
            std::thread::sleep(INTERVAL);
        }
    }
}

fn by_id(status: DaemonStatus) -> HashMap<u16, SourceStatus> {
    let sources = status.sources.into_iter();
    sources.map(|source| (source.id, source)).collect()
}

fn rates(
    status: &DaemonStatus,
    before: &HashMap<u16, SourceStatus>,
    elapsed: Duration,
) -> Table<7> {
    let mut table = Table::new([
        Text("source"),
        Number("records/s"),
        Number("payload/s"),
        Number("lag"),
        Number("stored"),
        Number("refused"),
        Number("dropped"),
    ]);
    let now = wall_clock();
    for source in &status.sources {
        // A new source has no earlier counts.
        let earlier = before.get(&source.id);
        let per_s = |now: u64, then: Option<u64>| match then {
            Some(then) => {
                (now.saturating_sub(then) as f64 / elapsed.as_secs_f64().max(1e-3)) as u64
            }
            None => 0,
        };
        // If the clock was set back since the last push, the lag is 0.
        let lag = source
            .last_push_ns
            .map(|last| Duration::from_nanos(now.0.saturating_sub(last).max(0) as u64));
        table.row([
            source.name.clone(),
            count(per_s(
                source.received,
                earlier.map(|earlier| earlier.received),
            )),
            ByteSize(per_s(source.bytes, earlier.map(|earlier| earlier.bytes))).approximately(),
            lag.map_or_else(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_the_interval() {
        let source = |received| SourceStatus {
            id: 1,
            name: "x".to_owned(),
            received,
            ..SourceStatus::default()
        };
        let status = DaemonStatus {
            sources: vec![source(3000)],
            ..DaemonStatus::default()
        };
        let before = HashMap::from([(1, source(1000))]);
        let text = rates(&status, &before, Duration::from_secs(2)).render();
        assert!(
            text.lines()
                .nth(1)
                .unwrap()
                .starts_with("x           1,000"),
            "{text}"
        );
        let first = rates(&status, &HashMap::new(), Duration::from_secs(2)).render();
        assert!(
            first
                .lines()
                .nth(1)
                .unwrap()
                .starts_with("x               0"),
            "{first}"
        );
    }
}
