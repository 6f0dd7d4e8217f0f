//! Published bytes for any process: from staging while a writer runs, from segments, and from the end that the last writer left.

mod ended;
pub mod epoch_view;
pub mod reader;
pub mod records_end;
pub mod segment_pool;
mod small_files;
pub mod survey;
