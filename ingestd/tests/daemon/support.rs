//! What the scenarios share: daemons in this process or in one of their own, and a look into the directory.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ingestd::client::{Client, ClientError};
use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::TimeRange;
use loom_engine::query::{Directory, raw_scan};
use tempfile::TempDir;

/// A source of numbers.
pub const NUMBERS: &str = "[[source]]\nname = 'numbers'\n[[source.field]]\nname = 'n'\ntype = 'u64'\n\
                           [[source.index]]\nname = 'n'\nvalue = 'n'\n";

/// Small blocks: many of them are written in a short test.
pub const SMALL: &str = "[log]\nchunk = '4KiB'\nblock = '64KiB'\nsegment = '1MiB'\n";

/// A daemon in this process, on a directory of its own. It is stopped when it is dropped, so that no staging is left.
pub struct Here {
    daemon: Option<Daemon>,
    dir: Option<TempDir>,
}

impl Here {
    pub fn start(config: &str) -> Here {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(dir.path(), &Config::parse(config).unwrap(), false).unwrap();
        Here {
            daemon: Some(daemon),
            dir: Some(dir),
        }
    }

    pub fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    pub fn path(&self) -> &Path {
        self.dir.as_ref().unwrap().path()
    }

    pub fn client(&self) -> Client {
        Client::connect(self.path()).unwrap()
    }

    /// Stops the daemon; the directory stays.
    pub fn stop(mut self) -> TempDir {
        self.daemon.take().unwrap().stop().unwrap();
        self.dir.take().unwrap()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take() {
            let _ = daemon.stop();
        }
    }
}

/// A daemon in a process of its own, killed when it is dropped.
pub struct There {
    pub child: Child,
    dir: PathBuf,
}

impl There {
    /// Starts `ingestd run` and waits until it listens.
    pub fn start(dir: &Path, arguments: &[&str]) -> There {
        let child = ingestd()
            .arg("run")
            .arg(dir)
            .args(arguments)
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        There::of(child, dir)
    }

    /// A process that was just started; waits until it listens.
    pub fn of(child: Child, dir: &Path) -> There {
        let there = There {
            child,
            dir: dir.to_owned(),
        };
        drop(there.client());
        there
    }

    /// Connects as soon as the daemon listens.
    pub fn client(&self) -> Client {
        eventually(|| match Client::connect(&self.dir) {
            Ok(client) => Some(client),
            Err(ClientError::NotRunning(_)) => None,
            Err(error) => panic!("{error}"),
        })
    }

    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(
            Command::new("kill")
                .args([name, &pid])
                .status()
                .unwrap()
                .success()
        );
    }

    /// Waits for the process to end; whether it succeeded.
    pub fn wait(mut self) -> bool {
        self.child.wait().unwrap().success()
    }
}

impl Drop for There {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn ingestd() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ingestd"))
}

/// Asks until there is an answer; a minute is long enough for anything.
pub fn eventually<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(
            Instant::now() < deadline,
            "it did not happen within a minute"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The payloads of a source that are visible now, oldest first.
pub fn payloads(dir: &Path, source: &str) -> Vec<Vec<u8>> {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let source = snapshot.source(source).unwrap().id;
    let mut found = Vec::new();
    raw_scan(
        &snapshot,
        source,
        TimeRange::ALL,
        &loom_engine::query::Poll::never(),
        |record| {
            found.push(record.payload.to_vec());
            ControlFlow::Continue(())
        },
    )
    .unwrap();
    found.reverse();
    found
}

/// The same, as the numbers that they are.
pub fn numbers(dir: &Path) -> Vec<u64> {
    let number = |payload: Vec<u8>| u64::from_le_bytes(payload.try_into().unwrap());
    payloads(dir, "numbers").into_iter().map(number).collect()
}
