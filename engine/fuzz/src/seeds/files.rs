//! What is wrong with a directory's files: changes (`patch.rs`) by region and kind, and whole small files.

use super::{Seeds, seed, with};
use crate::directory::{CHUNKS_UNREPAIRED, COLUMNS, STAGED};
use crate::world::{CHUNK_BYTES, SEGMENT_UNITS, SLOT_BYTES, World, in_columns, path};
use crate::{UNREPAIRED, staging};

pub fn all() -> Vec<(&'static str, Seeds)> {
    vec![
        ("meta", metas()),
        ("durable", slots()),
        ("staging", stagings()),
        ("directory", directories()),
        ("recovery", recoveries()),
    ]
}

/// Regions of `directory`, as its input names them.
const RECORDS: u8 = 0;
const CHUNKS: u8 = 1;
const TIMES: u8 = 2;
const CATALOG: u8 = 3;
const META: u8 = 4;
const DURABLE: u8 = 5;
const ROLLUP: u8 = 6;
const ROLLUP_ENTRY: u8 = 7;
const SUMMARY: u8 = 8;
const SUMMARY_ENTRY: u8 = 9;
const LAST_SUMMARY: u8 = 10;
const STAGED_NOTE: u8 = 12;
const STAGED_WORDS: u8 = 14;
const STAGED_BLOCKS: u8 = 15;

/// What is done, as the low half of a change's first byte names it.
const REMOVE: u8 = 0;
const ODD: u8 = 1;
const CUT: u8 = 2;
const ZERO: u8 = 3;
const SWAP: u8 = 4;
const NUMBER: u8 = 5;
const SHORT_NUMBER: u8 = 6;
const STEP: u8 = 7;
const LENGTHEN: u8 = 8;
const WRITE: u8 = 9;

/// Of the telling numbers (`patch.rs`).
const ZEROES: u8 = 0;
const ONES: u8 = 2;
const FAR: u8 = 6;
const NAN: u8 = 9;

fn change(region: u8, kind: u8, at: u32, more: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = at.to_le_bytes();
    let place: &[u8] = if kind <= ODD { &[] } else { &[a, b, c] };
    [&[region << 4 | kind], place, more].concat()
}

fn metas() -> Seeds {
    let world = World::base();
    let sound = world.files.get(&path("loom.json")).unwrap_or_default();
    let text = String::from_utf8_lossy(sound).into_owned();
    let value = |key: &str, value: serde_json::Value| {
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        if let Some(members) = json.as_object_mut() {
            members.remove("checksum");
            members.insert(key.to_owned(), value);
        }
        json.to_string().into_bytes()
    };
    vec![
        seed("sound", &[sound]),
        seed("empty", &[]),
        seed("half", &[b"{\"format\": 3"]),
        seed("another_version", &[b"{\"format\": 1}"]),
        seed("format_alone", &[b"{\"format\": 3}"]),
        seed("checksum", &[&value("checksum", 1.into())]),
        seed("spaced", &[sound, b" "]),
        seed("chunk", &[&value("chunk_bytes", 1000.into())]),
        seed("chunk_larger", &[&value("chunk_bytes", 65_536.into())]),
        seed(
            "segment",
            &[&value("segment_bytes", serde_json::json!([0, 4096, 4096]))],
        ),
        seed(
            "segment_small",
            &[&value(
                "segment_bytes",
                serde_json::json!([4096, 4096, 4096]),
            )],
        ),
        seed(
            "segment_huge",
            &[&value(
                "segment_bytes",
                serde_json::json!([1u64 << 63, 1u64 << 63, 1u64 << 63]),
            )],
        ),
        seed(
            "uuid",
            &[&value(
                "uuid",
                "00000000-0000-0000-0000-000000000000".into(),
            )],
        ),
    ]
}

