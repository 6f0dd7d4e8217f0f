//! Ranges of numbers and totals over them, for questions to packed numbers.

use crate::proven::at;

/// A number and `more` numbers behind it; 0 follows the greatest.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct NumberRange {
    pub first: u64,
    /// The count of numbers behind the first.
    pub more: u64,
}

impl NumberRange {
    #[inline]
    pub fn contains(self, number: u64) -> bool {
        number.wrapping_sub(self.first) <= self.more
    }

    /// Reports whether it contains all of the numbers from 0 to `greatest`, or none; `None` where it may contain some.
    pub fn all_or_none(self, greatest: u64) -> Option<bool> {
        // The distance from the first number to 0.
        let zero = self.first.wrapping_neg();
        match self.more.checked_sub(zero) {
            _ if self.more == u64::MAX => Some(true),
            Some(behind) if behind >= greatest => Some(true),
            None if self.first > greatest => Some(false),
            _ => None,
        }
    }

    /// Restricts it to the numbers from 0 to `greatest`, which is a mask and which 0 follows. It must contain some of them.
    pub fn up_to(self, greatest: u64) -> NumberRange {
        let end = self.first.wrapping_add(self.more);
        let wraps = end < self.first;
        let first = if self.first > greatest { 0 } else { self.first };
        let last = if wraps || end < greatest {
            end
        } else {
            greatest
        };
        NumberRange {
            first,
            more: last.wrapping_sub(first) & greatest,
        }
    }

    /// Subtracts `least` from its numbers.
    pub(super) fn above(self, least: u64) -> NumberRange {
        NumberRange {
            first: self.first.wrapping_sub(least),
            ..self
        }
    }

    /// Returns the places of its numbers in a dictionary: `Some(None)` if there are none, `None` if they are not contiguous.
    pub(super) fn places_in(self, dictionary: &[u64]) -> Option<Option<NumberRange>> {
        let is_wanted = |number: &u64| self.contains(*number);
        let Some(first) = dictionary.iter().position(is_wanted) else {
            return Some(None);
        };
        let behind = at(dictionary, first..);
        let count = behind.iter().take_while(|number| is_wanted(number)).count();
        let is_row = !at(behind, count..).iter().any(is_wanted);
        is_row.then_some(Some(NumberRange {
            first: first as u64,
            more: count as u64 - 1,
        }))
    }
}

/// Totals of the numbers that a range contains.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct RangeTotals {
    pub count: u64,
    /// Distances from the first number of the range: their sum, the least and the greatest.
    pub sum: u128,
    pub least: u64,
    pub greatest: u64,
}

impl RangeTotals {
    pub const NONE: RangeTotals = RangeTotals {
        count: 0,
        sum: 0,
        least: u64::MAX,
        greatest: 0,
    };

    /// Computes the totals of the numbers that the range contains.
    pub fn of(numbers: impl Iterator<Item = u64>, wanted: NumberRange) -> RangeTotals {
        let mut totals = RangeTotals::NONE;
        let behind = numbers.map(|number| number.wrapping_sub(wanted.first));
        for behind in behind.filter(|behind| *behind <= wanted.more) {
            totals.count += 1;
            totals.sum += u128::from(behind);
            totals.least = totals.least.min(behind);
            totals.greatest = totals.greatest.max(behind);
        }
        totals
    }

    pub fn add(&mut self, other: RangeTotals) {
        self.count += other.count;
        self.sum += other.sum;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
    }

    /// Counts the distances from a number that lies `more` before the first.
    pub fn behind(self, more: u64) -> RangeTotals {
        if self.count == 0 {
            return self;
        }
        RangeTotals {
            count: self.count,
            sum: self.sum + u128::from(more) * u128::from(self.count),
            least: self.least + more,
            greatest: self.greatest + more,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub fn ranges() -> impl Strategy<Value = NumberRange> {
        let number = || prop_oneof![any::<u64>(), 0..10u64, u64::MAX - 9..];
        (number(), number()).prop_map(|(first, more)| NumberRange { first, more })
    }

    proptest! {
        #[test]
        fn a_range_of_all_or_none_says_so(range in ranges(), greatest in 0..20u64, is_near: bool) {
            let range = match is_near {
                true => NumberRange { first: range.first % 25, more: range.more % 25 },
                false => range,
            };
            let held = (0..=greatest).filter(|number| range.contains(*number)).count() as u64;
            let expected = [(0, Some(false)), (greatest + 1, Some(true))];
            let expected = expected.iter().find(|(count, _)| *count == held);
            prop_assert_eq!(range.all_or_none(greatest), expected.and_then(|(_, all)| *all));
            let mask = u64::MAX >> greatest.leading_zeros().min(63);
            if range.all_or_none(mask).is_none() {
                let narrow = range.up_to(mask);
                for number in 0..=mask {
                    let is_within = number.wrapping_sub(narrow.first) & mask <= narrow.more;
                    prop_assert_eq!(is_within, range.contains(number));
                }
            }
        }
    }
}
