//! The work between two writers. Nothing can be appended before the bytes are recovered, those in staging first (salvage).

mod new_directory;
mod open_bytes;
pub mod opening;
pub mod salvage;
