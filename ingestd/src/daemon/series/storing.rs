//! The groups of one target, and what of its samples is stored in them or refused.

use std::borrow::Cow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use loom_engine::query::{Directory, Poll, raw_scan};
use loom_engine::schema::{
    FieldValue, LossReason, METRIC_LABEL, PayloadEncoder, SourceDef, TimeKind,
};
use loom_engine::{TimeRange, Timestamp, proven};

use super::{Groups, NoPlace, Series, Slot, shown};
use crate::daemon::definitions;
use crate::daemon::message::{Gone, Inbox};
use crate::daemon::payload_batch::PayloadBatch;
use crate::daemon::peer::Peer;
use crate::daemon::recorder::Recorder;
use crate::exposition::Sample;
use crate::losses::Lost;
use crate::protocol::Shape;

const MS_NS: i64 = 1_000_000;
/// A sample's own time may be so far ahead of the machine's, and so far behind.
const AHEAD_MS_MAX: i64 = 600_000;
const BEHIND_MS_MAX: i64 = 86_400_000;
/// How many times of their own samples that come together may have: each makes a record.
const TIMES_MAX: usize = 64;

/// What comes of a target at once.
pub(in crate::daemon) struct Arrived<'a> {
    /// When, in milliseconds: the time of what has none of its own.
    pub(in crate::daemon) time_ms: i64,
    /// What the daemon itself reports of the target. It has its places before all else.
    pub(in crate::daemon) reported: &'a [(&'a str, f64)],
    /// None where the target gave nothing that can be stored.
    pub(in crate::daemon) samples: Option<&'a [Sample<'a>]>,
    /// What is refused already, by why.
    pub(in crate::daemon) refused: BTreeMap<String, u64>,
}

/// What became of it.
#[derive(Default)]
pub(in crate::daemon) struct Stored {
    /// How many samples are refused, by why.
    pub(in crate::daemon) refused: BTreeMap<String, u64>,
    /// Which ones, by their place among those that came.
    pub(in crate::daemon) refused_at: BTreeSet<usize>,
    /// Why only known series were stored, if so.
    pub(in crate::daemon) trouble: Option<String>,
}

/// Why nothing could be stored.
pub(in crate::daemon) enum Failed {
    /// The source cannot be as it is needed.
    Defining(String),
    WriterGone,
}

impl From<Gone> for Failed {
    fn from(_: Gone) -> Failed {
        Failed::WriterGone
    }
}

/// Stores the samples of one target.
pub(in crate::daemon) struct GroupStore {
    inbox: Inbox,
    peer: Arc<Peer>,
    /// The name of the first group.
    source: String,
    /// The labels of the target, which all its series have.
    target: Series,
    series_max: usize,
    /// Read from the catalog when they are first needed, and after a definition was refused.
    groups: Option<Groups>,
    directory: Arc<Directory>,
    /// The latest sample of each series that brings its own times.
    latest: HashMap<Slot, Latest>,
    /// They include what is stored of an earlier run.
    is_recalled: bool,
}

struct Latest {
    time_ms: i64,
    value: f64,
}

/// What is taken of samples that came together.
#[derive(Default)]
struct Taken {
    /// By time, in milliseconds.
    records: BTreeMap<i64, Vec<(Slot, f64)>>,
    held: HashSet<(i64, Slot)>,
    refused: BTreeMap<String, u64>,
    refused_at: BTreeSet<usize>,
}

impl Taken {
    /// False, with nothing taken, if there is a value of the series at that time.
    fn put(&mut self, time_ms: i64, slot: Slot, value: f64) -> bool {
        let is_new = self.held.insert((time_ms, slot));
        if is_new {
            self.records.entry(time_ms).or_default().push((slot, value));
        }
        is_new
    }

