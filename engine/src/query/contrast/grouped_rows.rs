//! The rows of a batch, with the group of each.

use super::group_counts::GroupCounts;
use crate::query::scan::batch::Batch;

pub struct GroupedRows<'a> {
    pub batch: &'a Batch<'a>,
    pub is_selected: &'a [bool],
    pub counts: GroupCounts,
}
