//! A name as a part of a path, for archives and pins: a source may be called `../x`.

/// Keeps letters, digits, `_` and `-`; percent-encodes all other bytes. A part that would be longer than `bytes_max` is cut, and ends in a
/// checksum of the whole name, so that two names have two parts.
pub(super) fn path_part(name: &str, bytes_max: usize) -> String {
    let mut part = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => part.push(byte.into()),
            _ => part.push_str(&format!("%{byte:02X}")),
        }
    }
    if part.len() <= bytes_max {
        return part;
    }
    let checksum = format!("~{:08x}", crc_fast::crc32_iscsi(name.as_bytes()));
    part.truncate(bytes_max.saturating_sub(checksum.len()));
    part + &checksum
}

#[cfg(test)]
mod tests {
    use super::*;

    // case Rules: pins
    // case Archive: long names
    #[test]
    fn long_names_that_begin_alike_stay_apart() {
        let [one, other] = ["a", "b"]
            .map(|end| "/".repeat(200) + end)
            .map(|name| path_part(&name, 150));
        assert_ne!(one, other);
        assert_eq!((one.len(), other.len()), (150, 150));
        assert_eq!(path_part("short.name", 12), "short%2Ename");
        assert_eq!(path_part("short.name", 11), "sh~5c570933");
    }
}
