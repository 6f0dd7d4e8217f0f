//! Frames of both directions.

use super::{Seeds, seed};

pub fn all() -> Vec<(&'static str, Seeds)> {
    vec![
        ("request", requests()),
        ("reply", replies()),
        ("ring", rings()),
    ]
}

/// A frame with its length filled in.
fn frame(kind: u8, source: u16, body: &[u8]) -> Vec<u8> {
    let [s0, s1] = source.to_le_bytes();
    let header = [kind, 0, s0, s1];
    [&(body.len() as u32).to_le_bytes()[..], &header, body].concat()
}

fn text(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u16).to_le_bytes()[..], text].concat()
}

const NUMBER: [u8; 4] = [1, 0, 0, 0];

fn requests() -> Seeds {
    let hello = frame(1, 0, &[b"LOOMSOCK", &[1, 0][..], &text(b"raw")].concat());
    let numbered = |kind: u8, rest: &[u8]| frame(kind, 0, &[&NUMBER, rest].concat());
    let (source, index) = (text(b"numbers"), text(b"n"));
    let toml = b"[[source]]\nname = 'numbers'\n";
    let refused = [&[7, 0, 0, 0][..], &source, b"too short"].concat();
    let sound = [
        hello.clone(),
        numbered(5, toml),
        frame(2, 1, &[&[2, 0, 0, 0][..], b"hihi"].concat()),
        frame(3, 1, &[text(b"a"), text(b""), text(b"bcd")].concat()),
        numbered(4, &[1, 0, 0, 0]),
        numbered(6, &source),
        numbered(7, &[&source[..], b"name = 'n'"].concat()),
        numbered(8, &[&source[..], &index].concat()),
        numbered(9, &[]),
        numbered(10, &[]),
        numbered(11, &refused),
        numbered(
            13,
            &[&[7, 0, 0, 0, 0, 0, 0, 0][..], &source, b"full"].concat(),
        ),
        numbered(12, &[1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]),
    ];
    let mut seeds = vec![
        seed("sound", &[&sound.concat()]),
        seed(
            "another_version",
            &[&frame(1, 0, b"LOOMSOCK\x63\x00whatever")],
        ),
        seed("too_long", &[&[0xFF, 0xFF, 0xFF, 0x7F, 2, 0, 1, 0]]),
        seed("unknown_kind", &[&frame(0x77, 0, &[])]),
        seed("half", &[&[200, 0, 0, 0, 2, 0, 1, 0, 9]]),
        seed("reserved_header", &[&[0, 0, 0, 0, 9, 1, 0, 0]]),
        seed("source_of_request", &[&frame(9, 3, &NUMBER)]),
        seed("depth", &[&numbered(4, &[7, 0, 0, 0])]),
        seed("sync_reserved", &[&numbered(4, &[0, 0, 1, 0])]),
        seed("push_reserved", &[&frame(2, 1, &[2, 0, 1, 0])]),
        seed("not_loom", &[&frame(1, 0, b"HTTP/1.1 200 OK")]),
        seed("zero", &[&frame(9, 0, &[0; 4])]),
        seed("ragged", &[&frame(2, 1, &[2, 0, 0, 0, 1])]),
        seed("ragged_zero", &[&frame(2, 1, &[0, 0, 0, 0, 1])]),
        seed("push_short", &[&frame(3, 1, &[9, 0, 1])]),
        seed("push_fixed_short", &[&frame(2, 1, &[9])]),
        seed("hello_short", &[&frame(1, 0, b"LOOM")]),
        seed(
            "hello_trailing",
            &[&frame(1, 0, b"LOOMSOCK\x01\x00\x00\x00more")],
        ),
        seed(
            "hello_not_utf8",
            &[&frame(1, 0, b"LOOMSOCK\x01\x00\x01\x00\xFF")],
        ),
        seed("define_not_utf8", &[&numbered(5, &[0xFF])]),
        seed("close_source_not_utf8", &[&numbered(6, &text(&[0xFF]))]),
        seed(
            "add_index_not_utf8",
            &[&numbered(7, &[&source[..], &[0xFF]].concat())],
        ),
        seed(
            "close_index_not_utf8",
            &[&numbered(8, &[&source[..], &text(&[0xC0])].concat())],
        ),
        seed("close_source_short", &[&numbered(6, &[200, 0, 1])]),
        seed(
            "refused_not_utf8",
            &[&numbered(
                11,
                &[&[7, 0, 0, 0][..], &source, &[0xFF]].concat(),
            )],
        ),
    ];
    for (name, kind) in NAMES {
        seeds.push(seed(&format!("{name}_short"), &[&frame(kind, 0, &[1, 0])]));
    }
    for (name, kind, body) in [
        ("sync", 4, &[0; 4][..]),
        ("close_source", 6, &source),
        ("close_index", 8, &[&source[..], &index].concat()),
        ("catalog", 9, &[]),
        ("status", 10, &[]),
        ("ring", 12, &[1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]),
    ] {
        let long = numbered(kind, &[body, b"more"].concat());
        seeds.push(seed(&format!("{name}_trailing"), &[&long]));
    }
    seeds
}

