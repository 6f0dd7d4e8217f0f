//! A catalog is rewritten without the sources that retention removed, while readers read.

use std::fs;

use crate::error::Error;
use crate::ingest::{Limits, Writer};
use crate::log::LogOptions;
use crate::query::Directory;
use crate::schema::{FieldDef, FieldType, SourceDef};
use crate::testkit::asked::numbers;
use crate::testkit::scene::BLOCK;
use crate::testkit::{Scene, copy_dir, wait_until};
use crate::types::Address;

/// A directory and its writer.
struct Live {
    scene: Scene,
    writer: Option<Writer>,
}

fn def(name: &str, field: &str) -> SourceDef {
    SourceDef {
        fields: vec![FieldDef::new(field, FieldType::U64)],
        ..SourceDef::new(name)
    }
}

impl Live {
    /// `gone` has five records, `goes_on` several segments.
    fn new() -> Live {
        let mut scene = Scene::new();
        scene.options.log.segment_bytes = [BLOCK; 3].into();
        scene.options.log.durability = LogOptions::default().durability;
        let mut live = Live {
            writer: Some(scene.writer()),
            scene,
        };
        let writer = live.writer();
        let gone = writer.define_source(&def("gone", "before")).unwrap();
        for n in 0..5u64 {
            writer.push(gone, &n.to_le_bytes()).unwrap();
        }
        live.fill();
        live
    }

    fn close(&mut self) {
        self.writer.take().unwrap().close().unwrap();
    }

    fn reopen(&mut self) {
        self.close();
        self.writer = Some(self.scene.writer());
    }

    fn writer(&mut self) -> &mut Writer {
        self.writer.as_mut().unwrap()
    }

    fn fill(&mut self) {
        let writer = self.writer();
        let goes_on = writer.define_source(&def("goes_on", "value")).unwrap();
        for n in 0..20_000u64 {
            writer.push(goes_on, &n.to_le_bytes()).unwrap();
        }
        writer.sync_durable().unwrap();
    }

    /// Evicts the oldest segments, and rewrites the catalog once that is durable.
    fn forget(&mut self) {
        let limits = Limits {
            bytes_max: Some(256 << 10),
            ..Limits::default()
        };
        let writer = self.writer();
        let evicted = writer.evict(&limits).unwrap();
        assert!(evicted.segments > 0, "{evicted:?}");
        wait_until("the source is forgotten", || {
            writer
                .rewrite_catalog(|source| source.name == "gone")
                .unwrap();
            writer.catalog().find("gone").is_none()
        });
    }
}

// case Network and input: a catalog that is rewritten
#[test]
fn a_reader_that_looked_before_sees_no_old_record_in_the_place_of_a_new_source() {
    let mut live = Live::new();
    let directory = live.scene.directory();
    let reader = live.scene.reader();
    let early = directory.snapshot().unwrap();
    let gone = early.source("gone").unwrap().id;
    assert_eq!(numbers(&early, gone).unwrap(), [0, 1, 2, 3, 4]);
    let tails = reader.tails().unwrap();
    live.forget();
    let described = live.writer().catalog().forgotten_below();
    assert!(described > tails.begin.records);
    assert!(live.writer().push(gone, &[0; 8]).is_err());
    let late = directory.snapshot_of(tails, tails.tail.records).unwrap();
    assert!(late.source("gone").is_err() && late.begin() >= described);

    let again = live.writer().define_source(&def("gone", "after")).unwrap();
    assert_eq!(again, gone);
    live.writer().push(gone, &77u64.to_le_bytes()).unwrap();
    live.writer().sync().unwrap();
    // The earlier tails meet the later catalog.
    let late = directory.snapshot_of(tails, tails.tail.records).unwrap();
    assert_eq!(late.source("gone").unwrap().fields[0].name, "after");
    assert_eq!(numbers(&late, gone).unwrap(), [0; 0]);
    assert!(late.begin() >= described);
    let now = directory.snapshot().unwrap();
    assert_eq!(numbers(&now, gone).unwrap(), [77]);
    assert!(matches!(
        directory.snapshot_at(tails.begin.records.0),
        Err(Error::Evicted { .. })
    ));
    // A snapshot that still has its catalog knows the fields of its records.
    assert_eq!(early.source("gone").unwrap().fields[0].name, "before");
    match numbers(&early, gone) {
        Ok(found) => assert_eq!(found, [0, 1, 2, 3, 4]),
        Err(error) => assert!(matches!(error, Error::Evicted { .. }), "{error}"),
    }
    live.reopen();
    let catalog = live.writer().catalog();
    assert_eq!(catalog.find("gone").unwrap().fields[0].name, "after");
    assert_eq!(catalog.forgotten_below(), described);
    let report = live.scene.report();
    assert_eq!(report.damage_count, 0, "{report:?}");
}

// case Network and input: a catalog that is rewritten
#[test]
fn what_is_defined_or_grows_above_what_is_given_up_stays() {
    let mut live = Live::new();
    live.writer().define_source(&def("late", "value")).unwrap();
    let mut grown = def("gone", "before");
    grown.fields.push(FieldDef::new("more", FieldType::U8));
    let limits = Limits {
        bytes_max: Some(256 << 10),
        ..Limits::default()
    };
    let writer = live.writer();
    writer.define_source(&grown).unwrap();
    writer.evict(&limits).unwrap();
    wait_until("the segments are given up", || {
        writer.rewrite_catalog(|_| true).unwrap();
        writer.catalog().forgotten_below() > Address::ZERO
    });
    let names: Vec<&str> = writer
        .catalog()
        .sources()
        .map(|source| &*source.name)
        .collect();
    assert_eq!(names, ["gone", "goes_on", "late"]);
    // A single record that is not in a sealed chunk yet keeps its source.
    let gone = writer.catalog().find("gone").unwrap().id;
    live.fill();
    live.writer().push(gone, &[0; 9]).unwrap();
    let writer = live.writer();
    writer.evict(&limits).unwrap();
    wait_until("the source without records is forgotten", || {
        writer.rewrite_catalog(|_| true).unwrap();
        writer.catalog().find("late").is_none()
    });
    assert!(writer.catalog().find("gone").is_some());
}

// case Network and input: a catalog that is rewritten
#[test]
fn a_catalog_of_a_later_time_than_the_log_is_refused() {
    let mut live = Live::new();
    live.close();
    let dir = live.scene.dir();
    let backup = live.scene.root.path().join("backup");
    copy_dir(&dir, &backup);
    live.writer = Some(live.scene.writer());
    live.forget();
    live.close();
    for name in ["catalog", "catalog.copy"] {
        fs::copy(dir.join(name), backup.join(name)).unwrap();
    }
    let refused = |error: Error| {
        let message = error.to_string();
        assert!(message.contains("from one backup"), "{message}");
    };
    refused(Directory::open(&backup).unwrap().snapshot().err().unwrap());
    refused(crate::check::check(&backup).err().unwrap());
    refused(
        Writer::open(&backup, live.scene.options.clone())
            .err()
            .unwrap(),
    );
}
