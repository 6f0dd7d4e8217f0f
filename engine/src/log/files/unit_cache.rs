//! Units that were read and, as far as they were decoded, verified, kept in bounded memory from one question to the next.
//!
//! A thread takes a unit out while it reads it, so no two share one; another thread that wants the same meanwhile reads it from the file. Where room is
//! needed, a unit goes that is chosen at random: of the same question asked again and again about more than is kept, what was used longest ago would be
//! what is wanted next, and none would be found.
//!
//! A unit is known by its file too: where another generation takes a segment's place, its units may be others.

use std::collections::HashMap;

use super::storage::FileId;
use crate::format::Unit;
use crate::log::sync::{Mutex, locked};
use crate::proven::at;
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
    /// By the addresses of their first chunks, with where each of these is listed.
    units: HashMap<Address, (FileId, usize, Unit)>,
    listed: Vec<Address>,
    /// The latest random number.
    random: u64,
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

    /// Keeps a unit of which only the head was read, unless it is kept already.
    pub fn put_head(&self, key: UnitKey, unit: Unit) {
        if self.look(key, |_| ()).is_none() {
            self.put(key, unit);
        }
    }

    /// What `look` finds in a unit that is kept.
    pub fn look<T>(&self, (file, first): UnitKey, look: impl FnOnce(&Unit) -> T) -> Option<T> {
        let kept = locked(&self.kept);
        let (of, _, unit) = kept.units.get(&first)?;
        (*of == file).then(|| look(unit))
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
        let place = kept.listed.len();
        kept.units.insert(first, (file, place, unit));
        kept.listed.push(first);
        while kept.bytes > self.bytes_max {
            let any = kept.any();
            gone = kept.remove(any);
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
        let (_, place, unit) = self.units.remove(&first)?;
        self.listed.swap_remove(place);
        if let Some(moved) = self.listed.get(place) {
            let moved = self.units.get_mut(moved);
            moved.expect("what is listed is kept").1 = place;
        }
        self.bytes -= unit.memory_bytes();
        Some(unit)
    }

    /// One of the units, of which there are some.
    fn any(&mut self) -> Address {
        // Knuth's linear congruential generator, whose high bits are the random ones.
        let next = self.random.wrapping_mul(0x5851_F42D_4C95_7F2D);
        self.random = next.wrapping_add(0x1405_7B7E_F767_814F);
        let place = (self.random >> 33) % self.listed.len() as u64;
        *at(&self.listed, place as usize)
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
    fn a_question_about_more_than_is_kept_finds_some_of_it_again() {
        const UNITS: u64 = 12;
        const ROUNDS: u64 = 50;
        let key = |nth: u64| (FILE, Address(nth << 20));
        let one = unit(key(0).1).memory_bytes();
        let cache = of_bytes(8 * one);
        let (mut hits, mut gone) = (0, 0);
        for nth in (0..ROUNDS).flat_map(|_| 0..UNITS) {
            assert_eq!(cache.keeps(key(nth).1), {
                let kept = locked(&cache.kept);
                kept.listed.contains(&key(nth).1)
            });
            let found = cache.take(key(nth));
            hits += u64::from(found.is_some());
            assert!(!cache.keeps(key(nth).1));
            let found = found.unwrap_or_else(|| unit(key(nth).1));
            gone += u64::from(cache.put(key(nth), found).is_some());
            let kept = locked(&cache.kept);
            assert!(kept.bytes <= 8 * one && kept.bytes == kept.listed.len() * one);
            assert_eq!(kept.listed.len(), kept.units.len());
        }
        // Each unit that was not found makes another go, once there is no more room.
        assert_eq!(gone, ROUNDS * UNITS - hits - 8);
        assert!(hits > ROUNDS * UNITS / 4, "{hits}");
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
