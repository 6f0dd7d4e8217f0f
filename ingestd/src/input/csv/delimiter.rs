//! The delimiter of CSV: the one of four that its first lines agree on.

use std::path::Path;

use super::row::{Found, find};

/// Those that are looked for; the first of equals is taken.
const CANDIDATES: [u8; 4] = *b",\t;|";
/// How many rows are looked at.
const ROWS_MAX: usize = 32;

/// By the end of a name.
pub(super) fn of_name(name: &Path) -> Option<u8> {
    match name.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "tsv" => Some(b'\t'),
        "psv" => Some(b'|'),
        _ => None,
    }
}

/// By the rows at hand, of which the first is complete. Rows of one length show a delimiter better than a first row of many columns;
/// `named` is the delimiter by the file's name, which decides where rows do not.
pub(super) fn of_rows(data: &[u8], ended: bool, named: Option<u8>) -> u8 {
    let mut best = (named.unwrap_or(b','), (false, 1, named.is_some()));
    for delimiter in CANDIDATES {
        let lengths = lengths(data, delimiter, ended);
        let Some(first) = lengths.first().copied().filter(|first| *first > 1) else {
            continue;
        };
        let agree = lengths.iter().all(|length| *length == first);
        let rank = (agree, first, named == Some(delimiter));
        if rank > best.1 {
            best = (delimiter, rank);
        }
    }
    best.0
}

/// The number of columns of each of the first rows.
fn lengths(data: &[u8], delimiter: u8, ended: bool) -> Vec<usize> {
    let mut lengths = Vec::new();
    let (mut rest, mut spans) = (data, Vec::new());
    while lengths.len() < ROWS_MAX {
        let Found::Row { bytes, .. } = find(rest, delimiter, ended, &mut spans) else {
            break;
        };
        let row = rest.get(..bytes).unwrap_or_default();
        if !row.trim_ascii().is_empty() {
            lengths.push(spans.len());
        }
        rest = rest.get(bytes..).unwrap_or_default();
    }
    lengths
}

/// What messages call it.
pub(super) fn shown(delimiter: u8) -> String {
    match delimiter {
        b'\t' => "tabs".to_owned(),
        other => format!("'{}'", char::from(other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_agree_show_the_delimiter() {
        for (text, delimiter) in [
            ("a,b\n1,2\n", b','),
            ("a;b\n1,5;2,5\n3,5;4,5\n", b';'),
            ("time, local;value\n1;2\n3;4\n", b';'),
            ("a\tb\n\"x\ty\"\t2\n", b'\t'),
            ("a|b|c\n1|2|3\n", b'|'),
            ("a\n1\n", b','),
            ("a;b;c,d\n1;2\n", b';'),
        ] {
            assert_eq!(of_rows(text.as_bytes(), true, None), delimiter, "{text:?}");
        }
        assert_eq!(of_rows(b"a\n1\n", true, Some(b'\t')), b'\t');
        assert_eq!(of_rows(b"a,b\n1,2\n", true, Some(b'\t')), b',');
    }
}
