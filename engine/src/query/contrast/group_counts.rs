//! Counts of records in the two groups that are compared.

use std::ops::AddAssign;

/// How many records of each group.
#[derive(Copy, Clone, PartialEq, Eq, Default, Debug)]
pub struct GroupCounts {
    pub selected: u64,
    pub others: u64,
}

impl GroupCounts {
    /// One record.
    pub fn of(is_selected: bool) -> GroupCounts {
        let mut counts = GroupCounts::default();
        counts.add(is_selected);
        counts
    }

    /// Counts one record.
    #[inline]
    pub fn add(&mut self, is_selected: bool) {
        self.add_times(is_selected, 1);
    }

    /// Counts some records of a group, without a branch on it.
    #[inline]
    pub fn add_times(&mut self, is_selected: bool, times: u64) {
        let of_group = match is_selected {
            true => &mut self.selected,
            false => &mut self.others,
        };
        *of_group += times;
    }

    pub fn total(self) -> u64 {
        self.selected + self.others
    }
}

impl AddAssign for GroupCounts {
    fn add_assign(&mut self, other: GroupCounts) {
        self.selected += other.selected;
        self.others += other.others;
    }
}
