//! Parses the texts of CSV and JSON for a field.
//!
//! A text is accepted only if the parsed value says as much: `007`, `+49` and `1e3` are not integers. `ingestd/docs/load.md` has the table.

use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;

use super::usual_time::usual_time_ns;

pub(crate) fn parse_bool(text: &str) -> Option<bool> {
    match trimmed(text) {
        text if text.eq_ignore_ascii_case("true") => Some(true),
        text if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// Removes white space, which few texts have.
pub(crate) fn trimmed(text: &str) -> &str {
    match text.as_bytes() {
        [b'!'..=b'~', .., b'!'..=b'~'] | [b'!'..=b'~'] => text,
        _ => text.trim(),
    }
}

/// Parses an integer in its printed form.
pub(crate) fn parse_integer<T: std::str::FromStr>(text: &str) -> Option<T> {
    let text = trimmed(text);
    text.parse().ok().filter(|_| text != "-0" && !is_name(text))
}

/// Whether digits are a name rather than a number: `007` is not 7, and `+49` is not 49.
pub(crate) fn is_name(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text).as_bytes();
    matches!(digits, [b'+', ..] | [b'0', b'0'..=b'9', ..])
}

/// Parses a text for a field of times: a date, a date and time, or an integer that can only be nanoseconds. Fewer digits may be another unit, or a
/// date without dashes.
pub(crate) fn parse_field_time_ns(text: &str) -> Option<i64> {
    const NS_MIN: u64 = 100_000_000_000_000_000;
    let is_ns = |ns: &i64| *ns == 0 || ns.unsigned_abs() >= NS_MIN;
    match parse_integer(text) {
        Some(ns) => Some(ns).filter(is_ns),
        None => parse_date_ns(trimmed(text)),
    }
}

/// Parses a date, a date and time with or without a zone (UTC), or integer nanoseconds since the Unix epoch.
pub fn parse_timestamp_ns(text: &str) -> Option<i64> {
    let text = trimmed(text);
    text.parse().ok().or_else(|| parse_date_ns(text))
}

/// Parses a date or a date and time, with or without seconds.
fn parse_date_ns(text: &str) -> Option<i64> {
    if let Some(ns) = usual_time_ns(text) {
        return Some(ns);
    }
    if let Ok(ns) = string_to_timestamp_nanos(text) {
        // The library moves a leap second to the next minute; `strptime` and others keep it in its day.
        return Some(if is_leap_second(text) {
            ns - 1_000_000_000
        } else {
            ns
        });
    }
    let (minutes, zone) = text.split_at_checked(16)?;
    let no_seconds = minutes.get(13..14) == Some(":")
        && matches!(
            zone.bytes().next(),
            None | Some(b'Z' | b'z' | b'+' | b'-' | b' ')
        );
    let with_seconds = || format!("{minutes}:00{zone}");
    string_to_timestamp_nanos(&no_seconds.then(with_seconds)?).ok()
}

/// Whether a valid time has the second 60: `23:59:60` or `235960`.
fn is_leap_second(text: &str) -> bool {
    let bytes = text.as_bytes();
    let at = |place| bytes.get(place..place + 2) == Some(b"60");
    at(17) && bytes.get(16) == Some(&b':') || at(15)
}

/// Shortens a fraction of more than nine digits to nine; `None` for other texts.
pub(crate) fn nine_digits(text: &str) -> Option<String> {
    let (whole, rest) = text.split_once('.')?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (fraction, rest) = (rest.get(..9)?, rest.get(digits..)?);
    (digits > 9).then(|| format!("{whole}.{fraction}{rest}"))
}

/// Whether a text is a date, with or without a time, outside the range of nanoseconds.
pub(crate) fn is_beyond_nanoseconds(text: &str) -> bool {
    let Some((year, rest)) = text.trim().split_at_checked(4) else {
        return false;
    };
    let is_far = |year: u16| !(1678..2262).contains(&year);
    // The rest is valid if it is valid in a leap year within the range.
    year.bytes().all(|byte| byte.is_ascii_digit())
        && year.parse().is_ok_and(is_far)
        && parse_date_ns(&format!("2000{rest}")).is_some()
}

/// Parses a decimal number times ten to the power of `digits`. Further digits are dropped.
pub(crate) fn parse_decimal(text: &str, digits: u32) -> Option<i64> {
    let text = text.trim();
    if text.contains(['e', 'E']) {
        let float: f64 = text.parse().ok()?;
        // Printed, the float has no exponent and no extra digits.
        return parse_decimal(&format!("{float}"), digits).filter(|_| float.is_finite());
    }
    let (negative, number) = match text.strip_prefix('-') {
        Some(number) => (true, number),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if number.len() <= 1 && !all_digits(number)
        || number.is_empty()
        || !all_digits(whole)
        || !all_digits(fraction)
    {
        return None;
    }
    let kept = fraction.bytes().chain(std::iter::repeat(b'0'));
    let mut all = whole.bytes().chain(kept.take(digits as usize));
    let scaled = all.try_fold(0_i128, |sum, digit| {
        let sum = sum * 10 + i128::from(digit - b'0');
        (sum <= 1 << 64).then_some(sum)
    })?;
    i64::try_from(if negative { -scaled } else { scaled }).ok()
}

/// Whether the parsed float lost the number: it is too large, or too small. Infinity and NaN have letters in their text.
pub(crate) fn is_beyond_float(text: &str, is_zero: bool, is_infinite: bool) -> bool {
    let (mantissa, _) = text.split_once(['e', 'E']).unwrap_or((text, ""));
    let has_digit = |from: u8| mantissa.bytes().any(|byte| (from..=b'9').contains(&byte));
    is_infinite && has_digit(b'0') || is_zero && has_digit(b'1')
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use loom_engine::schema::FieldType;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::input::Format;
    use crate::input::testing::{Loaded, declared, fields, load};

    /// Non-empty cells of one kind.
    fn cells() -> impl Strategy<Value = Vec<String>> {
        let kinds = [
            "[-+]?[0-9]{1,20}",
            "[-+]?0{0,2}[0-9]{0,3}\\.?[0-9]{1,3}([eE][-+]?[0-9]{1,3})?",
            "true|FALSE|True|yes|t|0|1",
            " ?(nan|NaN|inf|-Infinity|Infinity|1|-0|0\\.0) ?",
            "20[0-9]{2}-?[01][0-9]-?[0-3][0-9]([T ][0-2][0-9]:[0-5][0-9](:[0-5][0-9](\\.[0-9]{1,11})?)?(Z|\\+0[0-9]:00)?)?",
            "[ -~]{1,8}",
        ];
        prop::sample::select(kinds.to_vec())
            .prop_flat_map(|kind| prop::collection::vec(kind, 1..20))
    }

    /// Whether the stored value equals the text.
    fn is_same(ty: FieldType, text: &str, stored: &str) -> bool {
        let trimmed = text.trim();
        let digits = trimmed.trim_start_matches('-').as_bytes();
        let is_name = matches!(digits, [b'+', ..] | [b'0', b'0'..=b'9', ..]);
        match ty {
            FieldType::Utf8 | FieldType::Char(_) | FieldType::Json => stored == text,
            FieldType::Bool => stored == trimmed.to_lowercase(),
            FieldType::F32 => {
                let (one, other): (f32, f32) = (trimmed.parse().unwrap(), stored.parse().unwrap());
                !is_name && (one == other || one.is_nan() && other.is_nan())
            }
            FieldType::F64 => {
                let (one, other): (f64, f64) = (trimmed.parse().unwrap(), stored.parse().unwrap());
                !is_name && (one == other || one.is_nan() && other.is_nan())
            }
            FieldType::TimestampNs if stored != trimmed => {
                let date: jiff::civil::Date = trimmed[..10].parse().unwrap();
                let midnight = date.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp();
                let ns = i128::from(stored.parse::<i64>().unwrap()) - midnight.as_nanosecond();
                ns.abs() < 2 * 86_400_000_000_000
            }
            _ => stored == trimmed,
        }
    }

    /// Checks that each row is stored as `is_same` says, or refused and counted.
    fn hold<T>(loaded: &Loaded, given: &[T], is_same: impl Fn(&T, &str) -> bool)
    where
        T: std::fmt::Debug,
    {
        let refused: HashSet<u64> = loaded.refused.iter().map(|(row, _)| *row).collect();
        let kept = given
            .iter()
            .zip(1..)
            .filter(|(_, row)| !refused.contains(row));
        let kept: Vec<&T> = kept.map(|(given, _)| given).collect();
        assert_eq!(kept.len(), loaded.rows.len(), "{given:?}");
        for (given, row) in kept.into_iter().zip(&loaded.rows) {
            let stored = row[0].as_deref().unwrap();
            let ty = loaded.def.fields[0].ty;
            assert!(is_same(given, stored), "{given:?} as {ty} is {stored}");
        }
    }

    fn csv_of(cells: &[String]) -> Vec<u8> {
        let mut writer = ::csv::Writer::from_writer(Vec::new());
        writer.write_record(["x"]).unwrap();
        for cell in cells {
            writer.write_record([cell]).unwrap();
        }
        writer.into_inner().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_value_comes_back_as_it_was_given_or_its_row_is_refused(cells in cells()) {
            // JSON tokens, with the text of those that are strings.
            let string = |cell: &String| (Value::from(cell.as_str()).to_string(), Some(cell.clone()));
            let bare = cells.iter().filter(|cell| {
                let parsed = serde_json::from_str(cell);
                matches!(parsed, Ok(Value::Number(_) | Value::Bool(_)))
            });
            let tokens: Vec<(String, Option<String>)> = cells
                .iter()
                .map(string)
                .chain(bare.map(|cell| (cell.trim().to_owned(), None)))
                .collect();
            let json: String =
                tokens.iter().map(|(token, _)| format!("{{\"x\":{token}}}\n")).collect();
            for ty in [
                "u8", "u64", "i16", "i64", "f32", "f64", "bool", "timestamp_ns", "char[8]", "utf8", "json",
            ] {
                let fields = fields(&format!("x {ty}"));
                let loaded = load(&csv_of(&cells), Format::Csv, declared(&fields));
                let ty = loaded.def.fields[0].ty;
                hold(&loaded, &cells, |cell, stored| is_same(ty, cell, stored));
                let loaded = load(json.as_bytes(), Format::Json, declared(&fields));
                hold(&loaded, &tokens, |(token, string), stored| match (ty, string) {
                    (FieldType::Json, _) => stored == token,
                    (FieldType::Utf8 | FieldType::Char(_) | FieldType::TimestampNs, Some(string)) => {
                        is_same(ty, string, stored)
                    }
                    (_, Some(string)) => {
                        ["NaN", "Infinity", "-Infinity"].contains(&&**string)
                            && is_same(ty, string, stored)
                    }
                    (_, None) => is_same(ty, token, stored),
                });
            }
        }
    }

    #[test]
    fn extremes_parse_exactly() {
        assert_eq!(parse_integer("9223372036854775807"), Some(i64::MAX));
        assert_eq!(parse_integer("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(parse_integer("18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_integer::<u64>("-1"), None);
        assert_eq!(parse_integer::<i64>(" 12 "), Some(12));
        for text in ["12.0", "12.5", "1e2", "007", "+7", "-0", "-07", "00", ""] {
            assert_eq!(parse_integer::<i64>(text), None, "{text}");
        }
    }

    #[test]
    fn an_integer_in_a_field_of_times_is_taken_where_it_can_only_be_nanoseconds() {
        for (text, ns) in [
            ("1700000000123456789", Some(1_700_000_000_123_456_789)),
            ("-100000000000000000", Some(-100_000_000_000_000_000)),
            ("0", Some(0)),
            (" 1970-01-02 ", Some(86_400_000_000_000)),
            ("1700000000", None),
            ("1700000000123456", None),
            ("20240102", None),
            ("20240102030405123", None),
            ("2024", None),
            ("+1700000000123456789", None),
        ] {
            assert_eq!(parse_field_time_ns(text), ns, "{text}");
        }
    }

    #[test]
    fn decimals_are_scaled_exactly() {
        for (text, digits, scaled) in [
            ("1700000000.123456", 9, Some(1_700_000_000_123_456_000)),
            ("1700000000.1234567891", 9, Some(1_700_000_000_123_456_789)),
            ("1700000000123", 6, Some(1_700_000_000_123_000_000)),
            ("-0.5", 9, Some(-500_000_000)),
            ("+1.", 3, Some(1000)),
            (".5", 3, Some(500)),
            ("1.7e9", 9, Some(1_700_000_000_000_000_000)),
            ("12.9", 0, Some(12)),
            ("9223372036.854775807", 9, Some(i64::MAX)),
            ("9223372036.854775808", 9, None),
            ("99999999999999999999999999999999999999999", 0, None),
            (".", 9, None),
            ("", 9, None),
            ("-", 9, None),
            ("1 2", 9, None),
            ("1e999", 9, None),
            ("12:30", 9, None),
        ] {
            assert_eq!(parse_decimal(text, digits), scaled, "{text}");
        }
    }

    #[test]
    fn times_before_the_epoch_and_with_zones() {
        assert_eq!(
            parse_timestamp_ns("1969-12-31T23:59:59.5Z"),
            Some(-500_000_000)
        );
        assert_eq!(parse_timestamp_ns("1970-01-01 01:00:00+01:00"), Some(0));
        assert_eq!(parse_timestamp_ns("1970-01-02"), Some(86_400_000_000_000));
        assert_eq!(parse_timestamp_ns("-12"), Some(-12));
        assert_eq!(parse_timestamp_ns("1970-01-01 00:01"), Some(60_000_000_000));
        assert_eq!(
            parse_timestamp_ns("1970-01-01T01:01+01:00"),
            Some(60_000_000_000)
        );
        for text in [
            "soon",
            "1970-01-01 0001:00",
            "1970-01-01 00:01x",
            "äääääääää",
        ] {
            assert_eq!(parse_timestamp_ns(text), None, "{text}");
        }
    }

    #[test]
    fn a_leap_second_is_read_as_the_second_before_it() {
        for (text, same) in [
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z"),
            ("2016-12-31 23:59:60.25", "2016-12-31 23:59:59.25"),
            ("2016-12-31 235960", "2016-12-31 235959"),
            ("2017-01-01T00:59:60+01:00", "2016-12-31T23:59:59Z"),
        ] {
            assert!(parse_timestamp_ns(text).is_some());
            assert_eq!(parse_timestamp_ns(text), parse_timestamp_ns(same), "{text}");
        }
    }

    #[test]
    fn dates_that_nanoseconds_do_not_reach_are_told_from_what_is_no_date() {
        for (text, beyond) in [
            ("9999-12-31", true),
            ("0001-01-01 00:00", true),
            ("1600-02-29T00:00:00Z", true),
            ("2262-04-12", true),
            ("2024-01-01", false),
            ("1900-02-29", false),
            ("9999-13-01", false),
            ("9999", false),
            ("soon and", false),
        ] {
            let unread = parse_timestamp_ns(text).is_none();
            assert_eq!(unread && is_beyond_nanoseconds(text), beyond, "{text}");
        }
    }
}
