//! What happens between two writers: bytes are recovered, salvage first, before anything can be appended.

pub mod opening;
pub mod salvage;
