//! The errors of a daemon: it does not start, refuses a configuration, or has ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use loom_engine::Error as EngineError;
use thiserror::Error;

use super::answer::Gone;
use crate::config::{Config, OnFull};
use crate::protocol::ErrorCode;

#[derive(Debug, Error)]
pub enum DaemonError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{source}; {remedy}")]
    NoRoom {
        source: EngineError,
        remedy: &'static str,
    },
    #[error("{0}")]
    Group(String),
    #[error("cannot serve metrics on {address}: {source}; change [metrics] listen")]
    Metrics {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("{0}")]
    Otlp(String),
    #[error("{0}")]
    Rules(String),
    #[error("the daemon's writer thread has failed; its log says why; start the daemon again")]
    WriterGone,
}

impl From<Gone> for DaemonError {
    fn from(_: Gone) -> Self {
        DaemonError::WriterGone
    }
}

impl DaemonError {
    /// The error of a directory that cannot be opened; it names a remedy if the disk is full.
    pub(super) fn of_start(error: EngineError, config: &Config) -> DaemonError {
        if !error.is_for_space() {
            return error.into();
        }
        let remedy = match config.retention.on_full {
            OnFull::Evict if config.archive.awaited().is_some() => {
                "no older file is left to remove, or it is not archived yet, as [archive] required demands; run 'ingestd archive', or free some space"
            }
            OnFull::Evict => "retention left no older file to remove; free some space",
            OnFull::Refuse => {
                "free some space, or set [retention] on_full = \"evict\", which removes the oldest records"
            }
        };
        DaemonError::NoRoom {
            source: error,
            remedy,
        }
    }
}

/// The code with which a client gets an error of the engine.
pub(super) fn code_of(error: &EngineError) -> ErrorCode {
    match error {
        EngineError::UnknownSource { .. } | EngineError::UnknownIndex { .. } => ErrorCode::NotFound,
        EngineError::Schema(_) | EngineError::SourceClosed { .. } => ErrorCode::Definition,
        _ => ErrorCode::Failed,
    }
}