fn slots() -> Seeds {
    let world = World::base();
    let file = world.files.get(&path("durable")).unwrap_or_default();
    // Up to the header of the table of pending losses.
    const USED: usize = 184;
    let slot = |number: usize| {
        let from = number * SLOT_BYTES;
        file.get(from..from + USED).unwrap_or_default().to_vec()
    };
    let newest = if slot(0).get(8..16) > slot(1).get(8..16) {
        0
    } else {
        1
    };
    let only = |changed: Vec<u8>| {
        let mut slots = [vec![0; USED], vec![0; USED]];
        if let Some(place) = slots.get_mut(newest) {
            *place = changed;
        }
        slots.concat()
    };
    let sound = slot(newest);
    let at = |at: usize, number: u64| only(with(&sound, at, &number.to_le_bytes()));
    // Behind header, sequence, uuid, epoch and mark: tail and begin of the records, then of the chunks, then of the times.
    const RECORDS_TAIL: usize = 48;
    const RECORDS_BEGIN: usize = 56;
    const CHUNKS_TAIL: usize = 80;
    const TIMES_TAIL: usize = 112;
    vec![
        seed("sound", &[&[0], &slot(0), &slot(1)]),
        seed("only_newest", &[&[0], &only(sound.clone())]),
        seed("none", &[&[0]]),
        seed("unrepaired", &[&[UNREPAIRED], &at(16, 5)]),
        seed("not_clean", &[&[0], &at(40, 0)]),
        seed("far_tail", &[&[0], &at(RECORDS_TAIL, (1 << 62) - 4096)]),
        seed("beyond", &[&[0], &at(RECORDS_TAIL, u64::MAX)]),
        seed("no_records", &[&[0], &at(RECORDS_TAIL, 0)]),
        // The checksum below the tail is of another tail.
        seed(
            "tail_in_a_chunk",
            &[&[0], &at(RECORDS_TAIL, 73 * 4096 + 808)],
        ),
        seed("odd_tail", &[&[0], &at(RECORDS_TAIL, 5001)]),
        seed("late_begin", &[&[0], &at(RECORDS_BEGIN, 8192)]),
        seed("odd_begin", &[&[0], &at(RECORDS_BEGIN, 77)]),
        seed("no_nodes", &[&[0], &at(CHUNKS_TAIL, 0)]),
        seed("no_entries", &[&[0], &at(TIMES_TAIL, 0)]),
        seed("many_entries", &[&[0], &at(TIMES_TAIL, 1 << 61)]),
    ]
}

