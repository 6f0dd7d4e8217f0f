//! Comparisons of a text or bytes with a constant, and what it contains, as tests of the stored bytes.
//!
//! DuckDB compares the text that is shown, in which U+FFFD stands for what is not UTF-8. Such bytes lie above all of ASCII, as U+FFFD does, and
//! what is before them is shown as it is. So a text is equal to a constant only if it has its bytes, as far as the constant's first U+FFFD; and
//! one that is less or greater than the constant is so by the constant's ASCII beginning, or begins with it.

use loom_engine::schema::{Case, Expr, Op};

use super::datum::Datum;

const REPLACED: char = '\u{FFFD}';

/// A test that every row passes whose field compares with the constant like this; `None` if the constant is neither text nor bytes.
pub fn compared(field: usize, op: Op, value: &Datum) -> Option<Expr> {
    let bytes = |op, bytes: &[u8]| Expr::Bytes {
        field,
        op,
        bytes: bytes.to_vec(),
    };
    let text = match value {
        Datum::Blob(blob) => return Some(bytes(op, blob)),
        Datum::Text(text) => text,
        _ => return None,
    };
    let ascii = text.split(|letter: char| !letter.is_ascii()).next();
    let ascii = ascii.unwrap_or_default();
    let is_ascii = ascii.len() == text.len();
    Some(match op {
        Op::Eq if text.contains(REPLACED) => prefixed(field, text),
        Op::Eq => bytes(op, text.as_bytes()),
        Op::Ne => anything(field),
        _ if is_ascii => bytes(op, text.as_bytes()),
        Op::Gt | Op::Ge => bytes(Op::Ge, ascii.as_bytes()),
        Op::Lt | Op::Le => match after(ascii) {
            Some(after) => bytes(Op::Lt, &after),
            None => anything(field),
        },
    })
}

/// A test that every row passes whose field begins with a text.
pub fn prefixed(field: usize, text: &str) -> Expr {
    let text = text.split(REPLACED).next().unwrap_or_default();
    let from = |op, bytes: Vec<u8>| Expr::Bytes { field, op, bytes };
    match after(text) {
        None => anything(field),
        Some(after) => Expr::All(vec![
            from(Op::Ge, text.as_bytes().to_vec()),
            from(Op::Lt, after),
        ]),
    }
}

/// A test that every row passes whose field contains a text.
pub fn containing(field: usize, part: &str, case: Case) -> Expr {
    let parts = part.split(REPLACED).filter(|part| !part.is_empty());
    Expr::All(
        std::iter::once(anything(field))
            .chain(parts.map(|part| Expr::Contains {
                field,
                part: part.to_owned(),
                case,
                is_in: true,
            }))
            .collect(),
    )
}

fn anything(field: usize) -> Expr {
    Expr::Null {
        field,
        is_null: false,
    }
}

/// The least bytes above all that begin with this text; `None` if it is empty. UTF-8 has no byte 255.
fn after(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.as_bytes().to_vec();
    *bytes.last_mut()? += 1;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use loom_engine::schema::{FieldDef, FieldType, FieldValue, PayloadEncoder, TimeKind};
    use proptest::prelude::*;

    use super::*;

    /// Texts and bytes that are not UTF-8, which share their beginnings.
    fn stored() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            &b"a"[..],
            b"b",
            b"\x7f",
            b"\x00",
            b"\xc3\xa9",
            b"\xef\xbf\xbd",
            b"\xf4\x8f\xbf\xbf",
            b"\x80",
            b"\xff",
            b"\xc3",
        ]);
        prop::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn no_row_is_lost_that_compares_so_with_what_is_shown(bytes in stored(), constant in stored(), longer in stored()) {
            let field = FieldDef::new("t", FieldType::Utf8);
            let mut encoder = PayloadEncoder::new(TimeKind::Arrival, &[field]).unwrap();
            let constant = String::from_utf8_lossy(&constant).into_owned();
            let bytes = [bytes, longer].concat();
            let shown = String::from_utf8_lossy(&bytes);
            let mut payload = Vec::new();
            encoder.encode(None, &[FieldValue::Bytes(&bytes)], &mut payload).unwrap();
            let layout = encoder.layout();
            for op in [Op::Eq, Op::Ne, Op::Lt, Op::Le, Op::Gt, Op::Ge] {
                let test = compared(0, op, &Datum::Text(constant.clone())).unwrap();
                if op.holds(shown.as_bytes().cmp(constant.as_bytes())) {
                    prop_assert!(test.matches(layout, &payload), "{:?} {:?} {:?}", shown, op, constant);
                }
            }
            if shown.starts_with(&*constant) {
                prop_assert!(prefixed(0, &constant).matches(layout, &payload));
            }
            if shown.contains(&*constant) {
                prop_assert!(containing(0, &constant, Case::Sensitive).matches(layout, &payload));
            }
            if shown.to_lowercase().contains(&constant.to_lowercase()) {
                prop_assert!(containing(0, &constant, Case::Insensitive).matches(layout, &payload));
            }
        }
    }

    #[test]
    fn a_prefix_ends_before_the_next_text() {
        let bytes = |op, text: &[u8]| Expr::Bytes {
            field: 3,
            op,
            bytes: text.to_vec(),
        };
        let both = Expr::All(vec![bytes(Op::Ge, b"ab"), bytes(Op::Lt, b"ac")]);
        assert_eq!(prefixed(3, "ab"), both);
        assert_eq!(prefixed(3, "ab\u{FFFD}cd"), both);
        assert_eq!(prefixed(3, ""), anything(3));
    }
}
