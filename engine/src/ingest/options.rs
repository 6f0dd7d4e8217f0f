//! How a writer opens its directory.

use crate::log::LogOptions;
use crate::types::Address;

/// How a writer opens its directory.
#[derive(Debug, Clone, Default)]
pub struct WriterOptions {
    pub log: LogOptions,
    /// Start although the log's newest record is more than a day ahead of the wall clock.
    pub accept_clock: bool,
    pub when_full: WhenFull,
}

/// What a writer does that finds no room on the disk to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// It is refused.
    #[default]
    Refuse,
    /// It gives up the oldest segments, one after the other, until there is room or only the last is left. None reaches past `kept_from`, if that is
    /// known.
    Evict { kept_from: Option<Address> },
}
