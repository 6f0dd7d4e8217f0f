//! The catalog file: its lines, and what may follow what.
//!
//! Input: flags, then lines of JSON, whose checksums are put before them; with [`UNREPAIRED`], the bytes of the file.

use std::path::Path;

use loom_engine::format::{Rewritten, merge_lines};
use loom_engine::schema::{Catalog, decode_catalog, decode_whole_catalog, encode_line};
use loom_engine::{Address, Error};

use crate::{SOUND, UNREPAIRED, UUID, flagged, label};

pub fn run(input: &[u8]) -> String {
    let (flags, given) = flagged(input);
    let file = if flags & UNREPAIRED == 0 {
        repaired(&UUID, given)
    } else {
        given.to_vec()
    };
    match decode_catalog(&UUID, &file) {
        Ok((catalog, lines, valid_bytes)) => {
            let before = Rewritten::of(&UUID, &file);
            assert_eq!(catalog.event_count(), before.lines + lines as u64);
            let valid = file.get(..valid_bytes).unwrap_or_default();
            let again = decode_catalog(&UUID, valid).map(|(_, lines, _)| lines);
            assert_eq!(again.ok(), Some(lines), "the lines that count, alone");
            let whole = |told| decode_whole_catalog(Path::new(""), &UUID, &file, told).is_ok();
            let end = before.bytes + valid_bytes as u64;
            assert!(whole(end) && !whole(end + 1));
            rewrite(&catalog, end);
            mend(&file, valid);
            look_at(catalog);
            SOUND.to_owned()
        }
        Err(Error::Catalog { what, .. }) => label(&what),
        Err(error) => panic!("not an error of the catalog: {error}"),
    }
}

/// The text that says the same in the fewest lines is read again, and is its own.
fn rewrite(catalog: &Catalog, bytes: u64) {
    let is_usual = |count: u64| (1..1u64 << 50).contains(&count);
    let is_later = catalog.forgotten_below() > catalog.latest_at();
    if is_later || !is_usual(catalog.event_count()) || !is_usual(bytes) {
        return;
    }
    let text = catalog.rewritten_text(&UUID, bytes, catalog.latest_at(), |_| false);
    let (again, lines, end) = decode_catalog(&UUID, text.as_bytes()).expect("a text of ours");
    assert_eq!(end, text.len());
    assert_eq!(again.sources().count(), catalog.sources().count());
    let once_more = again.rewritten_text(&UUID, bytes, catalog.latest_at(), |_| false);
    let (_, lines_again, _) = decode_catalog(&UUID, once_more.as_bytes()).expect("a text of ours");
    assert_eq!(lines, lines_again);
}

/// The losses of one of two copies come from the other.
fn mend(file: &[u8], valid: &[u8]) {
    let mut damaged = file.to_vec();
    if let Some(byte) = damaged.get_mut(file.len() / 2) {
        *byte ^= 1;
    }
    let half = file.get(..file.len() / 3).unwrap_or_default();
    for [one, other] in [
        [&damaged, file],
        [file, &damaged],
        [half, file],
        [file, half],
    ] {
        assert!(merge_lines(&UUID, one, other).starts_with(valid));
    }
}

/// Puts before each line the checksum that it should have. A last line without a newline stays one.
pub fn repaired(uuid: &[u8; 16], lines: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let first = first_number(lines);
    for (line, number) in lines.split_inclusive(|byte| *byte == b'\n').zip(first..) {
        let json = line.strip_suffix(b"\n").unwrap_or(line);
        file.extend_from_slice(format!("{:08x} ", line_checksum(uuid, number, json)).as_bytes());
        file.extend_from_slice(line);
    }
    file
}

/// Lines of a catalog that was rewritten count on from those before.
fn first_number(lines: &[u8]) -> u64 {
    const BEFORE: &[u8] = br#"{"event":"rewritten","lines":"#;
    let rest = lines.strip_prefix(BEFORE).unwrap_or_default();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit());
    let text: String = digits.take(19).map(|byte| char::from(*byte)).collect();
    text.parse().unwrap_or(0)
}

fn line_checksum(uuid: &[u8; 16], number: u64, json: &[u8]) -> u32 {
    let covered = crc32c::crc32c_append(crc32c::crc32c(uuid), &number.to_le_bytes());
    crc32c::crc32c_append(covered, json)
}

/// Whatever the catalog says can be defined once more, and its layouts and filters stand any payload.
fn look_at(mut catalog: Catalog) {
    let at = Address(catalog.latest_at().0);
    let sources: Vec<_> = catalog.sources().take(8).cloned().collect();
    for source in sources {
        for (since, layout) in source.layouts.iter().take(8) {
            assert!(*since <= at);
            for payload in [&[][..], &[0; 64], &[0xFF; 300]] {
                std::hint::black_box(layout.validate(payload).is_ok());
                for field in 0..layout.field_count().min(64) {
                    std::hint::black_box((
                        layout.key(field, payload),
                        layout.bytes(field, payload),
                    ));
                }
                for index in source.indexes.iter().take(8) {
                    std::hint::black_box(index.key(layout, payload));
                }
            }
        }
        let def = source.def();
        if let Ok((id, events)) = catalog.define_source(&def, at) {
            assert_eq!(id, source.id);
            for event in events {
                std::hint::black_box(encode_line(&UUID, 0, &event));
            }
        }
    }
}
