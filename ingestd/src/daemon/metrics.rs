//! `loom_metrics`: what the daemon did, as records of a built-in source: one for each source that was busy, and one for the whole.

use std::time::{Duration, Instant};

use loom_engine::ingest::Writer;
use loom_engine::log::LogStats;
use loom_engine::schema::{
    FieldDef, FieldType, FieldValue, METRICS_SOURCE, PayloadEncoder, SourceDef, is_builtin,
};
use loom_engine::{Error, SourceId};

use super::ledger::Ledger;
use crate::protocol::Counts;

pub(super) struct Metrics {
    /// Zero: nothing is recorded.
    interval: Duration,
    last: Instant,
    /// The counts of each source, by id, when they were last recorded.
    before: Vec<Counts>,
    bytes_before: Vec<u64>,
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

impl Metrics {
    pub(super) fn new(interval: Duration) -> Metrics {
        Metrics {
            interval,
            last: Instant::now(),
            before: Vec::new(),
            bytes_before: Vec::new(),
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
    let nullable = |name, ty| FieldDef {
        nullable: true,
        ..FieldDef::new(name, ty)
    };
    let number = |name| FieldDef::new(name, FieldType::U64);
    SourceDef {
        fields: vec![
            number("interval_ns"),
            number("received"),
            number("stored"),
            number("refused"),
            number("dropped"),
            number("payload_bytes"),
            nullable("stalls", FieldType::U64),
            nullable("stall_ns", FieldType::U64),
            nullable("connections", FieldType::U64),
            nullable("waiting", FieldType::U64),
            nullable("source_name", FieldType::Utf8),
        ],
        ..SourceDef::new(METRICS_SOURCE)
    }
}

impl Metrics {
    /// Records what was done since the last time, when it is time to and there is something to report.
    pub(super) fn record(&mut self, writer: &mut Writer, ledger: &Ledger, load: Load) {
        let elapsed = self.last.elapsed();
        if self.interval.is_zero() || elapsed < self.interval {
            return;
        }
        self.last = Instant::now();
        if let Err(error) = self.try_record(writer, ledger, load, elapsed) {
            tracing::debug!("loom_metrics: {error}");
        }
    }

    fn try_record(
        &mut self,
        writer: &mut Writer,
        ledger: &Ledger,
        load: Load,
        elapsed: Duration,
    ) -> Result<(), Error> {
        let mut busy = Vec::new();
        let mut total = Period {
            elapsed,
            counts: Counts::default(),
            bytes: 0,
        };
        let sources = writer.catalog().sources();
        for source in sources.filter(|source| !is_builtin(&source.name)) {
            let period = self.period(ledger, source.id, elapsed);
            if period.counts.received > 0 {
                total.counts.add(period.counts);
                total.bytes += period.bytes;
                busy.push((source.id, source.name.clone(), period));
            }
        }
        for (id, _, period) in &busy {
            self.note(*id, period);
        }
        let log = writer.stats().log;
        let before = std::mem::replace(&mut self.log_before, log);
        let whole = Whole {
            stalls: log.stalls - before.stalls,
            stall: log.stall.saturating_sub(before.stall),
            load,
        };
        if busy.is_empty() && whole.stalls == 0 && load.waiting == 0 {
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
        for (_, name, period) in &busy {
            payload.clear();
            encoder.encode(None, &values(period, None, Some(name)), &mut payload)?;
            writer.try_push(id, &payload)?;
        }
        payload.clear();
        encoder.encode(None, &values(&total, Some(&whole), None), &mut payload)?;
        writer.try_push(id, &payload)?;
        Ok(())
    }

    fn period(&self, ledger: &Ledger, source: SourceId, elapsed: Duration) -> Period {
        let account = ledger.account(source);
        let place = usize::from(source.0);
        let before = self.before.get(place).copied().unwrap_or_default();
        let bytes_before = self.bytes_before.get(place).copied();
        Period {
            elapsed,
            counts: Counts {
                received: account.counts.received - before.received,
                stored: account.counts.stored - before.stored,
                refused: account.counts.refused - before.refused,
                dropped: account.counts.dropped - before.dropped,
            },
            bytes: account.stored_bytes - bytes_before.unwrap_or(0),
        }
    }

    fn note(&mut self, source: SourceId, period: &Period) {
        let place = usize::from(source.0);
        if self.before.len() <= place {
            self.before.resize(place + 1, Counts::default());
            self.bytes_before.resize(place + 1, 0);
        }
        if let Some(counts) = self.before.get_mut(place) {
            counts.add(period.counts);
        }
        if let Some(bytes) = self.bytes_before.get_mut(place) {
            *bytes += period.bytes;
        }
    }
}

fn values<'a>(
    period: &Period,
    whole: Option<&Whole>,
    source: Option<&'a str>,
) -> [FieldValue<'a>; 11] {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
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
        of_whole(|whole| u64::try_from(whole.stall.as_nanos()).unwrap_or(u64::MAX)),
        of_whole(|whole| whole.load.connections),
        of_whole(|whole| whole.load.waiting),
        source.map_or(FieldValue::Null, |name| FieldValue::Bytes(name.as_bytes())),
    ]
}
