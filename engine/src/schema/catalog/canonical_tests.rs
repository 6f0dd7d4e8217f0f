//! A rewritten catalog says the same about retained records, and forgets the rest.

use proptest::prelude::*;

use super::tests::{UUID, act, any_action, at, content, decoded, def, redis};
use super::*;
use crate::schema::field::{FieldDef, FieldType};
use crate::schema::layout::TimeKind;
use crate::schema::source::SourceDef;

/// A rewritten catalog, read from its new text.
fn rewritten(catalog: &Catalog, below: Address, gone: &[&str]) -> Catalog {
    let is_gone = |source: &Source| gone.contains(&source.name.as_str());
    let text = catalog.rewritten_text(&UUID, 1000, below, is_gone);
    let (again, lines, bytes) = decoded(text.as_bytes()).unwrap();
    assert_eq!(bytes, text.len());
    assert_eq!(again.event_count(), catalog.event_count() + lines as u64);
    assert_eq!(
        (again.bytes_before(), again.forgotten_below()),
        (1000, below)
    );
    again
}

/// The content of a catalog about records from an address on: everything except the layouts that ended below.
fn described(catalog: &Catalog, below: Address) -> String {
    let sources = catalog.sources.iter().map(|source| {
        let addresses = (0..50).map(|chunk| below + chunk * 65_536);
        let layouts: Vec<String> = addresses
            .map(|address| format!("{:?}", source.layout_at(address)))
            .collect();
        let next = source.next_layout_from(below);
        let mut described = (**source).clone();
        described.layouts.clear();
        format!("{described:?} {layouts:?} {next:?}\n")
    });
    format!(
        "{} {:?}",
        sources.collect::<String>(),
        catalog.index_sources
    )
}

// case Network and input: a catalog that is rewritten
#[test]
fn a_rewritten_catalog_has_the_layouts_of_what_is_retained() {
    let mut catalog = Catalog::new();
    let mut wider = redis();
    for chunk in 0..9 {
        catalog.define_source(&wider, at(chunk)).unwrap();
        wider
            .fields
            .push(FieldDef::new(format!("f{chunk}"), FieldType::U32));
    }
    let again = rewritten(&catalog, at(6), &[]);
    let source = again.find("redis").unwrap();
    assert_eq!(source.layouts.len(), 3);
    assert_eq!(source.layouts[0].0, at(0));
    assert_eq!(described(&again, at(6)), described(&catalog, at(6)));
    assert_eq!(source.layout_at(at(5)).field_count(), 2 + 6);
    assert!(again.parts < catalog.parts);
    assert_eq!(
        described(&rewritten(&again, at(6), &[]), at(6)),
        described(&again, at(6))
    );
}

// case Network and input: a catalog that is rewritten
#[test]
fn a_forgotten_source_keeps_its_id_and_is_defined_again_as_another() {
    let mut catalog = Catalog::new();
    let [gone, kept] = ["gone", "kept"].map(|name| {
        let def = def(name, &[("a", FieldType::U64)]);
        catalog.define_source(&def, at(1)).unwrap().0
    });
    let mut again = rewritten(&catalog, at(7), &["gone"]);
    assert!(again.find("gone").is_none() && again.find("kept").is_some());
    assert_eq!(again.sources().count(), 1);
    let forgotten = again.source(gone).unwrap();
    assert!(forgotten.is_forgotten() && forgotten.fields.is_empty());
    assert_eq!(forgotten.name, "gone");
    assert!(again.unknown_source("gon").to_string().ends_with("'kept'"));
    assert!(matches!(
        again.close_source(gone, at(8)),
        Err(Error::SourceClosed { .. })
    ));
    let reopened = Event::SourceReopened {
        source: gone,
        at: at(8),
    };
    assert!(again.apply(&reopened).is_err());
    // This holds however often the catalog is rewritten.
    again = rewritten(&again, at(8), &[]);
    let other = def("gone", &[("b", FieldType::Utf8), ("c", FieldType::I8)]);
    let before = content(&again);
    let planned = again
        .plan(|catalog| catalog.define_source(&other, at(9)))
        .unwrap();
    assert_eq!(content(&again), before, "a plan changes nothing");
    let own = SourceDef {
        time: TimeKind::Own,
        ..other.clone()
    };
    assert!(again.define_source(&own, at(9)).is_err());
    assert_eq!(content(&again), before, "a refusal changes nothing");
    let (id, events) = again.define_source(&other, at(9)).unwrap();
    assert_eq!((id, &events), (planned.0, &planned.1));
    assert_eq!((id, events.len()), (gone, 1));
    let (new, _) = again.define_source(&def("new", &[]), at(9)).unwrap();
    assert_eq!(new.0, kept.0 + 1);
    assert_eq!(again.find("gone").unwrap().def(), other);
    let once_more = rewritten(&again, at(9), &["kept"]);
    assert_eq!(once_more.find("gone").unwrap().def(), other);
    assert_eq!(once_more.find("new").unwrap().id, new);
    assert_eq!(once_more.find("gone").unwrap().layouts[0].0, at(9));
    assert!(once_more.find("kept").is_none());
}

proptest! {
    // case Network and input: a catalog that is rewritten
    #[test]
    fn a_rewritten_catalog_says_the_same_of_what_is_retained_and_goes_on_alike(
        actions in prop::collection::vec(any_action(), 0..60),
        begin in 0..40u64,
        later in prop::collection::vec(any_action(), 0..20),
    ) {
        let mut catalog = Catalog::new();
        catalog.define_source(&redis(), at(0)).unwrap();
        // Several events have one address, as when a writer stores no record in between.
        let place = |n: usize| at(n as u64 / 3);
        for (n, action) in actions.iter().enumerate() {
            let _refused = act(&mut catalog, action, place(n));
        }
        // The log can be retained up to here: nothing is defined above its end.
        let below = at(begin).min(place(actions.len()));
        let mut again = rewritten(&catalog, below, &[]);
        prop_assert_eq!(described(&again, below), described(&catalog, below));
        prop_assert!(again.parts <= catalog.parts);
        for (n, action) in later.iter().enumerate() {
            let place = place(actions.len() + n);
            let [one, other] = [&mut catalog, &mut again].map(|catalog| act(catalog, action, place));
            prop_assert_eq!(one.ok(), other.ok());
            prop_assert_eq!(described(&again, below), described(&catalog, below));
        }
    }
}
