//! Sizes (`64MiB`), durations (`500ms`), shares of a disk (`5%`) and units of time (`us`) in a configuration.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use loom_engine::schema::Number;
use serde::{Deserialize, Deserializer, de};

/// A number of bytes: `64KiB`, `50GiB`, `1.5TiB`, `4096`, or decimal `10GB`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

/// A duration of at most 584 years: `500ms`, `10s`, `24h`, `1h 30m`, `7d`.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// The part of a disk that stays free: `5%`, or a size.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum FreeSpace {
    Percent(f64),
    Bytes(u64),
}

impl FreeSpace {
    /// The bytes of it on a disk of so many.
    pub fn of(self, disk_bytes: u64) -> u64 {
        match self {
            FreeSpace::Bytes(bytes) => bytes,
            FreeSpace::Percent(percent) => (disk_bytes as f64 * percent / 100.0) as u64,
        }
    }
}

/// The unit of a field with durations.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Ns,
    Us,
    Ms,
    S,
}

/// The ends of field names that show a unit; the long ones are those of Prometheus and OpenTelemetry.
const UNIT_SUFFIXES: [(&str, Unit); 8] = [
    ("ns", Unit::Ns),
    ("us", Unit::Us),
    ("ms", Unit::Ms),
    ("s", Unit::S),
    ("nanoseconds", Unit::Ns),
    ("microseconds", Unit::Us),
    ("milliseconds", Unit::Ms),
    ("seconds", Unit::S),
];

const SIZE_UNITS: [(&str, u64); 9] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("B", 1),
];

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(bytes) = text.parse() {
            return Ok(ByteSize(bytes));
        }
        scaled(text)
            .map(ByteSize)
            .ok_or_else(|| format!("'{text}' is not a size; use 64KiB, 512MiB or 50GB"))
    }
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = humantime::parse_duration(text).ok();
        // Longer durations cannot be added to a time.
        parsed
            .filter(|span| u64::try_from(span.as_nanos()).is_ok())
            .map(Span)
            .ok_or_else(|| format!("'{text}' is not a duration; use 500ms, 10s or 24h"))
    }
}

impl Unit {
    /// The unit from the end of a field's name, such as `latency_us`.
    pub fn of_field(name: &str) -> Option<Unit> {
        let (_, suffix) = name.rsplit_once('_')?;
        let mut known = UNIT_SUFFIXES.iter();
        let (_, unit) = known.find(|(known, _)| *known == suffix)?;
        Some(*unit)
    }

    /// Converts a duration to this unit exactly.
    pub fn count(self, span: Duration) -> Number {
        let scale = match self {
            Unit::Ns => 0,
            Unit::Us => 3,
            Unit::Ms => 6,
            Unit::S => 9,
        };
        // This takes at most 94 bits: 64 for seconds, and 30.
        let value = span.as_nanos() as i128;
        Number::Decimal { value, scale }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unit::Ns => "ns",
            Unit::Us => "us",
            Unit::Ms => "ms",
            Unit::S => "s",
        })
    }
}

impl FromStr for FreeSpace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%') else {
            return text
                .parse()
                .map(|ByteSize(bytes)| FreeSpace::Bytes(bytes))
                .map_err(|_| {
                    format!("'{text}' is neither a share of the disk nor a size; use 5% or 10GiB")
                });
        };
        match percent.trim().parse::<f64>() {
            Ok(percent) if (0.0..100.0).contains(&percent) => Ok(FreeSpace::Percent(percent)),
            _ => Err(format!(
                "'{text}' is not a share of the disk; use 0% to below 100%"
            )),
        }
    }
}

impl ByteSize {
    /// Formats with one decimal in the greatest fitting binary unit.
    pub fn approximately(self) -> String {
        let binary = SIZE_UNITS.iter().take(4).rev();
        match binary.into_iter().find(|(_, scale)| self.0 >= *scale) {
            Some((unit, scale)) => format!("{:.1} {unit}", self.0 as f64 / *scale as f64),
            None => format!("{} B", self.0),
        }
    }
}

