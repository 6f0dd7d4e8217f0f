//! The daemon: a thread that writes, one that accepts, one for each connection, one for all rings, and one for rules.
//!
//! Data flows one way. A connection's thread reads its socket into a buffer, finds the frames in it, and hands the
//! buffer to the writer thread through a bounded channel; the writer thread pushes the payloads from there
//! into the engine, publishes, and gives the buffer back. A connection without a free buffer stops reading, so a
//! client waits for its own records only. The writer thread answers syncs and waits for nobody.
//! The rings that clients push into through shared memory ([`rings`]) are drained the same way. All other records of this process,
//! those of captures, scrapes, OTLP and rules, go through an [`Inlet`]. Anything else that a thread wants of the writer thread is a
//! request with a channel for its answer ([`message`]). Where retention waits for an archive, one more thread reads how far that reaches
//! ([`archive_watch`]).

mod access;
pub(crate) mod answer;
mod archive_watch;
mod backlog;
mod buffer;
pub mod catalog_json;
mod clients;
mod clock;
mod commands;
mod connection;
pub mod definitions;
mod error;
mod exposition;
mod fate;
mod forgetting;
mod home;
mod http;
pub(crate) mod inlet;
mod ledger;
mod leftovers;
mod listener;
mod lookups;
pub(crate) mod message;
mod otlp;
mod payload_batch;
mod peer;
mod peer_user;
mod recorder;
pub(crate) mod refused;
pub mod rehearsal;
mod requests;
mod retention;
mod rings;
mod rules;
mod self_metrics;
mod status;
mod syncs;
#[cfg(test)]
pub(crate) mod testing;
mod writer_thread;

use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use loom_engine::ingest::{WhenFull, Writer, WriterOptions};
use loom_engine::log::{Durability, LogOptions};
use loom_engine::query::{Directory, set_cache_bytes_max};
use loom_otlp::Server;

pub use error::DaemonError;
pub use inlet::Inlet;
pub use leftovers::{orphaned_staging, remedy};
pub use listener::CONNECTIONS_MAX;
pub use status::{DaemonStatus, SourceStatus};

use crate::config::{Config, OnFull};
use crate::losses::Losses;
use crate::metrics::{Scrapers, is_forgettable};
use crate::output::pins;
use crate::protocol::{DurabilityWord, REQUEST_BODY_BYTES_MAX, Welcome};
use crate::rules::file::RuleFile;
use crate::socket::SOCKET_NAME;
use crate::threads::join;
use clients::Clients;
use clock::ClockWatch;
use connection::Service;
use forgetting::Forgetting;
use listener::Listener;
use lookups::LookupsThread;
use message::{Inbox, Message, Request};
use recorder::Recorder;
use retention::Retention;
use rings::Rings;
use rules::RulesThread;
use self_metrics::SelfMetrics;
use writer_thread::WriterThread;

/// The cache of the daemon's own reads, for rules, scrapes and exports.
const READ_BYTES_KEPT: u64 = 64 << 20;

/// A running daemon. It ends with [`Daemon::stop`].
pub struct Daemon {
    dir: PathBuf,
    /// The configuration that it started with.
    config: Config,
    inbox: Inbox,
    programs_ns: Arc<AtomicU64>,
    listener: Listener,
    writer: JoinHandle<Result<(), loom_engine::Error>>,
    /// Identifies the socket's file, so that another daemon's is never removed.
    socket_inode: u64,
    http: Option<Server>,
    rules: RulesThread,
    lookups: LookupsThread,
    scrapers: Mutex<Scrapers>,
    otlp: Option<Server>,
}

/// The parts of a daemon that exist before it serves clients.
struct Prepared {
    socket: UnixListener,
    http: Option<TcpListener>,
    otlp: Option<otlp::Prepared>,
    losses: Losses,
    clock: ClockWatch,
    rules: RuleFile,
}

