//! The flight recorder: the spans that alerts and people ask to keep. Each waits until it has passed, and is then written as a pin, one at a time and at the
//! lowest priority.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::bail;
use loom_engine::ingest::ClockStep;
use loom_engine::query::{Directory, Poll, Snapshot};
use loom_engine::{TimeRange, Timestamp};

use super::{ByHand, Rules};
use crate::config::{PinSpan, RetentionConfig};
use crate::output::pins::{self, Pinned, Wanted};
use crate::rules::records::{Alert, clock_steps};
use crate::rules::watch::nanos;

/// Spans that wait, of all rules together.
const WAITING_MAX: usize = 100;
/// The wall clock and arrival time agree unless they are this far apart.
const APART_NS: i64 = 1_000_000_000;

#[derive(Default)]
pub(super) struct FlightRecorder {
    waiting: VecDeque<Asked>,
    writing: Option<JoinHandle<()>>,
}

/// The span around an alert, or before a request, to be kept.
struct Asked {
    by: By,
    /// The end of the alert's window, or of the span that a person asks for.
    at: Timestamp,
    pin: PinSpan,
    /// Arrival time minus wall clock.
    ahead_ns: i64,
}

/// The origin of a pin, which learns its outcome.
#[derive(Clone)]
pub(super) enum By {
    Alert(Alert),
    Hand(ByHand),
}

impl Asked {
    /// The end of its span.
    fn end(&self) -> Timestamp {
        Timestamp(self.at.0.saturating_add(nanos(self.pin.after)))
    }

    /// Returns its spans. `pin` counts elapsed time, so a forward step of the clock moves the begin of the span further back.
    fn wanted(&self, snapshot: &mut Snapshot) -> Wanted {
        let (at, end) = (self.at, self.end());
        let (steps, unknown) = match snapshot.ask_retained(clock_steps) {
            Ok(mut steps) => {
                steps.reverse();
                (steps, None)
            }
            Err(error) => (Vec::new(), Some(error)),
        };
        let first = ClockStep::time_before(&steps, at, self.pin.before);
        let span = TimeRange::half_open(first, end);
        let shifted = |time: Timestamp| Timestamp(time.0.saturating_sub(self.ahead_ns));
        let own_span = match self.ahead_ns.saturating_abs() < APART_NS {
            true => span,
            false => TimeRange::half_open(shifted(first), shifted(end)),
        };
        let after = steps.iter().find(|step| step.to > at && step.from < end);
        let left_out = match (unknown, after) {
            (Some(error), _) => Some(format!(
                "cannot read whether the wall clock stepped: {error}"
            )),
            (None, Some(step)) => Some(format!(
                "the wall clock stepped forward by {} s after the alert, so the span ends earlier",
                step.length().as_secs()
            )),
            (None, None) => None,
        };
        let (name, by_hand, sources) = match &self.by {
            By::Alert(alert) => (&alert.rule, false, Vec::new()),
            By::Hand(asked) => (&asked.name, true, asked.sources.clone()),
        };
        Wanted {
            name: name.clone(),
            by_hand,
            sources,
            span,
            own_span,
            left_out,
        }
    }
}

impl FlightRecorder {
    /// Keeps the span around an alert, once it has passed. An error is the reason against it.
    pub(super) fn want(
        &mut self,
        alert: &Alert,
        pin: PinSpan,
        ahead_ns: i64,
    ) -> Result<(), String> {
        let is_same = |asked: &Asked| matches!(&asked.by, By::Alert(of) if of.rule == alert.rule);
        if self.waiting.iter().any(is_same) {
            return Err("skipped: a pin of the rule waits to be written".to_owned());
        }
        self.require_place()?;
        self.resume(alert.clone(), pin, ahead_ns);
        Ok(())
    }

