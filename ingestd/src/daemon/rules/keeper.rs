//! The state of the rules' thread: every rule, the directory as a reader sees it, and the records that wait for the log.
//!
//! A pass asks the writer thread for a time that all later records follow, takes one snapshot, and evaluates each window that has ended by that
//! time. So a window holds the same records whenever it is evaluated, and a rule sees each record in the windows of its arrival alone.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use flume::{Receiver, RecvTimeoutError};
use loom_engine::query::{Directory, Snapshot};
use loom_engine::{Error, SourceId, Timestamp};

use super::action::{self, Notice};
use super::budget::{Budget, Budgets, cpu};
use super::recorder::{By, FlightRecorder};
use super::watched::Watched;
use super::{ByHand, Order, Rules};
use crate::config::{Config, RetentionConfig, RuleDef};
use crate::daemon::DaemonError;
use crate::daemon::answer::Gone;
use crate::daemon::inlet::Inlet;
use crate::daemon::message::Request;
use crate::output::pins::{self, Kept, Pinned};
use crate::protocol::ErrorCode;
use crate::rules::file::{self, RuleFile};
use crate::rules::judge::{self, Known};
use crate::rules::records::{
    Alert, AlertState, RuleState, alerts_source, rules_source, stopped, unpinned,
};
use crate::rules::watch::{Pause, Watch, nanos};
use crate::wall_clock;

/// The interval between records of each rule's progress.
const PROGRESS: Duration = Duration::from_secs(10);
/// The most records that wait for a buffer while the log is full.
const WAITING_MAX: usize = 10_000;
/// A directory that cannot be read is read again after this time.
const UNREADABLE: Duration = Duration::from_millis(100);

pub(in crate::daemon) struct Keeper {
    inlet: Inlet,
    rules: Rules,
    stopping: Arc<AtomicBool>,
    directory: Arc<Directory>,
    file: RuleFile,
    configured: Vec<RuleDef>,
    retention: RetentionConfig,
    watched: Vec<Watched>,
    budgets: Budgets,
    sources: Option<OwnSources>,
    waiting: VecDeque<(SourceId, Vec<u8>)>,
    actions: Vec<JoinHandle<()>>,
    recorder: FlightRecorder,
    known: Known,
    progressed: Instant,
    /// The error of the last read of the directory.
    trouble: Option<String>,
    /// A time before the arrival of every record that is published later, and the moment at which the writer thread gave it.
    edge: (Timestamp, Instant),
}

#[derive(Copy, Clone)]
struct OwnSources {
    alerts: SourceId,
    rules: SourceId,
}

impl Keeper {
    /// Reads where each rule stopped.
    pub(super) fn open(
        config: &Config,
        file: RuleFile,
        inlet: Inlet,
        rules: Rules,
        stopping: Arc<AtomicBool>,
        directory: Arc<Directory>,
    ) -> Result<Keeper, DaemonError> {
        let mut snapshot = directory.snapshot()?;
        let edge = inlet.ask(Request::Publish)?;
        let mut keeper = Keeper {
            inlet,
            rules,
            stopping,
            directory,
            file,
            configured: config.rules.clone(),
            retention: config.retention.clone(),
            watched: Vec::new(),
            budgets: Budgets::new(Instant::now()),
            sources: None,
            waiting: VecDeque::new(),
            actions: Vec::new(),
            recorder: FlightRecorder::default(),
            known: Known::default(),
            progressed: Instant::now(),
            trouble: None,
            edge: (edge, Instant::now()),
        };
        let closed = keeper.resume(&mut snapshot)?;
        let unpinned = snapshot.ask_retained(unpinned).unwrap_or_else(|error| {
            tracing::error!("cannot find the pins that were not written: {error}");
            Vec::new()
        });
        keeper.trim_pins();
        keeper
            .define(!closed.is_empty() || !unpinned.is_empty())
            .map_err(|error| DaemonError::Rules(format!("cannot define loom_alerts: {error}")))?;
        keeper.record_closed(&closed);
        for alert in unpinned {
            keeper.pin_again(alert);
        }
        // It is stored before any evaluation, so that a daemon that is killed at any time has recorded the begin of each rule.
        keeper.record_progress();
        keeper.store()?;
        for note in keeper.notes() {
            tracing::warn!("{note}");
        }
        Ok(keeper)
    }

