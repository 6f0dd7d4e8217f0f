//! Two threads of one process: the writer appends and publishes, the flusher moves staged bytes into segments and makes them durable.

pub mod encoder;
pub mod encoders;
pub mod fault;
pub mod flusher;
pub mod log_flusher;
pub mod logs;
pub mod record_files;
pub mod record_flusher;
pub mod replacement;
pub mod segment_writer;
pub mod shared;
