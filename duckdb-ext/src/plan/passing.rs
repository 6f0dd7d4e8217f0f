//! The rows that may pass a clause: `loom_scan` drops the others before it writes their columns, and DuckDB tests the rest again.

use std::sync::Arc;

use loom_engine::Key;
use loom_engine::query::Predicate;
use loom_engine::schema::{Case, Expr, Op, RangeSet, Source};

use super::clause::Clause;
use super::prune::{Known, Meaning, Reader, gather};

/// The conditions that every passing row fulfils.
#[derive(Debug, Default)]
pub struct PassingRows {
    /// The keys that fields can have; none of these fields is NULL.
    pub keys: Vec<(usize, RangeSet<Key>)>,
    /// Fields of texts or bytes that are NULL.
    pub null_texts: Vec<usize>,
    /// Tests of texts and bytes.
    pub tests: Vec<Expr>,
}

impl PassingRows {
    /// The rows that pass `clause`, for a source of the directory `dir`. The call was bound with the first `fields` fields.
    pub fn of(clause: &Clause, dir: &str, source: &Source, fields: usize) -> PassingRows {
        let reader = Reader {
            dir,
            source,
            fields,
        };
        let (mut known, mut flat) = (Known::default(), Vec::new());
        let meaning = [reader.meaning(clause)];
        gather(&meaning, &mut flat, &mut known);
        let tests = flat.iter().filter_map(|part| text_test(part)).collect();
        let null_texts = flat.into_iter().filter_map(|part| match part {
            Meaning::Field(Expr::Null {
                field,
                is_null: true,
            }) => Some(*field).filter(|field| reader.field(*field).is_none()),
            _ => None,
        });
        let null_texts = null_texts.collect();
        let mut keys: Vec<_> = known.into_iter().collect();
        keys.sort_unstable_by_key(|(field, _)| *field);
        PassingRows {
            keys,
            null_texts,
            tests,
        }
    }

    /// Only the rows whose texts are NULL. DuckDB may evaluate other conditions before `IS NULL`, so the others may not be shown without their
    /// texts.
    pub fn predicate(&self) -> Predicate {
        let null = |field: &usize| {
            let (field, is_null) = (*field, true);
            Predicate::Fields(Arc::new(Expr::Null { field, is_null }))
        };
        Predicate::and(self.null_texts.iter().map(null))
    }
}

/// The test of texts that a part of a clause is; `None` if it is another, or costs more than it saves.
fn text_test(meaning: &Meaning) -> Option<Expr> {
    match meaning {
        Meaning::Field(expr) => is_cheap(expr).then(|| expr.clone()),
        Meaning::Or(sides) => match sides.as_slice() {
            [one] => text_test(one),
            sides => {
                let sides = sides.iter().map(text_test);
                sides.collect::<Option<Vec<Expr>>>().map(Expr::Any)
            }
        },
        _ => None,
    }
}

/// Whether a test takes less than the rows that it drops would.
fn is_cheap(expr: &Expr) -> bool {
    match expr {
        Expr::Bytes { op, .. } => *op != Op::Ne,
        Expr::Contains { case, .. } => *case == Case::Sensitive,
        // Beside tests for NULL it has tests of one kind.
        Expr::All(tests) => tests.iter().any(is_cheap),
        Expr::Keys { .. } | Expr::Null { .. } | Expr::Any(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use loom_engine::Address;
    use loom_engine::schema::{Catalog, parse_sources};

    use super::*;
    use crate::plan::clause::Term;
    use crate::plan::datum::Datum;

    const SOURCE: &str = r#"
        [[source]]
        name = "request"
        field = [
            { name = "note", type = "utf8", nullable = true },
            { name = "took", type = "u32" },
            { name = "load", type = "f64", nullable = true },
        ]
    "#;
    /// The positions of columns; fields stand behind `source`, `ts` and `ts_ns`.
    const NOTE: usize = 3;
    const TOOK: usize = 4;
    const LOAD: usize = 5;

    fn of(clause: &Clause) -> PassingRows {
        let mut catalog = Catalog::new();
        for def in parse_sources(SOURCE).unwrap() {
            catalog.define_source(&def, Address::ZERO).unwrap();
        }
        let source = catalog.find("request").unwrap();
        PassingRows::of(clause, "a.loom", source, 3)
    }

    fn tests_of(clause: &Clause) -> Vec<Expr> {
        of(clause).tests
    }

    fn term(column: usize) -> Term {
        let steps = Vec::new();
        Term { column, steps }
    }

    fn took(op: Op, number: i128) -> Clause {
        Clause::compare(term(TOOK), op, Datum::Int(number))
    }

    fn compared(op: Op) -> Clause {
        Clause::compare(term(NOTE), op, Datum::Text("a".into()))
    }

    fn contains(case: Case) -> Clause {
        let (term, part) = (term(NOTE), "quota".into());
        Clause::Contains { term, part, case }
    }

    #[test]
    fn keys_are_those_that_every_part_of_a_conjunction_leaves() {
        let load = Clause::compare(term(LOAD), Op::Gt, Datum::Int(5));
        let either = Clause::Or(vec![load.clone(), took(Op::Eq, 1)]);
        let inner = Clause::And(vec![took(Op::Lt, 20), load]);
        let null = |column: usize, is_null: bool| Clause::Null {
            term: term(column),
            is_null,
        };
        let open = Clause::Or(vec![null(NOTE, false), Clause::Opaque]);
        let nulls = [null(NOTE, true), null(LOAD, true), open];
        let all = [took(Op::Ge, 10), either, Clause::Opaque, inner];
        let found = of(&Clause::And(all.into_iter().chain(nulls).collect()));
        assert_eq!(
            found.null_texts,
            [0],
            "a number is read whether or not it is NULL"
        );
        let [(1, took), (2, load)] = found.keys.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(took.ranges(), [(Key(10), Key(19))]);
        assert!(!load.contains(Key::from_f64(5.0)) && load.contains(Key::from_f64(5.5)));
        let none = of(&Clause::Opaque);
        assert!(none.keys.is_empty() && none.null_texts.is_empty() && none.tests.is_empty());
    }

    #[test]
    fn rows_are_left_out_by_their_texts_where_this_is_cheap() {
        let bytes = |op, bytes: &[u8]| Expr::Bytes {
            field: 0,
            op,
            bytes: bytes.to_vec(),
        };
        assert_eq!(tests_of(&compared(Op::Eq)), [bytes(Op::Eq, b"a")]);
        assert_eq!(tests_of(&compared(Op::Lt)), [bytes(Op::Lt, b"a")]);
        assert_eq!(tests_of(&compared(Op::Ne)), []);
        let one_of = |texts: &[&str]| {
            let values = texts.iter().map(|text| Datum::Text((*text).into()));
            let (term, values) = (term(NOTE), values.collect());
            tests_of(&Clause::In { term, values })
        };
        let either = [bytes(Op::Eq, b"a"), bytes(Op::Eq, b"b")];
        assert_eq!(one_of(&["a", "b"]), [Expr::Any(either.to_vec())]);
        assert_eq!(tests_of(&contains(Case::Sensitive)).len(), 1);
        assert_eq!(tests_of(&contains(Case::Insensitive)), []);
        let any = Clause::Or(vec![compared(Op::Eq), took(Op::Eq, 3)]);
        assert_eq!(tests_of(&any), [], "not only texts");
        let both = Clause::And(vec![compared(Op::Eq), took(Op::Eq, 3)]);
        assert_eq!(tests_of(&both), [bytes(Op::Eq, b"a")]);
    }
}
