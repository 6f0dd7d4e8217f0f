//! Tests of texts that do not compare each row with each constant.

use crate::proven::{at, at_mut};
use crate::schema::{Expr, Layout, Op};

/// The words of the longest values whose verdicts are kept.
pub(super) const WORDS_MOST: usize = 2;

/// Texts, one of which a row must have.
pub(super) struct Texts<'a> {
    /// In ascending order.
    texts: Vec<&'a [u8]>,
    /// A bit for each hash that one of them has. Most other texts have none of these hashes.
    hashes: Vec<u64>,
}

impl<'a> Texts<'a> {
    /// Bits for each text. It decides how many other texts are compared.
    const BITS_OF_TEXT: usize = 64;
    const BITS_MOST: usize = 1 << 20;

    /// The field and the texts of alternatives that all compare one field with a text; `None` if they do something else, or if there is only one.
    pub fn of(alternatives: &'a [Expr]) -> Option<(usize, Texts<'a>)> {
        let equal = |test: &'a Expr| match test {
            Expr::Bytes {
                field,
                op: Op::Eq,
                bytes,
            } => Some((*field, bytes.as_slice())),
            _ => None,
        };
        let (field, _) = equal(alternatives.first()?)?;
        let texts = alternatives.iter().map(|test| {
            let (of, text) = equal(test)?;
            (of == field).then_some(text)
        });
        let mut texts = texts.collect::<Option<Vec<_>>>()?;
        if texts.len() < 2 {
            return None;
        }
        texts.sort_unstable();
        let bits = (texts.len() * Texts::BITS_OF_TEXT).next_power_of_two();
        let mut hashes = vec![0; bits.min(Texts::BITS_MOST) / 64];
        for text in &texts {
            let (word, bit) = place(hash(text), hashes.len());
            *at_mut(&mut hashes, word) |= bit;
        }
        Some((field, Texts { texts, hashes }))
    }

    #[inline]
    pub fn contains(&self, text: &[u8]) -> bool {
        let (word, bit) = place(hash(text), self.hashes.len());
        *at(&self.hashes, word) & bit != 0 && self.texts.binary_search(&text).is_ok()
    }
}

/// A hash of a text's length and both of its ends.
#[inline]
fn hash(text: &[u8]) -> u64 {
    let (first, last) = match (text.first_chunk(), text.last_chunk()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => (
            text.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
            0,
        ),
    };
    mixed([first, last ^ text.len() as u64])
}

#[inline]
fn mixed([first, second]: [u64; 2]) -> u64 {
    const ODD: u64 = 0x9E37_79B9_7F4A_7C15;
    (first.wrapping_mul(ODD) ^ second.rotate_left(32)).wrapping_mul(ODD)
}

/// The word of a hash among `words`, a power of two, and its bit.
#[inline]
fn place(hash: u64, words: usize) -> (usize, u64) {
    let word = (hash >> 32) as usize & (words - 1);
    (word, 1 << (hash >> 58))
}

/// The verdicts about values in one place of at most [`WORDS_MOST`] words. A field often has few values, so the last ones are remembered.
pub(super) struct Verdicts {
    width: usize,
    known: [Verdict; Verdicts::KNOWN],
}

#[derive(Copy, Clone)]
struct Verdict {
    value: [u64; WORDS_MOST],
    /// `None` if no value is known here.
    passes: Option<bool>,
}

impl Verdicts {
    const KNOWN: usize = 64;

    /// # Panics
    /// Panics if the field has no fixed width.
    pub fn of(layout: &Layout, field: usize) -> Verdicts {
        let slot = layout.slot(field).expect("the layout has the field");
        let width = slot.ty.fixed_bytes();
        Verdicts {
            width: width.expect("a value in one place has a fixed width"),
            known: [Verdict {
                value: [0; WORDS_MOST],
                passes: None,
            }; Verdicts::KNOWN],
        }
    }

    /// Whether a value passes.
    #[inline]
    pub fn of_value(&mut self, value: [u64; WORDS_MOST], passes: impl Fn(&[u8]) -> bool) -> bool {
        let known = at_mut(&mut self.known, (mixed(value) >> 58) as usize);
        if let (Some(passes), true) = (known.passes, known.value == value) {
            return passes;
        }
        let mut bytes = [0; 8 * WORDS_MOST];
        for (to, word) in bytes.chunks_exact_mut(8).zip(value) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        let verdict = passes(at(&bytes, ..self.width));
        *known = Verdict {
            value,
            passes: Some(verdict),
        };
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testkit::Random;

    fn equal(field: usize, text: &[u8]) -> Expr {
        Expr::Bytes {
            field,
            op: Op::Eq,
            bytes: text.to_vec(),
        }
    }

    /// Texts of few letters, so that beginnings, ends and lengths are often equal.
    #[test]
    fn texts_are_found_exactly_if_they_are_among_the_alternatives() {
        let mut random = Random(11);
        let mut text = || -> Vec<u8> {
            let length = random.below(20);
            (0..length)
                .map(|_| b"ab\0"[random.below(3) as usize])
                .collect()
        };
        let mut found = 0;
        for count in [2, 3, 20, 700] {
            let texts: Vec<Vec<u8>> = (0..count).map(|_| text()).collect();
            let tests: Vec<Expr> = texts.iter().map(|text| equal(3, text)).collect();
            let (field, set) = Texts::of(&tests).unwrap();
            assert_eq!(field, 3);
            for text in texts.iter().cloned().chain((0..2000).map(|_| text())) {
                assert_eq!(set.contains(&text), texts.contains(&text), "{text:?}");
                found += u32::from(set.contains(&text));
            }
        }
        assert!((725..6000).contains(&found), "{found}");
    }

    #[test]
    fn alternatives_of_other_kinds_are_no_texts() {
        let (one, two) = (equal(1, b"a"), equal(1, b"b"));
        let other = Expr::Bytes {
            field: 1,
            op: Op::Gt,
            bytes: b"a".to_vec(),
        };
        assert!(Texts::of(&[]).is_none());
        assert!(Texts::of(std::slice::from_ref(&one)).is_none());
        assert!(Texts::of(&[one.clone(), equal(2, b"b")]).is_none());
        assert!(Texts::of(&[one.clone(), other]).is_none());
        assert!(Texts::of(&[one, two]).is_some());
    }
}
