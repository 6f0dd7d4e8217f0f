//! The source of nodes: recovery, `check` and queries each determine the ends of the index logs differently.

use std::path::PathBuf;

use crate::error::Result;
use crate::types::{Address, LogKind};

/// The index logs of a directory, as far as the caller may read them.
pub(crate) trait NodeLogs {
    fn uuid(&self) -> &[u8; 16];

    fn end(&self, log: LogKind) -> Address;

    /// Fills `bytes` from `address` on; they must lie below the log's end.
    fn read(&self, log: LogKind, address: Address, bytes: &mut [u8]) -> Result<()>;

    fn path_of(&self, log: LogKind, address: Address) -> PathBuf;

    /// Called after bytes that do not verify. Returns true if a newer generation of their segment may exist, so they are read again.
    fn refresh(&self) -> bool;
}
