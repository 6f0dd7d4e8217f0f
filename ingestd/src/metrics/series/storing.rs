//! Stores the samples of one target in its groups, or refuses them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loom_engine::query::{Directory, Poll, raw_scan};
use loom_engine::schema::{
    FieldValue, METRIC_LABEL, Overload, PayloadEncoder, SourceDef, TimeKind,
};
use loom_engine::{Address, SourceId, TimeRange, Timestamp, proven};

use super::taken::Taken;
use super::windows::{LATE, Memory, OLDER, Windows};
use super::{Groups, NoPlace, Slot};
use crate::daemon::answer::Gone;
use crate::daemon::inlet::Inlet;
use crate::daemon::message::{Defined, Growth};
use crate::daemon::refused::Refused;
use crate::exposition::Sample;
use crate::metrics::names::{Series, shown};

const MS_NS: i64 = 1_000_000;
/// The bounds of a sample's own time around the machine's.
const AHEAD_MS_MAX: i64 = 600_000;
const BEHIND_MS_MAX: i64 = 86_400_000;

const CHURN: &str = "more than series_max series are new within a day";
const NOT_NOW: &str = "the catalog takes no new series";

/// Samples of a target that come together.
pub(in crate::metrics) struct Arrived<'a> {
    /// The time, in milliseconds, of samples that have none of their own.
    pub(in crate::metrics) time_ms: i64,
    /// The daemon's own samples about the target. They get their places first.
    pub(in crate::metrics) reported: &'a [Sample<'a>],
    /// `None` if the target gave nothing that can be stored.
    pub(in crate::metrics) samples: Option<&'a [Sample<'a>]>,
    /// The samples that were refused before.
    pub(in crate::metrics) refused: Refused,
    /// The room for its records. Each time makes a record in each group, with a field for every series of the group.
    pub(in crate::metrics) record_bytes_max: usize,
    /// The greatest length of the catalog file with new series.
    pub(in crate::metrics) catalog_bytes_max: u64,
}

/// The outcome of storing samples.
#[derive(Default)]
pub(in crate::metrics) struct Stored {
    pub(in crate::metrics) refused: Refused,
    /// The places of refused samples among those that came.
    pub(in crate::metrics) refused_at: BTreeSet<usize>,
    /// Some are refused because their series are new and a limit is reached; they may be stored later.
    pub(in crate::metrics) is_limited: bool,
    /// The growth of the catalog file.
    pub(in crate::metrics) catalog_bytes: u64,
    /// Says why only known series were stored.
    pub(in crate::metrics) trouble: Option<String>,
    /// The room for further records of the same request.
    pub(in crate::metrics) record_bytes_left: usize,
}

/// The reason why nothing could be stored.
pub(in crate::metrics) enum Failed {
    /// The definition of the source was refused.
    Defining(String),
    WriterGone,
}

impl From<Gone> for Failed {
    fn from(_: Gone) -> Failed {
        Failed::WriterGone
    }
}

/// Stores the samples of one target.
pub(in crate::metrics) struct GroupStore {
    /// The name of the first group.
    source: String,
    /// The labels that all series of the target have.
    target: Series,
    /// Labels of a sample win over those of the target.
    honors_labels: bool,
    series_max: usize,
    on_overload: Overload,
    /// `None` before the first samples, after a failure, and after the catalog forgot sources: then the catalog is read again.
    groups: Option<Groups>,
    /// The catalog forgot sources below this address when the groups were read.
    forgotten_below: Address,
    /// The source of the first group, once there is one.
    first: Option<SourceId>,
    /// The begin of the count of new series, and the count, for groups that are read next.
    day: Option<(Instant, usize)>,
    directory: Arc<Directory>,
    /// The windows of samples with times of their own.
    windows: Windows,
}

/// Reports whether a sample may bring this time.
fn is_near(time_ms: i64, now_ms: i64) -> bool {
    let ahead_ms = time_ms.saturating_sub(now_ms);
    (-BEHIND_MS_MAX..=AHEAD_MS_MAX).contains(&ahead_ms)
}

