//! Which series share the rows of `loom_series_aggregate`: those with the same values of some labels, or each alone.

use std::collections::{BTreeMap, HashMap};

use loom_engine::proven;

use super::series::Series;

/// The groups of the series of a call, from 0.
pub enum SeriesGroups {
    /// Each series is a group: its place.
    Each,
    By {
        /// The group of each series, by its place.
        of: Vec<usize>,
        /// What the series of each group have in common.
        labels: Vec<BTreeMap<String, String>>,
    },
}

impl SeriesGroups {
    /// Groups series by the values of these labels. A label that a series does not have is as empty, as in Prometheus: the group does not have it either.
    pub fn by(names: &[String], series: &[Series]) -> SeriesGroups {
        let mut known: HashMap<BTreeMap<&str, &str>, usize> = HashMap::new();
        let mut labels = Vec::new();
        let of = series.iter().map(|series| {
            let values = names.iter().filter_map(|name| {
                let value = series.labels().get(name)?;
                (!value.is_empty()).then_some((name.as_str(), value.as_str()))
            });
            let values: BTreeMap<&str, &str> = values.collect();
            *known.entry(values).or_insert_with_key(|values| {
                let owned = values
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
                labels.push(owned.collect());
                labels.len() - 1
            })
        });
        SeriesGroups::By {
            of: of.collect(),
            labels,
        }
    }

    /// The group of a series.
    pub fn group_of(&self, place: usize) -> usize {
        match self {
            SeriesGroups::Each => place,
            SeriesGroups::By { of, .. } => *proven::at(of, place),
        }
    }

    /// What a group is known by.
    pub fn labels<'a>(
        &'a self,
        series: &'a [Series],
        group: usize,
    ) -> &'a BTreeMap<String, String> {
        match self {
            SeriesGroups::Each => proven::at(series, group).labels(),
            SeriesGroups::By { labels, .. } => proven::at(labels, group),
        }
    }
}
