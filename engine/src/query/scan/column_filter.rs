//! Finds the rows that match a filter, column by column. `Expr::matches` of each row is the naive form.
//!
//! `passing` has one entry for each row; rows are only dropped from it. The tested fields must be read.

use memchr::memmem::Finder;

use super::batch::{Batch, FieldColumn};
use super::text_tests::{Texts, Verdicts, WORDS_MOST};
use crate::proven::at;
use crate::schema::{Case, Expr, Op, RangeSet, compared};
use crate::types::Key;

pub(in crate::query) fn keep_matching(batch: &Batch<'_>, expr: &Expr, passing: &mut [bool]) {
    match expr {
        Expr::Keys { field, keys } => keep_keys(batch, *field, keys, passing),
        Expr::Bytes { field, op, bytes } => match op {
            Op::Eq => keep_found(batch, *field, Part::Whole(bytes), true, passing),
            _ => {
                let layout = batch.layout();
                let holds = |found: &[u8]| op.holds(compared(layout, *field, found).cmp(bytes));
                keep_values(batch, *field, holds, passing);
            }
        },
        Expr::Contains {
            field,
            part,
            case,
            is_in,
        } => match case {
            Case::Sensitive => {
                let part = Part::Within(part.as_bytes());
                keep_found(batch, *field, part, *is_in, passing);
            }
            Case::Insensitive => {
                let layout = batch.layout();
                let holds =
                    |found: &[u8]| case.contains(compared(layout, *field, found), part) == *is_in;
                keep_values(batch, *field, holds, passing);
            }
        },
        Expr::Null { field, is_null } => keep_nulls(batch, *field, *is_null, passing),
        Expr::All(tests) => {
            for test in tests {
                keep_matching(batch, test, passing);
            }
        }
        Expr::Any(tests) => match Texts::of(tests) {
            Some((field, texts)) => {
                let layout = batch.layout();
                let holds = |found: &[u8]| texts.contains(compared(layout, field, found));
                keep_values(batch, field, holds, passing);
            }
            None => keep_any(passing, tests, |test, passing| {
                keep_matching(batch, test, passing);
            }),
        },
    }
}

