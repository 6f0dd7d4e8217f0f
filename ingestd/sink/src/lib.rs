//! The destinations of a load's payloads: the daemon that runs on the directory, or the directory itself.
//!
//! `ingestd load` and DuckDB's `COPY … TO` use it.

mod batch;
mod daemon;
mod direct;
pub mod losses;

use std::path::Path;

use loom_engine::ingest::Writer;
use loom_engine::log::{Access, LogReader};
use loom_engine::query::{Directory, Lookups, Poll};
use loom_engine::schema::{Catalog, SourceDef};
use loom_engine::{Error, SourceId, query};

pub use loom_client::LastingOptions;
use loom_client::protocol::Counts;
use loom_client::{Client, ClientError, LastingClient};

pub use batch::InputBatch;
use daemon::DaemonSink;
use direct::DirectSink;
use losses::Losses;

pub type Result<T> = std::result::Result<T, SinkError>;

/// Payloads were not stored.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    #[error(transparent)]
    Engine(#[from] Error),
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A sentence for the user that says what to do.
    #[error("{0}")]
    Failed(String),
}

/// A destination for payloads. One load owns it from the first definition to the end.
pub trait Sink: Send {
    /// The longest payload of a record, in bytes.
    fn payload_bytes_max(&self) -> usize;

    /// The source of this name without its indexes, if the directory has it.
    fn existing(&self, source: &str) -> Result<Option<SourceDef>>;

    /// Creates the source, or adds new fields and indexes to the existing one.
    fn define(&mut self, def: &SourceDef) -> Result<SourceId>;

    /// Stores a batch, and returns the refused rows that are known here, with the reasons. An error names the first row that is not stored; the rows
    /// before it count.
    fn push(&mut self, source: SourceId, batch: &InputBatch) -> Result<Vec<(u64, String)>>;

    /// Adds rows of the source that never became payloads to its losses.
    fn note_refused(&mut self, source: SourceId, rows: u32, reason: &str) -> Result<()>;

    /// The caller calls this at least every 10 ms while it pushes nothing.
    fn tick(&mut self) -> Result<()>;

    /// Returns the counts when everything that was pushed is safe, and otherwise also the reason why it is not.
    fn finish(self: Box<Self>) -> (Finished, Result<()>);
}

/// The counts of the payloads that a sink got; other rows are not in them.
#[derive(Clone, Debug, Default)]
pub struct Finished {
    pub counts: Counts,
    /// Payloads of `received` that a daemon may have stored or not, because it was killed before it confirmed them.
    pub unconfirmed: u64,
    /// Why the last refused payload was refused, if `push` did not return it; otherwise empty.
    pub reason: String,
    /// A sentence about daemons that ended meanwhile.
    pub note: Option<String>,
}

/// The source of this name without its indexes; `None` also if the directory does not exist yet.
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

/// Opens a sink: the daemon of the directory if one runs, otherwise the directory, which is created if it is missing. If the daemon ends, the sink
/// waits for the next one as the options say.
pub fn open(dir: &Path, options: LastingOptions) -> Result<Box<dyn Sink>> {
    match LastingClient::connect_with(dir, options) {
        Ok(client) => Ok(Box::new(DaemonSink::new(client, dir))),
        Err(ClientError::NotRunning(_)) => Ok(Box::new(DirectSink::open(dir)?)),
        Err(error) => Err(error.into()),
    }
}

/// Builds the look-ups that a directory's sources declare and that are missing. Returns their number; `None` if a daemon runs, which builds them itself.
pub fn build_lookups(dir: &Path, poll: &Poll<'_>) -> Result<Option<usize>> {
    if Client::connect(dir).is_ok() {
        return Ok(None);
    }
    let directory = Directory::open(dir)?;
    let mut lookups = Lookups::of(directory, Access::of_directory(dir)?);
    let mut built = 0;
    while lookups.build_next(poll)? {
        built += 1;
    }
    built += usize::from(lookups.build_rest(poll)?);
    Ok(Some(built))
}

/// Closes a writer of the directory as a load does: pending losses become records first.
pub fn close(mut writer: Writer) -> Result<()> {
    match Losses::open(&mut writer) {
        Ok(losses) => Box::new(DirectSink::of(writer, losses)).finish().1,
        Err(error) => {
            writer.close()?;
            Err(error.into())
        }
    }
}
