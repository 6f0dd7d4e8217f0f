//! Payloads of several layouts: validated, read field by field, widened, and read as loss records.
//!
//! Input: which layout, then the payload.

use std::sync::LazyLock;

use loom_engine::Address;
use loom_engine::schema::{Catalog, Layout, LossDecoder, SourceDef, Widening, losses_source};

use crate::{SOUND, flagged, label};

/// Own times, null bits, every width, bools, and several texts of any length.
const MIXED: &str = r#"
name = "mixed"
time = "own"
[[field]]
name = "a"
type = "u16"
nullable = true
[[field]]
name = "b"
type = "bool"
[[field]]
name = "c"
type = "f32"
nullable = true
[[field]]
name = "d"
type = "char[5]"
[[field]]
name = "e"
type = "utf8"
nullable = true
[[field]]
name = "f"
type = "json"
"#;

/// Fixed and plain.
const PLAIN: &str = r#"
name = "plain"
[[field]]
name = "a"
type = "i64"
[[field]]
name = "b"
type = "bytes[3]"
"#;

static LAYOUTS: LazyLock<[(SourceDef, Layout); 4]> = LazyLock::new(|| {
    let losses = losses_source();
    let layout = layout_of(&losses);
    [
        of_toml(MIXED),
        of_toml(PLAIN),
        of_toml("name = \"raw\""),
        (losses, layout),
    ]
});

/// A source from its TOML, and its layout.
pub fn of_toml(toml: &str) -> (SourceDef, Layout) {
    let fields = toml.replace("[[field]]", "[[source.field]]");
    let sources = format!("[[source]]\n{fields}");
    match loom_engine::schema::parse_sources(&sources).as_deref() {
        Ok([def]) => (def.clone(), layout_of(def)),
        other => panic!("one source, not {other:?}"),
    }
}

fn layout_of(def: &SourceDef) -> Layout {
    Layout::new(def.time, &def.fields).unwrap_or_else(|error| panic!("{error}"))
}

pub fn run(input: &[u8]) -> String {
    let (which, payload) = flagged(input);
    let Some((def, layout)) = LAYOUTS.get(usize::from(which) % LAYOUTS.len()) else {
        return SOUND.to_owned();
    };
    let valid = layout.validate(payload);
    for field in 0..layout.field_count() + 1 {
        let bytes = layout.bytes(field, payload);
        let key = layout.key(field, payload);
        assert!(
            valid.is_err() || key.is_none() || bytes.is_some(),
            "field {field} has the key {key:?} and no bytes"
        );
        assert!(
            bytes.is_none() || !layout.is_null(field, payload),
            "field {field} is NULL and has bytes"
        );
    }
    assert!(layout.body(payload).len() <= payload.len());
    let variable: usize = layout.var_fields(payload).map(<[u8]>::len).sum();
    assert!(variable <= payload.len());
    std::hint::black_box(layout.own_time(payload));
    widen(def, layout, payload, valid.is_ok());
    read_as_loss(layout, payload);
    valid.map_or_else(|error| label(&error), |()| SOUND.to_owned())
}

/// A payload that is valid for a source's fields is valid, widened, for those and one more.
fn widen(def: &SourceDef, layout: &Layout, payload: &[u8], valid: bool) {
    let mut wider = def.clone();
    let Some(field) = wider.fields.iter().find(|field| field.nullable).cloned() else {
        return;
    };
    wider.fields.push(field);
    let known = layout.field_count();
    let Ok(widening) = Widening::new(wider.time, &wider.fields, known) else {
        panic!("a nullable field can be added");
    };
    let mut widened = Vec::new();
    assert_eq!(widening.widen(payload, &mut widened), valid);
    if valid && widened.len() <= loom_engine::schema::PAYLOAD_BYTES_MAX {
        let wide = layout_of(&wider);
        assert_eq!(wide.validate(&widened), Ok(()), "{payload:?}");
        assert!(wide.is_null(known, &widened));
        for field in 0..known {
            assert_eq!(wide.bytes(field, &widened), layout.bytes(field, payload));
        }
    }
}

/// The ledger's records are read whatever version wrote them.
fn read_as_loss(layout: &Layout, payload: &[u8]) {
    static LOSSES: LazyLock<Catalog> = LazyLock::new(|| {
        let mut catalog = Catalog::new();
        let defined = catalog.define_builtin_source(&losses_source(), Address(0));
        assert!(defined.is_ok(), "the built-in source");
        catalog
    });
    if let Some(source) = LOSSES.sources().next() {
        std::hint::black_box(LossDecoder::new(source).decode(layout, payload));
    }
}
