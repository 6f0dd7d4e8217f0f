//! `_manifest.jsonl`: the files of an archive, the directory that it is of, and the address of the log that it reaches. The text only grows, and each line has
//! a checksum. The line of a commit follows after its files are durable, so it names nothing that is missing, and files that no line names are left over.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use loom_engine::format::{seal_object, sealed_objects};
use loom_engine::query::Directory;
use loom_engine::schema::Source;
use loom_engine::{Address, Timestamp, proven};
use serde::{Deserialize, Serialize};

use super::position::Position;
use crate::output::columns::{ArchivedField, Unsigned};

const NAME: &str = "_manifest.jsonl";
/// The name in versions that replaced the whole manifest with each commit.
const EARLIER_NAME: &str = "_manifest.json";
const FORMAT: u64 = 2;

/// The sources and files of an archive.
pub(super) struct Manifest {
    path: PathBuf,
    /// The number of its sound lines, and their bytes.
    lines: u64,
    bytes: u64,
    header: Header,
    pub sources: Vec<ArchivedSource>,
    places: HashMap<String, usize>,
    /// The address that all sources reach that are not behind, also those without anything in the archive.
    reached: Address,
    behind: BTreeSet<String>,
}

/// The first line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    format: u64,
    directory: Origin,
    unsigned: Unsigned,
}

/// The directory that is archived.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Origin {
    uuid: String,
    path: PathBuf,
}

/// A later line.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Entry {
    Commit(Commit),
    Reached(Reached),
}

/// The additions of a commit to a source.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Commit {
    source: String,
    /// Its folder.
    path: String,
    position: Address,
    /// All fields, if they changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    fields: Vec<ArchivedField>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<NotedGap>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    files: Vec<ArchivedFile>,
}

/// The end of a pass: all sources reach it, apart from some, or only some do.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reached {
    reached: Address,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    except: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    only: Vec<String>,
}

#[derive(Clone)]
pub(super) struct ArchivedSource {
    pub name: String,
    /// Its folder.
    pub path: String,
    /// The address that its own lines reach.
    position: Address,
    fields: Vec<ArchivedField>,
    pub files: Vec<ArchivedFile>,
}

