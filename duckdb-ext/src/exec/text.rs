//! Writes fields that are shown as VARCHAR or BLOB: characters up to the first NUL, bytes, text of variable length, and the labels of
//! integers. VARCHAR is always valid UTF-8, whatever the record holds.

use std::borrow::Cow;
use std::collections::HashMap;

use loom_engine::proven;
use loom_engine::query::Strings;
use loom_engine::schema::{FieldDef, FieldType};

use super::fixed;
use super::place::At;
use super::vectors::{INLINE_BYTES, Output, StringEntry};
use crate::error::{Problem, Result};

/// Writes the texts of a field.
pub fn strings<'a>(
    out: &mut Output<'_>,
    at: At,
    ty: FieldType,
    bytes: impl Iterator<Item = &'a [u8]>,
) -> Result<()> {
    let shown = bytes.map(|bytes| shown(ty, bytes));
    out.strings(at.position, at.from, shown.collect::<Vec<_>>().iter())
}

/// Whether a field shows these strings as they are. Texts of a unit are tested together, which is much faster than one after the other.
pub fn are_shown(ty: FieldType, strings: &Strings<'_>) -> bool {
    match ty {
        FieldType::VarBytes => true,
        FieldType::Utf8 | FieldType::Json => {
            (strings.joined()).is_some_and(|(bytes, starts)| are_texts(bytes, starts))
        }
        _ => false,
    }
}

/// Whether each of the strings that start at these places is UTF-8.
fn are_texts(bytes: &[u8], mut starts: impl Iterator<Item = usize>) -> bool {
    let mut are_whole = |text: &str| starts.all(|at| text.is_char_boundary(at));
    bytes.is_ascii() || std::str::from_utf8(bytes).is_ok_and(&mut are_whole)
}

/// The part of the bytes that a field of a type shows.
pub fn shown(ty: FieldType, bytes: &[u8]) -> Cow<'_, [u8]> {
    match ty {
        FieldType::Char(_) => utf8(until_nul(bytes)),
        FieldType::Utf8 | FieldType::Json => utf8(bytes),
        _ => Cow::Borrowed(bytes),
    }
}

/// Fills the column of an ENUM of these texts, from the numbers that stand for them.
pub fn members(
    out: &mut Output<'_>,
    at: At,
    texts: &[&str],
    numbers: impl ExactSizeIterator<Item = i128>,
    labels: &Labels,
) -> Result<()> {
    let place = |number: i128| {
        let label = labels.text(number);
        let place = texts.iter().position(|text| text.as_bytes() == &*label);
        place.ok_or_else(|| {
            Problem::input(format!(
                "cannot show the number {number} of an ENUM: a later release of Loom recorded it; use the extension of that release, or labels := false"
            ))
        })
    };
    let column = out.column::<u8>(at.position, at.from, numbers.len())?;
    for (entry, number) in column.iter_mut().zip(numbers) {
        entry.write(place(number)? as u8);
    }
    Ok(())
}

/// Fills the column of an integer with labels from its numbers, each in the lowest bytes. The fast path holds while all numbers are small.
pub fn label_column(
    out: &mut Output<'_>,
    at: At,
    ty: FieldType,
    numbers: &[u64],
    labels: &Labels,
) -> Result<()> {
    let text = |number| labels.text(fixed::whole(ty, number));
    if out.keyed(at.position, at.from, numbers, text)? {
        return Ok(());
    }
    let column = out.short_strings(at.position, at.from, numbers.len())?;
    let other = labels.entries.len() - 1;
    let mut greatest = 0;
    for (entry, number) in column.iter_mut().zip(numbers) {
        // This loop has no branch for each number.
        let nth = (*number as usize).min(other);
        entry.write(*proven::at(&labels.entries, nth));
        greatest = greatest.max(*number);
    }
    if greatest < other as u64 {
        return Ok(());
    }
    let whole = |number: &u64| fixed::whole(ty, *number);
    write_labels(out, at, numbers.iter().map(whole), labels)
}

/// Writes the texts of numbers.
fn write_labels(
    out: &mut Output<'_>,
    at: At,
    numbers: impl ExactSizeIterator<Item = i128> + Clone,
    labels: &Labels,
) -> Result<()> {
    let entries = out.short_strings(at.position, at.from, numbers.len())?;
    let mut all_short = true;
    for (entry, number) in entries.iter_mut().zip(numbers.clone()) {
        match labels.short(number) {
            Some(short) => drop(entry.write(short)),
            None => all_short = false,
        }
    }
    if all_short {
        return Ok(());
    }
    out.strings(
        at.position,
        at.from,
        (numbers.map(|number| labels.text(number)))
            .collect::<Vec<_>>()
            .iter(),
    )
}

