//! Turns a [`Clause`] into the engine's predicate over summaries and zones. Each comparison becomes a set of times, or of keys: for every index
//! of the field, or else for the zones of the field itself; no step may make the set smaller. An index with a filter is used if the clause
//! implies the filter. Texts are compared by their bytes (see [`super::texts`]).

use std::collections::HashMap;
use std::sync::Arc;

use loom_engine::query::Predicate;
use loom_engine::schema::{
    Constant, Domain, Expr, FieldDef, FieldType, Index, Number, Op, RangeSet, Source,
};
use loom_engine::{Key, Timestamp, ValueKind, ValueRange};

use super::clause::{Clause, Step, Term};
use super::columns::{Shown, shown};
use super::datum::Datum;
use super::monotone::{number_keys, time_range};
use super::texts;

/// The predicate for a source of the directory `dir`. The call was bound with the first `fields` fields.
pub fn predicate(clause: &Clause, dir: &str, source: &Source, fields: usize) -> Predicate {
    let reader = Reader {
        dir,
        source,
        fields,
    };
    let meaning = reader.meaning(clause);
    reader.conjunction(&[meaning], &Known::default())
}

/// A clause in terms of times and keys.
pub(super) enum Meaning {
    All,
    Nothing,
    Times(RangeSet<Timestamp>),
    /// The field is not NULL and has one of these keys.
    Keys(usize, RangeSet<Key>),
    /// A test of a field that is no set of keys.
    Field(Expr),
    And(Vec<Meaning>),
    Or(Vec<Meaning>),
}

/// The keys that fields can have; none of these fields is NULL.
pub(super) type Known = HashMap<usize, RangeSet<Key>>;

pub(super) struct Reader<'a> {
    pub dir: &'a str,
    pub source: &'a Source,
    pub fields: usize,
}

