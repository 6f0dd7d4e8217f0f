//! The records of the samples that were taken together, and the refused samples.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use loom_engine::schema::LossReason;

use super::Slot;
use crate::daemon::refused::Refused;

/// The longest text of a series' labels in a reason.
const SHOWN_BYTES_MAX: usize = 200;

pub(super) struct Taken {
    /// Fields and their values, by time in milliseconds and group.
    pub(super) records: BTreeMap<(i64, usize), Vec<(usize, f64)>>,
    /// The room for further records.
    pub(super) record_bytes_left: usize,
    held: HashSet<(i64, Slot)>,
    pub(super) refused: Refused,
}

impl Taken {
    /// All records may take `record_bytes_max`; `refused` are refused already.
    pub(super) fn new(record_bytes_max: usize, refused: Refused) -> Taken {
        Taken {
            records: BTreeMap::new(),
            record_bytes_left: record_bytes_max,
            held: HashSet::new(),
            refused,
        }
    }

    /// Takes a value, or says why not. A record of its group takes `record_bytes`.
    pub(super) fn put(
        &mut self,
        time_ms: i64,
        slot: Slot,
        value: f64,
        record_bytes: usize,
    ) -> Result<(), &'static str> {
        if self.held.contains(&(time_ms, slot)) {
            return Err("a series stands twice in one answer, or is one of the daemon's own");
        }
        let record = match self.records.entry((time_ms, slot.group)) {
            Entry::Occupied(record) => record.into_mut(),
            Entry::Vacant(place) => {
                let left = self.record_bytes_left.checked_sub(record_bytes);
                self.record_bytes_left = left.ok_or(
                    "the records, one for each time, take more than 4 times body_max; raise it, or send fewer times at once",
                )?;
                place.insert(Vec::new())
            }
        };
        record.push((slot.field, value));
        self.held.insert((time_ms, slot));
        Ok(())
    }

    pub(super) fn refuse(&mut self, why: &str, series: impl FnOnce() -> String) {
        self.refused.add_such(LossReason::Malformed, why, || {
            let mut series = series();
            series.truncate(series.floor_char_boundary(SHOWN_BYTES_MAX));
            series
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_in_each_group_is_a_record_and_counts() {
        let slot = |group, field| Slot { group, field };
        let mut taken = Taken::new(250, Refused::default());
        let mut put = |time_ms, slot| taken.put(time_ms, slot, 1.0, 100);
        assert!(put(1, slot(0, 0)).is_ok() && put(1, slot(0, 1)).is_ok());
        assert!(put(1, slot(0, 1)).unwrap_err().contains("twice"));
        assert!(put(1, slot(1, 0)).is_ok());
        for refused in [(2, slot(0, 0)), (1, slot(2, 0))] {
            assert!(put(refused.0, refused.1).unwrap_err().contains("body_max"));
        }
        assert!(put(1, slot(1, 1)).is_ok());
        assert_eq!((taken.records.len(), taken.record_bytes_left), (2, 50));
    }
}
