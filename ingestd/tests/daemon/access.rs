//! The directory of a daemon: its owner, foreign files in it, and who may read it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use loom_tests::command::{declared, file, run, says, word};

use super::support::{SMALL, There, connect, daemon, push, stop};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A daemon runs once, so that every file is there.
fn run_once(dir: &Path, config: &str) {
    let daemon = daemon(dir, config);
    let (client, source) = connect(dir);
    push(&client, source, [1]);
    client.sync_durable().unwrap();
    drop(client);
    daemon.stop().unwrap();
}

// case Network and input: a wrong user
#[test]
fn a_group_is_given_what_is_looms_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    run_once(&dir, SMALL);
    // Foreign files and folders, a program, files of other places by links of both kinds, and a link in a segment's place.
    let key = root.path().join("key");
    fs::write(&key, "secret").unwrap();
    set_mode(&key, 0o600);
    let folder = dir.join("notes");
    fs::create_dir(&folder).unwrap();
    set_mode(&folder, 0o700);
    fs::write(folder.join("catalog"), "not Loom's").unwrap();
    fs::write(dir.join("backup.sh"), "#!/bin/sh\n").unwrap();
    set_mode(&dir.join("backup.sh"), 0o700);
    set_mode(&folder.join("catalog"), 0o600);
    fs::hard_link(&key, dir.join("id")).unwrap();
    fs::hard_link(&key, dir.join("durable.old")).unwrap();
    fs::hard_link(&key, dir.join("chunks/00000000009000000000.0")).unwrap();
    symlink(&key, dir.join("times/00000000009000000000.0")).unwrap();
    fs::write(dir.join("records/readme"), "not Loom's").unwrap();
    set_mode(&dir.join("records/readme"), 0o600);

    let group = fs::metadata(root.path()).unwrap().gid();
    run_once(&dir, &format!("{SMALL}[access]\ngroup = '{group}'\n"));
    for (path, expected) in [
        (key.clone(), 0o600),
        (folder.clone(), 0o700),
        (folder.join("catalog"), 0o600),
        (dir.join("backup.sh"), 0o700),
        (dir.join("records/readme"), 0o600),
        (dir.clone(), 0o750),
        (dir.join("catalog"), 0o640),
        (dir.join("records"), 0o750),
        (dir.join("records/00000000000000000000.0"), 0o640),
    ] {
        assert_eq!(mode(&path), expected, "{}", path.display());
    }
}

// case Network and input: a wrong user
#[test]
fn a_directory_whose_group_is_taken_away_is_its_owners_again() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let group = fs::metadata(root.path()).unwrap().gid();
    run_once(&dir, &format!("{SMALL}[access]\ngroup = '{group}'\n"));
    let own = "loom.json catalog durable LOCK records chunks times";
    let logs = ["records", "chunks", "times"].map(|log| format!("{log}/00000000000000000000.0"));
    let mut own: Vec<&str> = own.split(' ').collect();
    own.extend(logs.iter().map(String::as_str).chain([""]));
    assert!(own.iter().all(|name| mode(&dir.join(name)) & 0o040 != 0));
    // As somebody may have left it who helped himself.
    set_mode(&dir.join("catalog"), 0o666);
    run_once(&dir, SMALL);
    for name in own {
        let path = dir.join(name);
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
        let group = fs::metadata(&path).unwrap().gid();
        assert_eq!(group, rustix::process::getegid().as_raw());
    }
}

// case Network and input: a wrong user
#[test]
fn a_directory_that_is_used_for_something_else_is_refused_and_stays_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("home");
    fs::create_dir(&dir).unwrap();
    set_mode(&dir, 0o755);
    fs::write(dir.join("letter"), "dear").unwrap();
    fs::create_dir(dir.join("lost+found")).unwrap();
    let input = file(root.path(), "rows.csv", "a\n1\n");
    let fields = declared(&dir, "s", "a i64");
    let load = ["--source", "s", "--fields", &fields, &input];
    let gid = fs::metadata(root.path()).unwrap().gid();
    let group = format!("[access]\ngroup = '{gid}'\n");
    let group = file(root.path(), "loom.toml", group);
    let shared = ["--config", &group];
    for (command, arguments) in [("run", &[][..]), ("run", &shared[..]), ("load", &load[..])] {
        let refused = run(&[&[command, word(&dir)], arguments].concat());
        assert_ne!(refused.code, Some(0), "{command}");
        refused.says(
            "it holds no loom.json, but 'letter', which is not Loom's; give an empty directory",
        );
        assert_eq!(mode(&dir), 0o755, "{command}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "{command}");
    }
    // Files of a mount's root and of an interrupted start do not stop a daemon.
    fs::remove_file(dir.join("letter")).unwrap();
    fs::write(dir.join("LOCK"), "1\n").unwrap();
    fs::write(dir.join("loom.json.tmp"), "{").unwrap();
    run_once(&dir, SMALL);
    assert_eq!(mode(&dir), 0o700);

    run(&["run", &input]).says("it is a file; give a directory");
}

// case Network and input: a wrong user
#[test]
fn a_directory_that_others_may_write_to_is_told_of() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let log = dir.with_extension("log");
    let said = || {
        let _ = fs::remove_file(&log);
        stop(There::start(&dir, "").unwrap());
        fs::read_to_string(&log).unwrap()
    };
    // About its directory; other tests that run meanwhile cause other lines.
    let loud = ["could write to it", "belongs to user"];
    let is_quiet = |said: &str| !loud.iter().any(|words| said.contains(words));
    assert!(is_quiet(&said()));
    set_mode(&dir, 0o777);
    let open = said();
    says(&open, "had mode 0777 when this daemon started: other users");
    assert_eq!(mode(&dir), 0o700);
    assert!(is_quiet(&said()));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&dir, Some(65534), None).unwrap();
        let foreign = said();
        says(&foreign, "belongs to user 65534");
    }
}