impl Reader<'_> {
    pub fn meaning(&self, clause: &Clause) -> Meaning {
        match clause {
            Clause::And(parts) => {
                Meaning::And(parts.iter().map(|part| self.meaning(part)).collect())
            }
            Clause::Or(parts) => Meaning::Or(parts.iter().map(|part| self.meaning(part)).collect()),
            Clause::Compare { term, op, value } => self.one_of(term, std::iter::once((*op, value))),
            Clause::In { term, values } => {
                let values = values.iter().filter(|value| !value.is_null());
                self.one_of(term, values.map(|value| (Op::Eq, value)))
            }
            Clause::NotIn { term, values } => {
                let differs = |value| self.one_of(term, std::iter::once((Op::Ne, value)));
                Meaning::And(values.iter().map(differs).collect())
            }
            Clause::Null { term, is_null } => self.null(term, *is_null),
            Clause::Prefix { term, text } => self.text(
                term,
                |found| found.starts_with(text.as_str()),
                |field| texts::prefixed(field, text),
            ),
            Clause::Contains { term, part, case } => self.text(
                term,
                |found| case.contains(found.as_bytes(), part),
                |field| texts::containing(field, part, *case),
            ),
            Clause::Opaque => Meaning::All,
        }
    }

    /// The rows that pass at least one of the tests of a term.
    fn one_of<'d>(&self, term: &Term, tests: impl Iterator<Item = (Op, &'d Datum)>) -> Meaning {
        if let Some(text) = self.constant(term) {
            let mut tests = tests;
            let may_pass = tests.any(|(op, value)| match (op, value) {
                (Op::Eq, Datum::Text(other)) => text == other,
                _ => true,
            });
            return if may_pass {
                Meaning::All
            } else {
                Meaning::Nothing
            };
        }
        let Some(subject) = self.subject(term) else {
            return Meaning::All;
        };
        let field = match subject {
            Subject::Bytes(field) if term.steps.is_empty() => {
                let found = tests.map(|(op, value)| texts::compared(field, op, value));
                let found = found.collect::<Option<Vec<_>>>();
                return found.map_or(Meaning::All, |tests| {
                    Meaning::Or(tests.into_iter().map(Meaning::Field).collect())
                });
            }
            Subject::Bytes(_) => return Meaning::All,
            Subject::Time | Subject::TimeNumber => None,
            Subject::TimeField(field) | Subject::Number(field, _) | Subject::Labels(field) => {
                Some(field)
            }
        };
        let found = tests.map(|(op, value)| self.keys(subject, &term.steps, op, value));
        let Some(found) = found.collect::<Option<Vec<_>>>() else {
            return Meaning::All;
        };
        let keys = RangeSet::union(found);
        match field {
            Some(field) => Meaning::Keys(field, keys),
            None => {
                let time = |key: Key| Timestamp(key.to_i64());
                let ranges = keys.ranges().iter();
                Meaning::Times(RangeSet::new(
                    ranges.map(|&(first, last)| (time(first), time(last))),
                ))
            }
        }
    }

    /// The rows where a term is NULL, or is not.
    fn null(&self, term: &Term, is_null: bool) -> Meaning {
        let never_null = if is_null {
            Meaning::Nothing
        } else {
            Meaning::All
        };
        match self.subject(term) {
            // A cast that may fail makes a NULL of a value.
            _ if is_null && !term.steps.is_empty() => Meaning::All,
            None => Meaning::All,
            Some(Subject::Time | Subject::TimeNumber) => never_null,
            Some(Subject::Bytes(field)) => Meaning::Field(Expr::Null { field, is_null }),
            Some(
                Subject::TimeField(field) | Subject::Number(field, _) | Subject::Labels(field),
            ) => match is_null {
                true => Meaning::Field(Expr::Null { field, is_null }),
                false => Meaning::Keys(field, RangeSet::all()),
            },
        }
    }

    /// The rows where a text passes: one that is known, or one of a field, by a test.
    fn text(
        &self,
        term: &Term,
        passes: impl Fn(&str) -> bool,
        test: impl Fn(usize) -> Expr,
    ) -> Meaning {
        if let Some(found) = self.constant(term) {
            return match passes(found) {
                true => Meaning::All,
                false => Meaning::Nothing,
            };
        }
        match self.subject(term) {
            Some(Subject::Bytes(field)) if term.steps.is_empty() => Meaning::Field(test(field)),
            Some(Subject::Labels(field)) if term.steps.is_empty() => self.labelled(field, passes),
            _ => Meaning::All,
        }
    }

    /// The rows whose label passes. A number without a label may.
    fn labelled(&self, field: usize, passes: impl Fn(&str) -> bool) -> Meaning {
        let Some((def, domain)) = self.field(field) else {
            return Meaning::All;
        };
        let fail = def.labels.iter().filter(|(_, label)| !passes(label));
        let fail = fail.map(|(number, _)| domain.keys(Op::Eq, Number::Int(*number)));
        Meaning::Keys(field, RangeSet::union(fail).complement())
    }

    pub fn field(&self, field: usize) -> Option<(&FieldDef, Domain)> {
        let def = self.source.fields.get(field)?;
        Some((def, Domain::of(def.ty)?))
    }

    /// The text that a column has in every row of the source.
    fn constant(&self, term: &Term) -> Option<&str> {
        match shown(term.column, self.fields) {
            _ if !term.steps.is_empty() => None,
            Shown::Source => Some(&self.source.name),
            Shown::Dir => Some(self.dir),
            _ => None,
        }
    }

    /// The subject of a term; `None` for columns without summaries and zones.
    fn subject(&self, term: &Term) -> Option<Subject> {
        match shown(term.column, self.fields) {
            Shown::Ts => Some(Subject::Time),
            Shown::TsNs => Some(Subject::TimeNumber),
            Shown::Field(field) => {
                let def = self.source.fields.get(field)?;
                Some(match (def.ty, Domain::of(def.ty)) {
                    _ if !def.labels.is_empty() => Subject::Labels(field),
                    (FieldType::TimestampNs, _) => Subject::TimeField(field),
                    (_, Some(domain)) => Subject::Number(field, domain),
                    (_, None) => Subject::Bytes(field),
                })
            }
            Shown::Source | Shown::Payload | Shown::Addr | Shown::Dir | Shown::Unknown => None,
        }
    }

    /// The keys that pass a comparison; `None` if it is not understood.
    fn keys(
        &self,
        subject: Subject,
        steps: &[Step],
        op: Op,
        value: &Datum,
    ) -> Option<RangeSet<Key>> {
        match subject {
            Subject::Time => Some(time_range(steps, true, op, value)?.into()),
            Subject::TimeField(_) => Some(time_range(steps, false, op, value)?.into()),
            Subject::TimeNumber => {
                let domain = Domain::of_kind(ValueKind::Signed);
                number_keys(domain, steps, op, value.number()?)
            }
            Subject::Number(_, domain) => match (op, value.number()?) {
                // All but one value are left, so the comparison must be the column's own.
                (Op::Ne, number) => {
                    let is_own = match number {
                        Number::Int(_) => domain.is_integer(),
                        Number::Float(_) => !domain.is_integer(),
                        Number::Decimal { .. } => false,
                    };
                    (is_own && steps.is_empty()).then(|| domain.keys(op, number))
                }
                (_, number) => number_keys(domain, steps, op, number),
            },
            Subject::Labels(field) if steps.is_empty() => {
                let (def, domain) = self.field(field)?;
                match (op, value) {
                    (Op::Eq | Op::Ne, Datum::Text(text)) => {
                        // The text of every row is a label or a number, so no row has another.
                        let equal = def.keys(Op::Eq, Constant::Shown(text));
                        let equal = equal.unwrap_or_else(RangeSet::none);
                        Some(match op {
                            Op::Ne => equal.complement(),
                            _ => equal,
                        })
                    }
                    (_, Datum::Text(text)) => {
                        match self.labelled(field, |label| op.holds(label.cmp(text))) {
                            Meaning::Keys(_, keys) => Some(keys),
                            _ => None,
                        }
                    }
                    // The column shows its numbers.
                    (_, Datum::Int(number)) => Some(domain.keys(op, Number::Int(*number))),
                    _ => None,
                }
            }
            Subject::Labels(_) | Subject::Bytes(_) => None,
        }
    }

    /// The conjunction of the parts, which together limit the keys of fields.
    fn conjunction(&self, parts: &[Meaning], outer: &Known) -> Predicate {
        let mut known = outer.clone();
        let mut flat = Vec::new();
        gather(parts, &mut flat, &mut known);
        let implied = self.source.indexes.iter().filter(|index| {
            index.filter().is_some()
                && is_implied(index, &known)
                && !is_implied(index, outer)
                && self.source.holds_every_match(index)
        });
        let matches = implied.map(|index| Predicate::value(index.id, ValueRange::ALL));
        let parts = flat.into_iter().map(|part| self.predicate(part, &known));
        Predicate::and(parts.chain(matches))
    }

    fn predicate(&self, meaning: &Meaning, known: &Known) -> Predicate {
        match meaning {
            Meaning::All => Predicate::All,
            Meaning::Nothing => Predicate::Nothing,
            Meaning::Times(times) => Predicate::times(times.clone()),
            Meaning::Keys(_, keys) if keys.is_empty() => Predicate::Nothing,
            Meaning::Keys(field, keys) => {
                let usable = self.source.indexes.iter().filter(|index| {
                    index.value_field() == Some(*field)
                        && (index.filter().is_none() || is_implied(index, known))
                });
                let mut usable = usable.peekable();
                match usable.peek() {
                    Some(_) => {
                        Predicate::and(usable.map(|index| Predicate::keys(index.id, keys.clone())))
                    }
                    None => Predicate::Fields(Arc::new(Expr::Keys {
                        field: *field,
                        keys: keys.clone(),
                    })),
                }
            }
            Meaning::Field(expr) => Predicate::Fields(Arc::new(expr.clone())),
            Meaning::And(parts) => self.conjunction(parts, known),
            Meaning::Or(parts) => Predicate::or(
                parts
                    .iter()
                    .map(|part| self.conjunction(std::slice::from_ref(part), known)),
            ),
        }
    }
}

