//! Operators that return records: the raw scan, the indexed scan, and the scan that several threads share; and the readers of chunks.

// Requests and results.
pub mod ask;
pub mod batch;
pub mod column_filter;
pub mod given_records;
pub mod records;
mod row_tests;
pub mod source_reader;
mod text_tests;

// A chunk in memory.
pub mod chunk_cursor;
pub mod verified_chunks;

// The scan that several threads share.
pub mod chunk_reader;
pub mod count;
pub mod shared_scan;
pub mod sources_scan;
pub mod unit_pruning;

// The other operators.
pub mod chunk_list;
pub mod indexed_scan;
pub mod raw_scan;
