//! What the writer thread works on: the engine's writer, and the parts that decide, count and report around it.
//!
//! Each part owns its fields and is given the writer when it needs it. The recorder only says in which order they act.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loom_engine::ingest::Writer;
use loom_engine::log::Durability;
use loom_engine::schema::{LossReason, TimeKind, is_builtin};
use loom_engine::{Error, SourceId, TimeRange, Timestamp};

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
    /// How many connections wait for room in the log.
    pub(super) waiting_connections: u64,
    ledger: Ledger,
    home: Home,
    retention: Retention,
    forgetting: Forgetting,
    metrics: SelfMetrics,
    started: Instant,
    clients: Arc<Clients>,
    /// Why the log's latest operation failed, if it did.
    trouble: Option<String>,
    /// The error that was logged last, and when.
    logged: Option<(String, Instant)>,
}

/// How often an error is logged that goes on.
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

    /// Pushes payloads of a client, and enters what became of them; `drops`: what finds the log full is lost.
    pub(super) fn push(
        &mut self,
        peer: &Peer,
        source: SourceId,
        payloads: &PayloadBatch<'_>,
        drops: bool,
    ) -> Outcome {
        let fate = match self.retention.refusal() {
            Some(why) => Fate::refused(payloads, LossReason::DiskFull, why.to_owned()),
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

    /// Enters rows that a client could not make records of, as if it had sent them, and keeps them before the client is answered.
    pub(super) fn enter_refused(
        &mut self,
        peer: &Peer,
        source: &str,
        records: u32,
        reason: &str,
    ) -> Result<(), Error> {
        let source = definitions::find(self.writer.catalog(), source)?.id;
        let lost = Lost {
            source: Some(source),
            reason: LossReason::Malformed,
            records: records.into(),
            bytes: None,
            detail: reason,
        };
        self.enter_unstored(peer, &lost);
        self.losses.settle(&mut self.writer);
        Ok(())
    }

    /// Enters records that count as received and were never payloads: a ring's producer dropped them, or they cannot be made or read. Those of no source
    /// that there is are losses alone.
    pub(super) fn enter_unstored(&mut self, peer: &Peer, lost: &Lost<'_>) {
        let now = self.writer.now();
        self.losses.note(lost, now);
        let Some(source) = lost.source else { return };
        let mut counts = Counts {
            received: lost.records,
            ..Counts::default()
        };
        match lost.reason {
            LossReason::Overload => counts.dropped = lost.records,
            _ => counts.refused = lost.records,
        }
        self.ledger.enter(source, counts, 0, now);
        let mut account = peer.account();
        account.counts.add(counts);
        if counts.refused > 0 {
            lost.detail.clone_into(&mut account.reason);
        }
    }

    /// Why the log takes no records now, if it does not.
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

    /// Enters records that this daemon never had, with the span of their times, and keeps them before the client is answered. The ledger does
    /// not count them: they did not reach the daemon.
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
        // What has arrival times would have arrived by now.
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

    /// Keeps losses where a kill does not reach them, before a client learns of them.
    pub(super) fn keep_losses(&mut self) {
        self.losses.keep_pending(&mut self.writer);
    }

    /// Enters in the ledger, among the losses and in the connection's account what became of a push.
    fn enter(&mut self, peer: &Peer, source: SourceId, fate: Fate) -> Outcome {
        let mut counts = fate.counts;
        counts.received = counts.stored + counts.refused + counts.dropped;
        let now = self.writer.now();
        let known = (fate.outcome != Outcome::NoSuchSource).then_some(source);
        if known.is_some() {
            self.ledger.enter(source, counts, fate.stored_bytes, now);
        }
        for loss in &fate.losses {
            let lost = Lost {
                source: known,
                reason: loss.reason,
                records: loss.records,
                bytes: Some(loss.bytes),
                detail: &loss.detail,
            };
            self.losses.note(&lost, now);
        }
        let mut account = peer.account();
        account.counts.add(counts);
        if let Some(loss) = fate.losses.into_iter().find(|loss| loss.concerns_client()) {
            account.reason = loss.detail;
        }
        fate.outcome
    }

    /// Retention waits while a pin is written.
    pub(super) fn begin_pin(&mut self) {
        self.retention.wait_for_pin(self.writer.position());
    }

    pub(super) fn end_pin(&mut self) {
        self.retention.end_wait();
    }

    /// Does what is due before each publish, apart from pushes: looks after the directory, room on the disk, the daemon's metrics, and losses.
    pub(super) fn keep_house(&mut self) {
        self.home.look();
        if let Err(error) = self.retention.enforce(&mut self.writer) {
            self.report(&error);
        }
        self.forgetting.look(&mut self.writer);
        let load = Load {
            connections: self.clients.connections(),
            waiting: self.waiting_connections,
        };
        self.metrics.record(&mut self.writer, &self.ledger, load);
        self.losses.settle(&mut self.writer);
    }

    /// Publishes what was taken in; with `tick`, the writer's clock and heartbeat run too. Whether all of it is published.
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

    /// Why what was just taken in is not safe: the directory is gone, or the log's latest operation failed.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.home.trouble().or(self.trouble.as_deref())
    }

    /// Takes over another configuration, or none of it. Returns what does not take effect.
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
        let columns = self.writer.columns();
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
        DaemonStatus {
            pid: std::process::id(),
            uptime_ns: nanos(self.started.elapsed()),
            connections: self.clients.connections(),
            rings: self.clients.rings(),
            ring_bytes: self.clients.ring_bytes(),
            ring_dropped: self.clients.ring_dropped(),
            durability: match self.durability {
                Durability::None => "none".to_owned(),
                Durability::Batch => "batch".to_owned(),
                Durability::Interval(interval) => format!("{interval:?}"),
            },
            records_end: self.writer.position().0,
            records_durable: self.writer.durable().0,
            segment_bytes: self.writer.segment_bytes(),
            bytes_max: self.retention.bytes_max(),
            column_segments: columns.segments,
            column_bytes: columns.bytes,
            column_rows_bytes: columns.rows_bytes,
            evicted_segments: self.retention.evicted_segments(),
            pending_losses: self.losses.pending(),
            log_stalls: log.stalls,
            log_stall_ns: nanos(log.stall),
            waiting_connections: self.waiting_connections,
            trouble: self.gravest_trouble(),
            sources: sources.collect(),
        }
    }

    /// What is wrong now, the gravest first.
    fn gravest_trouble(&self) -> Option<String> {
        let others = self.retention.refusal().or(self.losses.trouble());
        let own = self.trouble().map(str::to_owned);
        own.or_else(|| self.writer.trouble())
            .or_else(|| others.map(str::to_owned))
    }

    /// Keeps an error for the status and the syncs, and logs it when it is new, or was not logged for a while: each batch may meet it.
    fn report(&mut self, error: &Error) {
        let message = error.to_string();
        let is_known = self
            .logged
            .as_ref()
            .is_some_and(|(before, at)| *before == message && at.elapsed() < LOG_EVERY);
        if !is_known {
            tracing::error!("{message}");
            self.logged = Some((message.clone(), Instant::now()));
        }
        self.trouble = Some(message);
    }
}
