//! The records that rules leave in the directory: alerts in `loom_alerts`, and in `loom_rules` how far each rule was evaluated.
//!
//! Both live in the log beside the records that they are about, so that they survive what those survive: a daemon that starts again reads here
//! where it stopped.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;

use loom_engine::query::{Poll, Snapshot, raw_scan};
use loom_engine::schema::{
    ALERTS_SOURCE, FieldDef, FieldType, FieldValue, Layout, PayloadEncoder, RULES_SOURCE, Source,
    SourceDef,
};
use loom_engine::{Error, TimeRange, Timestamp};

use super::watch::Phase;

/// What an alert says.
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
    /// What surrounds the alert is kept.
    Pinned = 6,
    PinFailed = 7,
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
    /// What the rule saw, for `at`.
    pub position: u64,
    /// Why it failed, or what came of the action.
    pub detail: Option<String>,
}

/// One record of `loom_rules`. Counts are since the daemon started.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    pub rule: String,
    /// What the rule watched then.
    pub definition: String,
    /// The end of the window that was evaluated last.
    pub evaluated_to: Timestamp,
    pub phase: Phase,
    pub evaluations: u64,
    pub missed: u64,
    pub failures: u64,
    pub busy_ns: u64,
}

/// Texts in records are cut to this.
const TEXT_BYTES_MAX: usize = 4096;
/// How far back a start looks for the progress of its rules.
const LOOKED_MAX: usize = 100_000;

const STATES: [(AlertState, &str); 7] = [
    (AlertState::Firing, "firing"),
    (AlertState::Resolved, "resolved"),
    (AlertState::Failed, "failed"),
    (AlertState::Acted, "acted"),
    (AlertState::ActionFailed, "action failed"),
    (AlertState::Pinned, "pinned"),
    (AlertState::PinFailed, "pin failed"),
];
const PHASES: [&str; 3] = ["normal", "pending", "firing"];

/// `loom_alerts` as the daemon defines it.
pub fn alerts_source() -> SourceDef {
    let labels = STATES.map(|(state, label)| (state as i128, label.to_owned()));
    SourceDef {
        fields: vec![
            FieldDef::new("rule", FieldType::Utf8),
            labelled("state", labels.into()),
            nullable("value", FieldType::F64),
            nullable("threshold", FieldType::F64),
            FieldDef::new("from_ts", FieldType::TimestampNs),
            FieldDef::new("to_ts", FieldType::TimestampNs),
            FieldDef::new("position", FieldType::U64),
            nullable("detail", FieldType::Utf8),
        ],
        ..SourceDef::new(ALERTS_SOURCE)
    }
}

