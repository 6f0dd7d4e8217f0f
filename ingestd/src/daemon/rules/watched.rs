//! One rule under evaluation: its progress, its counts, and the alerts that follow from a window.

use std::time::{Duration, Instant};

use loom_engine::query::{Poll, Snapshot};
use loom_engine::schema::Catalog;
use loom_engine::{Error, Timestamp};

use crate::config::RuleDef;
use crate::rules::RuleStatus;
use crate::rules::judge::{self, Judged};
use crate::rules::records::{Alert, AlertState, Progress};
use crate::rules::watch::{Change, Phase, Watch};

/// How long an alert may wait for the exact value of a quantile.
const EXACT: Duration = Duration::from_millis(5);

pub(super) struct Watched {
    pub(super) def: RuleDef,
    /// A client added it; else it stands in the configuration.
    pub(super) added: bool,
    pub(super) watch: Watch,
    /// When its latest action began.
    pub(super) acted: Option<Instant>,
    /// Its action runs.
    pub(super) is_acting: bool,
    evaluations: u64,
    failures: u64,
    busy: Duration,
    trouble: Option<String>,
}

impl Watched {
    pub(super) fn new(def: RuleDef, added: bool, watch: Watch) -> Watched {
        Watched {
            def,
            added,
            watch,
            acted: None,
            is_acting: false,
            evaluations: 0,
            failures: 0,
            busy: Duration::ZERO,
            trouble: None,
        }
    }

    /// The same progress, with another action or origin.
    pub(super) fn redefined(self, def: RuleDef, added: bool) -> Watched {
        Watched { def, added, ..self }
    }

    /// Evaluates the window that ends so. Returns the alert that follows; `None` of the outer is an interruption.
    pub(super) fn evaluate(
        &mut self,
        snapshot: &Snapshot,
        end: Timestamp,
        interrupted: &dyn Fn() -> bool,
    ) -> Option<Option<Alert>> {
        let began = Instant::now();
        let poll = Poll::new(interrupted);
        let judged = judge::subject(snapshot.catalog(), &self.def).and_then(|subject| {
            let judged = judge::judge(snapshot, subject, &self.def, end, &poll)?;
            Ok((subject, judged))
        });
        let alert = match judged {
            Err(Error::Interrupted) => return None,
            Err(error) => self.failed(&error, snapshot, end),
            Ok((subject, judged)) => {
                self.trouble = None;
                let change = self.watch.step(judged.holds);
                change.map(|change| {
                    let deadline = Instant::now() + EXACT;
                    let overdue = || interrupted() || Instant::now() >= deadline;
                    let exact =
                        judged.exact(snapshot, subject, &self.def, end, &Poll::new(&overdue));
                    self.alert(change, &exact.unwrap_or(judged), snapshot, end)
                })
            }
        };
        self.evaluations += 1;
        self.busy += began.elapsed();
        Some(alert)
    }

    fn alert(&self, change: Change, judged: &Judged, snapshot: &Snapshot, end: Timestamp) -> Alert {
        let of_bin = "the value is that of a bin; loom_aggregate returns the exact one";
        Alert {
            rule: self.def.name.clone(),
            state: match change {
                Change::Fires => AlertState::Firing,
                Change::Resolves => AlertState::Resolved,
            },
            value: judged.shown.value,
            threshold: Some(judged.shown.threshold),
            window: judge::window(self.def.over, end),
            position: snapshot.position(),
            detail: (!judged.is_exact).then(|| of_bin.to_owned()),
        }
    }

    /// Goes on behind a window that cannot be evaluated. The first of them makes an alert.
    fn failed(&mut self, error: &Error, snapshot: &Snapshot, end: Timestamp) -> Option<Alert> {
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
            window: judge::window(self.def.over, end),
            position: snapshot.position(),
            detail: Some(why),
        })
    }

    /// The alert that ends those of a rule which is closed while it fires.
    pub(super) fn closed(&self) -> Option<Alert> {
        (self.watch.phase == Phase::Firing).then(|| Alert {
            rule: self.def.name.clone(),
            state: AlertState::Resolved,
            value: None,
            threshold: None,
            window: judge::window(self.def.over, self.watch.evaluated_to()),
            position: 0,
            detail: Some("the rule was closed or changed".to_owned()),
        })
    }

    /// Why it cannot be evaluated now, for a note.
    pub(super) fn note(&self, catalog: &Catalog) -> Option<String> {
        let error = judge::subject(catalog, &self.def).err()?;
        Some(judge::not_yet(&self.def, &error))
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            rule: self.def.name.clone(),
            definition: self.def.definition(),
            evaluated_to: self.watch.evaluated_to(),
            phase: self.watch.phase,
            evaluations: self.evaluations,
            missed: self.watch.missed,
            failures: self.failures,
            busy_ns: self.busy.as_nanos() as u64,
        }
    }

    pub(super) fn status(&self) -> RuleStatus {
        let progress = self.progress();
        RuleStatus {
            state: progress.phase.name().to_owned(),
            name: progress.rule,
            definition: progress.definition,
            added: self.added,
            evaluated_to_ns: progress.evaluated_to.0,
            evaluations: progress.evaluations,
            missed: progress.missed,
            failures: progress.failures,
            busy_ns: progress.busy_ns,
            trouble: self.trouble.clone(),
        }
    }
}
