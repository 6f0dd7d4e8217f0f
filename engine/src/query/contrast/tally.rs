//! The counts of one field in the rows of batches.

use std::borrow::Cow;

use super::frequent::FrequentLimits;
use super::given_values::GivenValues;
use super::group_counts::GroupCounts;
use super::grouped_rows::GroupedRows;
use super::number_tally::{NumberTally, number_shown};
use super::text_rows::each_text;
use super::text_tally::TextTally;
use crate::schema::{Constant, FieldDef, FieldType, Op, RangeSet};
use crate::types::Key;

/// The counts of a field, and of the rows in which it is NULL.
pub struct FieldTally {
    pub field: usize,
    ty: FieldType,
    limits: FrequentLimits,
    pub nulls: GroupCounts,
    pub values: Tally,
}

pub enum Tally {
    Numbers(NumberTally),
    Texts(TextTally),
    /// Of values that are known already.
    GivenNumbers(GivenValues<u64>),
    GivenTexts(GivenValues<Vec<u8>>),
}

/// Memory that all fields use.
#[derive(Default)]
pub struct Buffers {
    keys: Vec<Key>,
    bytes: Vec<u8>,
}

impl FieldTally {
    pub fn new(field: usize, def: &FieldDef, limits: FrequentLimits) -> FieldTally {
        let values = match def.ty.kind() {
            Some(kind) => {
                let is_labelled = !def.labels.is_empty();
                Tally::Numbers(NumberTally::new(kind, is_labelled, limits))
            }
            None => Tally::Texts(TextTally::new(limits)),
        };
        FieldTally::of(field, def, limits, values)
    }

    /// Counts only these values, which show as these texts.
    pub fn of_given(
        field: usize,
        def: &FieldDef,
        limits: FrequentLimits,
        texts: impl Iterator<Item = Vec<u8>>,
    ) -> FieldTally {
        let numbers = |text: Vec<u8>| -> Vec<u64> {
            let text = String::from_utf8_lossy(&text);
            let keys = def.keys(Op::Eq, Constant::Shown(&text));
            let keys = keys.unwrap_or_else(|| RangeSet::<Key>::all().complement());
            let ranges = keys.ranges().iter();
            ranges.flat_map(|(min, max)| min.0..=max.0).collect()
        };
        let values = match def.ty.kind() {
            Some(_) => Tally::GivenNumbers(GivenValues::new(texts.flat_map(numbers))),
            None => Tally::GivenTexts(GivenValues::new(texts)),
        };
        FieldTally::of(field, def, limits, values)
    }

    fn of(field: usize, def: &FieldDef, limits: FrequentLimits, values: Tally) -> FieldTally {
        FieldTally {
            field,
            ty: def.ty,
            limits,
            nulls: GroupCounts::default(),
            values,
        }
    }

    /// Counts rows.
    pub fn take(&mut self, rows: &GroupedRows<'_>, buffers: &mut Buffers) {
        let Buffers { keys, bytes } = buffers;
        let (batch, field) = (rows.batch, self.field);
        if batch.field(field).is_none() {
            // The layout is older than the field.
            self.nulls += rows.counts;
            return;
        }
        match &mut self.values {
            Tally::Numbers(numbers) => {
                each_key(rows, field, keys, &mut self.nulls, |key, is_selected| {
                    numbers.add(key, is_selected);
                });
            }
            Tally::GivenNumbers(given) => {
                each_key(rows, field, keys, &mut self.nulls, |key, is_selected| {
                    given.add(&key.0, GroupCounts::of(is_selected));
                });
            }
            Tally::Texts(texts) => {
                let ty = self.ty;
                each_text(rows, field, bytes, &mut self.nulls, |bytes, counts| {
                    texts.add(bytes, counts, |bytes| shown(ty, bytes));
                });
            }
            Tally::GivenTexts(given) => {
                let ty = self.ty;
                each_text(rows, field, bytes, &mut self.nulls, |bytes, counts| {
                    // Texts that are not UTF-8 are rare.
                    if !given.add(bytes, counts)
                        && let Cow::Owned(text) = shown(ty, bytes)
                    {
                        given.add(text.as_slice(), counts);
                    }
                });
            }
        }
    }

    /// The same task with nothing counted.
    pub fn fork(&self) -> FieldTally {
        FieldTally {
            nulls: GroupCounts::default(),
            values: match &self.values {
                Tally::Numbers(numbers) => Tally::Numbers(numbers.fork(self.limits)),
                Tally::Texts(_) => Tally::Texts(TextTally::new(self.limits)),
                Tally::GivenNumbers(given) => Tally::GivenNumbers(given.fork()),
                Tally::GivenTexts(given) => Tally::GivenTexts(given.fork()),
            },
            ..*self
        }
    }

    pub fn absorb(&mut self, other: FieldTally) {
        self.nulls += other.nulls;
        match (&mut self.values, other.values) {
            (Tally::Numbers(own), Tally::Numbers(other)) => own.absorb(other),
            (Tally::Texts(own), Tally::Texts(other)) => own.absorb(other),
            (Tally::GivenNumbers(own), Tally::GivenNumbers(other)) => own.absorb(other),
            (Tally::GivenTexts(own), Tally::GivenTexts(other)) => own.absorb(other),
            _ => unreachable!("the tallies of a field are of one kind"),
        }
    }

    /// Turns the numbers of labels into texts, because each snapshot has labels of its own.
    pub fn with_texts(self, def: &FieldDef) -> FieldTally {
        let limits = self.limits;
        let values = match (self.values, def.ty.kind()) {
            (Tally::Numbers(numbers), _) if !def.labels.is_empty() => {
                Tally::Texts(numbers.into_texts(def, limits))
            }
            (Tally::GivenNumbers(given), Some(kind)) => {
                Tally::GivenTexts(given.map(|key| number_shown(def, kind, Key(key)).into_bytes()))
            }
            (values, _) => values,
        };
        FieldTally { values, ..self }
    }
}

/// Calls `each` with the key and the group of every row that is not NULL.
fn each_key(
    rows: &GroupedRows<'_>,
    field: usize,
    keys: &mut Vec<Key>,
    nulls: &mut GroupCounts,
    mut each: impl FnMut(Key, bool),
) {
    keys.clear();
    let numbers = rows.batch.numbers(field).expect("the field is a number");
    let is_loaded = rows.batch.layout().number_keys(field, numbers, keys);
    assert!(is_loaded, "every number has a key");
    let pairs = keys.iter().zip(rows.is_selected);
    match rows.batch.nulls(field) {
        None => pairs.for_each(|(key, is_selected)| each(*key, *is_selected)),
        Some(is_null) => {
            for (row, (key, is_selected)) in pairs.enumerate() {
                match is_null(row) {
                    true => nulls.add(*is_selected),
                    false => each(*key, *is_selected),
                }
            }
        }
    }
}

/// A text as it shows: always UTF-8. Bytes stay as they are.
fn shown(ty: FieldType, bytes: &[u8]) -> Cow<'_, [u8]> {
    match ty {
        FieldType::Bytes(_) | FieldType::VarBytes => Cow::Borrowed(bytes),
        _ if std::str::from_utf8(bytes).is_ok() => Cow::Borrowed(bytes),
        _ => Cow::Owned(String::from_utf8_lossy(bytes).into_owned().into_bytes()),
    }
}
