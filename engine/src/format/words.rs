//! The words of a text: the short pieces of it that a look-up holds (FORMAT.md, *Look-ups*). Whoever asks for a part of a text asks for the pieces that
//! lie within the part, as every text that contains it has them.
//!
//! A *run* is an unbroken sequence of ASCII letters and digits in lower case. Other characters end a run, apart from the four that some of DuckDB's
//! functions take for an ASCII letter in another case. So no table of Unicode decides what a file holds.

use std::borrow::Cow;

use memchr::memmem;

use super::lookup::hash_of_bytes;

/// The length of a gram. In a shorter run, the run is a gram.
const GRAM: usize = 4;
/// The length of a long gram, and of how many neighbours one is held. So all parts of eight letters and digits have one.
const LONG_GRAM: usize = 6;
const NEIGHBOURS: usize = 3;

/// Whether the two cases of a letter are the same.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Case {
    Sensitive,
    /// Every character outside ASCII is equal to every other, so a test may hold of more texts than in any library.
    Insensitive,
}

impl Case {
    /// Whether a text contains a part. Bytes that are not UTF-8 are in no part.
    pub fn contains(self, text: &[u8], part: &str) -> bool {
        match self {
            Case::Sensitive => memmem::find(text, part.as_bytes()).is_some(),
            Case::Insensitive => folded_text(text).contains(&folded_text(part.as_bytes())),
        }
    }
}

fn folded_text(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars().map(folded).collect()
}

