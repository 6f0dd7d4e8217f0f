//! Units of column segments: the parts of free ones, changes to a sound one, records to encode.

use super::{Seeds, seed};
use crate::columns::put_number;
use crate::unit::{ENCODED, FREE, PATCHED, sound};
use crate::{UNREPAIRED, flagged};

/// Regions of `unit` in patches.
const UNIT: u8 = 0;
const HEAD: u8 = 1;
const DIRECTORY: u8 = 2;

/// What is done, as `patch.rs` names it.
const CUT: u8 = 2;
const NUMBER: u8 = 5;
const STEP: u8 = 7;
const WRITE: u8 = 9;
/// Of its telling numbers: as many bits as there are.
const ONES: u8 = 2;

/// Behind packed numbers.
const SLACK: [u8; 8] = [0; 8];
/// A block of zeroes: the order of a unit of one stream, times that are all the same.
const ZEROES: [u8; 2] = [0, 0];

pub fn all() -> Vec<(&'static str, Seeds)> {
    let mut seeds = blocks();
    seeds.extend(tails());
    seeds.extend(changes());
    seeds.extend(records());
    vec![("unit", seeds)]
}

/// A unit of one stream with these pieces; `shape` has its highest bit set if any bytes follow them.
fn free(name: &str, rest: u8, rows: u8, pieces: &[u8], group: &[u8]) -> (String, Vec<u8>) {
    of_order(
        name,
        &[&ZEROES[..], &SLACK].concat(),
        rest,
        rows,
        pieces,
        group,
    )
}

fn of_order(
    name: &str,
    order: &[u8],
    rest: u8,
    rows: u8,
    pieces: &[u8],
    group: &[u8],
) -> (String, Vec<u8>) {
    let head = [
        FREE,
        order.len() as u8,
        rest << 7 | pieces.len() as u8,
        rows,
    ];
    seed(name, &[&head, pieces, order, group])
}

/// One column of 8 bytes, after the times, in each encoding and with each error.
fn blocks() -> Seeds {
    let column = |name: &str, kind: u8, rows: u8, block: &[u8]| {
        free(
            name,
            0,
            rows,
            &[8 | kind << 4],
            &[&ZEROES, block, &SLACK].concat(),
        )
    };
    let number = |name: &str, rows: u8, block: &[u8]| column(name, 0, rows, block);
    vec![
        number("constant", 3, &[0, 4]),
        number("packed", 3, &[1, 4, 2, 0b11_0110]),
        number("differences", 3, &[2, 4, 2, 1, 0b10]),
        number("runs", 3, &[3, 2, 1, 4, 1, 0b10, 1, 2, 1, 0b01]),
        number("dictionary", 3, &[4, 2, 1, 4, 1, 0b10, 1, 0b101]),
        number(
            "bits",
            3,
            &[
                &[5][..],
                &[0x80, 0, 0, 0, 0, 0, 0, 0],
                &[0x11, 0, 0, 0, 0, 0, 0, 0],
                &[0b11_0110],
            ]
            .concat(),
        ),
        column("scaled", 2, 3, &[6, 2, 1, 4, 2, 0b11_0110]),
        column("signed", 1, 3, &[0, 3]),
        number("unknown_encoding", 3, &[9, 0]),
        number("scaled_integers", 3, &[6, 2, 0, 4]),
        column("exponent", 2, 3, &[6, 99, 0, 4]),
        number("too_deep", 1, &[3, 1, 3, 1, 3, 1, 0, 4]),
        number("width", 3, &[1, 4, 60]),
        number("no_runs", 3, &[3, 0]),
        number("long_run", 3, &[3, 1, 0, 4, 0, 18]),
        number("short_run", 3, &[3, 1, 0, 4, 0, 2]),
        number("no_such_value", 3, &[4, 1, 0, 4, 2, 0b11_1111]),
        free(
            "number_cut",
            0,
            1,
            &[8],
            // To the end of the unit: nothing stands behind it.
            &[&ZEROES[..], &[0, 0x80, 0x80, 0x80]].concat(),
        ),
        free(
            "column_cut",
            0,
            1,
            &[8],
            &[&ZEROES[..], &[1, 4, 64, 1]].concat(),
        ),
        free(
            "decreasing",
            0,
            2,
            &[8],
            &[&[2, 200, 1, 19, 0][..], &SLACK, &ZEROES].concat(),
        ),
        free("too_many", 0, 255, &[8; 3], &[]),
        free("piece", 0, 1, &[9], &[]),
        free("length_before_anything", 1, 1, &[0x32], &[]),
        of_order(
            "another_stream",
            &[0, 2],
            0,
            1,
            &[8],
            &[&ZEROES[..], &ZEROES, &SLACK].concat(),
        ),
    ]
}

