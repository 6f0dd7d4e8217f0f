//! Tests of filters against SQL: the records that they match, and the refused texts.

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;
use crate::schema::comparison::Op;
use crate::schema::encoder::{FieldValue, PayloadEncoder};
use crate::schema::field::FieldType;
use crate::schema::layout::TimeKind;
use crate::schema::ranges::RangeSet;
use crate::types::Key;

fn fields() -> Vec<FieldDef> {
    let nullable = |field: FieldDef| FieldDef {
        nullable: true,
        ..field
    };
    let labels = [(1, "GET"), (2, "SET"), (9, "it's")].map(|(n, label)| (n, label.to_owned()));
    vec![
        nullable(FieldDef::new("u", FieldType::U16)),
        nullable(FieldDef::new("i", FieldType::I64)),
        nullable(FieldDef::new("f", FieldType::F64)),
        FieldDef {
            labels: labels.into(),
            ..FieldDef::new("op", FieldType::U8)
        },
        nullable(FieldDef::new("ok", FieldType::Bool)),
        FieldDef::new("name", FieldType::Char(8)),
        FieldDef::new("mac", FieldType::Bytes(2)),
        FieldDef::new("small", FieldType::F32),
        FieldDef::new("at", FieldType::TimestampNs),
        FieldDef::new("text", FieldType::Utf8),
    ]
}

/// One record of `fields()`.
#[derive(Clone, Debug)]
struct Record {
    u: Option<u16>,
    i: Option<i64>,
    f: Option<f64>,
    op: u8,
    ok: Option<bool>,
    name: &'static str,
    mac: [u8; 2],
    small: f32,
}

const RECORD: Record = Record {
    u: Some(17),
    i: Some(-3),
    f: Some(2.5),
    op: 2,
    ok: Some(true),
    name: "eth0",
    mac: [0xAB, b'c'],
    small: 0.1,
};

impl Record {
    fn payload(&self) -> Vec<u8> {
        let values = [
            self.u
                .map_or(FieldValue::Null, |value| FieldValue::U64(value.into())),
            self.i.map_or(FieldValue::Null, FieldValue::I64),
            self.f.map_or(FieldValue::Null, FieldValue::F64),
            FieldValue::U64(self.op.into()),
            self.ok.map_or(FieldValue::Null, FieldValue::Bool),
            FieldValue::Bytes(self.name.as_bytes()),
            FieldValue::Bytes(&self.mac),
            FieldValue::F64(self.small.into()),
            FieldValue::I64(1_000),
            FieldValue::Bytes(b"free text"),
        ];
        let mut out = Vec::new();
        let mut encoder = PayloadEncoder::new(TimeKind::Arrival, &fields()).unwrap();
        encoder.encode(None, &values, &mut out).unwrap();
        out
    }
}

fn matches(text: &str, record: &Record) -> bool {
    let layout = Layout::new(TimeKind::Arrival, &fields()).unwrap();
    let filter = Filter::parse(text, &fields()).unwrap_or_else(|error| panic!("{error}"));
    filter.matches(&layout, &record.payload())
}

fn refused(text: &str) -> String {
    Filter::parse(text, &fields()).expect_err(text).to_string()
}

