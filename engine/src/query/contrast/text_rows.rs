//! The texts of a field in the rows of a batch.

use std::ops::Range;

use super::group_counts::GroupCounts;
use super::grouped_rows::GroupedRows;
use crate::proven::{at, at_mut};
use crate::schema::{FieldType, compared};

/// The texts of the rows that are not NULL.
pub enum TextRows<'a> {
    /// Few different ones, and how many rows have each.
    Shared(Vec<(&'a [u8], GroupCounts)>),
    /// Where the text of each row lies among the bytes, and the row's group.
    Own {
        bytes: &'a [u8],
        places: Vec<Range<u32>>,
        is_selected: &'a [bool],
    },
}

impl<'a> TextRows<'a> {
    /// Reads a field, and adds NULLs to `nulls`. `bytes` and `is_selected` are buffers.
    pub fn of(
        rows: &GroupedRows<'a>,
        field: usize,
        bytes: &'a mut Vec<u8>,
        is_selected: &'a mut Vec<bool>,
        nulls: &mut GroupCounts,
    ) -> TextRows<'a> {
        let layout = rows.batch.layout();
        let is_null = rows.batch.nulls(field);
        if let Some((strings, codes)) = rows.batch.shared(field) {
            let counts = counts_of(strings.len(), codes, rows.is_selected, is_null);
            *nulls += *at(&counts, strings.len());
            return TextRows::Shared(strings.into_iter().zip(counts).collect());
        }
        let (bytes, mut places) = rows.batch.places(field, bytes);
        let slot = layout.slot(field);
        if slot.is_some_and(|slot| matches!(slot.ty, FieldType::Char(_))) {
            for place in &mut places {
                let padded = at(bytes, place.start as usize..place.end as usize);
                place.end = place.start + compared(layout, field, padded).len() as u32;
            }
        }
        let is_selected = match is_null {
            None => rows.is_selected,
            Some(is_null) => {
                let mut row = 0..;
                places.retain(|_| row.next().is_some_and(|row| !is_null(row)));
                rows.without(is_null, is_selected, nulls)
            }
        };
        TextRows::Own {
            bytes,
            places,
            is_selected,
        }
    }
}

/// Counts the rows of each string, by its code, and last those with NULL. NULL is one more code, because a processor cannot predict it.
fn counts_of(
    strings: usize,
    codes: &[u64],
    is_selected: &[bool],
    is_null: Option<impl Fn(usize) -> bool>,
) -> Vec<GroupCounts> {
    let mut counts = vec![GroupCounts::default(); strings + 1];
    for (row, (code, is_selected)) in codes.iter().zip(is_selected).enumerate() {
        let place = match is_null.as_ref().is_some_and(|is_null| is_null(row)) {
            true => strings,
            false => *code as usize,
        };
        at_mut(&mut counts, place).add(*is_selected);
    }
    counts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // The naive form looks at all rows for each string.
        #[test]
        fn shared_strings_and_nulls_are_counted_as_one_by_one(
            rows in prop::collection::vec((0u64..5, any::<bool>(), any::<bool>()), 0..100),
            has_nulls: bool,
        ) {
            let codes: Vec<u64> = rows.iter().map(|(code, ..)| *code).collect();
            let is_selected: Vec<bool> = rows.iter().map(|(_, is_selected, _)| *is_selected).collect();
            let is_null = |row: usize| rows[row].2;
            let found = counts_of(5, &codes, &is_selected, has_nulls.then_some(is_null));
            for (place, found) in found.into_iter().enumerate() {
                let mut naive = GroupCounts::default();
                for (code, is_selected, is_null) in &rows {
                    let own = if has_nulls && *is_null { 5 } else { *code as usize };
                    naive.add_times(*is_selected, u64::from(own == place));
                }
                prop_assert_eq!(found, naive);
            }
        }
    }
}
