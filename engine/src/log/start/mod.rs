//! The work between two writers: bytes are recovered, salvage first, before anything can be appended.

mod new_directory;
mod open_bytes;
pub mod opening;
pub mod salvage;
