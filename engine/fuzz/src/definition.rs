//! Definitions of sources, as people and clients write them, and the catalog that they make.
//!
//! Input: TOML; behind a line of [`NEXT`], more of it, defined after the first.

use loom_engine::schema::{Catalog, decode_catalog, encode_line, parse_sources};
use loom_engine::{Address, Result};

use crate::{SOUND, UUID, label};

/// Between two documents.
const NEXT: &str = "\n===\n";

pub fn run(input: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(input) else {
        return "not UTF-8".to_owned();
    };
    let mut catalog = Catalog::new();
    let mut file = String::new();
    let defined = text
        .split(NEXT)
        .try_for_each(|toml| define(&mut catalog, &mut file, toml));
    let read = decode_catalog(&UUID, file.as_bytes()).map(|(read, _, bytes)| {
        let names: Vec<_> = read.sources().map(|source| source.name.clone()).collect();
        (names, bytes)
    });
    let names = catalog
        .sources()
        .map(|source| source.name.clone())
        .collect();
    assert_eq!(read.ok(), Some((names, file.len())), "read from its file");
    defined.map_or_else(|error| label(&error), |()| SOUND.to_owned())
}

/// Defines the sources of a document, and appends the lines that record it to the catalog's file.
fn define(catalog: &mut Catalog, file: &mut String, toml: &str) -> Result<()> {
    for def in parse_sources(toml)? {
        let before = catalog.event_count();
        let (id, events) = catalog.define_source(&def, Address(0)).inspect_err(|_| {
            assert_eq!(catalog.event_count(), before, "refused, and yet changed");
        })?;
        for (event, number) in events.iter().zip(before..) {
            file.push_str(&encode_line(&UUID, number, event));
        }
        let again = catalog.define_source(&def, Address(0));
        let again = again.map(|(id, events)| (id, events.len())).ok();
        assert_eq!(again, Some((id, 0)), "the same definition again");
    }
    Ok(())
}
