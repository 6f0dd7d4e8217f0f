//! One look at a column, from which every encoding estimates its bytes.

use std::ops::AddAssign;

use crate::format::columns::bits::{wide, width_of, width_of_bits};
use crate::proven::at;

/// Describes a column of at least one number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Look {
    pub count: usize,
    pub first: u64,
    pub least: i64,
    pub greatest: i64,
    pub least_step: i64,
    pub greatest_step: i64,
    /// The number of runs of equal numbers.
    pub runs: usize,
    /// The bits in which any number differs from the first.
    pub varying: u64,
}

impl Look {
    pub fn at(numbers: &[u64]) -> Look {
        wide(|| Look::of(numbers))
    }

    #[inline(always)]
    fn of(numbers: &[u64]) -> Look {
        let first = *at(numbers, 0);
        let varying = numbers.iter().fold(0, |all, number| all | number ^ first);
        if varying > i32::MAX as u64 {
            return Look::by(numbers, varying, 0, |number| number as i64);
        }
        // The numbers differ only in their lower halves, and more of these compare at once.
        Look::by(numbers, varying, u64::MAX << 32, |number| number as i32)
    }

    /// `shared` are bits that all numbers have in common and `narrow` removes.
    #[inline(always)]
    fn by<T>(numbers: &[u64], varying: u64, shared: u64, narrow: impl Fn(u64) -> T) -> Look
    where
        T: Copy + Ord + From<bool> + AddAssign + Into<i64>,
    {
        let (first, after) = (*at(numbers, 0), at(numbers, 1..));
        let step = |before: u64, number: u64| narrow(number.wrapping_sub(before));
        let mut least = narrow(first);
        let mut least_step = step(first, *after.first().unwrap_or(&first));
        let (mut greatest, mut greatest_step) = (least, least_step);
        let mut runs = T::from(true);
        for (before, &number) in numbers.iter().zip(after) {
            let step = step(*before, number);
            least = least.min(narrow(number));
            greatest = greatest.max(narrow(number));
            least_step = least_step.min(step);
            greatest_step = greatest_step.max(step);
            runs += T::from(step != T::from(false));
        }
        let whole = |number: T| (first & shared | number.into() as u64 & !shared) as i64;
        Look {
            count: numbers.len(),
            first,
            least: whole(least),
            greatest: whole(greatest),
            least_step: least_step.into(),
            greatest_step: greatest_step.into(),
            runs: runs.into() as usize,
            varying,
        }
    }

    /// The difference of the greatest and the least number.
    pub fn span(&self) -> u64 {
        self.greatest.wrapping_sub(self.least) as u64
    }

    pub fn width(&self) -> u8 {
        width_of(self.span())
    }

    pub fn step_width(&self) -> u8 {
        width_of(self.greatest_step.wrapping_sub(self.least_step) as u64)
    }

    pub fn mask_width(&self) -> u8 {
        width_of_bits(self.varying.count_ones())
    }
}
