//! The one thread that writes: takes batches in, publishes, ticks, and answers syncs.
//!
//! It never waits for a client, and never for the disk while it could do something else: a batch that finds the log
//! full is put aside, with what its connection sent after it, and tried again; other connections go on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use loom_engine::ingest::{Batch as EngineBatch, Writer};
use loom_engine::log::Durability;
use loom_engine::schema::{LossReason, Overload, is_builtin};
use loom_engine::{Error, SourceId};

use super::ledger::Ledger;
use super::message::{Batch, Call, Item, Message, Outlet};
use super::metering::Metering;
use super::peer::Peer;
use super::retaining::Retaining;
use super::syncs::Syncs;
use super::widening;
use crate::losses::{Losses, Lost};
use crate::protocol::{Counts, ErrorCode, Reply, Shape};

/// How late a record may become visible, and how often the writer's clock and heartbeat run.
const TICK: Duration = Duration::from_millis(5);
/// How long messages are taken in before what they brought is published.
const DRAIN: Duration = Duration::from_millis(2);
/// How soon a full log, or an fsync under way, is looked at again.
const RETRY: Duration = Duration::from_micros(500);

pub(super) struct Writing {
    pub(super) writer: Writer,
    pub(super) ledger: Ledger,
    pub(super) losses: Losses,
    pub(super) retaining: Retaining,
    pub(super) metering: Metering,
    pub(super) durability: Durability,
    pub(super) started: Instant,
    pub(super) connections: Arc<AtomicU64>,
    /// Batches and calls whose connection waits for room in the log, in the order they came.
    waiting: VecDeque<Message>,
    syncs: Syncs,
    /// What the log's latest operation failed with.
    pub(super) trouble: Option<String>,
    stopping: Option<Vec<Arc<Peer>>>,
}

/// What became of a push.
enum Outcome {
    Taken,
    /// So many bytes and records of it were taken before the log was full.
    Full {
        bytes: usize,
        records: u64,
    },
    /// The client named a source that does not exist.
    NoSuchSource,
}

/// Payloads of one source as a client sent them.
#[derive(Copy, Clone)]
pub(super) struct Payloads<'a> {
    pub(super) shape: Shape,
    pub(super) bytes: &'a [u8],
    /// How many `bytes` holds.
    pub(super) records: u64,
}

/// What became of a push, in numbers.
struct Fate {
    counts: Counts,
    stored_bytes: u64,
    losses: Vec<Loss>,
    outcome: Outcome,
}

struct Loss {
    reason: LossReason,
    records: u64,
    bytes: u64,
    detail: String,
}

impl Loss {
    /// Whether the client learns why: it is told of what was refused.
    fn tells_client(&self) -> bool {
        !self.detail.is_empty() && self.reason != LossReason::LogFailed
    }
}

impl Payloads<'_> {
    /// The fate of payloads none of which is taken.
    fn refused(&self, reason: LossReason, detail: String) -> Fate {
        Fate {
            counts: Counts {
                refused: self.records,
                ..Counts::default()
            },
            ..self.lost(reason, detail)
        }
    }

    fn dropped(&self, reason: LossReason, detail: String) -> Fate {
        Fate {
            counts: Counts {
                dropped: self.records,
                ..Counts::default()
            },
            ..self.lost(reason, detail)
        }
    }

    fn lost(&self, reason: LossReason, detail: String) -> Fate {
        Fate {
            counts: Counts::default(),
            stored_bytes: 0,
            losses: vec![Loss {
                reason,
                records: self.records,
                bytes: self.shape.payload_bytes(self.bytes.len(), self.records),
                detail,
            }],
            outcome: Outcome::Taken,
        }
    }

    /// How many bytes the first `records` of them take.
    fn bytes_of(&self, records: u64) -> usize {
        match self.shape {
            Shape::Fixed { record_bytes } => records as usize * usize::from(record_bytes),
            Shape::Framed => {
                let batch = EngineBatch::Framed { bytes: self.bytes };
                let first = batch.payloads().take(records as usize);
                first.flatten().map(|payload| 2 + payload.len()).sum()
            }
        }
    }
}

