//! The files of a directory, as bytes and names: what the operating system gives, who holds the lock, the small files, and the segments.
//!
//! Nothing here knows of staging, of a writer's thread or of a reader's view.

pub mod access;
pub mod catalog_file;
pub mod checked_json;
pub mod counting;
pub mod durable;
pub mod group;
pub mod lock;
pub mod meta;
pub mod meta_file;
pub mod segment;
pub mod storage;
