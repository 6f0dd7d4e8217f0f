//! How much Loom keeps of what it read for the next question, beside DuckDB's own memory: as much as is asked for, and never more than a
//! quarter of what the database allows itself. The budget is the process's; where it has several databases, the one that asked last sets it.

use loom_engine::query::{CACHE_BYTES_MAX, set_cache_bytes_max};

use crate::error::{Problem, Result};

/// The setting, where an adapter has settings.
pub const SETTING: &str = "loom_cache";
/// What holds where no setting says it.
const VARIABLE: &str = "LOOM_CACHE";
/// One of so many parts of a database's memory is Loom's at most.
const PART: u64 = 4;

/// Sizes as DuckDB writes and reads them, in small letters.
const UNITS: [(&str, u64); 11] = [
    ("b", 1),
    ("byte", 1),
    ("bytes", 1),
    ("kb", 1000),
    ("mb", 1000 * 1000),
    ("gb", 1000 * 1000 * 1000),
    ("tb", 1000 * 1000 * 1000 * 1000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// Lets the process keep what a setting asks for, or else the environment, as far as `memory_limit` allows it. Both were
/// checked before: what is no size counts as not given.
pub fn allow(setting: Option<&str>, memory_limit: Option<&str>) {
    let environment = || bytes_of(&std::env::var(VARIABLE).ok()?);
    let wanted = setting.and_then(bytes_of).or_else(environment);
    let most = memory_limit.and_then(bytes_of).map(|limit| limit / PART);
    set_cache_bytes_max(
        wanted
            .unwrap_or(CACHE_BYTES_MAX)
            .min(most.unwrap_or(u64::MAX)),
    );
}

/// Refuses a size that cannot be or is not allowed. Nothing: as much as Loom takes by itself.
pub fn check(setting: &str, memory_limit: Option<&str>) -> Result<()> {
    if setting.is_empty() {
        return Ok(());
    }
    let wanted = require_size(SETTING, setting)?;
    match memory_limit.and_then(bytes_of).map(|limit| limit / PART) {
        Some(most) if wanted > most => Err(Problem::input(format!(
            "{SETTING} = '{setting}' is more than a quarter of memory_limit, {most} bytes; set less, or raise memory_limit first"
        ))),
        _ => Ok(()),
    }
}

/// Refuses an environment that names no size.
pub fn check_environment() -> Result<()> {
    match std::env::var(VARIABLE) {
        Ok(size) => require_size(VARIABLE, &size).map(drop),
        Err(_) => Ok(()),
    }
}

fn require_size(name: &str, size: &str) -> Result<u64> {
    bytes_of(size).ok_or_else(|| {
        Problem::input(format!(
            "{name} = '{size}' is not a size; use '64MB' or '64MiB'"
        ))
    })
}

/// The bytes of a size; `None` if it is none.
fn bytes_of(size: &str) -> Option<u64> {
    let size = size.trim();
    let digits = size
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(size.len());
    let (number, unit) = size.split_at_checked(digits)?;
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim().to_ascii_lowercase();
    // Without a unit, only nothing is clear.
    if unit.is_empty() {
        return (number == 0.0).then_some(0);
    }
    let (_, bytes) = UNITS.iter().find(|(name, _)| *name == unit)?;
    Some((number * *bytes as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_duckdb_writes_them() {
        let sizes = [
            ("64MB", 64_000_000),
            ("64 MiB", 64 << 20),
            ("95.3 MiB", 99_929_292),
            ("0", 0),
            ("0b", 0),
            ("1 byte", 1),
            ("1.5gib", 3 << 29),
            ("99999999999 TiB", u64::MAX),
        ];
        for (size, bytes) in sizes {
            assert_eq!(bytes_of(size), Some(bytes), "{size}");
        }
        for size in [
            "",
            "64",
            "MB",
            "-1",
            "-1MB",
            "1.2.3MB",
            "64 parsecs",
            "NaN",
            "∞GB",
        ] {
            assert_eq!(bytes_of(size), None, "{size}");
        }
    }

    #[test]
    fn a_size_above_the_quarter_is_refused_and_told() {
        assert_eq!(check("25MB", Some("100 MB")), Ok(()));
        assert_eq!(check("", Some("1 byte")), Ok(()));
        assert_eq!(check("1TB", None), Ok(()));
        let said = check("26MB", Some("100 MB")).unwrap_err().to_string();
        assert!(
            said.contains("a quarter of memory_limit, 25000000 bytes"),
            "{said}"
        );
        let said = check("much", None).unwrap_err().to_string();
        assert!(said.contains("use '64MB' or '64MiB'"), "{said}");
    }
}
