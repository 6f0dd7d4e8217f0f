//! Decides which units of a segment are fetched before a thread comes to them, so that a scan of data that is not cached waits once for several units.
//!
//! The system reads ahead only where a file is read without gaps; a scan of some columns leaves gaps between all of them.

use std::ops::Range;

use super::storage::FileId;

/// As many units are announced together. One unit of a usual source has some hundred KiB, of which a scan wants a part.
const UNITS: usize = 16;
/// Other threads may read the units between two of this one.
const STRIDE_MOST: usize = 4;

/// One thread's way through the units of segments.
#[derive(Debug, Default)]
pub struct UnitPrefetch {
    /// The unit that was read last.
    last: Option<(FileId, usize)>,
    /// The units below are announced.
    until: usize,
}

impl UnitPrefetch {
    /// Returns the units to announce after a unit was read. `waited` reports that some of its bytes were not cached.
    pub fn after(&mut self, file: FileId, nth: usize, waited: bool) -> Range<usize> {
        let before = self.last.replace((file, nth));
        if before == Some((file, nth)) {
            return 0..0;
        }
        let follows = before.is_some_and(|(of, before)| {
            of == file && (before + 1..=before + STRIDE_MOST).contains(&nth)
        });
        if !follows {
            self.until = 0;
        }
        let is_announced = nth < self.until;
        if !follows || !(is_announced || waited) || nth + UNITS / 2 < self.until {
            return 0..0;
        }
        let from = self.until.max(nth + 1);
        self.until = nth + 1 + UNITS;
        from..self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId {
        device: 1,
        inode: 1,
    };

    #[test]
    fn units_are_announced_once_while_a_scan_that_waited_goes_on() {
        let mut prefetch = UnitPrefetch::default();
        assert_eq!(
            prefetch.after(FILE, 0, true),
            0..0,
            "one unit is not a scan"
        );
        assert_eq!(prefetch.after(FILE, 1, true), 2..18);
        let mut until = 18;
        for nth in 2..200 {
            let announced = prefetch.after(FILE, nth, false);
            if !announced.is_empty() {
                assert_eq!(announced.start, until, "{nth}");
                until = announced.end;
            }
            assert!((nth + 8..=nth + 18).contains(&until), "{nth}: {until}");
        }
    }

    #[test]
    fn cached_units_single_units_and_the_same_unit_announce_nothing() {
        let mut prefetch = UnitPrefetch::default();
        for nth in 0..50 {
            assert_eq!(prefetch.after(FILE, nth, false), 0..0);
        }
        for nth in (60..600).step_by(STRIDE_MOST + 1) {
            assert_eq!(prefetch.after(FILE, nth, true), 0..0);
            assert_eq!(prefetch.after(FILE, nth, true), 0..0);
        }
        for nth in (0..50).rev() {
            assert_eq!(prefetch.after(FILE, nth, true), 0..0);
        }
        let other = FileId { inode: 2, ..FILE };
        assert_eq!(prefetch.after(other, 1, true), 0..0);
    }
}
