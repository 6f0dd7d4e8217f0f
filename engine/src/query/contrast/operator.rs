//! Compares the fields of selected records with those of others, exactly and in bounded memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::contrast_descent::{ContrastDescent, ContrastQuestion};
use super::frequent::FrequentLimits;
use super::group_counts::GroupCounts;
use super::tally::{FieldTally, Tally};
use super::text_tally::is_frequent;
use crate::error::{Error, Result};
use crate::query::aggregate::shared_descent::descend;
use crate::query::poll::Poll;
use crate::query::predicate::Predicate;
use crate::query::scan::unit_pruning::UnitPruning;
use crate::query::snapshot::Snapshot;
use crate::schema::{BinMap, FieldDef};
use crate::types::{Address, Key, SourceId};

/// A source in one snapshot, and its records to compare.
#[derive(Copy, Clone)]
pub struct ContrastAsked<'a> {
    pub snapshot: &'a Snapshot,
    pub source: SourceId,
    /// The records of both groups.
    pub all: &'a Predicate,
    /// Those of them that are selected. The rest are the others.
    pub selected: &'a Predicate,
}

/// The numbers of records, and the counts of each field.
#[derive(Clone, PartialEq, Debug)]
pub struct Contrast {
    pub records: GroupCounts,
    pub fields: Vec<FieldContrast>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct FieldContrast {
    /// The number of the field.
    pub field: usize,
    pub nulls: GroupCounts,
    /// Single values. `None` for floats, and for a field that has too many different integers.
    pub values: Option<ContrastValues>,
    /// All numbers by their `auto` bins, ascending; `None` for texts and for fields with labels.
    pub bins: Option<(BinMap, Vec<(u16, GroupCounts)>)>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct ContrastValues {
    /// Ascending, with their exact counts.
    pub counted: BTreeMap<ContrastValue, GroupCounts>,
    /// Whether they are all values. Otherwise each has a share above [`CONTRAST_SHARE`] in one of the groups and at most 256 bytes, and there
    /// are no other such values.
    pub is_complete: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ContrastValue {
    /// An integer.
    Number(Key),
    /// Bytes, or text as it shows: UTF-8, without padding; a label, or a number of a field that has labels.
    Text(Vec<u8>),
}

/// Counts the values of some fields in both groups. The snapshots' sources are one source.
///
/// # Errors
/// No snapshot, an unknown source or index, damage, eviction, [`Error::Interrupted`].
pub fn contrast(
    asked: &[ContrastAsked<'_>],
    fields: &[usize],
    threads: usize,
    poll: &Poll<'_>,
) -> Result<Contrast> {
    let questions = asked.iter().map(question).collect::<Result<Vec<_>>>()?;
    let Some(first) = questions.first() else {
        return Err(Error::Query("there is nothing to compare".to_owned()));
    };
    let is_known = |field: &usize| {
        let mut sources = questions.iter().map(|question| &question.source);
        sources.any(|source| *field < source.fields.len())
    };
    if let Some(field) = fields.iter().find(|field| !is_known(field)) {
        return Err(Error::Query(format!("there is no field {field}")));
    }
    let limits = first.logs.tuning().contrast;
    let tallies_of_all = |questions: &[ContrastQuestion], question: &ContrastQuestion| {
        let tally = |field: &usize| {
            let def = definition(questions, question, *field);
            FieldTally::new(*field, def, limits)
        };
        fields.iter().map(tally).collect()
    };
    let (records, tallies) = count(&questions, tallies_of_all, threads, poll)?;
    let gathered = tallies.into_iter().map(|tally| gathered(tally, records));
    let mut found: Vec<FieldContrast> = gathered.collect();
    let candidates = candidates(&found);
    if !candidates.is_empty() {
        let tallies_of_candidates =
            |questions: &[ContrastQuestion], question: &ContrastQuestion| {
                let tally = |(field, texts): (&usize, &Vec<Vec<u8>>)| {
                    let def = definition(questions, question, *field);
                    FieldTally::of_given(*field, def, limits, texts.iter().cloned())
                };
                candidates.iter().map(tally).collect()
            };
        let (_, exact) = count(&questions, tallies_of_candidates, threads, poll)?;
        for tally in exact {
            let of_field = found.iter_mut().find(|found| found.field == tally.field);
            let of_field = of_field.expect("candidates are of fields that were counted");
            of_field.values = Some(frequent_of(tally, records, limits));
        }
    }
    Ok(Contrast {
        records,
        fields: found,
    })
}

/// The values of each field that must be counted again.
fn candidates(found: &[FieldContrast]) -> BTreeMap<usize, Vec<Vec<u8>>> {
    let mut candidates = BTreeMap::new();
    for of_field in found {
        let Some(values) = of_field
            .values
            .as_ref()
            .filter(|values| !values.is_complete)
        else {
            continue;
        };
        let texts = values.counted.keys().filter_map(|value| match value {
            ContrastValue::Text(text) => Some(text.clone()),
            ContrastValue::Number(_) => None,
        });
        let texts: Vec<Vec<u8>> = texts.collect();
        // Most fields of many values, such as identifiers, have no frequent value.
        if !texts.is_empty() {
            candidates.insert(of_field.field, texts);
        }
    }
    candidates
}

fn question(asked: &ContrastAsked<'_>) -> Result<ContrastQuestion> {
    let ContrastAsked {
        snapshot,
        source,
        all,
        selected,
    } = *asked;
    let all = snapshot.test_of(source, all)?;
    let selected = snapshot.test_of(source, selected)?;
    let (logs, source) = (snapshot.logs(), snapshot.source_by_id(source)?);
    Ok(ContrastQuestion {
        logs: Arc::clone(logs),
        all: UnitPruning::new(logs, &source, all),
        source,
        selected,
    })
}

/// Counts in all snapshots; `tallies` makes those of one.
fn count(
    questions: &[ContrastQuestion],
    tallies: impl Fn(&[ContrastQuestion], &ContrastQuestion) -> Vec<FieldTally>,
    threads: usize,
    poll: &Poll<'_>,
) -> Result<(GroupCounts, Vec<FieldTally>)> {
    let mut records = GroupCounts::default();
    let mut all: Vec<FieldTally> = Vec::new();
    for question in questions {
        let descent = ContrastDescent::new(question, tallies(questions, question));
        let descent = descend(&question.logs, Address::ZERO, descent, threads, poll)?;
        records += descent.records;
        let shown = descent.tallies.into_iter().map(|tally| {
            let def = definition(questions, question, tally.field);
            tally.with_texts(def)
        });
        if all.is_empty() {
            all = shown.collect();
        } else {
            let pairs = all.iter_mut().zip(shown);
            pairs.for_each(|(tally, other)| tally.absorb(other));
        }
    }
    Ok((records, all))
}

/// The definition of a field in one snapshot, or in another if the source has the field only there.
fn definition<'a>(
    questions: &'a [ContrastQuestion],
    question: &'a ContrastQuestion,
    field: usize,
) -> &'a FieldDef {
    let mut found = std::iter::once(question).chain(questions);
    let found = found.find_map(|question| question.source.fields.get(field));
    found.expect("fields are checked")
}

/// The counts of the first descent.
fn gathered(tally: FieldTally, records: GroupCounts) -> FieldContrast {
    let (field, nulls) = (tally.field, tally.nulls);
    let (values, bins) = match tally.values {
        Tally::Numbers(numbers) => {
            let number = |(key, counts)| (ContrastValue::Number(key), counts);
            let values = numbers.values().map(|values| ContrastValues {
                counted: values.into_iter().map(number).collect(),
                is_complete: true,
            });
            (values, numbers.bins())
        }
        Tally::Texts(texts) => {
            let is_complete = texts.is_complete();
            let text = |(text, counts)| (ContrastValue::Text(text), counts);
            let counted = texts.into_values(records).into_iter().map(text).collect();
            let values = ContrastValues {
                counted,
                is_complete,
            };
            (Some(values), None)
        }
        Tally::GivenNumbers(_) | Tally::GivenTexts(_) => unreachable!("no values were given"),
    };
    FieldContrast {
        field,
        nulls,
        values,
        bins,
    }
}

/// The exact counts of the candidates that are frequent.
fn frequent_of(tally: FieldTally, records: GroupCounts, limits: FrequentLimits) -> ContrastValues {
    let Tally::GivenTexts(texts) = tally.values else {
        unreachable!("candidates are texts");
    };
    let is_kept = |counts: &GroupCounts| {
        is_frequent(counts.selected, records.selected, limits)
            || is_frequent(counts.others, records.others, limits)
    };
    let counted = texts.into_counts().filter(|(_, counts)| is_kept(counts));
    ContrastValues {
        counted: counted
            .map(|(text, counts)| (ContrastValue::Text(text.to_vec()), counts))
            .collect(),
        is_complete: false,
    }
}