fn stagings() -> Seeds {
    const NOTE: u8 = 0;
    const HEADER: u8 = 1;
    const WORDS: u8 = 2;
    const BLOCKS: u8 = 3;
    const LOSSES_WORD: u8 = 4;
    const LOSSES: u8 = 5;
    let word = |log: u32, word: u32| 512 * log + 64 * word;
    let note = staging::note();
    let inode = note.find("\"inode\": ").unwrap_or_default() + "\"inode\": ".len();
    vec![
        seed("sound", &[]),
        seed(
            "another_file",
            &[&change(NOTE, WRITE, inode as u32, &[1, b'9'])],
        ),
        seed("no_note", &[&change(NOTE, REMOVE, 0, &[])]),
        seed("odd_note", &[&change(NOTE, ODD, 0, &[])]),
        seed("note_cut", &[&change(NOTE, CUT, 40, &[])]),
        seed("no_file", &[&change(BLOCKS, REMOVE, 0, &[])]),
        seed("odd_file", &[&change(BLOCKS, ODD, 0, &[])]),
        seed("short_file", &[&change(BLOCKS, CUT, 9000, &[])]),
        seed("no_header", &[&change(HEADER, CUT, 7, &[])]),
        seed("losses_damaged", &[&change(LOSSES, NUMBER, 40, &[ONES])]),
        seed(
            "losses_gone",
            &[
                &change(LOSSES_WORD, NUMBER, 0, &[7]),
                &change(LOSSES_WORD, NUMBER, 8, &[7]),
            ],
        ),
        seed("magic", &[&change(HEADER, NUMBER, 0, &[ZEROES])]),
        seed("version", &[&change(HEADER, STEP, 8, &[1])]),
        seed("epoch", &[&change(HEADER, STEP, 32, &[1])]),
        seed("block_zero", &[&change(HEADER, NUMBER, 40, &[ZEROES])]),
        seed("block_far", &[&change(HEADER, NUMBER, 40, &[FAR])]),
        seed(
            "tail_torn",
            &[&change(WORDS, NUMBER, word(0, 0), &[ZEROES])],
        ),
        seed(
            "tail_beyond",
            &[
                &change(WORDS, NUMBER, word(0, 0), &[FAR]),
                &change(WORDS, NUMBER, word(0, 0) + 8, &[ONES]),
            ],
        ),
        seed("head_torn", &[&change(WORDS, NUMBER, word(0, 1), &[ONES])]),
        seed("head_far", &[&change(WORDS, NUMBER, word(1, 1), &[7])]),
        seed(
            "begin",
            &[&change(
                WORDS,
                WRITE,
                word(0, 4),
                &[
                    16, 0, 0x40, 0, 0, 0, 0, 0, 0, 0xFF, 0xBF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                ],
            )],
        ),
        seed(
            "times_none",
            &[&change(
                WORDS,
                WRITE,
                word(2, 0),
                &[
                    16, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF,
                ],
            )],
        ),
        seed("blocks_zero", &[&change(BLOCKS, ZERO, 0, &[])]),
        seed(
            "records_forged",
            &[&change(BLOCKS, SHORT_NUMBER, 10, &[ONES])],
        ),
    ]
}

