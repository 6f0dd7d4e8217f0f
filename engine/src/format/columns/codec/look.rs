//! What one look at a column says: from it every encoding knows what it would take.

use crate::format::columns::bits::{wide, width_of, width_of_bits};
use crate::proven::at;

/// Of a column of one number at least.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Look {
    pub count: usize,
    pub first: u64,
    pub least: i64,
    pub greatest: i64,
    pub least_step: i64,
    pub greatest_step: i64,
    /// Of equal numbers.
    pub runs: usize,
    /// Bits that differ from the first number's in any.
    pub varying: u64,
}

impl Look {
    pub fn at(numbers: &[u64]) -> Look {
        wide(|| Look::of(numbers))
    }

    #[inline(always)]
    fn of(numbers: &[u64]) -> Look {
        let first = *at(numbers, 0);
        let mut look = Look {
            count: numbers.len(),
            first,
            least: first as i64,
            greatest: first as i64,
            least_step: i64::MAX,
            greatest_step: i64::MIN,
            runs: 1,
            varying: 0,
        };
        for (before, &number) in numbers.iter().zip(at(numbers, 1..)) {
            let step = number.wrapping_sub(*before) as i64;
            look.least = look.least.min(number as i64);
            look.greatest = look.greatest.max(number as i64);
            look.least_step = look.least_step.min(step);
            look.greatest_step = look.greatest_step.max(step);
            look.runs += usize::from(step != 0);
            look.varying |= number ^ first;
        }
        look
    }

    /// How far the greatest number exceeds the least.
    pub fn span(&self) -> u64 {
        self.greatest.wrapping_sub(self.least) as u64
    }

    pub fn width(&self) -> u8 {
        width_of(self.span())
    }

    pub fn step_width(&self) -> u8 {
        if self.least_step > self.greatest_step {
            return 0;
        }
        width_of(self.greatest_step.wrapping_sub(self.least_step) as u64)
    }

    pub fn mask_width(&self) -> u8 {
        width_of_bits(self.varying.count_ones())
    }
}