#[test]
fn comparisons_match_as_in_sql() {
    for text in [
        "u = 17",
        "u == 17 and i < 0",
        "17 = u",
        "16 < u AND 18 > u",
        "u <> 18",
        "u != 18",
        "u >= 16.5 and u <= 17.0",
        "u in (3, 17)",
        "u not in (3, 18)",
        "u between 17 and 17",
        "u not between 18 and 20",
        "not u = 3",
        "NOT (u = 3 OR i = 3)",
        "(((u = 17)))",
        "u<18and i=-3",
        "u = 1.7e1",
        "u < 1e300",
        "u > -1e-300",
        "i = -3",
        "f = 2.5 AND f > 2 AND f < .3e1 AND f < 3.",
        "f < 'nan' AND f > '-inf'",
        "op = 'SET'",
        "op in ('GET', 'SET')",
        "op <> 'GET'",
        "op = 2 and op > 1",
        "op <> 'it''s'",
        "op <> '7'",
        "ok",
        "ok = true",
        "ok = 1 and ok < 2",
        "ok <> false",
        "name = 'eth0'",
        "name >= 'eth' and name < 'ethz'",
        "name in ('lo', 'eth0')",
        "name not in ('lo')",
        "name like 'eth%' and name like 'eth0' and name like 'eth0%' and name like '%'",
        "name not like 'lo%' and name not like 'eth' and name not like 'eth1%' and name not like 'eti%'",
        "text = 'free text' and text > 'free'",
        "text contains 'ee te' and text contains '' and text not contains 'Free' and name contains 'th0' and name contains 'eth0'",
        "text not in ('free', 'text') and text is not null",
        "\"name\" = 'eth0'",
        "mac = '\\xABc'",
        "mac > '\\xAB'",
        "small = 0.1",
        "small <> 1e-1 and small > 1e-1 and small < 1e39",
        "at = 1000",
        "u is not null",
        "NOT u IS NULL",
    ] {
        assert!(matches(text, &RECORD), "{text}");
        assert!(!matches(&format!("NOT ({text})"), &RECORD), "NOT ({text})");
    }
}

#[test]
fn false_and_null_do_not_match() {
    let nulls = Record {
        u: None,
        i: None,
        f: None,
        ok: None,
        ..RECORD
    };
    for text in [
        "u = 17",
        "u <> 17",
        "u in (17)",
        "u not in (17)",
        "ok",
        "not ok",
        "f < 'nan'",
    ] {
        assert!(!matches(text, &nulls), "{text}");
        assert!(!matches(&format!("NOT ({text})"), &nulls), "NOT ({text})");
    }
    assert!(matches("u IS NULL AND ok IS NULL", &nulls));
    assert!(matches("u = 17 OR op = 2", &nulls));
    assert!(!matches("u = 17 OR op = 3", &nulls));
    assert!(!matches("NOT (u = 17 AND op = 2)", &nulls));
    assert!(matches("NOT (u = 17 AND op = 3)", &nulls));
}

#[test]
fn numbers_between_integers_are_compared_exactly() {
    let record = Record {
        i: Some(-3),
        u: Some(0),
        ..RECORD
    };
    for (text, expected) in [
        ("i < -2.5", true),
        ("i > -2.5", false),
        ("i > -3.5", true),
        ("i = -3.0", true),
        ("i = -3.5", false),
        ("i <> -3.5", true),
        ("i >= -3.0000000000000000000000000000001", true),
        ("i <= -3.0000000000000000000000000000001", false),
        ("u >= -0.5", true),
        ("u > -1e-400", true),
        ("u = 0e99999999999999999999", true),
        ("u < 1e-99999999999999999999", true),
        ("u < 1e99999999999999999999", true),
        ("u > -1", true),
        ("u <= -1", false),
        ("u = 99999999999999999999999", false),
        ("i > -99999999999999999999999", true),
        ("i < 9223372036854775808", true),
        ("i < -9223372036854775808", false),
    ] {
        assert_eq!(matches(text, &record), expected, "{text}");
    }
}

#[test]
fn records_older_than_a_field_have_null_there() {
    let layout = Layout::new(TimeKind::Arrival, &fields()[..1]).unwrap();
    let payload = [0, 17, 0];
    let holds = |text| {
        Filter::parse(text, &fields())
            .unwrap()
            .matches(&layout, &payload)
    };
    assert!(holds("u = 17") && holds("i IS NULL") && holds("u = 17 OR i = 1"));
    assert!(!holds("i = 1") && !holds("i <> 1") && !holds("name = ''") && !holds("name <> ''"));
}

