//! The options with which a writer opens its directory.

use crate::log::LogOptions;
use crate::types::Address;

/// The options with which a writer opens its directory.
#[derive(Debug, Clone, Default)]
pub struct WriterOptions {
    pub log: LogOptions,
    /// Start even if the log's newest record is more than a day ahead of the wall clock.
    pub accept_clock: bool,
    pub when_full: WhenFull,
}

/// The choice of a writer that finds the disk full at its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WhenFull {
    /// The start is refused.
    #[default]
    Refuse,
    /// The oldest segments are removed, one after the other, until there is room or only the last is left. No segment that reaches past
    /// `kept_from` is removed.
    Evict { kept_from: Option<Address> },
}
