//! The rows of a batch, with the group of each.

use super::group_counts::GroupCounts;
use crate::query::scan::batch::Batch;
use crate::query::scan::records::keep;

pub struct GroupedRows<'a> {
    pub batch: &'a Batch<'a>,
    pub is_selected: &'a [bool],
    pub counts: GroupCounts,
}

impl GroupedRows<'_> {
    /// Returns the groups of the rows that are not NULL, in `room`, and adds those that are to `nulls`. It does not branch on NULLs, because a processor cannot predict them.
    pub fn without<'b>(
        &self,
        is_null: impl Fn(usize) -> bool,
        room: &'b mut Vec<bool>,
        nulls: &mut GroupCounts,
    ) -> &'b [bool] {
        for (row, is_selected) in self.is_selected.iter().enumerate() {
            nulls.add_times(*is_selected, u64::from(is_null(row)));
        }
        room.clear();
        room.extend_from_slice(self.is_selected);
        keep(room, |row, _| !is_null(row));
        room
    }
}