    fn refuse(&mut self, at: usize, why: &str, series: impl FnOnce() -> String) {
        // The first of a kind stands for the others.
        let known = self.refused.keys().find(|known| known.starts_with(why));
        let reason = match known {
            Some(known) => known.clone(),
            None => format!("{why}, such as {}", series()),
        };
        *self.refused.entry(reason).or_default() += 1;
        self.refused_at.insert(at);
    }
}

/// Whether a sample may have this time of its own.
fn is_near(time_ms: i64, now_ms: i64) -> bool {
    let ahead_ms = time_ms.saturating_sub(now_ms);
    (-BEHIND_MS_MAX..=AHEAD_MS_MAX).contains(&ahead_ms)
}

/// One record on its way.
struct Push {
    source: String,
    fields: usize,
    payload: Vec<u8>,
}

impl GroupStore {
    /// `source` is the name of the first group, `target` what all its series have for labels.
    pub(in crate::daemon) fn new(
        inbox: Inbox,
        peer: Arc<Peer>,
        directory: Arc<Directory>,
        source: String,
        target: Series,
        series_max: usize,
    ) -> GroupStore {
        GroupStore {
            inbox,
            peer,
            directory,
            is_recalled: false,
            source,
            target,
            series_max,
            groups: None,
            latest: HashMap::new(),
        }
    }

    pub(in crate::daemon) fn source(&self) -> &str {
        &self.source
    }

    /// Stores what came. Where the catalog takes no new series, those that it has are stored.
    pub(in crate::daemon) fn store(&mut self, arrived: &Arrived<'_>) -> Result<Stored, Failed> {
        match self.try_store(arrived, true) {
            Err(Failed::Defining(why)) => {
                self.groups = None;
                self.latest.clear();
                self.is_recalled = false;
                let stored = self.try_store(arrived, false)?;
                Ok(Stored {
                    trouble: Some(why),
                    ..stored
                })
            }
            stored => stored,
        }
    }

    fn try_store(&mut self, arrived: &Arrived<'_>, takes_new: bool) -> Result<Stored, Failed> {
        let mut groups = match self.groups.take() {
            Some(groups) => groups,
            None => self.load()?,
        };
        let mut taken = Taken {
            refused: arrived.refused.clone(),
            ..Taken::default()
        };
        for (metric, value) in arrived.reported {
            let series = self.series(metric, &[]);
            if let Ok(slot) = groups.place(&series, takes_new) {
                taken.put(arrived.time_ms, slot, *value);
            }
        }
        let samples = arrived.samples.unwrap_or_default();
        if !self.is_recalled && !samples.is_empty() {
            if let Err(error) = self.recall(&groups, samples, arrived.time_ms) {
                let source = &self.source;
                tracing::warn!(
                    "cannot read the latest samples of {source}: {error}; some may be stored twice"
                );
            }
            self.is_recalled = true;
        }
        for (at, sample) in samples.iter().enumerate() {
            let series = self.series(sample.metric, &sample.labels);
            let now_ms = arrived.time_ms;
            let took = self.take(&mut groups, &series, sample, now_ms, takes_new, &mut taken);
            if let Err(why) = took {
                taken.refuse(at, why, || shown(&series, groups.shared()));
            }
        }
        if arrived.samples.is_some() {
            groups.scraped(Instant::now());
        }
        let stored = self.hand_over(&groups, taken);
        self.groups = Some(groups);
        stored
    }

    fn load(&self) -> Result<Groups, Failed> {
        let (source, new_max) = (self.source.clone(), self.series_max);
        let shared = self.target.keys().cloned().collect();
        let loaded = self.inbox.call(None, move |recorder| {
            let writer = &recorder.writer;
            let payload_bytes_max = writer.payload_bytes_max();
            Groups::load(
                writer.catalog(),
                &source,
                payload_bytes_max,
                new_max,
                shared,
            )
        })?;
        loaded.map_err(Failed::Defining)
    }