#[test]
fn mistakes_are_named_with_their_remedy() {
    for (text, part) in [
        (
            "",
            "column 1: expected a field, a literal, NOT or '(', found the end",
        ),
        (
            "u =",
            "expected a number, a text in single quotes, true or false, found the end",
        ),
        ("u = 17 and", "found the end"),
        ("u = 17 18", "column 8: unexpected '18'"),
        ("u = 17x", "column 7: unexpected 'x'"),
        ("(u = 17", "column 8: expected ')'"),
        ("u in ()", "expected a literal, found ')'"),
        ("u in (1 2)", "expected ',' or ')', found '2)'"),
        ("u is 3", "expected NULL, found '3'"),
        (
            "u not 3",
            "expected IN, BETWEEN, LIKE or CONTAINS, found '3'",
        ),
        (
            "name ILIKE 'a%'",
            "column 6: expected LIKE or CONTAINS, as ILIKE works in a WHERE clause only, found 'ILIKE 'a%''",
        ),
        (
            "name not ilike 'a%'",
            "as ILIKE works in a WHERE clause only",
        ),
        ("u = 1__7", "column 6: unexpected '__7'"),
        ("u = 17_", "column 7: unexpected '_'"),
        ("u = _17", "expected a number"),
        ("name like 3", "expected a text in single quotes, found '3'"),
        ("name like '%eth'", "takes one % at the end"),
        ("name like 'e_h%'", "takes one % at the end"),
        ("op like 'S%'", "'op' is u8, and LIKE takes a text"),
        ("mac like 'a%'", "'mac' is bytes[2], and LIKE takes a text"),
        (
            "text contains 3",
            "expected a text in single quotes, found '3'",
        ),
        (
            "mac contains 'a'",
            "'mac' is bytes[2], and CONTAINS takes a text",
        ),
        ("u between 1 or 2", "expected AND"),
        ("op = 'SET", "expected the closing quote"),
        ("and = 3", "column 1"),
        ("v = 3", "there is no field 'v'"),
        ("nmae = 'x'", "did you mean 'name'?"),
        ("u", "'u' is u16, not bool"),
        (
            "u = 'GET'",
            "'u' is u16 without labels and cannot be compared with the text 'GET'",
        ),
        ("u = true", "cannot be compared with true"),
        (
            "ok = 'yes'",
            "'ok' is bool and cannot be compared with the text 'yes'",
        ),
        ("f = 'x'", "cannot be compared with the text 'x'"),
        ("f = 1e999", "cannot hold a number of this size"),
        (
            "small = 1000000000000000000000000000000000000000",
            "cannot hold a number of this size",
        ),
        ("op = 'GTE'", "has no label 'GTE'; did you mean 'GET'?"),
        ("op = '2'", "has no label '2'"),
        ("op < 'SET'", "labels have no order"),
        (
            "name = 3",
            "'name' is char[8] and cannot be compared with the number 3",
        ),
        ("mac = '\\xA'", "bytes are written"),
        ("mac = 'a\\b'", "bytes are written"),
        (
            "text = 3",
            "'text' is utf8 and cannot be compared with the number 3",
        ),
        (
            "u = 111111111111111111111111111111111111111",
            "more than 38 digits",
        ),
        ("u = 3; drop", "unexpected ';"),
        ("ü = 3", "there is no field 'ü'"),
        ("ts > 3", "'ts' is not a field, and a filter tests fields"),
        ("Addr is null", "'Addr' is not a field"),
    ] {
        let message = refused(text);
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn hostile_texts_are_refused_quickly() {
    assert!(refused(&"(".repeat(10_000)).contains("at most 64 deep"));
    assert!(refused(&"not ".repeat(4_000)).contains("at most 64 deep"));
    assert!(refused(&"u = 1 and ".repeat(10_000)).contains("the limit is 16384"));
    assert!(refused(&"u = 1 or ".repeat(1_800)).len() < 400);
    let deep = format!("{}u = 1{}", "(".repeat(64), ")".repeat(64));
    assert!(Filter::parse(&deep, &fields()).is_ok());
    let many = format!("u in ({}17)", "3, ".repeat(5_000));
    assert!(matches(&many, &RECORD));
}

#[test]
fn the_expression_is_public_and_normal() {
    let expr = |text| Filter::parse(text, &fields()).unwrap().expr().clone();
    let keys = |ranges: &[(u64, u64)]| Expr::Keys {
        field: 0,
        keys: RangeSet::new(ranges.iter().map(|&(min, max)| (Key(min), Key(max)))),
    };
    assert_eq!(expr("u = 17"), keys(&[(17, 17)]));
    assert_eq!(expr("u in (5, 3, 4, 9)"), keys(&[(3, 5), (9, 9)]));
    assert_eq!(expr("not u in (5)"), keys(&[(0, 4), (6, u64::MAX)]));
    assert_eq!(expr("u = 1.5"), keys(&[]));
    assert_eq!(expr("not u >= 3"), expr("3 > u"));
    assert_eq!(
        expr("not (u = 1 and op = 'SET')"),
        expr("u <> 1 or op <> 2")
    );
}

#[test]
fn a_filter_is_implied_by_what_is_known_of_its_fields() {
    let implied = |text, known: &[(usize, u64, u64)]| {
        let known = |field| {
            let known = known.iter().find(|known| known.0 == field);
            known.map(|&(_, min, max)| RangeSet::from((Key(min), Key(max))))
        };
        Filter::parse(text, &fields())
            .unwrap()
            .expr()
            .implied_by(&known)
    };
    assert!(implied("u = 17", &[(0, 17, 17)]));
    assert!(implied("u in (16, 17, 18)", &[(0, 16, 17)]));
    assert!(!implied("u = 17", &[(0, 17, 18)]) && !implied("u = 17", &[]));
    assert!(implied("u is not null", &[(0, 0, 9)]) && !implied("u is null", &[(0, 0, 9)]));
    assert!(implied("u < 9 and op = 'SET'", &[(0, 0, 5), (3, 2, 2)]));
    assert!(!implied("u < 9 and op = 'SET'", &[(0, 0, 5)]));
    assert!(implied("u < 9 or op = 'SET'", &[(0, 0, 5)]));
    assert!(implied("name = 'x' or u < 9", &[(0, 0, 5)]) && !implied("name = 'x'", &[(0, 0, 5)]));
}

// The oracle is SQL's three-valued logic over the values, without keys or bytes.

#[derive(Clone, Debug)]
enum Sql {
    Compare(&'static str, Op, f64),
    In(&'static str, Vec<i64>),
    Label(Op, &'static str),
    Name(Op, &'static str),
    Part(&'static str),
    Flag,
    Null(&'static str),
    Not(Box<Sql>),
    And(Box<Sql>, Box<Sql>),
    Or(Box<Sql>, Box<Sql>),
}

impl Sql {
    fn text(&self) -> String {
        let op = |op: &Op| match op {
            Op::Eq => "=",
            Op::Ne => "<>",
            Op::Lt => "<",
            Op::Le => "<=",
            Op::Gt => ">",
            Op::Ge => ">=",
        };
        match self {
            Sql::Compare(field, o, value) => format!("{field} {} {value}", op(o)),
            Sql::In(field, values) => {
                let values: Vec<String> = values.iter().map(i64::to_string).collect();
                format!("{field} IN ({})", values.join(","))
            }
            Sql::Label(o, label) => format!("op{}'{label}'", op(o)),
            Sql::Name(o, name) => format!("name {} '{name}'", op(o)),
            Sql::Part(part) => format!("name CONTAINS '{part}'"),
            Sql::Flag => "ok".to_owned(),
            Sql::Null(field) => format!("{field} is null"),
            Sql::Not(a) => format!("not ({})", a.text()),
            Sql::And(a, b) => format!("({}) and ({})", a.text(), b.text()),
            Sql::Or(a, b) => format!("({}) OR ({})", a.text(), b.text()),
        }
    }

    fn eval(&self, record: &Record) -> Option<bool> {
        let number = |field: &str| match field {
            "u" => record.u.map(f64::from),
            "i" => record.i.map(|value| value as f64),
            "f" => record.f,
            _ => Some(f64::from(record.op)),
        };
        // NaN is the greatest value.
        let order = |a: f64, b: f64| {
            a.partial_cmp(&b)
                .unwrap_or_else(|| match (a.is_nan(), b.is_nan()) {
                    (true, true) => Ordering::Equal,
                    (is_nan, _) => {
                        if is_nan {
                            Ordering::Greater
                        } else {
                            Ordering::Less
                        }
                    }
                })
        };
        match self {
            Sql::Compare(field, op, value) => Some(op.holds(order(number(field)?, *value))),
            Sql::In(field, values) => {
                let found = number(field)?;
                Some(values.iter().any(|&value| found == value as f64))
            }
            Sql::Label(op, label) => {
                let value = if *label == "GET" { 1 } else { 2 };
                Some(op.holds(record.op.cmp(&value)))
            }
            Sql::Name(op, name) => Some(op.holds(record.name.cmp(name))),
            Sql::Part(part) => Some(record.name.contains(part)),
            Sql::Flag => record.ok,
            Sql::Null("ok") => Some(record.ok.is_none()),
            Sql::Null(field) => Some(number(field).is_none()),
            Sql::Not(a) => a.eval(record).map(|a| !a),
            Sql::And(a, b) => match (a.eval(record), b.eval(record)) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Sql::Or(a, b) => match (a.eval(record), b.eval(record)) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
        }
    }
}

fn any_sql() -> impl Strategy<Value = Sql> {
    let op = || prop::sample::select(vec![Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge]);
    let equality = || prop::sample::select(vec![Op::Eq, Op::Ne]);
    let number = || prop::sample::select(vec!["u", "i", "f", "op"]);
    let value = (-8i32..8).prop_map(|quarters| f64::from(quarters) / 2.0);
    let leaf = prop_oneof![
        4 => (number(), op(), value).prop_map(|(field, op, value)| Sql::Compare(field, op, value)),
        2 => (number(), prop::collection::vec(-3i64..4, 1..4)).prop_map(|(f, v)| Sql::In(f, v)),
        1 => (equality(), prop::sample::select(vec!["GET", "SET"])).prop_map(|(o, l)| Sql::Label(o, l)),
        1 => (op(), prop::sample::select(vec!["", "a", "ab", "b"])).prop_map(|(o, n)| Sql::Name(o, n)),
        1 => prop::sample::select(vec!["", "a", "b", "ba"]).prop_map(Sql::Part),
        1 => Just(Sql::Flag),
        1 => prop::sample::select(vec!["u", "i", "f", "op", "ok"]).prop_map(Sql::Null),
    ];
    leaf.prop_recursive(5, 24, 2, |inner| {
        let pair = (inner.clone(), inner.clone());
        prop_oneof![
            inner.prop_map(|a| Sql::Not(Box::new(a))),
            pair.clone()
                .prop_map(|(a, b)| Sql::And(Box::new(a), Box::new(b))),
            pair.prop_map(|(a, b)| Sql::Or(Box::new(a), Box::new(b))),
        ]
    })
}

fn any_record() -> impl Strategy<Value = Record> {
    let floats = vec![
        -2.0,
        -0.5,
        -0.0,
        0.0,
        1.5,
        2.0,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    (
        prop::option::of(0u16..5),
        prop::option::of(-4i64..5),
        prop::option::of(prop::sample::select(floats)),
        0u8..5,
        any::<Option<bool>>(),
        prop::sample::select(vec!["", "a", "ab", "b"]),
    )
        .prop_map(|(u, i, f, op, ok, name)| Record {
            u,
            i,
            f,
            op,
            ok,
            name,
            ..RECORD
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn filters_match_what_sql_says_is_true(sql in any_sql(), record in any_record()) {
        prop_assert_eq!(matches(&sql.text(), &record), sql.eval(&record) == Some(true), "{}", sql.text());
    }

    #[test]
    fn no_text_panics(text in "[uif()=<>!',. 0-9eE+\"A-D\\-]{0,40}") {
        let _ = Filter::parse(&text, &fields());
    }
}