/// Bytes behind the pieces: times, lengths, the bytes.
fn tails() -> Seeds {
    let rest = |name: &str, rows: u8, length: u64, bytes: &[u8]| {
        let mut lengths = vec![0];
        put_number(&mut lengths, length << 1);
        free(
            name,
            1,
            rows,
            &[],
            &[&ZEROES, &lengths[..], bytes, &SLACK].concat(),
        )
    };
    vec![
        rest("rest", 2, 3, b"\0one two"),
        free(
            "text",
            0,
            2,
            &[0x32],
            &[&ZEROES[..], &[0, 6], b"\0onetwo", &SLACK].concat(),
        ),
        rest("long_field", 1, 5000, &[]),
        rest("long_fields", 2, 4000, &[]),
        rest("form", 2, 3, &[7]),
        rest("not_zstd", 2, 3, &[1, 3, 1, 2, 3]),
        rest("no_room", 250, 10, &[&[0][..], &[b'x'; 2500]].concat()),
    ]
}

fn change(region: u8, kind: u8, at: usize, more: &[u8]) -> Vec<u8> {
    let [a, b, c, ..] = at.to_le_bytes();
    [&[region << 4 | kind, a, b, c], more].concat()
}

fn write(region: u8, at: usize, bytes: &[u8]) -> Vec<u8> {
    change(region, WRITE, at, &[&[bytes.len() as u8], bytes].concat())
}

