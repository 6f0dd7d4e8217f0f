//! The label index (Mach §3, "label index"): it finds the fields that hold a time series by the labels of the series.
//!
//! It is built from the catalog alone, so it costs nothing at ingest and always fits the snapshot. For each label and value it has the
//! series that carry it, ascending; a query intersects these lists and looks at no other source.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Source;
use crate::types::SourceId;

/// The label with the name of the metric.
pub const METRIC_LABEL: &str = "__name__";

/// A series, identified by the field that holds its values.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SeriesId {
    pub source: SourceId,
    /// The number of the field, from 0.
    pub field: usize,
}

/// A test of a label's value. A series without the label has the empty value.
pub enum LabelTest {
    OneOf(Vec<String>),
    Fits(Box<dyn Fn(&str) -> bool + Send + Sync>),
}

impl LabelTest {
    pub fn holds(&self, value: &str) -> bool {
        match self {
            LabelTest::OneOf(wanted) => wanted.iter().any(|wanted| wanted == value),
            LabelTest::Fits(fits) => fits(value),
        }
    }
}

/// The series of a catalog by their labels.
#[derive(Debug, Default)]
pub struct LabelIndex {
    all: Vec<SeriesId>,
    /// For each label, its values, each with its series, ascending.
    labels: HashMap<String, BTreeMap<String, Vec<SeriesId>>>,
}

impl LabelIndex {
    /// The series of these sources, which must ascend.
    pub(super) fn of<'a>(sources: impl Iterator<Item = &'a Arc<Source>>) -> LabelIndex {
        let mut index = LabelIndex::default();
        for source in sources {
            for (field, def) in source.fields.iter().enumerate() {
                if def.series.is_empty() {
                    continue;
                }
                let series = SeriesId {
                    source: source.id,
                    field,
                };
                index.all.push(series);
                for (label, value) in &def.series {
                    let values = index.labels.entry(label.clone()).or_default();
                    values.entry(value.clone()).or_default().push(series);
                }
            }
        }
        index
    }

    /// The number of series.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The values of a label, ascending.
    pub fn values(&self, label: &str) -> impl Iterator<Item = &str> {
        let values = self.labels.get(label);
        values
            .into_iter()
            .flatten()
            .map(|(value, _)| value.as_str())
    }

    /// The series whose labels pass all tests, ascending.
    pub fn select(&self, tests: &[(String, LabelTest)]) -> Vec<SeriesId> {
        // Tests that list values come first, because they keep the fewest series for the others.
        let mut order: Vec<_> = tests.iter().collect();
        order.sort_by_key(|(_, test)| matches!(test, LabelTest::Fits(_)));
        let mut left: Option<Vec<SeriesId>> = None;
        for (label, test) in order {
            let found = self.passing(label, test);
            left = Some(match left {
                None => found,
                Some(left) => intersection(&left, &found),
            });
        }
        left.unwrap_or_else(|| self.all.clone())
    }

    fn passing(&self, label: &str, test: &LabelTest) -> Vec<SeriesId> {
        let none = BTreeMap::new();
        let values = self.labels.get(label).unwrap_or(&none);
        let of = |passes: bool| {
            let lists = values
                .iter()
                .filter(move |(value, _)| test.holds(value) == passes);
            joined(lists.map(|(_, list)| list))
        };
        if test.holds("") {
            // All series, except those whose value fails: a series without the label passes.
            return difference(&self.all, &of(false));
        }
        match test {
            LabelTest::OneOf(wanted) => {
                joined(wanted.iter().filter_map(|wanted| values.get(wanted)))
            }
            LabelTest::Fits(_) => of(true),
        }
    }
}