fn folded(letter: char) -> char {
    match letter {
        'İ' | 'ı' => 'i',
        'ſ' => 's',
        '\u{212A}' => 'k',
        letter if letter.is_ascii() => letter.to_ascii_lowercase(),
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// Calls `each` with the hashes of the words of a text; some repeat.
pub fn each_word(text: &[u8], each: &mut impl FnMut(u64)) {
    each_run(text, &mut |run, _| {
        each_gram(run, each);
        if run.len() < GRAM {
            each(hash_of_bytes(run));
        }
    });
}

/// The hashes of the words of every text that contains this part, in upper or lower case.
pub fn words_within(part: &[u8]) -> Vec<u64> {
    let mut hashes = Vec::new();
    each_run(part, &mut |run, is_whole| {
        each_gram(run, &mut |hash| hashes.push(hash));
        if is_whole && run.len() < GRAM {
            hashes.push(hash_of_bytes(run));
        }
    });
    hashes.sort_unstable();
    hashes.dedup();
    hashes
}

/// Calls `each` with every run, and whether the text goes on before it and behind it.
fn each_run(text: &[u8], each: &mut impl FnMut(&[u8], bool)) {
    let text = match text.is_ascii() {
        true => Cow::Borrowed(text),
        false => {
            let letters = String::from_utf8_lossy(text);
            let letters = letters.chars().map(folded);
            Cow::Owned(
                letters
                    .map(|letter| u8::try_from(letter).unwrap_or(0))
                    .collect(),
            )
        }
    };
    let mut run = Vec::new();
    let mut runs = text.split(|byte| !byte.is_ascii_alphanumeric()).peekable();
    let mut is_first = true;
    while let Some(of_text) = runs.next() {
        if !of_text.is_empty() {
            run.clear();
            run.extend(of_text.iter().map(u8::to_ascii_lowercase));
            each(&run, !is_first && runs.peek().is_some());
        }
        is_first = false;
    }
}

/// The grams of a run. Numbers are so many that a unit holds all short ones: they have long grams alone, of which one in some neighbours is held, the one
/// with the least hash.
fn each_gram(run: &[u8], each: &mut impl FnMut(u64)) {
    let is_number = |gram: &[u8]| gram.iter().all(u8::is_ascii_hexdigit) && has_digit(gram);
    let grams = run.windows(GRAM).filter(|gram| !is_number(gram));
    grams.for_each(|gram| each(hash_of_bytes(gram)));
    if !has_digit(run) {
        return;
    }
    let mut last = None;
    for near in run.windows(LONG_GRAM + NEIGHBOURS - 1) {
        let grams = near.windows(LONG_GRAM);
        let grams = grams.map(|gram| (hash_of_bytes(gram), gram));
        let least = grams.min_by_key(|(hash, _)| *hash);
        let least =
            least.filter(|(hash, gram)| last.replace(*hash) != Some(*hash) && has_digit(gram));
        if let Some((hash, _)) = least {
            each(hash);
        }
    }
}

fn has_digit(gram: &[u8]) -> bool {
    gram.iter().any(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn words(text: &[u8]) -> BTreeSet<u64> {
        let mut found = BTreeSet::new();
        each_word(text, &mut |hash| {
            found.insert(hash);
        });
        found
    }

    fn hashes(words: &[&str]) -> BTreeSet<u64> {
        words
            .iter()
            .map(|word| hash_of_bytes(word.as_bytes()))
            .collect()
    }

    /// Texts that share words, with letters outside ASCII and bytes that are not UTF-8.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let pieces = [
            "timeout", "TIMEOUT", "Time", "out", "oom", "K8S", "eth0", "7f3a9b2c", "41d4", "2026",
            " ", "-", "_", "=", "é", "É", "İ", "ı", "ſ", "\u{212A}", "ß", "時", "\u{FFFD}",
        ];
        let piece = prop::sample::select(pieces.map(str::as_bytes).to_vec());
        let broken = prop::sample::select(vec![&b"\xff"[..], b"\xe2\x84", b"\xc4"]);
        let letter = prop::sample::select(
            b"abt0179"
                .iter()
                .map(std::slice::from_ref)
                .collect::<Vec<_>>(),
        );
        let any = prop_oneof![8 => piece, 1 => broken, 4 => letter];
        prop::collection::vec(any, 0..12).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn a_text_has_the_words_of_all_its_parts(text in text(), from in 0_usize..40, length in 0_usize..40) {
            let shown = String::from_utf8_lossy(&text);
            let part: String = shown.chars().skip(from).take(length).collect();
            let held = words(&text);
            for part in [part.to_uppercase(), part.to_lowercase(), part] {
                if !Case::Insensitive.contains(&text, &part) {
                    continue;
                }
                let missing = words_within(part.as_bytes()).into_iter().find(|word| !held.contains(word));
                prop_assert!(missing.is_none(), "{:?} in {:?}", part, shown);
            }
        }

        #[test]
        fn what_contains_a_part_does_so_in_any_case(text in text(), part in text()) {
            if let Ok(part) = std::str::from_utf8(&part) {
                let is_in = text.windows(part.len().max(1)).any(|held| held == part.as_bytes());
                prop_assert_eq!(Case::Sensitive.contains(&text, part), is_in || part.is_empty());
                prop_assert!(!is_in || Case::Insensitive.contains(&text, part));
            }
        }
    }

    #[test]
    fn words_are_grams_of_runs() {
        assert_eq!(
            words(b"A Timeout: OOM"),
            hashes(&["a", "time", "imeo", "meou", "eout", "oom"])
        );
        // Only numbers of eight and more digits have words.
        assert_eq!(words(b"1234 12345f"), hashes(&[]));
        let number = words(b"12345678");
        assert_eq!(number.len(), 1);
        assert!(number.is_subset(&hashes(&["123456", "234567", "345678"])));
        assert_eq!(words(b"eth0 404"), hashes(&["eth0", "404"]));
        let within = |part| BTreeSet::from_iter(words_within(str::as_bytes(part)));
        assert_eq!(within("oom"), hashes(&[]));
        assert_eq!(within(" OOM "), hashes(&["oom"]));
        assert_eq!(within("meout oom x"), hashes(&["meou", "eout", "oom"]));
    }

    #[test]
    fn letters_in_another_case_are_the_same_letters() {
        let contains = |text: &str, part| Case::Insensitive.contains(text.as_bytes(), part);
        assert!(contains("TIMEOUT", "meou") && contains("timeout", "MEOU"));
        assert!(contains("\u{212A}8S ſecret İd", "k8s secret id"));
        assert!(contains("ÉTÉ", "été") && !contains("ete", "été"));
        assert_eq!(words("ſecret".as_bytes()), words(b"SECRET"));
    }
}
