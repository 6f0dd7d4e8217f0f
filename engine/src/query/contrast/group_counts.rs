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

    /// Counts one record, without a branch on its group.
    #[inline]
    pub fn add(&mut self, is_selected: bool) {
        self.selected += u64::from(is_selected);
        self.others += u64::from(!is_selected);
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
