//! The memory in which Loom keeps read data for the next query, beside DuckDB's own memory: as much as the setting asks for, but at most a
//! quarter of `memory_limit`. The budget belongs to the process; if the process has several databases, the last one to set it wins.

use loom_engine::query::{CACHE_BYTES_MAX, set_cache_bytes_max};

use crate::error::{Problem, Result};

/// The name of the setting.
pub const SETTING: &str = "loom_cache";
/// The environment variable that applies without the setting.
const VARIABLE: &str = "LOOM_CACHE";
/// Loom takes at most one part in `PART` of a database's memory limit.
const PART: u64 = 4;

/// The units of DuckDB's sizes, in lower case.
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

/// Sets the budget from the setting, else from the environment, limited by `memory_limit`. Both were checked before, so an invalid size
/// counts as not given.
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

/// Refuses a size that is invalid or above the limit. An empty text means the default.
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

/// Refuses an environment variable that is not a size.
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

/// The bytes of a size; `None` if the text is not a size.
fn bytes_of(size: &str) -> Option<u64> {
    let size = size.trim();
    let digits = size
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(size.len());
    let (number, unit) = size.split_at_checked(digits)?;
    let number: f64 = number.parse().ok()?;
    let unit = unit.trim().to_ascii_lowercase();
    // Without a unit, only 0 is clear.
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
