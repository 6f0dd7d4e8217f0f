//! A name as a part of a path, for archives and pins: a source may be called `../x`.

/// Letters, digits, `_` and `-` stay; the bytes of all else are percent-encoded.
pub(super) fn path_part(name: &str) -> String {
    let mut part = String::new();
    for byte in name.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => part.push(byte.into()),
            _ => part.push_str(&format!("%{byte:02X}")),
        }
    }
    part
}