fn changes() -> Seeds {
    let unit = sound();
    let head_bytes = unit.get(12..).and_then(|rest| rest.first_chunk());
    let head_bytes = head_bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize);
    let chunks = usize::from(unit.get(17).copied().unwrap_or(0));
    // The first stream's head: its source, three pieces, the pieces.
    let stream = [1, 6, 0x01, 0x14, 0x28];
    let stream = unit
        .windows(stream.len())
        .position(|bytes| bytes == stream)
        .unwrap_or(0);
    // Behind its counts stand the parts of its row groups.
    let counts = unit.get(stream + 5..).unwrap_or(&[]).iter().enumerate();
    let mut ends = counts.filter(|(_, byte)| **byte < 0x80);
    let group = stream + 6 + ends.nth(chunks - 1).map_or(0, |(end, _)| end);
    // The family's: two pieces, the pieces, eight members, the first of their sources and how far the others are apart, the counts.
    let family = [4, 0x04, 0x28, 8, 4, 1, 1];
    let family = unit
        .windows(family.len())
        .position(|bytes| bytes == family)
        .unwrap_or(0);
    let counts = family + 4 + 8;
    let count_bytes = usize::from(unit.get(counts).copied().unwrap_or(0));
    let patched = |name: &str, change: &[u8]| seed(name, &[&[PATCHED], change]);
    let unrepaired = |name: &str, change: &[u8]| seed(name, &[&[PATCHED | UNREPAIRED], change]);
    vec![
        seed("sound", &[]),
        patched("head_cut", &change(UNIT, CUT, 10, &[])),
        patched("unit_cut", &change(UNIT, CUT, unit.len() - 8, &[])),
        patched("magic", &write(HEAD, 0, b"x")),
        patched("unit_form", &write(HEAD, 16, &[9])),
        patched("as_rows", &write(HEAD, 16, &[0])),
        patched("unit_length", &change(HEAD, NUMBER, 8, &[ONES])),
        patched("fewer_chunks", &write(HEAD, 17, &[chunks as u8 - 1])),
        patched("no_streams", &write(HEAD, 18, &[0, 0])),
        patched("many_streams", &write(HEAD, 18, &[0xFF, 0xFF])),
        patched(
            "section_length",
            &write(HEAD, 24 + 5 * chunks, &[0xFF, 0xFF, 0x7F]),
        ),
        patched("no_source", &write(HEAD, stream, &[0])),
        patched("more_streams_alone", &write(HEAD, stream - 1, &[0x7F])),
        patched("no_blocks_of_a_part", &write(HEAD, group, &[0])),
        patched("many_blocks_of_a_part", &write(HEAD, group, &[5])),
        patched("not_in_parts", &write(HEAD, 16, &[2])),
        patched("no_members", &write(HEAD, family + 3, &[0])),
        patched("many_members", &write(HEAD, family + 3, &[9])),
        patched("no_source_of_a_member", &write(HEAD, family + 4, &[0])),
        patched("no_records_of_members", &write(HEAD, counts + 1, &[0, 0])),
        patched("records_of_members", &write(HEAD, counts + 1, &[0, 0x7E])),
        patched(
            "no_members_of_a_group",
            &write(HEAD, counts + 1 + count_bytes, &[0]),
        ),
        patched("order_of_one", &write(UNIT, head_bytes, &[0, 0])),
        unrepaired("head_checksum", &change(HEAD, STEP, 30, &[1])),
        unrepaired(
            "section_checksum",
            &change(UNIT, STEP, head_bytes + 1, &[1]),
        ),
        patched("directory_cut", &change(DIRECTORY, CUT, 20, &[])),
        patched("footer", &change(DIRECTORY, NUMBER, 40, &[ONES])),
        patched("places", &change(DIRECTORY, NUMBER, 8, &[ONES])),
        unrepaired("directory_checksum", &change(DIRECTORY, STEP, 9, &[1])),
    ]
}

/// Records to encode: what the four sources have, then source and time and how often, length, payload.
fn records() -> Seeds {
    let templates = [3, 0x01, 0x14, 0x28, 2, 0x08, 0x32, 0x80, 0];
    let (_, three) = flagged(&[0, b'a', b'b', b'c']);
    let mut mixed = Vec::new();
    for nth in 0..40u8 {
        mixed.extend_from_slice(&[
            0xF0,
            13,
            nth % 3,
            nth,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0,
            0xF0,
            0x3F,
        ]);
        mixed.extend_from_slice(&[0x31 | (nth % 3) << 2, 13, nth, 0, 0, 0, 0, 0, 0, 0, 3, 0]);
        mixed.extend_from_slice(three);
        mixed.extend_from_slice(&[0x52, 3]);
        mixed.extend_from_slice(three);
    }
    let odd = [0x3C, 13, 1, 2, 3, 0x10, 13, 1, 9, 9, 9, 9, 9, 9, 9, 200, 0];
    // Three chunks of one source, then another.
    let mut apart = Vec::new();
    for what in [0xF1, 0xF1, 0xF1, 0xF0] {
        apart.extend_from_slice(&[what, 200]);
        apart.extend_from_slice(&[what; 200]);
    }
    vec![
        seed("encoded", &[&[ENCODED], &templates, &mixed]),
        seed("encoded_nothing", &[&[ENCODED], &templates]),
        seed("encoded_otherwise", &[&[ENCODED], &templates, &odd]),
        seed(
            "encoded_as_numbers",
            &[&[ENCODED], &[1, 0x08, 1, 0x12, 1, 0x24, 1, 0x05], &mixed],
        ),
        seed(
            "encoded_apart",
            &[&[ENCODED], &[0x80, 0x80, 0x80, 0x80], &apart],
        ),
    ]
}
