//! Units that were read and, as far as they were decoded, verified, kept in bounded memory from one question to the next.
//!
//! A thread takes a unit out while it reads it, so no two share one; another thread that wants the same meanwhile reads it from the file. Where room is
//! needed, a unit goes that is chosen at random: of the same question asked again and again about more than is kept, what was used longest ago would be
//! what is wanted next, and none would be found. Its head stays: a few KiB say where in the file the rest stands, and are dear to decode.
//!
//! A unit is known by its file too: where another generation takes a segment's place, its units may be others.

use std::collections::HashMap;

use super::storage::FileId;
use crate::format::Unit;
use crate::log::sync::{Mutex, locked};
use crate::proven::at;
use crate::types::Address;

const UNITS_BYTES_MAX: usize = 128 << 20;
const HEADS_BYTES_MAX: usize = 32 << 20;

/// Of one epoch of a directory: after lost staging, addresses may hold other records.
#[derive(Debug)]
pub struct UnitCache {
    kept: Mutex<Kept>,
    units_bytes_max: usize,
    heads_bytes_max: usize,
}

/// The file, and the address of the first chunk.
pub type UnitKey = (FileId, Address);

/// No unit is in both.
#[derive(Debug, Default)]
struct Kept {
    units: Units,
    /// Those of which only the head is kept.
    heads: Units,
}

#[derive(Debug, Default)]
struct Units {
    /// By the addresses of their first chunks, with where each of these is listed.
    by_address: HashMap<Address, (FileId, usize, Unit)>,
    listed: Vec<Address>,
    /// The latest random number.
    random: u64,
    bytes: usize,
}

impl Default for UnitCache {
    fn default() -> UnitCache {
        UnitCache {
            kept: Mutex::default(),
            units_bytes_max: UNITS_BYTES_MAX,
            heads_bytes_max: HEADS_BYTES_MAX,
        }
    }
}

impl UnitCache {
    pub fn take(&self, key: UnitKey) -> Option<Unit> {
        let mut kept = locked(&self.kept);
        let unit = kept.units.take(key);
        unit.or_else(|| kept.heads.take(key))
    }

    /// Keeps a unit of which only the head was read, unless it is kept already.
    pub fn put_head(&self, key: UnitKey, head: Unit) {
        let mut kept = locked(&self.kept);
        if kept.units.get(key).or(kept.heads.get(key)).is_none() {
            // One of another file may stand there.
            kept.units.remove(key.1);
            kept.heads.put(key, head, self.heads_bytes_max);
        }
    }

    /// What `look` finds in a unit of which the head is kept at least.
    pub fn look<T>(&self, key: UnitKey, look: impl FnOnce(&Unit) -> T) -> Option<T> {
        let kept = locked(&self.kept);
        kept.units.get(key).or(kept.heads.get(key)).map(look)
    }

    /// Whether more than the head is kept of the unit whose first chunk stands at an address, of whichever file.
    pub fn keeps(&self, first: Address) -> bool {
        locked(&self.kept).units.by_address.contains_key(&first)
    }

    /// Keeps a unit, unless a part of it did not verify. Returns the largest buffer of those that had to go.
    pub fn put(&self, key: UnitKey, mut unit: Unit) -> Option<Vec<u8>> {
        if unit.is_damaged() {
            return Some(unit.shed());
        }
        let mut gone = Vec::new();
        {
            let mut kept = locked(&self.kept);
            let Kept { units, heads } = &mut *kept;
            // Another thread may have read the same.
            heads.remove(key.1);
            gone.extend(units.remove(key.1).map(|(_, mut unit)| unit.shed()));
            for (key, mut unit) in units.put(key, unit, self.units_bytes_max) {
                gone.push(unit.shed());
                heads.put(key, unit, self.heads_bytes_max);
            }
        }
        gone.into_iter().max_by_key(Vec::capacity)
    }

    /// Forgets all of them: a newer generation of a segment may have come.
    pub fn clear(&self) {
        *locked(&self.kept) = Kept::default();
    }
}

impl Units {
    fn get(&self, (file, first): UnitKey) -> Option<&Unit> {
        let (of, _, unit) = self.by_address.get(&first)?;
        (*of == file).then_some(unit)
    }

    fn take(&mut self, key: UnitKey) -> Option<Unit> {
        self.get(key)?;
        self.remove(key.1).map(|(_, unit)| unit)
    }

    /// Puts one in place of what stands at its address; returns those that had to go to make room.
    fn put(
        &mut self,
        (file, first): UnitKey,
        unit: Unit,
        bytes_max: usize,
    ) -> Vec<(UnitKey, Unit)> {
        self.remove(first);
        self.bytes += unit.memory_bytes();
        self.by_address
            .insert(first, (file, self.listed.len(), unit));
        self.listed.push(first);
        let mut gone = Vec::new();
        while self.bytes > bytes_max {
            let any = self.any();
            gone.extend(self.remove(any));
        }
        gone
    }