/// Flattens nested conjunctions, and collects the keys that they allow for each field.
pub(super) fn gather<'m>(parts: &'m [Meaning], flat: &mut Vec<&'m Meaning>, known: &mut Known) {
    for part in parts {
        match part {
            Meaning::And(inner) => gather(inner, flat, known),
            Meaning::Keys(field, keys) => {
                let both = match known.get(field) {
                    Some(before) => before.intersect(keys),
                    None => keys.clone(),
                };
                known.insert(*field, both);
                flat.push(part);
            }
            other => flat.push(other),
        }
    }
}

fn is_implied(index: &Index, known: &Known) -> bool {
    index.filter().is_some_and(|filter| {
        filter
            .expr()
            .implied_by(&|field| known.get(&field).cloned())
    })
}

/// The subject of a comparison; it decides the meaning of the keys.
#[derive(Clone, Copy)]
enum Subject {
    /// `ts`, with nanoseconds as keys.
    Time,
    /// `ts_ns`, with nanoseconds as keys, compared as a number.
    TimeNumber,
    /// A field of type `timestamp_ns`.
    TimeField(usize),
    Number(usize, Domain),
    Labels(usize),
    /// A text, JSON or bytes.
    Bytes(usize),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::datum::Interval;
    use loom_engine::schema::{Catalog, parse_sources};
    use loom_engine::{Address, IndexId, TimeRange};

