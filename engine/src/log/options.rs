//! What a caller chooses about the logs, and the rules that the sizes obey.
//!
//! Chunk and segment sizes are fixed when a directory is made; block sizes and the rest may differ at each start.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, UNIT_CHUNKS};
use crate::types::{Address, LogKind, PerLog};

/// When what is written becomes durable.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Durability {
    /// When the operating system likes, at `Logs::sync`, and at a clean stop.
    None,
    /// At most this long after it was published.
    Interval(Duration),
    /// When `Logs::sync` is called; a block is not reused before it is durable.
    Batch,
}

/// How the three logs are laid out and kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Unit of indexing: a power of two from 4 KiB to 1 MiB.
    pub chunk_bytes: u32,
    /// Unit of eviction of the record log: a power of two from 64 KiB to 1 GiB, not below 16 chunks. The chunk index has blocks of an eighth, the
    /// timestamp index of a 64th, neither below 64 KiB or the chunk.
    pub block_bytes: u64,
    /// File sizes of the three logs: each a multiple of its block, up to 1 TiB.
    pub segment_bytes: PerLog<u64>,
    /// The directory that holds the staging file. `None`: `/dev/shm`, or the Loom directory where that is too small.
    pub staging: Option<PathBuf>,
    pub durability: Durability,
    /// The id of a group that may read what is made from now on; without one, only the owner may.
    pub group: Option<u32>,
}

impl Default for LogOptions {
    fn default() -> LogOptions {
        LogOptions {
            chunk_bytes: 64 << 10,
            block_bytes: 64 << 20,
            segment_bytes: [256 << 20, 32 << 20, 4 << 20].into(),
            staging: None,
            durability: Durability::Interval(Duration::from_millis(500)),
            group: None,
        }
    }
}

impl LogOptions {
    /// What the segments of the three logs take at least while records are written; no limit of bytes below it can be kept.
    pub fn bytes_min(&self) -> Result<u64> {
        let geometry = Geometry::new(self.chunk_bytes, self.block_bytes, self.segment_bytes)?;
        Ok(geometry.bytes_min())
    }
}

pub const BLOCK_BYTES_MIN: u64 = 64 << 10;

/// A unit of the record log lies in one block.
pub fn block_bytes_min(chunk_bytes: u32) -> u64 {
    BLOCK_BYTES_MIN.max(UNIT_CHUNKS * u64::from(chunk_bytes))
}

pub const BLOCK_BYTES_MAX: u64 = 1 << 30;
pub const SEGMENT_BYTES_MAX: u64 = 1 << 40;
/// No log reaches this. What foreign bytes say of addresses beyond is damage, and sums of addresses below do not overflow.
pub const ADDRESS_LIMIT: Address = Address(1 << 62);

/// Sizes that passed the rules of `LogOptions`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Geometry {
    pub chunk_bytes: u64,
    pub block_bytes: PerLog<u64>,
    pub segment_bytes: PerLog<u64>,
}

impl Geometry {
    pub fn new(chunk_bytes: u32, block_bytes: u64, segment_bytes: PerLog<u64>) -> Result<Geometry> {
        check_chunk(chunk_bytes)?;
        let least = block_bytes_min(chunk_bytes);
        if !block_bytes.is_power_of_two() || !(least..=BLOCK_BYTES_MAX).contains(&block_bytes) {
            return Err(refused(
                "block",
                block_bytes,
                &format!("a power of two from {least} to {BLOCK_BYTES_MAX} bytes"),
            ));
        }
        let geometry = Geometry {
            chunk_bytes: u64::from(chunk_bytes),
            block_bytes: [1, 8, 64]
                .map(|part| (block_bytes / part).max(BLOCK_BYTES_MIN.max(chunk_bytes.into())))
                .into(),
            segment_bytes,
        };
        for log in LogKind::ALL {
            let (segment, block) = (geometry.segment_bytes[log], geometry.block_bytes[log]);
            if segment == 0 || segment % block != 0 || segment > SEGMENT_BYTES_MAX {
                return Err(refused(
                    "segment",
                    segment,
                    &format!("a multiple of its block, {block} bytes, up to {SEGMENT_BYTES_MAX}"),
                ));
            }
        }
        Ok(geometry)
    }