    fn remove(&mut self, first: Address) -> Option<(UnitKey, Unit)> {
        let (file, place, unit) = self.by_address.remove(&first)?;
        self.listed.swap_remove(place);
        if let Some(moved) = self.listed.get(place) {
            let moved = self.by_address.get_mut(moved);
            moved.expect("what is listed is kept").1 = place;
        }
        self.bytes -= unit.memory_bytes();
        Some(((file, first), unit))
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
    use crate::format::{CHUNK_BYTES_MIN, ChunkBuilder, Template, UnitEncoder, UnitPart};
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

    fn of_bytes(units_bytes_max: usize) -> UnitCache {
        UnitCache {
            units_bytes_max,
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
            let found = cache.take(key(nth));
            assert!(!cache.keeps(key(nth).1));
            let found = found.filter(|unit| unit.has(&UnitPart::All));
            hits += u64::from(found.is_some());
            let found = found.unwrap_or_else(|| unit(key(nth).1));
            gone += u64::from(cache.put(key(nth), found).is_some());
            assert!(cache.look(key(nth), |_| ()).is_some());
            let kept = locked(&cache.kept);
            let units = &kept.units;
            assert!(units.bytes <= 8 * one && units.bytes == units.listed.len() * one);
            assert_eq!(units.listed.len(), units.by_address.len());
        }
        // Each unit that was not found makes another go, once there is no more room.
        assert_eq!(gone, ROUNDS * UNITS - hits - 8);
        assert!(hits > ROUNDS * UNITS / 4, "{hits}");
    }

    #[test]
    fn of_what_had_to_go_the_head_stays_while_there_is_room() {
        const UNITS: u64 = 12;
        let key = |nth: u64| (FILE, Address(nth << 20));
        let mut bare = unit(key(0).1);
        bare.shed();
        let cache = UnitCache {
            units_bytes_max: 0,
            heads_bytes_max: 8 * bare.memory_bytes(),
            ..UnitCache::default()
        };
        for nth in 0..UNITS {
            assert!(cache.put(key(nth), unit(key(nth).1)).is_some());
            assert!(!cache.keeps(key(nth).1));
        }
        let found = (0..UNITS).filter_map(|nth| cache.take(key(nth)));
        let found: Vec<Unit> = found.collect();
        assert_eq!(found.len(), 8);
        assert!(
            found
                .iter()
                .all(|unit| !unit.has(&UnitPart::All) && unit.has(&UnitPart::Head))
        );
        assert_eq!(locked(&cache.kept).heads.bytes, 0);

        cache.put_head(key(0), bare);
        cache.put(key(0), unit(key(0).1));
        cache.put(key(0), unit(key(0).1));
        let head = cache.take(key(0)).unwrap();
        assert!(cache.take(key(0)).is_none(), "it was kept twice");
        cache.put_head(key(0), head);
        assert!(cache.look(key(0), |_| ()).is_some());
    }

    #[test]
    fn a_unit_of_another_file_is_another() {
        let cache = of_bytes(1 << 20);
        let other = FileId { inode: 3, ..FILE };
        cache.put((FILE, Address(0)), unit(Address(0)));
        assert!(cache.take((other, Address(0))).is_none());
        let head = || {
            let mut head = unit(Address(0));
            head.shed();
            head
        };
        cache.put_head((other, Address(0)), head());
        assert!(!cache.keeps(Address(0)), "it was kept twice");
        cache.put_head((FILE, Address(0)), head());
        assert!(cache.take((other, Address(0))).is_none());
        assert!(cache.take((FILE, Address(0))).is_some());
        {
            let kept = locked(&cache.kept);
            for units in [&kept.units, &kept.heads] {
                assert_eq!((units.bytes, units.listed.len()), (0, 0));
            }
        }
        cache.put((FILE, Address(0)), unit(Address(0)));
        cache.clear();
        assert!(cache.take((FILE, Address(0))).is_none());
    }

    #[test]
    fn a_damaged_unit_is_not_kept() {
        let key = (FILE, Address(0));
        let cache = of_bytes(1 << 20);
        let mut bytes = unit(key.1).shed();
        let last = bytes.len() - 20;
        *at_mut(&mut bytes, last) ^= 1;
        let mut damaged = Unit::of(&UUID, key.1, CHUNK_BYTES_MIN, bytes).unwrap();
        let mut out = vec![0; CHUNK_BYTES_MIN as usize];
        damaged.chunk(0, &mut out).unwrap_err();
        assert!(cache.put(key, damaged).is_some());
        assert!(cache.take(key).is_none());
    }
}
