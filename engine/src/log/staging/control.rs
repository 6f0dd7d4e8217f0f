//! The control page of staging: the place of each word, and its encoding.
//!
//! A word is stored with its complement (`protocol::announce`). Readers in other processes copy both with `pread`, which is not atomic, and read again until they
//! agree. The writer and the flusher never load from the page: their own truth is in memory (`shared.rs`), and the page is only for readers.

use std::path::{Path, PathBuf};

use super::protocol::Protocol;
use crate::format::{LOSS_TABLE_BYTES, crc32c};
use crate::log::files::os;
use crate::log::sync::Memory;
use crate::proven;
use crate::types::{LogKind, PerLog};

pub const CONTROL_BYTES: u64 = 4096;
/// Each of the two tables of pending losses has a page; the blocks follow.
const LOSS_PAGE_BYTES: u64 = 4096;
const _: () = assert!(LOSS_TABLE_BYTES as u64 <= LOSS_PAGE_BYTES);
pub const BLOCKS_OFFSET: u64 = CONTROL_BYTES + 2 * LOSS_PAGE_BYTES;
pub const HEADER_BYTES: usize = 64;
const MAGIC: u64 = 0x4741_5453_4D4F_4F4C;
const VERSION: u32 = 2;

/// The page names its owner here, for people.
pub const OWNER_OFFSET: u64 = HEADER_BYTES as u64;
pub const OWNER_BYTES: usize = 960;
const _: () =
    assert!(OWNER_OFFSET + OWNER_BYTES as u64 == word_offset(LogKind::Records, Word::Tail));
/// The bytes before the path.
const OWNER_HEAD_BYTES: usize = 8;

/// A word of each log.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Word {
    Tail = 0,
    Head = 1,
    Flushed = 2,
    Durable = 3,
    Begin = 4,
}

/// A word of the daemon.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum DaemonWord {
    Heartbeat = 0,
    Stalls = 1,
    StallNanos = 2,
    ClockOffset = 3,
    Stopping = 4,
    /// Length of the catalog's durable lines; 0 where it is unknown.
    CatalogBytes = 5,
    /// Number of the valid table of pending losses.
    LossTable = 6,
}

impl DaemonWord {
    pub const ALL: [DaemonWord; 7] = [
        DaemonWord::Heartbeat,
        DaemonWord::Stalls,
        DaemonWord::StallNanos,
        DaemonWord::ClockOffset,
        DaemonWord::Stopping,
        DaemonWord::CatalogBytes,
        DaemonWord::LossTable,
    ];
}

/// Offset of a word in the page; its complement follows.
pub const fn word_offset(log: LogKind, word: Word) -> u64 {
    1024 + 512 * log as u64 + 64 * word as u64
}

/// Offset of a daemon word in the page; its complement follows.
pub const fn daemon_offset(word: DaemonWord) -> u64 {
    2560 + 64 * word as u64
}

/// Number of the first table of pending losses of an epoch.
pub const LOSS_TABLE_FIRST: u64 = 1;

/// Offset in the file of the table of pending losses with that number.
pub const fn loss_table_offset(number: u64) -> u64 {
    CONTROL_BYTES + number % 2 * LOSS_PAGE_BYTES
}

/// A word and its complement as a reader copied them.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    word: u64,
    complement: u64,
}

impl Pair {
    pub fn decode(bytes: [u8; 16]) -> Pair {
        Memory::fence_after_word();
        let all = u128::from_le_bytes(bytes);
        Pair {
            word: all as u64,
            complement: (all >> 64) as u64,
        }
    }

    /// Returns the value, if both halves agree on it.
    pub fn agreed(self) -> Option<u64> {
        (self.word == !self.complement).then_some(self.word)
    }

    /// Returns the lesser of two values that a stopped writer left. Everything below the old and the new value was true of both, so the lesser is a safe tail,
    /// and the greater a safe head.
    pub fn lesser(self) -> u64 {
        self.word.min(!self.complement)
    }

    pub fn greater(self) -> u64 {
        self.word.max(!self.complement)
    }
}

/// The fixed part of the page.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Header {
    pub uuid: [u8; 16],
    pub epoch: u64,
    pub block_bytes: PerLog<u64>,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.uuid);
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        self.block_bytes
            .iter()
            .for_each(|block| bytes.extend_from_slice(&block.to_le_bytes()));
        let mut header = [0; HEADER_BYTES];
        header.copy_from_slice(&bytes);
        header
    }

    /// The error text follows the file's name.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Header, String> {
        let u64_at = |at: usize| {
            let field = proven::at(bytes, at..).first_chunk::<8>();
            u64::from_le_bytes(*field.expect("every field ends in the header"))
        };
        if u64_at(0) != MAGIC {
            return Err("it is not a staging file".to_owned());
        }
        let version = u64_at(8) as u32;
        if version != VERSION {
            return Err(format!(
                "it has format version {version}, this build knows {VERSION}"
            ));
        }
        let mut uuid = [0; 16];
        uuid.copy_from_slice(proven::at(bytes, 16..32));
        Ok(Header {
            uuid,
            epoch: u64_at(32),
            block_bytes: [u64_at(40), u64_at(48), u64_at(56)].into(),
        })
    }
}