    const SOURCE: &str = r#"
        [[source]]
        name = "request"
        field = [
            { name = "latency", type = "u64" },
            { name = "op", type = "u8", labels = { 1 = "GET", 2 = "SET" } },
            { name = "load", type = "f64", nullable = true },
            { name = "due", type = "timestamp_ns" },
            { name = "note", type = "char[8]" },
            { name = "count", type = "u32" },
        ]
        index = [
            { name = "latency", value = "latency" },
            { name = "op", value = "op" },
            { name = "load", value = "load" },
            { name = "due", value = "due" },
            { name = "set_latency", value = "latency", where = "op = 'GET'" },
            { name = "slow_load", value = "load", where = "latency > 1000" },
            { name = "slow", where = "latency > 1000" },
        ]
    "#;

    /// The columns of the source above.
    const TS: usize = 1;
    const TS_NS: usize = 2;
    const LATENCY: usize = 3;
    const OP: usize = 4;
    const LOAD: usize = 5;
    const DUE: usize = 6;
    const NOTE: usize = 7;
    const COUNT: usize = 8;
    const DIR: usize = 10;

    fn of(clause: &Clause) -> Predicate {
        let mut catalog = Catalog::new();
        for def in parse_sources(SOURCE).unwrap() {
            catalog.define_source(&def, Address::ZERO).unwrap();
        }
        let source = catalog.find("request").unwrap();
        predicate(clause, "a.loom", source, 6)
    }

    fn text(text: &str) -> Datum {
        Datum::Text(text.into())
    }

    fn stepped(column: usize, steps: &[Step], op: Op, value: Datum) -> Clause {
        let steps = steps.to_vec();
        Clause::compare(Term { column, steps }, op, value)
    }

    fn compare(column: usize, op: Op, value: Datum) -> Clause {
        stepped(column, &[], op, value)
    }

    fn one_of(column: usize, values: Vec<Datum>) -> Clause {
        let steps = Vec::new();
        let term = Term { column, steps };
        Clause::In { term, values }
    }

    /// Index ids count from 1 in the order above.
    fn value(index: u32, min: u64, max: u64) -> Predicate {
        keys(index, &[(min, max)])
    }

    fn keys(index: u32, ranges: &[(u64, u64)]) -> Predicate {
        let ranges = ranges.iter().map(|&(min, max)| (Key(min), Key(max)));
        Predicate::Value(IndexId(index), RangeSet::new(ranges))
    }

    fn time(first: i64, last: i64) -> Predicate {
        Predicate::time(TimeRange {
            first: Timestamp(first),
            last: Timestamp(last),
        })
    }

    #[test]
    fn a_comparison_prunes_by_each_index_of_its_field() {
        assert_eq!(of(&compare(LATENCY, Op::Le, Datum::Int(9))), value(1, 0, 9));
        assert_eq!(of(&compare(0, Op::Eq, text("request"))), Predicate::All);
        assert_eq!(of(&compare(0, Op::Eq, text("other"))), Predicate::Nothing);
        assert_eq!(
            of(&compare(LATENCY, Op::Eq, Datum::Null)),
            Predicate::Nothing
        );
        assert_eq!(of(&compare(LATENCY, Op::Eq, text("x"))), Predicate::All);
        assert_eq!(of(&compare(99, Op::Eq, Datum::Int(1))), Predicate::All);
    }

    // case SQL: dir
    #[test]
    fn a_directory_that_is_not_asked_for_has_nothing() {
        let dir = |path: &str| compare(DIR, Op::Eq, text(path));
        assert_eq!(of(&dir("a.loom")), Predicate::All);
        assert_eq!(of(&dir("b.loom")), Predicate::Nothing);
        let list = |paths: &[&str]| one_of(DIR, paths.iter().map(|path| text(path)).collect());
        assert_eq!(of(&list(&["a.loom", "b.loom"])), Predicate::All);
        assert_eq!(of(&list(&["b.loom", "c.loom"])), Predicate::Nothing);
        let either = Clause::Or(vec![dir("b.loom"), compare(LATENCY, Op::Le, Datum::Int(9))]);
        assert_eq!(of(&either), value(1, 0, 9));
        let less = compare(DIR, Op::Lt, text("0"));
        assert_eq!(of(&less), Predicate::All);
    }

