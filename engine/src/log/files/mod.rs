//! The files of a directory, as bytes and names: the operating system's files, the lock, the small files, and the segments.
//!
//! Nothing here knows the staging file, a writer's thread or a reader's view; `own_files` knows the names of the note about staging.

#[cfg(target_os = "linux")]
pub mod access;
pub mod catalog_file;
pub mod durable;
pub mod lock;
pub mod meta;
pub mod mirrored;
pub mod open_segment;
pub mod os;
#[cfg(target_os = "linux")]
mod own_access;
pub mod own_files;
pub mod segment;
pub mod storage;
pub mod tail_file;
pub mod unit_appender;
pub mod unit_cache;
pub mod unit_file;
pub mod unit_places;
mod unit_prefetch;