/// The texts of a field's numbers; those of small numbers are ready to be written.
pub struct Labels {
    small: Vec<Small>,
    /// The entries for 0 and up, as long as their texts are short, and then one for all other numbers.
    entries: Vec<StringEntry>,
    all: HashMap<i128, String>,
}

struct Small {
    text: String,
    /// Returns `None` if the text is too long for an entry.
    entry: Option<StringEntry>,
}

impl Labels {
    const SMALL: i128 = 256;

    pub fn of(field: &FieldDef) -> Labels {
        let all: HashMap<i128, String> = field
            .labels
            .iter()
            .map(|(number, label)| (*number, label.clone()))
            .collect();
        let small = (0..Labels::SMALL).map(|number| {
            let text = all
                .get(&number)
                .cloned()
                .unwrap_or_else(|| number.to_string());
            Small {
                entry: (text.len() <= INLINE_BYTES).then(|| StringEntry::inline(text.as_bytes())),
                text,
            }
        });
        let small: Vec<Small> = small.collect();
        let positive = match field.ty {
            // Bytes from 128 on are negative.
            FieldType::I8 => i8::MAX as usize + 1,
            _ => small.len(),
        };
        let short = small.iter().take(positive);
        let short = short.map_while(|small| small.entry);
        Labels {
            entries: short.chain([StringEntry::inline(b"")]).collect(),
            small,
            all,
        }
    }

    fn small(&self, number: i128) -> Option<&Small> {
        self.small.get(usize::try_from(number).ok()?)
    }

    fn short(&self, number: i128) -> Option<StringEntry> {
        self.small(number)?.entry
    }

    /// The label of a number, or the number.
    pub fn text(&self, number: i128) -> Cow<'_, [u8]> {
        if let Some(small) = self.small(number) {
            return Cow::Borrowed(small.text.as_bytes());
        }
        match self.all.get(&number) {
            Some(label) => Cow::Borrowed(label.as_bytes()),
            None => Cow::Owned(number.to_string().into_bytes()),
        }
    }
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    memchr::memchr(0, bytes)
        .and_then(|end| bytes.get(..end))
        .unwrap_or(bytes)
}

/// Replaces invalid UTF-8.
fn utf8(bytes: &[u8]) -> Cow<'_, [u8]> {
    // Most texts are, and this is much faster for short ones.
    if bytes.is_ascii() {
        return Cow::Borrowed(bytes);
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => Cow::Borrowed(bytes),
        Err(_) => Cow::Owned(String::from_utf8_lossy(bytes).into_owned().into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_end_at_the_first_nul_and_are_made_utf8() {
        assert_eq!(until_nul(b"ab\0cd\0"), b"ab");
        assert_eq!(until_nul(b"abcd"), b"abcd");
        assert_eq!(&*utf8("h\u{e9}".as_bytes()), "h\u{e9}".as_bytes());
        assert_eq!(&*utf8(b"a\xffb"), "a\u{fffd}b".as_bytes());
    }

    #[test]
    fn strings_that_are_utf8_only_together_are_no_texts() {
        let bytes = "aé".as_bytes();
        assert!(are_texts(bytes, [0, 1].into_iter()));
        assert!(!are_texts(bytes, [0, 2].into_iter()));
        assert!(!are_texts(b"a\xC3", [0, 1].into_iter()));
        assert!(are_texts(b"ab", [0, 0, 1, 2].into_iter()));
    }

    #[test]
    fn a_number_without_a_label_shows_as_itself() {
        let mut field = FieldDef::new("op", FieldType::I32);
        field.labels.insert(1, "GET".into());
        field.labels.insert(2, "longer than an entry".into());
        field.labels.insert(-70_000, "LOST".into());
        let labels = Labels::of(&field);
        assert_eq!(&*labels.text(1), b"GET");
        assert_eq!(&*labels.text(-70_000), b"LOST");
        assert_eq!(&*labels.text(3), b"3");
        assert_eq!(&*labels.text(-1), b"-1");
        assert!(labels.short(1).is_some() && labels.short(3).is_some());
        assert!(labels.short(2).is_none() && labels.short(-1).is_none());
    }
}
