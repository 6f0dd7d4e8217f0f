//! The screen of a recording: a line for each source on a terminal, updated every second, below the log lines.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{HumanCount, MultiProgress, ProgressBar, ProgressStyle};
use ingestd::record::{Recording, Usage};

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
    /// The processor time of the recording.
    usage: Option<ProgressBar>,
    shown: Instant,
}

impl Screen {
    pub(super) fn new(recording: &Recording, Lines(all): &Lines) -> Screen {
        let bar = || {
            let bar = all.add(ProgressBar::no_length());
            if let Ok(style) = ProgressStyle::with_template("  {msg}") {
                bar.set_style(style);
            }
            bar
        };
        let (lines, usage) = if std::io::stderr().is_terminal() {
            let lines = recording.tallies().map(|_| (bar(), 0)).collect();
            (lines, Some(bar()))
        } else {
            (Vec::new(), None)
        };
        Screen {
            lines,
            usage,
            shown: Instant::now(),
        }
    }

    pub(super) fn show(&mut self, recording: &Recording, usage: Option<Usage>) {
        let elapsed = self.shown.elapsed();
        if elapsed < Duration::from_secs(1) {
            return;
        }
        self.shown = Instant::now();
        for ((source, tally), (bar, before)) in recording.tallies().zip(&mut self.lines) {
            let records = tally.records();
            let rate = (records - *before) as f64 / elapsed.as_secs_f64();
            *before = records;
            let sampled = match tally.sampled() {
                0 => String::new(),
                left_out => format!("   left out {}", HumanCount(left_out)),
            };
            bar.set_message(format!(
                "{source:<12} {:>15} records {:>12}/s   lost before Loom {}{sampled}",
                HumanCount(records).to_string(),
                HumanCount(rate as u64).to_string(),
                HumanCount(tally.lost())
            ));
            bar.tick();
        }
        if let (Some(bar), Some(usage)) = (&self.usage, usage) {
            bar.set_message(format!("It takes {usage}"));
            bar.tick();
        }
    }

    pub(super) fn clear(&self) {
        for bar in self.lines.iter().map(|(bar, _)| bar).chain(&self.usage) {
            bar.finish_and_clear();
        }
    }
}