/// Requests that begin with a number.
const NAMES: [(&str, u8); 13] = [
    ("sync", 4),
    ("define", 5),
    ("close_source_number", 6),
    ("add_index", 7),
    ("close_index", 8),
    ("catalog", 9),
    ("status", 10),
    ("refused", 11),
    ("ring", 12),
    ("lost", 13),
    ("add_rule", 14),
    ("close_rule", 15),
    ("rules", 16),
];

fn replies() -> Seeds {
    let numbered = |kind: u8, rest: &[u8]| frame(kind, 0, &[&NUMBER, rest].concat());
    let welcome = [
        &[1, 0, 1, 0][..],
        &[0xF8, 0xFF, 3, 0],
        &[0xF8, 0x0F, 0, 0],
        &[7; 16],
    ]
    .concat();
    let counts = [&[0; 4][..], &[5; 40], &text(b"too long")].concat();
    let sources = [&[2, 0][..], &[1, 0], &text(b"a"), &[2, 0], &text(b"b")].concat();
    let sound = [
        frame(0x81, 0, &welcome),
        numbered(0x84, &counts),
        numbered(0x85, &sources),
        numbered(0x86, &[]),
        numbered(0x87, &[3, 0, 0, 0]),
        numbered(0x89, b"[]"),
        numbered(0x8A, b"{}"),
        numbered(0x8C, &[0, 0, 1, 0, 0, 0, 0, 0]),
        numbered(0x90, b"[]"),
        numbered(0xFF, &[&[5, 0][..], &text(b"no such source")].concat()),
        frame(
            0xFF,
            0,
            &[&[0, 0, 0, 0, 3, 0][..], &text(b"too many")].concat(),
        ),
        frame(0xFE, 0, &[&[0; 4][..], &counts].concat()),
    ];
    let mut seeds = vec![
        seed("sound", &[&sound.concat()]),
        seed("too_long", &[&[0xFF, 0xFF, 0xFF, 0x7F, 0x89, 0, 0, 0]]),
        seed("unknown_kind", &[&frame(0x77, 0, &[])]),
        seed("reserved_header", &[&[0, 0, 0, 0, 0x86, 1, 0, 0]]),
        seed("zero", &[&frame(0x86, 0, &[0; 4])]),
        seed("done_trailing", &[&numbered(0x86, b"more")]),
        seed("error_code", &[&numbered(0xFF, &[99, 0, 0, 0])]),
        seed(
            "durability",
            &[&frame(0x81, 0, &super::with(&welcome, 2, &[9]))],
        ),
        seed(
            "synced_reserved",
            &[&numbered(0x84, &super::with(&counts, 0, &[1]))],
        ),
        seed("goodbye_number", &[&numbered(0xFE, &counts)]),
        seed(
            "error_not_utf8",
            &[&numbered(0xFF, &[&[5, 0][..], &text(&[0xFF])].concat())],
        ),
        seed("catalog_not_utf8", &[&numbered(0x89, &[0xFF])]),
        seed("many_sources", &[&numbered(0x85, &[0xFF, 0xFF])]),
    ];
    for (name, kind, body) in [
        ("welcome", 0x81, &[1, 0][..]),
        ("synced", 0x84, &[1, 0, 0, 0, 0, 0, 0, 0, 5]),
        ("defined", 0x85, &[1, 0, 0, 0, 1]),
        ("done", 0x86, &[1, 0]),
        ("index_added", 0x87, &[1, 0, 0, 0, 1]),
        ("catalog", 0x89, &[1]),
        ("status", 0x8A, &[1]),
        ("ring", 0x8C, &[1, 0, 0, 0, 5]),
        ("rules", 0x90, &[1]),
        ("goodbye", 0xFE, &[0, 0, 0, 0, 0, 0, 0, 0, 5]),
        ("error", 0xFF, &[1, 0, 0, 0, 5]),
    ] {
        seeds.push(seed(&format!("{name}_short"), &[&frame(kind, 0, body)]));
    }
    seeds
}

/// The steps of a producer: see the target.
fn rings() -> Seeds {
    let tail = |word: u64| [&[0][..], &word.to_le_bytes()].concat();
    let dropped = |word: u64| [&[1][..], &word.to_le_bytes()].concat();
    let word =
        |place: u16, word: u64| [&[2][..], &place.to_le_bytes(), &word.to_le_bytes()].concat();
    let look = [3];
    let record = word(0, 16);
    vec![
        seed("sound", &[&[0], &record, &tail(24), &look, &dropped(3)]),
        seed("stamped", &[&[2], &record, &word(1, 9), &tail(24), &look]),
        seed("nothing", &[]),
        seed("tail_odd", &[&[0], &tail(7)]),
        seed("tail_beyond", &[&[0], &tail(1 << 40)]),
        seed("tail_back", &[&[0], &record, &tail(24), &look, &tail(16)]),
        seed("not_a_record", &[&[0], &word(0, 1 << 40), &tail(24)]),
        seed("too_long", &[&[0], &word(0, 65_535), &tail(1 << 16)]),
        seed("without_a_stamp", &[&[1], &word(0, 7), &tail(16)]),
        seed("past_the_tail", &[&[0], &word(0, 48), &tail(16)]),
        seed("dropped_too_many", &[&[0], &dropped(u64::MAX)]),
        seed("dropped_fewer", &[&[0], &dropped(3), &look, &dropped(2)]),
    ]
}