impl Writing {
    pub(super) fn new(
        writer: Writer,
        losses: Losses,
        retaining: Retaining,
        metering: Metering,
        durability: Durability,
        connections: Arc<AtomicU64>,
    ) -> Self {
        Writing {
            writer,
            ledger: Ledger::default(),
            losses,
            retaining,
            metering,
            durability,
            started: Instant::now(),
            connections,
            waiting: VecDeque::new(),
            syncs: Syncs::default(),
            trouble: None,
            stopping: None,
        }
    }

    /// Takes messages until it is told to stop, or nobody is left to send any; then closes the log.
    pub(super) fn run(mut self, outlet: &Outlet) -> Result<(), Error> {
        let inbox = outlet.messages();
        let mut last_tick = Instant::now();
        loop {
            match inbox.recv_timeout(self.patience(last_tick)) {
                Ok(message) => {
                    self.take(message);
                    let began = Instant::now();
                    while began.elapsed() < DRAIN
                        && let Ok(message) = inbox.try_recv()
                    {
                        self.take(message);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // Nobody sends any more, but what waits for room or for the disk is still owed.
                    self.stopping.get_or_insert_default();
                    std::thread::sleep(RETRY);
                }
            }
            self.retry_waiting();
            self.retain();
            self.meter();
            self.losses.settle(&mut self.writer);
            self.publish(&mut last_tick);
            self.syncs.answer(&mut self.writer, self.trouble.as_deref());
            if self.waiting.is_empty()
                && self.syncs.is_empty()
                && let Some(peers) = self.stopping.take()
            {
                return self.finish(&peers);
            }
        }
    }

    /// How many connections are held back because the log is full.
    pub(super) fn waiting_connections(&self) -> u64 {
        let mut peers: Vec<u64> = self
            .waiting
            .iter()
            .filter_map(Message::peer)
            .map(|peer| peer.id)
            .collect();
        peers.sort_unstable();
        peers.dedup();
        peers.len() as u64
    }

    fn patience(&self, last_tick: Instant) -> Duration {
        if self.waiting.is_empty() && self.syncs.is_empty() {
            TICK.saturating_sub(last_tick.elapsed())
        } else {
            RETRY
        }
    }

    /// Publishes what was taken in; ticks when it is time.
    fn publish(&mut self, last_tick: &mut Instant) {
        let published = if last_tick.elapsed() >= TICK {
            *last_tick = Instant::now();
            self.writer.tick()
        } else {
            self.writer.publish()
        };
        match published {
            Ok(()) | Err(Error::Full) => self.trouble = None,
            Err(error) => self.report(&error),
        }
    }

    /// Keeps an error for the status and the syncs, and logs it when it is new.
    pub(super) fn report(&mut self, error: &Error) {
        let message = error.to_string();
        if self.trouble.as_ref() != Some(&message) {
            tracing::error!("{message}");
            self.trouble = Some(message);
        }
    }

    fn take(&mut self, message: Message) {
        let held_back = message
            .peer()
            .is_some_and(|peer| peer.account().waiting > 0);
        let full = if held_back {
            Some(message)
        } else {
            self.attempt(message)
        };
        if let Some(message) = full {
            if let Some(peer) = message.peer() {
                peer.account().waiting += 1;
            }
            self.waiting.push_back(message);
        }
    }

    /// Tries what waits again, in order; a connection whose first piece still finds no room keeps waiting whole.
    fn retry_waiting(&mut self) {
        let mut still_full: Vec<u64> = Vec::new();
        for _ in 0..self.waiting.len() {
            let Some(message) = self.waiting.pop_front() else {
                return;
            };
            let peer = message.peer().cloned();
            let id = peer.as_ref().map(|peer| peer.id);
            let held_back = id.is_some_and(|id| still_full.contains(&id));
            match if held_back {
                Some(message)
            } else {
                self.attempt(message)
            } {
                Some(message) => {
                    still_full.extend(id);
                    self.waiting.push_back(message);
                }
                None => {
                    if let Some(peer) = peer {
                        peer.account().waiting -= 1;
                    }
                }
            }
        }
    }

    /// Carries a message out. Gives back what found the log full.
    fn attempt(&mut self, message: Message) -> Option<Message> {
        match message {
            Message::Batch(batch) => self.attempt_batch(batch).map(Message::Batch),
            Message::Call(Call { work, .. }) => {
                work(self);
                None
            }
            Message::Stop { peers } => {
                self.stopping = Some(peers);
                None
            }
        }
    }

    fn attempt_batch(&mut self, mut batch: Batch) -> Option<Batch> {
        let peer = Arc::clone(&batch.peer);
        while let Some(item) = batch.buffer.items.get(batch.next_item) {
            match item {
                Item::Sync { request, depth } => {
                    self.syncs.note(&peer, *request, *depth, self.durability)
                }
                Item::Push {
                    source,
                    shape,
                    range,
                    records,
                } => {
                    let bytes = batch
                        .buffer
                        .bytes
                        .get(range.start + batch.taken_bytes..range.end)
                        .unwrap_or_default();
                    let records = records - batch.taken_records;
                    match self.push(&peer, *source, *shape, bytes, records) {
                        Outcome::Taken => {}
                        Outcome::Full { bytes, records } => {
                            batch.taken_bytes += bytes;
                            batch.taken_records += records;
                            return Some(batch);
                        }
                        // What it sent besides is taken in: it came before the connection is cut.
                        Outcome::NoSuchSource => no_such_source(&peer, *source),
                    }
                }
            }
            batch.next_item += 1;
            batch.taken_bytes = 0;
            batch.taken_records = 0;
        }
        let mut buffer = batch.buffer;
        buffer.items.clear();
        // A connection that has ended takes no buffers back.
        let _ = peer.free.try_send(buffer);
        None
    }

    /// Pushes `records` payloads and enters what became of them.
    fn push(
        &mut self,
        peer: &Peer,
        source: SourceId,
        shape: Shape,
        bytes: &[u8],
        records: u64,
    ) -> Outcome {
        let payloads = Payloads {
            shape,
            bytes,
            records,
        };
        let fate = match self.retaining.refusal() {
            Some(why) => payloads.refused(LossReason::DiskFull, why.to_owned()),
            // Bytes of an older layout may pass for another record of the newer one.
            None => match self.outgrown(peer, source) {
                Some(known) => self.push_widened(source, known, &payloads),
                None => self.push_payloads(source, &payloads),
            },
        };
        self.enter(peer, source, fate)
    }

    /// Pushes what a producer sent that does not know all fields.
    fn push_widened(&mut self, source: SourceId, known: usize, payloads: &Payloads<'_>) -> Fate {
        let widened = match self.writer.catalog().source(source) {
            Some(source) => widening::widen(source, known, payloads),
            None => return self.push_payloads(source, payloads),
        };
        match widened {
            Ok(bytes) => {
                let widened = Payloads {
                    shape: Shape::Framed,
                    bytes: &bytes,
                    records: payloads.records,
                };
                let mut fate = self.push_payloads(source, &widened);
                if let Outcome::Full { bytes, records } = &mut fate.outcome {
                    *bytes = payloads.bytes_of(*records);
                }
                fate
            }
            Err(error) => payloads.refused(LossReason::Malformed, error.to_string()),
        }
    }

    fn push_payloads(&mut self, source: SourceId, payloads: &Payloads<'_>) -> Fate {
        let Payloads {
            shape,
            bytes,
            records,
        } = *payloads;
        if self.is_foreign(source) {
            return Fate {
                outcome: Outcome::NoSuchSource,
                ..payloads.refused(LossReason::NoSuchSource, String::new())
            };
        }
        let batch = match shape {
            Shape::Fixed { record_bytes } => EngineBatch::Fixed {
                bytes,
                record_bytes: usize::from(record_bytes),
            },
            Shape::Framed => EngineBatch::Framed { bytes },
        };
        let pushed = match self.writer.try_push_batch(source, &batch) {
            Ok(pushed) => pushed,
            Err(error @ Error::SourceClosed { .. }) => {
                return payloads.refused(LossReason::SourceClosed, error.to_string());
            }
            Err(error) => {
                // The log itself failed: what it does not take is lost, and counted.
                self.report(&error);
                return payloads.dropped(LossReason::LogFailed, error.to_string());
            }
        };
        let taken = pushed.stored + pushed.refused_count;
        let taken_bytes = shape.payload_bytes(pushed.taken_bytes, taken);
        let mut fate = Fate {
            counts: Counts {
                stored: pushed.stored,
                refused: pushed.refused_count,
                ..Counts::default()
            },
            stored_bytes: pushed.stored_bytes,
            losses: Vec::new(),
            outcome: Outcome::Taken,
        };
        if let Some(last) = pushed.refused.last() {
            let reason = match last.reason {
                Error::TooLong { .. } => LossReason::TooLong,
                _ => LossReason::Malformed,
            };
            fate.losses.push(Loss {
                reason,
                records: pushed.refused_count,
                bytes: taken_bytes.saturating_sub(pushed.stored_bytes),
                detail: last.reason.to_string(),
            });
        }
        if pushed.taken_bytes == bytes.len() {
            return fate;
        }
        if self.drops(source) {
            fate.counts.dropped = records - taken;
            fate.losses.push(Loss {
                reason: LossReason::Overload,
                records: fate.counts.dropped,
                bytes: shape.payload_bytes(bytes.len() - pushed.taken_bytes, fate.counts.dropped),
                detail: String::new(),
            });
        } else {
            fate.outcome = Outcome::Full {
                bytes: pushed.taken_bytes,
                records: taken,
            };
        }
        fate
    }

    /// Enters in the ledger, among the losses and in the connection's account what became of a push.
    fn enter(&mut self, peer: &Peer, source: SourceId, mut fate: Fate) -> Outcome {
        let counts = &mut fate.counts;
        counts.received = counts.stored + counts.refused + counts.dropped;
        let now = self.writer.now();
        let known = Some(source).filter(|_| !matches!(fate.outcome, Outcome::NoSuchSource));
        if known.is_some() {
            self.ledger.enter(source, *counts, fate.stored_bytes, now);
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
        account.counts.add(fate.counts);
        if let Some(loss) = fate.losses.into_iter().find(|loss| loss.tells_client()) {
            account.reason = loss.detail;
        }
        fate.outcome
    }

    /// Whether clients have no source of this id: those that are built in are the daemon's own.
    fn is_foreign(&self, source: SourceId) -> bool {
        self.writer
            .catalog()
            .source(source)
            .is_none_or(|source| is_builtin(&source.name))
    }

    fn drops(&self, source: SourceId) -> bool {
        self.writer
            .catalog()
            .source(source)
            .is_some_and(|source| source.on_overload == Overload::DropNew)
    }

    /// Closes the log, then tells each connection what became of its records.
    fn finish(mut self, peers: &[Arc<Peer>]) -> Result<(), Error> {
        let recorded = self.losses.finish(&mut self.writer);
        let position = self.writer.position();
        let closed = recorded.and_then(|()| self.writer.close());
        for peer in peers {
            let reply = match &closed {
                Ok(()) => Reply::Goodbye(peer.account().synced(position)),
                Err(error) => Reply::Error {
                    request: None,
                    code: ErrorCode::Failed,
                    message: error.to_string(),
                },
            };
            peer.answer_at_once(&reply);
            peer.disconnect();
        }
        closed
    }
}

/// A client that pushes to what does not exist is told so, and disconnected.
fn no_such_source(peer: &Peer, source: SourceId) {
    peer.answer_at_once(&Reply::Error {
        request: None,
        code: ErrorCode::NotFound,
        message: format!("no source has the id {source}; define it first"),
    });
    peer.disconnect();
}