    #[test]
    fn an_index_with_a_filter_helps_where_the_clause_implies_it() {
        let both = Clause::And(vec![
            compare(LATENCY, Op::Le, Datum::Int(9)),
            Clause::And(vec![compare(OP, Op::Eq, text("GET"))]),
        ]);
        // The predicate uses both indexes of latency, that of op, and only chunks with a GET.
        assert_eq!(
            of(&both),
            Predicate::And(vec![value(1, 0, 9), value(2, 1, 1), value(5, 0, 9)])
        );
        // The index that counts slow requests shows their places; the one of a nullable value does not.
        let slow = compare(LATENCY, Op::Gt, Datum::Int(1000));
        assert_eq!(
            of(&slow),
            Predicate::And(vec![value(1, 1001, u64::MAX), value(7, 0, u64::MAX)])
        );
        let either = Clause::Or(vec![slow, compare(LATENCY, Op::Eq, Datum::Int(5))]);
        assert!(matches!(of(&either), Predicate::Or(_)));
    }

    #[test]
    fn parts_that_cannot_be_read_prune_nothing() {
        let latency = compare(LATENCY, Op::Eq, Datum::Int(5));
        assert_eq!(
            of(&Clause::And(vec![latency.clone(), Clause::Opaque])),
            value(1, 5, 5)
        );
        assert_eq!(
            of(&Clause::Or(vec![latency, Clause::Opaque])),
            Predicate::All
        );
        assert_eq!(of(&Clause::Opaque), Predicate::All);
    }

    #[test]
    fn labels_prune_by_their_numbers() {
        let op = |label: &str| of(&compare(OP, Op::Eq, text(label)));
        assert_eq!(op("SET"), value(2, 2, 2));
        assert_eq!(op("7"), value(2, 7, 7));
        assert_eq!(op("2"), Predicate::Nothing, "the number 2 shows as SET");
        assert_eq!(op("DEL"), Predicate::Nothing);
        let others = keys(2, &[(0, 0), (2, u64::MAX)]);
        assert_eq!(of(&compare(OP, Op::Gt, text("GET"))), others, "or a number");
        assert_eq!(of(&compare(OP, Op::Ne, text("GET"))), others);
        let prefix = |text: &str| {
            let (column, steps) = (OP, Vec::new());
            let (term, text) = (Term { column, steps }, text.to_owned());
            of(&Clause::Prefix { term, text })
        };
        assert_eq!(prefix("S"), keys(2, &[(0, 0), (2, u64::MAX)]));
        let list = one_of(OP, vec![text("SET"), Datum::Null, text("9")]);
        assert_eq!(of(&list), keys(2, &[(2, 2), (9, 9)]));
    }

    #[test]
    fn fields_without_an_index_prune_by_their_zones() {
        let fields = |expr| Predicate::Fields(Arc::new(expr));
        let is_null = |field, is_null| fields(Expr::Null { field, is_null });
        let of_keys = |field, keys| fields(Expr::Keys { field, keys });
        let null = |column, steps: &[Step], is_null| {
            let steps = steps.to_vec();
            let term = Term { column, steps };
            of(&Clause::Null { term, is_null })
        };
        let word = fields(Expr::Bytes {
            field: 4,
            op: Op::Eq,
            bytes: b"x".to_vec(),
        });
        assert_eq!(of(&compare(NOTE, Op::Eq, text("x"))), word);
        assert_eq!(of(&compare(NOTE, Op::Ne, text("x"))), is_null(4, false));
        assert_eq!(null(NOTE, &[], true), is_null(4, true));
        assert_eq!(null(LOAD, &[], true), is_null(2, true));
        assert_eq!(null(LOAD, &[Step::Integer], true), Predicate::All);
        assert_eq!(null(LATENCY, &[Step::Double], false), value(1, 0, u64::MAX));
        assert_eq!(null(TS, &[], true), Predicate::Nothing);
        assert_eq!(null(DIR, &[], true), Predicate::All);
        let count = of(&compare(COUNT, Op::Le, Datum::Int(9)));
        assert_eq!(count, of_keys(5, RangeSet::from((Key(0), Key(9)))));
        let steps = Vec::new();
        let column = COUNT;
        let term = Term { column, steps };
        let others = Clause::not_in(term.clone(), vec![Datum::Int(0), Datum::Int(2)]);
        let differ = |number| of_keys(5, RangeSet::from((Key(number), Key(number))).complement());
        assert_eq!(of(&others), Predicate::And(vec![differ(0), differ(2)]));
        let with_null = Clause::not_in(term, vec![Datum::Int(0), Datum::Null]);
        assert_eq!(of(&with_null), Predicate::Nothing);
        let half = compare(LATENCY, Op::Ne, Datum::Float(0.5));
        assert_eq!(of(&half), Predicate::All, "the column is cast");
    }

