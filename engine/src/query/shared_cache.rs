//! A cache in bounded memory for all directories that the process has open. Entries that are used again stay, however many others are used
//! once.

use std::hash::Hash;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::log::Keeper;

/// The cost of an entry besides its bytes, about.
pub(in crate::query) const ENTRY_BYTES: u64 = 104;
/// Each shard has its own lock and its part of the memory, so an entry larger than a part is not kept.
pub(in crate::query) const SHARDS: usize = 4;

pub(crate) struct SharedCache<K, V> {
    cache: Cache<(Keeper, K), V, EntryWeight>,
}

/// A cached value.
pub(crate) trait Kept: Clone {
    fn bytes(&self) -> usize;
}

impl<K: Copy + Eq + Hash, V: Kept> SharedCache<K, V> {
    /// An empty cache with room for `bytes_max`, if most entries take `entry_bytes` with their cost.
    pub fn of_bytes(bytes_max: u64, entry_bytes: u64) -> SharedCache<K, V> {
        let options = OptionsBuilder::new()
            .weight_capacity(bytes_max)
            .estimated_items_capacity((bytes_max / entry_bytes) as usize)
            .shards(SHARDS)
            .build()
            .expect("both capacities are given");
        SharedCache {
            cache: Cache::with_options(
                options,
                EntryWeight,
                DefaultHashBuilder::default(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// Keeps no more than `bytes_max` from now on.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        self.cache.set_capacity(bytes_max);
    }

    /// The memory that all entries take, about.
    pub fn bytes(&self) -> u64 {
        self.cache.weight()
    }

    pub fn get(&self, keeper: Keeper, key: K) -> Option<V> {
        self.cache.get(&(keeper, key))
    }

    pub fn insert(&self, keeper: Keeper, key: K, value: V) {
        self.cache.insert((keeper, key), value);
    }

    /// Drops the entries of a keeper.
    pub fn forget(&self, keeper: Keeper) {
        self.cache.retain(|(of, _), _| *of != keeper);
    }
}

#[derive(Clone)]
struct EntryWeight;

impl<K, V: Kept> Weighter<K, V> for EntryWeight {
    fn weight(&self, _: &K, value: &V) -> u64 {
        value.bytes() as u64 + ENTRY_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    const MOST: u64 = 4096;
    const BYTES: usize = 1000;
    const BYTES_MAX: u64 = MOST * (BYTES as u64 + ENTRY_BYTES);

    fn cache() -> SharedCache<u64, Arc<[u8]>> {
        SharedCache::of_bytes(BYTES_MAX, BYTES as u64 + ENTRY_BYTES)
    }

    fn entry() -> Arc<[u8]> {
        vec![7; BYTES].into()
    }

    #[test]
    fn what_is_used_stays_and_memory_is_bounded() {
        let (cache, own) = (cache(), Keeper::unique());
        cache.insert(own, 0, entry());
        for key in 1..40_000 {
            cache.insert(own, key, entry());
            assert!(cache.get(own, 0).is_some(), "after {key}");
            assert!(cache.bytes() <= BYTES_MAX, "after {key}");
        }
        let kept = (1..40_000).filter(|key| cache.get(own, *key).is_some());
        let kept = kept.count() as u64;
        assert!((MOST / 2..MOST).contains(&kept), "{kept}");
        cache.insert(own, 50_000, vec![0; BYTES_MAX as usize / SHARDS].into());
        assert!(cache.get(own, 50_000).is_none());
    }

    #[test]
    fn what_is_used_from_now_on_is_kept_before_long() {
        let (cache, own) = (cache(), Keeper::unique());
        (0..40_000).for_each(|key| cache.insert(own, key, entry()));
        let mut found = 0;
        for _ in 0..8 {
            found = 0;
            for key in 100_000..101_000 {
                match cache.get(own, key) {
                    Some(_) => found += 1,
                    None => cache.insert(own, key, entry()),
                }
            }
        }
        assert_eq!(found, 1000);
    }

    #[test]
    fn keepers_share_the_room_and_see_their_own() {
        let cache = cache();
        let [one, other] = [0, 1].map(|_| Keeper::unique());
        cache.insert(one, 1, entry());
        assert!(cache.get(other, 1).is_none());
        cache.insert(other, 1, entry());
        cache.insert(other, 2, entry());
        cache.forget(other);
        assert!(cache.get(one, 1).is_some() && cache.get(other, 1).is_none());
        assert_eq!(cache.bytes(), BYTES as u64 + ENTRY_BYTES);
        cache.set_bytes_max(0);
        assert_eq!(cache.bytes(), 0);
        cache.insert(one, 1, entry());
        assert_eq!(cache.bytes(), 0);
        cache.set_bytes_max(BYTES_MAX);
        cache.insert(one, 1, entry());
        assert!(cache.get(one, 1).is_some());
    }
}
