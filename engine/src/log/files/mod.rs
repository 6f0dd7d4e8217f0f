//! The files of a directory, as bytes and names: the operating system's files, the lock, the small files, and the segments.
//!
//! Nothing here knows of staging, of a writer's thread or of a reader's view.

pub mod access;
pub mod catalog_file;
pub mod durable;
pub mod lock;
pub mod meta;
pub mod mirrored;
pub mod open_segment;
pub mod os_storage;
pub mod own_files;
pub mod segment;
pub mod storage;
pub mod tail_file;
pub mod unit_appender;
pub mod unit_cache;
pub mod unit_file;
pub mod unit_places;
