//! `_position.json`: the reach of each source in an archive. Retention reads it instead of the manifest, which names every file.
//!
//! It is replaced as a whole after the lines of the manifest are durable, so it never promises too much.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use loom_engine::Address;
use loom_engine::format::{seal_object, sealed_objects};
use loom_engine::schema::Source;
use serde::{Deserialize, Serialize};

const NAME: &str = "_position.json";
/// The room for 65,000 sources with long names.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Position {
    pub uuid: String,
    /// The path of the archived directory when the archive was begun.
    pub directory: PathBuf,
    /// The reach of all sources that are not apart.
    pub reached: Address,
    pub apart: BTreeMap<String, Address>,
}

impl Position {
    pub fn write(&self, archive: &Path) -> anyhow::Result<()> {
        let line = seal_object(0, &serde_json::to_string(self)?);
        super::place::replace(&archive.join(NAME), &line)
    }

    /// The position of the archive of the directory with this UUID.
    fn read(archive: &Path, uuid: &str) -> anyhow::Result<Position> {
        let path = archive.join(NAME);
        let read = || {
            let mut text = Vec::new();
            let file = File::open(&path)?;
            file.take(BYTES_MAX + 1).read_to_end(&mut text)?;
            if text.len() as u64 > BYTES_MAX {
                bail!("it has more than {BYTES_MAX} bytes");
            }
            let line = sealed_objects(&text).next().context("it has no line")?;
            let line = line.map_err(anyhow::Error::msg)?;
            Ok(serde_json::from_slice::<Position>(&line)?)
        };
        let position = read().with_context(|| {
            format!(
                "cannot read '{}'; 'ingestd archive' writes it again",
                path.display()
            )
        })?;
        if position.uuid != uuid {
            bail!(
                "'{}' is the archive of '{}'",
                archive.display(),
                position.directory.display()
            );
        }
        Ok(position)
    }
}

/// The reach of an archive, as it was read last.
#[derive(Clone, Default)]
pub struct Archived {
    known: Option<(Identity, Arc<Position>)>,
}

/// Identifies the file that was read: each is replaced by another one.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Identity {
    inode: u64,
    modified_ns: i128,
    bytes: u64,
}

impl Archived {
    /// Reads the position of the archive of the directory with this UUID, unless it is known.
    ///
    /// # Errors
    /// It cannot be read, or belongs to another directory.
    pub fn look(&mut self, archive: &Path, uuid: &str) -> anyhow::Result<()> {
        let path = archive.join(NAME);
        let found = fs::metadata(&path).with_context(|| {
            format!(
                "cannot read '{}'; 'ingestd archive' writes it",
                path.display()
            )
        })?;
        let identity = Identity {
            inode: found.ino(),
            modified_ns: i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec()),
            bytes: found.len(),
        };
        if self.known.as_ref().is_some_and(|known| known.0 == identity) {
            return Ok(());
        }
        self.known = None;
        self.known = Some((identity, Arc::new(Position::read(archive, uuid)?)));
        Ok(())
    }

    /// The archive misses nothing of a source below this address, as far as it is known.
    pub fn below(&self, source: &Source) -> Address {
        let first = source.layouts.first().map(|(since, _)| *since);
        self.reached(source).max(first.unwrap_or(Address::ZERO))
    }

    /// True if the archive has passed over anything of a source.
    pub fn holds(&self, source: &Source) -> bool {
        self.reached(source) > Address::ZERO
    }

    fn reached(&self, source: &Source) -> Address {
        let Some((_, position)) = &self.known else {
            return Address::ZERO;
        };
        let apart = position.apart.get(&source.name);
        apart.copied().unwrap_or(position.reached)
    }
}
