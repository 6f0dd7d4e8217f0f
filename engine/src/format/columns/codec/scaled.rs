//! Encoding 6: floats that people wrote as decimals. Whole numbers over a power of ten take fewer bits than the floats.
//!
//! A column qualifies if the division of each whole number by the power restores the float's bits. The division rounds correctly, since both numbers are exact
//! in an f64.

use super::encoding::{Block, Decode};
use crate::format::bytes::{FormatError, invalid};
use crate::format::columns::bits::wide;
use crate::proven::{at, at_mut};

/// Powers of ten that an f64 holds exactly and that occur in measured values.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];
/// Whole numbers up to this one are exact in an f64.
const WHOLE_MOST: f64 = 9_007_199_254_740_992.0;
const SAMPLES: usize = 16;

/// Replaces `whole` by the whole numbers of a column of floats of `bytes` bytes, 4 or 8. Returns the exponent; `None` if not all are decimals.
pub fn scaled(floats: &[u64], bytes: u8, whole: &mut Vec<u64>) -> Option<u8> {
    let step = (floats.len() / SAMPLES).max(1);
    let mut exponent = 0;
    for float in floats.iter().step_by(step) {
        exponent = (exponent..POWERS.len())
            .find(|exponent| whole_of(*float, bytes, *at(&POWERS, *exponent)).0)?;
    }
    let power = *at(&POWERS, exponent);
    whole.clear();
    whole.resize(floats.len(), 0);
    let are_decimals = wide(|| match bytes {
        4 => whole_of_all(floats, 4, power, whole),
        _ => whole_of_all(floats, 8, power, whole),
    });
    are_decimals.then_some(exponent as u8)
}

#[inline(always)]
fn whole_of_all(floats: &[u64], bytes: u8, power: f64, whole: &mut [u64]) -> bool {
    let mut are_decimals = true;
    for (float, whole) in floats.iter().zip(whole) {
        let (is_decimal, number) = whole_of(*float, bytes, power);
        are_decimals &= is_decimal;
        *whole = number;
    }
    are_decimals
}

/// Returns the whole number of a float over a power, and whether it is exact.
#[inline(always)]
fn whole_of(float: u64, bytes: u8, power: f64) -> (bool, u64) {
    let value = match bytes {
        4 => f64::from(f32::from_bits(float as u32)),
        _ => f64::from_bits(float),
    };
    let whole = (value * power).round_ties_even();
    // The comparison is false for NaN.
    let is_exact = whole.abs() <= WHOLE_MOST;
    let number = whole as i64 as u64;
    (is_exact & (float_of(number, power, bytes) == float), number)
}

#[inline(always)]
fn float_of(whole: u64, power: f64, bytes: u8) -> u64 {
    let value = whole as i64 as f64 / power;
    match bytes {
        4 => u64::from((value as f32).to_bits()),
        _ => value.to_bits(),
    }
}

pub struct Scaled<'a> {
    pub exponent: u8,
    pub float_bytes: u8,
    pub whole: Block<'a>,
}

impl Scaled<'_> {
    /// Turns whole numbers back into the bits of floats.
    fn unscale(&self, numbers: &mut [u64]) -> Result<(), FormatError> {
        let Some(&power) = POWERS.get(usize::from(self.exponent)) else {
            return invalid("the exponent of a column of floats", self.exponent.into());
        };
        let numbers = numbers.iter_mut();
        match self.float_bytes {
            4 => numbers.for_each(|number| *number = float_of(*number, power, 4)),
            _ => numbers.for_each(|number| *number = float_of(*number, power, 8)),
        }
        Ok(())
    }
}

impl Decode for Scaled<'_> {
    fn rows(&self) -> usize {
        self.whole.rows()
    }

    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
        self.whole.decode(out)?;
        self.unscale(out)
    }

    fn pick(&self, rows: &[u32], out: &mut Vec<u64>) -> Result<(), FormatError> {
        let before = out.len();
        self.whole.pick(rows, out)?;
        self.unscale(at_mut(out, before..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whole numbers, not yet divided.
    struct Whole<'a>(&'a [u64]);

    impl Decode for Whole<'_> {
        fn rows(&self) -> usize {
            self.0.len()
        }

        fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
            out.copy_from_slice(self.0);
            Ok(())
        }
    }

    fn of(exponent: u8, numbers: &[u64]) -> Scaled<'_> {
        Scaled {
            exponent,
            float_bytes: 8,
            whole: Box::new(Whole(numbers)),
        }
    }

    #[test]
    fn decimals_are_whole_numbers_and_other_floats_are_not() {
        let decimals: Vec<u64> = [0.1, -2.5, 1e9, 0.0, 99.99]
            .iter()
            .map(|value: &f64| value.to_bits())
            .collect();
        let mut numbers = Vec::new();
        let exponent = scaled(&decimals, 8, &mut numbers);
        assert_eq!(
            (exponent, numbers[0], numbers[1] as i64),
            (Some(2), 10, -250)
        );
        let floats = of(2, &numbers).decoded();
        assert_eq!(floats.unwrap(), decimals);
        let narrow: Vec<u64> = [0.1f32, 21.5]
            .iter()
            .map(|value| u64::from(value.to_bits()))
            .collect();
        assert_eq!(scaled(&narrow, 4, &mut numbers), Some(1));
        assert_eq!(numbers, [1, 215]);
        for other in [
            -0.0,
            f64::NAN,
            f64::INFINITY,
            1.0 / 3.0,
            1e300,
            f64::MIN_POSITIVE,
        ] {
            assert_eq!(scaled(&[other.to_bits()], 8, &mut numbers), None, "{other}");
        }
        of(16, &[]).decoded().unwrap_err();
    }
}
