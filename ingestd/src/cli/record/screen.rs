//! The screen of a recording: a line for each source on a terminal, updated every second, below the log lines.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressStyle};
use ingestd::record::Recording;

/// The place of the lines. Log lines are written through it, because other output would be overwritten by updates.
#[derive(Clone, Default)]
pub(super) struct Lines(MultiProgress);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// The lines; none if standard error is not a terminal.
pub(super) struct Screen {
    lines: Vec<(ProgressBar, u64)>,
    shown: Instant,
}

impl Screen {
    pub(super) fn new(recording: &Recording, Lines(all): &Lines) -> Screen {
        let line = |_| {
            let bar = all.add(ProgressBar::no_length());
            if let Ok(style) = ProgressStyle::with_template("  {msg}") {
                bar.set_style(style);
            }
            (bar, 0)
        };
        let lines = if std::io::stderr().is_terminal() {
            recording.tallies().map(line).collect()
        } else {
            Vec::new()
        };
        Screen {
            lines,
            shown: Instant::now(),
        }
    }

    pub(super) fn show(&mut self, recording: &Recording) {
        let elapsed = self.shown.elapsed();
        if elapsed < Duration::from_secs(1) {
            return;
        }
        self.shown = Instant::now();
        for ((source, tally), (bar, before)) in recording.tallies().zip(&mut self.lines) {
            let records = tally.records();
            let rate = (records - *before) as f64 / elapsed.as_secs_f64();
            *before = records;
            bar.set_message(format!(
                "{source:<12} {:>15} records {:>12}/s   lost before Loom {}",
                HumanCount(records).to_string(),
                HumanCount(rate as u64).to_string(),
                HumanCount(tally.lost())
            ));
            bar.tick();
        }
    }

    pub(super) fn clear(&self) {
        for (bar, _) in &self.lines {
            bar.finish_and_clear();
        }
    }
}
