//! Tests of the catalog: the effects of definitions, and that a replay gives the same catalog.

use proptest::prelude::*;

use super::*;
use crate::schema::bins::BinsDef;
use crate::schema::field::{FieldDef, FieldType};
use crate::schema::index::IndexDef;
use crate::schema::layout::TimeKind;
use crate::schema::source::{Overload, SourceDef};
use crate::types::{Key, ValueKind};

pub(super) const UUID: [u8; 16] = *b"a directory's id";

pub(super) fn at(chunk: u64) -> Address {
    Address(chunk * 65_536)
}

pub(super) fn def(name: &str, fields: &[(&str, FieldType)]) -> SourceDef {
    let fields = fields
        .iter()
        .map(|&(name, ty)| FieldDef::new(name, ty))
        .collect();
    SourceDef {
        fields,
        ..SourceDef::new(name)
    }
}

pub(super) fn redis() -> SourceDef {
    let mut redis = def(
        "redis",
        &[("latency", FieldType::U64), ("op", FieldType::U8)],
    );
    redis.fields[1].labels = [(1, "GET".to_owned()), (2, "SET".to_owned())].into();
    redis.indexes = vec![
        IndexDef::new("latency", Some("latency")),
        IndexDef {
            filter: Some("op = 'SET'".to_owned()),
            ..IndexDef::new("sets", None)
        },
    ];
    redis
}

fn of_redis() -> (Catalog, SourceId) {
    let mut catalog = Catalog::new();
    let (id, _) = catalog.define_source(&redis(), at(0)).unwrap();
    (catalog, id)
}

/// The reason why a definition is refused.
fn refusal(catalog: &mut Catalog, def: &SourceDef) -> String {
    catalog.define_source(def, at(1)).unwrap_err().to_string()
}

pub(super) fn file_of(events: &[Event]) -> String {
    events
        .iter()
        .zip(0..)
        .map(|(event, line)| encode_line(&UUID, line, event))
        .collect()
}

pub(super) fn decoded(text: &[u8]) -> Result<(Catalog, usize, usize)> {
    decode_catalog(&UUID, text)
}

/// The whole content of a catalog, as text.
pub(super) fn content(catalog: &Catalog) -> String {
    format!(
        "{:?} {:?} {}",
        catalog.sources, catalog.index_sources, catalog.event_count
    )
}

#[test]
fn a_source_is_found_by_name_and_id() {
    let mut catalog = Catalog::new();
    let (id, events) = catalog.define_source(&redis(), at(0)).unwrap();
    assert_eq!((id, events.len()), (SourceId(1), 3));
    let source = catalog.find("redis").unwrap();
    assert_eq!(catalog.source(id).unwrap().name, "redis");
    assert_eq!(source.def(), redis());
    assert!(source.is_open() && !source.own_time());
    let sets = source.index("sets").unwrap();
    assert_eq!(catalog.index(sets.id).unwrap().name, "sets");
    assert!(catalog.find("Redis").is_none() && catalog.source(SourceId(0)).is_none());
    assert!(catalog.index(IndexId(0)).is_none() && catalog.index(IndexId(3)).is_none());
    assert_eq!(catalog.event_count(), 3);
}

