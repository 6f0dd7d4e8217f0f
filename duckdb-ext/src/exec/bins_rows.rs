//! The functions of bins over one batch of rows, as `plan/bins.rs` lists them. An adapter gives the rows as options, `None` for NULL.

use std::ops::{Index, IndexMut};

use loom_engine::query::Quantile;

use super::bins::Bins;
use super::bins_blob;
use crate::error::{Problem, Result};

/// The fractions that are remembered as decimals. A statement has a few, for all rows.
const QUANTILES_KNOWN_MAX: usize = 32;

/// Counts each value in the bins of its row's group.
pub fn count_values(
    values: impl Iterator<Item = Option<f64>>,
    groups: &mut impl IndexMut<usize, Output = Bins>,
) -> Result<()> {
    for (row, value) in values.enumerate() {
        if let Some(value) = value {
            groups[row].add(value, 1)?;
        }
    }
    Ok(())
}

/// Counts each value as often as its row says.
pub fn count_repeated(
    values: impl Iterator<Item = Option<f64>>,
    times: impl Iterator<Item = Option<i64>>,
    groups: &mut impl IndexMut<usize, Output = Bins>,
) -> Result<()> {
    for (row, pair) in values.zip(times).enumerate() {
        if let (Some(value), Some(times)) = pair {
            let times = u64::try_from(times).map_err(|_| {
                Problem::input(format!(
                    "loom_bins_weighted cannot count the value {value} {times} times; pass a count of 0 or more"
                ))
            })?;
            groups[row].add(value, times)?;
        }
    }
    Ok(())
}

/// Counts all values of each BLOB.
pub fn merge_blobs<'a>(
    blobs: impl Iterator<Item = Option<&'a [u8]>>,
    groups: &mut impl IndexMut<usize, Output = Bins>,
) -> Result<()> {
    for (row, blob) in blobs.enumerate() {
        if let Some(blob) = blob {
            bins_blob::merge(blob, &mut groups[row])?;
        }
    }
    Ok(())
}

/// Adds `groups` bins to as many others.
pub fn combine(
    groups: usize,
    sources: &impl Index<usize, Output = Bins>,
    targets: &mut impl IndexMut<usize, Output = Bins>,
) -> Result<()> {
    (0..groups).try_for_each(|group| targets[group].merge(&sources[group]))
}

fn read(blob: &[u8]) -> Result<Bins> {
    let mut bins = Bins::default();
    bins_blob::merge(blob, &mut bins)?;
    Ok(bins)
}

/// The number of values of each BLOB.
pub fn counts<'a>(blobs: impl Iterator<Item = Option<&'a [u8]>>) -> Result<Vec<Option<i64>>> {
    let count = |blob: &[u8]| read(blob).map(|bins| bins.count() as i64);
    blobs.map(|blob| blob.map(count).transpose()).collect()
}

/// The quantile of each BLOB that its row asks for.
pub fn quantiles<'a>(
    blobs: impl Iterator<Item = Option<&'a [u8]>>,
    fractions: impl Iterator<Item = Option<f64>>,
) -> Result<Vec<Option<f64>>> {
    let mut known = Known::default();
    let mut answer = |(blob, fraction)| match (blob, fraction) {
        (Some(blob), Some(fraction)) => Ok(read(blob)?.quantile(known.quantile(fraction)?)),
        _ => Ok(None),
    };
    blobs.zip(fractions).map(&mut answer).collect()
}

/// One answer for each fraction of a row's list, in its order.
pub type Answers = Vec<Option<f64>>;

/// The quantiles of each BLOB that its row lists.
pub fn quantile_lists<'a>(
    blobs: impl Iterator<Item = Option<&'a [u8]>>,
    lists: impl Iterator<Item = Option<Vec<Option<f64>>>>,
) -> Result<Vec<Option<Answers>>> {
    let mut known = Known::default();
    let mut answer = |(blob, list): (Option<&[u8]>, Option<Vec<Option<f64>>>)| {
        let (Some(blob), Some(list)) = (blob, list) else {
            return Ok(None);
        };
        let bins = read(blob)?;
        let mut one = |fraction| Ok(bins.quantile(known.quantile(fraction)?));
        let answers = list
            .into_iter()
            .map(|fraction| fraction.map_or(Ok(None), &mut one));
        answers.collect::<Result<Answers>>().map(Some)
    };
    blobs.zip(lists).map(&mut answer).collect()
}

