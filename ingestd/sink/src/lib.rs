//! Where a load's payloads go: the daemon that runs on the directory, or the directory itself.
//!
//! `ingestd load` and DuckDB's `COPY … TO` store through it.

mod batch;
mod daemon;
mod direct;
pub mod losses;

use std::path::Path;

use loom_engine::ingest::Writer;
use loom_engine::log::LogReader;
use loom_engine::schema::{Catalog, SourceDef};
use loom_engine::{Error, SourceId, query};

pub use loom_client::LastingOptions;
use loom_client::protocol::Counts;
use loom_client::{ClientError, LastingClient};

pub use batch::InputBatch;
use daemon::DaemonSink;
use direct::DirectSink;
use losses::Losses;

pub type Result<T> = std::result::Result<T, SinkError>;

/// Why payloads did not find their way.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error(transparent)]
    Engine(#[from] Error),
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A sentence for the user, with the remedy.
    #[error("{0}")]
    Failed(String),
}

/// A place for payloads. One load owns it from the first definition to the end.
pub trait Sink: Send {
    /// The longest payload of a record, in bytes.
    fn payload_bytes_max(&self) -> usize;

    /// The source of this name, if the directory has it, without its indexes.
    fn existing(&self, source: &str) -> Result<Option<SourceDef>>;

    /// Creates the source, or adds to the one that exists the fields and indexes that are new.
    fn define(&mut self, def: &SourceDef) -> Result<SourceId>;

    /// Stores a batch, and returns the rows that were refused, with the reasons, as far as they are known here. An error names the first row
    /// that is not stored; those before it count.
    fn push(&mut self, source: SourceId, batch: &InputBatch) -> Result<Vec<(u64, String)>>;

    /// Enters rows of the source that never became payloads among its losses.
    fn note_refused(&mut self, source: SourceId, rows: u32, reason: &str) -> Result<()>;

    /// Called at least every 10 ms while nothing is pushed.
    fn tick(&mut self) -> Result<()>;

    /// Returns when everything pushed is safe, or with the reason why it is not, and in any case with what became of it.
    fn finish(self: Box<Self>) -> (Finished, Result<()>);
}

/// What became of the payloads that a sink was given, and no other rows.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    pub counts: Counts,
    /// Payloads of `received` that a daemon may have stored or not: it was killed before it could say.
    pub unconfirmed: u64,
    /// Why the last of them was refused, if `push` did not return it; else empty.
    pub reason: String,
    /// A sentence about daemons that ended meanwhile.
    pub note: Option<String>,
}

/// The source of this name as the directory has it, without its indexes; `None` also if the directory does not exist yet.
pub fn existing(dir: &Path, source: &str) -> Result<Option<SourceDef>> {
    let reader = match LogReader::open(dir) {
        Err(Error::NotLoom { .. }) => return Ok(None),
        reader => reader?,
    };
    Ok(find(&query::read_catalog(&reader)?, source))
}

fn find(catalog: &Catalog, source: &str) -> Option<SourceDef> {
    let found = catalog.find(source)?;
    Some(SourceDef {
        indexes: Vec::new(),
        ..found.def()
    })
}

/// Opens the way to a directory: its daemon where one runs, else the directory, which is created where it is absent. For the successor of a daemon
/// that ends, the sink waits as the options say.
pub fn open(dir: &Path, options: LastingOptions) -> Result<Box<dyn Sink>> {
    match LastingClient::connect_with(dir, options) {
        Ok(client) => Ok(Box::new(DaemonSink::new(client, dir))),
        Err(ClientError::NotRunning(_)) => Ok(Box::new(DirectSink::open(dir)?)),
        Err(error) => Err(error.into()),
    }
}

/// Ends a writer of the directory as a load does: pending losses have a record then.
pub fn close(mut writer: Writer) -> Result<()> {
    match Losses::open(&mut writer) {
        Ok(losses) => Box::new(DirectSink::of(writer, losses)).finish().1,
        Err(error) => {
            writer.close()?;
            Err(error.into())
        }
    }
}
