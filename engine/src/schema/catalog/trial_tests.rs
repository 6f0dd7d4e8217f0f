//! Plans are changes that are tried and leave no trace.

use std::sync::Arc;

use super::tests::{at, content, def, redis};
use super::*;
use crate::schema::field::{FieldDef, FieldType};
use crate::schema::index::IndexDef;
use crate::schema::source::Overload;

/// The addresses of the parts that all changes share.
fn places(catalog: &Catalog) -> [*const (); 3] {
    [
        Arc::as_ptr(&catalog.sources).cast(),
        Arc::as_ptr(&catalog.ids).cast(),
        Arc::as_ptr(&catalog.index_sources).cast(),
    ]
}

#[test]
fn a_plan_leaves_no_trace_and_copies_no_other_source() {
    let mut catalog = Catalog::new();
    catalog.define_source(&redis(), at(0)).unwrap();
    let other = def("packet", &[("bytes", FieldType::U64)]);
    catalog.define_source(&other, at(0)).unwrap();
    let (before, stood) = (content(&catalog), places(&catalog));
    let kept = Arc::clone(catalog.find("packet").unwrap());

    let mut amended = redis();
    amended.on_overload = Overload::DropNew;
    amended.fields.push(FieldDef::new("size", FieldType::U32));
    amended.indexes.push(IndexDef::new("size", Some("size")));
    let new = def("syscall", &[("nr", FieldType::U16)]);
    let plan = |catalog: &mut Catalog| {
        let mut events = catalog.define_source(&amended, at(1))?.1;
        events.extend(catalog.define_source(&new, at(1))?.1);
        events.push(catalog.close_source(SourceId(3), at(2))?);
        events.extend(catalog.define_source(&amended, at(2))?.1);
        events.push(catalog.close_index(IndexId(1), at(3))?);
        Ok(events)
    };
    let events = catalog.plan(plan).unwrap();
    assert_eq!(events.len(), 6);
    assert_eq!(
        (content(&catalog), places(&catalog)),
        (before.clone(), stood)
    );
    assert!(catalog.find("syscall").is_none());
    assert_eq!(catalog.latest_at(), at(0));

    let refused = catalog.plan(|catalog| {
        plan(catalog)?;
        let mut otherwise = other.clone();
        otherwise.indexes = vec![IndexDef::new("x", Some("bytes")), IndexDef::new("x", None)];
        catalog.define_source(&otherwise, at(3)).map(drop)
    });
    assert!(refused.is_err());
    assert_eq!((content(&catalog), places(&catalog)), (before, stood));

    for event in &events {
        catalog.apply(event).unwrap();
    }
    assert_eq!(catalog.find("redis").unwrap().fields.len(), 3);
    assert!(!catalog.find("syscall").unwrap().is_open());
    assert_eq!(places(&catalog), stood);
    assert!(Arc::ptr_eq(catalog.find("packet").unwrap(), &kept));
}
