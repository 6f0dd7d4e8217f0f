//! The records of rules in the directory: alerts in `loom_alerts`, and the progress of each rule in `loom_rules`.
//!
//! Both live in the log beside the records that they are about, and survive as those do: a daemon that starts again reads here
//! where it stopped.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use loom_engine::ingest::ClockStep;
use loom_engine::query::{Poll, Snapshot, raw_scan};
use loom_engine::schema::{
    ALERT_STATES, ALERTS_SOURCE, FieldDef, FieldType, FieldValue, Layout, PayloadEncoder,
    RULE_STATES, RULES_SOURCE, Source, SourceDef,
};
use loom_engine::{Error, Key, TimeRange, Timestamp};

use super::watch::{Phase, nanos};

/// The event of an alert.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum AlertState {
    Firing = 1,
    Resolved = 2,
    /// The rule could not be evaluated.
    Failed = 3,
    /// The program or the webhook of the rule succeeded.
    Acted = 4,
    ActionFailed = 5,
    /// The span around the alert is kept.
    Pinned = 6,
    PinFailed = 7,
    /// The span around the alert will be kept, once it has passed. `Pinned` or `PinFailed` follows, perhaps after a restart.
    Pinning = 8,
    /// The wall clock stepped forward under the daemon. It belongs to no rule.
    ClockStepped = 9,
}

/// One record of `loom_alerts`.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    pub rule: String,
    pub state: AlertState,
    pub value: Option<f64>,
    pub threshold: Option<f64>,
    /// The window, closed at both ends.
    pub window: TimeRange,
    /// The end of the log that the rule saw, for `at`.
    pub position: u64,
    /// The error, or the outcome of the action.
    pub detail: Option<String>,
}

/// One record of `loom_rules`. Counts are since the daemon started.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub rule: String,
    pub state: RuleState,
    pub evaluations: u64,
    pub missed: u64,
    pub failures: u64,
    pub busy_ns: u64,
}

/// Texts in records are cut to this.
const TEXT_BYTES_MAX: usize = 4096;
/// The number of latest records in which a start looks for the progress of rules, unwritten pins and steps of the clock.
const LOOKED_MAX: usize = 100_000;
/// A start looks this far back for unwritten pins: a pin waits for an hour at most, and then for the pins before it.
const UNPINNED_MAX: Duration = Duration::from_secs(3 * 3600);

/// Stands in place of the definition in the last record of a rule.
const CLOSED: &str = "closed";
/// All states in the order of their numbers, which is also that of [`ALERT_STATES`].
const STATES: [AlertState; 9] = [
    AlertState::Firing,
    AlertState::Resolved,
    AlertState::Failed,
    AlertState::Acted,
    AlertState::ActionFailed,
    AlertState::Pinned,
    AlertState::PinFailed,
    AlertState::Pinning,
    AlertState::ClockStepped,
];

/// `loom_alerts` as the daemon defines it.
pub fn alerts_source() -> SourceDef {
    let labels = ALERT_STATES.map(str::to_owned);
    SourceDef {
        fields: vec![
            FieldDef::new("rule", FieldType::Utf8),
            labelled("state", (1..).zip(labels).collect()),
            FieldDef::nullable("value", FieldType::F64),
            FieldDef::nullable("threshold", FieldType::F64),
            FieldDef::new("from_ts", FieldType::TimestampNs),
            FieldDef::new("to_ts", FieldType::TimestampNs),
            FieldDef::new("position", FieldType::U64),
            FieldDef::nullable("detail", FieldType::Utf8),
        ],
        ..SourceDef::new(ALERTS_SOURCE)
    }
}

/// `loom_rules` as the daemon defines it.
pub fn rules_source() -> SourceDef {
    let number = |name| FieldDef::new(name, FieldType::U64);
    let labels = RULE_STATES.map(str::to_owned);
    SourceDef {
        fields: vec![
            FieldDef::new("rule", FieldType::Utf8),
            FieldDef::new("definition", FieldType::Utf8),
            FieldDef::new("evaluated_to", FieldType::TimestampNs),
            labelled("state", (0..).zip(labels).collect()),
            FieldDef::nullable("since", FieldType::TimestampNs),
            number("evaluations"),
            number("missed"),
            number("failures"),
            number("busy_ns"),
            FieldDef::nullable("begun", FieldType::TimestampNs),
        ],
        ..SourceDef::new(RULES_SOURCE)
    }
}

fn labelled(name: &str, labels: BTreeMap<i128, String>) -> FieldDef {
    FieldDef {
        labels,
        ..FieldDef::new(name, FieldType::U8)
    }
}

