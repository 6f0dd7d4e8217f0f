//! Why a daemon does not start, refuses a configuration, or has ended.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum DaemonError {
    #[error(transparent)]
    Engine(#[from] loom_engine::Error),
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Group(String),
    #[error("cannot serve metrics on {address}: {source}; change [metrics] listen")]
    Metrics {
        address: SocketAddr,
        source: io::Error,
    },
    #[error("the daemon's writer thread has failed; its log says why; start the daemon again")]
    WriterGone,
}
