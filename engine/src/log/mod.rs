//! One hybrid log, instantiated three times: the record log, the chunk index and the timestamp index. It knows bytes, not what they mean.
//!
//! The writer thread copies bytes into one of two staged blocks of each log and publishes tails (`Logs`); a flusher thread moves
//! blocks into segments and makes them durable; readers in any process copy published bytes from staging or segments
//! (`LogReader`); and `Opening` is a directory between two writers. Staging is a file, so what was published outlives a
//! writer that is killed. FORMAT.md says where every byte stands and in which order marks move.
//!
//! All `unsafe` of the engine is here: the mapped staging file (`staging`, `staged_run`), one system call (`lock`) and one
//! instruction (`ticks`).

mod access;
mod attachment;
mod catalog_file;
mod checked_json;
mod control;
mod counting;
mod durable;
mod fault;
mod flusher;
mod group;
mod lanes;
mod lock;
mod log_flusher;
mod meta;
mod meta_file;
mod opening;
mod options;
mod placement;
mod protocol;
mod reader;
mod replacement;
mod salvage;
mod segment;
mod segment_pool;
mod segment_writer;
mod shared;
mod staged_run;
mod staging;
mod staging_note;
pub mod storage;
mod survey;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod ticks;
mod view;
mod writer;

pub use access::Access;
pub use catalog_file::{COPY_NAME as CATALOG_COPY_NAME, CatalogBytes, NAME as CATALOG_NAME};
pub use durable::{DurableState, Slots};
pub(crate) use fault::is_for_space;
pub use meta::DirMeta;
pub use opening::{Opening, Recovered};
pub use options::{Durability, LogOptions};
pub use reader::{DaemonWords, LogReader, LogWords, Origin, Tails};
pub use ticks::Ticks;
pub use writer::{LogStats, Logs};