impl GroupStore {
    /// `source` is the name of the first group, `target` has the labels of all its series.
    pub(in crate::metrics) fn new(
        directory: Arc<Directory>,
        source: String,
        target: Series,
        series_max: usize,
        on_overload: Overload,
    ) -> GroupStore {
        GroupStore {
            directory,
            source,
            target,
            honors_labels: false,
            series_max,
            on_overload,
            groups: None,
            forgotten_below: Address::ZERO,
            first: None,
            day: None,
            windows: Windows::new(Duration::ZERO, Arc::default()),
        }
    }

    pub(in crate::metrics) fn source(&self) -> &str {
        &self.source
    }

    /// Hands over the samples. If the catalog takes no new series, the known ones are stored.
    pub(in crate::metrics) fn store(
        &mut self,
        inlet: &mut Inlet,
        arrived: &Arrived<'_>,
    ) -> Result<Stored, Failed> {
        match self.try_store(inlet, arrived, true) {
            Err(Failed::Defining(why)) => {
                let stored = self.try_store(inlet, arrived, false)?;
                Ok(Stored {
                    trouble: Some(why),
                    ..stored
                })
            }
            stored => stored,
        }
    }

    /// A failure drops the groups, because they may contain series that are not stored. A catalog that has forgotten sources since drops them too.
    fn try_store(
        &mut self,
        inlet: &mut Inlet,
        arrived: &Arrived<'_>,
        takes_new: bool,
    ) -> Result<Stored, Failed> {
        let mut groups = match self.groups.take() {
            Some(groups) => groups,
            None => {
                self.windows.clear();
                self.load(inlet)?
            }
        };
        let samples = arrived.samples.unwrap_or_default();
        let now_ms = arrived.time_ms;
        let mut taken = Taken::new(arrived.record_bytes_max, arrived.refused.clone());
        // The size of a record is known when all series have their places.
        let reported = self.places(&mut groups, arrived.reported, now_ms, takes_new);
        let places = self.places(&mut groups, samples, now_ms, takes_new);
        let placed = arrived.reported.iter().zip(&reported);
        self.recall(inlet, &groups, placed.chain(samples.iter().zip(&places)))?;
        for (sample, place) in arrived.reported.iter().zip(reported) {
            match self.take(&groups, sample, place, now_ms, &mut taken) {
                // Its newest sample is stored already.
                Ok(()) | Err(OLDER | LATE) => {}
                Err(why) => taken.refuse(why, || shown(&self.series(sample), groups.shared())),
            }
        }
        let (mut refused_at, mut is_limited) = (BTreeSet::new(), false);
        for (at, (sample, place)) in samples.iter().zip(places).enumerate() {
            if let Err(why) = self.take(&groups, sample, place, now_ms, &mut taken) {
                taken.refuse(why, || shown(&self.series(sample), groups.shared()));
                refused_at.insert(at);
                is_limited |= [CHURN, NOT_NOW].contains(&why);
            }
        }
        let Defined {
            catalog_bytes,
            forgotten_below,
            ..
        } = self.hand_over(inlet, &groups, &taken, arrived.catalog_bytes_max)?;
        if arrived.samples.is_some() {
            groups.scraped(Instant::now());
        }
        self.day = groups.day();
        if forgotten_below == self.forgotten_below {
            self.groups = Some(groups);
        }
        Ok(Stored {
            is_limited,
            catalog_bytes,
            refused: taken.refused,
            refused_at,
            trouble: None,
            record_bytes_left: taken.record_bytes_left,
        })
    }

    fn load(&mut self, inlet: &Inlet) -> Result<Groups, Failed> {
        let known = inlet.catalog()?;
        let first = known.catalog.find(&self.source);
        self.first = first.map(|source| source.id);
        self.forgotten_below = known.catalog.forgotten_below();
        Groups::load(
            &known.catalog,
            &self.source,
            known.payload_bytes_max,
            self.series_max,
            self.target.keys().cloned().collect(),
            self.on_overload,
            self.day,
        )
        .map_err(Failed::Defining)
    }

