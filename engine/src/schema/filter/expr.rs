//! A resolved filter: each test names a field by its number and holds keys or bytes.
//!
//! NOT is pushed down into the tests, which only stand for TRUE. So a record matches in SQL's three-valued logic exactly if it matches here
//! in two-valued logic, where a test of a NULL does not hold.

use crate::format::Case;
use crate::proven::at;
use crate::schema::comparison::Op;
use crate::schema::field::FieldType;
use crate::schema::layout::Layout;
use crate::schema::ranges::RangeSet;
use crate::types::Key;

/// A test of a record, which holds or does not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expr {
    /// The field is not NULL and has one of these keys.
    Keys { field: usize, keys: RangeSet<Key> },
    /// The field, a text or bytes, is not NULL and compares with the bytes like this. A `char` ends at its first NUL.
    Bytes {
        field: usize,
        op: Op,
        bytes: Vec<u8>,
    },
    /// The field, a text, is not NULL and contains the part, or does not.
    Contains {
        field: usize,
        part: String,
        case: Case,
        is_in: bool,
    },
    /// The field is NULL, or is not NULL.
    Null { field: usize, is_null: bool },
    /// All tests hold; an empty list holds.
    All(Vec<Expr>),
    /// At least one test holds; an empty list does not.
    Any(Vec<Expr>),
}

impl Expr {
    /// Whether the test is TRUE for a record.
    pub fn matches(&self, layout: &Layout, payload: &[u8]) -> bool {
        match self {
            Expr::Keys { field, keys } => layout
                .key(*field, payload)
                .is_some_and(|key| keys.contains(key)),
            Expr::Bytes { field, op, bytes } => layout
                .bytes(*field, payload)
                .is_some_and(|found| op.holds(compared(layout, *field, found).cmp(bytes))),
            Expr::Contains {
                field,
                part,
                case,
                is_in,
            } => layout.bytes(*field, payload).is_some_and(|found| {
                case.contains(compared(layout, *field, found), part) == *is_in
            }),
            Expr::Null { field, is_null } => layout.is_null(*field, payload) == *is_null,
            Expr::All(tests) => tests.iter().all(|test| test.matches(layout, payload)),
            Expr::Any(tests) => tests.iter().any(|test| test.matches(layout, payload)),
        }
    }

    /// Calls `each` with every field that is tested.
    pub(crate) fn each_field(&self, each: &mut impl FnMut(usize)) {
        self.each_use(&mut |field, _| each(field));
    }

    /// Calls `each` with every field whose value is compared.
    pub(crate) fn each_compared(&self, each: &mut impl FnMut(usize)) {
        self.each_use(&mut |field, is_compared| {
            if is_compared {
                each(field);
            }
        });
    }

    /// Calls `each` with every field that is tested, and whether its value is compared; otherwise only whether it is NULL counts.
    pub(crate) fn each_use(&self, each: &mut dyn FnMut(usize, bool)) {
        match self {
            Expr::Keys { field, .. } | Expr::Bytes { field, .. } | Expr::Contains { field, .. } => {
                each(*field, true)
            }
            Expr::Null { field, .. } => each(*field, false),
            Expr::All(tests) | Expr::Any(tests) => {
                tests.iter().for_each(|test| test.each_use(each))
            }
        }
    }

    /// Appends the keys that fields must have. Returns false, perhaps with some appended, if the filter requires more than keys.
    pub(crate) fn add_field_keys<'a>(
        &'a self,
        found: &mut Vec<(usize, &'a RangeSet<Key>)>,
    ) -> bool {
        match self {
            Expr::Keys { field, keys } => {
                found.push((*field, keys));
                true
            }
            Expr::All(tests) => tests.iter().all(|test| test.add_field_keys(found)),
            Expr::Bytes { .. } | Expr::Contains { .. } | Expr::Null { .. } | Expr::Any(_) => false,
        }
    }

    /// Whether the test holds for every record with the known keys. `known` returns the keys that a field can have if it is known not to be
    /// NULL.
    pub fn implied_by(&self, known: &impl Fn(usize) -> Option<RangeSet<Key>>) -> bool {
        match self {
            Expr::Keys { field, keys } => known(*field).is_some_and(|known| known.is_within(keys)),
            Expr::Bytes { .. } | Expr::Contains { .. } => false,
            Expr::Null { field, is_null } => !is_null && known(*field).is_some(),
            Expr::All(tests) => tests.iter().all(|test| test.implied_by(known)),
            Expr::Any(tests) => tests.iter().any(|test| test.implied_by(known)),
        }
    }

    /// The test that is TRUE where SQL's NOT of this one is. Neither is TRUE for a NULL.
    pub(super) fn negated(self) -> Expr {
        match self {
            Expr::Keys { field, keys } => Expr::Keys {
                field,
                keys: keys.complement(),
            },
            Expr::Bytes { field, op, bytes } => Expr::Bytes {
                field,
                op: op.negated(),
                bytes,
            },
            Expr::Contains {
                field,
                part,
                case,
                is_in,
            } => Expr::Contains {
                field,
                part,
                case,
                is_in: !is_in,
            },
            Expr::Null { field, is_null } => Expr::Null {
                field,
                is_null: !is_null,
            },
            Expr::All(tests) => Expr::Any(tests.into_iter().map(Expr::negated).collect()),
            Expr::Any(tests) => Expr::All(tests.into_iter().map(Expr::negated).collect()),
        }
    }
}

/// The bytes by which a field is compared: a `char` without its padding.
pub(crate) fn compared<'a>(layout: &Layout, field: usize, bytes: &'a [u8]) -> &'a [u8] {
    let is_char = layout
        .slot(field)
        .is_some_and(|slot| matches!(slot.ty, FieldType::Char(_)));
    match is_char {
        true => at(bytes, ..memchr::memchr(0, bytes).unwrap_or(bytes.len())),
        false => bytes,
    }
}
