//! The writer thread's state: the engine's writer, and the parts that decide, count and report around it.
//!
//! Each part owns its fields and is given the writer when it needs it. The recorder only orders their work.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use loom_engine::ingest::Writer;
use loom_engine::log::Durability;
use loom_engine::schema::{ALERTS_SOURCE, LossReason, TimeKind, is_builtin};
use loom_engine::{Error, SourceId, TimeRange, Timestamp};

use super::buffer::Loss;
use super::clients::Clients;
use super::definitions;
use super::fate::{Fate, Outcome};
use super::forgetting::Forgetting;
use super::home::Home;
use super::ledger::Ledger;
use super::payload_batch::PayloadBatch;
use super::peer::Peer;
use super::retention::Retention;
use super::self_metrics::{Load, SelfMetrics};
use super::status::{DaemonStatus, SourceStatus, nanos};
use crate::config::Config;
use crate::losses::{Losses, Lost};
use crate::protocol::{Counts, LostCause};
pub(super) struct Recorder {
    pub(super) writer: Writer,
    pub(super) losses: Losses,
    pub(super) durability: Durability,
    pub(super) waiting_connections: u64,
    ledger: Ledger,
    home: Home,
    pub(super) retention: Retention,
    forgetting: Forgetting,
    metrics: SelfMetrics,
    started: Instant,
    clients: Arc<Clients>,
    /// The error of the log's latest operation.
    trouble: Option<String>,
    logged: Option<(String, Instant)>,
}

/// An error that goes on is logged once in this time.
const LOG_EVERY: Duration = Duration::from_secs(10);

impl Recorder {
    pub(super) fn new(
        writer: Writer,
        losses: Losses,
        retention: Retention,
        forgetting: Forgetting,
        metrics: SelfMetrics,
        durability: Durability,
        clients: Arc<Clients>,
    ) -> io::Result<Recorder> {
        Ok(Recorder {
            home: Home::of(writer.dir())?,
            writer,
            losses,
            durability,
            waiting_connections: 0,
            ledger: Ledger::default(),
            retention,
            forgetting,
            metrics,
            started: Instant::now(),
            clients,
            trouble: None,
            logged: None,
        })
    }

    /// Pushes payloads of a client, and counts the outcome. With `drops`, payloads that find the log full are lost.
    pub(super) fn push(
        &mut self,
        peer: &Peer,
        source: SourceId,
        payloads: &PayloadBatch<'_>,
        drops: bool,
    ) -> Outcome {
        let fate = match self.retention.refusal() {
            Some(why) => Fate::refused(source, payloads, LossReason::DiskFull, why.to_owned()),
            None => {
                let known_fields = peer.known_fields(self.writer.catalog(), source);
                Fate::of_push(&mut self.writer, source, known_fields, payloads, drops)
            }
        };
        if let Some(error) = &fate.failure {
            self.report(error);
        }
        self.enter(peer, source, fate)
    }

    /// Counts rows that a client could not make records of, as if it had sent them, and keeps the count before the client is answered.
    pub(super) fn enter_refused(
        &mut self,
        peer: &Peer,
        source: &str,
        records: u32,
        reason: String,
    ) -> Result<(), Error> {
        let loss = Loss {
            source: Some(definitions::find(self.writer.catalog(), source)?.id),
            reason: LossReason::Malformed,
            records: records.into(),
            bytes: None,
            detail: reason,
        };
        self.enter_unstored(peer, &loss);
        self.losses.settle(&mut self.writer);
        Ok(())
    }

    /// Counts records that were received and never were payloads. Those without a source are losses alone.
    pub(super) fn enter_unstored(&mut self, peer: &Peer, loss: &Loss) {
        let now = self.writer.now();
        self.losses.note(&loss.lost(), now);
        let Some(source) = loss.source else { return };
        let mut counts = Counts {
            received: loss.records,
            ..Counts::default()
        };
        match loss.reason {
            LossReason::Overload => counts.dropped = loss.records,
            _ => counts.refused = loss.records,
        }
        self.ledger.enter(source, counts, 0, now);
        let mut account = peer.account();
        account.counts.add(counts);
        if counts.refused > 0 {
            loss.detail.clone_into(&mut account.reason);
        }
    }