impl Daemon {
    /// Opens the directory, defines the configured sources, and listens.
    pub fn start(dir: &Path, config: &Config, accept_clock: bool) -> Result<Daemon, DaemonError> {
        let group = config.access.group_id().map_err(DaemonError::Group)?;
        let log = LogOptions {
            group,
            ..config.log_options()
        };
        let durability = log.durability;
        let distrusted = access::distrusted(dir);
        let options = WriterOptions {
            log,
            accept_clock,
            when_full: WhenFull::Refuse,
        };
        let mut writer = open(dir, options, config)?;
        for note in distrusted {
            tracing::warn!("{note}");
        }
        let prepared = match prepare(&mut writer, dir, config, group) {
            Ok(prepared) => prepared,
            Err(error) => {
                // A daemon that does not come up keeps nothing to recover.
                if let Err(closing) = writer.close() {
                    tracing::error!("{closing}");
                }
                return Err(error);
            }
        };
        let welcome = welcome(&writer, durability);
        let io = |source| DaemonError::Io {
            path: dir.join(SOCKET_NAME),
            source,
        };
        let socket_inode = std::fs::symlink_metadata(dir.join(SOCKET_NAME))
            .map_err(io)?
            .ino();
        let clients = Arc::new(Clients::default());
        let (inbox, outlet) = Inbox::new();
        let metrics = SelfMetrics::new(config.metrics.interval.0);
        let programs_ns = Arc::clone(metrics.programs_ns());
        let recorder = Recorder::new(
            writer,
            prepared.losses,
            Retention::new(
                dir,
                config.retention.clone(),
                config.archive.clone(),
                prepared.clock,
            ),
            Forgetting::new(is_forgettable),
            metrics,
            durability,
            Arc::clone(&clients),
        );
        let thread = WriterThread::new(recorder.map_err(io)?);
        let writer = std::thread::Builder::new()
            .name("loom-writer".to_owned())
            .spawn(move || thread.run(&outlet))
            .map_err(io)?;
        let rings = Rings::start(inbox.clone(), Arc::clone(&clients)).map_err(io)?;
        let rules = RulesThread::start(
            dir,
            config,
            prepared.rules,
            Inlet::open(&inbox).map_err(io)?,
        )?;
        let listener = Listener::start(
            prepared.socket,
            config.access.clone(),
            Service {
                inbox: inbox.clone(),
                rings,
                rules: rules.rules().clone(),
                welcome,
            },
            clients,
        )
        .map_err(io)?;
        let http = prepared.http.map(|bound| http::start(bound, inbox.clone()));
        let http = http.transpose().map_err(io)?;
        set_cache_bytes_max(READ_BYTES_KEPT);
        let directory = Directory::beside_writer(dir)?;
        let inlet = Inlet::open(&inbox).map_err(io)?;
        let lookups = LookupsThread::start(dir, Arc::clone(&directory), group)?;
        let scraped = Arc::clone(&directory);
        let scrapers = Scrapers::start(&config.scrapes, inlet, scraped).map_err(io)?;
        let otlp = config.otlp.as_ref().zip(prepared.otlp);
        let otlp = otlp
            .map(|(def, prepared)| otlp::start(def, prepared, Inlet::open(&inbox)?, directory))
            .transpose()
            .map_err(|error| DaemonError::Otlp(format!("cannot receive OTLP: {error}")))?;
        Ok(Daemon {
            programs_ns,
            dir: dir.to_owned(),
            config: config.clone(),
            inbox,
            listener,
            writer,
            socket_inode,
            http,
            rules,
            lookups,
            scrapers: Mutex::new(scrapers),
            otlp,
        })
    }

    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.http.as_ref()?.addresses().first().copied()
    }

    pub fn otlp_addresses(&self) -> &[SocketAddr] {
        self.otlp.as_ref().map_or(&[], Server::addresses)
    }

    /// An inlet for a producer in this process.
    pub fn inlet(&self) -> std::io::Result<Inlet> {
        Inlet::open(&self.inbox)
    }

    /// Where a recording in this process keeps the processor time of its programs in the kernel, for `loom_metrics`.
    pub fn programs_ns(&self) -> &Arc<AtomicU64> {
        &self.programs_ns
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// False once the writer thread has failed; the daemon is of no use then.
    pub fn is_alive(&self) -> bool {
        self.inbox.is_alive()
    }

    /// Waits until the writer thread takes the next message. False once the thread has failed.
    pub fn answers(&self) -> bool {
        self.inbox.ask(Request::Publish).is_ok()
    }

    pub fn status(&self) -> Result<DaemonStatus, DaemonError> {
        Ok(self.inbox.ask(Request::Status)?)
    }

    /// Takes over another configuration: new sources, fields and indexes take effect at once. Returns notes on the parts that do
    /// not. A configuration that the next start would refuse is refused whole.
    pub fn reload(&self, config: &Config) -> Result<Vec<String>, DaemonError> {
        let running = &self.config;
        let listen = config.metrics.listen;
        if running.metrics.listen != listen {
            bind_metrics(listen)?;
        }
        if running.access.group != config.access.group {
            let group = config.access.group_id().map_err(DaemonError::Group)?;
            access::may_share(group).map_err(DaemonError::Group)?;
        }
        if running.otlp != config.otlp
            && let Some(def) = &config.otlp
        {
            otlp::rehearse(def, running.otlp.as_ref(), self.otlp_addresses())?;
        }
        let rules = self.rules.rules();
        let checked = config.clone();
        let checked = rules.call(move |keeper| keeper.check(&checked))?;
        checked.map_err(DaemonError::Rules)?;
        let mut notes = Vec::new();
        let mut note = |what: &str, is_same: bool, more: &str| {
            if !is_same {
                let restart = "has changed; restart the daemon to apply it";
                notes.push(format!("{what} {restart}{more}"));
            }
        };
        let never = " (chunk and segment never change)";
        note("[log]", running.log == config.log, never);
        note("[access]", running.access == config.access, "");
        note("[metrics] listen", running.metrics.listen == listen, "");
        note("[otlp]", running.otlp == config.otlp, "");
        let taken = Box::new(config.clone());
        let from_writer = self
            .inbox
            .ask(|answer| Request::Reconfigure(taken, answer))?;
        notes.extend(from_writer?);
        let taken = config.clone();
        notes.extend(rules.call(move |keeper| keeper.reconfigure(&taken))?);
        notes.extend(rehearsal::doubts(config));
        let mut scrapers = self.scrapers.lock().unwrap_or_else(PoisonError::into_inner);
        scrapers
            .reconfigure(&config.scrapes)
            .map_err(|source| DaemonError::Io {
                path: self.dir.clone(),
                source,
            })?;
        Ok(notes)
    }

    /// Stops in good order: takes in everything that the sockets hold, makes all of it durable, reports to each client the outcome of its
    /// records, and closes the directory with a clean mark. Clients delay it by a few seconds at most.
    pub fn stop(mut self) -> Result<(), DaemonError> {
        // The name goes first: a client that connects from now on learns that no daemon runs.
        self.remove_socket();
        for server in self.http.take().into_iter().chain(self.otlp.take()) {
            join(server.stop());
        }
        let scrapers = self.scrapers.into_inner();
        scrapers.unwrap_or_else(PoisonError::into_inner).stop();
        let peers = self.listener.stop();
        self.rules.stop();
        self.lookups.stop();
        let sent = self.inbox.send(Message::Stop { peers });
        drop(self.inbox);
        let ended = self.writer.join().map_err(|_| DaemonError::WriterGone)?;
        ended?;
        Ok(sent?)
    }

    fn remove_socket(&self) {
        let path = self.dir.join(SOCKET_NAME);
        let ours =
            std::fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == self.socket_inode);
        if ours && let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!("cannot remove {}: {error}", path.display());
        }
    }
}

