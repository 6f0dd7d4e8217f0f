//! A directory to record into, and queries of the records.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use loom_engine::format::RecordIter;
use loom_engine::log::LogReader;
use loom_engine::query::{Directory, Poll};
use loom_engine::schema::decode_catalog;
use loom_engine::{Address, LogKind, TimeRange, Timestamp};
use rustix::process::{Pid, Signal, kill_process};

pub struct Scene {
    _home: tempfile::TempDir,
    pub dir: PathBuf,
}

pub fn scene() -> Scene {
    scene_named("loom")
}

pub fn scene_named(name: &str) -> Scene {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(name);
    Scene { _home: home, dir }
}

impl Scene {
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
        command.arg("record").arg(&self.dir).args(args);
        command.stdin(Stdio::null());
        command
    }

    pub fn record(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts a recording, and returns when its sources exist and it records.
    pub fn start(&self, args: &[&str], source: &str) -> Child {
        self.started(self.command(args), source)
    }

    pub fn started(&self, mut command: Command, source: &str) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while !(self.dir.exists() && has_source(&self.dir, source)) {
            if child.try_wait().unwrap().is_some() || Instant::now() > until {
                panic!("{:?}", child.wait_with_output());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    /// The payloads of every visible record of a source.
    pub fn payloads(&self, name: &str) -> Vec<Vec<u8>> {
        let reader = LogReader::open(&self.dir).unwrap();
        let (catalog, _, _) =
            decode_catalog(&reader.meta().uuid, &reader.catalog_bytes().unwrap()).unwrap();
        let source = catalog.find(name).unwrap();
        let chunk_bytes = reader.meta().chunk_bytes;
        let end = reader.tails().unwrap().tail.records;
        let mut payloads = Vec::new();
        let mut at = Address(0);
        while at < end {
            let mut chunk = vec![0; (end.0 - at.0).min(u64::from(chunk_bytes)) as usize];
            reader.read(LogKind::Records, at, &mut chunk).unwrap();
            for record in RecordIter::new(&chunk, chunk_bytes).map(Result::unwrap) {
                if record.source == source.id {
                    payloads.push(record.payload.to_vec());
                }
            }
            at += u64::from(chunk_bytes);
        }
        payloads
    }

    /// Whether a query for a complete source is answered.
    pub fn is_complete(&self, name: &str) -> bool {
        self.is_complete_in(name, TimeRange::ALL)
    }

    pub fn is_complete_in(&self, name: &str, range: TimeRange) -> bool {
        let snapshot = Directory::open(&self.dir).unwrap().snapshot().unwrap();
        let id = snapshot.catalog().find(name).unwrap().id;
        let asked = snapshot.require_complete(id, range, &Poll::never());
        asked.is_ok()
    }

    /// Waits until a source has so many records.
    pub fn wait_for(&self, records: usize, name: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.payloads(name).len() < records {
            assert!(
                Instant::now() < until,
                "{records} records of {name} in vain"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn has_source(dir: &Path, name: &str) -> bool {
    let Ok(snapshot) = Directory::open(dir).and_then(|dir| dir.snapshot()) else {
        return false;
    };
    snapshot.catalog().find(name).is_some()
}

pub fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    Timestamp(i64::try_from(since.as_nanos()).unwrap())
}

/// The own time of a payload.
pub fn own_time(payload: &[u8]) -> Timestamp {
    Timestamp(i64::from_le_bytes(*payload.first_chunk().unwrap()))
}

/// Ends a recording as Ctrl-C does.
pub fn interrupt(child: Child) -> Output {
    end(child, Signal::INT)
}

pub fn end(child: Child, signal: Signal) -> Output {
    send(&child, signal);
    child.wait_with_output().unwrap()
}

pub fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// The program of a recording.
pub fn program_of(child: &Child) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let program = std::fs::read_to_string(children).unwrap();
    Pid::from_raw(program.trim().parse().unwrap()).unwrap()
}

pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Whether this user can record from the kernel and the network. Otherwise the test is skipped, unless `CI` is set.
pub fn may_record() -> bool {
    let may = rustix::process::geteuid().is_root();
    assert!(may || std::env::var_os("CI").is_none(), "CI skips nothing");
    if !may {
        println!("skipped: recording needs root");
    }
    may
}