impl Alert {
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let float = |value: Option<f64>| value.map_or(FieldValue::Null, FieldValue::F64);
        let detail = self.detail.as_deref().map(cut);
        let values = [
            FieldValue::Bytes(self.rule.as_bytes()),
            FieldValue::U64(self.state as u64),
            float(self.value),
            float(self.threshold),
            FieldValue::I64(self.window.first.0),
            FieldValue::I64(self.window.end().0),
            FieldValue::U64(self.position),
            detail.map_or(FieldValue::Null, |text| FieldValue::Bytes(text.as_bytes())),
        ];
        encode(&alerts_source(), &values)
    }
}

impl Progress {
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let (state, since) = match self.state.phase {
            Phase::Normal => (0, None),
            Phase::Pending { since } => (1, Some(since)),
            Phase::Firing => (2, None),
        };
        let values = [
            FieldValue::Bytes(self.rule.as_bytes()),
            FieldValue::Bytes(self.state.definition.as_bytes()),
            FieldValue::I64(self.state.evaluated_to.0),
            FieldValue::U64(state),
            since.map_or(FieldValue::Null, |since| FieldValue::I64(since.0)),
            FieldValue::U64(self.evaluations),
            FieldValue::U64(self.missed),
            FieldValue::U64(self.failures),
            FieldValue::U64(self.busy_ns),
            FieldValue::I64(self.state.begun.0),
        ];
        encode(&rules_source(), &values)
    }
}

fn encode(def: &SourceDef, values: &[FieldValue<'_>]) -> Result<Vec<u8>, Error> {
    let mut payload = Vec::new();
    PayloadEncoder::new(def.time, &def.fields)?.encode(None, values, &mut payload)?;
    Ok(payload)
}

/// Cuts a text to the length that a record takes.
fn cut(text: &str) -> &str {
    let (kept, _) = text.split_at(text.floor_char_boundary(TEXT_BYTES_MAX));
    kept
}

/// The state in which a rule stopped, or is now.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleState {
    /// The definition as text; a rule that is added again with another definition is another rule.
    pub definition: String,
    /// The rule does not see records that arrived before.
    pub begun: Timestamp,
    /// The end of the window that was evaluated last.
    pub evaluated_to: Timestamp,
    pub phase: Phase,
}

impl RuleState {
    /// Returns the last record of a closed rule. A rule that is added later under its name starts from the beginning.
    pub fn last(&self, name: &str) -> Progress {
        Progress {
            rule: name.to_owned(),
            state: RuleState {
                definition: CLOSED.to_owned(),
                phase: Phase::Normal,
                ..*self
            },
            evaluations: 0,
            missed: 0,
            failures: 0,
            busy_ns: 0,
        }
    }

    /// Returns the alert that resolves a rule which is closed while it fires.
    pub fn closed(&self, name: &str) -> Option<Alert> {
        (self.phase == Phase::Firing).then(|| Alert {
            rule: name.to_owned(),
            state: AlertState::Resolved,
            value: None,
            threshold: None,
            // No window was evaluated for this alert.
            window: TimeRange::half_open(self.evaluated_to, self.evaluated_to),
            position: 0,
            detail: Some("the rule was closed or changed".to_owned()),
        })
    }
}

/// Reads where each rule stopped that the last daemon had.
///
/// # Errors
/// Damage, or eviction meanwhile.
pub fn stopped(snapshot: &Snapshot) -> Result<HashMap<String, RuleState>, Error> {
    let mut found: HashMap<String, RuleState> = HashMap::new();
    let Some(source) = snapshot.catalog().find(RULES_SOURCE) else {
        return Ok(found);
    };
    // The progress of all rules is written together, so once a rule comes a second time, all have come.
    newest_first(snapshot, source, TimeRange::ALL, |record| {
        let Some(name) = record.text("rule") else {
            return true;
        };
        if found.contains_key(&name) {
            return false;
        }
        if let Some(stopped) = record.stopped() {
            found.insert(name, stopped);
        }
        true
    })?;
    let Some(source) = snapshot.catalog().find(ALERTS_SOURCE) else {
        return Ok(found);
    };
    // An alert is later than the progress of its rule, which is written every few seconds.
    let mut settled: Vec<String> = Vec::new();
    let oldest = found.values().map(|stopped| stopped.evaluated_to).min();
    newest_first(snapshot, source, TimeRange::ALL, |record| {
        let Some(alert) = record.alert() else {
            return true;
        };
        // The outcomes of actions and pins come late, so they do not show how far the rule got.
        let (phase, rule, to) = match alert.state {
            AlertState::Firing => (Phase::Firing, alert.rule, alert.window.end()),
            AlertState::Resolved => (Phase::Normal, alert.rule, alert.window.end()),
            _ => return true,
        };
        if let Some(stopped) = found.get_mut(&rule)
            && !settled.contains(&rule)
        {
            if to >= stopped.evaluated_to {
                (stopped.evaluated_to, stopped.phase) = (to, phase);
            }
            settled.push(rule);
        }
        Some(to) >= oldest
    })?;
    found.retain(|_, stopped| stopped.definition != CLOSED);
    Ok(found)
}

