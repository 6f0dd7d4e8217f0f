//! Tests recordings of control groups: the events of one, and the paths of all.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::schema::parse_sources;
use loom_tests::command::says;
use loom_tests::machine;

use super::scene::{interrupt, may_record, recording, scene};

/// A control group of version 2, which ends with the test.
struct Group(PathBuf);

impl Group {
    /// A group below the root; nothing where the groups cannot be changed.
    fn create(name: &str) -> Option<Group> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        let root = mounts.find_map(|mut words| {
            let (at, kind) = (words.nth(1)?, words.next()?);
            (kind == "cgroup2").then(|| Path::new(at).to_owned())
        });
        let folder = root.map(|root| root.join(format!("{name}-{}", std::process::id())));
        match folder.filter(|folder| std::fs::create_dir(folder).is_ok()) {
            Some(folder) => Some(Group(folder)),
            None => {
                machine::skip(name, "no control group of version 2 can be created").unwrap();
                None
            }
        }
    }

    fn id(&self) -> u64 {
        self.0.metadata().unwrap().ino()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A file on a disk, of which nothing is in the page cache.
fn cold_file() -> tempfile::NamedTempFile {
    let exe = std::env::current_exe().unwrap();
    let mut file = tempfile::NamedTempFile::new_in(exe.parent().unwrap()).unwrap();
    file.write_all(&vec![7; 20 << 20]).unwrap();
    file.as_file().sync_all().unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    file
}

// case Recording: filters in the kernel
#[test]
fn only_the_events_of_a_group_are_recorded_and_its_path_is_known_when_it_has_ended() {
    if !may_record() {
        return;
    }
    let Some(group) = Group::create("loom-recorded") else {
        return;
    };
    let scene = scene();
    let path = group.0.to_str().unwrap();
    let only = ["--cgroup", path];
    let captures = [
        &["syscalls", "--syscall", "umask"][..],
        &only,
        &["+", "pagecache"],
        &only,
        &["+", "blockio"],
        &only,
    ];
    let child = recording(scene.command(&captures.concat()));
    let [inside, outside] = [cold_file(), cold_file()];
    let read = |file: &tempfile::NamedTempFile, before: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{before} umask; exec cat \"$0\"")]);
        let into = File::create("/dev/null").unwrap();
        let done = shell.arg(file.path()).stdout(into).status().unwrap();
        assert!(done.success());
    };
    read(&inside, &format!("echo $$ > {path}/cgroup.procs;"));
    read(&outside, "");
    let (id, name) = (group.id(), group.0.file_name().unwrap().to_owned());
    // It begins and ends while the recording runs.
    let brief = Group::create("loom-brief").unwrap();
    let brief_id = brief.id();
    let brief_name = brief.0.file_name().unwrap().to_owned();
    drop((brief, group));
    interrupt(child).ends(0);
    // Payloads end with the id of the group.
    for source in ["syscall", "pagecache", "blockio"] {
        let payloads = scene.payloads(source);
        assert!(!payloads.is_empty(), "{source}");
        for payload in payloads {
            assert_eq!(payload.last_chunk(), Some(&id.to_le_bytes()), "{source}");
        }
    }
    // The shell sets its mask and sets it back.
    assert_eq!(scene.payloads("syscall").len(), 2);
    let groups = scene.payloads("cgroup");
    for (id, name) in [(id, name), (brief_id, brief_name)] {
        let path = format!("/{}", name.to_str().unwrap());
        let of_group = groups
            .iter()
            .filter(|payload| payload[8..16] == id.to_le_bytes());
        let paths: Vec<_> = of_group.map(|payload| &payload[18..]).collect();
        assert_eq!(paths, [path.as_bytes()]);
    }
}

// case Recording: filters in the kernel
#[test]
fn only_the_connections_of_a_group_and_of_those_below_it_are_recorded() {
    if !may_record() {
        return;
    }
    let Some(group) = Group::create("loom-connected") else {
        return;
    };
    let below = Group(group.0.join("below"));
    std::fs::create_dir(&below.0).unwrap();
    let scene = scene();
    let child = recording(scene.command(&["tcp", "--cgroup", group.0.to_str().unwrap()]));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let connect = |before: &str| {
        let connect = format!("{before} exec 3<>/dev/tcp/127.0.0.1/{port}");
        let done = Command::new("bash").args(["-c", &connect]).status();
        assert!(done.unwrap().success());
        // A segment of an accepted socket belongs to the listener's group.
        drop(listener.accept().unwrap());
    };
    connect(&format!("echo $$ > {}/cgroup.procs;", below.0.display()));
    connect("");
    interrupt(child).ends(0);
    let payloads = scene.payloads("tcp");
    // It connected, and was closed.
    assert!(payloads.len() >= 3, "{payloads:?}");
    for payload in payloads {
        assert_eq!(payload[45..53], below.id().to_le_bytes());
    }
}

// case Recording: something that is missing
#[test]
fn a_users_own_source_with_the_name_of_the_groups_stays_and_the_rest_is_recorded() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let own = "[[source]]\nname = 'cgroup'\n[[source.field]]\nname = 'memory'\ntype = 'u64'";
    let mut writer = Writer::open(&scene.dir, WriterOptions::default()).unwrap();
    writer.define_sources(&parse_sources(own).unwrap()).unwrap();
    writer.close().unwrap();
    let mut command = scene.command(&["syscalls", "--syscall", "umask"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    let said = said.map(Result::unwrap);
    let warned: String = said
        .take_while(|line| !line.contains("recording into"))
        .collect();
    says(
        &warned,
        "source 'cgroup' is not recorded: source 'cgroup' exists",
    );
    assert!(
        Command::new("sh")
            .args(["-c", "umask"])
            .status()
            .unwrap()
            .success()
    );
    interrupt(child).ends(0);
    assert!(!scene.payloads("syscall").is_empty());
    assert!(scene.payloads("cgroup").is_empty());
    let refused = scene.record(&["syscalls", "--source", "cgroup"]).ends(1);
    says(
        &refused.err,
        "the source 'cgroup' is for the paths of control groups; give --source another name",
    );
}