/// `loom_rules` as the daemon defines it.
pub fn rules_source() -> SourceDef {
    let number = |name| FieldDef::new(name, FieldType::U64);
    let labels = PHASES.map(str::to_owned);
    SourceDef {
        fields: vec![
            FieldDef::new("rule", FieldType::Utf8),
            FieldDef::new("definition", FieldType::Utf8),
            FieldDef::new("evaluated_to", FieldType::TimestampNs),
            labelled("state", (0..).zip(labels).collect()),
            nullable("since", FieldType::TimestampNs),
            number("evaluations"),
            number("missed"),
            number("failures"),
            number("busy_ns"),
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

fn nullable(name: &str, ty: FieldType) -> FieldDef {
    FieldDef {
        nullable: true,
        ..FieldDef::new(name, ty)
    }
}

impl Alert {
    /// The payload of its record.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let float = |value: Option<f64>| value.map_or(FieldValue::Null, FieldValue::F64);
        let detail = self.detail.as_deref().map(cut);
        let values = [
            FieldValue::Bytes(self.rule.as_bytes()),
            FieldValue::U64(self.state as u64),
            float(self.value),
            float(self.threshold),
            FieldValue::I64(self.window.first.0),
            FieldValue::I64(self.window.last.0.saturating_add(1)),
            FieldValue::U64(self.position),
            detail.map_or(FieldValue::Null, |text| FieldValue::Bytes(text.as_bytes())),
        ];
        encode(&alerts_source(), &values)
    }
}

impl Progress {
    /// The payload of its record.
    pub fn encode(&self) -> Result<Vec<u8>, Error> {
        let (state, since) = match self.phase {
            Phase::Normal => (0, None),
            Phase::Pending { since } => (1, Some(since)),
            Phase::Firing => (2, None),
        };
        let values = [
            FieldValue::Bytes(self.rule.as_bytes()),
            FieldValue::Bytes(self.definition.as_bytes()),
            FieldValue::I64(self.evaluated_to.0),
            FieldValue::U64(state),
            since.map_or(FieldValue::Null, |since| FieldValue::I64(since.0)),
            FieldValue::U64(self.evaluations),
            FieldValue::U64(self.missed),
            FieldValue::U64(self.failures),
            FieldValue::U64(self.busy_ns),
        ];
        encode(&rules_source(), &values)
    }
}

fn encode(def: &SourceDef, values: &[FieldValue<'_>]) -> Result<Vec<u8>, Error> {
    let mut payload = Vec::new();
    PayloadEncoder::new(def.time, &def.fields)?.encode(None, values, &mut payload)?;
    Ok(payload)
}

/// As much of a text as a record takes.
fn cut(text: &str) -> &str {
    let end = (0..=TEXT_BYTES_MAX.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or("")
}

/// Where a rule stopped.
#[derive(Clone, Debug, PartialEq)]
pub struct Stopped {
    pub definition: String,
    pub evaluated_to: Timestamp,
    pub phase: Phase,
}

/// Where the rules of these names stopped, by what the directory holds. A rule without records is absent.
///
/// # Errors
/// Damage, or eviction meanwhile.
pub fn stopped(snapshot: &Snapshot, names: &[&str]) -> Result<HashMap<String, Stopped>, Error> {
    let mut found: HashMap<String, Stopped> = HashMap::new();
    let Some(source) = snapshot.catalog().find(RULES_SOURCE) else {
        return Ok(found);
    };
    let fields = Fields(source);
    newest_first(snapshot, source, |layout, payload| {
        if let Some(name) = fields.text("rule", layout, payload)
            && names.contains(&name.as_str())
            && !found.contains_key(&name)
            && let Some(stopped) = fields.stopped(layout, payload)
        {
            found.insert(name, stopped);
        }
        found.len() < names.len()
    })?;
    let Some(source) = snapshot.catalog().find(ALERTS_SOURCE) else {
        return Ok(found);
    };
    // An alert is later than what was written of its rule every few seconds.
    let mut settled: Vec<String> = Vec::new();
    let oldest = found.values().map(|stopped| stopped.evaluated_to).min();
    let fields = Fields(source);
    newest_first(snapshot, source, |layout, payload| {
        let (Some(name), Some(to)) = (
            fields.text("rule", layout, payload),
            fields.time("to_ts", layout, payload),
        ) else {
            return true;
        };
        let phase = match fields.number("state", layout, payload) {
            Some(state) if state == AlertState::Firing as u64 => Some(Phase::Firing),
            Some(state) if state == AlertState::Resolved as u64 => Some(Phase::Normal),
            _ => None,
        };
        if let Some(phase) = phase
            && let Some(stopped) = found.get_mut(&name)
            && !settled.contains(&name)
        {
            if to > stopped.evaluated_to {
                (stopped.evaluated_to, stopped.phase) = (to, phase);
            }
            settled.push(name);
        }
        Some(to) > oldest
    })?;
    Ok(found)
}

/// Gives the records of a source to `each`, the newest first, while it returns true.
fn newest_first(
    snapshot: &Snapshot,
    source: &Source,
    mut each: impl FnMut(&Layout, &[u8]) -> bool,
) -> Result<(), Error> {
    let mut looked = 0;
    raw_scan(
        snapshot,
        source.id,
        TimeRange::ALL,
        &Poll::never(),
        |record| {
            looked += 1;
            match each(record.layout, record.payload) && looked < LOOKED_MAX {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        },
    )
}

/// Reads fields by name: a later version may add some.
struct Fields<'a>(&'a Source);

impl Fields<'_> {
    fn place(&self, name: &str) -> Option<usize> {
        self.0.fields.iter().position(|field| field.name == name)
    }

    fn text(&self, name: &str, layout: &Layout, payload: &[u8]) -> Option<String> {
        let bytes = layout.bytes(self.place(name)?, payload)?;
        Some(String::from_utf8_lossy(bytes).into_owned())
    }

    fn number(&self, name: &str, layout: &Layout, payload: &[u8]) -> Option<u64> {
        Some(layout.key(self.place(name)?, payload)?.to_u64())
    }

    fn time(&self, name: &str, layout: &Layout, payload: &[u8]) -> Option<Timestamp> {
        Some(Timestamp(layout.key(self.place(name)?, payload)?.to_i64()))
    }

    fn stopped(&self, layout: &Layout, payload: &[u8]) -> Option<Stopped> {
        Some(Stopped {
            definition: self.text("definition", layout, payload)?,
            evaluated_to: self.time("evaluated_to", layout, payload)?,
            phase: match self.number("state", layout, payload)? {
                1 => Phase::Pending {
                    since: self.time("since", layout, payload)?,
                },
                2 => Phase::Firing,
                _ => Phase::Normal,
            },
        })
    }
}