    /// Reads which of these samples with times of their own an earlier run has stored.
    fn recall(
        &mut self,
        groups: &Groups,
        samples: &[Sample<'_>],
        now_ms: i64,
    ) -> Result<(), loom_engine::Error> {
        let mut fields: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let mut span = TimeRange::EMPTY;
        for sample in samples {
            let Some(time_ms) = sample.time_ms.filter(|time_ms| is_near(*time_ms, now_ms)) else {
                continue;
            };
            let series = self.series(sample.metric, &sample.labels);
            if let Some(slot) = groups.known(&series) {
                fields.entry(slot.group).or_default().push(slot.field);
                let time = Timestamp(time_ms * MS_NS);
                span.first = span.first.min(time);
                span.last = span.last.max(time);
            }
        }
        let snapshot = self.directory.snapshot()?;
        for (group, fields) in fields {
            // One that is about to be defined holds nothing.
            let Some(source) = snapshot.catalog().find(&groups.group(group).def.name) else {
                continue;
            };
            raw_scan(&snapshot, source.id, span, &Poll::never(), |record| {
                let time_ms = record.ts.0 / MS_NS;
                for &field in &fields {
                    let bytes = record.layout.fixed(field, record.payload);
                    let Some(bytes) = bytes.and_then(<[u8]>::first_chunk) else {
                        continue;
                    };
                    let value = f64::from_le_bytes(*bytes);
                    let slot = Slot { group, field };
                    let is_later = self
                        .latest
                        .get(&slot)
                        .is_none_or(|known| known.time_ms < time_ms);
                    if is_later {
                        self.latest.insert(slot, Latest { time_ms, value });
                    }
                }
                ControlFlow::Continue(())
            })?;
        }
        Ok(())
    }

    /// The labels of a series: those of the target go before those that come with it.
    fn series(&self, metric: &str, labels: &[(&str, Cow<'_, str>)]) -> Series {
        let mut series: Series = self.target.clone();
        for (name, value) in labels.iter().filter(|(_, value)| !value.is_empty()) {
            let mut name = (*name).to_owned();
            while series.contains_key(&name) {
                name.insert_str(0, "exported_");
            }
            series.insert(name, value.clone().into_owned());
        }
        series.insert(METRIC_LABEL.to_owned(), metric.to_owned());
        series
    }

    /// Takes a sample, or says why not.
    fn take(
        &mut self,
        groups: &mut Groups,
        series: &Series,
        sample: &Sample<'_>,
        now_ms: i64,
        takes_new: bool,
        taken: &mut Taken,
    ) -> Result<(), &'static str> {
        let time_ms = sample.time_ms.unwrap_or(now_ms);
        if !is_near(time_ms, now_ms) {
            return Err("the target's time is more than 10 minutes ahead or a day behind");
        }
        let slot = groups
            .place(series, takes_new)
            .map_err(|no_place| match no_place {
                NoPlace::TooLong => "the labels take more than 4096 bytes",
                NoPlace::Churn => "more than series_max series are new within a day",
                NoPlace::NotNow => "the catalog takes no new series",
            })?;
        if sample.time_ms.is_some() {
            let value = sample.value;
            let latest = Latest { time_ms, value };
            match self.latest.entry(slot) {
                Entry::Occupied(known) if known.get().time_ms > time_ms => {
                    return Err("the sample is older than the one before");
                }
                Entry::Occupied(known) if known.get().time_ms == time_ms => {
                    // What comes again is there already.
                    return match known.get().value.to_bits() == value.to_bits() {
                        true => Ok(()),
                        false => Err("a series has several values within a millisecond"),
                    };
                }
                Entry::Occupied(mut known) => {
                    known.insert(latest);
                }
                Entry::Vacant(place) => {
                    place.insert(latest);
                }
            }
        }
        if taken.records.len() >= TIMES_MAX && !taken.records.contains_key(&time_ms) {
            return Err("the samples have more than 64 times");
        }
        match taken.put(time_ms, slot, sample.value) {
            true => Ok(()),
            false => Err("a series stands twice in one answer, or is one of the daemon's own"),
        }
    }

    /// Gives the writer thread all at once: what it defines, its records, and what it refuses.
    fn hand_over(&self, groups: &Groups, taken: Taken) -> Result<Stored, Failed> {
        let mut pushes = Vec::new();
        let mut defs: BTreeMap<usize, SourceDef> = BTreeMap::new();
        for (time_ms, values) in &taken.records {
            let mut by_group: BTreeMap<usize, Vec<(usize, f64)>> = BTreeMap::new();
            for (slot, value) in values {
                let values = by_group.entry(slot.group).or_default();
                values.push((slot.field, *value));
            }
            for (group, values) in by_group {
                let def = &groups.group(group).def;
                defs.entry(group).or_insert_with(|| def.clone());
                pushes.push(Push {
                    source: def.name.clone(),
                    fields: def.fields.len(),
                    payload: encoded(def, *time_ms, &values),
                });
            }
        }
        let defs: Vec<SourceDef> = defs.into_values().collect();
        let (peer, first) = (Arc::clone(&self.peer), self.source.clone());
        let refused = taken.refused.clone();
        let stored = self.inbox.call(None, move |recorder| {
            recorder.store_samples(&peer, &defs, &pushes, &first, &refused)
        })?;
        stored.map_err(|error| Failed::Defining(error.to_string()))?;
        Ok(Stored {
            refused: taken.refused,
            refused_at: taken.refused_at,
            trouble: None,
        })
    }
}

/// A payload; a field without a value is NULL.
fn encoded(def: &SourceDef, time_ms: i64, values: &[(usize, f64)]) -> Vec<u8> {
    let mut all = vec![FieldValue::Null; def.fields.len()];
    for (field, value) in values {
        *proven::at_mut(&mut all, *field) = FieldValue::F64(*value);
    }
    let mut payload = Vec::new();
    let own = Timestamp(time_ms.saturating_mul(MS_NS));
    let mut encoder = PayloadEncoder::new(TimeKind::Own, &def.fields)
        .expect("a group's fields are numbers, and no more than a source has");
    encoder
        .encode(Some(own), &all, &mut payload)
        .expect("numbers that fit a payload are encoded");
    payload
}

impl Recorder {
    fn store_samples(
        &mut self,
        peer: &Peer,
        defs: &[SourceDef],
        pushes: &[Push],
        first: &str,
        refused: &BTreeMap<String, u64>,
    ) -> Result<(), loom_engine::Error> {
        let mut new = Vec::new();
        for def in defs {
            match self.writer.catalog().find(&def.name) {
                Some(known) if !known.is_open() => {
                    let name = known.name.clone();
                    return Err(loom_engine::Error::SourceClosed { name });
                }
                Some(known) if known.fields.len() >= def.fields.len() => {}
                _ => new.push(def.clone()),
            }
        }
        if !new.is_empty() {
            definitions::define(&mut self.writer, &new)?;
        }
        for Push {
            source,
            fields,
            payload,
        } in pushes
        {
            let id = definitions::find(self.writer.catalog(), source)?.id;
            peer.learn(id, *fields);
            let record_bytes = payload.len() as u16;
            let batch = PayloadBatch {
                shape: Shape::Fixed { record_bytes },
                bytes: payload,
                records: 1,
            };
            self.push(peer, id, &batch);
        }
        let Some(first) = self.writer.catalog().find(first).map(|source| source.id) else {
            return Ok(());
        };
        if refused.is_empty() {
            return Ok(());
        }
        // One loss: of several with one reason, the ledger would keep the words of one.
        let said = refused
            .iter()
            .map(|(why, samples)| format!("{samples}: {why}"));
        let lost = Lost {
            source: Some(first),
            reason: LossReason::Malformed,
            records: refused.values().sum(),
            bytes: None,
            detail: &said.collect::<Vec<_>>().join("; "),
        };
        self.enter_unstored(peer, first, &lost);
        Ok(())
    }
}
