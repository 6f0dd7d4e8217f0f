//! The rows that a unit has of one source and one layout, and which row groups hold them.

use std::iter;

use super::groups::Group;
use super::template::Template;

/// A row group holds the rows of as few whole chunks as have so many.
const GROUP_ROWS_LEAST: usize = 1024;

/// The records of one source and one layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stream {
    pub template: Template,
    /// Rows in each chunk.
    pub counts: Vec<usize>,
    pub groups: Vec<Group>,
    /// Where its rows are decoded, or those of its family: one row group after the other, while no other is needed.
    pub slot: usize,
    /// Which row group of its family its first is.
    pub first_group: usize,
    /// How many rows of its group stand before its own.
    pub base: usize,
}

impl Stream {
    /// Where its rows are decoded beside those of all streams: it alone, or with those that share its row group.
    pub fn own_slot(&self) -> usize {
        self.slot + self.first_group
    }

    /// Which row group holds the rows of chunk `nth`; as many as there are: no chunk from it on has any.
    pub fn group_at(&self, nth: usize) -> usize {
        self.groups.partition_point(|group| group.end_chunk <= nth)
    }

    /// The end of the chunks that share the row group of chunk `nth`; `None`: no chunk from it on has any rows.
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
