//! What comes over OTLP: logs and spans into a source each, data points into the groups of their sender, as scrapes go into those of a target.
//!
//! The network is the crate `loom-otlp`'s. It calls a [`Taker`] for one request at a time, which takes a request whole or not at all, except
//! what it counts as refused. What it has answered a kill of the daemon does not lose.

mod batch;
mod files;
mod records;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;

use loom_engine::SourceId;
use loom_engine::query::Directory;
use loom_engine::schema::LossReason;
use loom_otlp::{Handler, NotTaken, Options, Server, Signal, Taken};

use super::DaemonError;
use super::answer::Gone;
use super::inlet::{Inlet, UNFOLDED};
use super::refused::Refused;
use crate::config::OtlpDef;
use crate::metrics::Senders;
use crate::threads::join;
use batch::Batch;
use files::options;
use records::RecordSource;

pub(super) use files::check;

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
        inlet: Inlet,
        directory: Arc<Directory>,
    ) -> io::Result<Otlp> {
        let taker = Taker::new(def, inlet, directory)?;
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
    inlet: Inlet,
    logs: RecordSource,
    spans: RecordSource,
    senders: Senders,
    unpacked_bytes_max: usize,
}

impl Taker {
    fn new(def: &OtlpDef, inlet: Inlet, directory: Arc<Directory>) -> io::Result<Taker> {
        // A daemon that stops takes no records.
        let known = inlet.catalog().ok();
        let [logs, spans] = def.sources().map(|source| {
            let catalog = known.as_ref().map(|known| &known.catalog);
            let found = catalog.and_then(|catalog| catalog.find(&source.name));
            found.iter().for_each(|found| inlet.learn(found));
            RecordSource::new(&source, found.map(Arc::as_ref), def)
        });
        Ok(Taker {
            logs,
            spans,
            senders: Senders::new(inlet.another()?, directory, def),
            inlet,
            unpacked_bytes_max: UNFOLDED * def.body_bytes_max,
        })
    }

    /// Takes log records or spans, all of them once the first is stored.
    fn take_records(&mut self, signal: Signal, body: &[u8]) -> Result<Taken, NotTaken> {
        let mut batch = Batch::new(self.unpacked_bytes_max);
        let source = match signal {
            Signal::Spans => {
                self.spans.spans(body, &mut batch)?;
                self.spans.id
            }
            Signal::Logs => {
                self.logs.logs(body, &mut batch)?;
                self.logs.id
            }
            Signal::Metrics => unreachable!("the senders take data points"),
        };
        let source = source.ok_or(Gone)?;
        let Batch {
            framed, refused, ..
        } = batch;
        refused.enter(&mut self.inlet, Some(source))?;
        self.inlet.add_framed(source, &framed)?;
        let settled = self.inlet.settle()?.map_err(NotTaken::Busy)?;
        let mut taken = refused.taken();
        let counts = settled.counts;
        let lost = (counts.refused + counts.dropped).saturating_sub(refused.count());
        if lost > 0 {
            taken.refused += lost;
            taken.why = [settled.reason, taken.why].join("; ");
        }
        Ok(taken)
    }

    /// Where losses of a signal are counted; those of data points have the source of their sender.
    fn source_of(&self, signal: Signal) -> Option<SourceId> {
        match signal {
            Signal::Logs => self.logs.id,
            Signal::Spans => self.spans.id,
            Signal::Metrics => None,
        }
    }

    /// Counts what is refused before its sender learns of it. A daemon that stops counts no more.
    fn count(&mut self, source: Option<SourceId>, refused: &Refused) {
        let _ = refused
            .enter(&mut self.inlet, source)
            .and_then(|()| self.inlet.settle().map(drop));
    }
}

impl Handler for Taker {
    fn take(&mut self, signal: Signal, from: IpAddr, body: &[u8]) -> Result<Taken, NotTaken> {
        let has_room = self.inlet.has_room().map_err(NotTaken::from)?;
        has_room.map_err(NotTaken::Busy)?;
        let taken = match signal {
            Signal::Metrics => self.senders.take(from, body, self.unpacked_bytes_max),
            Signal::Logs | Signal::Spans => self.take_records(signal, body),
        };
        if let Err(NotTaken::Malformed(error)) = &taken {
            self.turned_away(signal, 1, &error.to_string());
        }
        taken
    }

    fn turned_away(&mut self, signal: Signal, count: u64, why: &str) {
        let refused = Refused::unread(count, why);
        self.count(self.source_of(signal), &refused);
    }

    fn closed(&mut self, count: u64, served: usize) {
        let why = format!(
            "connections for OTLP closed at once: {served} are open; let senders share connections, or send through a Collector"
        );
        tracing::warn!("{count} {why}");
        let mut refused = Refused::default();
        refused.add(LossReason::Overload, &why, count);
        self.count(None, &refused);
    }
}
