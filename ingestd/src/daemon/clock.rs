//! Reports steps of the wall clock by a warning and a record in `loom_alerts`. A restart reads the records, so that `max_age` goes by the time that has passed.
//!
//! The writer thread looks before each publish.

use std::path::Path;
use std::time::Duration;

use loom_engine::ingest::{ClockStep, Writer};
use loom_engine::query::Directory;
use loom_engine::{Error, TimeRange};

use crate::rules::records::{Alert, AlertState, alerts_source, clock_steps};

/// Shorter steps are not reported.
const STEP_MIN: Duration = Duration::from_secs(60);
/// Steps that wait for room in the log; the daemon's log alone has later ones.
const WAITING_MAX: usize = 64;
/// Fills the field for the name of a rule.
const NAME: &str = "loom_clock";

pub(super) struct ClockWatch {
    noted: Option<ClockStep>,
    waiting: Vec<ClockStep>,
}

impl ClockWatch {
    /// Gives the writer the steps that the directory has.
    pub(super) fn open(dir: &Path, writer: &mut Writer) -> Result<ClockWatch, Error> {
        let snapshot = Directory::beside_writer(dir)?.snapshot()?;
        match clock_steps(&snapshot) {
            Ok(earlier) => writer.restore_clock_steps(earlier),
            Err(error) => tracing::error!(
                "cannot read the steps of the clock: {error}; [retention] max_age counts them as time that has passed"
            ),
        }
        Ok(ClockWatch {
            noted: writer.latest_clock_step(),
            waiting: Vec::new(),
        })
    }

    /// Reports a new step, and records the waiting ones while there is room.
    pub(super) fn look(&mut self, writer: &mut Writer) -> Result<(), Error> {
        let latest = writer.latest_clock_step();
        if latest != self.noted {
            self.noted = latest;
            if let Some(step) = latest.filter(|step| step.length() >= STEP_MIN) {
                tracing::warn!("{}", sentence(step));
                if self.waiting.len() < WAITING_MAX {
                    self.waiting.push(step);
                }
            }
        }
        while let Some(step) = self.waiting.first() {
            let source = writer.define_builtin_source(&alerts_source())?;
            let payload = alert(*step, writer.position().0).encode()?;
            if writer.try_push(source, &payload)?.is_none() {
                break;
            }
            self.waiting.remove(0);
        }
        Ok(())
    }

    pub(super) fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }
}

fn sentence(step: ClockStep) -> String {
    format!(
        "the wall clock stepped forward by {} s; arrival time follows, and [retention] max_age does not count the step as time that has passed",
        step.length().as_secs()
    )
}

fn alert(step: ClockStep, position: u64) -> Alert {
    Alert {
        rule: NAME.to_owned(),
        state: AlertState::ClockStepped,
        value: Some(step.length().as_secs_f64()),
        threshold: Some(STEP_MIN.as_secs_f64()),
        window: TimeRange::half_open(step.from, step.to),
        position,
        detail: Some(sentence(step)),
    }
}
