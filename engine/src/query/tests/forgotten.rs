//! A catalog that is rewritten without what retention gave up, while readers look.

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::error::Error;
use crate::ingest::{Limits, Writer, WriterOptions};
use crate::log::tests::{copy_dir, wait_until};
use crate::log::{LogOptions, LogReader};
use crate::query::{Directory, Poll, Snapshot, raw_scan};
use crate::schema::{FieldDef, FieldType, SourceDef};
use crate::types::{Address, SourceId, TimeRange};

struct Scene {
    place: TempDir,
    writer: Option<Writer>,
}

fn def(name: &str, field: &str) -> SourceDef {
    SourceDef {
        fields: vec![FieldDef::new(field, FieldType::U64)],
        ..SourceDef::new(name)
    }
}

impl Scene {
    /// `gone` has five records, `goes_on` several segments.
    fn new() -> Scene {
        let mut scene = Scene {
            place: tempfile::tempdir().unwrap(),
            writer: None,
        };
        scene.open();
        let writer = scene.writer();
        let gone = writer.define_source(&def("gone", "before")).unwrap();
        for n in 0..5u64 {
            writer.push(gone, &n.to_le_bytes()).unwrap();
        }
        scene.fill();
        scene
    }

    fn dir(&self) -> PathBuf {
        self.place.path().join("loom")
    }

    fn options(&self) -> WriterOptions {
        let log = LogOptions {
            chunk_bytes: 4 << 10,
            block_bytes: 64 << 10,
            segment_bytes: [64 << 10; 3].into(),
            staging: Some(self.place.path().to_owned()),
            ..LogOptions::default()
        };
        WriterOptions {
            log,
            ..WriterOptions::default()
        }
    }

    fn open(&mut self) {
        self.writer = Some(Writer::open(&self.dir(), self.options()).unwrap());
    }

    fn close(&mut self) {
        self.writer.take().unwrap().close().unwrap();
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

    /// Gives up the oldest segments, and rewrites the catalog once that is durable.
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

fn records(snapshot: &Snapshot, source: SourceId) -> Result<Vec<u64>, Error> {
    let mut found = Vec::new();
    raw_scan(snapshot, source, TimeRange::ALL, &Poll::never(), |record| {
        found.push(u64::from_le_bytes(*record.payload.first_chunk().unwrap()));
        ControlFlow::Continue(())
    })?;
    found.sort_unstable();
    Ok(found)
}

// case Network and input: a catalog that is rewritten
#[test]
fn a_reader_that_looked_before_sees_no_old_record_in_the_place_of_a_new_source() {
    let mut scene = Scene::new();
    let directory = Directory::open(&scene.dir()).unwrap();
    let reader = LogReader::open(&scene.dir()).unwrap();
    let early = directory.snapshot().unwrap();
    let gone = early.source("gone").unwrap().id;
    assert_eq!(records(&early, gone).unwrap(), [0, 1, 2, 3, 4]);
    let tails = reader.tails().unwrap();
    scene.forget();
    let described = scene.writer().catalog().forgotten_below();
    assert!(described > tails.begin.records);
    assert!(scene.writer().push(gone, &[0; 8]).is_err());
    let late = directory.snapshot_of(tails, tails.tail.records).unwrap();
    assert!(late.source("gone").is_err() && late.begin() >= described);

    let again = scene.writer().define_source(&def("gone", "after")).unwrap();
    assert_eq!(again, gone);
    scene.writer().push(gone, &77u64.to_le_bytes()).unwrap();
    scene.writer().sync().unwrap();
    // The tails of before, the catalog of now.
    let late = directory.snapshot_of(tails, tails.tail.records).unwrap();
    assert_eq!(late.source("gone").unwrap().fields[0].name, "after");
    assert_eq!(records(&late, gone).unwrap(), [0; 0]);
    assert!(late.begin() >= described);
    let now = directory.snapshot().unwrap();
    assert_eq!(records(&now, gone).unwrap(), [77]);
    assert!(matches!(
        directory.snapshot_at(tails.begin.records.0),
        Err(Error::Evicted { .. })
    ));
    // A snapshot that has its catalog still knows what its records were.
    assert_eq!(early.source("gone").unwrap().fields[0].name, "before");
    match records(&early, gone) {
        Ok(found) => assert_eq!(found, [0, 1, 2, 3, 4]),
        Err(error) => assert!(matches!(error, Error::Evicted { .. }), "{error}"),
    }
    scene.close();
    scene.open();
    let catalog = scene.writer().catalog();
    assert_eq!(catalog.find("gone").unwrap().fields[0].name, "after");
    assert_eq!(catalog.forgotten_below(), described);
    let report = crate::check::check(&scene.dir()).unwrap();
    assert_eq!(report.damage_count, 0, "{report:?}");
}

// case Network and input: a catalog that is rewritten
#[test]
fn what_is_defined_or_grows_above_what_is_given_up_stays() {
    let mut scene = Scene::new();
    scene.writer().define_source(&def("late", "value")).unwrap();
    let mut grown = def("gone", "before");
    grown.fields.push(FieldDef::new("more", FieldType::U8));
    let limits = Limits {
        bytes_max: Some(256 << 10),
        ..Limits::default()
    };
    let writer = scene.writer();
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
    // One record that is not in a sealed chunk yet keeps its source.
    let gone = writer.catalog().find("gone").unwrap().id;
    scene.fill();
    scene.writer().push(gone, &[0; 9]).unwrap();
    let writer = scene.writer();
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
    let mut scene = Scene::new();
    scene.close();
    let backup = scene.place.path().join("backup");
    copy_dir(&scene.dir(), &backup);
    scene.open();
    scene.forget();
    scene.close();
    for name in ["catalog", "catalog.copy"] {
        fs::copy(scene.dir().join(name), backup.join(name)).unwrap();
    }
    let refused = |error: Error| {
        let message = error.to_string();
        assert!(message.contains("from one backup"), "{message}");
    };
    refused(Directory::open(&backup).unwrap().snapshot().err().unwrap());
    refused(crate::check::check(&backup).err().unwrap());
    refused(Writer::open(&backup, scene.options()).err().unwrap());
}
