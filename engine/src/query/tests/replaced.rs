//! A directory is removed and created again at the same path while a reader has it open. Its UUID shows that it is another one.

use std::fs;

use crate::error::{Error, Result};
use crate::query::{Directory, Snapshot};
use crate::testkit::asked::records;
use crate::testkit::copy_dir;
use crate::testkit::world::{Op, Spread, World};

const RECORDS: u16 = 800;

/// Several chunks with `RECORDS` records of `metric`, and no writer.
fn stopped(seed: u64) -> World {
    let push = Op::push(0, RECORDS, Spread::Skewed, seed);
    let mut world = World::of(&[push, Op::Fill(30)]);
    world.close();
    world
}

/// The number of records of `metric`.
fn count(world: &World, snapshot: &Snapshot) -> Result<u16> {
    Ok(records(snapshot, world.sources[0])?.len() as u16)
}

/// Puts another directory in the place of the world's.
fn replace(world: &World) {
    let dir = world.dir();
    fs::remove_dir_all(&dir).unwrap();
    fs::rename(stopped(8).dir(), &dir).unwrap();
}

#[test]
fn a_reader_of_a_replaced_directory_gets_an_error_and_a_new_reader_its_content() {
    for is_live in [false, true] {
        let mut world = stopped(7);
        let dir = world.dir();
        if is_live {
            world.reopen();
        }
        let position = world.snapshot().position();
        assert_eq!(count(&world, &world.snapshot()).unwrap(), RECORDS);
        drop(world.writer.take());
        replace(&world);
        for asked in [
            world.directory.snapshot(),
            world.directory.snapshot_at(position),
        ] {
            let error = asked.err();
            assert!(
                matches!(&error, Some(Error::Replaced { path }) if *path == dir),
                "{error:?}"
            );
        }
        world.directory = Directory::open(&dir).unwrap();
        assert_eq!(count(&world, &world.snapshot()).unwrap(), RECORDS);
    }
}

#[test]
fn a_snapshot_of_a_replaced_directory_gives_all_its_records_or_an_error() {
    for is_read_before in [false, true] {
        let world = stopped(7);
        let snapshot = world.snapshot();
        if is_read_before {
            count(&world, &snapshot).unwrap();
        }
        replace(&world);
        if let Ok(records) = count(&world, &snapshot) {
            assert_eq!(records, RECORDS);
        }
    }
}

#[test]
fn a_directory_that_is_gone_is_an_error() {
    let world = stopped(7);
    fs::remove_dir_all(world.dir()).unwrap();
    let error = world.directory.snapshot().err();
    assert!(matches!(error, Some(Error::NotLoom { .. })), "{error:?}");
}

/// In a copy that went on by itself, addresses and nodes hold other data than the reader has cached.
#[test]
fn a_copy_in_the_place_of_a_directory_is_another() {
    let world = stopped(7);
    assert_eq!(count(&world, &world.snapshot()).unwrap(), RECORDS);
    let dir = world.dir();
    let copy = world.scene.root.path().join("copy");
    copy_dir(&dir, &copy);
    for is_moved in [false, true] {
        let old = Directory::open(&dir).unwrap();
        old.snapshot().unwrap();
        if is_moved {
            fs::rename(&dir, world.scene.root.path().join("moved")).unwrap();
        } else {
            fs::remove_dir_all(&dir).unwrap();
        }
        copy_dir(&copy, &dir);
        assert!(!old.is_in_place());
        let error = old.snapshot().err();
        assert!(matches!(error, Some(Error::Replaced { .. })), "{error:?}");
    }
}
