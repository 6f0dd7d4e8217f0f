//! The counts of one field in the rows of batches.

use std::borrow::Cow;

use super::frequent::FrequentLimits;
use super::given_values::GivenValues;
use super::group_counts::GroupCounts;
use super::grouped_rows::GroupedRows;
use super::number_tally::{NumberTally, number_shown};
use super::text::{Text, TextRef};
use super::text_rows::TextRows;
use super::text_tally::TextTally;
use crate::query::scan::records::keep;
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
    GivenTexts(GivenValues<Text>),
}

/// Memory that all fields use.
#[derive(Default)]
pub struct Buffers {
    keys: Vec<Key>,
    is_selected: Vec<bool>,
    bytes: Vec<u8>,
}

impl Buffers {
    /// The key and the group of every row that is not NULL in a field.
    fn keys<'a>(
        &'a mut self,
        rows: &GroupedRows<'a>,
        field: usize,
        nulls: &mut GroupCounts,
    ) -> (&'a [Key], &'a [bool]) {
        let keys = &mut self.keys;
        keys.clear();
        let numbers = rows.batch.numbers(field).expect("the field is a number");
        let is_loaded = rows.batch.layout().number_keys(field, numbers, keys);
        assert!(is_loaded, "every number has a key");
        let Some(is_null) = rows.batch.nulls(field) else {
            return (keys, rows.is_selected);
        };
        keep(keys, |row, _| !is_null(row));
        (keys, rows.without(is_null, &mut self.is_selected, nulls))
    }

    fn texts<'a>(
        &'a mut self,
        rows: &GroupedRows<'a>,
        field: usize,
        nulls: &mut GroupCounts,
    ) -> TextRows<'a> {
        TextRows::of(rows, field, &mut self.bytes, &mut self.is_selected, nulls)
    }
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
            None => {
                let texts = texts.map(|text| TextRef::of(&text).into());
                Tally::GivenTexts(GivenValues::new(texts))
            }
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
        let (batch, field) = (rows.batch, self.field);
        if batch.layout().slot(field).is_none() {
            // The layout is older than the field.
            self.nulls += rows.counts;
            return;
        }
        match &mut self.values {
            Tally::Numbers(numbers) => {
                let (keys, is_selected) = buffers.keys(rows, field, &mut self.nulls);
                numbers.add(keys, is_selected);
            }
            Tally::GivenNumbers(given) => {
                let (keys, is_selected) = buffers.keys(rows, field, &mut self.nulls);
                for (key, is_selected) in keys.iter().zip(is_selected) {
                    given.add(&key.0, *is_selected, 1);
                }
            }
            Tally::Texts(texts) => {
                let ty = self.ty;
                match buffers.texts(rows, field, &mut self.nulls) {
                    TextRows::Shared(strings) => {
                        for (text, counts) in strings {
                            texts.add_times(TextRef::of(text), counts, |text| shown(ty, text));
                        }
                    }
                    TextRows::Own {
                        bytes,
                        places,
                        is_selected,
                    } => {
                        // ASCII shows as it is, and one look at all bytes takes less time than one at each text.
                        let is_ascii = bytes.is_ascii();
                        texts.add(bytes, &places, is_selected, |text| match is_ascii {
                            true => Cow::Borrowed(text.bytes()),
                            false => shown(ty, text),
                        });
                    }
                }
            }
            Tally::GivenTexts(given) => {
                let ty = self.ty;
                let mut add = |text: TextRef<'_>, is_selected: bool, times: u64| {
                    // Texts that are not UTF-8 are rare.
                    if !given.add(&text, is_selected, times)
                        && let Cow::Owned(text) = shown(ty, text)
                    {
                        given.add(&TextRef::of(&text), is_selected, times);
                    }
                };
                match buffers.texts(rows, field, &mut self.nulls) {
                    TextRows::Shared(strings) => {
                        for (text, counts) in strings {
                            add(TextRef::of(text), true, counts.selected);
                            add(TextRef::of(text), false, counts.others);
                        }
                    }
                    TextRows::Own {
                        bytes,
                        places,
                        is_selected,
                    } => {
                        for (place, is_selected) in places.iter().zip(is_selected) {
                            add(TextRef::within(bytes, place), *is_selected, 1);
                        }
                    }
                }
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
                let text = |key| number_shown(def, kind, Key(key)).into_bytes();
                Tally::GivenTexts(given.map(|key| TextRef::of(&text(key)).into()))
            }
            (values, _) => values,
        };
        FieldTally { values, ..self }
    }
}

/// A text as it shows: always UTF-8. Bytes stay as they are.
#[inline]
fn shown(ty: FieldType, text: TextRef<'_>) -> Cow<'_, [u8]> {
    let bytes = text.bytes();
    match ty {
        FieldType::Bytes(_) | FieldType::VarBytes => Cow::Borrowed(bytes),
        _ if text.is_ascii() || std::str::from_utf8(bytes).is_ok() => Cow::Borrowed(bytes),
        _ => Cow::Owned(String::from_utf8_lossy(bytes).into_owned().into_bytes()),
    }
}
