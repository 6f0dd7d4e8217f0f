//! Determines when the kernel lost records: between two looks of the drainer at the programs' counters.
//!
//! Each loss is returned once, with a span that includes the own times that its records would have had.

use loom_engine::{TimeRange, Timestamp};
use loom_probes::Counts;

/// The tolerance for a record's own time outside the two looks. The kernel stamps an event before it counts it, and its clock is compared with the
/// wall clock once a second.
const ALLOWANCE_NS: i64 = 10_000_000;

const NO_ROOM: &str = "the kernel had no room for them";
/// The reason why records are left out by choice.
pub(super) const SAMPLED: &str = "they were shorter than the budget of the recording allows";
const TOO_DEEP: &str =
    "they were calls inside more than 64 others, whose returns the kernel does not report";

/// Records that the kernel lost.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct KernelLoss {
    pub(super) records: u64,
    pub(super) span: TimeRange,
    pub(super) why: &'static str,
}

/// The losses up to the last look.
#[derive(Copy, Clone, Debug)]
pub(super) struct KernelLosses {
    looked: Timestamp,
    /// Records that found the ring full.
    failed: u64,
    /// Events whose beginning or end was missed.
    unseen: u64,
    /// Calls whose end the kernel did not report.
    too_deep: u64,
    /// Events left out to save time.
    sampled: u64,
}

impl KernelLosses {
    /// Create it before the programs are armed.
    pub(super) fn new(now: Timestamp) -> KernelLosses {
        KernelLosses {
            looked: now,
            failed: 0,
            unseen: 0,
            too_deep: 0,
            sampled: 0,
        }
    }

    /// The losses since the last look. `counts` were read between `before` and `after`.
    pub(super) fn look(
        &mut self,
        counts: &Counts,
        before: Timestamp,
        after: Timestamp,
    ) -> Vec<KernelLoss> {
        let too_deep = counts.too_deep;
        let unseen = counts.lost() - counts.failed - too_deep;
        let first = Timestamp(self.looked.min(before).0 - ALLOWANCE_NS);
        let until_now = |records, why| KernelLoss {
            records,
            span: TimeRange {
                first,
                last: Timestamp(after.max(before).0 + ALLOWANCE_NS),
            },
            why,
        };
        let full = until_now(counts.failed - self.failed, NO_ROOM);
        let sampled = until_now(counts.sampled - self.sampled, SAMPLED);
        // An event whose beginning was missed may end at any later time.
        let until_ever = |records, why| KernelLoss {
            records,
            span: TimeRange {
                first,
                last: Timestamp::MAX,
            },
            why,
        };
        let unseen_now = until_ever(unseen - self.unseen, NO_ROOM);
        let too_deep_now = until_ever(too_deep - self.too_deep, TOO_DEEP);
        *self = KernelLosses {
            looked: before,
            failed: counts.failed,
            unseen,
            too_deep,
            sampled: counts.sampled,
        };
        let mut losses = vec![full, unseen_now, too_deep_now, sampled];
        losses.retain(|loss| loss.records > 0);
        losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn a_loss_spans_the_time_since_the_last_look_and_is_given_once() {
        let mut losses = KernelLosses::new(Timestamp(0));
        let mut counts = Counts::default();
        let at = |seconds: i64| Timestamp(seconds * SECOND);
        assert_eq!(losses.look(&counts, at(1), at(1)), []);
        counts.failed = 7;
        let [loss] = losses.look(&counts, at(8), at(9)).try_into().unwrap();
        assert_eq!(loss.records, 7);
        assert_eq!(loss.span.first, Timestamp(SECOND - ALLOWANCE_NS));
        assert_eq!(loss.span.last, Timestamp(9 * SECOND + ALLOWANCE_NS));
        assert_eq!(losses.look(&counts, at(10), at(10)), []);
        counts.no_slot = 2;
        let [unseen] = losses.look(&counts, at(11), at(11)).try_into().unwrap();
        assert_eq!((unseen.records, unseen.span.last), (2, Timestamp::MAX));
        assert!(unseen.span.first < at(10));
        counts.too_deep = 3;
        let [too_deep] = losses.look(&counts, at(12), at(12)).try_into().unwrap();
        assert_eq!((too_deep.records, too_deep.why), (3, TOO_DEEP));
        counts.sampled = 4;
        let [sampled] = losses.look(&counts, at(13), at(13)).try_into().unwrap();
        assert_eq!((sampled.records, sampled.why), (4, SAMPLED));
        assert_eq!(sampled.span.last, Timestamp(13 * SECOND + ALLOWANCE_NS));
    }

    #[test]
    fn a_wall_clock_that_steps_back_leaves_a_span_that_holds_both_looks() {
        let mut losses = KernelLosses::new(Timestamp(50 * SECOND));
        let counts = Counts {
            failed: 1,
            ..Counts::default()
        };
        let [loss] = losses
            .look(&counts, Timestamp(SECOND), Timestamp(SECOND))
            .try_into()
            .unwrap();
        assert!(loss.span.first <= Timestamp(SECOND) && loss.span.last >= Timestamp(SECOND));
    }
}
