//! Groups series for `loom_series_aggregate`: those with the same values of some labels, or each series alone.

use std::collections::{BTreeMap, HashMap};

use loom_engine::proven;

use super::series::Series;

/// The groups of the series of a call, numbered from 0.
pub enum SeriesGroups {
    /// Each series is a group, and its position is the group's number.
    Each,
    By {
        /// The group of each series, by position.
        of: Vec<usize>,
        /// The labels that the series of each group share.
        labels: Vec<BTreeMap<String, String>>,
    },
}

impl SeriesGroups {
    /// Groups series by the values of these labels. A missing label counts as empty, as in Prometheus, and the group does not have it
    /// either.
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

    /// The labels of a group.
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
