//! The contrast agrees with plain counts of the records of both groups.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::question::{Question, any_ask};
use crate::query::{ContrastAsked, ContrastValue, GroupCounts, Poll, Predicate, contrast};
use crate::schema::{BinMap, BinsDef, FieldType};
use crate::testkit::oracle::Record;
use crate::testkit::world::{TUNING, World, any_ops};
use crate::types::ValueKind;

/// The plain counts of a field.
struct Expected {
    nulls: GroupCounts,
    values: BTreeMap<ContrastValue, GroupCounts>,
    bins: BTreeMap<u16, GroupCounts>,
    has_long: bool,
}

fn expected(
    records: &[(&Record, bool)],
    field: usize,
    ty: FieldType,
    bins: Option<&BinMap>,
) -> Expected {
    let mut found = Expected {
        nulls: GroupCounts::default(),
        values: BTreeMap::new(),
        bins: BTreeMap::new(),
        has_long: false,
    };
    for (record, is_selected) in records {
        let Record {
            layout, payload, ..
        } = record;
        if layout.slot(field).is_none() || layout.is_null(field, payload) {
            found.nulls.add(*is_selected);
        } else if let Some(bins) = bins {
            let key = layout.key(field, payload).unwrap();
            let value = ContrastValue::Number(key);
            found.values.entry(value).or_default().add(*is_selected);
            found
                .bins
                .entry(bins.bin(key))
                .or_default()
                .add(*is_selected);
        } else {
            let bytes = layout.bytes(field, payload).unwrap();
            let bytes = match ty {
                FieldType::Char(_) => bytes.split(|byte| *byte == 0).next().unwrap(),
                _ => bytes,
            };
            let text = match ty {
                FieldType::Bytes(_) | FieldType::VarBytes => bytes.to_vec(),
                _ => String::from_utf8_lossy(bytes).into_owned().into_bytes(),
            };
            found.has_long |= text.len() > 256;
            let value = ContrastValue::Text(text);
            found.values.entry(value).or_default().add(*is_selected);
        }
    }
    found
}

fn check(question: &Question, threads: usize, before: bool) {
    let source = question.snapshot.source_by_id(question.source).unwrap();
    let fields: Vec<usize> = (0..source.fields.len()).collect();
    let value = question.index.map_or(Predicate::All, |index| {
        Predicate::value(index, question.value)
    });
    let window = Predicate::time(question.time);
    let selected = Predicate::and([window.clone(), value]);
    let groups = match before {
        true => selected.clone(),
        false => window,
    };
    let all = Predicate::and([groups, question.passing()]);
    let asked = ContrastAsked {
        snapshot: &question.snapshot,
        source: question.source,
        all: &all,
        selected: &selected,
    };
    let found = contrast(&[asked], &fields, threads, &Poll::never()).unwrap();

    let own = question.visible.iter();
    let own = own.filter(|record| record.source == question.source && record.matches(&all));
    let records: Vec<(&Record, bool)> = own
        .map(|record| (record, record.matches(&selected)))
        .collect();
    let mut counts = GroupCounts::default();
    records
        .iter()
        .for_each(|(_, is_selected)| counts.add(*is_selected));
    assert_eq!(found.records, counts);
    let limits = TUNING.contrast;
    for of_field in &found.fields {
        let def = &source.fields[of_field.field];
        let auto = def
            .ty
            .kind()
            .map(|kind| BinMap::new(&BinsDef::Auto, kind).unwrap());
        let expected = expected(&records, of_field.field, def.ty, auto.as_ref());
        assert_eq!(of_field.nulls, expected.nulls, "{}", def.name);
        match (&of_field.bins, auto) {
            (Some((map, bins)), Some(auto)) => {
                assert_eq!(*map, auto);
                assert_eq!(
                    BTreeMap::from_iter(bins.iter().copied()),
                    expected.bins,
                    "{}",
                    def.name
                );
            }
            (bins, auto) => assert!(bins.is_none() && auto.is_none(), "{}", def.name),
        }
        let Some(values) = &of_field.values else {
            let is_few = expected.values.len() <= limits.most;
            assert!(
                def.ty.kind() == Some(ValueKind::Float) || !is_few,
                "{}",
                def.name
            );
            continue;
        };
        if values.is_complete {
            assert_eq!(values.counted, expected.values, "{}", def.name);
            continue;
        }
        assert!(expected.has_long || expected.values.len() > limits.most);
        let is_frequent = |count: u64, all: u64| count * limits.kept as u64 > all;
        let mut frequent = expected.values;
        frequent.retain(|value, counts| {
            let is_long = matches!(value, ContrastValue::Text(text) if text.len() > 256);
            !is_long
                && (is_frequent(counts.selected, found.records.selected)
                    || is_frequent(counts.others, found.records.others))
        });
        assert_eq!(values.counted, frequent, "{}", def.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    // case SQL: loom_why
    #[test]
    fn a_contrast_counts_what_the_records_hold(
        ops in any_ops(),
        asks in prop::collection::vec((any_ask(), 1usize..4, any::<bool>()), 4),
    ) {
        let mut world = World::of(&ops);
        for is_closed in [false, true] {
            let all = world.records();
            for (ask, threads, before) in &asks {
                check(&Question::new(&world, &all, ask), *threads, *before);
            }
            if !is_closed {
                world.close();
            }
        }
    }
}
