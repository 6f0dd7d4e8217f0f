//! The daemon: one thread that writes, one that accepts, and one for each connection.
//!
//! Data flows one way. A connection's thread reads its socket into a buffer, finds the frames in it, and hands the
//! buffer to the writer thread through a bounded channel; the writer thread pushes the payloads straight from there
//! into the engine, publishes, and gives the buffer back. A connection that has no buffer left stops reading, so a
//! client waits for its own records only. Answers to syncs are sent by the writer thread, which waits for nobody.

mod access;
mod catalog_json;
mod changes;
mod commands;
mod configured;
mod connection;
mod exposition;
mod http;
mod ledger;
mod leftovers;
mod listener;
mod message;
mod metering;
mod peer;
mod retaining;
mod status;
mod syncs;
mod widening;
mod writing;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread::JoinHandle;

use loom_engine::ingest::{WhenFull, Writer, WriterOptions};
use loom_engine::log::{Durability, LogOptions};
use thiserror::Error;

pub use leftovers::told as left_in_staging;
pub use listener::CONNECTIONS_MAX;
pub use status::{SourceStatus, Status};

use crate::config::{AccessConfig, Config, LogConfig, MetricsConfig, OnFull};
use crate::losses::Losses;
use crate::protocol::{DurabilityWord, REQUEST_BODY_BYTES_MAX, Welcome};
use crate::socket::SOCKET_NAME;
use configured::wanted;
use http::Http;
use listener::Listener;
use message::{Inbox, Message};
use metering::Metering;
use retaining::Retaining;
use writing::Writing;