    /// An error says why the log takes no records now.
    pub(super) fn has_room(&mut self) -> Result<(), String> {
        if let Some(why) = self.retention.refusal().or(self.trouble()) {
            return Err(why.to_owned());
        }
        match self.writer.has_room() {
            Ok(true) => Ok(()),
            Ok(false) => Err("the log is full; try again".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Counts records that never reached this daemon, with the span of their times, and keeps the count before the client is answered. The
    /// ledger, which counts received records, does not have them.
    pub(super) fn enter_lost(
        &mut self,
        source: &str,
        records: u64,
        span: TimeRange,
        cause: LostCause,
        reason: &str,
    ) -> Result<(), Error> {
        let source = definitions::find(self.writer.catalog(), source)?;
        let (source, time) = (source.id, source.time);
        // Records with arrival times would have arrived by now.
        let latest = match time {
            TimeKind::Arrival => self.writer.now(),
            TimeKind::Own => Timestamp::MAX,
        };
        let span = TimeRange {
            first: span.first.min(latest),
            last: span.last.min(latest),
        };
        let lost = Lost {
            source: Some(source),
            reason: match cause {
                LostCause::Kernel => LossReason::BufferFull,
                LostCause::RingFull => LossReason::Overload,
                LostCause::DaemonKilled => LossReason::DaemonKilled,
                LostCause::Sampled => LossReason::Sampled,
            },
            records,
            bytes: None,
            detail: reason,
        };
        self.losses.note_span(&lost, span);
        self.losses.settle(&mut self.writer);
        Ok(())
    }

    /// Stores a record of a built-in source, if there is room.
    pub(super) fn store_own(&mut self, source: SourceId, payload: &[u8]) -> bool {
        match self.writer.try_push(source, payload) {
            Ok(place) => place.is_some(),
            Err(error) => {
                self.report(&error);
                false
            }
        }
    }

    /// Counts records of a built-in source that the log has no room for.
    pub(super) fn lose_own(&mut self, source: Option<SourceId>, records: u64) {
        let lost = Lost {
            source,
            reason: LossReason::Overload,
            records,
            bytes: None,
            detail: "the log was full",
        };
        self.losses.note(&lost, self.writer.now());
    }

    /// Counts the clock steps that found no room before the daemon stops.
    pub(super) fn lose_clock_steps(&mut self) {
        let steps = self.retention.unrecorded_clock_steps();
        if steps > 0 {
            let alerts = self.writer.catalog().find(ALERTS_SOURCE);
            self.lose_own(alerts.map(|source| source.id), steps);
        }
    }

    /// Counts the outcome of a push in the ledger, among the losses and in the connection's account.
    fn enter(&mut self, peer: &Peer, source: SourceId, fate: Fate) -> Outcome {
        let mut counts = fate.counts;
        counts.received = counts.stored + counts.refused + counts.dropped;
        let now = self.writer.now();
        if fate.outcome != Outcome::NoSuchSource {
            self.ledger.enter(source, counts, fate.stored_bytes, now);
        }
        for loss in &fate.losses {
            self.losses.note(&loss.lost(), now);
        }
        let mut account = peer.account();
        account.counts.add(counts);
        if let Some(loss) = fate.losses.into_iter().find(|loss| loss.concerns_client()) {
            account.reason = loss.detail;
        }
        fate.outcome
    }

    /// Does the work that is due before each publish: checks the directory and the room on the disk, records the daemon's metrics and losses.
    pub(super) fn keep_house(&mut self) {
        self.home.look();
        if let Err(error) = self.retention.enforce(&mut self.writer) {
            self.report(&error);
        }
        self.forgetting.look(&mut self.writer);
        let load = Load {
            connections: self.clients.connections.load(Ordering::Relaxed),
            waiting: self.waiting_connections,
        };
        self.metrics.record(&mut self.writer, &self.ledger, load);
        self.losses.settle(&mut self.writer);
    }

    /// Publishes; with `tick`, the writer's clock and heartbeat run too. True if everything that was taken in is published.
    pub(super) fn publish(&mut self, tick: bool) -> bool {
        let published = if tick {
            self.writer.tick()
        } else {
            self.writer.publish()
        };
        let all = published.is_ok();
        match published {
            Ok(()) | Err(Error::Full) => self.trouble = None,
            Err(error) => self.report(&error),
        }
        all
    }

    /// Says why the records that were just taken in are not safe: the directory is gone, or the log's latest operation failed.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.home.trouble().or(self.trouble.as_deref())
    }

    /// Takes over another configuration, or none of it. Returns notes on the parts that do not take effect.
    pub(super) fn reconfigure(&mut self, config: &Config) -> Result<Vec<String>, Error> {
        let mut notes = definitions::configure(&mut self.writer, config)?;
        notes.extend(config.retention.too_little(self.writer.bytes_min()));
        self.retention
            .reconfigure(config.retention.clone(), config.archive.clone());
        self.metrics.reconfigure(config.metrics.interval.0);
        Ok(notes)
    }

    pub(super) fn status(&self) -> DaemonStatus {
        let log = self.writer.stats().log;
        let segments = self.writer.record_segments();
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let sources = self.writer.catalog().sources();
        let sources = sources
            .filter(|source| !is_builtin(&source.name))
            .map(|source| {
                let account = self.ledger.account(source.id);
                SourceStatus {
                    id: source.id.0,
                    name: source.name.clone(),
                    received: account.counts.received,
                    stored: account.counts.stored,
                    refused: account.counts.refused,
                    dropped: account.counts.dropped,
                    bytes: account.stored_bytes,
                    last_push_ns: account.last_push.map(|time| time.0),
                }
            });
        // The gravest comes first.
        let own = self.trouble().map(str::to_owned);
        let others = self.retention.refusal().or(self.losses.trouble());
        let trouble = own.or_else(|| self.writer.trouble());
        let trouble = trouble.or_else(|| others.map(str::to_owned));
        DaemonStatus {
            pid: std::process::id(),
            uptime_ns: nanos(self.started.elapsed()),
            connections: count(&self.clients.connections),
            rings: count(&self.clients.rings),
            ring_bytes: count(&self.clients.ring_bytes),
            ring_dropped: count(&self.clients.ring_dropped),
            durability: match self.durability {
                Durability::None => "none".to_owned(),
                Durability::Batch => "batch".to_owned(),
                Durability::Interval(interval) => format!("{interval:?}"),
            },
            records_end: self.writer.position().0,
            records_durable: self.writer.durable().0,
            segment_bytes: self.writer.segment_bytes(),
            bytes_max: self.retention.bytes_max(),
            records_disk_bytes: segments.disk_bytes,
            records_encoded_bytes: segments.encoded_bytes,
            evicted_segments: self.retention.evicted_segments(),
            pending_losses: self.losses.pending(),
            log_stalls: log.stalls,
            log_stall_ns: nanos(log.stall),
            waiting_connections: self.waiting_connections,
            trouble,
            sources: sources.collect(),
        }
    }

    /// Keeps an error for the status and the syncs. Each batch may meet it again, so it is logged when it is new or `LOG_EVERY` has passed.
    fn report(&mut self, error: &Error) {
        let message = error.to_string();
        let is_same =
            |(before, at): &(String, Instant)| *before == message && at.elapsed() < LOG_EVERY;
        let is_known = self.logged.as_ref().is_some_and(is_same);
        if !is_known {
            tracing::error!("{message}");
            self.logged = Some((message.clone(), Instant::now()));
        }
        self.trouble = Some(message);
    }
}