/// Fractions with their quantiles, because a quantile is made from the decimal of its fraction.
#[derive(Default)]
struct Known(Vec<(u64, Quantile)>);

impl Known {
    fn quantile(&mut self, fraction: f64) -> Result<&Quantile> {
        let bits = fraction.to_bits();
        let place = match self.0.iter().position(|(known, _)| *known == bits) {
            Some(place) => place,
            None => {
                let quantile = Quantile::new(fraction).map_err(|_| {
                    Problem::input(format!(
                        "loom_bins_quantile cannot answer the fraction {fraction}; pass one from 0 to 1, such as 0.99"
                    ))
                })?;
                if self.0.len() == QUANTILES_KNOWN_MAX {
                    self.0.clear();
                }
                self.0.push((bits, quantile));
                self.0.len() - 1
            }
        };
        Ok(&loom_engine::proven::at(&self.0, place).1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(values: &[f64]) -> Vec<u8> {
        let mut groups = vec![Bins::default()];
        for &value in values {
            count_values([Some(value)].into_iter(), &mut groups).unwrap();
        }
        bins_blob::write(&groups[0]).unwrap()
    }

    #[test]
    fn nulls_count_in_no_group() {
        let mut groups = vec![Bins::default(); 3];
        count_values([Some(1.0), None, Some(3.0)].into_iter(), &mut groups).unwrap();
        let times = [None, Some(2), Some(0)].into_iter();
        count_repeated(
            [Some(1.0), Some(2.0), Some(3.0)].into_iter(),
            times,
            &mut groups,
        )
        .unwrap();
        merge_blobs(
            [None, None, Some(&blob(&[5.0])[..])].into_iter(),
            &mut groups,
        )
        .unwrap();
        let counts: Vec<u64> = groups.iter().map(Bins::count).collect();
        assert_eq!(counts, [1, 2, 2]);
        let sources = groups.clone();
        combine(3, &sources, &mut groups).unwrap();
        assert_eq!(groups[1].count(), 4);
        assert_eq!(sources[1].count(), 2);
    }

    #[test]
    fn a_negative_count_is_an_error() {
        let mut groups = vec![Bins::default()];
        let message = count_repeated([Some(7.5)].into_iter(), [Some(-3)].into_iter(), &mut groups);
        let message = message.unwrap_err().to_string();
        assert!(message.contains("7.5 -3 times"), "{message}");
    }

    #[test]
    fn each_row_is_answered_with_its_own_fractions() {
        let (few, many) = (blob(&[1.0, 2.0]), blob(&[5.0; 9]));
        let blobs = || [Some(&few[..]), None, Some(&many[..])].into_iter();
        let counted = counts(blobs()).unwrap();
        assert_eq!(counted, [Some(2), None, Some(9)]);
        let fractions = [Some(0.5), Some(0.5), None].into_iter();
        assert_eq!(
            quantiles(blobs(), fractions).unwrap(),
            [Some(1.0), None, None]
        );
        let lists = [Some(vec![Some(1.0), None, Some(0.0)]), None, Some(vec![])];
        let answered = quantile_lists(blobs(), lists.into_iter()).unwrap();
        let expected = [Some(vec![Some(2.0), None, Some(1.0)]), None, Some(vec![])];
        assert_eq!(answered, expected);
    }

    #[test]
    fn more_fractions_than_are_remembered_are_answered() {
        let few = blob(&[1.0, 2.0]);
        let fractions = (0..100).map(|n| Some(f64::from(n) / 99.0));
        let list: Vec<Option<f64>> = fractions.collect();
        let found = quantile_lists([Some(&few[..])].into_iter(), [Some(list)].into_iter()).unwrap();
        let found = found[0].as_ref().unwrap();
        assert_eq!(
            found.iter().filter(|value| **value == Some(1.0)).count(),
            50
        );
    }

    #[test]
    fn a_fraction_that_is_none_is_an_error() {
        let few = blob(&[1.0]);
        for fraction in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            let message = quantiles([Some(&few[..])].into_iter(), [Some(fraction)].into_iter());
            let message = message.unwrap_err().to_string();
            assert!(message.contains("from 0 to 1"), "{message}");
        }
    }
}
