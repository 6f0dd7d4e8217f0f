//! A caller's options for the logs, and the rules of the sizes.
//!
//! Chunk and segment sizes are fixed when a directory is created; block sizes and the rest may differ at each start.

use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::{CHUNK_BYTES_MAX, CHUNK_BYTES_MIN, SEGMENT_UNITS_MOST, UNIT_CHUNKS};
use crate::types::{Address, LogKind, PerLog};

/// The moment at which written records become durable.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Durability {
    /// When the operating system decides, at `Logs::sync`, and at a clean stop.
    None,
    /// At most this long after publication.
    Interval(Duration),
    /// When `Logs::sync` is called; a block is not reused before it is durable.
    Batch,
}

/// The layout and the storage of the three logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// Unit of indexing: a power of two from 4 KiB to 1 MiB.
    pub chunk_bytes: u32,
    /// Unit of eviction of the record log: a power of two from 64 KiB to 1 GiB, at least 16 chunks. The chunk index has blocks of an eighth, the timestamp
    /// index of a 64th, both at least 64 KiB and at least a chunk.
    pub block_bytes: u64,
    /// File sizes of the three logs: each a multiple of its block, up to 1 TiB, and of the record log up to 2^24 chunks.
    pub segment_bytes: PerLog<u64>,
    /// The directory that holds the staging file. `None`: `/dev/shm`, or the Loom directory if that is too small.
    pub staging: Option<PathBuf>,
    pub durability: Durability,
    /// The number of threads that encode units, up to `ENCODERS_MAX`. All except the first, which is the flusher's own, run only while it is behind.
    pub encoders: usize,
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
            encoders: 1,
            group: None,
        }
    }
}

impl LogOptions {
    /// The least bytes of the three logs' segments while records are written; no lower limit can be kept.
    pub fn bytes_min(&self) -> Result<u64> {
        Ok(self.geometry()?.bytes_min())
    }

    /// Fails unless the options obey the rules.
    pub fn check(&self) -> Result<()> {
        self.geometry()?;
        if !(1..=ENCODERS_MAX).contains(&self.encoders) {
            return Err(Error::Options(format!(
                "{} encoders are not allowed: use 1 to {ENCODERS_MAX}",
                self.encoders
            )));
        }
        Ok(())
    }

    fn geometry(&self) -> Result<Geometry> {
        Geometry::new(self.chunk_bytes, self.block_bytes, self.segment_bytes)
    }
}

/// More are of no use: one writer appends no faster than this many encode.
pub const ENCODERS_MAX: usize = 4;
pub const BLOCK_BYTES_MIN: u64 = 64 << 10;

/// Returns the least size of a block: a unit of the record log lies in one block.
pub fn block_bytes_min(chunk_bytes: u32) -> u64 {
    BLOCK_BYTES_MIN.max(UNIT_CHUNKS * u64::from(chunk_bytes))
}

pub const BLOCK_BYTES_MAX: u64 = 1 << 30;
const SEGMENT_BYTES_MAX: u64 = 1 << 40;

/// The longest segment of a log.
pub fn segment_bytes_max(log: LogKind, chunk_bytes: u32) -> u64 {
    let of_units = SEGMENT_UNITS_MOST * UNIT_CHUNKS * u64::from(chunk_bytes);
    match log {
        LogKind::Records => SEGMENT_BYTES_MAX.min(of_units),
        LogKind::Chunks | LogKind::Times => SEGMENT_BYTES_MAX,
    }
}

/// No log reaches this. A greater address in foreign bytes is damage, and the sum of two smaller ones does not overflow.
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
            let most = segment_bytes_max(log, chunk_bytes);
            if segment == 0 || segment % block != 0 || segment > most {
                return Err(refused(
                    "segment",
                    segment,
                    &format!("a multiple of its block, {block} bytes, up to {most}"),
                ));
            }
        }
        Ok(geometry)
    }

    /// Checks the options for a directory with fixed segments: blocks are halved until they divide them.
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

    /// Bytes of a log's segments when everything except the current ones is given up: the one that holds its end, and those that are allocated two blocks
    /// ahead.
    pub fn written_bytes(&self, log: LogKind) -> u64 {
        let segment = self.segment(log);
        segment + (2 * self.block(log)).next_multiple_of(segment)
    }

    /// The same sum over the three logs.
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

/// The rule for chunks alone, for sizes from a file.
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
        let options = LogOptions::default();
        options.check().unwrap();
        let geometry = options.geometry().unwrap();
        assert_eq!(geometry.block_bytes, [64 << 20, 8 << 20, 1 << 20].into());
        assert_eq!(geometry.bytes_min(), (512 << 20) + (64 << 20) + (8 << 20));
    }

    #[test]
    fn each_of_several_short_segments_that_are_allocated_ahead_counts() {
        let geometry = Geometry::new(4096, 1 << 20, [1 << 20, 1 << 20, 1 << 16].into()).unwrap();
        assert_eq!(geometry.written_bytes(LogKind::Records), 3 << 20);
        assert_eq!(geometry.written_bytes(LogKind::Chunks), 2 << 20);
        assert_eq!(geometry.written_bytes(LogKind::Times), 3 << 16);
    }

    #[test]
    fn options_outside_the_rules_are_refused_by_name() {
        let segments = [1 << 20; 3];
        for (chunk, block, segments, word) in [
            (1000, 1 << 16, segments, "chunk"),
            (2 << 20, 2 << 20, segments, "chunk"),
            (4096, 32 << 10, segments, "block"),
            (4096, 96 << 10, segments, "block"),
            (1 << 20, 64 << 10, segments, "block"),
            (4096, 1 << 16, [1 << 15, 1 << 20, 1 << 20], "segment"),
            (4096, 1 << 16, [1 << 20, 0, 1 << 20], "segment"),
            (4096, 1 << 16, [1 << 37, 1 << 20, 1 << 20], "segment"),
        ] {
            let error = Geometry::new(chunk, block, segments.into())
                .unwrap_err()
                .to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(Geometry::new(4096, 1 << 16, [1 << 18; 3].into()).is_ok());
        let check = |encoders| {
            let options = LogOptions {
                encoders,
                ..LogOptions::default()
            };
            options.check()
        };
        for encoders in [0, ENCODERS_MAX + 1] {
            let error = check(encoders).unwrap_err().to_string();
            assert!(error.contains("use 1 to 4"), "{error}");
        }
        assert!(check(ENCODERS_MAX).is_ok());
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