impl fmt::Display for ByteSize {
    /// Formats a whole number in the greatest possible binary unit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = SIZE_UNITS.iter().take(4).rev();
        match binary
            .into_iter()
            .find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale))
        {
            Some((unit, scale)) => write!(f, "{}{unit}", self.0 / scale),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// Parses a whole or decimal number with a unit of size; `None` if it is neither or does not fit.
fn scaled(text: &str) -> Option<u64> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at_checked(digits_end)?;
    let unit = unit.trim_start();
    let (_, scale) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(*scale);
    }
    let exact = number.parse::<f64>().ok()? * *scale as f64;
    (exact.fract() == 0.0 && exact < (1u64 << 53) as f64).then_some(exact as u64)
}

/// Deserializes from text; a size may be a plain number.
macro_rules! deserialize_from_text {
    ($($unit:ty),*) => {$(
        impl<'de> Deserialize<'de> for $unit {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let text = String::deserialize(from)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    )*};
}

deserialize_from_text!(ByteSize, Span, FreeSpace);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_in_binary_and_decimal_units() {
        let bytes = |text: &str| text.parse::<ByteSize>().map(|size| size.0).ok();
        assert_eq!(bytes("64KiB"), Some(65_536));
        assert_eq!(bytes("64 MiB"), Some(64 << 20));
        assert_eq!(bytes("1.5GiB"), Some(3 << 29));
        assert_eq!(bytes("10GB"), Some(10_000_000_000));
        assert_eq!(bytes("4096"), Some(4096));
        for wrong in [
            "",
            "KiB",
            "-1KiB",
            "1kib",
            "1 XB",
            "0.3B",
            "99999999TiB",
            "1e3MiB",
            "1..2MiB",
        ] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn sizes_are_shown_as_they_are_written() {
        for text in ["64KiB", "50GiB", "1TiB", "4095B", "0B"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        assert_eq!(ByteSize(1_500_000).approximately(), "1.4 MiB");
        assert_eq!(ByteSize(12).approximately(), "12 B");
    }

    #[test]
    fn durations_are_read() {
        let span = |text: &str| text.parse::<Span>().map(|span| span.0).ok();
        assert_eq!(span("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(span("24h"), Some(Duration::from_secs(86_400)));
        assert_eq!(span("0.5s"), Some(Duration::from_millis(500)));
        assert_eq!(span("1h 30m"), Some(Duration::from_secs(5_400)));
        for wrong in [
            "500",
            "",
            "-1s",
            "5 fortnights",
            "600y",
            "99999999999999999y",
        ] {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn the_unit_of_a_field_is_the_end_of_its_name() {
        for (name, unit) in [
            ("latency_ns", Some(Unit::Ns)),
            ("latency_us", Some(Unit::Us)),
            ("a_b_ms", Some(Unit::Ms)),
            ("took_s", Some(Unit::S)),
            ("request_duration_seconds", Some(Unit::S)),
            ("latency", None),
            ("us", None),
            ("status", None),
            ("requests_status", None),
        ] {
            assert_eq!(Unit::of_field(name), unit, "{name}");
        }
        let span = Duration::from_nanos(1_500);
        assert_eq!(Unit::Us.count(span).to_f64(), 1.5);
        assert_eq!(Unit::S.count(span).to_f64(), 1.5e-6);
    }

    #[test]
    fn free_space_is_a_share_or_a_size() {
        assert_eq!("5%".parse(), Ok(FreeSpace::Percent(5.0)));
        assert_eq!("10GiB".parse(), Ok(FreeSpace::Bytes(10 << 30)));
        assert!("100%".parse::<FreeSpace>().is_err());
        assert!("-1%".parse::<FreeSpace>().is_err());
        assert!("much".parse::<FreeSpace>().is_err());
    }
}