    /// Begins each rule where it stopped, unless it has changed since. Returns the rules that are gone.
    fn resume(&mut self, snapshot: &mut Snapshot) -> Result<Vec<(String, RuleState)>, DaemonError> {
        let mut found = snapshot.ask_retained(stopped).unwrap_or_else(|error| {
            tracing::error!("cannot read where the rules stopped: {error}; they begin now");
            Default::default()
        });
        let newest = snapshot.ask_retained(Snapshot::newest_ts)?;
        let pause = newest.map(|from| Pause {
            from,
            to: self.edge.0,
        });
        for (def, added) in self.all() {
            let is_same = |known: &&RuleState| known.definition == def.definition();
            let Some(known) = found.get(&def.name).filter(is_same).cloned() else {
                self.watched.push(Watched::begin(def, added, self.edge.0));
                continue;
            };
            found.remove(&def.name);
            let mut watch = Watch::new(def.every, def.hold, known.phase, known.evaluated_to);
            if let Some(pause) = pause {
                watch.skip(pause, def.over);
            }
            self.watched
                .push(Watched::new(def, added, watch, known.begun));
        }
        Ok(found.into_iter().collect())
    }

    /// Returns all rules to evaluate, each with `true` if it was added.
    fn all(&self) -> Vec<(RuleDef, bool)> {
        let configured = self.configured.iter().map(|def| (def.clone(), false));
        let added = self.file.rules().map(|def| (def.clone(), true));
        configured.chain(added).collect()
    }

    /// Defines the built-in sources, once there is a rule, or something to record of one that is gone.
    fn define(&mut self, has_alerts: bool) -> Result<(), Error> {
        let is_idle = self.watched.is_empty() && !has_alerts;
        if is_idle || self.sources.is_some() {
            return Ok(());
        }
        let sources = vec![alerts_source(), rules_source()];
        let defined = self.inlet.ask(|answer| Request::DefineOwn(sources, answer));
        // A writer that is gone defines none, and ends the thread at the next pass.
        if let Ok(defined) = defined {
            let ids = defined?;
            let [alerts, rules] = *ids else {
                unreachable!("each of two definitions has an id: {ids:?}");
            };
            self.sources = Some(OwnSources { alerts, rules });
        }
        Ok(())
    }

