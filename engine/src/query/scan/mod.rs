//! Operators that give records: the raw scan, the indexed scan, and the scan that several threads share; and how a chunk is read.

pub mod chunk_cursor;
pub mod chunk_list;
pub mod chunk_reader;
pub mod count;
pub mod indexed_scan;
pub mod raw_scan;
pub mod runs;
pub mod shared_scan;
pub mod verified;
