//! The rules for names of sources, fields and indexes, and suggestions for mistyped names.

use crate::error::{Error, Result};

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The prefix of the names of built-in sources.
pub const BUILTIN_PREFIX: &str = "loom_";
/// The columns that every source has in SQL. No field may have one of these names, in any case.
pub const RESERVED_FIELDS: [&str; 5] = ["source", "ts", "ts_ns", "addr", "dir"];

/// The most suggestions in an error.
const SUGGESTIONS_MAX: usize = 3;
/// The most names that an error lists if it has no suggestion.
const LISTED_MAX: usize = 10;
/// Only this many characters of a name are compared, so a long one costs little.
const COMPARED_CHARS: usize = 64;

/// Refuses names that are empty, too long, or contain a control character. `what` is "source", "field", ….
pub fn check_name(what: &str, name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::schema(format!("the name of the {what} is empty")));
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::schema(format!(
            "the name of {what} '{}' has {} bytes; the limit is {NAME_BYTES_MAX}",
            shown(name, 24),
            name.len()
        )));
    }
    if name.chars().any(char::is_control) {
        return Err(Error::schema(format!(
            "the name of {what} '{}' holds a control character",
            shown(name, NAME_BYTES_MAX)
        )));
    }
    Ok(())
}

/// Untrusted text for a message: at most `chars_max` characters, with control characters escaped.
pub(super) fn shown(text: &str, chars_max: usize) -> String {
    let mut shown = String::new();
    for c in text.chars().take(chars_max) {
        match c.is_control() {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    if text.chars().nth(chars_max).is_some() {
        shown.push('…');
    }
    shown
}

/// The start of a pin's name, which is the end of its span; a 0 stands for any digit.
const PIN: &[u8; 27] = b"00000000T000000.000000000Z-";

/// Whether a folder among the pins of a directory is a pin, by its name.
pub fn is_pin(name: &str) -> bool {
    let mut begin = name.bytes().zip(*PIN);
    name.len() > PIN.len()
        && begin.all(|(byte, shape)| match shape {
            b'0' => byte.is_ascii_digit(),
            shape => byte == shape,
        })
}

/// Whether the name belongs to a built-in source.
pub fn is_builtin(name: &str) -> bool {
    name.get(..BUILTIN_PREFIX.len())
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(BUILTIN_PREFIX))
}

/// Whether a field may not have this name, because every source has a column with it in SQL.
pub fn is_reserved_field(name: &str) -> bool {
    RESERVED_FIELDS
        .iter()
        .any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// The names most similar to `given`, at most three, the best first; empty if nothing is close.
pub fn nearest<'a>(given: &str, known: impl Iterator<Item = &'a str>) -> Vec<String> {
    let shorten = |name: &str| -> String {
        name.chars()
            .take(COMPARED_CHARS)
            .flat_map(char::to_lowercase)
            .collect()
    };
    let given = shorten(given);
    let mut close: Vec<(usize, &str)> = known
        .filter_map(|name| {
            let other = shorten(name);
            let limit = given.chars().count().max(other.chars().count()).div_ceil(3);
            let is_part = |part: &str, of: &str| part.len() >= 3 && of.contains(part);
            let distance = strsim::osa_distance(&given, &other);
            let is_near = distance <= limit || is_part(&given, &other) || is_part(&other, &given);
            is_near.then_some((distance, name))
        })
        .collect();
    close.sort_unstable();
    close
        .into_iter()
        .take(SUGGESTIONS_MAX)
        .map(|(_, name)| name.to_owned())
        .collect()
}

/// The hint about an unknown name: similar names, or else all names. `noun` is "sources" or "indexes".
pub(super) fn hint<'a>(
    given: &str,
    noun: &str,
    known: impl Iterator<Item = &'a str> + Clone,
) -> String {
    let near = nearest(given, known.clone());
    if !near.is_empty() {
        return format!("did you mean '{}'?", near.join("' or '"));
    }
    let count = known.clone().count();
    let names: Vec<String> = known
        .take(LISTED_MAX)
        .map(|name| format!("'{name}'"))
        .collect();
    match names.as_slice() {
        [] => format!("there are no {noun}"),
        names if names.len() < count => format!("some {noun} are: {}", names.join(", ")),
        names => format!("the {noun} are: {}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // case Network and input: strange names
    #[test]
    fn names_are_limited_in_length_and_characters() {
        assert!(check_name("source", "../../x").is_ok());
        assert!(check_name("source", &"x".repeat(255)).is_ok());
        let empty = check_name("index", "").unwrap_err().to_string();
        assert_eq!(empty, "the name of the index is empty");
        for bad in ["", "a\0b", "a\nb", "\u{85}"] {
            assert!(check_name("source", bad).is_err(), "{bad:?}");
        }
        let message = check_name("field", &"x".repeat(1 << 20))
            .unwrap_err()
            .to_string();
        assert!(
            message.len() < 200 && message.contains("1048576 bytes"),
            "{message}"
        );
    }

    #[test]
    fn reserved_names_are_so_in_any_case() {
        assert!(is_builtin("loom_losses") && is_builtin("LOOM_x") && !is_builtin("loom"));
        assert!(is_reserved_field("TS") && is_reserved_field("Addr") && !is_reserved_field("tss"));
        assert!(!is_builtin("löm_x"));
    }

    #[test]
    fn the_nearest_names_come_best_first() {
        let known = ["syscall", "sysctl", "redis_request", "packet"];
        let near = |given| nearest(given, known.iter().copied());
        assert_eq!(near("sycall"), ["syscall"]);
        assert_eq!(near("syscal"), ["syscall", "sysctl"]);
        assert_eq!(near("REDIS"), ["redis_request"]);
        assert!(nearest("metrics", ["r", "me"].into_iter()).is_empty());
        assert!(near("zzz").is_empty());
        assert!(near(&"x".repeat(1 << 20)).is_empty());
    }
}