    /// Keeps the records that arrived within `before` until `at`. An error is the reason against it.
    pub(super) fn want_by_hand(
        &mut self,
        asked: ByHand,
        (at, before): (Timestamp, Duration),
        ahead_ns: i64,
    ) -> Result<(), String> {
        self.require_place()?;
        let pin = PinSpan {
            before,
            after: Duration::ZERO,
        };
        self.waiting.push_back(Asked {
            by: By::Hand(asked),
            at,
            pin,
            ahead_ns,
        });
        Ok(())
    }

    fn require_place(&self) -> Result<(), String> {
        match self.waiting.len() < WAITING_MAX {
            true => Ok(()),
            false => Err(format!("skipped: {WAITING_MAX} pins wait to be written")),
        }
    }

    /// Waits again for a pin that an earlier daemon had not written.
    pub(super) fn resume(&mut self, alert: Alert, pin: PinSpan, ahead_ns: i64) {
        self.waiting.push_back(Asked {
            at: alert.window.end(),
            by: By::Alert(alert),
            pin,
            ahead_ns,
        });
    }

    /// Returns the end of the next span, if one waits. While a pin is being written, `None`: its outcome wakes the keeper.
    pub(super) fn next(&self) -> Option<Timestamp> {
        match &self.writing {
            Some(_) => None,
            None => self.waiting.iter().map(Asked::end).min(),
        }
    }

    /// Notes that the pin that was being written has an outcome.
    pub(super) fn written(&mut self) {
        self.writing = None;
    }

    /// True if a span has passed by now that can be written.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        self.next().is_some_and(|next| next <= now)
    }

    /// Begins to write a span that has passed by now. Returns its origin if it cannot.
    pub(super) fn write(
        &mut self,
        now: Timestamp,
        directory: &Arc<Directory>,
        limits: &RetentionConfig,
        rules: &Rules,
        stopping: &Arc<AtomicBool>,
    ) -> Option<(By, String)> {
        if !self.is_due(now) {
            return None;
        }
        let passed = self.waiting.iter().position(|asked| asked.end() <= now)?;
        let asked = self.waiting.remove(passed)?;
        let by = asked.by.clone();
        let spawned = std::thread::Builder::new()
            .name("loom-pin".to_owned())
            .spawn({
                let (directory, rules) = (Arc::clone(directory), rules.clone());
                let (stopping, limits) = (Arc::clone(stopping), limits.clone());
                move || {
                    // It sets the priority of this thread alone; without it a pin only disturbs more.
                    let _ = rustix::process::nice(19);
                    let interrupted = || stopping.load(Ordering::Relaxed);
                    let poll = Poll::new(&interrupted);
                    let written = catch_unwind(AssertUnwindSafe(|| {
                        write(&directory, &asked, &limits, &poll)
                    }));
                    // The keeper waits for the outcome, whatever it is.
                    let written = written.unwrap_or_else(|_| bail!("its thread panicked"));
                    let result = written.map_err(|error| format!("{error:#}"));
                    // A keeper that is gone records nothing.
                    let _ = rules.send(move |keeper| keeper.pinned(asked.by, result));
                }
            });
        match spawned {
            Ok(thread) => {
                self.writing = Some(thread);
                None
            }
            Err(error) => Some((by, format!("cannot start a thread: {error}"))),
        }
    }

    /// Waits for the pin that is being written. Returns the origins of those that were not begun.
    pub(super) fn stop(&mut self) -> Vec<By> {
        if let Some(thread) = self.writing.take() {
            crate::threads::join(thread);
        }
        self.waiting.drain(..).map(|asked| asked.by).collect()
    }
}

fn write(
    directory: &Arc<Directory>,
    asked: &Asked,
    limits: &RetentionConfig,
    poll: &Poll<'_>,
) -> anyhow::Result<(Pinned, Vec<String>)> {
    let mut snapshot = directory.snapshot()?;
    let wanted = asked.wanted(&mut snapshot);
    pins::write(&snapshot, &wanted, limits, poll)
}