/// Why a daemon does not start, or has ended.
#[derive(Debug, Error)]
pub enum DaemonError {
    #[error(transparent)]
    Engine(#[from] loom_engine::Error),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Group(String),
    #[error("metrics cannot be served on {address}: {source}; change [metrics] listen")]
    Metrics {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("the writer thread has failed; the log above says why")]
    WriterGone,
}

/// A running daemon. It ends with [`Daemon::stop`].
pub struct Daemon {
    dir: PathBuf,
    inbox: Inbox,
    listener: Listener,
    writer: JoinHandle<Result<(), loom_engine::Error>>,
    /// Which file the socket is, so that another daemon's is never removed.
    socket_inode: u64,
    log: LogConfig,
    access: AccessConfig,
    metrics: MetricsConfig,
    http: Option<Http>,
}

/// What a daemon needs of its directory and of the machine before it serves anybody.
struct Prepared {
    socket: UnixListener,
    http: Option<TcpListener>,
    losses: Losses,
}

impl Daemon {
    /// Opens the directory, defines the configured sources, and listens.
    pub fn start(dir: &Path, config: &Config, accept_clock: bool) -> Result<Daemon, DaemonError> {
        let group = config.access.group_id().map_err(DaemonError::Group)?;
        let log = LogOptions {
            group,
            ..config.log.options()
        };
        let durability = log.durability;
        let when_full = match config.retention.on_full {
            OnFull::Evict => WhenFull::Evict,
            OnFull::Refuse => WhenFull::Refuse,
        };
        let options = WriterOptions {
            log,
            accept_clock,
            when_full,
        };
        let distrusted = access::distrusted(dir);
        let mut writer = Writer::open(dir, options)?;
        for note in distrusted {
            tracing::warn!("{note}");
        }
        let prepared = match prepare(&mut writer, dir, config, group) {
            Ok(prepared) => prepared,
            Err(error) => {
                // A daemon that does not come up leaves nothing to recover; why it did not is what counts.
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
        let connections = Arc::new(AtomicU64::new(0));
        let (inbox, outlet) = Inbox::new();
        let writing = Writing::new(
            writer,
            prepared.losses,
            Retaining::new(dir, config.retention.clone()),
            Metering::new(config.metrics.interval.0),
            durability,
            Arc::clone(&connections),
        );
        let writer = std::thread::Builder::new()
            .name("loom-writer".to_owned())
            .spawn(move || writing.run(&outlet))
            .map_err(io)?;
        let listener = Listener::start(
            prepared.socket,
            config.access.clone(),
            inbox.clone(),
            welcome,
            connections,
        )
        .map_err(io)?;
        let http = match prepared.http {
            Some(http) => Some(Http::start(http, inbox.clone()).map_err(io)?),
            None => None,
        };
        Ok(Daemon {
            dir: dir.to_owned(),
            inbox,
            listener,
            writer,
            socket_inode,
            log: config.log.clone(),
            access: config.access.clone(),
            metrics: config.metrics.clone(),
            http,
        })
    }

    /// Where metrics are served, if they are.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Http::address)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// False once the writer thread has failed; the daemon is of no use then.
    pub fn is_alive(&self) -> bool {
        self.inbox.is_alive()
    }

    pub fn status(&self) -> Result<Status, DaemonError> {
        self.inbox
            .call(None, |writing| writing.status())
            .map_err(|_| DaemonError::WriterGone)
    }

    /// Takes over another configuration: new sources, fields and indexes take effect at once. Returns what does not,
    /// in sentences for people.
    pub fn reload(&self, config: &Config) -> Result<Vec<String>, DaemonError> {
        let mut notes = Vec::new();
        if self.log.options() != config.log.options() {
            notes.push(
                "[log] has changed: it takes effect at the next start (chunk and segment: never)"
                    .to_owned(),
            );
        }
        if self.access != config.access {
            notes.push("[access] has changed: it takes effect at the next start".to_owned());
        }
        if self.metrics.listen != config.metrics.listen {
            notes
                .push("[metrics] listen has changed: it takes effect at the next start".to_owned());
        }
        let config = config.clone();
        let told = self
            .inbox
            .call(None, move |writing| writing.reconfigure(&config))
            .map_err(|_| DaemonError::WriterGone)?;
        notes.extend(told);
        Ok(notes)
    }

    /// Stops in good order: takes what the sockets hold already, makes all of it durable, tells each client what
    /// became of its records, and leaves a directory with a clean mark.
    pub fn stop(mut self) -> Result<(), DaemonError> {
        // The name goes first: who connects from now on learns that no daemon runs.
        self.remove_socket();
        if let Some(http) = self.http.take() {
            http.stop();
        }
        let peers = self.listener.stop();
        let told = self.inbox.send(Message::Stop { peers });
        drop(self.inbox);
        let ended = self.writer.join().map_err(|_| DaemonError::WriterGone)?;
        ended?;
        told.map_err(|_| DaemonError::WriterGone)
    }

    fn remove_socket(&self) {
        let path = self.dir.join(SOCKET_NAME);
        let ours =
            std::fs::symlink_metadata(&path).is_ok_and(|found| found.ino() == self.socket_inode);
        if ours && let Err(error) = std::fs::remove_file(&path) {
            tracing::warn!("{} could not be removed: {error}", path.display());
        }
    }
}

/// What a daemon does with its directory before it serves anybody: access, sources, and the socket.
fn prepare(
    writer: &mut Writer,
    dir: &Path,
    config: &Config,
    group: Option<u32>,
) -> Result<Prepared, DaemonError> {
    access::share(dir, group)?;
    let mut notes = Vec::new();
    for source in &config.sources {
        if let Some(source) = wanted(source.clone(), writer.catalog(), &mut notes) {
            writer.define_source(&source)?;
        }
    }
    notes.extend(config.retention.too_little(writer.bytes_min()));
    notes.extend(left_in_staging(config.log.staging.get_ref()));
    for note in notes {
        tracing::warn!("{note}");
    }
    let http = match config.metrics.listen {
        Some(address) => Some(
            TcpListener::bind(address)
                .map_err(|source| DaemonError::Metrics { address, source })?,
        ),
        None => None,
    };
    let mut losses = Losses::open(writer)?;
    if config.retention.on_full == OnFull::Refuse {
        losses.define(writer)?;
    }
    Ok(Prepared {
        losses,
        http,
        socket: access::bind(dir, &config.access, group)?,
    })
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
