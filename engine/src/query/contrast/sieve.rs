//! Holds back values that are probably rare, so that a stream of different values costs little.
//!
//! Invariant: of one value it misses at most a third of the stream's values divided by `kept`.

use crate::proven::at_mut;

const SLOTS: usize = 1 << 16;
/// The most values until the slots are cleared: one for each slot on average.
const PERIOD: u64 = SLOTS as u64;

/// Counts of values by their hash.
pub struct Sieve {
    slots: Vec<u8>,
    /// The number of values in the stream at which the slots are cleared.
    end: u64,
    /// A value whose slot has this count passes.
    least: u8,
}

impl Default for Sieve {
    fn default() -> Sieve {
        Sieve {
            slots: vec![0; SLOTS],
            end: 0,
            least: 0,
        }
    }
}

impl Sieve {
    /// Whether the slots must be cleared. `total` is the number of values in the stream so far.
    #[inline]
    pub fn is_over(&self, total: u64) -> bool {
        total >= self.end
    }

    /// Clears the slots, and returns how many of a value may be missed until they are cleared again.
    pub fn clear(&mut self, total: u64, kept: usize) -> u64 {
        // A period is short beside the stream before it, so that a short stream also misses little.
        let period = (total / 4).clamp(1, PERIOD);
        let missed = (period / (4 * kept as u64)).min(u64::from(u8::MAX));
        self.end = total + period;
        self.least = missed as u8;
        self.slots.fill(0);
        missed
    }

    /// Whether a value passes that occurs some times.
    #[inline]
    pub fn passes(&mut self, hash: u64, times: u64) -> bool {
        let slot = at_mut(&mut self.slots, hash as usize % SLOTS);
        let passes = u64::from(self.least - (*slot).min(self.least)) < times;
        if !passes {
            *slot += times as u8;
        }
        passes
    }
}
