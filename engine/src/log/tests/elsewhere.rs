//! Another system than Linux reads a copied directory, with the storage that is compiled for it. Its calls are those of any Unix, so it runs here.

use std::sync::Arc;

use super::*;
use crate::log::files::os::reading;
use crate::log::storage::{OpenMode, OsStorage, Storage};

fn elsewhere() -> Arc<reading::OsStorage> {
    Arc::new(reading::OsStorage::new(None))
}

#[test]
fn a_directory_reads_alike_elsewhere_and_is_never_written() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [SEGMENT as usize + 4904, 168, 48]);
    logs.close().unwrap();
    let storage = elsewhere();
    let reader = LogReader::open_with(storage.clone(), &scene.dir()).unwrap();
    assert_eq!(check_all(&reader), check_all(&scene.reader()));
    assert!(storage.bytes_read() > SEGMENT);
    let id = |storage: &dyn Storage| storage.file_id(&scene.dir()).unwrap();
    assert_eq!(id(&*storage), id(&OsStorage::default()));
    let error = Opening::open_with(storage, &scene.dir(), &scene.options.log).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("Loom writes on Linux only"), "{said}");
}

#[test]
fn of_a_directory_with_a_writer_the_files_are_read() {
    let scene = Scene::new();
    let mut logs = scene.create(Durability::None);
    append_each(&mut logs, [3 * BLOCK as usize, 168, 48]);
    logs.publish();
    let reader = LogReader::open_with(elsewhere(), &scene.dir()).unwrap();
    let tails = check_all(&reader);
    assert!(!tails.live);
    assert!(tails.tail.records <= Address(3 * BLOCK));
    logs.close().unwrap();
    let reader = LogReader::open_with(elsewhere(), &scene.dir()).unwrap();
    assert_eq!(reader.tails().unwrap().tail.records, Address(3 * BLOCK));
}

#[test]
fn what_is_in_place_of_a_file_gives_the_same_error() {
    let scene = Scene::new();
    let place = |name: &str| scene.dir().with_extension(name);
    std::fs::create_dir(place("folder")).unwrap();
    std::os::unix::fs::symlink("/dev/null", place("link")).unwrap();
    std::os::unix::fs::symlink(place("folder"), place("nowhere")).unwrap();
    let names = ["folder", "link", "nowhere", "missing"];
    for path in names.map(place).into_iter().chain(["/dev/null".into()]) {
        let of = |storage: &dyn Storage| storage.open(&path, OpenMode::Read).unwrap_err();
        let (here, there) = (of(&OsStorage::default()), of(&*elsewhere()));
        assert_eq!(here.to_string(), there.to_string());
    }
    assert_eq!(
        reading::path_of(b"/var/lib/loom"),
        Path::new("/var/lib/loom")
    );
    assert_eq!(reading::runs(1), None);
}
