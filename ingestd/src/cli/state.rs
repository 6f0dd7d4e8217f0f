//! The document of `status --json` and `top --json`: the state of a daemon and its sources, or of a directory without one.

use std::collections::HashMap;
use std::time::Duration;

use ingestd::daemon::{DaemonStatus, SourceStatus};
use ingestd::{rfc3339, wall_clock};
use loom_engine::query::{Directory, Snapshot};
use loom_engine::{Result, Timestamp};
use serde::Serialize;

/// Counts of a daemon are since its start.
#[derive(Default, Serialize)]
pub(super) struct State {
    /// `running`; without an answer `not_permitted`, `other_writer` or `not_running`.
    daemon: &'static str,
    pid: Option<u32>,
    uptime_ns: Option<u64>,
    connections: Option<u64>,
    waiting_connections: Option<u64>,
    rings: Option<u64>,
    ring_bytes: Option<u64>,
    ring_dropped: Option<u64>,
    durability: Option<String>,
    pub(super) records_begin_bytes: Option<u64>,
    pub(super) records_end_bytes: Option<u64>,
    records_durable_bytes: Option<u64>,
    records_encoded_bytes: Option<u64>,
    records_disk_bytes: Option<u64>,
    pub(super) segment_bytes: Option<u64>,
    segment_bytes_max: Option<u64>,
    evicted_segments: Option<u64>,
    pending_losses: Option<u64>,
    log_stalls: Option<u64>,
    log_stall_ns: Option<u64>,
    /// The arrival of the oldest record.
    pub(super) oldest_at: Option<String>,
    trouble: Option<String>,
    /// The time over which the rates are measured.
    interval_ns: Option<u64>,
    pub(super) sources: Vec<SourceState>,
}

#[derive(Default, Serialize)]
pub(super) struct SourceState {
    id: u16,
    pub(super) name: String,
    pub(super) closed: Option<bool>,
    /// The records in the directory, and their bytes in the log.
    pub(super) records: Option<u64>,
    pub(super) record_bytes: Option<u64>,
    received: Option<u64>,
    stored: Option<u64>,
    refused: Option<u64>,
    dropped: Option<u64>,
    payload_bytes: Option<u64>,
    last_push_at: Option<String>,
    lag_ns: Option<u64>,
    records_per_s: Option<f64>,
    payload_bytes_per_s: Option<f64>,
}

/// The counts of each source an interval ago.
pub(super) struct Before {
    sources: HashMap<u16, SourceStatus>,
}

/// The rates of a source in the interval.
#[derive(Copy, Clone, Default, PartialEq, Debug)]
pub(super) struct Rates {
    pub(super) records_per_s: f64,
    pub(super) payload_bytes_per_s: f64,
}

impl Before {
    pub(super) fn of(status: DaemonStatus) -> Before {
        let sources = status.sources.into_iter();
        let sources = sources.map(|source| (source.id, source)).collect();
        Before { sources }
    }

    /// The rates of a source since then; `None` for a new one, which has no earlier counts.
    pub(super) fn rates(&self, now: &SourceStatus, interval: Duration) -> Option<Rates> {
        let then = self.sources.get(&now.id)?;
        let per_s = |now: u64, then: u64| {
            now.saturating_sub(then) as f64 / interval.as_secs_f64().max(1e-3)
        };
        Some(Rates {
            records_per_s: per_s(now.received, then.received),
            payload_bytes_per_s: per_s(now.bytes, then.bytes),
        })
    }
}

/// The time since the latest push. If the clock was set back since then, it is 0.
pub(super) fn lag(source: &SourceStatus) -> Option<Duration> {
    let last_ns = source.last_push_ns?;
    let lag_ns = wall_clock().0.saturating_sub(last_ns).max(0);
    Some(Duration::from_nanos(lag_ns.cast_unsigned()))
}