    #[test]
    fn ts_is_a_thousand_nanoseconds_wide() {
        let ts = |op| of(&compare(TS, op, Datum::TimestampTz(5)));
        assert_eq!(ts(Op::Eq), time(5000, 5999));
        assert_eq!(ts(Op::Lt), time(i64::MIN, 4999));
        assert_eq!(ts(Op::Le), time(i64::MIN, 5999));
        assert_eq!(ts(Op::Gt), time(6000, i64::MAX));
        assert_eq!(ts(Op::Ge), time(5000, i64::MAX));
        assert_eq!(
            of(&compare(TS_NS, Op::Gt, Datum::Int(5))),
            time(6, i64::MAX)
        );
        assert_eq!(
            of(&compare(TS, Op::Lt, Datum::TimestampTz(i64::MAX))),
            Predicate::All
        );
        assert_eq!(of(&compare(TS, Op::Ge, Datum::Int(5))), Predicate::All);
    }

    #[test]
    fn casts_of_times_leave_a_day_for_the_time_zone() {
        let day = 86_400_000_000_000;
        let date = stepped(TS, &[Step::Date], Op::Eq, Datum::Date(10));
        assert_eq!(of(&date), time(9 * day, 12 * day - 1));
        let bucket = Step::Bucket {
            width: Interval {
                months: 0,
                days: 0,
                micros: 60_000_000,
            },
        };
        let bucketed = stepped(TS, &[bucket], Op::Eq, Datum::TimestampTz(0));
        assert_eq!(of(&bucketed), time(0, 60_000_000_999));
        let from = |nanos: i64| value(4, Key::from_i64(nanos).0, u64::MAX);
        let due = stepped(DUE, &[Step::TimestampTz], Op::Ge, Datum::TimestampTz(0));
        assert_eq!(of(&due), from(-day - 1_000_000_000));
        let due = stepped(DUE, &[Step::Timestamp], Op::Ge, Datum::Timestamp(0));
        assert_eq!(of(&due), from(-1_000_000_000), "no clock shows it");
        assert_eq!(
            of(&stepped(TS, &[Step::Double], Op::Eq, Datum::Float(1.0))),
            Predicate::All
        );
    }

    #[test]
    fn casts_of_numbers_only_widen() {
        let range = |column, steps: &[Step], op, value| match of(&stepped(column, steps, op, value))
        {
            Predicate::Value(_, keys) => keys,
            other => panic!("{other:?}"),
        };
        let big = 1u64 << 60;
        // The double nearest to 2^60 + 1 is 2^60.
        let rounded = range(LATENCY, &[Step::Double], Op::Le, Datum::Float(big as f64));
        assert!(rounded.contains(Key(big + 1)) && !rounded.contains(Key(2 * big)));
        let exact = range(
            LATENCY,
            &[Step::Decimal { scale: 2 }],
            Op::Lt,
            Datum::Decimal {
                value: 550,
                scale: 2,
            },
        );
        assert_eq!(exact, RangeSet::from((Key(0), Key(5))));
        let whole = range(LOAD, &[Step::Integer], Op::Eq, Datum::Int(4));
        assert!(
            whole.contains(Key::from_f64(3.5))
                && whole.contains(Key::from_f64(4.5))
                && !whole.contains(Key::from_f64(9.0))
        );
        let single = range(
            LOAD,
            &[Step::Float],
            Op::Ge,
            Datum::Float(f64::from(0.1f32)),
        );
        assert!(single.contains(Key::from_f64(0.1)) && !single.contains(Key::from_f64(0.09)));
    }

    #[test]
    fn a_long_list_prunes_by_each_of_its_values() {
        let numbers = || (0..1000).map(|at| at * 10).chain([1 << 40]);
        let values = numbers().map(|number| Datum::Int(number.into())).collect();
        let list = one_of(LATENCY, values);
        let ranges: Vec<(u64, u64)> = numbers().map(|number| (number, number)).collect();
        assert_eq!(of(&list), keys(1, &ranges));
    }
}
