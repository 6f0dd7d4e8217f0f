//! Turns a [`Clause`] into the engine's predicate over summaries. Each comparison becomes a set of times, or of keys for every index of the
//! field; no step may make the set smaller. An index with a filter is used if the clause implies the filter.

use std::collections::HashMap;

use loom_engine::query::Predicate;
use loom_engine::schema::{Constant, Domain, FieldType, Index, Op, RangeSet, Source};
use loom_engine::{Key, Timestamp, ValueKind, ValueRange};

use super::bounds::{number_keys, time_range};
use super::clause::{Clause, Step, Term};
use super::columns::{Shown, shown};
use super::datum::Datum;

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

/// The keys that each field can have in rows that pass; none of these fields is NULL there.
pub fn known_keys(
    clause: &Clause,
    dir: &str,
    source: &Source,
    fields: usize,
) -> Vec<(usize, RangeSet<Key>)> {
    let reader = Reader {
        dir,
        source,
        fields,
    };
    let mut known = Known::default();
    gather(&[reader.meaning(clause)], &mut Vec::new(), &mut known);
    let mut known: Vec<_> = known.into_iter().collect();
    known.sort_unstable_by_key(|(field, _)| *field);
    known
}

/// A clause in terms of times and keys.
enum Meaning {
    All,
    Nothing,
    Times(RangeSet<Timestamp>),
    /// The field is not NULL and has one of these keys.
    Keys(usize, RangeSet<Key>),
    And(Vec<Meaning>),
    Or(Vec<Meaning>),
}

/// The keys that fields can have; none of these fields is NULL.
type Known = HashMap<usize, RangeSet<Key>>;

struct Reader<'a> {
    dir: &'a str,
    source: &'a Source,
    fields: usize,
}

impl Reader<'_> {
    fn meaning(&self, clause: &Clause) -> Meaning {
        match clause {
            Clause::And(parts) => {
                Meaning::And(parts.iter().map(|part| self.meaning(part)).collect())
            }
            Clause::Or(parts) => Meaning::Or(parts.iter().map(|part| self.meaning(part)).collect()),
            Clause::Compare { term, op, value } => self.one_of(term, std::iter::once((*op, value))),
            Clause::In { term, values } => self.one_of(
                term,
                values
                    .iter()
                    .filter(|value| !value.is_null())
                    .map(|value| (Op::Eq, value)),
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
        let found = tests.map(|(op, value)| self.keys(subject, &term.steps, op, value));
        let Some(found) = found.collect::<Option<Vec<_>>>() else {
            return Meaning::All;
        };
        let keys = RangeSet::union(found);
        match subject {
            Subject::Time | Subject::TimeNumber => {
                let time = |key: Key| Timestamp(key.to_i64());
                let ranges = keys.ranges().iter();
                Meaning::Times(RangeSet::new(
                    ranges.map(|&(first, last)| (time(first), time(last))),
                ))
            }
            Subject::TimeField(field) | Subject::Number(field, _) | Subject::Labels(field) => {
                Meaning::Keys(field, keys)
            }
        }
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

    /// The subject of a term; `None` for columns without summaries.
    fn subject(&self, term: &Term) -> Option<Subject> {
        match shown(term.column, self.fields) {
            Shown::Ts => Some(Subject::Time),
            Shown::TsNs => Some(Subject::TimeNumber),
            Shown::Field(field) => {
                let def = self.source.fields.get(field)?;
                Some(match def.ty {
                    _ if !def.labels.is_empty() => Subject::Labels(field),
                    FieldType::TimestampNs => Subject::TimeField(field),
                    ty => Subject::Number(field, Domain::of(ty)?),
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
            Subject::Time | Subject::TimeField(_) => Some(time_range(steps, op, value)?.into()),
            Subject::TimeNumber => {
                let domain = Domain::of_kind(ValueKind::Signed);
                number_keys(domain, steps, op, value.number()?)
            }
            Subject::Number(_, domain) => number_keys(domain, steps, op, value.number()?),
            Subject::Labels(field) => {
                let Datum::Text(label) = value else {
                    return None;
                };
                if op != Op::Eq || !steps.is_empty() {
                    return None;
                }
                let def = self.source.fields.get(field)?;
                let keys = def.keys(op, Constant::Shown(label));
                // The text of every row is a label or a number, so no row has this text.
                Some(keys.unwrap_or_else(RangeSet::none))
            }
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
                Predicate::and(usable.map(|index| Predicate::keys(index.id, keys.clone())))
            }
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
fn gather<'m>(parts: &'m [Meaning], flat: &mut Vec<&'m Meaning>, known: &mut Known) {
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
    const DIR: usize = 9;

    fn of(clause: &Clause) -> Predicate {
        let mut catalog = Catalog::new();
        for def in parse_sources(SOURCE).unwrap() {
            catalog.define_source(&def, Address::ZERO).unwrap();
        }
        let source = catalog.find("request").unwrap();
        predicate(clause, "a.loom", source, 5)
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
        assert_eq!(of(&compare(NOTE, Op::Eq, text("x"))), Predicate::All);
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
    fn keys_are_those_that_every_part_of_a_conjunction_leaves() {
        let sources = parse_sources(SOURCE).unwrap();
        let mut catalog = Catalog::new();
        catalog.define_source(&sources[0], Address::ZERO).unwrap();
        let source = catalog.sources().next().unwrap();
        let least = compare(LATENCY, Op::Ge, Datum::Int(10));
        let most = compare(LATENCY, Op::Lt, Datum::Int(20));
        let load = compare(LOAD, Op::Gt, Datum::Int(5));
        let either = Clause::Or(vec![load.clone(), compare(OP, Op::Eq, Datum::Int(1))]);
        let inner = Clause::And(vec![most, load]);
        let clause = Clause::And(vec![least, either, Clause::Opaque, inner]);
        let found = known_keys(&clause, "d", source, 5);
        let [(0, latency), (2, load)] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(latency.ranges(), [(Key(10), Key(19))]);
        assert!(!load.contains(Key::from_f64(5.0)) && load.contains(Key::from_f64(5.5)));
        assert_eq!(known_keys(&Clause::Opaque, "d", source, 5), []);
    }

    #[test]
    fn labels_prune_by_their_numbers() {
        let op = |label: &str| of(&compare(OP, Op::Eq, text(label)));
        assert_eq!(op("SET"), value(2, 2, 2));
        assert_eq!(op("7"), value(2, 7, 7));
        assert_eq!(op("2"), Predicate::Nothing, "the number 2 shows as SET");
        assert_eq!(op("DEL"), Predicate::Nothing);
        assert_eq!(of(&compare(OP, Op::Gt, text("GET"))), Predicate::All);
        let list = one_of(OP, vec![text("SET"), Datum::Null, text("9")]);
        assert_eq!(of(&list), keys(2, &[(2, 2), (9, 9)]));
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
        let due = stepped(DUE, &[Step::Timestamp], Op::Ge, Datum::Timestamp(0));
        assert_eq!(of(&due), value(4, Key::from_i64(-day).0, u64::MAX));
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
