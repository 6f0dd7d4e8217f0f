//! What a daemon makes of the directory that it is given: whose it is, what else lies there, and who may read it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use ingestd::client::Client;
use ingestd::config::Config;
use ingestd::daemon::Daemon;

use super::support::{NUMBERS, SMALL, eventually, ingestd};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A daemon runs once, so that every file is there.
fn run_once(dir: &Path, config: &str) {
    let daemon = Daemon::start(dir, &Config::parse(config).unwrap(), false).unwrap();
    let client = Client::connect(dir).unwrap();
    let source = client.define_one(NUMBERS).unwrap();
    client.push(source, &1u64.to_le_bytes()).unwrap();
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
    let own = [
        "",
        "loom.json",
        "catalog",
        "durable",
        "LOCK",
        "records",
        "chunks",
        "times",
        "records/00000000000000000000.0",
        "chunks/00000000000000000000.0",
        "times/00000000000000000000.0",
    ];
    assert!(own.iter().all(|name| mode(&dir.join(name)) & 0o040 != 0));
    // As somebody may have left it who helped himself.
    set_mode(&dir.join("catalog"), 0o666);
    run_once(&dir, SMALL);
    for name in own {
        let path = dir.join(name);
        let expected = if path.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(mode(&path), expected, "{}", path.display());
        assert_eq!(
            fs::metadata(&path).unwrap().gid(),
            rustix::process::getegid().as_raw()
        );
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
    let input = root.path().join("rows.csv");
    fs::write(&input, "a\n1\n").unwrap();
    let load = ["--source".as_ref(), "s".as_ref(), input.as_os_str()];
    let group = root.path().join("loom.toml");
    let gid = fs::metadata(root.path()).unwrap().gid();
    fs::write(&group, format!("[access]\ngroup = '{gid}'\n")).unwrap();
    let shared = ["--config".as_ref(), group.as_os_str()];
    for (command, arguments) in [("run", &[][..]), ("run", &shared[..]), ("load", &load[..])] {
        let done = ingestd()
            .arg(command)
            .arg(&dir)
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8(done.stderr).unwrap();
        assert!(!done.status.success(), "{command}");
        assert!(
            said.contains(
                "it holds no loom.json, but 'letter', which is not Loom's; give an empty directory"
            ),
            "{said}"
        );
        assert_eq!(mode(&dir), 0o755, "{command}");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 2, "{command}");
    }
    // What a mount's root and an interrupted start leave is in nobody's way.
    fs::remove_file(dir.join("letter")).unwrap();
    fs::write(dir.join("LOCK"), "1\n").unwrap();
    fs::write(dir.join("loom.json.tmp"), "{").unwrap();
    run_once(&dir, SMALL);
    assert_eq!(mode(&dir), 0o700);

    let done = ingestd().arg("run").arg(&input).output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("it is a file; give a directory"), "{said}");
}

// case Network and input: a wrong user
#[test]
fn a_directory_that_others_may_write_to_is_told_of() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let said = |name: &str| {
        let path = root.path().join(name);
        let mut child = ingestd()
            .arg("run")
            .arg(&dir)
            .stderr(Stdio::from(fs::File::create(&path).unwrap()))
            .spawn()
            .unwrap();
        eventually(|| Client::connect(&dir).ok());
        let pid = child.id().to_string();
        assert!(Command::new("kill").arg(&pid).status().unwrap().success());
        assert!(child.wait().unwrap().success());
        fs::read_to_string(path).unwrap()
    };
    // About its directory; other tests that run meanwhile cause other lines.
    let is_quiet =
        |said: &str| !said.contains("could write to it") && !said.contains("belongs to user");
    assert!(is_quiet(&said("fresh")));
    set_mode(&dir, 0o777);
    let open = said("open");
    assert!(
        open.contains("had mode 0777 when this daemon started: other users"),
        "{open}"
    );
    assert_eq!(mode(&dir), 0o700);
    assert!(is_quiet(&said("closed")));
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&dir, Some(65534), None).unwrap();
        let foreign = said("foreign");
        assert!(foreign.contains("belongs to user 65534"), "{foreign}");
    }
}
