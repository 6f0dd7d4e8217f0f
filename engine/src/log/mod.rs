//! One hybrid log, instantiated three times: the record log, the chunk index and the timestamp index. It knows bytes, not their meaning.
//!
//! The writer thread copies bytes into one of two staged blocks of each log and publishes tails (`Logs`); a flusher thread moves blocks into segments and makes
//! them durable; readers in any process copy published bytes from staging or segments (`LogReader`); and `Opening` is a directory between two writers. Staging
//! is a file, so published bytes outlive a killed writer. FORMAT.md specifies the place of every byte and the order in which marks move.
//!
//! The `unsafe` code here is the mapped staging file (`staging`, `log_flusher`, `encoders`), two system calls (`os`) and one instruction
//! (`ticks`).

mod files;
mod options;
mod read;
mod staging;
mod start;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod ticks;
mod write;

pub use crate::types::CATALOG_NAME;
#[cfg(target_os = "linux")]
pub use files::access::Access;
pub use files::catalog_file::{CatalogBytes, FILE as CATALOG_FILE};
pub use files::durable::{DurableState, Slots};
pub use files::meta::DirMeta;
pub use files::own_files::refuse_foreign;
pub use files::unit_cache::{Keeper, SharedUnits, UnitCache};
pub use files::unit_file::{HeldUnit, UnitWanted};
pub use options::{Durability, ENCODERS_MAX, LogOptions};
pub use read::reader::{Attached, DaemonWords, LogReader, LogWords, Origin, Tails};
pub use read::survey::GAP_CHUNKS_MAX;
pub use staging::listing::{Holder, StagingFile, staging_files};
pub(crate) use staging::protocol::load_cut;
pub use start::opening::{Opening, Recovered};
pub use ticks::Ticks;
pub use write::encoder::Encoder;
pub use write::logs::{LogStats, Logs};
pub use write::record_files::RecordSegments;

/// Files and system calls as the logs see them.
pub mod storage {
    pub use super::files::os::OsStorage;
    pub use super::files::storage::*;
}
