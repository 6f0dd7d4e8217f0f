//! The strings of a row group if few of them differ: each different one once, and the number of the one that each row has.

use crate::format::lookup::hash_of_bytes;
use crate::proven::{at, at_mut};

/// At most this many strings differ.
const DIFFERENT_MOST: usize = 256;
/// Each different string stands for at least this many rows on average; with fewer, compressed strings are as short.
const ROWS_EACH_LEAST: usize = 4;
const SLOTS: usize = 1024;
/// Marks a slot without a string.
const EMPTY: u16 = u16::MAX;

/// Finds the different strings of a row group and keeps its memory.
#[derive(Default)]
pub struct SharedStrings {
    /// The lengths of the different strings, in the order of the first rows that have them.
    pub lengths: Vec<u64>,
    /// The bytes of the different strings.
    pub bytes: Vec<u8>,
    /// The number of each row's string among the different ones.
    pub codes: Vec<u64>,
    ends: Vec<usize>,
}

impl SharedStrings {
    /// Takes the strings of all rows, which lie side by side. Returns false if too many differ.
    pub fn find(&mut self, bytes: &[u8], lengths: &[u64]) -> bool {
        let most = DIFFERENT_MOST.min(lengths.len() / ROWS_EACH_LEAST);
        let mut slots = [EMPTY; SLOTS];
        self.lengths.clear();
        self.bytes.clear();
        self.codes.clear();
        self.ends.clear();
        let mut rest = bytes;
        for length in lengths {
            let string;
            (string, rest) = rest.split_at(*length as usize);
            let mut slot = hash_of_bytes(string) as usize;
            let code = loop {
                let held = at_mut(&mut slots, slot % SLOTS);
                if *held == EMPTY {
                    if self.ends.len() == most {
                        return false;
                    }
                    *held = self.ends.len() as u16;
                    self.lengths.push(*length);
                    self.bytes.extend_from_slice(string);
                    self.ends.push(self.bytes.len());
                }
                if self.string((*held).into()) == string {
                    break *held;
                }
                slot += 1;
            };
            self.codes.push(code.into());
        }
        true
    }

    fn string(&self, nth: usize) -> &[u8] {
        let start = nth.checked_sub(1).map_or(0, |nth| *at(&self.ends, nth));
        at(&self.bytes, start..*at(&self.ends, nth))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn few_strings_are_found_as_by_comparing_all(
            kinds in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 1..400),
            rows in prop::collection::vec(any::<prop::sample::Index>(), 1..1600),
            few in 1..400usize,
        ) {
            let kinds = &kinds[..few.min(kinds.len())];
            let strings: Vec<&[u8]> = rows.iter().map(|row| row.get(kinds).as_slice()).collect();
            let lengths: Vec<u64> = strings.iter().map(|string| string.len() as u64).collect();
            let mut different: Vec<&[u8]> = Vec::new();
            for string in &strings {
                if !different.contains(string) {
                    different.push(string);
                }
            }
            let mut found = SharedStrings::default();
            let are_few = different.len() <= DIFFERENT_MOST.min(strings.len() / ROWS_EACH_LEAST);
            prop_assert_eq!(found.find(&strings.concat(), &lengths), are_few);
            if are_few {
                prop_assert_eq!(&found.bytes, &different.concat());
                let given_back: Vec<&[u8]> = found.codes.iter().map(|code| different[*code as usize]).collect();
                prop_assert_eq!(given_back, strings);
            }
        }
    }
}