    /// The same for a directory whose segments are what they are: blocks are halved until they divide them.
    pub fn fitting(
        chunk_bytes: u32,
        block_bytes: u64,
        segment_bytes: PerLog<u64>,
    ) -> Result<Geometry> {
        let least = block_bytes_min(chunk_bytes);
        let mut block = block_bytes.max(least);
        loop {
            match Geometry::new(chunk_bytes, block, segment_bytes) {
                Err(_) if block > least => block /= 2,
                result => return result,
            }
        }
    }

    /// What the segments of a log take when all but what is being written was given up: the one that holds its end, and those that are
    /// allocated two blocks ahead.
    pub fn written_bytes(&self, log: LogKind) -> u64 {
        let segment = self.segment(log);
        segment + (2 * self.block(log)).next_multiple_of(segment)
    }

    /// What the segments of the three logs take then.
    pub fn bytes_min(&self) -> u64 {
        LogKind::ALL
            .into_iter()
            .map(|log| self.written_bytes(log))
            .sum()
    }

    pub fn block(&self, log: LogKind) -> u64 {
        self.block_bytes[log]
    }

    pub fn segment(&self, log: LogKind) -> u64 {
        self.segment_bytes[log]
    }
}

/// The rule for chunks alone, for sizes that come from a file.
pub fn check_chunk(chunk_bytes: u32) -> Result<()> {
    if chunk_bytes.is_power_of_two() && (CHUNK_BYTES_MIN..=CHUNK_BYTES_MAX).contains(&chunk_bytes) {
        Ok(())
    } else {
        Err(refused(
            "chunk",
            chunk_bytes.into(),
            &format!("a power of two from {CHUNK_BYTES_MIN} to {CHUNK_BYTES_MAX} bytes"),
        ))
    }
}

fn refused(what: &str, bytes: u64, rule: &str) -> Error {
    Error::Options(format!(
        "a {what} of {bytes} bytes is not allowed: it must be {rule}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_obey_the_rules() {
        let LogOptions {
            chunk_bytes,
            block_bytes,
            segment_bytes,
            ..
        } = LogOptions::default();
        let geometry = Geometry::new(chunk_bytes, block_bytes, segment_bytes).unwrap();
        assert_eq!(geometry.block_bytes, [64 << 20, 8 << 20, 1 << 20].into());
        assert_eq!(geometry.bytes_min(), (512 << 20) + (64 << 20) + (8 << 20));
    }

    #[test]
    fn segments_shorter_than_what_is_allocated_ahead_count_as_often_as_they_are() {
        let geometry = Geometry::new(4096, 1 << 20, [1 << 20, 1 << 20, 1 << 16].into()).unwrap();
        assert_eq!(geometry.written_bytes(LogKind::Records), 3 << 20);
        assert_eq!(geometry.written_bytes(LogKind::Chunks), 2 << 20);
        assert_eq!(geometry.written_bytes(LogKind::Times), 3 << 16);
    }

    #[test]
    fn sizes_outside_the_rules_are_refused_by_name() {
        let segments = [1 << 20; 3];
        for (chunk, block, segments, word) in [
            (1000, 1 << 16, segments, "chunk"),
            (2 << 20, 2 << 20, segments, "chunk"),
            (4096, 32 << 10, segments, "block"),
            (4096, 96 << 10, segments, "block"),
            (1 << 20, 64 << 10, segments, "block"),
            (4096, 1 << 16, [1 << 15, 1 << 20, 1 << 20], "segment"),
            (4096, 1 << 16, [1 << 20, 0, 1 << 20], "segment"),
        ] {
            let error = Geometry::new(chunk, block, segments.into())
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(Geometry::new(4096, 1 << 16, [1 << 18; 3].into()).is_ok());
    }

    #[test]
    fn blocks_shrink_to_the_segments_that_a_directory_has() {
        let geometry =
            Geometry::fitting(4096, 64 << 20, [1 << 18, 3 << 16, 1 << 16].into()).unwrap();
        assert_eq!(geometry.block_bytes, [1 << 18, 1 << 16, 1 << 16].into());
        let geometry = Geometry::fitting(1 << 20, 1 << 16, [1 << 24; 3].into()).unwrap();
        assert_eq!(geometry.block_bytes, [1 << 24, 1 << 21, 1 << 20].into());
        assert!(Geometry::fitting(4096, 1 << 20, [4096; 3].into()).is_err());
    }
}
