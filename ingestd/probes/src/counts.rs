//! The counters of the programs, summed over the CPUs; `bpf/loom.h` has the same numbers.

/// The counts since the programs were armed; `emitted + failed + filtered + sampled + unpaired` is the number of ends of events.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Records that the ring took.
    pub emitted: u64,
    /// Records that found the ring full.
    pub failed: u64,
    /// Ends without a beginning: it was before the capture, or does not belong to a call (a new thread returns from the call of another).
    pub unpaired: u64,
    /// Beginnings that found no slot.
    pub no_slot: u64,
    /// Pairs with less than the minimum latency.
    pub filtered: u64,
    /// Beginnings whose end cannot come any more, as of calls that `longjmp` leaves. They are no loss.
    pub left: u64,
    /// Calls inside so many others that the kernel does not report their returns.
    pub too_deep: u64,
    /// Pairs that are left out to save time.
    pub sampled: u64,
    /// Events that came while the same CPU ran a program.
    pub missed: u64,
}

/// The number of counters of the programs.
pub(crate) const COUNTERS: usize = 8;

impl Counts {
    pub(crate) fn of(totals: [u64; COUNTERS], missed: u64) -> Counts {
        let [
            emitted,
            failed,
            unpaired,
            no_slot,
            filtered,
            left,
            too_deep,
            sampled,
        ] = totals;
        Counts {
            emitted,
            failed,
            // The end of an event without a slot also counts as unpaired.
            unpaired: unpaired.saturating_sub(no_slot),
            no_slot,
            filtered,
            left,
            too_deep,
            sampled,
            missed,
        }
    }

    /// Events that happened and are in no record.
    pub fn lost(&self) -> u64 {
        self.failed + self.no_slot + self.too_deep + self.missed
    }
}
