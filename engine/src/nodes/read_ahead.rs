//! Reads of a log through a buffer that reads ahead while requests are consecutive, and exactly otherwise.
//!
//! Nodes of neighbouring chunks are neighbours in the chunk index: a walk over many of them reads 256 KiB at a time, and one that follows masks to a few reads
//! only those.

use super::node_logs::NodeLogs;
use crate::error::Result;
use crate::memory;
use crate::proven::at;
use crate::types::{Address, LogKind};

const AHEAD_BYTES_LEAST: usize = 4 << 10;
const AHEAD_BYTES_MOST: usize = 256 << 10;

pub(crate) struct Window {
    log: LogKind,
    start: u64,
    bytes: Vec<u8>,
    ahead_bytes: usize,
}

impl Window {
    pub fn new(log: LogKind) -> Window {
        Window {
            log,
            start: 0,
            bytes: Vec::new(),
            ahead_bytes: 0,
        }
    }

    pub fn log(&self) -> LogKind {
        self.log
    }

    /// The `length` bytes at `address`, which must lie below the log's tail.
    pub fn read(&mut self, logs: &impl NodeLogs, address: Address, length: usize) -> Result<&[u8]> {
        let start = match self.place(address, length) {
            Some(start) => start,
            None => {
                self.fill(logs, address, length)?;
                0
            }
        };
        Ok(at(&self.bytes, start..start + length))
    }

    /// Drops the buffer, so the next read comes from the log.
    pub fn forget(&mut self) {
        self.bytes.clear();
    }

    fn place(&self, address: Address, length: usize) -> Option<usize> {
        let start = usize::try_from(address.0.checked_sub(self.start)?).ok()?;
        (start.checked_add(length)? <= self.bytes.len()).then_some(start)
    }

    fn fill(&mut self, logs: &impl NodeLogs, address: Address, length: usize) -> Result<()> {
        let end = self.start + self.bytes.len() as u64;
        let reach = self.ahead_bytes.max(AHEAD_BYTES_LEAST) as u64;
        let follows = !self.bytes.is_empty()
            && address.0 >= self.start
            && address.0 <= end.saturating_add(reach);
        self.ahead_bytes = if follows {
            (self.ahead_bytes * 2).clamp(AHEAD_BYTES_LEAST, AHEAD_BYTES_MOST)
        } else {
            0
        };
        let available = logs.end(self.log).0.saturating_sub(address.0);
        let wanted = length.max(self.ahead_bytes);
        let wanted = usize::try_from(available).map_or(wanted, |available| wanted.min(available));
        // It is emptied first: after a failed read the buffer must not answer for bytes that it does not hold.
        self.bytes.clear();
        let mut bytes = std::mem::take(&mut self.bytes);
        let room = memory::resize(&mut bytes, wanted.max(length));
        room.map_err(|refused| refused.of(logs.path_of(self.log, address)))?;
        let read = logs.read(self.log, address, &mut bytes);
        if bytes.len() > length && read.is_err() {
            // The bytes behind may be damaged, which must not affect the requested ones.
            bytes.truncate(length);
            logs.read(self.log, address, &mut bytes)?;
        } else {
            read?;
        }
        self.start = address.0;
        self.bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::error::Error;

    /// A log whose bytes are the lower halves of their addresses, and that cannot be read from `damaged` on.
    struct Log {
        damaged: u64,
    }

    impl NodeLogs for Log {
        fn uuid(&self) -> &[u8; 16] {
            &[0; 16]
        }

        fn end(&self, _: LogKind) -> Address {
            Address(1 << 20)
        }

        fn read(&self, _: LogKind, address: Address, bytes: &mut [u8]) -> Result<()> {
            if address.0 + bytes.len() as u64 > self.damaged {
                return Err(Error::Query("damaged".to_owned()));
            }
            for (at, byte) in (address.0..).zip(bytes) {
                *byte = at as u8;
            }
            Ok(())
        }

        fn path_of(&self, _: LogKind, _: Address) -> PathBuf {
            PathBuf::new()
        }

        fn refresh(&self) -> bool {
            false
        }
    }

    #[test]
    fn bytes_are_read_although_the_bytes_behind_them_cannot_be() {
        let log = Log { damaged: 30_000 };
        let mut window = Window::new(LogKind::Times);
        for address in (0..30_000 - 48).step_by(48) {
            let bytes = window.read(&log, Address(address), 48).unwrap();
            let expected: Vec<u8> = (address..address + 48).map(|at| at as u8).collect();
            assert_eq!(bytes, expected, "at {address}");
        }
        assert!(window.read(&log, Address(29_990), 48).is_err());
    }
}
