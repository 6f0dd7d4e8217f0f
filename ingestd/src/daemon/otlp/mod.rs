//! What comes over OTLP: logs and spans into a source each, data points into the groups of their sender, as scrapes go into those of a target.
//!
//! The network is the crate `loom-otlp`'s. Its one thread for requests calls a [`Taker`], which takes a request whole or not at all, except
//! what it counts as refused. What it has answered a kill of the daemon does not lose.

mod batch;
mod files;
mod points;
mod records;
mod senders;
mod shares;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use loom_engine::log::Durability;
use loom_engine::query::Directory;
use loom_engine::schema::{LossReason, SourceDef};
use loom_otlp::{Handler, NotTaken, Options, Server, Signal, Taken};

use super::inlet::mute_peer;
use super::message::{Gone, Inbox};
use super::peer::Peer;
use super::recorder::Recorder;
use super::{DaemonError, UNFOLDED, join};
use crate::config::{LOGS_SOURCE, OtlpDef, SPANS_SOURCE};
use crate::losses::Lost;
use batch::{Batch, Refused};
use files::options;
use records::RecordSource;
use senders::Senders;

pub(super) use files::check;

/// How soon a full log, or an fsync under way, is looked at again.
const RETRY: Duration = Duration::from_millis(1);

/// The receiver, and what it was started with.
pub(super) struct Otlp {
    def: OtlpDef,
    receiver: Server,
}

/// What a configuration asks for, taken before the daemon serves anybody.
pub(super) struct Prepared {
    bound: Vec<TcpListener>,
    options: Options,
}

pub(super) fn prepare(def: &OtlpDef) -> Result<Prepared, DaemonError> {
    let options = options(def)?;
    let bound = def.listen.iter().map(bind);
    Ok(Prepared {
        bound: bound.collect::<Result<_, _>>()?,
        options,
    })
}

fn bind(address: &SocketAddr) -> Result<TcpListener, DaemonError> {
    TcpListener::bind(address).map_err(|error| {
        DaemonError::Otlp(format!(
            "cannot receive OTLP on {address}: {error}; change [otlp] listen"
        ))
    })
}

impl Otlp {
    pub(super) fn start(
        def: &OtlpDef,
        prepared: Prepared,
        inbox: Inbox,
        directory: Arc<Directory>,
    ) -> io::Result<Otlp> {
        let taker = Taker::new(def, inbox, directory)?;
        Ok(Otlp {
            def: def.clone(),
            receiver: Server::receive(prepared.bound, prepared.options, taker)?,
        })
    }

    /// Whether it works as a configuration says.
    pub(super) fn is_as(&self, def: &OtlpDef) -> bool {
        self.def == *def
    }

    /// Whether the next start can receive as a configuration says. An address that is held now is free by then.
    pub(super) fn rehearse(running: Option<&Otlp>, def: &OtlpDef) -> Result<(), DaemonError> {
        check(def)?;
        let is_held = |address: &&SocketAddr| {
            running.is_some_and(|otlp| {
                otlp.def.listen.contains(*address) || otlp.addresses().contains(*address)
            })
        };
        let new = def.listen.iter().filter(|address| !is_held(address));
        new.map(bind).try_for_each(|bound| bound.map(drop))
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        self.receiver.addresses()
    }

    pub(super) fn stop(self) {
        join(self.receiver.stop());
    }
}

/// Takes requests, one at a time.
struct Taker {
    writer: WayIn,
    logs: RecordSource,
    spans: RecordSource,
    senders: Senders,
    unpacked_bytes_max: usize,
}

impl Taker {
    fn new(def: &OtlpDef, inbox: Inbox, directory: Arc<Directory>) -> io::Result<Taker> {
        let writer = WayIn {
            peer: Arc::new(mute_peer()?),
            inbox,
        };
        let [logs, spans] = def.sources();
        Ok(Taker {
            logs: writer.source(&logs, def),
            spans: writer.source(&spans, def),
            senders: Senders::new(writer.clone(), directory, def),
            writer,
            unpacked_bytes_max: UNFOLDED * def.body_bytes_max,
        })
    }

    fn records(&mut self, signal: Signal, body: &[u8]) -> Result<Batch, NotTaken> {
        let mut batch = Batch::new(self.unpacked_bytes_max);
        match signal {
            Signal::Logs => self.logs.logs(body, &mut batch)?,
            Signal::Spans => self.spans.spans(body, &mut batch)?,
            Signal::Metrics => {}
        }
        Ok(batch)
    }
}

impl Handler for Taker {
    fn take(&mut self, signal: Signal, from: IpAddr, body: &[u8]) -> Result<Taken, NotTaken> {
        self.writer.is_open()?;
        let taken = match source_of(signal) {
            None => self.senders.take(from, body, self.unpacked_bytes_max),
            Some(source) => match self.records(signal, body) {
                Ok(batch) => self.writer.store(source, batch),
                Err(error) => Err(error),
            },
        };
        if let Err(NotTaken::Malformed(error)) = &taken {
            self.turned_away(signal, 1, &error.to_string());
        }
        taken
    }

    fn turned_away(&mut self, signal: Signal, count: u64, why: &str) {
        let refused = Refused::unread(count, why);
        // A daemon that stops counts no more.
        let _ = self.writer.settle(source_of(signal), refused);
    }

