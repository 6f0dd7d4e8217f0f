//! A quantile: the exact fraction of its decimal, its rank among n values, and its column's name.
//!
//! `0.9999` is 9999 of 10,000, not the nearest double: the rank of the value is `max(1, ceil(q * n))` in integers.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// A double's shortest decimal never has more digits than this.
const DIGITS_MAX: usize = 18;
/// Below 10^-37 the rank is 1 for any number of values that a log can hold.
const DECIMALS_MAX: usize = 37;

/// A fraction from 0 to 1.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Quantile {
    numerator: u128,
    denominator: u128,
    name: String,
}

impl Quantile {
    /// Converts the shortest decimal that reads back as `q`.
    ///
    /// # Errors
    /// `q` is outside 0 to 1, or not a number.
    pub fn new(q: f64) -> Result<Quantile> {
        format!("{q}").parse()
    }

    /// The column's name: the percentage with an underscore for the point, `p99_99` for 0.9999.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The rank of the quantile among `count` values in ascending order, from 1; 0 if there are no values.
    pub fn rank(&self, count: u64) -> u64 {
        let product = self.numerator.saturating_mul(u128::from(count));
        let rank = product.div_ceil(self.denominator).max(1);
        (rank as u64).min(count)
    }
}

impl FromStr for Quantile {
    type Err = Error;

    /// Reads a plain decimal such as `0.5`, `1` or `.999`.
    fn from_str(text: &str) -> Result<Quantile> {
        let refused = |why: &str| Error::Query(format!("quantile {text} {why}"));
        let (whole, decimals) = text.split_once('.').unwrap_or((text, ""));
        let digits_only = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !digits_only(whole)
            || !digits_only(decimals)
            || (whole.is_empty() && decimals.is_empty())
        {
            return Err(refused("is not a number from 0 to 1"));
        }
        let decimals = decimals.trim_end_matches('0');
        match whole.trim_start_matches('0') {
            "" => {}
            "1" if decimals.is_empty() => {
                return Ok(Quantile {
                    numerator: 1,
                    denominator: 1,
                    name: "p100".to_owned(),
                });
            }
            _ => return Err(refused("is not from 0 to 1")),
        }
        let digits = decimals.trim_start_matches('0');
        if digits.len() > DIGITS_MAX {
            return Err(refused(&format!("has more than {DIGITS_MAX} digits")));
        }
        Ok(Quantile {
            numerator: digits
                .bytes()
                .fold(0, |number, digit| number * 10 + u128::from(digit - b'0')),
            denominator: 10u128.pow(decimals.len().min(DECIMALS_MAX) as u32),
            name: percentage(decimals),
        })
    }
}

/// `p99_99` for the decimals `9999`.
fn percentage(decimals: &str) -> String {
    let mut padded = decimals.chars().chain(std::iter::repeat('0'));
    let whole: String = padded.by_ref().take(2).collect();
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    match decimals.get(2..) {
        Some(rest) if !rest.is_empty() => format!("p{whole}_{rest}"),
        _ => format!("p{whole}"),
    }
}

impl fmt::Display for Quantile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

/// Refuses a list that names a quantile twice, because its columns would have the same name.
pub fn refuse_repeated(quantiles: &[Quantile]) -> Result<()> {
    for (place, quantile) in quantiles.iter().enumerate() {
        if quantiles
            .iter()
            .take(place)
            .any(|other| other.name == quantile.name)
        {
            return Err(Error::Query(format!(
                "quantile {} is given twice",
                quantile.name
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_say_the_percentage() {
        let cases = [
            (0.5, "p50"),
            (0.99, "p99"),
            (0.9999, "p99_99"),
            (0.999, "p99_9"),
            (0.05, "p5"),
            (0.005, "p0_5"),
            (0.1, "p10"),
            (0.0, "p0"),
            (1.0, "p100"),
            (1e-10, "p0_00000001"),
        ];
        for (q, name) in cases {
            assert_eq!(Quantile::new(q).unwrap().name(), name);
        }
        assert_eq!("1.000".parse::<Quantile>().unwrap().name(), "p100");
        assert_eq!(".50".parse::<Quantile>().unwrap().name(), "p50");
    }

    #[test]
    fn what_is_no_fraction_is_refused() {
        for q in [-0.1, 1.1, f64::NAN, f64::INFINITY, 2.0, -1.0] {
            assert!(Quantile::new(q).is_err(), "{q}");
        }
        for text in ["", ".", "0.5x", "1e-3", "+0.5", "0.1234567890123456789"] {
            assert!(text.parse::<Quantile>().is_err(), "{text}");
        }
        let twice = [0.5, 0.5].map(|q| Quantile::new(q).unwrap());
        assert!(refuse_repeated(&twice).is_err());
        assert!(refuse_repeated(&twice[..1]).is_ok());
    }

    #[test]
    fn ranks_follow_the_decimal_not_the_double() {
        let rank = |q: f64, count| Quantile::new(q).unwrap().rank(count);
        // As doubles, 0.07 * 100 and 0.55 * 100 exceed 7 and 55.
        assert_eq!(rank(0.07, 100), 7);
        assert_eq!(rank(0.55, 100), 55);
        assert_eq!(rank(0.5, 4), 2);
        assert_eq!(rank(0.5, 5), 3);
        assert_eq!(rank(0.0, 10), 1);
        assert_eq!(rank(1.0, 10), 10);
        assert_eq!(rank(0.9999, 1), 1);
        assert_eq!(rank(0.5, 0), 0);
        assert_eq!(rank(5e-324, u64::MAX >> 3), 1);
        assert_eq!(rank(1.0, u64::MAX), u64::MAX);
    }

    proptest! {
        #[test]
        fn a_rank_is_one_of_the_values(q in 0.0f64..=1.0, count in 1u64..) {
            let rank = Quantile::new(q).unwrap().rank(count);
            prop_assert!((1..=count).contains(&rank));
        }
    }
}