/// The path of the directory as its writer called it. A writer that records it holds the file's lock while it lives.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owner {
    /// `None` if the path was too long.
    pub dir: Option<PathBuf>,
}

impl Owner {
    pub fn of(dir: &Path) -> Owner {
        let is_short = dir.as_os_str().len() <= OWNER_BYTES - OWNER_HEAD_BYTES;
        Owner {
            dir: is_short.then(|| dir.to_owned()),
        }
    }

    /// Encodes whole words.
    pub fn encode(&self) -> Vec<u8> {
        let path = self
            .dir
            .as_ref()
            .map(|dir| dir.as_os_str().as_encoded_bytes());
        let path = path.unwrap_or_default();
        let length = (path.len() as u32).to_le_bytes();
        let mut bytes = crc32c(&[&length, path]).to_le_bytes().to_vec();
        bytes.extend_from_slice(&length);
        bytes.extend_from_slice(path);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    /// Returns `None` if the owner is missing or damaged.
    pub fn decode(bytes: &[u8; OWNER_BYTES]) -> Option<Owner> {
        let (checksum, rest) = bytes.split_first_chunk::<4>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let path = rest.get(..u32::from_le_bytes(*length) as usize)?;
        let is_sound = crc32c(&[length, path]) == u32::from_le_bytes(*checksum);
        is_sound.then(|| Owner {
            dir: (!path.is_empty()).then(|| os::path_of(path)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_the_round_trip_and_others_are_refused() {
        let header = Header {
            uuid: [7; 16],
            epoch: 3,
            block_bytes: [1 << 20, 1 << 17, 1 << 16].into(),
        };
        let bytes = header.encode();
        assert_eq!(Header::decode(&bytes), Ok(header));
        for at in 0..12 {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(Header::decode(&damaged).is_err(), "byte {at}");
        }
    }

    #[test]
    fn an_owner_survives_the_round_trip_and_a_page_without_one_has_none() {
        let page = |owner: &Owner| {
            let bytes = owner.encode();
            assert!(bytes.len().is_multiple_of(8));
            let mut page = [0; OWNER_BYTES];
            page[..bytes.len()].copy_from_slice(&bytes);
            page
        };
        for length in [1, 7, 300, OWNER_BYTES - 8, OWNER_BYTES - 7, 4000] {
            let dir = PathBuf::from("x".repeat(length));
            let owner = Owner::of(&dir);
            assert_eq!(owner.dir.is_some(), length <= OWNER_BYTES - 8);
            let page = page(&owner);
            let path = owner.dir.as_ref().map_or(0, |_| length);
            assert_eq!(Owner::decode(&page), Some(owner));
            for at in 0..8 + path {
                let mut damaged = page;
                damaged[at] ^= 1;
                assert_eq!(Owner::decode(&damaged), None, "byte {at}");
            }
        }
        assert_eq!(Owner::decode(&[0; OWNER_BYTES]), None);
    }

    #[test]
    fn words_stand_apart_and_inside_the_page() {
        let mut offsets: Vec<u64> = LogKind::ALL
            .into_iter()
            .flat_map(|log| {
                [
                    Word::Tail,
                    Word::Head,
                    Word::Flushed,
                    Word::Durable,
                    Word::Begin,
                ]
                .map(|word| word_offset(log, word))
            })
            .chain(DaemonWord::ALL.map(daemon_offset))
            .collect();
        offsets.sort_unstable();
        assert!(offsets.windows(2).all(|pair| pair[1] - pair[0] >= 64));
        assert!(
            offsets
                .iter()
                .all(|&at| at >= HEADER_BYTES as u64 && at + 16 <= CONTROL_BYTES)
        );
    }

    #[test]
    fn a_pair_agrees_only_whole() {
        let pair = |word: u64, complement: u64| {
            Pair::decode(((u128::from(complement) << 64) | u128::from(word)).to_le_bytes())
        };
        assert_eq!(pair(5, !5).agreed(), Some(5));
        let between = pair(9, !5);
        assert_eq!(
            (between.agreed(), between.lesser(), between.greater()),
            (None, 5, 9)
        );
    }
}
