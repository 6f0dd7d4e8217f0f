//! `loom_metrics`: records of the daemon's own work in a built-in source, one for each source that was busy and one for the whole daemon.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loom_engine::ingest::Writer;
use loom_engine::log::LogStats;
use loom_engine::schema::{
    FieldDef, FieldType, FieldValue, METRICS_SOURCE, PayloadEncoder, SourceDef, is_builtin,
};
use loom_engine::{Error, SourceId};

use super::ledger::{Ledger, SourceAccount};
use super::status::nanos;
use crate::process_time;

pub(super) struct SelfMetrics {
    /// Zero: nothing is recorded.
    interval: Duration,
    /// The times of the last attempt, and of the last records.
    tried: Instant,
    recorded: Instant,
    /// The account of each source when it was last recorded.
    before: BTreeMap<SourceId, SourceAccount>,
    all_before: SourceAccount,
    log_before: LogStats,
    cpu_before: Duration,
    programs_before_ns: u64,
    /// The processor time of a recording's programs in the kernel. Relaxed order suffices, because it guards no other memory.
    programs_ns: Arc<AtomicU64>,
    source: Option<SourceId>,
}

/// The connections of clients.
#[derive(Copy, Clone)]
pub(super) struct Load {
    pub(super) connections: u64,
    /// Those that wait for room in the log.
    pub(super) waiting: u64,
}

fn metrics_source() -> SourceDef {
    let numbers = [
        "interval_ns",
        "received",
        "stored",
        "refused",
        "dropped",
        "payload_bytes",
    ];
    let of_whole = ["stalls", "stall_ns", "connections", "waiting"];
    let numbers = numbers.map(|name| FieldDef::new(name, FieldType::U64));
    let of_whole = of_whole.map(|name| FieldDef::nullable(name, FieldType::U64));
    let name = FieldDef::nullable("source_name", FieldType::Utf8);
    let times = ["cpu_ns", "programs_ns"].map(|name| FieldDef::nullable(name, FieldType::U64));
    let fields = numbers.into_iter().chain(of_whole).chain([name]);
    SourceDef {
        fields: fields.chain(times).collect(),
        ..SourceDef::new(METRICS_SOURCE)
    }
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
            cpu_before: process_time(),
            programs_before_ns: 0,
            programs_ns: Arc::default(),
            source: None,
        }
    }

    /// Where a recording in this process keeps the processor time of its programs in the kernel.
    pub(super) fn programs_ns(&self) -> &Arc<AtomicU64> {
        &self.programs_ns
    }

    pub(super) fn reconfigure(&mut self, interval: Duration) {
        self.interval = interval;
    }

    /// Records the work since the last time, when it is time to and there is something to report. After a failure, the next records cover a longer
    /// interval.
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
        let elapsed_ns = nanos(self.recorded.elapsed());
        let mut busy = Vec::new();
        let mut all = SourceAccount::default();
        let sources = writer.catalog().sources();
        for source in sources.filter(|source| !is_builtin(&source.name)) {
            let account = ledger.account(source.id);
            all.counts.add(account.counts);
            all.stored_bytes += account.stored_bytes;
            let before = *self.before.entry(source.id).or_default();
            if account.counts.received > before.counts.received {
                busy.push((source.id, source.name.clone(), before, account));
            }
        }
        let log = writer.stats().log;
        let stalls = log.stalls - self.log_before.stalls;
        let stall_ns = nanos(log.stall - self.log_before.stall);
        let is_idle = all.counts.received == self.all_before.counts.received;
        if is_idle && stalls == 0 && load.waiting == 0 {
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
        let mut push = |before: &SourceAccount, now: &SourceAccount, rest: [FieldValue<'_>; 7]| {
            let counts = now.counts.since(before.counts);
            let bytes = now.stored_bytes - before.stored_bytes;
            let mut values = [
                elapsed_ns,
                counts.received,
                counts.stored,
                counts.refused,
                counts.dropped,
                bytes,
            ]
            .map(FieldValue::U64)
            .to_vec();
            values.extend(rest);
            payload.clear();
            encoder.encode(None, &values, &mut payload)?;
            writer.try_push(id, &payload)?.ok_or(Error::Full)
        };
        let null = FieldValue::Null;
        for (source, name, before, now) in &busy {
            let name = FieldValue::Bytes(name.as_bytes());
            push(before, now, [null, null, null, null, name, null, null])?;
            self.before.insert(*source, *now);
        }
        let whole = [stalls, stall_ns, load.connections, load.waiting];
        let [stalls, stall_ns, connections, waiting] = whole.map(FieldValue::U64);
        let (cpu, programs_ns) = (process_time(), self.programs_ns.load(Ordering::Relaxed));
        let cpu_ns = FieldValue::U64(nanos(cpu.saturating_sub(self.cpu_before)));
        // It stays 0 where there is no recording, and where the kernel does not measure programs.
        let programs = match programs_ns {
            0 => null,
            now_ns => FieldValue::U64(now_ns - self.programs_before_ns),
        };
        let whole = [
            stalls,
            stall_ns,
            connections,
            waiting,
            null,
            cpu_ns,
            programs,
        ];
        push(&self.all_before, &all, whole)?;
        (self.all_before, self.log_before) = (all, log);
        (self.cpu_before, self.programs_before_ns) = (cpu, programs_ns);
        self.recorded = Instant::now();
        Ok(())
    }
}