    fn closed(&mut self, count: u64, served: usize) {
        let why = format!(
            "connections for OTLP closed at once: {served} are open; let senders share connections, or send through a Collector"
        );
        tracing::warn!("{count} {why}");
        let mut refused = Refused::default();
        refused.add(LossReason::Overload, &why, count);
        let _ = self.writer.settle(None, refused);
    }
}

/// Where losses of a signal are counted; those of data points have the source of their sender.
fn source_of(signal: Signal) -> Option<&'static str> {
    match signal {
        Signal::Logs => Some(LOGS_SOURCE),
        Signal::Spans => Some(SPANS_SOURCE),
        Signal::Metrics => None,
    }
}

/// The way of requests to the writer thread.
#[derive(Clone)]
struct WayIn {
    inbox: Inbox,
    peer: Arc<Peer>,
}

fn gone(_: Gone) -> NotTaken {
    NotTaken::Busy("the daemon stops; try again".to_owned())
}

impl WayIn {
    /// What encodes the records of a source, as the catalog has it now.
    fn source(&self, source: &SourceDef, def: &OtlpDef) -> RecordSource {
        let (peer, name) = (Arc::clone(&self.peer), source.name.clone());
        let known = self.inbox.call(None, move |recorder| {
            let known = recorder.writer.catalog().find(&name)?;
            peer.learn(known.id, known.fields.len());
            Some(known.fields.clone())
        });
        // A daemon that stops takes no records.
        let known = known.ok().flatten();
        RecordSource::new(source, known.as_ref().unwrap_or(&source.fields), def)
    }

    /// Whether the log takes records now.
    fn is_open(&self) -> Result<(), NotTaken> {
        let open = self.inbox.call(None, Recorder::is_open).map_err(gone)?;
        open.map_err(NotTaken::Busy)
    }

    /// Stores a batch, all of it once its first record is, and counts what is refused.
    fn store(&self, source: &'static str, batch: Batch) -> Result<Taken, NotTaken> {
        let before = self.peer.account().counts;
        let Batch {
            pieces, refused, ..
        } = batch;
        let mut is_begun = false;
        for mut piece in pieces {
            while piece.records > 0 {
                let peer = Arc::clone(&self.peer);
                let pushed = self.inbox.call(None, move |recorder| {
                    let left = recorder.push_piece(&peer, source, piece.clone());
                    (left, piece)
                });
                let (left, before) = pushed.map_err(gone)?;
                let left = left.map_err(NotTaken::Busy)?;
                if !is_begun && left.records == before.records {
                    return Err(NotTaken::Busy("the log is full; try again".to_owned()));
                }
                is_begun = true;
                piece = left;
                if piece.records > 0 {
                    std::thread::sleep(RETRY);
                }
            }
        }
        let mut taken = refused.taken();
        let lost = {
            let account = self.peer.account();
            let now = account.counts;
            let lost = now.refused + now.dropped - before.refused - before.dropped;
            (lost > 0).then(|| (lost, account.reason.clone()))
        };
        if let Some((lost, reason)) = lost {
            taken.refused += lost;
            taken.why = [reason, taken.why].join("; ");
        }
        self.settle(Some(source), refused)?;
        Ok(taken)
    }

    /// Counts what is refused, and returns when a kill loses neither that nor what was pushed before; with `batch` durability, when it is durable.
    fn settle(&self, source: Option<&'static str>, refused: Refused) -> Result<(), NotTaken> {
        let peer = Arc::clone(&self.peer);
        let ticket = self.inbox.call(None, move |recorder| {
            recorder.enter_refusals(&peer, source, &refused);
            recorder.keep_losses();
            recorder.publish(false);
            match recorder.durability {
                Durability::Batch => recorder.writer.request_sync().map(Some),
                Durability::None | Durability::Interval(_) => Ok(None),
            }
        });
        let failed = |error: loom_engine::Error| NotTaken::Busy(error.to_string());
        let Some(ticket) = ticket.map_err(gone)?.map_err(failed)? else {
            return Ok(());
        };
        loop {
            let synced = self
                .inbox
                .call(None, move |recorder| recorder.writer.is_synced(ticket));
            if synced.map_err(gone)?.map_err(failed)? {
                return Ok(());
            }
            std::thread::sleep(RETRY);
        }
    }
}

impl Recorder {
    /// Why the log takes no records now, if it does not.
    fn is_open(&mut self) -> Result<(), String> {
        if let Some(why) = self.refusal().or(self.trouble()) {
            return Err(why.to_owned());
        }
        match self.writer.has_room() {
            Ok(true) => Ok(()),
            Ok(false) => Err("the log is full; try again".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Counts what is refused of a request; for a source that there is not, without one.
    fn enter_refusals(&mut self, peer: &Peer, source: Option<&str>, refused: &Refused) {
        let source = source.and_then(|name| self.writer.catalog().find(name));
        let source = source.map(|source| source.id);
        for reason in [
            LossReason::Malformed,
            LossReason::TooLong,
            LossReason::Overload,
        ] {
            let Some((records, detail)) = refused.of(reason) else {
                continue;
            };
            let lost = Lost {
                source,
                reason,
                records,
                bytes: None,
                detail: &detail,
            };
            match source {
                Some(source) => self.enter_unstored(peer, source, &lost),
                None => self.enter_of_no_source(&lost),
            }
        }
    }
}
