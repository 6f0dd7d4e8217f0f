//! The flight recorder: spans that alerts ask to keep, until each has passed and is written. One pin is written at a time, at the lowest priority.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use loom_engine::query::{Directory, Poll};
use loom_engine::{TimeRange, Timestamp};

use super::Rules;
use crate::config::PinSpan;
use crate::output::pins;
use crate::rules::records::Alert;
use crate::rules::watch::nanos;

/// Spans that wait, all rules together.
const WAITING_MAX: usize = 100;

#[derive(Default)]
pub(super) struct FlightRecorder {
    waiting: VecDeque<Wanted>,
    writing: Option<JoinHandle<()>>,
}

struct Wanted {
    alert: Alert,
    span: TimeRange,
}

impl FlightRecorder {
    /// Keeps what surrounds an alert, once it has passed. An error says why it does not.
    pub(super) fn want(&mut self, alert: &Alert, pin: PinSpan) -> Result<(), String> {
        if self
            .waiting
            .iter()
            .any(|wanted| wanted.alert.rule == alert.rule)
        {
            return Err("skipped: a pin of the rule waits to be written".to_owned());
        }
        if self.waiting.len() >= WAITING_MAX {
            return Err(format!("skipped: {WAITING_MAX} pins wait to be written"));
        }
        self.resume(alert.clone(), pin);
        Ok(())
    }

    /// Waits again for what a daemon that was killed had not written.
    pub(super) fn resume(&mut self, alert: Alert, pin: PinSpan) {
        let to = alert.window.end().0;
        let first = Timestamp(to.saturating_sub(nanos(pin.before)));
        let end = Timestamp(to.saturating_add(nanos(pin.after)));
        let span = TimeRange::half_open(first, end);
        self.waiting.push_back(Wanted { alert, span });
    }

    /// When the next span has passed.
    pub(super) fn next(&self) -> Option<Timestamp> {
        if self
            .writing
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
        {
            return None;
        }
        let ends = self.waiting.iter().map(|wanted| wanted.span.end());
        ends.min()
    }

    /// Begins to write a span that has passed by now. An alert comes back if it cannot.
    pub(super) fn write(
        &mut self,
        now: Timestamp,
        directory: &Arc<Directory>,
        bytes_max: u64,
        rules: &Rules,
        stopping: &Arc<AtomicBool>,
    ) -> Option<(Alert, String)> {
        if self.next().is_none_or(|next| next > now) {
            return None;
        }
        let passed = self
            .waiting
            .iter()
            .position(|wanted| wanted.span.last < now)?;
        let Wanted { alert, span } = self.waiting.remove(passed)?;
        let spawned =
            std::thread::Builder::new()
                .name("loom-pin".to_owned())
                .spawn({
                    let (directory, rules) = (Arc::clone(directory), rules.clone());
                    let (alert, stopping) = (alert.clone(), Arc::clone(stopping));
                    move || {
                        // Of this thread alone; without it a pin only disturbs more.
                        let _ = rustix::process::nice(19);
                        let interrupted = || stopping.load(Ordering::Relaxed);
                        let poll = Poll::new(&interrupted);
                        let written = directory.snapshot().map_err(anyhow::Error::from).and_then(
                            |snapshot| {
                                pins::write(
                                    directory.path(),
                                    &snapshot,
                                    &alert.rule,
                                    span,
                                    bytes_max,
                                    &poll,
                                )
                            },
                        );
                        let result = written.map_err(|error| format!("{error:#}"));
                        // A keeper that is gone records nothing.
                        let _ = rules.send(move |keeper| keeper.pinned(alert, result));
                    }
                });
        match spawned {
            Ok(thread) => {
                self.writing = Some(thread);
                None
            }
            Err(error) => Some((alert, format!("cannot start a thread: {error}"))),
        }
    }

    /// Waits for the pin that is being written. Returns the alerts whose spans had not passed.
    pub(super) fn stop(&mut self) -> Vec<Alert> {
        if let Some(thread) = self.writing.take() {
            crate::daemon::join(thread);
        }
        self.waiting.drain(..).map(|wanted| wanted.alert).collect()
    }
}
