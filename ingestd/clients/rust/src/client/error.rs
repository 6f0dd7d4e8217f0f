//! The errors of the clients.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use loom_engine::SourceId;
use thiserror::Error;

use crate::protocol::{ErrorCode, Synced};
use crate::ring::{PushError, RingError};

/// A call of a client failed.
#[derive(Debug, Clone, Error)]
pub enum ClientError {
    #[error("no daemon runs on {}; start one with 'ingestd run {}'", .0.display(), .0.display())]
    NotRunning(PathBuf),
    #[error(
        "no daemon has run on {} for {}; {waiting} records wait in shared memory; start one with 'ingestd run {}'",
        .dir.display(), seconds(.patience), .dir.display()
    )]
    Absent {
        dir: PathBuf,
        patience: Duration,
        /// Records that the client hands over once a daemon runs, if its process lives that long.
        waiting: u64,
    },
    /// A client over the socket has looked for the next daemon in vain.
    #[error(
        "{why}; no daemon has run on {} for {} since then; {unsent} records are not sent, and {unsure} may be stored or not; start one with \
         'ingestd run {}'",
        .dir.display(), seconds(.patience), .dir.display()
    )]
    NoSuccessor {
        /// Why the latest connection ended.
        why: String,
        dir: PathBuf,
        patience: Duration,
        unsent: u64,
        unsure: u64,
    },
    /// The same, but `stop` was set before the time was over.
    #[error(
        "{why}; the wait for the next daemon on {} was stopped; {unsent} records are not sent, and {unsure} may be stored or not; start one \
         with 'ingestd run {}'",
        .dir.display(), .dir.display()
    )]
    WaitStopped {
        why: String,
        dir: PathBuf,
        unsent: u64,
        unsure: u64,
    },
    #[error("a different Loom directory is at {} now; connect again", .0.display())]
    Replaced(PathBuf),
    #[error("this user may not push to {}; join the daemon's [access] group, which also needs socket = \"group\"", .0.display())]
    NotAllowed(PathBuf),
    #[error("{message}")]
    Daemon { code: ErrorCode, message: String },
    /// The daemon stopped regularly; the records that it took from this client are durable.
    #[error("the daemon stopped; it stored {} of this client's records", .0.counts.stored)]
    Stopped(Synced),
    #[error("a payload of {bytes} bytes is longer than the limit of a record, {limit}")]
    PayloadTooLong { bytes: usize, limit: usize },
    #[error(
        "a definition of {bytes} bytes is longer than the limit of a frame, {limit}; define fewer sources at a time"
    )]
    DocumentTooLong { bytes: usize, limit: usize },
    #[error("a batch of {bytes} bytes does not end with a whole payload")]
    Ragged { bytes: usize },
    #[error("the daemon's answer does not follow the protocol: {0}")]
    Protocol(String),
    #[error("source {0} was not defined by this client; define it first")]
    NotDefined(SourceId),
    #[error("{0}")]
    Ring(Arc<RingError>),
    #[error("{0}")]
    Push(#[from] PushError),
    #[error("the connection to the daemon failed: {0}")]
    Io(Arc<io::Error>),
}

impl From<RingError> for ClientError {
    fn from(error: RingError) -> Self {
        ClientError::Ring(Arc::new(error))
    }
}

impl From<io::Error> for ClientError {
    fn from(error: io::Error) -> Self {
        ClientError::Io(Arc::new(error))
    }
}

impl ClientError {
    /// Whether the daemon has ended, or does not answer yet, so that a later look may succeed.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            ClientError::NotRunning(_) | ClientError::Io(_) | ClientError::Stopped(_) => true,
            // The old daemon may still have this client's sources and rings.
            ClientError::Daemon { code, .. } => {
                matches!(code, ErrorCode::Stopping | ErrorCode::TooManyConnections)
            }
            _ => false,
        }
    }
}

fn seconds(patience: &Duration) -> String {
    format!("{} s", patience.as_secs_f64())
}
