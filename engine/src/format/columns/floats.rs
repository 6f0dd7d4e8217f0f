//! Floats that people wrote as decimals: whole numbers over a power of ten take fewer bits than the floats do.
//!
//! A float is one where the division of its whole number by the power gives its bits back, and all of a column are. The division rounds right,
//! since both numbers are exact in an f64.

use crate::format::bytes::{FormatError, invalid};
use crate::proven::at;

/// Powers of ten that an f64 holds exactly and that measured values have.
const POWERS: [f64; 16] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];
/// Whole numbers up to here are exact in an f64.
const WHOLE_MOST: f64 = 9_007_199_254_740_992.0;
const SAMPLES: usize = 16;

/// The exponent and the whole numbers of a column of floats of `bytes` bytes, 4 or 8; `None` where not all are decimals.
pub fn scaled(floats: &[u64], bytes: u8) -> Option<(u8, Vec<u64>)> {
    let step = (floats.len() / SAMPLES).max(1);
    let mut exponent = 0;
    for float in floats.iter().step_by(step) {
        exponent =
            (exponent..POWERS.len()).find(|exponent| whole(*float, bytes, *exponent).is_some())?;
    }
    let whole: Option<Vec<u64>> = floats
        .iter()
        .map(|float| whole(*float, bytes, exponent))
        .collect();
    Some((exponent as u8, whole?))
}

fn whole(float: u64, bytes: u8, exponent: usize) -> Option<u64> {
    let value = match bytes {
        4 => f64::from(f32::from_bits(float as u32)),
        _ => f64::from_bits(float),
    };
    let whole = (value * at(&POWERS, exponent)).round_ties_even();
    // NaN is not.
    let is_exact = whole.abs() <= WHOLE_MOST;
    let number = whole as i64 as u64;
    (is_exact && float_of(number, *at(&POWERS, exponent), bytes) == float).then_some(number)
}

#[inline(always)]
fn float_of(whole: u64, power: f64, bytes: u8) -> u64 {
    let value = whole as i64 as f64 / power;
    match bytes {
        4 => u64::from((value as f32).to_bits()),
        _ => value.to_bits(),
    }
}

/// Turns whole numbers back into the bits of floats.
pub fn unscaled(exponent: u8, bytes: u8, numbers: &mut [u64]) -> Result<(), FormatError> {
    let Some(&power) = POWERS.get(usize::from(exponent)) else {
        return invalid("the exponent of a column of floats", exponent.into());
    };
    match bytes {
        4 => numbers
            .iter_mut()
            .for_each(|number| *number = float_of(*number, power, 4)),
        _ => numbers
            .iter_mut()
            .for_each(|number| *number = float_of(*number, power, 8)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_whole_numbers_and_other_floats_are_not() {
        let decimals: Vec<u64> = [0.1, -2.5, 1e9, 0.0, 99.99]
            .iter()
            .map(|value: &f64| value.to_bits())
            .collect();
        let (exponent, mut numbers) = scaled(&decimals, 8).unwrap();
        assert_eq!((exponent, numbers[0], numbers[1] as i64), (2, 10, -250));
        unscaled(exponent, 8, &mut numbers).unwrap();
        assert_eq!(numbers, decimals);
        let narrow: Vec<u64> = [0.1f32, 21.5]
            .iter()
            .map(|value| u64::from(value.to_bits()))
            .collect();
        assert_eq!(scaled(&narrow, 4).unwrap(), (1, vec![1, 215]));
        for other in [
            -0.0,
            f64::NAN,
            f64::INFINITY,
            1.0 / 3.0,
            1e300,
            f64::MIN_POSITIVE,
        ] {
            assert_eq!(scaled(&[other.to_bits()], 8), None, "{other}");
        }
        unscaled(16, 8, &mut []).unwrap_err();
    }
}
