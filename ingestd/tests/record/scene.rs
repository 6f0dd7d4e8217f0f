//! A directory to record into, and queries of the records.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use loom_engine::query::{Directory, Poll, Snapshot};
use loom_engine::{TimeRange, Timestamp};
use loom_tests::command::{Ended, ingestd, piped, send, until};
use loom_tests::machine;
use rustix::process::{Pid, Signal};

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
        let mut command = ingestd(["record"]);
        command.arg(&self.dir).args(args);
        command
    }

    pub fn record(&self, args: &[&str]) -> Ended {
        Ended::of(&mut self.command(args))
    }

    /// Starts a recording, and returns when its sources exist and it records.
    pub fn start(&self, args: &[&str], source: &str) -> Child {
        self.started(self.command(args), source)
    }

    pub fn started(&self, mut command: Command, source: &str) -> Child {
        let (mut child, stdin) = piped(&mut command);
        drop(stdin);
        until(|| {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none(), "the recording ended with {ended:?}");
            self.dir.exists() && has_source(&self.dir, source)
        });
        child
    }

    /// The payloads of every visible record of a source.
    pub fn payloads(&self, name: &str) -> Vec<Vec<u8>> {
        loom_engine::testkit::payloads(&self.dir, name)
    }

    pub fn snapshot(&self) -> Snapshot {
        Directory::open(&self.dir).unwrap().snapshot().unwrap()
    }

    /// Whether a query for a complete source is answered.
    pub fn is_complete(&self, name: &str) -> bool {
        self.is_complete_in(name, TimeRange::ALL)
    }

    pub fn is_complete_in(&self, name: &str, range: TimeRange) -> bool {
        let snapshot = self.snapshot();
        let id = snapshot.catalog().find(name).unwrap().id;
        let asked = snapshot.require_complete(id, range, &Poll::never());
        asked.is_ok()
    }

    /// Waits until a source has so many records.
    pub fn wait_for(&self, records: usize, name: &str) {
        until(|| self.payloads(name).len() >= records);
    }
}

/// Starts a recording, and returns when everything that happens is recorded.
pub fn recording(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("recording into")));
    child
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
pub fn interrupt(child: Child) -> Ended {
    end(child, Signal::INT)
}

pub fn end(child: Child, signal: Signal) -> Ended {
    send(&child, signal);
    Ended::once(child)
}

/// The program of a recording.
pub fn program_of(child: &Child) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let program = std::fs::read_to_string(children).unwrap();
    Pid::from_raw(program.trim().parse().unwrap()).unwrap()
}

/// Whether this user can record from the kernel and the network: one who cannot skips, except where `CI` is set.
pub fn may_record() -> bool {
    let may = rustix::process::geteuid().is_root();
    if !may {
        machine::skip("recording", "it needs root").unwrap();
    }
    may
}