impl State {
    /// The state that a daemon reports, with rates since `before`.
    pub(super) fn of_daemon(
        status: &DaemonStatus,
        oldest_at: Option<String>,
        before: Option<(&Before, Duration)>,
    ) -> State {
        let sources = status.sources.iter().map(|source| {
            let rates = before.and_then(|(before, interval)| before.rates(source, interval));
            SourceState {
                id: source.id,
                name: source.name.clone(),
                received: Some(source.received),
                stored: Some(source.stored),
                refused: Some(source.refused),
                dropped: Some(source.dropped),
                payload_bytes: Some(source.bytes),
                last_push_at: source.last_push_ns.map(|ns| rfc3339(Timestamp(ns))),
                lag_ns: lag(source).map(nanos),
                records_per_s: rates.map(|rates| rates.records_per_s),
                payload_bytes_per_s: rates.map(|rates| rates.payload_bytes_per_s),
                ..SourceState::default()
            }
        });
        State {
            daemon: "running",
            pid: Some(status.pid),
            uptime_ns: Some(status.uptime_ns),
            connections: Some(status.connections),
            waiting_connections: Some(status.waiting_connections),
            rings: Some(status.rings),
            ring_bytes: Some(status.ring_bytes),
            ring_dropped: Some(status.ring_dropped),
            durability: Some(status.durability.clone()),
            records_begin_bytes: None,
            records_end_bytes: Some(status.records_end),
            records_durable_bytes: Some(status.records_durable),
            records_encoded_bytes: Some(status.records_encoded_bytes),
            records_disk_bytes: Some(status.records_disk_bytes),
            segment_bytes: Some(status.segment_bytes),
            segment_bytes_max: status.bytes_max,
            evicted_segments: Some(status.evicted_segments),
            pending_losses: Some(status.pending_losses),
            log_stalls: Some(status.log_stalls),
            log_stall_ns: Some(status.log_stall_ns),
            oldest_at,
            trouble: status.trouble.clone(),
            interval_ns: before.map(|(_, interval)| nanos(interval)),
            sources: sources.collect(),
        }
    }

    /// The state of a directory whose daemon does not answer, for the reason that `daemon` names.
    pub(super) fn of_directory(
        directory: &Directory,
        snapshot: &Snapshot,
        daemon: &'static str,
        segment_bytes_max: Option<u64>,
    ) -> Result<State> {
        let totals = snapshot.totals()?;
        let sources = snapshot.catalog().sources().map(|source| {
            let totals = totals.get(&source.id).copied().unwrap_or_default();
            SourceState {
                id: source.id.0,
                name: source.name.clone(),
                closed: Some(!source.is_open()),
                records: Some(totals.records),
                record_bytes: Some(totals.bytes),
                ..SourceState::default()
            }
        });
        Ok(State {
            daemon,
            records_begin_bytes: Some(snapshot.begin().0),
            records_end_bytes: Some(snapshot.position()),
            segment_bytes: Some(directory.segment_bytes()?),
            segment_bytes_max,
            oldest_at: snapshot.oldest_ts()?.map(rfc3339),
            sources: sources.collect(),
            ..State::default()
        })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_differences_over_the_interval() {
        let source = |received| SourceStatus {
            id: 1,
            name: "x".to_owned(),
            received,
            ..SourceStatus::default()
        };
        let status = |received| DaemonStatus {
            sources: vec![source(received)],
            ..DaemonStatus::default()
        };
        let before = Before::of(status(1000));
        let interval = Duration::from_secs(2);
        let rates = before.rates(&source(3000), interval).unwrap();
        assert_eq!(
            (rates.records_per_s, rates.payload_bytes_per_s),
            (1000.0, 0.0)
        );
        let new = Before::of(DaemonStatus::default());
        assert_eq!(new.rates(&source(3000), interval), None);
        let state = State::of_daemon(&status(3000), None, Some((&before, interval)));
        let json = serde_json::to_value(&state).unwrap();
        assert_eq!(json["interval_ns"], 2_000_000_000_u64);
        assert_eq!(json["sources"][0]["records_per_s"], 1000.0);
        assert_eq!(json["sources"][0]["last_push_at"], serde_json::Value::Null);
    }
}
