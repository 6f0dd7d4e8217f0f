//! A fast parser for the usual form of times, which exports of databases write. `text` tries it before the library, which reads all other forms.

/// Parses a date, or a date and a time in UTC with up to nine digits of a fraction: `2026-01-02`, `2026-01-02 03:04:05.678`, `2026-01-02T03:04:05Z`.
/// `None` for any other text, which may still be a time.
pub(super) fn usual_time_ns(text: &str) -> Option<i64> {
    let (date, rest) = text.as_bytes().split_first_chunk()?;
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = *date else {
        return None;
    };
    let year = number(&[y1, y2, y3, y4])?;
    let days = days(year, number(&[m1, m2])?, number(&[d1, d2])?)?;
    let (seconds, nanos) = match rest {
        [] => (0, 0),
        [b' ' | b'T', time @ ..] => {
            let (time, fraction) = time.split_first_chunk()?;
            let [h1, h2, b':', m1, m2, b':', s1, s2] = *time else {
                return None;
            };
            let (hour, minute) = (number(&[h1, h2])?, number(&[m1, m2])?);
            let second = number(&[s1, s2])?;
            if hour > 23 || minute > 59 || second > 59 {
                return None;
            }
            let seconds = (hour * 60 + minute) * 60 + second;
            (seconds, nanoseconds(fraction)?)
        }
        _ => return None,
    };
    Some((days * 86_400 + seconds) * 1_000_000_000 + nanos)
}

/// Parses a fraction, which may be empty.
fn nanoseconds(fraction: &[u8]) -> Option<i64> {
    match fraction.strip_suffix(b"Z").unwrap_or(fraction) {
        [] => Some(0),
        [b'.', digits @ ..] if (1..=9).contains(&digits.len()) => {
            let missing = 9 - digits.len() as u32;
            Some(number(digits)? * 10_i64.pow(missing))
        }
        _ => None,
    }
}

/// Parses at most nine digits.
fn number(digits: &[u8]) -> Option<i64> {
    digits.iter().try_fold(0, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then_some(number * 10 + i64::from(digit))
    })
}

/// The days from the Unix epoch to a date, in years that nanoseconds cover completely. Years begin in March, so that the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 => 28 + i64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if !(1678..=2261).contains(&year) || !(1..=12).contains(&month) || !(1..=last).contains(&day) {
        return None;
    }
    let (year, month) = match month {
        3.. => (year, month - 3),
        _ => (year - 1, month + 9),
    };
    let leap_days = year / 4 - year / 100 + year / 400;
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    Some(year * 365 + leap_days + day_of_year - 719_468)
}

#[cfg(test)]
mod tests {
    use arrow::compute::kernels::cast_utils::string_to_timestamp_nanos;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_it_reads_the_library_reads_alike(
            text in "(16[789]|1[789]|20|2[0-3])[0-9]{2}-[01][0-9]-[0-3][0-9]([ T][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\\.[0-9]{0,10})?Z?)?"
        ) {
            if let Some(ns) = usual_time_ns(&text) {
                prop_assert_eq!(Some(ns), string_to_timestamp_nanos(&text).ok(), "{}", text);
            }
        }

        #[test]
        fn it_reads_every_time_of_the_usual_form(
            ns in -9_214_560_000_000_000_000_i64..9_214_560_000_000_000_000,
            digits in 0_usize..10,
            separator in "[ T]",
            zone in "Z?",
        ) {
            let unit = 10_i64.pow(9 - digits as u32);
            let ns = ns - ns.rem_euclid(unit);
            let time = jiff::Timestamp::from_nanosecond(ns.into()).unwrap();
            let point = if digits == 0 { "" } else { "." };
            let fraction = format!("{:09}", ns.rem_euclid(1_000_000_000));
            let seconds = time.strftime(&format!("%Y-%m-%d{separator}%H:%M:%S")).to_string();
            let text = format!("{seconds}{point}{}{zone}", &fraction[..digits]);
            prop_assert_eq!(usual_time_ns(&text), Some(ns), "{}", text);
        }
    }

    #[test]
    fn a_date_is_its_midnight_and_no_other_day_is_read() {
        assert_eq!(usual_time_ns("2024-02-29"), Some(1_709_164_800_000_000_000));
        for text in [
            "2023-02-29",
            "2024-04-31",
            "2024-13-01",
            "2024-00-01",
            "2024-01-00",
            "1677-12-31",
            "2262-01-01",
            "2024-01-01 23:59:60",
            "2024-01-01 24:00:00",
            "2024-01-01 00:00:00.",
            "2024-01-01 00:00:00.0123456789",
            "2024-01-01 00:00",
            "20240101",
            "",
        ] {
            assert_eq!(usual_time_ns(text), None, "{text}");
        }
    }
}