#[test]
fn indexes_give_keys_of_what_they_cover() {
    let (catalog, _) = of_redis();
    let source = catalog.find("redis").unwrap();
    let (latency, sets) = (
        source.index("latency").unwrap(),
        source.index("sets").unwrap(),
    );
    let layout = source.layout();
    let (get, set) = ([7, 0, 0, 0, 0, 0, 0, 0, 1], [8, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(latency.key(layout, &get), Some(Key(7)));
    assert_eq!(
        (sets.key(layout, &get), sets.key(layout, &set)),
        (None, Some(Key(0)))
    );
    assert_eq!(latency.key(layout, &[]), None);
    assert_eq!((latency.value_field(), sets.value_field()), (Some(0), None));
    assert_eq!(sets.filter().unwrap().text(), "op = 'SET'");
    assert_eq!((sets.kind, sets.bins.bin(Key(0))), (ValueKind::Unsigned, 1));
}

#[test]
fn the_same_definition_again_changes_nothing() {
    let (mut catalog, id) = of_redis();
    let before = content(&catalog);
    let mut again = redis();
    again.indexes[1].filter = Some("'SET' = op".to_owned());
    again.fields[1].labels.remove(&1);
    assert_eq!(catalog.define_source(&again, at(9)).unwrap(), (id, vec![]));
    again.indexes.clear();
    assert_eq!(catalog.define_source(&again, at(9)).unwrap(), (id, vec![]));
    assert_eq!(content(&catalog), before);
}

#[test]
fn fields_at_the_end_begin_a_layout() {
    let (mut catalog, id) = of_redis();
    let mut wider = redis();
    wider
        .fields
        .push(FieldDef::nullable("bytes", FieldType::U32));
    wider.indexes.push(IndexDef::new("bytes", Some("bytes")));
    let (same, events) = catalog.define_source(&wider, at(3)).unwrap();
    assert_eq!((same, events.len()), (id, 2));
    let source = catalog.find("redis").unwrap();
    assert_eq!(source.layout_at(Address(at(3).0 - 8)).field_count(), 2);
    assert_eq!(source.layout_at(at(3)).field_count(), 3);
    assert_eq!(source.layout_at(Address::MAX).fixed_bytes(), 14);
    let index = source.index("bytes").unwrap();
    assert_eq!(index.key(source.layout_at(at(0)), &[0; 9]), None);
    assert!(index.covers(at(3), at(9)) && !index.covers(at(2), at(9)));
}

#[test]
fn another_source_of_the_same_name_is_refused_and_changes_nothing() {
    let (mut catalog, _) = of_redis();
    let before = content(&catalog);
    let mut refused = |change: fn(&mut SourceDef), part: &str| {
        let mut other = redis();
        change(&mut other);
        let message = refusal(&mut catalog, &other);
        assert!(message.contains(part), "{message}");
    };
    refused(|def| def.time = TimeKind::Own, "its time cannot change");
    refused(
        |def| def.fields[0].ty = FieldType::U32,
        "'latency' is u64 and cannot become u32",
    );
    refused(
        |def| def.fields[0].nullable = true,
        "cannot become u64, nullable",
    );
    refused(|def| def.fields.swap(0, 1), "add new fields at the end");
    refused(
        |def| drop(def.fields.pop().and_then(|_| def.indexes.pop())),
        "omits its field 'op'",
    );
    refused(
        |def| drop(def.fields[1].labels.insert(1, "PUT".to_owned())),
        "another label for 1",
    );
    refused(
        |def| drop(def.fields[1].labels.insert(3, "GET".to_owned())),
        "more than one number",
    );
    refused(
        |def| def.indexes[0].value = Some("op".to_owned()),
        "close it first",
    );
    refused(
        |def| {
            def.fields.push(FieldDef::new("more", FieldType::U8));
            def.indexes[0].bins = BinsDef::Edges(vec![1i64.into(), 2i64.into()]);
        },
        "close it first",
    );
    assert_eq!(content(&catalog), before);
    let mut new = SourceDef {
        name: "new".to_owned(),
        ..redis()
    };
    let index = catalog.find("redis").unwrap().index("sets").unwrap().id;
    catalog.close_index(index, at(1)).unwrap();
    let before = content(&catalog);
    new.fields
        .extend((0..998).map(|i| FieldDef::new(format!("f{i}"), FieldType::U8)));
    assert!(
        catalog
            .define_source(&new, at(0))
            .is_err_and(|error| error.to_string().contains("stands after"))
    );
    assert_eq!(content(&catalog), before);
    new.fields.truncate(2);
    new.indexes.push(IndexDef::new("more", None));
    catalog.parts = PARTS_MAX - 4;
    let before = content(&catalog);
    assert!(refusal(&mut catalog, &new).contains("bin edges"));
    assert_eq!(content(&catalog), before);
    catalog.parts = 0;
    let raw = SourceDef::new("raw");
    catalog.define_source(&raw, at(1)).unwrap();
    let fields = def("raw", &[("a", FieldType::U8)]);
    assert!(refusal(&mut catalog, &fields).contains("no fields"));
}

#[test]
fn labels_and_policies_can_change() {
    let (mut catalog, _) = of_redis();
    let mut more = redis();
    more.fields[1].labels.insert(3, "DEL".to_owned());
    more.on_overload = Overload::DropNew;
    assert_eq!(catalog.define_source(&more, at(0)).unwrap().1.len(), 2);
    assert_eq!(catalog.find("redis").unwrap().def(), more);
}

#[test]
fn a_closed_source_is_reopened_under_its_id() {
    let (mut catalog, id) = of_redis();
    catalog.close_source(id, at(2)).unwrap();
    assert_eq!(catalog.source(id).unwrap().closed_at, Some(at(2)));
    assert!(matches!(
        catalog.close_source(id, at(2)),
        Err(Error::SourceClosed { .. })
    ));
    let index = IndexDef::new("more", None);
    assert!(matches!(
        catalog.define_index(id, &index, at(2)),
        Err(Error::SourceClosed { .. })
    ));
    let (same, events) = catalog.define_source(&redis(), at(4)).unwrap();
    assert_eq!(
        (same, events),
        (
            id,
            vec![Event::SourceReopened {
                source: id,
                at: at(4)
            }]
        )
    );
    assert!(catalog.source(id).unwrap().is_open());
    assert!(catalog.close_source(SourceId(9), at(4)).is_err());
}

#[test]
fn a_closed_index_makes_way_for_another_of_its_name() {
    let (mut catalog, id) = of_redis();
    let first = catalog.find("redis").unwrap().index("sets").unwrap().id;
    catalog.close_index(first, at(5)).unwrap();
    assert!(catalog.close_index(first, at(5)).is_err());
    assert!(catalog.close_index(IndexId(99), at(5)).is_err());
    let def = IndexDef {
        filter: Some("op = 'GET'".to_owned()),
        ..IndexDef::new("sets", None)
    };
    let (second, event) = catalog.define_index(id, &def, at(7)).unwrap();
    assert!(second > first && event.is_some());
    assert_eq!(
        catalog.define_index(id, &def, at(8)).unwrap(),
        (second, None)
    );
    let source = catalog.find("redis").unwrap();
    assert_eq!(source.index("sets").unwrap().id, second);
    let closed = catalog.index(first).unwrap();
    assert!(closed.covers(at(0), at(5)) && !closed.covers(at(0), at(6)));
    assert_eq!(source.open_indexes().count(), 2);
}

#[test]
fn native_indexes_have_an_id_and_no_key() {
    let (mut catalog, id) = of_redis();
    let bins = BinsDef::Edges(vec![0.5.into(), 1.5.into()]);
    let define = |catalog: &mut Catalog| {
        catalog.define_native_index(id, "ratio", ValueKind::Float, &bins, at(1))
    };
    let (native, event) = define(&mut catalog).unwrap();
    assert!(define(&mut catalog).is_err());
    let index = catalog.index(native).unwrap();
    assert!(index.is_native() && index.kind == ValueKind::Float && index.bins.len() == 3);
    assert_eq!(
        index.key(catalog.find("redis").unwrap().layout(), &[0; 9]),
        None
    );
    assert_eq!(catalog.find("redis").unwrap().def(), redis());
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
}

// case Network and input: very many sources
#[test]
fn limits_hold() {
    let mut catalog = Catalog::new();
    for n in 1..=SOURCES_MAX {
        catalog
            .define_source(&SourceDef::new(format!("s{n}")), at(0))
            .unwrap();
    }
    let message = refusal(&mut catalog, &SourceDef::new("more"));
    assert!(message.contains("65000"), "{message}");
    assert!(
        catalog
            .define_source(&SourceDef::new("s7"), at(0))
            .unwrap()
            .1
            .is_empty()
    );
    for n in 0..64 {
        catalog
            .define_index(SourceId(1), &IndexDef::new(format!("i{n}"), None), at(0))
            .unwrap();
    }
    assert!(
        catalog
            .define_index(SourceId(1), &IndexDef::new("more", None), at(0))
            .is_err()
    );
}

// case Network and input: very many sources
#[test]
fn the_memory_of_a_catalog_is_limited() {
    let mut catalog = Catalog::new();
    let mut wide = def("x", &[]);
    wide.fields = (0..1000)
        .map(|i| FieldDef::new(format!("f{i}"), FieldType::U8))
        .collect();
    let first = SourceDef {
        name: "first".to_owned(),
        ..wide.clone()
    };
    catalog.define_source(&first, at(0)).unwrap();
    assert_eq!(catalog.parts, 1000);
    catalog.parts = PARTS_MAX - 1999;
    catalog.define_source(&wide, at(0)).unwrap();
    let wide = SourceDef {
        name: "third".to_owned(),
        ..wide
    };
    let message = refusal(&mut catalog, &wide);
    assert!(message.contains("fields and bin edges"), "{message}");
}

#[test]
fn built_in_sources_are_not_for_users() {
    let mut catalog = Catalog::new();
    let losses = def("loom_losses", &[("records", FieldType::U64)]);
    assert!(catalog.define_source(&losses, at(0)).is_err());
    let (id, events) = catalog.define_builtin_source(&losses, at(0)).unwrap();
    assert_eq!(
        catalog.define_builtin_source(&losses, at(1)).unwrap(),
        (id, vec![])
    );
    assert!(decoded(file_of(&events).as_bytes()).is_ok());
}

#[test]
fn unknown_names_suggest_known_ones() {
    let (catalog, _) = of_redis();
    let message = catalog.unknown_source("redsi").to_string();
    assert_eq!(message, "unknown source 'redsi'; did you mean 'redis'?");
    let message = catalog
        .find("redis")
        .unwrap()
        .unknown_index("latncy")
        .to_string();
    assert_eq!(
        message,
        "source 'redis' has no index 'latncy'; did you mean 'latency'?"
    );
}

#[test]
fn a_name_that_is_like_no_other_lists_what_there_is() {
    let mut catalog = Catalog::new();
    let said = |catalog: &Catalog, name: &str| catalog.unknown_source(name).to_string();
    assert_eq!(
        said(&catalog, "x"),
        "unknown source 'x'; there are no sources"
    );
    catalog.define_source(&redis(), at(0)).unwrap();
    assert_eq!(
        said(&catalog, "packets"),
        "unknown source 'packets'; the sources are: 'redis'"
    );
    assert!(said(&catalog, "loom_metrics").contains("a running daemon writes it"));
    assert!(said(&catalog, "loom_losses").contains("no loss has a record yet"));
    assert!(said(&catalog, "loom_alerts").contains("once it has a rule"));
}

#[test]
fn events_that_cannot_follow_are_refused() {
    let mut catalog = Catalog::new();
    let (id, events) = catalog.define_source(&redis(), at(4)).unwrap();
    let before = content(&catalog);
    for event in events {
        assert!(catalog.apply(&event).is_err(), "{event:?} twice");
    }
    let fields = vec![FieldDef::new("more", FieldType::U8)];
    let mut refused = |event: Event| assert!(catalog.apply(&event).is_err(), "{event:?}");
    refused(Event::FieldsAdded {
        source: id,
        at: at(3),
        fields: fields.clone(),
    });
    refused(Event::FieldsAdded {
        source: SourceId(2),
        at: at(4),
        fields,
    });
    refused(Event::FieldsAdded {
        source: id,
        at: at(4),
        fields: vec![],
    });
    refused(Event::SourceReopened {
        source: id,
        at: at(4),
    });
    refused(Event::SourceClosed {
        source: SourceId(0),
        at: at(4),
    });
    refused(Event::LabelsAdded {
        source: id,
        at: at(4),
        field: 7,
        labels: [].into(),
    });
    refused(Event::OverloadChanged {
        source: SourceId(5),
        at: at(4),
        on_overload: Overload::Block,
    });
    assert_eq!(content(&catalog), before);
}

#[derive(Clone, Debug)]
pub(super) enum Action {
    /// A source by its name, with this many fields, and perhaps an index.
    Define(usize, usize, Option<usize>),
    Close(u16),
    /// Looks up a source, its index by name, and perhaps the filter of the index.
    Index(u16, usize, Option<i8>),
    CloseIndex(u32),
}

pub(super) fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        (0..4usize, 1..5usize, prop::option::of(0..3usize))
            .prop_map(|(name, fields, index)| Action::Define(name, fields, index)),
        (0..6u16).prop_map(Action::Close),
        (0..6u16, 0..3usize, any::<Option<i8>>())
            .prop_map(|(source, name, filter)| Action::Index(source, name, filter)),
        (0..9u32).prop_map(Action::CloseIndex),
    ]
}

