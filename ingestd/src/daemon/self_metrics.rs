//! `loom_metrics`: what the daemon did, as records of a built-in source: one for each source that was busy, and one for the whole.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use loom_engine::ingest::Writer;
use loom_engine::log::LogStats;
use loom_engine::schema::{
    FieldDef, FieldType, FieldValue, METRICS_SOURCE, PayloadEncoder, SourceDef, is_builtin,
};
use loom_engine::{Error, SourceId};

use super::ledger::{Ledger, SourceAccount};
use super::status::nanos;
use crate::protocol::Counts;

pub(super) struct SelfMetrics {
    /// Zero: nothing is recorded.
    interval: Duration,
    /// When records were last attempted, and when the last of them were written.
    tried: Instant,
    recorded: Instant,
    /// The account of each source when it was last recorded.
    before: BTreeMap<SourceId, SourceAccount>,
    all_before: SourceAccount,
    log_before: LogStats,
    source: Option<SourceId>,
}

/// What happened between two records.
struct Period {
    elapsed: Duration,
    counts: Counts,
    bytes: u64,
}

/// How busy the daemon is now.
#[derive(Copy, Clone)]
pub(super) struct Load {
    pub(super) connections: u64,
    /// Connections that wait for room in the log.
    pub(super) waiting: u64,
}

/// What stands only in the record of the whole daemon.
struct Whole {
    stalls: u64,
    stall: Duration,
    load: Load,
}

impl SelfMetrics {
    pub(super) fn new(interval: Duration) -> SelfMetrics {
        SelfMetrics {
            interval,
            tried: Instant::now(),
            recorded: Instant::now(),
            before: BTreeMap::new(),
            all_before: SourceAccount::default(),
            log_before: LogStats::default(),
            source: None,
        }
    }

    pub(super) fn reconfigure(&mut self, interval: Duration) {
        self.interval = interval;
    }
}

/// The source as the daemon defines it.
fn metrics_source() -> SourceDef {
    let number = |name| FieldDef::new(name, FieldType::U64);
    SourceDef {
        fields: vec![
            number("interval_ns"),
            number("received"),
            number("stored"),
            number("refused"),
            number("dropped"),
            number("payload_bytes"),
            FieldDef::nullable("stalls", FieldType::U64),
            FieldDef::nullable("stall_ns", FieldType::U64),
            FieldDef::nullable("connections", FieldType::U64),
            FieldDef::nullable("waiting", FieldType::U64),
            FieldDef::nullable("source_name", FieldType::Utf8),
        ],
        ..SourceDef::new(METRICS_SOURCE)
    }
}

impl SelfMetrics {
    /// Records what was done since the last time, when it is time to and there is something to report. What finds the log full is in the
    /// next records, whose interval is longer.
    pub(super) fn record(&mut self, writer: &mut Writer, ledger: &Ledger, load: Load) {
        if self.interval.is_zero() || self.tried.elapsed() < self.interval {
            return;
        }
        self.tried = Instant::now();
        match self.try_record(writer, ledger, load) {
            Ok(()) => {}
            Err(Error::Full) => tracing::debug!(
                "loom_metrics: the log is full; the next records cover this interval too"
            ),
            Err(error) => tracing::warn!(
                "cannot record loom_metrics: {error}; the next records cover this interval too"
            ),
        }
    }

    fn try_record(
        &mut self,
        writer: &mut Writer,
        ledger: &Ledger,
        load: Load,
    ) -> Result<(), Error> {
        let elapsed = self.recorded.elapsed();
        let mut busy = Vec::new();
        let mut all = SourceAccount::default();
        let sources = writer.catalog().sources();
        for source in sources.filter(|source| !is_builtin(&source.name)) {
            let account = ledger.account(source.id);
            all.counts.add(account.counts);
            all.stored_bytes += account.stored_bytes;
            let before = self.before.entry(source.id).or_default();
            let period = Period::between(before, &account, elapsed);
            if period.counts.received > 0 {
                busy.push((source.id, source.name.clone(), account, period));
            }
        }
        let log = writer.stats().log;
        let whole = Whole {
            stalls: log.stalls - self.log_before.stalls,
            stall: log.stall - self.log_before.stall,
            load,
        };
        let total = Period::between(&self.all_before, &all, elapsed);
        if total.counts.received == 0 && whole.stalls == 0 && load.waiting == 0 {
            self.recorded = Instant::now();
            return Ok(());
        }
        let def = metrics_source();
        let id = match self.source {
            Some(id) => id,
            None => writer.define_builtin_source(&def)?,
        };
        self.source = Some(id);
        let mut encoder = PayloadEncoder::new(def.time, &def.fields)?;
        let mut payload = Vec::with_capacity(128);
        let mut push = |values: &[FieldValue<'_>]| -> Result<(), Error> {
            payload.clear();
            encoder.encode(None, values, &mut payload)?;
            writer.try_push(id, &payload)?.ok_or(Error::Full)?;
            Ok(())
        };
        for (source, name, account, period) in &busy {
            push(&values(period, None, Some(name)))?;
            self.before.insert(*source, *account);
        }
        push(&values(&total, Some(&whole), None))?;
        (self.all_before, self.log_before) = (all, log);
        self.recorded = Instant::now();
        Ok(())
    }
}

impl Period {
    fn between(before: &SourceAccount, now: &SourceAccount, elapsed: Duration) -> Period {
        Period {
            elapsed,
            counts: now.counts.since(before.counts),
            bytes: now.stored_bytes - before.stored_bytes,
        }
    }
}

fn values<'a>(
    period: &Period,
    whole: Option<&Whole>,
    source: Option<&'a str>,
) -> [FieldValue<'a>; 11] {
    let of_whole = |number: fn(&Whole) -> u64| {
        whole.map_or(FieldValue::Null, |whole| FieldValue::U64(number(whole)))
    };
    [
        FieldValue::U64(nanos(period.elapsed)),
        FieldValue::U64(period.counts.received),
        FieldValue::U64(period.counts.stored),
        FieldValue::U64(period.counts.refused),
        FieldValue::U64(period.counts.dropped),
        FieldValue::U64(period.bytes),
        of_whole(|whole| whole.stalls),
        of_whole(|whole| nanos(whole.stall)),
        of_whole(|whole| whole.load.connections),
        of_whole(|whole| whole.load.waiting),
        source.map_or(FieldValue::Null, |name| FieldValue::Bytes(name.as_bytes())),
    ]
}
