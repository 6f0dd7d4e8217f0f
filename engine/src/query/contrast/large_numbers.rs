//! The integers that are not small, in each group.

use super::frequent::{Frequent, FrequentLimits};

/// Values by group.
pub struct LargeNumbers {
    pub selected: Frequent<u64>,
    pub others: Frequent<u64>,
}

impl LargeNumbers {
    pub fn new(limits: FrequentLimits) -> LargeNumbers {
        LargeNumbers {
            selected: Frequent::new(limits),
            others: Frequent::new(limits),
        }
    }

    pub fn add(&mut self, key: u64, is_selected: bool) {
        let group = match is_selected {
            true => &mut self.selected,
            false => &mut self.others,
        };
        let hash = group.hash(&key);
        if !group.again(hash, |held| *held == key, 1) {
            group.first(hash, || key, 1);
        }
    }

    pub fn is_exact(&self) -> bool {
        self.selected.is_exact() && self.others.is_exact()
    }
}