fn directories() -> Seeds {
    let mut seeds = vec![
        seed("sound", &[]),
        seed(
            "chunk_flipped",
            &[&[UNREPAIRED], &change(RECORDS, STEP, 5000, &[1])],
        ),
        seed(
            "chunk_mark",
            &[&[UNREPAIRED], &change(RECORDS, STEP, 8191, &[1])],
        ),
        seed(
            "chunks_checksums",
            &[&[CHUNKS_UNREPAIRED], &change(RECORDS, STEP, 50, &[1])],
        ),
        seed(
            "node_flipped",
            &[&[UNREPAIRED], &change(SUMMARY, STEP, 60, &[1])],
        ),
        seed(
            "rollup_flipped",
            &[&[UNREPAIRED], &change(ROLLUP, STEP, 60, &[1])],
        ),
        seed(
            "entry_flipped",
            &[&[UNREPAIRED], &change(SUMMARY_ENTRY, STEP, 9, &[1])],
        ),
        seed(
            "pages_swapped",
            &[&[UNREPAIRED], &change(RECORDS, SWAP, 4096, &[5, 0, 0])],
        ),
        seed(
            "pages_swapped_repaired",
            &[&[0], &change(RECORDS, SWAP, 4096, &[5, 0, 0])],
        ),
        seed(
            "record_length",
            &[&[0], &change(RECORDS, SHORT_NUMBER, 4096 + 10, &[ONES])],
        ),
        seed(
            "record_source",
            &[&[0], &change(RECORDS, WRITE, 4096 + 8, &[2, 99, 0])],
        ),
        seed(
            "record_payload",
            &[&[0], &change(RECORDS, WRITE, 10, &[2, 3, 0])],
        ),
        seed(
            "anchor_far",
            &[&[0], &change(RECORDS, NUMBER, 4096, &[FAR])],
        ),
        seed("node_length", &[&[0], &change(SUMMARY, NUMBER, 8, &[ONES])]),
        seed(
            "chain_far",
            &[&[0], &change(SUMMARY, NUMBER, 56 + 48, &[ZEROES])],
        ),
        seed("sum_nan", &[&[0], &change(ROLLUP, NUMBER, 3000, &[NAN])]),
        seed(
            "rollup_mask",
            &[&[0], &change(ROLLUP, NUMBER, 56 + 64, &[ONES])],
        ),
        seed(
            "rollup_zeroes",
            &[&[0], &change(ROLLUP, NUMBER, 56 + 8, &[ZEROES])],
        ),
        seed(
            "entry_node",
            &[&[0], &change(SUMMARY_ENTRY, NUMBER, 16, &[ONES])],
        ),
        seed(
            "entry_level",
            &[&[0], &change(SUMMARY_ENTRY, STEP, 4, &[1])],
        ),
        seed(
            "entry_of_none",
            &[&[0], &change(ROLLUP_ENTRY, NUMBER, 24, &[ZEROES])],
        ),
        seed(
            "summary_of_none",
            &[&[0], &change(SUMMARY_ENTRY, NUMBER, 24, &[ZEROES])],
        ),
        seed(
            "entry_times",
            &[&[0], &change(ROLLUP_ENTRY, NUMBER, 32, &[FAR])],
        ),
        seed("node_of_another", &[&[0], &change(SUMMARY, STEP, 16, &[1])]),
        seed("staged", &[&[STAGED]]),
    ];
    for (name, region, kind, at, more) in [
        ("staged_note_cut", STAGED_NOTE, CUT, 40, ZEROES),
        ("staged_tail_torn", STAGED_WORDS, NUMBER, 0, ZEROES),
        ("staged_head_far", STAGED_WORDS, NUMBER, 64, 7),
        ("staged_zeroes", STAGED_BLOCKS, ZERO, 0, ZEROES),
    ] {
        seeds.push(seed(name, &[&[STAGED], &change(region, kind, at, &[more])]));
    }
    for (name, region, kind, at, more) in [
        ("chain_astray", LAST_SUMMARY, NUMBER, 56 + 48, ZEROES),
        ("rollup_entry_level", ROLLUP_ENTRY, STEP, 4, 1),
        ("rollup_entry_node", ROLLUP_ENTRY, NUMBER, 16, ONES),
        ("rollup_of_another", ROLLUP, STEP, 16, 64),
    ] {
        seeds.push(seed(name, &[&[0], &change(region, kind, at, &[more])]));
    }
    seeds.extend(directories_in_columns());
    for (name, region, length) in [
        ("records", RECORDS, 70_000),
        ("chunks", CHUNKS, 900),
        ("times", TIMES, 500),
        ("catalog", CATALOG, 200),
        ("meta", META, 30),
        ("durable", DURABLE, 4100),
    ] {
        for (what, kind) in [
            ("removed", REMOVE),
            ("odd", ODD),
            ("cut", CUT),
            ("zeroed", ZERO),
            ("lengthened", LENGTHEN),
        ] {
            let more: &[u8] = if kind == LENGTHEN { &[200] } else { &[] };
            let bytes = change(region, kind, length, more);
            seeds.push(seed(&format!("{name}_{what}"), &[&[UNREPAIRED], &bytes]));
        }
    }
    seeds
}