/// Finds the alerts whose pins the last daemon had not written, the oldest first.
///
/// # Errors
/// Damage, or eviction meanwhile.
pub fn unpinned(snapshot: &Snapshot) -> Result<Vec<Alert>, Error> {
    let Some(source) = snapshot.catalog().find(ALERTS_SOURCE) else {
        return Ok(Vec::new());
    };
    let Some(newest) = snapshot.newest_ts()? else {
        return Ok(Vec::new());
    };
    let recent = TimeRange {
        first: Timestamp(newest.0.saturating_sub(nanos(UNPINNED_MAX))),
        last: Timestamp::MAX,
    };
    let mut settled: HashSet<(String, Timestamp)> = HashSet::new();
    let mut unpinned: Vec<Alert> = Vec::new();
    newest_first(snapshot, source, recent, |record| {
        let Some(alert) = record.alert() else {
            return true;
        };
        match alert.state {
            AlertState::Pinned | AlertState::PinFailed => {
                settled.insert((alert.rule, alert.window.end()));
            }
            AlertState::Pinning if settled.insert((alert.rule.clone(), alert.window.end())) => {
                unpinned.push(alert);
            }
            _ => {}
        }
        true
    })?;
    unpinned.reverse();
    Ok(unpinned)
}

/// Finds the steps of the wall clock that earlier daemons recorded, the newest first.
///
/// # Errors
/// Damage, or eviction meanwhile.
pub fn clock_steps(snapshot: &Snapshot) -> Result<Vec<ClockStep>, Error> {
    let mut steps = Vec::new();
    let Some(source) = snapshot.catalog().find(ALERTS_SOURCE) else {
        return Ok(steps);
    };
    newest_first(snapshot, source, TimeRange::ALL, |record| {
        let alert = record.alert();
        let step = alert.filter(|alert| alert.state == AlertState::ClockStepped);
        steps.extend(step.map(|alert| ClockStep {
            from: alert.window.first,
            to: alert.window.end(),
        }));
        true
    })?;
    Ok(steps)
}

/// Passes the records of a source in a span to `each`, the newest first, while it returns true.
fn newest_first(
    snapshot: &Snapshot,
    source: &Source,
    span: TimeRange,
    mut each: impl FnMut(Record<'_>) -> bool,
) -> Result<(), Error> {
    let mut looked = 0;
    raw_scan(snapshot, source.id, span, &Poll::never(), |record| {
        looked += 1;
        let (layout, payload) = (record.layout, record.payload);
        let record = Record {
            source,
            layout,
            payload,
        };
        match each(record) && looked < LOOKED_MAX {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    })
}

/// Reads fields by name: a later version may add some.
struct Record<'a> {
    source: &'a Source,
    layout: &'a Layout,
    payload: &'a [u8],
}

impl Record<'_> {
    fn place(&self, name: &str) -> Option<usize> {
        let mut fields = self.source.fields.iter();
        fields.position(|field| field.name == name)
    }

    fn text(&self, name: &str) -> Option<String> {
        let bytes = self.layout.bytes(self.place(name)?, self.payload)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    fn key(&self, name: &str) -> Option<Key> {
        self.layout.key(self.place(name)?, self.payload)
    }

    fn time(&self, name: &str) -> Option<Timestamp> {
        Some(Timestamp(self.key(name)?.to_i64()))
    }

    fn alert(&self) -> Option<Alert> {
        let state = self.key("state")?.to_u64();
        let mut states = STATES.into_iter();
        Some(Alert {
            rule: self.text("rule")?,
            state: states.find(|known| *known as u64 == state)?,
            value: self.key("value").map(Key::to_f64),
            threshold: self.key("threshold").map(Key::to_f64),
            window: TimeRange::half_open(self.time("from_ts")?, self.time("to_ts")?),
            position: self.key("position")?.to_u64(),
            detail: self.text("detail"),
        })
    }

    fn stopped(&self) -> Option<RuleState> {
        Some(RuleState {
            definition: self.text("definition")?,
            begun: self.time("begun").unwrap_or(Timestamp::MIN),
            evaluated_to: self.time("evaluated_to")?,
            phase: match self.key("state")?.to_u64() {
                1 => Phase::Pending {
                    since: self.time("since")?,
                },
                2 => Phase::Firing,
                _ => Phase::Normal,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_label_by_its_number() {
        let numbers = STATES.map(|state| state as i128);
        let alerts = alerts_source();
        let labels = alerts.fields.iter().find(|field| field.name == "state");
        assert!(labels.unwrap().labels.keys().eq(&numbers));
        let label = |state: AlertState| &labels.unwrap().labels[&(state as i128)];
        assert_eq!(label(AlertState::Firing), "firing");
        assert_eq!(label(AlertState::ActionFailed), "action failed");
        assert_eq!(label(AlertState::PinFailed), "pin failed");
        assert_eq!(label(AlertState::Pinning), "pinning");
        assert_eq!(label(AlertState::ClockStepped), "clock stepped");
    }
}