pub(super) fn act(catalog: &mut Catalog, action: &Action, at: Address) -> Result<Vec<Event>> {
    const NAMES: [&str; 5] = ["alpha", "beta", "gamma", "δ 'quoted'\"", "e"];
    const TYPES: [FieldType; 4] = [
        FieldType::I8,
        FieldType::F32,
        FieldType::Utf8,
        FieldType::Bool,
    ];
    match action {
        Action::Define(name, fields, index) => {
            let typed = NAMES.iter().copied().zip(TYPES).take(*fields);
            let mut source = def(NAMES[*name], &typed.collect::<Vec<_>>());
            source
                .indexes
                .extend(index.map(|i| IndexDef::new(NAMES[i], Some("alpha"))));
            Ok(catalog.define_source(&source, at)?.1)
        }
        Action::Close(id) => Ok(vec![catalog.close_source(SourceId(*id), at)?]),
        Action::Index(source, name, filter) => {
            let filter = filter.map(|value| format!("alpha < {value}"));
            let index = IndexDef {
                filter,
                ..IndexDef::new(NAMES[*name], None)
            };
            Ok(Vec::from_iter(
                catalog.define_index(SourceId(*source), &index, at)?.1,
            ))
        }
        Action::CloseIndex(id) => Ok(vec![catalog.close_index(IndexId(*id), at)?]),
    }
}

proptest! {
    #[test]
    fn a_replayed_catalog_equals_the_writers(actions in prop::collection::vec(any_action(), 0..40)) {
        let mut catalog = Catalog::new();
        let mut events = Vec::new();
        for (chunk, action) in actions.iter().enumerate() {
            let before = content(&catalog);
            let planned = catalog.plan(|catalog| act(catalog, action, at(chunk as u64)));
            prop_assert_eq!(&content(&catalog), &before, "a plan changes nothing");
            match act(&mut catalog, action, at(chunk as u64)) {
                Ok(made) => {
                    prop_assert_eq!(planned.unwrap(), made.as_slice());
                    events.extend(made);
                }
                Err(_) => prop_assert_eq!(content(&catalog), before, "a refusal changes nothing"),
            }
        }
        let file = file_of(&events);
        let (replayed, lines, bytes) = decoded(file.as_bytes()).unwrap();
        prop_assert_eq!(content(&replayed), content(&catalog));
        prop_assert_eq!((lines as u64, bytes), (catalog.event_count(), file.len()));
        prop_assert_eq!(replayed.latest_at(), events.last().map_or(Address::ZERO, Event::at));
    }
}
