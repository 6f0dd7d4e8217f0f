//! A fast path for objects that have the same keys in the same order as the one before and no nested values, as most lines have.
//!
//! `keys` calls it before the parser. It either reads the same values as the parser, or leaves the line to the parser, including every error.

use memchr::memchr2;

use super::values::Values;

/// Whether a key needs no escapes.
pub(super) fn is_plain(key: &str) -> bool {
    !key.bytes()
        .any(|byte| matches!(byte, b'"' | b'\\' | ..0x20))
}

/// Splits an object with exactly these plain keys, each with its number; `None` for any other object, after which `values` are undefined.
pub(super) fn read<'a, 'n>(
    text: &'a str,
    keys: impl Iterator<Item = (usize, &'n str)>,
    values: &mut Values<'a>,
) -> Option<()> {
    values.reset();
    let mut rest = text.strip_prefix('{')?;
    for (place, (number, key)) in keys.enumerate() {
        if place > 0 {
            rest = without_space(rest.strip_prefix(',')?);
        }
        rest = rest.strip_prefix('"')?.strip_prefix(key)?;
        rest = without_space(rest.strip_prefix("\":")?);
        let (value, behind) = rest.split_at_checked(value_bytes(rest.as_bytes())?)?;
        values.set(number, value);
        rest = behind;
    }
    (matches!(rest, "}" | "}\r") && values.are_single()).then_some(())
}

/// Some writers put a space after commas and colons.
fn without_space(text: &str) -> &str {
    text.strip_prefix(' ').unwrap_or(text)
}

/// The length of the value at the start of the text; `None` for objects, arrays, strings with escapes and numbers with an exponent.
fn value_bytes(text: &[u8]) -> Option<usize> {
    match text.first()? {
        b'"' => {
            let inner = text.get(1..)?;
            let end = memchr2(b'"', b'\\', inner)?;
            let least = inner.get(..end)?.iter().min();
            let is_plain = inner.get(end) == Some(&b'"') && least.is_none_or(|byte| *byte >= 0x20);
            is_plain.then_some(end + 2)
        }
        b'-' | b'0'..=b'9' => number_bytes(text),
        _ => {
            let words: [&[u8]; 3] = [b"true", b"false", b"null"];
            let word = words.into_iter().find(|word| text.starts_with(word))?;
            Some(word.len())
        }
    }
}

fn number_bytes(text: &[u8]) -> Option<usize> {
    let digits = |from| {
        let rest: &[u8] = text.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let start = usize::from(text.starts_with(b"-"));
    let whole = digits(start);
    if whole == 0 || whole > 1 && text.get(start) == Some(&b'0') {
        return None;
    }
    let end = start + whole;
    if text.get(end) != Some(&b'.') {
        return Some(end);
    }
    let fraction = digits(end + 1);
    (fraction > 0).then_some(end + 1 + fraction)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::de::StrRead;

    use super::super::super::columns::Column;
    use super::super::keys::Keys;
    use super::super::object::parse_object;
    use super::*;
    use loom_engine::schema::FieldType;

    /// The parser's values of keys `a` and `b`; `None` for other texts.
    fn parsed(text: &str) -> Option<Vec<Option<String>>> {
        let columns = ["a", "b"].map(|name| Column::new(name, FieldType::Json, true));
        let mut values = Values::with_capacity(2);
        parse_object(StrRead::new(text), &mut values, &mut Keys::new(&columns)).ok()?;
        Some(owned(&values))
    }

    fn owned(values: &Values<'_>) -> Vec<Option<String>> {
        values
            .iter()
            .map(|value| value.map(str::to_owned))
            .collect()
    }

    fn alike(text: &str) -> Option<Vec<Option<String>>> {
        let mut values = Values::with_capacity(2);
        read(text, [(0, "a"), (1, "b")].into_iter(), &mut values)?;
        Some(owned(&values))
    }

    #[test]
    fn flat_objects_of_the_same_keys_are_read_and_others_left() {
        for text in [
            r#"{"a":1,"b":"x"}"#,
            r#"{"a": -0.25, "b": null}"#,
            "{\"a\":true,\"b\":\"\"}\r",
        ] {
            assert!(alike(text).is_some(), "{text}");
        }
        for text in [
            r#"{"b":1,"a":2}"#,
            r#"{"a":1}"#,
            r#"{"a":1,"b":2,"c":3}"#,
            r#"{"a":1,"b":{}}"#,
            r#"{"a":1,"b":[]}"#,
            r#"{"a":1,"b":"\n"}"#,
            r#"{"a":1,"b":1e5}"#,
            r#"{"a":1,"b":01}"#,
            r#"{"a":1,"b":-}"#,
            r#"{"a":1,"b":1.}"#,
            r#"{"a":1,"b":"x}"#,
            "{\"a\":1,\"b\":\"\t\"}",
            r#"{"a":1,"b":2}}"#,
            r#"{"a":1"b":2}"#,
            "",
        ] {
            assert_eq!(alike(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_it_reads_the_parser_reads_alike(
            text in r#"\{"a": ?(-?[0-9.]{1,4}|"[a \\"ä\n]{0,3}"|true|nul{1,2}|[\[{]),? ?"b":("[^\\]{0,4}"|[0-9.e]{0,4})\}"#
        ) {
            if let Some(read) = alike(&text) {
                prop_assert_eq!(Some(read), parsed(&text), "{}", text);
            }
        }
    }
}
