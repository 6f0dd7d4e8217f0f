//! Shared by the scenarios: daemons in this process or in one of their own, and a look into the directory.

use std::path::{Path, PathBuf};

use ingestd::client::Client;
use ingestd::config::Config;
use ingestd::daemon::{Daemon, DaemonError};
use ingestd::protocol::{Counts, Shape};
use loom_engine::SourceId;
use loom_engine::query::{Directory, Loss, Poll};
pub use loom_engine::testkit::payloads;
pub use loom_tests::daemon::Daemon as There;
use tempfile::TempDir;

/// A source of numbers.
pub const NUMBERS: &str = "[[source]]\nname = 'numbers'\n[[source.field]]\nname = 'n'\ntype = 'u64'\n\
                           [[source.index]]\nname = 'n'\nvalue = 'n'\n";

/// The same, beside numbers that do not compress: a million records take 17 MiB or so on the disk.
pub const NOISE: &str = "[[source]]\nname = 'numbers'\n[[source.field]]\nname = 'n'\ntype = 'u64'\n\
                         [[source.field]]\nname = 'a'\ntype = 'u64'\n[[source.field]]\nname = 'b'\ntype = 'u64'\n\
                         [[source.index]]\nname = 'n'\nvalue = 'n'\n";

/// The same, of a source that drops what does not fit.
pub fn dropping() -> String {
    let drops = "name = 'numbers'\non_overload = 'drop_new'";
    NUMBERS.replacen("name = 'numbers'", drops, 1)
}

/// Small blocks: many of them are written in a short test.
pub const SMALL: &str = "[log]\nchunk = '4KiB'\nblock = '64KiB'\nsegment = '1MiB'\n";

/// A daemon in this process.
pub fn daemon(dir: &Path, config: &str) -> Daemon {
    Daemon::start(dir, &Config::parse(config).unwrap(), false).unwrap()
}

/// The same, on a directory of its own. It is stopped when it is dropped, so that no staging is left.
pub struct Here {
    daemon: Option<Daemon>,
    dir: Option<TempDir>,
}

impl Here {
    pub fn start(config: &str) -> Here {
        Here::again(tempfile::tempdir().unwrap(), config)
    }

    /// Goes on in a directory that is there.
    pub fn again(dir: TempDir, config: &str) -> Here {
        let daemon = daemon(dir.path(), config);
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

    pub fn reload(&self, config: &str) -> Result<Vec<String>, DaemonError> {
        self.daemon().reload(&Config::parse(config).unwrap())
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

/// A place for the directory of a daemon in a process of its own, whose configuration stands beside it.
pub struct Place {
    pub root: TempDir,
    pub dir: PathBuf,
}

impl Place {
    pub fn new() -> Place {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("loom");
        Place { root, dir }
    }

    /// Starts `ingestd run` and waits until it listens.
    pub fn start(&self, config: &str) -> There {
        There::start(&self.dir, config).unwrap()
    }
}

/// Ends a daemon in the two ways.
pub fn kill(daemon: There) {
    daemon.kill().unwrap();
}

pub fn stop(daemon: There) {
    daemon.stop().unwrap();
}

/// A client of the daemon on a directory, and its source of numbers.
pub fn connect(dir: &Path) -> (Client, SourceId) {
    connect_as(dir, NUMBERS)
}

pub fn connect_as(dir: &Path, source: &str) -> (Client, SourceId) {
    let client = Client::connect(dir).unwrap();
    let source = client.define_one(source).unwrap();
    (client, source)
}

/// Pushes numbers, and returns the counts of all that the client has pushed.
pub fn push(client: &Client, source: SourceId, numbers: impl IntoIterator<Item = u64>) -> Counts {
    push_rows(client, source, numbers.into_iter().map(|n| [n]))
}

/// The same to a source with noise.
pub fn push_noise(
    client: &Client,
    source: SourceId,
    numbers: impl IntoIterator<Item = u64>,
) -> Counts {
    let mut noise = fastrand::Rng::with_seed(1);
    let rows = numbers
        .into_iter()
        .map(|n| [n, noise.u64(..), noise.u64(..)]);
    push_rows(client, source, rows)
}

fn push_rows<const FIELDS: usize>(
    client: &Client,
    source: SourceId,
    rows: impl Iterator<Item = [u64; FIELDS]>,
) -> Counts {
    let rows: Vec<[u64; FIELDS]> = rows.collect();
    for part in rows.chunks(1000) {
        let batch: Vec<u8> = part
            .iter()
            .flatten()
            .flat_map(|n| n.to_le_bytes())
            .collect();
        let shape = Shape::Fixed {
            record_bytes: 8 * FIELDS as u16,
        };
        client.push_batch(source, shape, &batch).unwrap();
    }
    client.sync().unwrap().counts
}

/// The number of a source in the catalog of a client's daemon.
pub fn id_of(client: &Client, name: &str) -> SourceId {
    let catalog: serde_json::Value = serde_json::from_str(&client.catalog().unwrap()).unwrap();
    let sources = catalog.as_array().unwrap();
    let found = sources.iter().find(|source| source["name"] == name);
    SourceId(found.unwrap()["id"].as_u64().unwrap() as u16)
}

pub fn losses(dir: &Path) -> Vec<Loss> {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    snapshot.losses(&Poll::never()).unwrap()
}

/// The records of the ledger; every number must be known.
pub fn lost(losses: &[Loss]) -> u64 {
    losses.iter().map(|loss| loss.records.unwrap()).sum()
}

/// The numbers in a directory; noise may follow each.
pub fn numbers(dir: &Path) -> Vec<u64> {
    let number = |payload: Vec<u8>| u64::from_le_bytes(*payload.first_chunk().unwrap());
    payloads(dir, "numbers").into_iter().map(number).collect()
}
