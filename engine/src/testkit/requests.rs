//! Two sources whose records a test knows by their ordinals: requests, and now and then an event, which has its own time.

use crate::ingest::Writer;
use crate::schema::{SourceDef, parse_sources};
use crate::types::SourceId;

pub const SOURCES: &str = r#"
[[source]]
name = "request"
[[source.field]]
name = "latency"
type = "u64"
[[source.field]]
name = "op"
type = "u8"
[[source.index]]
name = "latency"
value = "latency"
[[source.index]]
name = "slow"
value = "latency"
where = "op = 1"
bins = { from = 10, factor = 2, count = 8 }

[[source]]
name = "event"
time = "own"
[[source.field]]
name = "level"
type = "f64"
[[source.index]]
name = "level"
value = "level"
"#;

pub fn sources() -> Vec<SourceDef> {
    parse_sources(SOURCES).unwrap()
}

pub fn define(writer: &mut Writer) -> Vec<SourceId> {
    let defs = sources();
    let ids = defs.iter().map(|def| writer.define_source(def).unwrap());
    ids.collect()
}

pub fn request(ordinal: u64) -> Vec<u8> {
    let latency = ordinal.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 44;
    [&latency.to_le_bytes()[..], &[(ordinal % 3) as u8]].concat()
}

fn event(ordinal: u64) -> Vec<u8> {
    let level = match ordinal % 3 {
        0 => f64::NAN,
        _ => (ordinal as f64 - 50.0) / 7.0,
    };
    [(1_000 - ordinal as i64).to_le_bytes(), level.to_le_bytes()].concat()
}

/// Pushes records `from..to` to the sources that [`define`] gave, and returns their payloads.
pub fn push_to(writer: &mut Writer, ids: &[SourceId], from: u64, to: u64) -> Vec<Vec<u8>> {
    let push = |ordinal: u64| {
        let (source, payload) = match ordinal.is_multiple_of(97) {
            true => (ids[1], event(ordinal)),
            false => (ids[0], request(ordinal)),
        };
        writer.push(source, &payload).unwrap();
        payload
    };
    (from..to).map(push).collect()
}

/// As [`push_to`], of sources that are defined if they are not yet.
pub fn push(writer: &mut Writer, from: u64, to: u64) -> Vec<Vec<u8>> {
    let ids = define(writer);
    push_to(writer, &ids, from, to)
}
