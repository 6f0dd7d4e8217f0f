//! Whether rows may satisfy a test, by the zones of their fields and by look-ups: what no row can satisfy is not read.
//!
//! `Test::keep` decides of the rows that are read: where it keeps one, `Test::may_pass` must hold of the zones that the row lies in.

use super::lookups::KeyedUnit;
use crate::format::{Zone, text_key};
use crate::schema::{Expr, FieldType, Layout, Op, RangeSet};
use crate::types::Key;

/// A test of more values than these does not ask look-ups.
const KEYS_MOST: u64 = 64;

/// The values of some rows of one layout.
#[derive(Copy, Clone)]
pub(crate) struct Zones<'a> {
    pub layout: &'a Layout,
    /// One for each field of the layout.
    pub of_fields: &'a [Zone],
    /// The unit in which they stand, if its segment has a look-up.
    pub unit: Option<KeyedUnit<'a>>,
}

impl Zones<'_> {
    /// Whether a field may have one of some keys.
    pub fn may_have(&self, field: usize, keys: &RangeSet<Key>) -> bool {
        let held = self.of_fields.get(field).and_then(|zone| zone.keys);
        held.is_some_and(|(least, greatest)| keys.overlaps(least, greatest))
            && self.may_hold(field, keys)
    }

    /// Whether a field may have one of some keys, by the look-up.
    fn may_hold(&self, field: usize, keys: &RangeSet<Key>) -> bool {
        let Some(unit) = self.unit else {
            return true;
        };
        let ranges = keys.ranges().iter();
        let count = ranges.clone().try_fold(0_u64, |count, (first, last)| {
            count.checked_add((last.0 - first.0).checked_add(1)?)
        });
        if count.is_none_or(|count| count > KEYS_MOST) {
            return true;
        }
        let mut all = ranges.flat_map(|(first, last)| first.0..=last.0);
        all.any(|key| unit.may_have_key(field, Key(key)))
    }

    /// Whether a row may match a filter.
    pub fn may_match(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Keys { field, keys } => self.may_have(*field, keys),
            Expr::Bytes { field, op, bytes } => self.may_compare(*field, *op, bytes),
            Expr::Contains {
                field, part, is_in, ..
            } => {
                let held = self.of_fields.get(*field).and_then(|zone| zone.keys);
                let may_have_part =
                    |unit: KeyedUnit<'_>| unit.may_have_part(*field, part.as_bytes());
                held.is_some() && (!is_in || self.unit.is_none_or(may_have_part))
            }
            Expr::Null { field, is_null } => match self.of_fields.get(*field) {
                // The layout is older than the field, which is NULL.
                None => *is_null,
                Some(zone) if *is_null => zone.has_null,
                Some(zone) => zone.keys.is_some(),
            },
            Expr::All(tests) => tests.iter().all(|test| self.may_match(test)),
            Expr::Any(tests) => tests.iter().any(|test| self.may_match(test)),
        }
    }

    fn may_compare(&self, field: usize, op: Op, bytes: &[u8]) -> bool {
        let held = self.of_fields.get(field).and_then(|zone| zone.keys);
        let Some((least, greatest)) = held else {
            return false;
        };
        let first = text_key(bytes);
        let slot = self.layout.slot(field);
        let last = match slot.map(|slot| slot.ty) {
            // It ends at its first NUL, behind which its bytes may be any.
            Some(FieldType::Char(_)) => {
                let text = first.0.to_be_bytes();
                let end = text.iter().position(|byte| *byte == 0);
                let behind = end.map_or(8, |end| end + 1) as u32;
                Key(first.0 | u64::MAX.checked_shr(8 * behind).unwrap_or(0))
            }
            _ => first,
        };
        match op {
            Op::Eq => {
                least <= last
                    && first <= greatest
                    && self.unit.is_none_or(|unit| {
                        unit.may_have_bytes(field, bytes) && unit.may_have_part(field, bytes)
                    })
            }
            Op::Ne => true,
            Op::Lt | Op::Le => least <= last,
            Op::Gt | Op::Ge => first <= greatest,
        }
    }
}