    /// Reads the stored samples of these series that are needed for a comparison and unknown.
    fn recall<'a>(
        &mut self,
        inlet: &mut Inlet,
        groups: &Groups,
        placed: impl Iterator<Item = (&'a Sample<'a>, &'a Result<Slot, &'static str>)>,
    ) -> Result<(), Gone> {
        let own = placed.filter_map(|(sample, place)| Some((place.ok()?, sample.time_ms?)));
        let unread = self.windows.unread(own);
        if unread.is_empty() {
            return Ok(());
        }
        // Readers see published records alone.
        inlet.publish()?;
        for (group, times_ms) in unread {
            let from_ms = times_ms.start;
            if let Err(error) = self.read(groups, group, times_ms) {
                let source = &self.source;
                tracing::warn!(
                    "cannot read the latest samples of {source}: {error}; some may be stored twice"
                );
            }
            self.windows.is_read(group, from_ms);
        }
        Ok(())
    }

    /// Reads the samples of a group that have these times.
    fn read(
        &mut self,
        groups: &Groups,
        group: usize,
        times_ms: Range<i64>,
    ) -> Result<(), loom_engine::Error> {
        let mut snapshot = self.directory.snapshot()?;
        snapshot.ask_retained(|snapshot| {
            // A group that is about to be defined holds nothing.
            let Some(source) = snapshot.catalog().find(&groups.group(group).def.name) else {
                return Ok(());
            };
            let [from, to] =
                [times_ms.start, times_ms.end].map(|ms| Timestamp(ms.saturating_mul(MS_NS)));
            let times = TimeRange::half_open(from, to);
            raw_scan(snapshot, source.id, times, &Poll::never(), |record| {
                let time_ms = record.ts.0 / MS_NS;
                for field in 0..source.fields.len() {
                    let bytes = record.layout.fixed(field, record.payload);
                    if let Some(bytes) = bytes.and_then(<[u8]>::first_chunk) {
                        let slot = Slot { group, field };
                        self.windows.add(slot, time_ms, f64::from_le_bytes(*bytes));
                    }
                }
                ControlFlow::Continue(())
            })
        })
    }

    /// Takes samples of a series in any order within a window. `memory` limits all windows that share it.
    pub(in crate::metrics) fn with_window(
        self,
        length: Duration,
        memory: Arc<Memory>,
    ) -> GroupStore {
        GroupStore {
            windows: Windows::new(length, memory),
            ..self
        }
    }

    /// Makes room in memory. Series that got nothing since the previous call take samples only in order from now on.
    pub(in crate::metrics) fn forget_idle(&mut self) {
        self.windows.forget_idle();
    }

    pub(in crate::metrics) fn honoring_labels(self, honors_labels: bool) -> GroupStore {
        GroupStore {
            honors_labels,
            ..self
        }
    }

    /// The labels of a series, as Prometheus makes them. The labels of the target win over those of the sample, which are renamed to
    /// `exported_…` until the name is free. If the job honors labels, those of the sample win, and none is renamed.
    fn series(&self, sample: &Sample<'_>) -> Series {
        let mut series: Series = self.target.clone();
        if self.honors_labels {
            for (name, _) in &sample.labels {
                series.remove(*name);
            }
        }
        let given = sample.labels.iter().filter(|(_, value)| !value.is_empty());
        let (taken, free): (Vec<_>, Vec<_>) =
            given.partition(|(name, _)| series.contains_key(*name));
        for (name, value) in free {
            series.insert((*name).to_owned(), value.clone().into_owned());
        }
        for (name, value) in taken {
            let mut name = (*name).to_owned();
            while series.contains_key(&name) {
                name.insert_str(0, "exported_");
            }
            series.insert(name, value.clone().into_owned());
        }
        series.insert(METRIC_LABEL.to_owned(), sample.metric.to_owned());
        series
    }

    /// Returns the slots of samples, or the reasons why they have none.
    fn places(
        &self,
        groups: &mut Groups,
        samples: &[Sample<'_>],
        now_ms: i64,
        takes_new: bool,
    ) -> Vec<Result<Slot, &'static str>> {
        let mut placed: HashSet<Slot> = HashSet::new();
        let place = |sample: &Sample<'_>| {
            if !is_near(sample.time_ms.unwrap_or(now_ms), now_ms) {
                return Err(
                    "the time of a sample is more than 10 minutes ahead or a day behind; set the clock of its sender",
                );
            }
            let series = self.series(sample);
            let is_placed = |slot| placed.contains(&slot);
            if placed.len() >= self.series_max && !groups.known(&series).is_some_and(is_placed) {
                return Err(
                    "more than series_max series come in one request; raise series_max, or let the sender drop attributes",
                );
            }
            let place = groups.place(&series, takes_new);
            let slot = place.map_err(|no_place| match no_place {
                NoPlace::TooLong => "the labels take more than 4096 bytes",
                NoPlace::Churn => CHURN,
                NoPlace::NotNow => NOT_NOW,
            })?;
            placed.insert(slot);
            Ok(slot)
        };
        samples.iter().map(place).collect()
    }

    /// Takes a sample; the error is the reason for refusing it.
    fn take(
        &mut self,
        groups: &Groups,
        sample: &Sample<'_>,
        place: Result<Slot, &'static str>,
        now_ms: i64,
        taken: &mut Taken,
    ) -> Result<(), &'static str> {
        let (slot, value) = (place?, sample.value);
        let time_ms = sample.time_ms.unwrap_or(now_ms);
        // A sample that comes again is stored already.
        if let Some(own_ms) = sample.time_ms
            && !self.windows.is_new(slot, own_ms, value)?
        {
            return Ok(());
        }
        let record_bytes = groups.group(slot.group).record_bytes();
        taken.put(time_ms, slot, value, record_bytes)?;
        if let Some(own_ms) = sample.time_ms {
            self.windows.add(slot, own_ms, value);
        }
        Ok(())
    }

    /// Passes everything that was taken to the writer thread: definitions, refusals, and records. A group that was forgotten meanwhile is
    /// defined again.
    fn hand_over(
        &mut self,
        inlet: &mut Inlet,
        groups: &Groups,
        taken: &Taken,
        catalog_bytes_max: u64,
    ) -> Result<Defined, Failed> {
        let used = taken.records.keys().map(|(_, group)| *group);
        // Growing groups are defined even without records, because a restart finds a group only behind those before it.
        let used: BTreeSet<usize> = used.chain(groups.growing()).collect();
        let defs = used.iter().map(|group| groups.group(*group).def.clone());
        let growth = Growth {
            catalog_bytes_max,
            forgotten_below: self.forgotten_below,
        };
        let defined = match used.is_empty() {
            true => Defined {
                ids: Vec::new(),
                catalog_bytes: 0,
                forgotten_below: self.forgotten_below,
            },
            false => inlet
                .grow(defs.collect(), growth)?
                .map_err(|error| Failed::Defining(error.to_string()))?,
        };
        let ids: BTreeMap<usize, SourceId> =
            used.into_iter().zip(defined.ids.iter().copied()).collect();
        self.first = ids.get(&0).copied().or(self.first);
        // A target without a stored sample has no source.
        let named = match self.first {
            None => format!("of {}; ", self.source),
            Some(_) => String::new(),
        };
        taken.refused.enter_as(inlet, self.first, &named);
        for ((time_ms, group), values) in &taken.records {
            let payload = encoded(&groups.group(*group).def, *time_ms, values);
            let id = ids.get(group).expect("each group that is used was defined");
            inlet.add(*id, &payload)?;
        }
        inlet.flush()?;
        Ok(defined)
    }
}

/// A record of the values of one time; a field without a value is NULL.
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
