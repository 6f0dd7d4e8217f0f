//! What nodes are read from: recovery, `check` and queries each know in their own way where the index logs end.

use std::path::PathBuf;

use crate::error::Result;
use crate::types::{Address, LogKind};

/// The index logs of a directory, as far as the caller may read them.
pub(crate) trait NodeLogs {
    fn uuid(&self) -> &[u8; 16];

    /// Where a log ends.
    fn end(&self, log: LogKind) -> Address;

    /// Fills `bytes` from `address` on, which lie below the log's end.
    fn read(&self, log: LogKind, address: Address, bytes: &mut [u8]) -> Result<()>;

    /// The file that holds an address.
    fn path_of(&self, log: LogKind, address: Address) -> PathBuf;

    /// Called after bytes that do not verify. True: a newer generation of their segment may have come, so they are read again.
    fn refresh(&self) -> bool;
}
