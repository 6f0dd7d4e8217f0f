//! Units that were read and verified, as far as they were decoded, and that stay in bounded memory from one question to the next. All open directories of the
//! process share the memory.
//!
//! A thread takes a unit out while it reads it, so no two share one; another thread that wants it in the meantime reads it from the file. If room is needed, a
//! random unit goes: with the same question repeated over more units than fit, the least recently used unit would be the next wanted one, and no unit would
//! ever be found. Its head stays, because a few KiB locate the rest in the file and are expensive to decode. A cache that counts uses, such as `quick_cache`,
//! does not fit: it considers a unit new when it returns, so it evicts the latest ones and keeps the units of an earlier question for ever.
//!
//! The key of a unit includes its file: another generation of a segment may have other units.

use std::collections::HashMap;
use std::sync::Arc;

use super::storage::FileId;
use crate::format::Unit;
use crate::log::sync::{AtomicU64, Mutex, Ordering, locked};
use crate::proven::at;
use crate::types::Address;

/// Heads may take this fraction of the memory.
const HEADS_PART: usize = 5;

/// One epoch of an open directory. Each epoch keeps its own units, because after lost staging addresses may hold other records.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct Keeper(u64);

impl Keeper {
    /// Returns a new number.
    pub fn unique() -> Keeper {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Relaxed: the number guards no memory.
        Keeper(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The units of all keepers.
#[derive(Debug)]
pub struct SharedUnits {
    kept: Mutex<Kept>,
}

/// The units of one keeper, which are released with it.
#[derive(Debug)]
pub struct UnitCache {
    keeper: Keeper,
    shared: Arc<SharedUnits>,
}

/// The file, and the address of the first chunk.
pub type UnitKey = (FileId, Address);

/// The kept units. No unit is in both.
#[derive(Debug)]
struct Kept {
    units: Units,
    /// Units with only their heads.
    heads: Units,
}

#[derive(Debug, Default)]
struct Units {
    /// Indexed by the addresses of their first chunks; each entry has its place in the list.
    by_place: HashMap<Place, (FileId, usize, Unit)>,
    listed: Vec<Place>,
    /// The latest random number.
    random: u64,
    bytes: usize,
    bytes_max: usize,
}

/// The keeper of a unit, and the address of its first chunk.
type Place = (Keeper, Address);

impl SharedUnits {
    /// Creates an empty cache with room for `bytes_max` bytes.
    pub fn of_bytes(bytes_max: usize) -> SharedUnits {
        let heads_max = bytes_max / HEADS_PART;
        SharedUnits {
            kept: Mutex::new(Kept {
                units: Units::of_bytes(bytes_max - heads_max),
                heads: Units::of_bytes(heads_max),
            }),
        }
    }

    /// Keeps at most `bytes_max` bytes from now on.
    pub fn set_bytes_max(&self, bytes_max: usize) {
        let Kept { units, heads } = &mut *locked(&self.kept);
        heads.bytes_max = bytes_max / HEADS_PART;
        units.bytes_max = bytes_max - heads.bytes_max;
        let gone = units.make_room();
        keep_heads(gone, heads);
        heads.make_room();
    }

    /// Approximate memory in bytes.
    pub fn bytes(&self) -> usize {
        let kept = locked(&self.kept);
        kept.units.bytes + kept.heads.bytes
    }
}

impl UnitCache {
    pub fn of(keeper: Keeper, shared: Arc<SharedUnits>) -> UnitCache {
        UnitCache { keeper, shared }
    }

    pub fn take(&self, key: UnitKey) -> Option<Unit> {
        let mut kept = locked(&self.shared.kept);
        let unit = kept.units.take(self.keeper, key);
        unit.or_else(|| kept.heads.take(self.keeper, key))
    }

    /// Keeps a unit with only its head, unless it is kept already.
    pub fn put_head(&self, key: UnitKey, head: Unit) {
        let mut kept = locked(&self.shared.kept);
        if kept.find(self.keeper, key).is_none() {
            // A head of another file may have this place.
            let place = (self.keeper, key.1);
            kept.units.remove(place);
            kept.heads.put(place, key.0, head);
        }
    }

    /// Calls `look` with a unit whose head, at least, is kept.
    pub fn look<T>(&self, key: UnitKey, look: impl FnOnce(&Unit) -> T) -> Option<T> {
        locked(&self.shared.kept).find(self.keeper, key).map(look)
    }

    /// Reports whether more than the head is kept of the unit whose first chunk has this address, in any file.
    pub fn keeps(&self, first: Address) -> bool {
        let kept = locked(&self.shared.kept);
        kept.units.by_place.contains_key(&(self.keeper, first))
    }

    /// Keeps a unit, unless a part of it did not verify. Returns the largest buffer of the removed units.
    pub fn put(&self, key: UnitKey, mut unit: Unit) -> Option<Vec<u8>> {
        if unit.is_damaged() {
            return Some(unit.shed());
        }
        let place = (self.keeper, key.1);
        let (gone, replaced) = {
            let Kept { units, heads } = &mut *locked(&self.shared.kept);
            // Another thread may have read the same unit.
            heads.remove(place);
            let replaced = units.remove(place).map(|(.., mut unit)| unit.shed());
            (keep_heads(units.put(place, key.0, unit), heads), replaced)
        };
        gone.into_iter().chain(replaced).max_by_key(Vec::capacity)
    }

    /// Drops all units, because a newer generation of a segment may exist.
    pub fn clear(&self) {
        let Kept { units, heads } = &mut *locked(&self.shared.kept);
        units.forget(self.keeper);
        heads.forget(self.keeper);
    }
}

impl Drop for UnitCache {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Keeps the heads of removed units. Returns the buffers of the rest.
fn keep_heads(gone: Vec<(Place, FileId, Unit)>, heads: &mut Units) -> Vec<Vec<u8>> {
    let shed = gone.into_iter().map(|(place, file, mut unit)| {
        let bytes = unit.shed();
        heads.put(place, file, unit);
        bytes
    });
    shed.collect()
}

impl Kept {
    fn find(&self, keeper: Keeper, key: UnitKey) -> Option<&Unit> {
        let unit = self.units.get(keeper, key);
        unit.or_else(|| self.heads.get(keeper, key))
    }
}

impl Units {
    fn of_bytes(bytes_max: usize) -> Units {
        Units {
            bytes_max,
            ..Units::default()
        }
    }

    fn get(&self, keeper: Keeper, (file, first): UnitKey) -> Option<&Unit> {
        let (of, _, unit) = self.by_place.get(&(keeper, first))?;
        (*of == file).then_some(unit)
    }

    fn take(&mut self, keeper: Keeper, key: UnitKey) -> Option<Unit> {
        self.get(keeper, key)?;
        self.remove((keeper, key.1)).map(|(.., unit)| unit)
    }

    /// Replaces the unit at a place and returns the units that were removed to make room.
    fn put(&mut self, place: Place, file: FileId, unit: Unit) -> Vec<(Place, FileId, Unit)> {
        self.remove(place);
        self.bytes += unit.memory_bytes();
        (self.by_place).insert(place, (file, self.listed.len(), unit));
        self.listed.push(place);
        self.make_room()
    }

    /// Removes units until the others fit, and returns them.
    fn make_room(&mut self) -> Vec<(Place, FileId, Unit)> {
        let mut gone = Vec::new();
        while self.bytes > self.bytes_max {
            let any = self.any();
            gone.extend(self.remove(any));
        }
        gone
    }

    fn remove(&mut self, place: Place) -> Option<(Place, FileId, Unit)> {
        let (file, listed, unit) = self.by_place.remove(&place)?;
        self.listed.swap_remove(listed);
        if let Some(moved) = self.listed.get(listed) {
            let moved = self.by_place.get_mut(moved);
            moved.expect("what is listed is kept").1 = listed;
        }
        self.bytes -= unit.memory_bytes();
        Some((place, file, unit))
    }

    /// Removes all units of a keeper.
    fn forget(&mut self, keeper: Keeper) {
        let own = self.listed.iter().filter(|(of, _)| *of == keeper);
        for place in own.copied().collect::<Vec<Place>>() {
            self.remove(place);
        }
        if self.listed.is_empty() {
            // This also releases the tables that grew with the units.
            *self = Units::of_bytes(self.bytes_max);
        }
    }

    /// Chooses a random unit; there must be one.
    fn any(&mut self) -> Place {
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

    /// Returns a unit in columns with a chunk of equal records.
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
            fields: [].into(),
        };
        let mut encoder = UnitEncoder::new(UUID, CHUNK_BYTES_MIN);
        encoder.encode(first, chunk.seal(&UUID, first).0, template, &mut bytes);
        let unit = Unit::of(&UUID, first, CHUNK_BYTES_MIN, bytes).unwrap();
        assert!(!unit.is_raw());
        unit
    }

    /// Creates a separate cache with this room for units and for heads.
    fn of_bytes(units_bytes_max: usize, heads_bytes_max: usize) -> UnitCache {
        let shared = SharedUnits::of_bytes(0);
        {
            let mut kept = locked(&shared.kept);
            kept.units.bytes_max = units_bytes_max;
            kept.heads.bytes_max = heads_bytes_max;
        }
        UnitCache::of(Keeper::unique(), Arc::new(shared))
    }

    #[test]
    fn a_question_about_more_than_is_kept_finds_some_of_it_again() {
        const UNITS: u64 = 12;
        const ROUNDS: u64 = 50;
        let key = |nth: u64| (FILE, Address(nth << 20));
        let one = unit(key(0).1).memory_bytes();
        let cache = of_bytes(8 * one, 1 << 20);
        let (mut hits, mut gone) = (0, 0);
        for nth in (0..ROUNDS).flat_map(|_| 0..UNITS) {
            let found = cache.take(key(nth));
            assert!(!cache.keeps(key(nth).1));
            let found = found.filter(|unit| unit.has(&UnitPart::All));
            hits += u64::from(found.is_some());
            let found = found.unwrap_or_else(|| unit(key(nth).1));
            gone += u64::from(cache.put(key(nth), found).is_some());
            assert!(cache.look(key(nth), |_| ()).is_some());
            let kept = locked(&cache.shared.kept);
            let units = &kept.units;
            assert!(units.bytes <= 8 * one && units.bytes == units.listed.len() * one);
            assert_eq!(units.listed.len(), units.by_place.len());
        }
        // Once the room is full, each unit that was not found removes another.
        assert_eq!(gone, ROUNDS * UNITS - hits - 8);
        assert!(hits > ROUNDS * UNITS / 4, "{hits}");
    }

    #[test]
    fn the_head_of_a_removed_unit_stays_while_there_is_room() {
        const UNITS: u64 = 12;
        let key = |nth: u64| (FILE, Address(nth << 20));
        let mut bare = unit(key(0).1);
        bare.shed();
        let cache = of_bytes(0, 8 * bare.memory_bytes());
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
        assert_eq!(locked(&cache.shared.kept).heads.bytes, 0);

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
        let cache = of_bytes(1 << 20, 1 << 20);
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
            let kept = locked(&cache.shared.kept);
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
        let cache = of_bytes(1 << 20, 1 << 20);
        let mut bytes = unit(key.1).shed();
        let last = bytes.len() - 20;
        *at_mut(&mut bytes, last) ^= 1;
        let mut damaged = Unit::of(&UUID, key.1, CHUNK_BYTES_MIN, bytes).unwrap();
        let mut out = vec![0; CHUNK_BYTES_MIN as usize];
        damaged.chunk(0, &mut out).unwrap_err();
        assert!(cache.put(key, damaged).is_some());
        assert!(cache.take(key).is_none());
    }

    #[test]
    fn keepers_share_the_room_and_see_their_own() {
        const UNITS: u64 = 6;
        let place = |nth: u64| (FILE, Address(nth << 20));
        let one = unit(place(0).1).memory_bytes();
        let shared = Arc::new(SharedUnits::of_bytes(10 * one));
        let caches = [0, 1].map(|_| UnitCache::of(Keeper::unique(), Arc::clone(&shared)));
        for nth in 0..UNITS {
            for cache in &caches {
                cache.put(place(nth), unit(place(nth).1));
                assert!(shared.bytes() <= 10 * one);
            }
        }
        let [first, second] = caches;
        let kept = |cache: &UnitCache| (0..UNITS).filter(|nth| cache.keeps(place(*nth).1)).count();
        // A fifth is for heads.
        assert_eq!(kept(&first) + kept(&second), 8);
        let of_second = kept(&second);
        first.clear();
        assert_eq!((kept(&first), kept(&second)), (0, of_second));
        first.put(place(9), unit(place(9).1));
        drop(first);
        assert_eq!(kept(&second), of_second);
        shared.set_bytes_max(3 * one);
        assert!(shared.bytes() <= 3 * one && kept(&second) <= 2);
        shared.set_bytes_max(0);
        assert_eq!(shared.bytes(), 0);
        assert!(second.put(place(1), unit(place(1).1)).is_some());
        assert_eq!(shared.bytes(), 0);
    }
}
