//! Texts that `strftime` prints, read back as times.

use jiff::civil::Date;
use jiff::fmt::strtime;

use super::datum::Interval;

/// The parts of a format in the order in which texts sort as their times do, and the duration of one unit of each.
const PARTS: [(&str, Interval); 6] = [
    ("%Y", of(12, 0, 0)),
    ("%m", of(1, 0, 0)),
    ("%d", of(0, 1, 0)),
    ("%H", of(0, 0, 3_600_000_000)),
    ("%M", of(0, 0, 60_000_000)),
    ("%S", of(0, 0, 1_000_000)),
];

const fn of(months: i32, days: i32, micros: i64) -> Interval {
    Interval {
        months,
        days,
        micros,
    }
}

/// The microseconds of the first time that is printed as this text, and the duration of all such times. `None` if texts of this format do not
/// sort as their times do, or it prints none like this.
pub fn formatted(format: &str, text: &str) -> Option<(i64, Interval)> {
    // Infinity is printed as a word, which sorts as it does only beside digits.
    if !format.starts_with("%Y") {
        return None;
    }
    let mut parts = PARTS.iter();
    let mut finest = None;
    for (at, _) in format.match_indices('%') {
        let (part, unit) = parts.next()?;
        if format.get(at..at + 2)? != *part {
            return None;
        }
        finest = Some(*unit);
    }
    let found = strtime::parse(format, text).ok()?;
    let date = Date::new(
        found.year()?,
        found.month().unwrap_or(1),
        found.day().unwrap_or(1),
    );
    let time = jiff::civil::Time::new(
        found.hour().unwrap_or(0),
        found.minute().unwrap_or(0),
        found.second().unwrap_or(0),
        0,
    );
    let time = date.ok()?.to_datetime(time.ok()?);
    // The parser allows more than `strftime` prints.
    if time.strftime(format).to_string() != text {
        return None;
    }
    let micros = jiff::tz::TimeZone::UTC
        .to_timestamp(time)
        .ok()?
        .as_microsecond();
    Some((micros, finest?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_first_of_its_times() {
        let day = 86_400_000_000;
        assert_eq!(
            formatted("%Y-%m-%d", "1970-01-03"),
            Some((2 * day, of(0, 1, 0)))
        );
        assert_eq!(formatted("%Y%m", "197002"), Some((31 * day, of(1, 0, 0))));
        let second = formatted("%Y-%m-%d %H:%M:%S", "1970-01-01 00:01:02");
        assert_eq!(second, Some((62_000_000, of(0, 0, 1_000_000))));
    }

    #[test]
    fn texts_that_do_not_sort_as_times_are_not_read() {
        for (format, text) in [
            ("%d.%m.%Y", "03.01.1970"),
            ("%Y-%m-%d", "1970-02-30"),
            ("%Y-%m-%d", "1970-1-3"),
            ("%Y-%m-%d", "1970-01-03 "),
            ("%Y-%m-%d", "1970-01"),
            ("%H:%M", "10:20"),
            ("%Y %%", "1970 %"),
            ("z%Y", "z1970"),
            ("%y", "70"),
            ("%", "%"),
            ("", ""),
        ] {
            assert_eq!(formatted(format, text), None, "{format} {text}");
        }
    }
}