/// The union of the lists, ascending.
fn joined<'a>(lists: impl Iterator<Item = &'a Vec<SeriesId>>) -> Vec<SeriesId> {
    let mut found: Vec<SeriesId> = lists.flatten().copied().collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The intersection; both lists ascend.
fn intersection(a: &[SeriesId], b: &[SeriesId]) -> Vec<SeriesId> {
    let (few, many) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let found = few
        .iter()
        .filter(|series| many.binary_search(series).is_ok());
    found.copied().collect()
}

/// The series of `a` that are not in `b`; both lists ascend.
fn difference(a: &[SeriesId], b: &[SeriesId]) -> Vec<SeriesId> {
    let kept = a.iter().filter(|series| b.binary_search(series).is_err());
    kept.copied().collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Catalog, FieldDef, FieldType, SourceDef};
    use super::*;
    use crate::types::Address;
    use proptest::prelude::*;

    fn catalog(groups: &[Vec<[u8; 3]>]) -> Catalog {
        let mut catalog = Catalog::new();
        for (nth, group) in groups.iter().enumerate() {
            let mut def = SourceDef::new(format!("g{nth}"));
            def.fields.push(FieldDef::new("other", FieldType::U64));
            for (at, values) in group.iter().enumerate() {
                let mut field = FieldDef::new(format!("f{at}"), FieldType::F64);
                let labels = values.iter().enumerate().filter(|(_, value)| **value > 0);
                let labels = labels.map(|(label, value)| (format!("l{label}"), value.to_string()));
                field.series = labels.collect();
                field.series.insert(METRIC_LABEL.to_owned(), "m".to_owned());
                def.fields.push(field);
            }
            catalog.define_source(&def, Address(0)).unwrap();
        }
        catalog
    }

    /// The naive form: it checks each series.
    fn naive(catalog: &Catalog, tests: &[(String, LabelTest)]) -> Vec<SeriesId> {
        let mut found = Vec::new();
        for source in catalog.sources() {
            for (field, def) in source.fields.iter().enumerate() {
                let value = |label: &str| def.series.get(label).map_or("", String::as_str);
                let passes = tests.iter().all(|(label, test)| test.holds(value(label)));
                if !def.series.is_empty() && passes {
                    found.push(SeriesId {
                        source: source.id,
                        field,
                    });
                }
            }
        }
        found
    }

    proptest! {
        // case Metrics: labels
        #[test]
        fn a_selection_is_what_a_look_at_each_series_finds(
            groups in prop::collection::vec(prop::collection::vec(prop::array::uniform3(0u8..4), 0..9), 0..5),
            asked in prop::collection::vec((0usize..4, prop::collection::vec(0u8..4, 1..3), any::<bool>()), 0..4),
        ) {
            let catalog = catalog(&groups);
            let value = |value: u8| if value == 0 { String::new() } else { value.to_string() };
            let tests: Vec<(String, LabelTest)> = asked
                .into_iter()
                .map(|(label, wanted, exact)| {
                    let wanted: Vec<String> = wanted.into_iter().map(value).collect();
                    let test = match exact {
                        true => LabelTest::OneOf(wanted),
                        false => LabelTest::Fits(Box::new(move |value| value <= wanted[0].as_str())),
                    };
                    (format!("l{label}"), test)
                })
                .collect();
            prop_assert_eq!(catalog.label_index().select(&tests), naive(&catalog, &tests));
        }
    }

    // case Metrics: labels
    #[test]
    fn it_follows_the_catalog() {
        let mut catalog = catalog(&[vec![[1, 0, 0]]]);
        assert_eq!(catalog.label_index().len(), 1);
        let mut def = catalog.find("g0").unwrap().def();
        let mut added = FieldDef::new("added", FieldType::F64);
        added.nullable = true;
        added.series.insert("l0".to_owned(), "2".to_owned());
        def.fields.push(added);
        let before = catalog.clone();
        catalog.define_source(&def, Address(0)).unwrap();
        assert_eq!(before.label_index().len(), 1);
        let index = catalog.label_index();
        assert_eq!(index.values("l0").collect::<Vec<_>>(), ["1", "2"]);
        let found = index.select(&[("l0".to_owned(), LabelTest::OneOf(vec!["2".to_owned()]))]);
        assert_eq!(found[0].field, 2);
    }
}
