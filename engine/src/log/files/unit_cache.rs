//! Units that were read and, as far as they were decoded, verified, kept in bounded memory from one question to the next.
//!
//! A thread takes a unit out while it reads it, so no two share one; another thread that wants the same meanwhile reads it from the file. What was used
//! longest ago goes first.
//!
//! A unit is known by its file too: where another generation takes a segment's place, its units may be others.

use std::collections::{BTreeMap, HashMap};

use super::storage::FileId;
use crate::format::Unit;
use crate::log::sync::{Mutex, locked};
use crate::types::Address;

const BYTES_MAX: usize = 128 << 20;

/// Of one epoch of a directory: after lost staging, addresses may hold other records.
#[derive(Debug)]
pub struct UnitCache {
    kept: Mutex<Kept>,
    bytes_max: usize,
}

/// The file, and the address of the first chunk.
pub type UnitKey = (FileId, Address);

#[derive(Debug, Default)]
struct Kept {
    /// By the addresses of their first chunks, with when each was put here.
    units: HashMap<Address, (FileId, u64, Unit)>,
    /// By when they were put here.
    by_use: BTreeMap<u64, Address>,
    uses: u64,
    bytes: usize,
}

impl Default for UnitCache {
    fn default() -> UnitCache {
        UnitCache {
            kept: Mutex::default(),
            bytes_max: BYTES_MAX,
        }
    }
}

impl UnitCache {
    pub fn take(&self, key: UnitKey) -> Option<Unit> {
        locked(&self.kept).take(key)
    }

    /// Whether the unit whose first chunk stands at an address is kept, of whichever file.
    pub fn keeps(&self, first: Address) -> bool {
        locked(&self.kept).units.contains_key(&first)
    }

    /// Keeps a unit, unless a part of it did not verify. Returns the buffer of one that had to go.
    pub fn put(&self, key: UnitKey, mut unit: Unit) -> Option<Vec<u8>> {
        unit.forget_rows();
        if unit.is_damaged() || unit.memory_bytes() > self.bytes_max {
            return Some(unit.into_bytes());
        }
        let mut kept = locked(&self.kept);
        let (file, first) = key;
        let mut gone = kept.remove(first);
        kept.bytes += unit.memory_bytes();
        kept.uses += 1;
        let uses = kept.uses;
        kept.units.insert(first, (file, uses, unit));
        kept.by_use.insert(uses, first);
        while kept.bytes > self.bytes_max {
            let (_, oldest) = kept.by_use.first_key_value().expect("it holds units");
            let oldest = *oldest;
            gone = kept.remove(oldest);
        }
        gone.map(Unit::into_bytes)
    }

    /// Forgets all of them: a newer generation of a segment may have come.
    pub fn clear(&self) {
        *locked(&self.kept) = Kept::default();
    }
}

impl Kept {
    fn take(&mut self, (file, first): UnitKey) -> Option<Unit> {
        let (of, ..) = self.units.get(&first)?;
        if *of == file {
            self.remove(first)
        } else {
            None
        }
    }

    fn remove(&mut self, first: Address) -> Option<Unit> {
        let (_, used, unit) = self.units.remove(&first)?;
        self.by_use.remove(&used);
        self.bytes -= unit.memory_bytes();
        Some(unit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{CHUNK_BYTES_MIN, ChunkBuilder, Template, UnitEncoder};
    use crate::proven::at_mut;
    use crate::types::{SourceId, Timestamp};

    const UUID: [u8; 16] = [3; 16];
    const FILE: FileId = FileId {
        device: 1,
        inode: 2,
    };

    /// The unit of a chunk of some equal records, which is columns.
    fn unit(first: Address) -> Unit {
        let mut chunk = ChunkBuilder::new(CHUNK_BYTES_MIN);
        for nth in 0..50 {
            chunk.push(SourceId(1), Timestamp(nth), b"the same again and again");
        }
        let mut bytes = Vec::new();
        let template = |source, _| Template {
            source,
            pieces: Vec::new(),
            has_rest: true,
        };
        let mut encoder = UnitEncoder::new(UUID, CHUNK_BYTES_MIN);
        encoder.encode(first, chunk.seal(&UUID, first).0, template, &mut bytes);
        let unit = Unit::of(&UUID, first, CHUNK_BYTES_MIN, bytes).unwrap();
        assert!(!unit.is_rows());
        unit
    }

    fn of_bytes(bytes_max: usize) -> UnitCache {
        UnitCache {
            bytes_max,
            ..UnitCache::default()
        }
    }

    #[test]
    fn what_was_used_longest_ago_goes_first_and_its_buffer_is_returned() {
        let key = |nth: u64| (FILE, Address(nth << 20));
        let one = unit(key(0).1).memory_bytes();
        let cache = of_bytes(3 * one);
        for nth in 0..3 {
            assert_eq!(cache.put(key(nth), unit(key(nth).1)), None);
        }
        let used = cache.take(key(0)).unwrap();
        assert!(cache.take(key(0)).is_none());
        assert_eq!(cache.put(key(0), used), None);
        assert!(cache.put(key(3), unit(key(3).1)).is_some());
        let kept = [0, 1, 2, 3].map(|nth| cache.take(key(nth)).is_some());
        assert_eq!(kept, [true, false, true, true]);
        assert_eq!(locked(&cache.kept).bytes, 0);
    }

    #[test]
    fn a_unit_of_another_file_is_another() {
        let cache = of_bytes(1 << 20);
        let other = FileId { inode: 3, ..FILE };
        cache.put((FILE, Address(0)), unit(Address(0)));
        assert!(cache.take((other, Address(0))).is_none());
        cache.clear();
        assert!(cache.take((FILE, Address(0))).is_none());
    }

    #[test]
    fn a_unit_that_is_too_large_or_damaged_is_not_kept() {
        let key = (FILE, Address(0));
        let cache = of_bytes(100);
        assert!(cache.put(key, unit(key.1)).is_some());
        assert!(cache.take(key).is_none());

        let cache = of_bytes(1 << 20);
        let mut bytes = unit(key.1).into_bytes();
        let last = bytes.len() - 20;
        *at_mut(&mut bytes, last) ^= 1;
        let mut damaged = Unit::of(&UUID, key.1, CHUNK_BYTES_MIN, bytes).unwrap();
        let mut out = vec![0; CHUNK_BYTES_MIN as usize];
        damaged.chunk(0, &mut out).unwrap_err();
        assert!(cache.put(key, damaged).is_some());
        assert!(cache.take(key).is_none());
    }
}