/// Prepares the directory before it serves anybody: access, sources, and the socket.
fn prepare(
    writer: &mut Writer,
    dir: &Path,
    config: &Config,
    group: Option<u32>,
) -> Result<Prepared, DaemonError> {
    access::share(dir, group)?;
    let mut notes = definitions::configure(writer, config)?;
    notes.extend(config.retention.too_little(writer.bytes_min()));
    notes.extend(rehearsal::doubts(config));
    for note in notes {
        tracing::warn!("{note}");
    }
    let staging = config.log.staging.get_ref();
    let orphans = orphaned_staging(staging, Some(writer.meta().uuid));
    for note in leftovers::in_short(orphans, staging) {
        tracing::info!("{note}");
    }
    let rules = RuleFile::open(dir)
        .and_then(|rules| rules.fits(config).map(|()| rules))
        .map_err(|error| DaemonError::Rules(format!("{error:#}")))?;
    if let Err(error) = rules.share() {
        tracing::warn!("the rules that were added keep their mode and group: {error:#}");
    }
    if let Err(error) = pins::share(dir) {
        tracing::warn!("the pins keep their mode and group: {error:#}");
    }
    let http = bind_metrics(config.metrics.listen)?;
    let otlp = config.otlp.as_ref().map(otlp::prepare).transpose()?;
    let mut losses = Losses::open(writer)?;
    if config.retention.on_full == OnFull::Refuse {
        losses.define(writer)?;
    }
    Ok(Prepared {
        losses,
        clock: ClockWatch::open(dir, writer)?,
        http,
        otlp,
        rules,
        socket: access::bind(dir, &config.access, group)?,
    })
}

/// Opens the directory, and removes unfinished pins. On a full disk it removes them first, and then the oldest records if the configuration allows that,
/// and none that must be archived first.
fn open(dir: &Path, options: WriterOptions, config: &Config) -> Result<Writer, DaemonError> {
    let mut opened = Writer::open(dir, options.clone());
    // With another daemon at work it would have failed for the lock.
    let is_for_space = opened.as_ref().is_err_and(loom_engine::Error::is_for_space);
    if (opened.is_ok() || is_for_space)
        && let Err(error) = pins::remove_partial(dir)
    {
        tracing::warn!("an unfinished pin remains: {error:#}");
    }
    if is_for_space {
        opened = Writer::open(dir, options.clone());
    }
    let opened = match (opened, config.retention.on_full) {
        (Err(error), OnFull::Evict) if error.is_for_space() => {
            let kept_from = retention::kept_from(dir, &config.archive);
            let when_full = WhenFull::Evict { kept_from };
            Writer::open(
                dir,
                WriterOptions {
                    when_full,
                    ..options
                },
            )
        }
        (opened, _) => opened,
    };
    opened.map_err(|error| DaemonError::of_start(error, config))
}

fn bind_metrics(address: Option<SocketAddr>) -> Result<Option<TcpListener>, DaemonError> {
    address
        .map(|address| {
            TcpListener::bind(address).map_err(|source| DaemonError::Metrics { address, source })
        })
        .transpose()
}

fn welcome(writer: &Writer, durability: Durability) -> Welcome {
    let meta = writer.meta();
    Welcome {
        durability: match durability {
            Durability::None => DurabilityWord::None,
            Durability::Interval(_) => DurabilityWord::Interval,
            Durability::Batch => DurabilityWord::Batch,
        },
        frame_body_bytes_max: REQUEST_BODY_BYTES_MAX as u32,
        payload_bytes_max: writer.payload_bytes_max() as u32,
        uuid: meta.uuid,
    }
}
