//! Filters of indexes: the text, and what it makes of a payload.
//!
//! Input: how many bytes the payload has, the payload, the text.

use std::sync::LazyLock;

use loom_engine::schema::{Filter, Layout, SourceDef};

use crate::{SOUND, flagged, label};

/// A field of each kind that a filter may ask for.
const SOURCE: &str = r#"
name = "s"
[[field]]
name = "n"
type = "u64"
nullable = true
[[field]]
name = "i"
type = "i32"
[[field]]
name = "f"
type = "f64"
[[field]]
name = "b"
type = "bool"
[[field]]
name = "op"
type = "u8"
labels = { 1 = "GET", 2 = "SET" }
[[field]]
name = "c"
type = "char[6]"
[[field]]
name = "x"
type = "bytes[2]"
[[field]]
name = "text"
type = "utf8"
"#;

static FIELDS: LazyLock<(SourceDef, Layout)> = LazyLock::new(|| {
    let (def, layout) = crate::payload::of_toml(SOURCE);
    assert!(!layout.is_fixed(), "the text is of any length");
    (def, layout)
});

pub fn run(input: &[u8]) -> String {
    let (payload_bytes, rest) = flagged(input);
    let (payload, text) = rest
        .split_at_checked(payload_bytes.into())
        .unwrap_or((&[], rest));
    let Ok(text) = std::str::from_utf8(text) else {
        return "not UTF-8".to_owned();
    };
    let (def, layout) = &*FIELDS;
    match Filter::parse(text, &def.fields) {
        Ok(filter) => {
            let matched = filter.matches(layout, payload);
            assert_eq!(matched, filter.matches(layout, payload));
            let again = Filter::parse(filter.text(), &def.fields);
            let again = again.map(|again| again.matches(layout, payload)).ok();
            assert_eq!(again, Some(matched), "its text, parsed again");
            SOUND.to_owned()
        }
        Err(error) => label(&error),
    }
}