fn directories_in_columns() -> Seeds {
    /// The last unit that holds chunks, as rows.
    const LAST: usize = 4;
    const FEWER: u64 = 15;
    let file = in_columns();
    let directory = file.len() - (SEGMENT_UNITS + 1) * 8 - 16;
    let place = |nth: usize| (directory + 8 * nth) as u32;
    let start = |nth: usize| {
        let found = file
            .get(directory + 8 * nth..)
            .and_then(|rest| rest.first_chunk());
        found.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let write =
        |at: u32, bytes: &[u8]| change(RECORDS, WRITE, at, &[&[bytes.len() as u8], bytes].concat());
    let sound = [COLUMNS];
    // The size of segments of the record log, with the blanks before it.
    let meta = World::base()
        .files
        .get(&path("loom.json"))
        .unwrap_or_default();
    let size = b" [\n    1048576";
    let at = meta.windows(size.len()).position(|bytes| bytes == size);
    let huge = change(META, WRITE, at.unwrap_or(0) as u32, b"\x0e[8796093022208");
    let unrepaired = [COLUMNS | UNREPAIRED];
    let last = start(LAST) as u32;
    let shorter = 24 + FEWER * CHUNK_BYTES as u64;
    // The lengths of a unit of rows and of its head, and its shape.
    let as_rows = [shorter as u32, 24, (FEWER as u32) << 8, 0];
    let as_rows = as_rows.map(u32::to_le_bytes).concat();
    vec![
        seed("columns", &[&sound]),
        seed("columns_staged", &[&[COLUMNS | STAGED]]),
        seed(
            "columns_removed",
            &[&sound, &change(RECORDS, REMOVE, 0, &[])],
        ),
        seed("columns_odd", &[&sound, &change(RECORDS, ODD, 0, &[])]),
        seed(
            "columns_cut",
            &[&unrepaired, &change(RECORDS, CUT, 5000, &[])],
        ),
        seed(
            "columns_empty",
            &[&unrepaired, &change(RECORDS, CUT, 0, &[])],
        ),
        seed(
            "columns_flipped",
            &[&unrepaired, &change(RECORDS, STEP, 3000, &[1])],
        ),
        seed(
            "columns_head_flipped",
            &[&unrepaired, &change(RECORDS, STEP, 40, &[1])],
        ),
        seed(
            "columns_directory_flipped",
            &[&unrepaired, &change(RECORDS, STEP, place(1), &[1])],
        ),
        seed("columns_huge_segments", &[&sound, &huge]),
        seed(
            "columns_long_unit",
            &[
                &sound,
                &write(place(LAST + 1), &start(LAST + 2).to_le_bytes()),
            ],
        ),
        seed(
            "columns_fewer_chunks",
            &[
                &sound,
                &write(last + 8, &as_rows),
                &write(place(LAST + 1), &(u64::from(last) + shorter).to_le_bytes()),
            ],
        ),
    ]
}

fn recoveries() -> Seeds {
    /// In a slot: where the records end, and where they resume.
    const TAIL: u32 = 48;
    const RESUME: u32 = 72;
    const FAR_OFF: u64 = 1 << 60;
    let slots = |at: u32| {
        let far = [&[8], &FAR_OFF.to_le_bytes()[..]].concat();
        [at, at + SLOT_BYTES as u32].map(|at| change(DURABLE, WRITE, at, &far))
    };
    let staged = |word: u32| {
        let pair = [FAR_OFF.to_le_bytes(), (!FAR_OFF).to_le_bytes()].concat();
        change(STAGED_WORDS, WRITE, 64 * word, &[&[16], &pair[..]].concat())
    };
    vec![
        seed("sound", &[]),
        seed("staged", &[&[STAGED]]),
        seed("columns", &[&[COLUMNS]]),
        seed("columns_staged", &[&[COLUMNS | STAGED]]),
        seed(
            "columns_no_slot",
            &[&[COLUMNS], &change(DURABLE, REMOVE, 0, &[])],
        ),
        seed("no_slot", &[&[0], &change(DURABLE, REMOVE, 0, &[])]),
        seed("records_cut", &[&[0], &change(RECORDS, CUT, 70_000, &[])]),
        seed("no_index", &[&[0], &change(CHUNKS, REMOVE, 0, &[])]),
        seed("no_times", &[&[0], &change(TIMES, REMOVE, 0, &[])]),
        seed("tail_far", &[&[0], &slots(TAIL).concat()]),
        seed("resume_far", &[&[0], &slots(RESUME).concat()]),
        seed(
            "staged_head_far",
            &[&[STAGED], &change(STAGED_WORDS, NUMBER, 64, &[7])],
        ),
        seed("staged_tail_far", &[&[STAGED], &staged(0)]),
        seed("staged_both_far", &[&[STAGED], &staged(0), &staged(1)]),
    ]
}