    /// Evaluates until it is stopped.
    pub(super) fn run(mut self, orders: &Receiver<Order>) {
        loop {
            let order = match self.patience() {
                None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(patience) => orders.recv_timeout(patience),
            };
            match order {
                Ok(Order::Work(work)) => {
                    work(&mut self);
                    // A writer that is gone ends the thread at the next pass.
                    let _ = self.store();
                }
                Ok(Order::Stop) | Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    if self.pass().is_err() {
                        // The writer thread is gone, so there is nothing to evaluate.
                        return;
                    }
                }
            }
        }
        for action in std::mem::take(&mut self.actions) {
            crate::threads::join(action);
        }
        for rule in std::mem::take(&mut self.watched) {
            if let Some(alert) = &rule.untold {
                let why = "skipped: the daemon stopped".to_owned();
                self.record(&outcome(alert.clone(), Err(why)));
            }
            self.watched.push(rule);
        }
        for by in self.recorder.stop() {
            // The next start writes the pins of alerts.
            if let By::Hand(asked) = by {
                let why = "the daemon stopped before the pin was written".to_owned();
                asked.asker.fail(ErrorCode::Stopping, why);
            }
        }
        for order in orders.try_iter() {
            if let Order::Work(work) = order {
                work(&mut self);
            }
        }
        self.record_progress();
        // A writer that is gone stores nothing; the windows since the last progress are evaluated again after the next start.
        let _ = self.store();
        let mut lost: BTreeMap<SourceId, u64> = BTreeMap::new();
        for (source, _) in self.waiting.drain(..) {
            *lost.entry(source).or_default() += 1;
        }
        for (source, records) in lost {
            self.lose(source, records);
        }
    }

    /// The time until something is due or the budget allows it; `None` without rules.
    fn patience(&self) -> Option<Duration> {
        let (edge, asked) = self.edge;
        let left = |next: Timestamp| {
            let until = next.0.saturating_sub(edge.0).max(0) as u64;
            Duration::from_nanos(until).saturating_sub(asked.elapsed())
        };
        let of_rules = |is_added: bool, budget: &Budget| {
            let rules = self.watched.iter().filter(|rule| rule.added == is_added);
            let next = rules.map(|rule| rule.watch.next()).min()?;
            Some(left(next).max(budget.wait(Instant::now())))
        };
        let configured = of_rules(false, &self.budgets.configured);
        let added = of_rules(true, &self.budgets.added);
        let pins = self.recorder.next().map(left);
        let untold = self.watched.iter().filter(|rule| rule.untold.is_some());
        let untold = untold.filter_map(Watched::rest).min();
        let waiting = (!self.waiting.is_empty()).then_some(PROGRESS);
        let all = [configured, added, pins, untold, waiting];
        let left = all.into_iter().flatten().min()?;
        Some(left.min(PROGRESS.saturating_sub(self.progressed.elapsed())))
    }

    fn pass(&mut self) -> Result<(), Gone> {
        self.edge = (self.inlet.ask(Request::Publish)?, Instant::now());
        self.actions.retain(|action| !action.is_finished());
        match self.directory.snapshot() {
            Ok(snapshot) => {
                self.trouble = None;
                self.evaluate(&snapshot);
            }
            Err(error) => {
                let why = Some(error.to_string());
                if self.trouble != why {
                    tracing::error!("rules cannot be evaluated: {error}");
                    self.trouble = why;
                }
                std::thread::sleep(UNREADABLE);
            }
        }
        if self.recorder.is_due(self.edge.0) {
            // Retention keeps the records of the pin, and the pin's own files do not count as used room.
            self.inlet.ask(Request::HoldRetention)?;
        }
        let refused = self.recorder.write(
            self.edge.0,
            &self.directory,
            &self.retention,
            &self.rules,
            &self.stopping,
        );
        if let Some((by, why)) = refused {
            self.pinned(by, Err(why));
        }
        if self.progressed.elapsed() >= PROGRESS {
            self.record_progress();
        }
        self.store()
    }

    /// Evaluates the windows that have ended, within the budgets: those of the configuration first, and the latest of each kind first.
    fn evaluate(&mut self, snapshot: &Snapshot) {
        let now = self.edge.0;
        let stopping = Arc::clone(&self.stopping);
        let interrupted = move || stopping.load(Ordering::Relaxed);
        let mut watched = std::mem::take(&mut self.watched);
        let mut rules: Vec<&mut Watched> = watched.iter_mut().collect();
        rules.sort_by_key(|rule| (rule.added, rule.watch.next()));
        for rule in rules {
            while !interrupted()
                && self.budgets.of(rule.added).wait(Instant::now()).is_zero()
                && let Some(end) = rule.watch.due(now)
            {
                let began = cpu();
                let alert = rule.evaluate(snapshot, &mut self.known, end, &interrupted);
                let taken = cpu().saturating_sub(began);
                self.budgets.of(rule.added).take(taken, Instant::now());
                let Some(alert) = alert else { break };
                let Some(alert) = alert else { continue };
                self.record(&alert);
                if alert.state == AlertState::Firing {
                    self.pin(rule, &alert);
                }
                self.act(rule, alert);
            }
        }
        for rule in &mut watched {
            if rule.rest().is_some_and(|rest| rest.is_zero())
                && let Some(alert) = rule.untold.take()
            {
                self.act(rule, alert);
            }
        }
        self.watched = watched;
    }

    fn pin(&mut self, rule: &Watched, alert: &Alert) {
        let ahead_ns = self.ahead_ns();
        let wanted = (rule.def.pin).map(|pin| self.recorder.want(alert, pin, ahead_ns));
        match wanted {
            None => {}
            Some(Ok(())) => self.record(&Alert {
                state: AlertState::Pinning,
                ..alert.clone()
            }),
            Some(Err(why)) => self.record(&not_pinned(alert.clone(), why)),
        }
    }

    /// Keeps the span around an alert of a daemon that ended before its pin was written.
    fn pin_again(&mut self, alert: Alert) {
        let mut rules = self.watched.iter();
        let rule = rules.find(|rule| rule.def.name == alert.rule);
        match rule.and_then(|rule| rule.def.pin) {
            Some(pin) => self.recorder.resume(alert, pin, self.ahead_ns()),
            None => {
                let why = "the daemon ended before, and the rule is closed now or has no pin";
                self.record(&not_pinned(alert, why.to_owned()));
            }
        }
    }

    /// Keeps records because a person asks.
    pub(super) fn pin_by_hand(&mut self, asked: ByHand) {
        let snapshot = self.directory.snapshot();
        if let Err(error) = snapshot.and_then(|snapshot| asked.check(snapshot.catalog())) {
            return asked.asker.refuse(&error);
        }
        // A writer that is gone ends the thread at the next pass, and the connection.
        let Ok(now) = self.inlet.ask(Request::Publish) else {
            return;
        };
        self.edge = (now, Instant::now());
        // The span excludes its end.
        let at = Timestamp(now.0.saturating_add(1));
        let (asker, ahead_ns) = (asked.asker.clone(), self.ahead_ns());
        let span = asked.span(at);
        let wanted = span.and_then(|span| self.recorder.want_by_hand(asked, span, ahead_ns));
        if let Err(why) = wanted {
            asker.fail(ErrorCode::Failed, why);
        }
    }

    /// Returns the present arrival time minus the wall clock.
    fn ahead_ns(&self) -> i64 {
        let (edge, asked) = self.edge;
        let now = edge.0.saturating_add(nanos(asked.elapsed()));
        now.saturating_sub(wall_clock().0)
    }

    /// Removes the oldest pins beyond `pin_max_bytes`.
    fn trim_pins(&self) {
        let bytes_max = self.retention.pin_max_bytes;
        match pins::make_room(self.directory.path(), bytes_max.0) {
            Ok(gone) if gone.is_empty() => {}
            Ok(gone) => tracing::info!(
                "pin_max_bytes is {bytes_max}; the oldest pins were removed: {}",
                gone.join(", ")
            ),
            Err(error) => tracing::warn!("the pins take more than pin_max_bytes: {error:#}"),
        }
    }

    /// Records that a pin was written, or why not; a person gets an answer instead.
    pub(super) fn pinned(&mut self, by: By, result: Result<(Pinned, Vec<String>), String>) {
        self.recorder.written();
        // A writer that is gone removes nothing.
        let _ = self.inlet.ask(Request::ReleaseRetention);
        if let Ok((_, gone)) = &result
            && !gone.is_empty()
        {
            let gone = gone.join(", ");
            tracing::info!("the oldest pins made room for another: {gone}");
        }
        let alert = match by {
            By::Alert(alert) => alert,
            By::Hand(asked) => {
                return match result {
                    Ok((pinned, removed)) => asked.asker.kept(&Kept::new(&pinned, removed)),
                    Err(why) => asked.asker.fail(ErrorCode::Failed, why),
                };
            }
        };
        match result {
            Ok((pinned, _)) => {
                let missing = pinned.pin.missing.map(|what| format!("; {what}"));
                let missing = missing.unwrap_or_default();
                self.record(&Alert {
                    state: AlertState::Pinned,
                    detail: Some(format!("{}{missing}", pinned.path.display())),
                    ..alert
                });
            }
            Err(_) if self.stopping.load(Ordering::Relaxed) => {
                tracing::info!("the next start writes the pin of rule '{}'", alert.rule);
            }
            Err(why) => {
                tracing::warn!("the pin of rule '{}' failed: {why}", alert.rule);
                self.record(&not_pinned(alert, why));
            }
        }
    }

    /// Starts the action of a rule. While the action before it runs, or if that began a moment ago, an alert of the other state waits, so that
    /// the last action has the present state; an alert of the same state is skipped.
    fn act(&mut self, rule: &mut Watched, alert: Alert) {
        let Some(action) = rule.def.action.clone() else {
            return;
        };
        if !action::is_for(&action, alert.state) {
            return;
        }
        if let Some(before) = rule.untold.take() {
            let why = "skipped: its opposite came before its action could start".to_owned();
            self.record(&outcome(before, Err(why)));
        }
        let skipped = match rule.rest() {
            None => Some("skipped: the action before it still runs"),
            Some(rest) if !rest.is_zero() => Some("skipped: an action began less than 1s ago"),
            Some(_) => None,
        };
        if let Some(why) = skipped {
            if rule.told.is_some_and(|told| told != alert.state) {
                rule.untold = Some(alert);
                return;
            }
            return self.record(&outcome(alert, Err(why.to_owned())));
        }
        rule.told = Some(alert.state);
        let notice = Notice::new(&rule.def, &alert, self.directory.path());
        let (rules, stopping) = (self.rules.clone(), Arc::clone(&self.stopping));
        let spawned = std::thread::Builder::new()
            .name("loom-action".to_owned())
            .spawn({
                let alert = alert.clone();
                move || {
                    let result = action::perform(&action, &notice, &stopping);
                    // A keeper that is gone records nothing.
                    let _ = rules.send(move |keeper| keeper.acted(alert, result));
                }
            });
        match spawned {
            Ok(thread) => {
                (rule.acted, rule.is_acting) = (Some(Instant::now()), true);
                self.actions.push(thread);
            }
            Err(error) => {
                let why = format!("cannot start a thread: {error}");
                self.record(&outcome(alert, Err(why)));
            }
        }
    }

    fn acted(&mut self, alert: Alert, result: Result<String, String>) {
        let mut rules = self.watched.iter_mut();
        if let Some(rule) = rules.find(|rule| rule.def.name == alert.rule) {
            rule.is_acting = false;
        }
        if let Err(why) = &result {
            tracing::warn!("the action of rule '{}' failed: {why}", alert.rule);
        }
        self.record(&outcome(alert, result));
    }

    fn record(&mut self, alert: &Alert) {
        if let Some(sources) = self.sources {
            self.enqueue(sources.alerts, alert.encode());
        }
    }

    /// Records the end of rules that are gone. The caller then records the progress of the others.
    fn record_closed(&mut self, closed: &[(String, RuleState)]) {
        let Some(sources) = self.sources else { return };
        for (name, stopped) in closed {
            if let Some(alert) = stopped.closed(name) {
                self.record(&alert);
            }
            self.enqueue(sources.rules, stopped.last(name).encode());
        }
    }

    fn record_progress(&mut self) {
        self.progressed = Instant::now();
        let Some(sources) = self.sources else { return };
        let records = self.watched.iter().map(|rule| rule.progress().encode());
        for record in records.collect::<Vec<_>>() {
            self.enqueue(sources.rules, record);
        }
    }

    fn enqueue(&mut self, source: SourceId, payload: Result<Vec<u8>, Error>) {
        let payload = payload.expect("a record of a rule fits its source");
        if self.waiting.len() < WAITING_MAX {
            self.waiting.push_back((source, payload));
        } else {
            tracing::error!("the log has been full for long: a record of a rule is dropped");
            self.lose(source, 1);
        }
    }

    /// Counts records that the log has no room for.
    fn lose(&self, source: SourceId, records: u64) {
        // A writer that is gone counts none.
        let _ = self
            .inlet
            .ask(|answer| Request::LoseOwn(source, records, answer));
    }

    /// Passes the waiting records to the writer thread, as far as buffers are free: rules are evaluated while the log is full.
    fn store(&mut self) -> Result<(), Gone> {
        while let Some((source, payload)) = self.waiting.front()
            && self.inlet.add_own(*source, payload)?
        {
            self.waiting.pop_front();
        }
        self.inlet.flush()
    }

    /// Refuses a configuration whose rules do not go with those that were added.
    pub(in crate::daemon) fn check(&self, config: &Config) -> Result<(), String> {
        let fits = self.file.fits(config);
        fits.map_err(|error| format!("{error:#}"))
    }

    /// Takes over the rules of another configuration. Returns notes on those that cannot be evaluated yet.
    pub(in crate::daemon) fn reconfigure(&mut self, config: &Config) -> Vec<String> {
        self.configured = config.rules.clone();
        self.retention = config.retention.clone();
        self.trim_pins();
        self.take_over();
        self.notes()
    }

    /// Begins to evaluate the present rules. A rule that is the same as before keeps its progress.
    fn take_over(&mut self) {
        // A rule that is added begins at the present time.
        if let Ok(now) = self.inlet.ask(Request::Publish) {
            self.edge = (now, Instant::now());
        }
        let mut before = std::mem::take(&mut self.watched);
        for (def, added) in self.all() {
            let known = before.iter().position(|rule| {
                rule.def.name == def.name && rule.def.definition() == def.definition()
            });
            self.watched
                .push(match known.map(|place| before.swap_remove(place)) {
                    Some(rule) => rule.redefined(def, added),
                    None => Watched::begin(def, added, self.edge.0),
                });
        }
        let closed = before.iter();
        let closed = closed.map(|rule| (rule.def.name.clone(), rule.stopped()));
        let closed: Vec<(String, RuleState)> = closed.collect();
        if let Err(error) = self.define(false) {
            tracing::error!("cannot define loom_alerts: {error}");
        }
        self.record_closed(&closed);
        self.record_progress();
        // A writer that is gone ends the thread at the next pass.
        let _ = self.store();
    }

    /// Notes on the rules that cannot be evaluated yet.
    fn notes(&self) -> Vec<String> {
        match self.directory.snapshot() {
            Ok(snapshot) => (self.watched.iter())
                .filter_map(|rule| rule.note(snapshot.catalog()))
                .collect(),
            Err(error) => vec![format!("rules cannot be evaluated: {error}")],
        }
    }

    /// Adds the rules of a text, all or none.
    pub(in crate::daemon) fn add(&mut self, toml: &str) -> Result<(), String> {
        let shown = |error: anyhow::Error| format!("{error:#}");
        let snapshot = self.directory.snapshot();
        let snapshot = snapshot.map_err(|error| error.to_string())?;
        for (def, _) in file::parse(toml).map_err(shown)? {
            self.retention.keeps(&def)?;
            judge::subject(snapshot.catalog(), &def).map_err(|error| error.to_string())?;
        }
        self.file.add(toml, &self.configured).map_err(shown)?;
        self.take_over();
        tracing::info!("rules were added; there are {} now", self.watched.len());
        Ok(())
    }

    /// Ends a rule that was added.
    pub(in crate::daemon) fn close(&mut self, name: &str) -> Result<(), String> {
        if self.configured.iter().any(|def| def.name == name) {
            return Err(format!(
                "rule '{name}' stands in the configuration; remove it there and reload the daemon"
            ));
        }
        let found = self.file.remove(name);
        if !found.map_err(|error| format!("{error:#}"))? {
            return Err(format!(
                "rule '{name}' was not added; 'ingestd rule list' shows those that were"
            ));
        }
        self.take_over();
        Ok(())
    }

    pub(in crate::daemon) fn list(&self) -> String {
        let rules: Vec<_> = self.watched.iter().map(Watched::status).collect();
        serde_json::to_string(&rules).expect("names and numbers are always JSON")
    }
}

fn not_pinned(alert: Alert, why: String) -> Alert {
    Alert {
        state: AlertState::PinFailed,
        detail: Some(why),
        ..alert
    }
}

fn outcome(alert: Alert, result: Result<String, String>) -> Alert {
    let (state, detail) = match result {
        Ok(detail) => (AlertState::Acted, detail),
        Err(detail) => (AlertState::ActionFailed, detail),
    };
    Alert {
        state,
        detail: Some(detail),
        ..alert
    }
}
