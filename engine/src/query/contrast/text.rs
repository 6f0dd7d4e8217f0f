//! Texts as keys of counts. Most are short, so their first bytes lie in two numbers, which are compared and hashed at once.

use std::hash::{Hash, Hasher};
use std::ops::Range;

use hashbrown::Equivalent;

use crate::proven::at;

/// The bytes of a text in its head.
const HEAD_BYTES: usize = 16;
/// The highest bit of each byte, which ASCII does not set.
const NOT_ASCII: u64 = u64::from_ne_bytes([0x80; 8]);

/// The first bytes of a text, with zeros behind its end.
type Head = [u64; HEAD_BYTES / 8];

/// A text that has a count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Text {
    head: Head,
    length: usize,
    /// The bytes that are not in the head. A short text needs no allocation.
    rest: Box<[u8]>,
}

/// A text of a row.
#[derive(Copy, Clone)]
pub struct TextRef<'a> {
    head: Head,
    bytes: &'a [u8],
}

impl<'a> TextRef<'a> {
    pub fn of(bytes: &'a [u8]) -> TextRef<'a> {
        let mut head = [0; HEAD_BYTES];
        for (to, from) in head.iter_mut().zip(bytes) {
            *to = *from;
        }
        TextRef {
            head: words(head),
            bytes,
        }
    }

    /// The text at a place among others. It loads whole words, because lengths cannot be predicted.
    #[inline]
    pub fn within(all: &'a [u8], place: &Range<u32>) -> TextRef<'a> {
        let (start, end) = (place.start as usize, place.end as usize);
        let bytes = at(all, start..end);
        let Some(head) = at(all, start..).first_chunk() else {
            return TextRef::of(bytes);
        };
        let [first, second] = words(*head);
        let behind = bytes.len().saturating_sub(8);
        TextRef {
            head: [first & lowest(bytes.len()), second & lowest(behind)],
            bytes,
        }
    }

    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    #[inline]
    pub fn is_ascii(self) -> bool {
        let [first, second] = self.head;
        (first | second) & NOT_ASCII == 0
            && (self.bytes.len() <= HEAD_BYTES || self.rest().is_ascii())
    }

    /// The bytes that are not in the head.
    #[inline]
    fn rest(self) -> &'a [u8] {
        self.bytes.get(HEAD_BYTES..).unwrap_or(&[])
    }
}

impl Text {
    pub fn to_vec(&self) -> Vec<u8> {
        let head = self.head.map(u64::to_le_bytes);
        let head = at(head.as_flattened(), ..self.length.min(HEAD_BYTES));
        [head, &self.rest].concat()
    }
}

impl From<TextRef<'_>> for Text {
    fn from(text: TextRef<'_>) -> Text {
        Text {
            head: text.head,
            length: text.bytes.len(),
            rest: text.rest().into(),
        }
    }
}

impl Equivalent<Text> for TextRef<'_> {
    #[inline]
    fn equivalent(&self, held: &Text) -> bool {
        self.head == held.head
            && self.bytes.len() == held.length
            && (held.rest.is_empty() || self.rest() == &*held.rest)
    }
}

impl Hash for TextRef<'_> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_parts(self.head, self.rest(), state);
    }
}

impl Hash for Text {
    fn hash<H: Hasher>(&self, state: &mut H) {
        hash_parts(self.head, &self.rest, state);
    }
}

/// Texts that differ only in zeros at the end of the head have one hash.
#[inline]
fn hash_parts([first, second]: Head, rest: &[u8], state: &mut impl Hasher) {
    state.write_u128(u128::from(first) | u128::from(second) << 64);
    if !rest.is_empty() {
        state.write(rest);
    }
}

#[inline]
fn words(head: [u8; HEAD_BYTES]) -> Head {
    let all = u128::from_le_bytes(head);
    [all as u64, (all >> 64) as u64]
}

/// The lowest bytes of a word, at most all.
#[inline]
fn lowest(bytes: usize) -> u64 {
    !u64::MAX.checked_shl(bytes as u32 * 8).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use ahash::RandomState;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        // The naive form compares bytes.
        #[test]
        fn texts_are_equal_as_their_bytes_are(
            all in prop::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(0xC3)], 0..60),
            ends in prop::array::uniform4(0usize..60),
        ) {
            let [a, b, c, d] = ends.map(|end| end.min(all.len()));
            let [one, other] = [a.min(b)..a.max(b), c.min(d)..c.max(d)];
            let [of_one, of_other] = [&one, &other].map(|place| TextRef::within(&all, &(place.start as u32..place.end as u32)));
            let (one, other) = (&all[one], &all[other]);
            let held = Text::from(TextRef::of(other));
            let hasher = RandomState::new();
            prop_assert_eq!(of_one.bytes(), one);
            prop_assert_eq!(of_one.is_ascii(), one.is_ascii());
            prop_assert_eq!(of_one.equivalent(&held), one == other);
            prop_assert_eq!(hasher.hash_one(of_other), hasher.hash_one(&held));
        }
    }
}
