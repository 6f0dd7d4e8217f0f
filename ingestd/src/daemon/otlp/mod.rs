//! Receives OTLP: logs and spans go into a source each, data points into the groups of their sender, as scrapes go into those of a target.
//!
//! The crate `loom-otlp` owns the network. It calls a [`Taker`] for one request at a time, which takes a request whole or not at all, except
//! for the records that it counts as refused. A kill of the daemon loses nothing that was answered.

mod batch;
mod files;
mod records;

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};

use loom_engine::SourceId;
use loom_engine::query::Directory;
use loom_engine::schema::{LossReason, SourceDef};
use loom_otlp::{Handler, NotTaken, Options, Server, Signal, Taken};

use super::DaemonError;
use super::inlet::{Inlet, UNFOLDED};
use super::refused::Refused;
use crate::config::OtlpDef;
use crate::metrics::{Senders, Shares};
use batch::Batch;
use files::options;
use records::RecordSource;

pub(super) use files::check;

/// The parts of the receiver that exist before the daemon serves anybody.
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

pub(super) fn start(
    def: &OtlpDef,
    prepared: Prepared,
    inlet: Inlet,
    directory: Arc<Directory>,
) -> io::Result<Server> {
    let def = def.clone();
    let shares = Arc::new(Mutex::new(Shares::new(&def)));
    let begin = move || Taker::new(&def, &inlet, &directory, &shares);
    Server::receive(prepared.bound, prepared.options, begin)
}

/// Refuses a configuration with which the next start could not receive. Addresses that are `running` or `held` now are free by then.
pub(super) fn rehearse(
    def: &OtlpDef,
    running: Option<&OtlpDef>,
    held: &[SocketAddr],
) -> Result<(), DaemonError> {
    check(def)?;
    let is_held = |address: &SocketAddr| {
        held.contains(address) || running.is_some_and(|def| def.listen.contains(address))
    };
    let new = def.listen.iter().filter(|address| !is_held(address));
    new.map(bind).try_for_each(|bound| bound.map(drop))
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
    /// # Errors
    /// The daemon stops, or its catalog does not have the sources.
    fn new(
        def: &OtlpDef,
        inlet: &Inlet,
        directory: &Arc<Directory>,
        shares: &Arc<Mutex<Shares>>,
    ) -> io::Result<Taker> {
        let known = inlet.catalog();
        let known = known.map_err(|_| io::Error::other("the daemon stops"))?;
        let inlet = inlet.another()?;
        let open = |source: SourceDef| {
            let found = known.catalog.find(&source.name);
            let found = found.ok_or_else(|| known.catalog.unknown_source(&source.name));
            let found = found.map_err(io::Error::other)?;
            inlet.learn(found);
            Ok::<_, io::Error>(RecordSource::new(&source, found, def))
        };
        let [logs, spans] = def.sources().map(open);
        Ok(Taker {
            logs: logs?,
            spans: spans?,
            senders: Senders::new(
                inlet.another()?,
                Arc::clone(directory),
                def,
                Arc::clone(shares),
            ),
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
        let Batch {
            framed, refused, ..
        } = batch;
        refused.enter(&mut self.inlet, Some(source));
        self.inlet.add_framed(source, &framed)?;
        let settled = self.inlet.settle()?.map_err(NotTaken::Busy)?;
        let mut taken = refused.taken();
        let lost = settled.counts.refused + settled.counts.dropped;
        if lost > 0 {
            taken.refused += lost;
            taken.why = [settled.reason, taken.why].join("; ");
        }
        Ok(taken)
    }

    /// Counts what is refused before its sender learns of it. A daemon that stops counts no more.
    fn count(&mut self, signal: Option<Signal>, refused: &Refused) {
        // Losses of data points have the source of their sender.
        let source: Option<SourceId> = match signal {
            Some(Signal::Logs) => Some(self.logs.id),
            Some(Signal::Spans) => Some(self.spans.id),
            Some(Signal::Metrics) | None => None,
        };
        refused.enter(&mut self.inlet, source);
        let counted = self.inlet.count_losses();
        let _ = counted.and_then(|()| self.inlet.settle().map(drop));
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
        self.count(Some(signal), &Refused::unread(count, why));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, LOGS_SOURCE, SPANS_SOURCE};
    use crate::daemon::definitions::define;
    use crate::daemon::testing::Scene;

    #[test]
    fn a_missing_source_stops_the_start_with_its_name() {
        let config = Config::parse("[otlp]\nlisten = ['127.0.0.1:0']\n").unwrap();
        let def = config.otlp.unwrap();
        let sources = def.sources();
        let wanted = [Some(LOGS_SOURCE), Some(SPANS_SOURCE), None];
        for (defined, missing) in wanted.into_iter().enumerate() {
            let scene = Scene::start(|writer| {
                define(writer, &sources[..defined]).unwrap();
            });
            let directory = Directory::open(&scene.dir).unwrap();
            let started = start(&def, prepare(&def).unwrap(), scene.inlet(), directory);
            match (started, missing) {
                (Ok(server), None) => server.stop().join().unwrap(),
                (Err(error), Some(name)) => {
                    let why = error.to_string();
                    assert!(why.contains(&format!("unknown source '{name}'")), "{why}");
                }
                (started, _) => panic!("{defined} sources: {:?}", started.map(drop)),
            }
        }
    }
}
