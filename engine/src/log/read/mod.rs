//! Published bytes as any process reads them: from staging while a writer runs, from segments, and from what the last writer left.

pub mod epoch_view;
pub mod reader;
pub mod records_end;
pub mod segment_pool;
mod small_files;
pub mod survey;
