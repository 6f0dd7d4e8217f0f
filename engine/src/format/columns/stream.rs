//! The rows of one source and one layout in a unit, and the row groups that hold them.

use std::iter;
use std::sync::Arc;

use super::groups::Group;
use super::template::Template;
use super::zone::Zone;

/// A row group holds the rows of as few whole chunks as reach this number.
const GROUP_ROWS_LEAST: usize = 1024;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    pub template: Template,
    /// Rows in each chunk.
    pub counts: Vec<usize>,
    pub groups: Vec<Group>,
    /// The zone of each field over all its rows, or over all rows of its family.
    pub zones: Arc<[Zone]>,
    /// The slot that decodes its rows or those of its family, one row group after the other, while no other is needed.
    pub slot: usize,
    /// The number of its first row group in its family.
    pub first_group: usize,
    /// The number of rows of its group before its own.
    pub base: usize,
}

impl Stream {
    /// The slot for its rows when those of all streams are needed: for it alone, or for the members that share its row group.
    pub fn own_slot(&self) -> usize {
        self.slot + self.first_group
    }

    /// Returns the row group that holds the rows of chunk `nth`, or the number of groups if no chunk from it on has any.
    pub fn group_at(&self, nth: usize) -> usize {
        self.groups.partition_point(|group| group.end_chunk <= nth)
    }

    /// Returns the end of the chunks that share the row group of chunk `nth`; `None` if no chunk from it on has any rows.
    pub fn group_end(&self, nth: usize) -> Option<usize> {
        let group = self.groups.get(self.group_at(nth))?;
        Some(group.end_chunk)
    }

    /// Splits its rows into groups: the first and the end of their chunks, and their rows.
    pub fn split(counts: &[usize]) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut next = 0;
        iter::from_fn(move || {
            let (first, mut rows) = (next, 0);
            while rows < GROUP_ROWS_LEAST
                && let Some(count) = counts.get(next)
            {
                rows += count;
                next += 1;
            }
            (rows > 0).then_some((first, next, rows))
        })
    }
}
