//! `_manifest.json`: what an archive holds, of which directory, and up to which address of its log. Each commit replaces it whole, after the files that it
//! names are durable, so it names nothing that is missing and whatever it does not name is left over.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail};
use loom_engine::query::Directory;
use loom_engine::{Address, Timestamp};
use serde::{Deserialize, Serialize};

use crate::output::columns::{ArchivedField, Unsigned};

const NAME: &str = "_manifest.json";
const FORMAT: u64 = 1;
/// Longer than the clock of any file system takes for a step.
const SETTLED: Duration = Duration::from_secs(3);

/// What an archive holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: u64,
    directory: Origin,
    unsigned: Unsigned,
    pub sources: Vec<ArchivedSource>,
}

/// The directory that is archived.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Origin {
    uuid: String,
    path: PathBuf,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArchivedSource {
    pub name: String,
    /// Its folder.
    pub path: String,
    /// The archive holds what stands below this address and is not in a gap, each record once.
    pub position: Address,
    pub fields: Vec<ArchivedField>,
    pub gaps: Vec<Gap>,
    pub files: Vec<ArchivedFile>,
}

/// Addresses that retention removed before they were archived. What stood there, of all sources together, is `bytes`; how many records, nobody knows.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Gap {
    pub from: Address,
    pub to: Address,
    pub bytes: u64,
    pub chunks: u64,
    /// The oldest record that was left.
    pub to_ts_ns: Option<Timestamp>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ArchivedFile {
    pub path: String,
    pub records: u64,
    pub bytes: u64,
    pub first_ts_ns: Timestamp,
    pub last_ts_ns: Timestamp,
}

impl Manifest {
    /// The manifest of the directory's archive; `None` of a folder where one can begin. Writes nothing.
    pub fn find(
        archive: &Path,
        directory: &Directory,
        unsigned: Unsigned,
    ) -> anyhow::Result<Option<Manifest>> {
        let manifest = Manifest::read(archive)?;
        match &manifest {
            Some(manifest) => manifest.require_same(archive, directory, unsigned)?,
            None => super::place::require_empty(archive, NAME)?,
        }
        Ok(manifest)
    }

    /// The manifest of an archive; `None` where there is none yet.
    fn read(archive: &Path) -> anyhow::Result<Option<Manifest>> {
        let path = archive.join(NAME);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| unreadable(&path)),
        };
        let manifest: Manifest = serde_json::from_slice(&text).with_context(|| {
            format!(
                "{}; restore it from a backup, or archive into an empty folder",
                unreadable(&path)
            )
        })?;
        if manifest.format != FORMAT {
            bail!(
                "'{}' has format {}, and this program knows format {FORMAT}; use the version that wrote it",
                path.display(),
                manifest.format
            );
        }
        Ok(Some(manifest))
    }

    /// A new one, which is written before any file.
    pub fn create(
        archive: &Path,
        directory: &Directory,
        unsigned: Unsigned,
    ) -> anyhow::Result<Manifest> {
        let manifest = Manifest {
            format: FORMAT,
            directory: Origin {
                uuid: directory.uuid().to_string(),
                path: fs::canonicalize(directory.path())
                    .unwrap_or_else(|_| directory.path().to_owned()),
            },
            unsigned,
            sources: Vec::new(),
        };
        manifest.commit(archive)?;
        Ok(manifest)
    }

    fn require_same(
        &self,
        archive: &Path,
        directory: &Directory,
        unsigned: Unsigned,
    ) -> anyhow::Result<()> {
        if self.directory.uuid != directory.uuid().to_string() {
            bail!(
                "cannot archive '{}' into '{}': that is the archive of '{}' (UUID {}, not {}); give each directory a folder of its own",
                directory.path().display(),
                archive.display(),
                self.directory.path.display(),
                self.directory.uuid,
                directory.uuid()
            );
        }
        if self.unsigned != unsigned {
            bail!(
                "the archive '{}' was begun with --unsigned {}; go on with that, or begin another archive",
                archive.display(),
                self.unsigned
            );
        }
        Ok(())
    }

    /// Replaces the file; durable when this returns.
    pub fn commit(&self, archive: &Path) -> anyhow::Result<()> {
        let (path, new) = (archive.join(NAME), archive.join(format!("{NAME}.new")));
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(archive)?.sync_all()
        };
        write().with_context(|| format!("cannot write '{}'", path.display()))
    }

    /// The source's entry, made if there is none.
    pub fn source_mut(&mut self, name: &str) -> anyhow::Result<&mut ArchivedSource> {
        let known = self.sources.iter().position(|source| source.name == name);
        let at = match known {
            Some(at) => at,
            None => {
                self.sources.push(ArchivedSource {
                    name: name.to_owned(),
                    path: super::place::source_folder(name)?,
                    position: Address::ZERO,
                    fields: Vec::new(),
                    gaps: Vec::new(),
                    files: Vec::new(),
                });
                self.sources.len() - 1
            }
        };
        Ok(loom_engine::proven::at_mut(&mut self.sources, at))
    }

    /// Fails where a file is missing; removes files that no commit named, whose records are still to be archived.
    pub fn clean_up(&self, archive: &Path) -> anyhow::Result<()> {
        let named: BTreeSet<&str> = self
            .sources
            .iter()
            .flat_map(|source| source.files.iter().map(|file| file.path.as_str()))
            .collect();
        for file in &named {
            if !archive.join(file).is_file() {
                bail!(
                    "'{}' names '{file}', which is missing; restore it from a backup: its records count as archived",
                    archive.join(NAME).display()
                );
            }
        }
        for source in &self.sources {
            super::place::remove_left_over(archive, source, &named)?;
        }
        Ok(())
    }
}

/// What a manifest said, and of when it is.
pub struct ArchivedBelow {
    modified: SystemTime,
    address: Address,
}

/// Below which address everything that the archive is of is in it, where it is that of the directory with this UUID. The manifest is read where it is
/// another than the one that `known` is of.
///
/// # Errors
/// None that can be read, or another directory's.
pub fn archived_below(
    archive: &Path,
    uuid: &str,
    known: &mut Option<ArchivedBelow>,
) -> anyhow::Result<Address> {
    let path = archive.join(NAME);
    let modified = fs::metadata(&path).and_then(|found| found.modified());
    let modified =
        modified.with_context(|| format!("{}; 'ingestd archive' writes it", unreadable(&path)))?;
    if let Some(known) = known.as_ref().filter(|known| known.modified == modified) {
        return Ok(known.address);
    }
    let manifest = Manifest::read(archive)?.with_context(|| unreadable(&path))?;
    if manifest.directory.uuid != uuid {
        bail!(
            "'{}' is the archive of '{}'",
            archive.display(),
            manifest.directory.path.display()
        );
    }
    let positions = manifest.sources.iter().map(|source| source.position);
    let address = positions.min().unwrap_or(Address::ZERO);
    // A file that was replaced within a moment may have the time of the one before.
    let is_settled = modified.elapsed().is_ok_and(|age| age > SETTLED);
    *known = is_settled.then_some(ArchivedBelow { modified, address });
    Ok(address)
}

fn unreadable(path: &Path) -> String {
    format!("cannot read '{}'", path.display())
}