/// Addresses whose records are not in the archive. `bytes` is their size with the records of all sources; the number of records is unknown.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NotedGap {
    pub from: Address,
    pub to: Address,
    pub bytes: u64,
    pub chunks: u64,
    /// `retention`: it removed them before. `damage`: they do not verify.
    pub reason: String,
    /// The damage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// The oldest record that retention had left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if archive.join(EARLIER_NAME).exists() {
                    bail!(
                        "'{}' is the archive of an earlier version, which this one does not continue; archive into an empty folder, and read the old one as it stands",
                        archive.display()
                    );
                }
                return Ok(None);
            }
            Err(error) => return Err(error).with_context(|| unreadable(&path)),
        };
        let manifest = Manifest::decode(path.clone(), &text);
        manifest.map(Some).with_context(|| {
            format!(
                "{}; restore it from a backup, or archive into an empty folder",
                unreadable(&path)
            )
        })
    }

    fn decode(path: PathBuf, text: &[u8]) -> anyhow::Result<Manifest> {
        let mut objects = (1..).zip(sealed_objects(text));
        let (_, first) = objects.next().context("it has no line")?;
        let first = first.map_err(|what| anyhow::anyhow!("line 1: {what}"))?;
        let format: FormatOnly = serde_json::from_slice(&first).context("line 1")?;
        if format.format != FORMAT {
            bail!(
                "it has format {}, and this program knows format {FORMAT}",
                format.format
            );
        }
        let mut manifest = Manifest {
            path,
            lines: 1,
            bytes: memchr::memrchr(b'\n', text).map_or(0, |end| end as u64 + 1),
            header: serde_json::from_slice(&first).context("line 1")?,
            sources: Vec::new(),
            places: HashMap::new(),
            reached: Address::ZERO,
            behind: BTreeSet::new(),
        };
        for (nth, object) in objects {
            let object = object.map_err(|what| anyhow::anyhow!("line {nth}: {what}"))?;
            let entry = serde_json::from_slice(&object).with_context(|| format!("line {nth}"))?;
            manifest.fold(entry);
            manifest.lines += 1;
        }
        Ok(manifest)
    }

    /// A new manifest, which is written before any file.
    pub fn create(
        archive: &Path,
        directory: &Directory,
        unsigned: Unsigned,
    ) -> anyhow::Result<Manifest> {
        let header = Header {
            format: FORMAT,
            directory: Origin {
                uuid: directory.uuid().to_string(),
                path: fs::canonicalize(directory.path())
                    .unwrap_or_else(|_| directory.path().to_owned()),
            },
            unsigned,
        };
        let path = archive.join(NAME);
        let text = seal_object(0, &serde_json::to_string(&header)?);
        super::place::replace(&path, &text)?;
        Manifest::decode(path, text.as_bytes())
    }

    fn require_same(
        &self,
        archive: &Path,
        directory: &Directory,
        unsigned: Unsigned,
    ) -> anyhow::Result<()> {
        let Header {
            directory: origin,
            unsigned: begun,
            ..
        } = &self.header;
        if origin.uuid != directory.uuid().to_string() {
            bail!(
                "cannot archive '{}' into '{}': that is the archive of '{}' (UUID {}, not {}); give each directory a folder of its own",
                directory.path().display(),
                archive.display(),
                origin.path.display(),
                origin.uuid,
                directory.uuid()
            );
        }
        if *begun != unsigned {
            bail!(
                "the archive '{}' was begun with --unsigned {begun}; go on with that, or begin another archive",
                archive.display(),
            );
        }
        Ok(())
    }

    /// The archive holds each record of a source below this address once, unless it is in a gap.
    pub fn position(&self, name: &str) -> Address {
        let own = self.find_source(name).map(|source| source.position);
        let own = own.unwrap_or(Address::ZERO);
        match self.behind.contains(name) {
            true => own,
            false => own.max(self.reached),
        }
    }

    fn find_source(&self, name: &str) -> Option<&ArchivedSource> {
        let at = *self.places.get(name)?;
        Some(proven::at(&self.sources, at))
    }

    /// The folder of a source.
    ///
    /// # Errors
    /// Another source has it.
    pub fn folder(&self, name: &str) -> anyhow::Result<String> {
        if let Some(known) = self.find_source(name) {
            return Ok(known.path.clone());
        }
        let folder = super::place::source_folder(name);
        // Only a name that ends in a checksum can be another's.
        let mut cut = self.sources.iter().filter(|_| folder.contains('~'));
        match cut.find(|other| other.path == folder) {
            None => Ok(folder),
            Some(other) => bail!(
                "cannot archive source '{name}': source '{}' has its folder '{folder}'; record it under another name",
                other.name
            ),
        }
    }

    /// Adds files that are in their place to a source; durable when this returns.
    pub fn commit(
        &mut self,
        source: &Source,
        position: Address,
        files: Vec<ArchivedFile>,
        gaps: Vec<NotedGap>,
    ) -> anyhow::Result<()> {
        let fields: Vec<_> = source.fields.iter().map(ArchivedField::of).collect();
        let known = self.find_source(&source.name);
        let is_known = known.is_some_and(|known| known.fields == fields);
        self.append(Entry::Commit(Commit {
            source: source.name.clone(),
            path: self.folder(&source.name)?,
            position,
            fields: if is_known { Vec::new() } else { fields },
            gaps,
            files,
        }))
    }

    /// Notes that a pass has archived all sources up to an address, apart from those that failed; or only those that it was asked for.
    pub fn reach(
        &mut self,
        reached: Address,
        only: Vec<String>,
        except: Vec<String>,
    ) -> anyhow::Result<()> {
        self.append(Entry::Reached(Reached {
            reached,
            except,
            only,
        }))
    }

    fn append(&mut self, entry: Entry) -> anyhow::Result<()> {
        let line = seal_object(self.lines, &serde_json::to_string(&entry)?);
        let write = || {
            let mut file = File::options().write(true).open(&self.path)?;
            // An append that failed, or was killed, may have left a part of a line.
            file.set_len(self.bytes)?;
            file.seek(SeekFrom::Start(self.bytes))?;
            file.write_all(line.as_bytes())?;
            file.sync_all()
        };
        write().with_context(|| format!("cannot write '{}'", self.path.display()))?;
        self.lines += 1;
        self.bytes += line.len() as u64;
        self.fold(entry);
        Ok(())
    }

    fn fold(&mut self, entry: Entry) {
        match entry {
            Entry::Commit(commit) => {
                let source = self.source_mut(&commit.source, commit.path);
                source.position = source.position.max(commit.position);
                source.files.extend(commit.files);
                if !commit.fields.is_empty() {
                    source.fields = commit.fields;
                }
            }
            Entry::Reached(Reached {
                reached,
                except,
                only,
            }) if only.is_empty() => {
                // From now on, each of them has its own position.
                for name in &except {
                    let position = self.position(name);
                    if position > Address::ZERO {
                        let folder = super::place::source_folder(name);
                        self.source_mut(name, folder).position = position;
                    }
                }
                self.reached = reached;
                self.behind = except.into_iter().collect();
            }
            Entry::Reached(Reached { reached, only, .. }) => {
                for name in only {
                    let folder = super::place::source_folder(&name);
                    let source = self.source_mut(&name, folder);
                    source.position = source.position.max(reached);
                }
            }
        }
    }

    /// The source's entry, made if there is none.
    fn source_mut(&mut self, name: &str, path: String) -> &mut ArchivedSource {
        let at = match self.places.get(name) {
            Some(at) => *at,
            None => {
                let at = self.sources.len();
                self.places.insert(name.to_owned(), at);
                self.sources.push(ArchivedSource {
                    name: name.to_owned(),
                    path,
                    position: Address::ZERO,
                    fields: Vec::new(),
                    files: Vec::new(),
                });
                at
            }
        };
        proven::at_mut(&mut self.sources, at)
    }

    /// The reach of each source, without the files.
    pub fn positions(&self) -> Position {
        let names = self.sources.iter().map(|source| &source.name);
        let apart = names.chain(&self.behind).filter_map(|name| {
            let position = self.position(name);
            (position != self.reached).then(|| (name.clone(), position))
        });
        Position {
            uuid: self.header.directory.uuid.clone(),
            directory: self.header.directory.path.clone(),
            reached: self.reached,
            apart: apart.collect(),
        }
    }

    /// Fails if a file is missing; removes files that no commit named, whose records are still to be archived from the log, which begins at `begin`.
    /// Returns the files that it keeps aside, because the log no longer has all of their records.
    pub fn clean_up(&self, archive: &Path, begin: Address) -> anyhow::Result<Vec<String>> {
        let files = self.sources.iter().flat_map(|source| &source.files);
        let named: BTreeSet<&str> = files.map(|file| file.path.as_str()).collect();
        for file in &named {
            if !archive.join(file).is_file() {
                bail!(
                    "'{}' names '{file}', which is missing; restore it from a backup: its records count as archived",
                    self.path.display()
                );
            }
        }
        let sources = self.sources.iter();
        let positions: HashMap<&str, Address> = sources
            .map(|source| (source.path.as_str(), self.position(&source.name)))
            .collect();
        let mut kept = Vec::new();
        for folder in super::place::source_folders(archive)? {
            // A source without a line was killed at its first commit.
            let position = positions.get(folder.as_str()).copied();
            let position = position.unwrap_or(Address::ZERO);
            let own = super::place::remove_left_over(archive, &folder, position, begin, &named)?;
            kept.extend(own);
        }
        Ok(kept)
    }
}

/// The common part of all formats.
#[derive(Deserialize)]
struct FormatOnly {
    format: u64,
}

fn unreadable(path: &Path) -> String {
    format!("cannot read '{}'", path.display())
}
