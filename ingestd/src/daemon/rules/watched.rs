//! One rule under evaluation: its progress, its counts, and the alerts that follow from a window.

use std::time::{Duration, Instant};

use loom_engine::query::{Poll, Snapshot};
use loom_engine::schema::Catalog;
use loom_engine::{Error, TimeRange, Timestamp};

use crate::config::RuleDef;
use crate::rules::RuleStatus;
use crate::rules::judge::{self, Judged, Known};
use crate::rules::records::{Alert, AlertState, Progress, RuleState};
use crate::rules::watch::{Change, Phase, Watch};

/// An alert waits at most so long for the exact value of a quantile.
const EXACT: Duration = Duration::from_millis(5);
/// The evaluation of a rule that was added keeps the other rules waiting at most so long.
const ADDED_MAX: Duration = Duration::from_secs(1);
/// The least time between the actions of one rule.
const ACTION_EVERY: Duration = Duration::from_secs(1);
/// The state of a rule whose latest window could not be evaluated.
const FAILING: &str = "failing";

pub(super) struct Watched {
    pub(super) def: RuleDef,
    /// A client added it; else it stands in the configuration.
    pub(super) added: bool,
    pub(super) watch: Watch,
    /// The rule does not see records that arrived before.
    begun: Timestamp,
    pub(super) acted: Option<Instant>,
    pub(super) is_acting: bool,
    /// The state that its latest action reported.
    pub(super) told: Option<AlertState>,
    /// An alert of the other state, which its next action reports.
    pub(super) untold: Option<Alert>,
    evaluations: u64,
    failures: u64,
    busy: Duration,
    trouble: Option<String>,
}

impl Watched {
    pub(super) fn new(def: RuleDef, added: bool, watch: Watch, begun: Timestamp) -> Watched {
        Watched {
            def,
            added,
            watch,
            begun,
            acted: None,
            is_acting: false,
            told: None,
            untold: None,
            evaluations: 0,
            failures: 0,
            busy: Duration::ZERO,
            trouble: None,
        }
    }

    /// Keeps the progress, with another action or origin.
    pub(super) fn redefined(self, def: RuleDef, added: bool) -> Watched {
        Watched { def, added, ..self }
    }

    pub(super) fn begin(def: RuleDef, added: bool, now: Timestamp) -> Watched {
        let watch = Watch::new(def.every, def.hold, Phase::Normal, now);
        Watched::new(def, added, watch, now)
    }

    /// Returns the time until its next action may begin; `None` while one runs.
    pub(super) fn rest(&self) -> Option<Duration> {
        let acted = self.acted.map(|at| at.elapsed());
        let rest = acted.map_or(Duration::ZERO, |ago| ACTION_EVERY.saturating_sub(ago));
        (!self.is_acting).then_some(rest)
    }

    /// The window with this end. The first ones begin with the rule.
    fn window(&self, end: Timestamp) -> TimeRange {
        let whole = judge::window(self.def.over, end);
        TimeRange {
            first: whole.first.max(self.begun),
            ..whole
        }
    }

    /// Evaluates the window with this end. Returns its alert, if there is one; the outer `None` is an interruption.
    pub(super) fn evaluate(
        &mut self,
        snapshot: &Snapshot,
        known: &mut Known,
        end: Timestamp,
        interrupted: &dyn Fn() -> bool,
    ) -> Option<Option<Alert>> {
        let began = Instant::now();
        let window = self.window(end);
        let is_too_long = || self.added && began.elapsed() >= ADDED_MAX;
        let ends = || interrupted() || is_too_long();
        let poll = Poll::new(&ends);
        let judged = judge::subject(snapshot.catalog(), &self.def).and_then(|subject| {
            let judged = judge::judge(snapshot, known, subject, &self.def, window, &poll)?;
            Ok((subject, judged))
        });
        let alert = match judged {
            Err(Error::Interrupted) if interrupted() => return None,
            Err(Error::Interrupted) => {
                let why = format!(
                    "rule '{}': its evaluation takes longer than {ADDED_MAX:?}; lower over, or move the rule to the configuration",
                    self.def.name
                );
                self.failed(&Error::Query(why), snapshot, window)
            }
            Err(error) => self.failed(&error, snapshot, window),
            Ok((subject, judged)) => {
                self.trouble = None;
                let change = self.watch.step(judged.holds);
                change.map(|change| {
                    let deadline = Instant::now() + EXACT;
                    let overdue = || interrupted() || Instant::now() >= deadline;
                    let exact = judged.exact(
                        snapshot,
                        known,
                        subject,
                        &self.def,
                        window,
                        &Poll::new(&overdue),
                    );
                    self.alert(change, &exact.unwrap_or(judged), window)
                })
            }
        };
        self.evaluations += 1;
        self.busy += began.elapsed();
        Some(alert)
    }

    fn alert(&self, change: Change, judged: &Judged, window: TimeRange) -> Alert {
        let of_bin = "the value is that of a bin; loom_aggregate returns the exact one";
        Alert {
            rule: self.def.name.clone(),
            state: match change {
                Change::Fires => AlertState::Firing,
                Change::Resolves => AlertState::Resolved,
            },
            value: judged.shown.value,
            threshold: Some(judged.shown.threshold),
            window,
            position: judged.position,
            detail: (!judged.is_exact).then(|| of_bin.to_owned()),
        }
    }

    /// Skips a window that cannot be evaluated. The first such window makes an alert.
    fn failed(&mut self, error: &Error, snapshot: &Snapshot, window: TimeRange) -> Option<Alert> {
        self.watch.pass();
        self.failures += 1;
        let is_new = self.trouble.is_none();
        let why = error.to_string();
        self.trouble = Some(why.clone());
        is_new.then(|| Alert {
            rule: self.def.name.clone(),
            state: AlertState::Failed,
            value: None,
            threshold: None,
            window,
            position: snapshot.position(),
            detail: Some(why),
        })
    }

    /// Returns its state, which a restart continues.
    pub(super) fn stopped(&self) -> RuleState {
        RuleState {
            definition: self.def.definition(),
            begun: self.begun,
            evaluated_to: self.watch.evaluated_to(),
            phase: self.watch.phase,
        }
    }

    pub(super) fn note(&self, catalog: &Catalog) -> Option<String> {
        let error = judge::subject(catalog, &self.def).err()?;
        Some(judge::not_yet(&self.def, &error))
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            rule: self.def.name.clone(),
            state: self.stopped(),
            evaluations: self.evaluations,
            missed: self.watch.missed,
            failures: self.failures,
            busy_ns: self.busy.as_nanos() as u64,
        }
    }

    pub(super) fn status(&self) -> RuleStatus {
        let progress = self.progress();
        RuleStatus {
            state: match self.trouble {
                Some(_) => FAILING.to_owned(),
                None => progress.state.phase.name().to_owned(),
            },
            name: progress.rule,
            definition: progress.state.definition,
            added: self.added,
            evaluated_to_ns: progress.state.evaluated_to.0,
            evaluations: progress.evaluations,
            missed: progress.missed,
            failures: progress.failures,
            busy_ns: progress.busy_ns,
            trouble: self.trouble.clone(),
        }
    }
}