/// Bytes that a value is, or contains.
#[derive(Copy, Clone)]
enum Part<'a> {
    Whole(&'a [u8]),
    Within(&'a [u8]),
}

/// Drops the rows whose field is NULL, and those that are not or do not contain some bytes, or those that do.
fn keep_found(batch: &Batch<'_>, field: usize, part: Part<'_>, is_in: bool, passing: &mut [bool]) {
    let (Part::Whole(bytes) | Part::Within(bytes)) = part;
    let is_string = batch
        .layout()
        .slot(field)
        .is_some_and(|slot| slot.ty.fixed_bytes().is_none());
    let finder = Finder::new(bytes);
    if !is_string || bytes.is_empty() || batch.shared(field).is_some() {
        let layout = batch.layout();
        let holds = |found: &[u8]| {
            let found = compared(layout, field, found);
            let is_found = match part {
                Part::Whole(bytes) => found == bytes,
                Part::Within(_) => finder.find(found).is_some(),
            };
            is_found == is_in
        };
        return keep_values(batch, field, holds, passing);
    }
    // NULL has any place.
    keep_nulls(batch, field, false, passing);
    let mut room = Vec::new();
    let (texts, places) = batch.places(field, &mut room);
    let ends = places.iter().map(|place| place.end as usize);
    let texts = at(texts, ..ends.max().unwrap_or(0));
    // Texts lie one behind the other, so one search passes over many: from one place on, the bytes stand first at another.
    let mut first = None;
    let rows = passing.iter_mut().zip(places);
    for (passes, place) in rows.filter(|(passes, _)| **passes) {
        let (start, end) = (place.start as usize, place.end as usize);
        let hit = match first {
            Some((from, hit)) if from <= start && start <= hit => hit,
            // The newest rows may come first.
            Some((from, _)) if start < from => {
                let found = finder.find(at(texts, start..end));
                found.map_or(usize::MAX, |found| start + found)
            }
            _ => {
                let found = finder.find(at(texts, start..));
                let hit = found.map_or(usize::MAX, |found| start + found);
                first = Some((start, hit));
                hit
            }
        };
        let is_found = match part {
            // A value that begins with the bytes is found at its start.
            Part::Whole(_) => hit == start && end - start == bytes.len(),
            Part::Within(_) => hit.saturating_add(bytes.len()) <= end,
        };
        *passes = is_found == is_in;
    }
}

/// Drops the rows whose field is NULL or does not pass.
fn keep_values(
    batch: &Batch<'_>,
    field: usize,
    passes: impl Fn(&[u8]) -> bool,
    passing: &mut [bool],
) {
    if let Some((strings, codes)) = batch.shared(field) {
        let passes: Vec<bool> = strings.into_iter().map(passes).collect();
        for (row, code) in passing.iter_mut().zip(codes) {
            *row &= *at(&passes, *code as usize);
        }
        return keep_nulls(batch, field, false, passing);
    }
    let is_fixed = batch
        .layout()
        .slot(field)
        .is_some_and(|slot| slot.ty.fixed_bytes().is_some());
    if is_fixed
        && let Some(FieldColumn::Words(words)) = batch.field(field)
        && words.len() <= WORDS_MOST
    {
        let mut verdicts = Verdicts::of(batch.layout(), field);
        let mut value = [0; WORDS_MOST];
        let rows = passing.iter_mut().enumerate();
        for (row, row_passes) in rows.filter(|(_, passes)| **passes) {
            let of_row = words.iter().map(|words| *at(words, row));
            value
                .iter_mut()
                .zip(of_row)
                .for_each(|(to, word)| *to = word);
            *row_passes = verdicts.of_value(value, &passes);
        }
        return keep_nulls(batch, field, false, passing);
    }
    let mut rows = passing.iter_mut();
    batch.each_value(field, |value| {
        let row = rows.next().expect("there is a value for each row");
        *row = *row && value.is_some_and(&passes);
    });
}

/// Drops the rows whose field is NULL or has none of these keys.
pub(in crate::query) fn keep_keys(
    batch: &Batch<'_>,
    field: usize,
    keys: &RangeSet<Key>,
    passing: &mut [bool],
) {
    let mut found = Vec::new();
    let is_known = match batch.field(field) {
        Some(FieldColumn::Numbers(numbers)) => {
            batch.layout().number_keys(field, numbers, &mut found)
        }
        _ => false,
    };
    if !is_known {
        return passing.fill(false);
    }
    let rows = passing.iter_mut().zip(&found);
    match keys.ranges() {
        // The passing rows cannot be predicted, so there is no branch for each.
        [(min, max)] => {
            let width = max.0 - min.0;
            rows.for_each(|(passes, key)| *passes &= key.0.wrapping_sub(min.0) <= width);
        }
        _ => rows.for_each(|(passes, key)| *passes = *passes && keys.contains(*key)),
    }
    keep_nulls(batch, field, false, passing);
}

/// Drops the rows for which no alternative holds; each alternative is a function that drops rows.
pub(in crate::query) fn keep_any<T>(
    passing: &mut [bool],
    sides: &[T],
    keep: impl Fn(&T, &mut [bool]),
) {
    let before = passing.to_vec();
    passing.fill(false);
    let mut of_side = Vec::new();
    for side in sides {
        of_side.clone_from(&before);
        keep(side, &mut of_side);
        for (passes, of_side) in passing.iter_mut().zip(&of_side) {
            *passes |= *of_side;
        }
    }
}

/// Keeps only the rows where the field is NULL, or only those where it is not.
fn keep_nulls(batch: &Batch<'_>, field: usize, is_null: bool, passing: &mut [bool]) {
    if batch.layout().slot(field).is_none() {
        // The layout is older than the field, which is NULL in each row.
        if !is_null {
            passing.fill(false);
        }
        return;
    }
    match batch.nulls(field) {
        Some(of_row) => {
            for (row, passes) in passing.iter_mut().enumerate() {
                *passes &= of_row(row) == is_null;
            }
        }
        None if is_null => passing.fill(false),
        None => {}
    }
}
