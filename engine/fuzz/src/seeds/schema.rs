//! Catalogs, definitions, filters and payloads.

use super::{Seeds, seed};
use crate::UNREPAIRED;
use crate::definition::NEXT;
use crate::world::{World, path};

pub fn all() -> Vec<(&'static str, Seeds)> {
    vec![
        ("catalog", catalogs()),
        ("definition", definitions()),
        ("filter", filters()),
        ("payload", payloads()),
    ]
}

const TIMES: &str = r#""time":"arrival","on_overload":"block""#;

fn source(id: u32, at: u32, name: &str, fields: &str) -> String {
    format!(
        r#"{{"event":"source_defined","source":{id},"at":{at},"name":"{name}",{TIMES},"field":[{fields}]}}"#
    )
}

fn event(name: &str, members: &str) -> String {
    format!(r#"{{"event":"{name}",{members}}}"#)
}

fn index(id: u32, source: u32, def: &str) -> String {
    event(
        "index_defined",
        &format!(r#""index":{id},"source":{source},"at":0,"def":{{{def}}}"#),
    )
}

const A: &str = r#"{"name":"a","type":"u64"}"#;
const REWRITTEN: &str = r#"{"event":"rewritten","lines":7,"bytes":900,"forgotten_below":0}"#;

fn forgotten(id: u32) -> String {
    event(
        "source_forgotten",
        &format!(r#""source":{id},"at":0,"name":"s","time":"arrival""#),
    )
}

const OP: &str = r#"{"name":"op","type":"u8","labels":{"1":"GET"}}"#;

fn catalogs() -> Seeds {
    let base = World::base()
        .files
        .get(&path("catalog"))
        .unwrap_or_default()
        .split_inclusive(|byte| *byte == b'\n')
        .filter_map(|line| line.get(9..))
        .collect::<Vec<_>>()
        .concat();
    let first = source(1, 0, "s", &format!("{A},{OP}"));
    let raw = source(1, 0, "raw", "");
    let closed = event("source_closed", r#""source":1,"at":0"#);
    let by_a = index(1, 1, r#""name":"a","value":"a""#);
    let many: Vec<String> = (1..=65)
        .map(|id| index(id, 1, &format!(r#""name":"i{id}","value":"a""#)))
        .collect();
    let many = format!("{first}\n{}", many.join("\n"));
    let ended = event("index_closed", r#""index":1,"at":0"#);
    let cases = [
        ("empty", String::new()),
        (
            "later_first",
            format!("{}\n{}", source(1, 4096, "s", A), source(2, 0, "t", A)),
        ),
        ("skipped_source", source(2, 0, "s", A)),
        (
            "two_of_a_name",
            format!("{first}\n{}", source(2, 0, "s", A)),
        ),
        (
            "no_such_source",
            event("source_closed", r#""source":9,"at":0"#),
        ),
        ("closed_twice", format!("{first}\n{closed}\n{closed}")),
        (
            "open_already",
            format!(
                "{first}\n{}",
                event("source_reopened", r#""source":1,"at":0"#)
            ),
        ),
        (
            "fields_of_raw",
            format!(
                "{raw}\n{}",
                event(
                    "fields_added",
                    &format!(r#""source":1,"at":0,"field":[{A}]"#)
                )
            ),
        ),
        (
            "fields_added",
            format!(
                "{first}\n{}",
                event(
                    "fields_added",
                    r#""source":1,"at":0,"field":[{"name":"b","type":"f32","nullable":true}]"#
                )
            ),
        ),
        (
            "no_field",
            format!(
                "{first}\n{}",
                event(
                    "labels_added",
                    r#""source":1,"at":0,"field":7,"labels":{"2":"SET"}"#
                )
            ),
        ),
        (
            "labels_added",
            format!(
                "{first}\n{}",
                event(
                    "labels_added",
                    r#""source":1,"at":0,"field":1,"labels":{"2":"SET"}"#
                )
            ),
        ),
        (
            "another_label",
            format!(
                "{first}\n{}",
                event(
                    "labels_added",
                    r#""source":1,"at":0,"field":1,"labels":{"1":"SET"}"#
                )
            ),
        ),
        (
            "label_twice",
            format!(
                "{first}\n{}",
                event(
                    "labels_added",
                    r#""source":1,"at":0,"field":1,"labels":{"2":"x","2":"y"}"#
                )
            ),
        ),
        (
            "overload",
            format!(
                "{first}\n{}",
                event(
                    "overload_changed",
                    r#""source":1,"at":0,"on_overload":"drop_new""#
                )
            ),
        ),
        (
            "skipped_index",
            format!("{first}\n{}", index(2, 1, r#""name":"a","value":"a""#)),
        ),
        (
            "open_index",
            format!(
                "{first}\n{by_a}\n{}",
                index(2, 1, r#""name":"a","value":"a""#)
            ),
        ),
        (
            "index_closed_twice",
            format!("{first}\n{by_a}\n{ended}\n{ended}"),
        ),
        (
            "no_such_index",
            format!("{first}\n{}", event("index_closed", r#""index":7,"at":0"#)),
        ),
        ("many_indexes", many),
        (
            "native",
            format!(
                "{first}\n{}",
                event(
                    "index_defined",
                    r#""index":1,"source":1,"at":0,"def":{"name":"f"},"native":"float""#
                )
            ),
        ),
        (
            "native_with_value",
            format!(
                "{first}\n{}",
                event(
                    "index_defined",
                    r#""index":1,"source":1,"at":0,"def":{"name":"f","value":"a"},"native":"float""#
                )
            ),
        ),
        (
            "unknown_event",
            event("source_renamed", r#""source":1,"at":0"#),
        ),
        ("not_json", "{".to_owned()),
        ("rewritten", format!("{REWRITTEN}\n{first}")),
        ("rewritten_late", format!("{first}\n{REWRITTEN}")),
        ("forgotten", format!("{REWRITTEN}\n{}", forgotten(1))),
        (
            "forgotten_and_defined",
            format!("{REWRITTEN}\n{}\n{first}", forgotten(1)),
        ),
        (
            "forgotten_and_reopened",
            format!(
                "{}\n{}",
                forgotten(1),
                event("source_reopened", r#""source":1,"at":0"#)
            ),
        ),
        (
            "forgotten_twice",
            format!("{}\n{}", forgotten(1), forgotten(2)),
        ),
    ];
    let mut seeds = vec![seed("sound", &[&[0], &base])];
    for (name, lines) in cases {
        seeds.push(seed(name, &[&[0], lines.as_bytes(), b"\n"]));
    }
    let file = crate::catalog::repaired(&crate::UUID, format!("{first}\n").as_bytes());
    let flags = [UNREPAIRED];
    let (body, wrong_end) = file.split_at(file.len() - 1);
    assert_eq!(wrong_end, b"\n");
    seeds.push(seed("end_damaged", &[&flags, body, b"x"]));
    seeds.push(seed("too_short", &[&flags, b"abc\n", &file]));
    seeds.push(seed("checksum", &[&flags, b"00000000 {}\n", &file]));
    seeds.push(seed("torn", &[&flags, &file, b"0123"]));
    seeds.push(seed("zeroed", &[&flags, &file, &[0; 20], b"\n"]));
    seeds
}

/// A source with these lines in its table, and these tables behind.
fn toml(lines: &str, tables: &str) -> String {
    format!("[[source]]\nname = 's'\n{lines}\n{tables}\n")
}

fn field(lines: &str) -> String {
    format!("[[source.field]]\n{lines}\n")
}

const INDEX_A: &str = "[[source.index]]\nname = 'a'\nvalue = 'a'\n";
const FIELD_A: &str = "[[source.field]]\nname = 'a'\ntype = 'u64'\n";

fn with_index(lines: &str) -> String {
    let fields = [
        FIELD_A,
        &field("name = 't'\ntype = 'utf8'"),
        &field("name = 'f'\ntype = 'f64'"),
        &field("name = 'b'\ntype = 'u8'"),
    ];
    toml(
        "",
        &format!("{}[[source.index]]\nname = 'i'\n{lines}\n", fields.concat()),
    )
}

fn definitions() -> Seeds {
    let long = "x".repeat(256);
    let many = |table: &str, count: u32| -> String {
        (0..count)
            .map(|nth| table.replace('#', &nth.to_string()))
            .collect()
    };
    let cases = [
        (
            "sound",
            with_index(
                "value = 'a'\nwhere = \"a > 5 AND b IN (1, 2)\"\nbins = { from = 1, factor = 2, count = 8 }",
            ),
        ),
        (
            "sound_own",
            toml("time = 'own'\non_overload = 'drop_new'", FIELD_A),
        ),
        (
            "sound_linear",
            with_index("value = 'f'\nbins = { from = -5, step = 0.5, count = 20 }"),
        ),
        ("sound_edges", with_index("value = 'a'\nbins = [1, 2, 4]")),
        ("not_toml", "[[source]".to_owned()),
        ("unknown_key", toml("colour = 'red'", "")),
        ("builtin", "[[source]]\nname = 'loom_x'\n".to_owned()),
        ("empty_name", "[[source]]\nname = ''\n".to_owned()),
        ("long_name", format!("[[source]]\nname = '{long}'\n")),
        (
            "control_name",
            "[[source]]\nname = \"a\\u0000b\"\n".to_owned(),
        ),
        ("path_name", "[[source]]\nname = '../../x'\n".to_owned()),
        ("twice", format!("{0}{0}", toml("", ""))),
        (
            "field_twice",
            toml("", &format!("{FIELD_A}{}", FIELD_A.replace("'a'", "'A'"))),
        ),
        ("field_type", toml("", &field("name = 'a'\ntype = 'u63'"))),
        (
            "reserved_field",
            toml("", &field("name = 'ts'\ntype = 'u64'")),
        ),
        ("no_bytes", toml("", &field("name = 'a'\ntype = 'char[0]'"))),
        (
            "labels_of_text",
            toml(
                "",
                &field("name = 'a'\ntype = 'utf8'\nlabels = { 1 = 'x' }"),
            ),
        ),
        (
            "series",
            toml(
                "",
                &field(
                    "name = 'a'\ntype = 'f64'\nnullable = true\nseries = { __name__ = 'up', job = 'x' }",
                ),
            ),
        ),
        (
            "series_of_integers",
            toml(
                "",
                &field("name = 'a'\ntype = 'u64'\nseries = { __name__ = 'up' }"),
            ),
        ),
        (
            "series_long",
            toml(
                "",
                &field(&format!(
                    "name = 'a'\ntype = 'f64'\nseries = {{ l = '{}' }}",
                    "y".repeat(4096)
                )),
            ),
        ),
        (
            "label_outside",
            toml(
                "",
                &field("name = 'a'\ntype = 'u8'\nlabels = { 300 = 'x' }"),
            ),
        ),
        (
            "label_long",
            toml(
                "",
                &field(&format!(
                    "name = 'a'\ntype = 'u8'\nlabels = {{ 3 = '{}' }}",
                    "y".repeat(1025)
                )),
            ),
        ),
        (
            "label_of_two",
            toml(
                "",
                &field("name = 'a'\ntype = 'u8'\nlabels = { 3 = 'x', 4 = 'x' }"),
            ),
        ),
        (
            "label_key",
            toml("", &field("name = 'a'\ntype = 'u8'\nlabels = { x = 'x' }")),
        ),
        (
            "number_twice",
            toml(
                "",
                &field("name = 'a'\ntype = 'u8'\nlabels = { 1 = 'x', 01 = 'y' }"),
            ),
        ),
        (
            "many_fields",
            toml("", &many("[[source.field]]\nname='#'\ntype='u8'\n", 1001)),
        ),
        (
            "wide",
            toml("", &field("name = 'a'\ntype = 'bytes[65535]'")),
        ),
        (
            "many_indexes",
            toml(
                "",
                &format!(
                    "{FIELD_A}{}",
                    many("[[source.index]]\nname='#'\nvalue='a'\n", 65)
                ),
            ),
        ),
        (
            "index_twice",
            toml(
                "",
                &format!("{FIELD_A}{0}{0}", "[[source.index]]\nname='i'\nvalue='a'\n"),
            ),
        ),
        ("index_no_field", with_index("value = 'zz'")),
        ("index_near_field", with_index("value = 'aa'")),
        ("index_of_text", with_index("value = 't'")),
        ("bins_no_value", with_index("bins = [1, 2]")),
        (
            "bins_step",
            with_index("value = 'a'\nbins = { from = 1, step = 0, count = 3 }"),
        ),
        (
            "bins_factor",
            with_index("value = 'a'\nbins = { from = 0, factor = 2, count = 3 }"),
        ),
        (
            "bins_count",
            with_index("value = 'a'\nbins = { from = 1, step = 1, count = 0 }"),
        ),
        (
            "bins_keys",
            with_index("value = 'a'\nbins = { from = 1, width = 3 }"),
        ),
        (
            "bins_half",
            with_index("value = 'a'\nbins = { from = 1, count = 3 }"),
        ),
        ("bins_text", with_index("value = 'a'\nbins = 'some'")),
        ("bins_few", with_index("value = 'a'\nbins = [1]")),
        (
            "bins_many",
            with_index(&format!("value = 'a'\nbins = [{}1]", "1,".repeat(4100))),
        ),
        ("bins_outside", with_index("value = 'a'\nbins = [1, 1e30]")),
        ("bins_nan", with_index("value = 'f'\nbins = [1.0, nan]")),
        (
            "bins_infinite",
            with_index("value = 'f'\nbins = { from = 1e300, factor = 1e300, count = 5 }"),
        ),
        ("bins_descend", with_index("value = 'a'\nbins = [3, 2]")),
        (
            "bins_descend_float",
            with_index("value = 'f'\nbins = [3, 2]"),
        ),
        ("where_wrong", with_index("value = 'a'\nwhere = 'a >'")),
        ("where_long", with_index("value = 'a'\nwhere = \"t = 'x'\"")),
        (
            "two_sources",
            format!(
                "{}{}",
                toml("", FIELD_A),
                toml("", FIELD_A).replace("'s'", "'t'")
            ),
        ),
    ];
    let again = |lines: &str, tables: &str| {
        let first = toml("", &format!("{FIELD_A}{INDEX_A}"));
        format!("{first}{NEXT}{}", toml(lines, tables))
    };
    let wider = field("name = 'b'\ntype = 'u8'\nlabels = { 1 = 'x' }");
    let changes = [
        (
            "again",
            again("on_overload = 'drop_new'", &format!("{FIELD_A}{wider}")),
        ),
        ("again_time", again("time = 'own'", FIELD_A)),
        ("again_name", again("", &FIELD_A.replace("'a'", "'z'"))),
        ("again_type", again("", &FIELD_A.replace("u64", "i64"))),
        (
            "again_nullable",
            again("", &format!("{FIELD_A}nullable = true\n")),
        ),
        (
            "again_series",
            again("", &format!("{FIELD_A}series = {{ __name__ = 'up' }}\n")).replace("u64", "f64"),
        ),
        ("again_less", again("", "")),
        (
            "again_index",
            again("", &format!("{FIELD_A}{INDEX_A}bins = [1, 2]\n")),
        ),
        (
            "again_raw",
            format!("{}{NEXT}{}", toml("", ""), toml("", FIELD_A)),
        ),
    ];
    let mut seeds: Seeds = cases
        .iter()
        .chain(&changes)
        .map(|(name, toml)| seed(name, &[toml.as_bytes()]))
        .collect();
    seeds.push(seed("not_utf8", &[&[0xFF, 0xFE]]));
    seeds
}

fn filters() -> Seeds {
    let deep = format!("{}n = 1{}", "(".repeat(70), ")".repeat(70));
    let long = format!("n = 1{}", " ".repeat(17_000));
    let digits = format!("n < {}", "9".repeat(400));
    [
        (
            "sound",
            "n > 5 AND (op = 'SET' OR NOT b) AND i BETWEEN -3 AND 4",
        ),
        (
            "sound_in",
            "op IN ('GET', 2) OR c = 'abc' OR n IS NOT NULL OR f >= 1.5e3",
        ),
        ("sound_quoted", "\"n\" <> 3 and c < 'a''b'"),
        ("empty", ""),
        ("end", "n >"),
        ("no_literal", "n = ="),
        ("no_field", "zz = 1"),
        ("near_field", "nn = 1"),
        ("no_field_but_column", "ts > 5"),
        ("variable", "text = 'x'"),
        ("no_comparison", "n"),
        ("no_comparison_literal", "1 2"),
        ("literal_first", "5 < n"),
        ("literal_no_field", "5 < 6"),
        ("is_what", "n IS 5"),
        ("in_open", "n IN (1, 2"),
        ("in_nothing", "n IN 5"),
        ("in_empty", "n IN ()"),
        ("between", "n BETWEEN 1 OR 2"),
        ("between_what", "n BETWEEN AND 2"),
        ("not_what", "n NOT 5"),
        ("open", "(n = 1"),
        ("quote", "c = 'abc"),
        ("rest", "n = 1 n = 2"),
        ("deep", &deep),
        ("long", &long),
        ("digits", &digits),
        ("great", "f < 1e400"),
        ("great_integer", "n < 1e400"),
        ("no_label", "op = 'DEL'"),
        ("near_label", "op = 'SETT'"),
        ("label_order", "op < 'SET'"),
        ("bytes", "x = 'a\\xZZ'"),
        ("number_of_text", "c = 5"),
        ("text_of_number", "i = 'x'"),
        ("bool_of_number", "n = true"),
        ("is_a_bool", "i AND n = 1"),
        ("nan", "f = 'nan'"),
    ]
    .iter()
    .map(|(name, text)| seed(name, &[&[0], text.as_bytes()]))
    .chain([
        seed("not_utf8", &[&[0, 0xFF]]),
        seed(
            "matches",
            &[&[26, 0], &[5; 25], b"n = 361700864190383365 OR b"],
        ),
    ])
    .collect()
}

fn payloads() -> Seeds {
    // Own time, null bits, a, b, c, d, two lengths, two texts.
    let mixed = |null: u8, bool: u8, texts: &[u8]| {
        let fixed = [&[9; 8][..], &[null], &[1, 0], &[bool], &[0; 4], b"abcde"].concat();
        [fixed, texts.to_vec()].concat()
    };
    vec![
        seed(
            "sound_mixed",
            &[&[0], &mixed(0, 1, b"\x02\0\x04\0hi{\"a\"")],
        ),
        seed("nulls", &[&[0], &mixed(7, 0, b"\0\0\0\0")]),
        seed("sound_plain", &[&[1], &[3; 11]]),
        seed("sound_raw", &[&[2], b"anything"]),
        seed("loss", &[&[3], &[0; 51]]),
        seed(
            "loss_named",
            &[
                &[3, 3],
                &[1; 8],
                &[2; 8],
                &[2, 4],
                &[9; 16],
                b"\x03\0\x02\0abcde",
            ],
        ),
        seed("short", &[&[0], &[1; 9]]),
        seed(
            "long",
            &[&[0], &mixed(0, 1, b"\x02\0\x04\0hi{\"a\"and more")],
        ),
        seed("bool", &[&[0], &mixed(0, 2, b"\0\0\0\0")]),
    ]
}
