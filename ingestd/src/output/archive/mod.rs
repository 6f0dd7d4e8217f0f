//! An archive: the records of a directory as sorted Parquet files, each exactly once, in a folder that other engines read.
//!
//! A pass reads like any query, from the address that the last commit reached up to its snapshot's, source by source, and commits every few million
//! records: files first, under their names, then a line of the manifest that names them. However it ends, the next pass starts from the manifest.

mod manifest;
mod place;
mod position;
mod span;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use loom_engine::query::{Batch, Directory, Poll, Predicate, ScanSpec};
use loom_engine::schema::Source;
use loom_engine::{Address, Error, Timestamp};

use self::manifest::{Manifest, NotedGap};
pub use self::position::Archived;
use self::span::{Sizes, Span};
pub use super::columns::Unsigned;
use super::copy::{self, Cause, Taker};

const LOCK_NAME: &str = "_lock";
const TMP_NAME: &str = "_tmp";
/// The least interval between two writes of the position within a pass.
const POSITION_EVERY: Duration = Duration::from_secs(1);

/// An archive that this process alone writes.
pub struct Archive {
    path: PathBuf,
    directory: Arc<Directory>,
    manifest: Manifest,
    unsigned: Unsigned,
    sizes: Sizes,
    /// The time of the last write of the position.
    positioned: Instant,
    /// Files that no line of the manifest names and that may be the only copy of their records, until a pass has reported them.
    kept: Vec<String>,
    _lock: File,
}

/// The outcome of a pass.
#[derive(Default)]
pub struct Passed {
    pub records: u64,
    pub files: u64,
    pub bytes: u64,
    /// Lists what is missing.
    pub gaps: Vec<String>,
    /// The error of the first source that failed; the others were archived.
    pub failed: Option<anyhow::Error>,
    /// The pass ended before it had archived every record that is due.
    pub is_interrupted: bool,
}

impl Archive {
    /// Opens the archive of a directory, or begins it. Unfinished files of an earlier process are removed.
    ///
    /// # Errors
    /// A folder that cannot be written, or is not an archive and not empty; the archive of another directory, one that another process writes; a
    /// missing file. A refused folder is not changed.
    pub fn open(
        directory: &Arc<Directory>,
        path: &Path,
        unsigned: Unsigned,
    ) -> anyhow::Result<Archive> {
        place::require_outside(path)?;
        Manifest::find(path, directory, unsigned)?;
        let tmp = path.join(TMP_NAME);
        fs::create_dir_all(&tmp).with_context(|| format!("cannot create '{}'", tmp.display()))?;
        let lock = lock(path)?;
        // Another process may have begun it meanwhile.
        let manifest = match Manifest::find(path, directory, unsigned)? {
            Some(manifest) => manifest,
            None => Manifest::create(path, directory, unsigned)?,
        };
        let kept = manifest.clean_up(path, directory.snapshot()?.begin())?;
        fs::remove_dir_all(&tmp)
            .and_then(|()| fs::create_dir(&tmp))
            .with_context(|| format!("cannot empty '{}'", tmp.display()))?;
        // A killed process may have come further than it had written.
        manifest.positions().write(path)?;
        Ok(Archive {
            path: path.to_owned(),
            directory: Arc::clone(directory),
            manifest,
            unsigned,
            sizes: Sizes::USUAL,
            positioned: Instant::now(),
            kept,
            _lock: lock,
        })
    }

    /// Archives the records that arrived before `until` and are not archived yet, of these sources, or of all if none are named. A source that fails
    /// holds up no other; damage is skipped, and noted as a gap.
    ///
    /// # Errors
    /// An unknown source, a directory or a manifest that cannot be read or written. Earlier commits remain.
    pub fn pass(
        &mut self,
        sources: &[String],
        until: Option<Timestamp>,
        poll: &Poll<'_>,
    ) -> anyhow::Result<Passed> {
        let snapshot = self.directory.snapshot()?;
        let end = match until {
            Some(until) => snapshot.arrived_since(until)?,
            None => Address(snapshot.position()),
        };
        let chosen: Vec<Arc<Source>> = match sources {
            [] => snapshot.catalog().sources().map(Arc::clone).collect(),
            names => {
                let named = names.iter().map(|name| snapshot.source(name));
                named.collect::<Result<_, _>>()?
            }
        };
        let mut passed = Passed {
            gaps: self.kept.drain(..).map(|file| kept_aside(&file)).collect(),
            ..Passed::default()
        };
        let (mut done, mut failed) = (Vec::new(), Vec::new());
        for source in chosen {
            let reached = self.manifest.position(&source.name);
            if reached.0 > snapshot.position() {
                bail!(
                    "the archive '{}' reaches address {reached} of source '{}', and '{}' ends at {}: give --to another folder if it is an older copy, or start a daemon on it if it lost records in a crash",
                    self.path.display(),
                    source.name,
                    self.directory.path().display(),
                    snapshot.position()
                );
            }
            match self.source(&source, end, &mut passed, poll) {
                Ok(()) => done.push(source.name.clone()),
                Err(error) if matches!(error.downcast_ref(), Some(Error::Interrupted)) => {
                    passed.is_interrupted = true;
                    return Ok(passed);
                }
                Err(error) => {
                    failed.push(source.name.clone());
                    let error = error.context(format!("cannot archive source '{}'", source.name));
                    passed.failed.get_or_insert(error);
                }
            }
        }
        let is_all = sources.is_empty();
        if !done.is_empty() {
            let only = if is_all { Vec::new() } else { done };
            let except = if is_all { failed } else { Vec::new() };
            self.manifest.reach(end, only, except)?;
        }
        self.position()?;
        Ok(passed)
    }

    fn source(
        &mut self,
        source: &Source,
        end: Address,
        passed: &mut Passed,
        poll: &Poll<'_>,
    ) -> anyhow::Result<()> {
        let position = self.manifest.position(&source.name);
        if position >= end {
            return Ok(());
        }
        let (snapshot, begin) = match self.directory.snapshot_at(end.0) {
            Ok(snapshot) => {
                let begin = snapshot.begin();
                (Some(snapshot), begin)
            }
            Err(Error::Evicted { .. }) => (None, end),
            Err(error) => return Err(error.into()),
        };
        let tmp = self.path.join(TMP_NAME);
        let folder = self.manifest.folder(&source.name)?;
        let source = match &snapshot {
            // The snapshot's source may have more fields than when the pass began.
            Some(snapshot) => snapshot.source_by_id(source.id)?,
            None => Arc::new(source.clone()),
        };
        let mut spanning = Spanning {
            span: Span::new(&tmp, &folder, &source, self.unsigned, self.sizes),
            archive: self,
            source: &source,
            gaps: Vec::new(),
            passed,
        };
        let defined = source.layouts.first().map(|(since, _)| *since);
        let from = position.max(defined.unwrap_or(Address::ZERO));
        let is_over = source.closed_at.is_some_and(|closed| closed <= from);
        if from < begin && !is_over {
            spanning.miss(copy::Gap {
                from,
                to: begin,
                cause: Cause::Retention,
            });
            let oldest = snapshot.as_ref().map(|snapshot| snapshot.oldest_ts());
            if let (Some(gap), Some(Ok(oldest))) = (spanning.gaps.last_mut(), oldest) {
                gap.to_ts_ns = oldest;
            }
        }
        if let Some(snapshot) = snapshot {
            let spec = ScanSpec {
                source: source.id,
                after: position,
                exact: Predicate::All,
                prune: Predicate::All,
                index_filters: Vec::new(),
            };
            copy::copy(&snapshot, spec, poll, &mut spanning)?;
            spanning.span.end_group()?;
        }
        spanning.commit(end)
    }

    /// Writes the present position.
    fn position(&mut self) -> anyhow::Result<()> {
        self.manifest.positions().write(&self.path)?;
        self.positioned = Instant::now();
        Ok(())
    }
}

fn kept_aside(file: &str) -> String {
    format!(
        "no line of the manifest names '{file}', and the log no longer has all of its records: it is kept in '{}', which readers ignore",
        place::ASIDE
    )
}

/// The records of a source on their way into the archive.
struct Spanning<'a> {
    archive: &'a mut Archive,
    source: &'a Source,
    span: Span<'a>,
    /// Gaps that no commit has noted.
    gaps: Vec<NotedGap>,
    passed: &'a mut Passed,
}

impl Taker for Spanning<'_> {
    fn take(&mut self, rows: Batch<'_>) -> anyhow::Result<()> {
        if self.span.is_full(&rows) {
            self.span.end_group()?;
            if let Some(first) = rows.addresses().first().filter(|_| self.span.is_due()) {
                self.commit(Address(*first))?;
            }
        }
        self.span.append(rows);
        Ok(())
    }

    fn miss(&mut self, gap: copy::Gap) {
        let copy::Gap { from, to, cause } = gap;
        let (reason, what) = match cause {
            Cause::Retention => ("retention", None),
            Cause::Damage(what) => ("damage", Some(what)),
        };
        let neighbour = self.gaps.last_mut();
        let neighbour = neighbour.filter(|last| last.reason == reason && from <= last.to);
        if let Some(last) = neighbour {
            last.to = to.max(last.to);
            last.to_ts_ns = None;
            return;
        }
        self.gaps.push(NotedGap {
            from,
            to,
            bytes: 0,
            chunks: 0,
            reason: reason.to_owned(),
            what,
            to_ts_ns: None,
        });
    }
}

/// Tells of a gap as it was noted.
fn tell(source: &str, gap: &NotedGap) -> String {
    let NotedGap {
        from,
        to,
        bytes,
        chunks,
        ..
    } = gap;
    match &gap.what {
        None => format!(
            "retention removed records before they were archived: source '{source}', addresses {from} to {to}, {bytes} bytes of all sources in {chunks} chunks; archive more often, or keep more with max_bytes and max_age"
        ),
        Some(what) => format!(
            "damaged records are not archived: source '{source}', addresses {from} to {to}: {what}"
        ),
    }
}

impl Spanning<'_> {
    /// Commits the files that are written, and the gaps so far, if there are any.
    fn commit(&mut self, position: Address) -> anyhow::Result<()> {
        let files = self.span.move_in(&self.archive.path)?;
        let mut gaps = std::mem::take(&mut self.gaps);
        if files.is_empty() && gaps.is_empty() {
            return Ok(());
        }
        let passed = &mut self.passed;
        for gap in &mut gaps {
            gap.bytes = gap.to.0 - gap.from.0;
            gap.chunks = gap
                .bytes
                .div_ceil(u64::from(self.archive.directory.chunk_bytes()));
            passed.gaps.push(tell(&self.source.name, gap));
        }
        let count = files.len() as u64;
        let records: u64 = files.iter().map(|file| file.records).sum();
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let archive = &mut self.archive;
        let manifest = &mut archive.manifest;
        manifest.commit(self.source, position, files, gaps)?;
        passed.files += count;
        passed.records += records;
        passed.bytes += bytes;
        if archive.positioned.elapsed() >= POSITION_EVERY {
            archive.position()?;
        }
        Ok(())
    }
}

/// Keeps other processes from writing into the archive until this one ends.
fn lock(archive: &Path) -> anyhow::Result<File> {
    let path = archive.join(LOCK_NAME);
    let file = File::options()
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| format!("cannot write '{}'", path.display()))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => bail!(
            "another process archives into '{}'; stop it, or give --to another folder",
            archive.display()
        ),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot lock '{}'", path.display()))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use loom_engine::schema::{SourceDef, TimeKind};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;
    use crate::output::columns::BatchMost;
    use crate::testing::small_writer;

    const SIZES: Sizes = Sizes {
        group: BatchMost {
            rows: 600,
            bytes: 3000,
        },
        span_records: 2000,
    };

    /// The addresses in the files that the manifest names, file by file.
    fn addresses(archive: &Archive, source: usize) -> Vec<Vec<i64>> {
        let files = archive.manifest.sources[source].files.iter();
        files
            .map(|file| {
                let file = File::open(archive.path.join(&file.path)).unwrap();
                let reader = ParquetRecordBatchReaderBuilder::try_new(file).unwrap();
                let mut found = Vec::new();
                for batch in reader.build().unwrap() {
                    let batch = batch.unwrap();
                    let column = batch.column_by_name("addr").unwrap();
                    found.extend_from_slice(column.as_primitive::<Int64Type>().values());
                }
                found
            })
            .collect()
    }

    #[test]
    fn a_long_pass_commits_again_and_again_and_each_record_is_in_one_file() {
        let place = tempfile::tempdir().unwrap();
        let (dir, mut writer) = small_writer(place.path());
        let mut own = SourceDef::new("own");
        own.time = TimeKind::Own;
        let sources = [SourceDef::new("arrival"), own];
        let ids = sources.map(|source| writer.define_source(&source).unwrap());
        let mut pushed: BTreeMap<usize, Vec<i64>> = BTreeMap::new();
        for n in 0..20_000_i64 {
            // Times go up and down within three hours.
            let time = n * 7919 % 10_800 * 1_000_000_000;
            for (source, id) in ids.into_iter().enumerate() {
                let address = writer.push(id, &time.to_le_bytes()).unwrap();
                pushed
                    .entry(source)
                    .or_default()
                    .push(address.0.cast_signed());
            }
        }
        writer.close().unwrap();
        let directory = Directory::open(&dir).unwrap();
        let to = place.path().join("archive");
        let mut archive = Archive::open(&directory, &to, Unsigned::Decimal).unwrap();
        archive.sizes = SIZES;
        let passed = archive.pass(&[], None, &Poll::never()).unwrap();
        assert_eq!(passed.records, 40_000);
        for (source, expected) in &pushed {
            let files = addresses(&archive, *source);
            assert!(files.len() >= 8, "{} files", files.len());
            let mut all: Vec<i64> = files.concat();
            all.sort_unstable();
            assert_eq!(&all, expected);
        }
        assert_eq!(archive.pass(&[], None, &Poll::never()).unwrap().records, 0);
        drop(archive);
        // A pass that is interrupted has archived what it counts, and the next one archives the rest.
        let halves = place.path().join("halves");
        let mut archive = Archive::open(&directory, &halves, Unsigned::Decimal).unwrap();
        archive.sizes = SIZES;
        let manifest = halves.join("source=arrival");
        let has_files = || manifest.exists();
        let interrupted = archive.pass(&[], None, &Poll::new(&has_files)).unwrap();
        assert!(interrupted.is_interrupted && interrupted.failed.is_none());
        assert!(
            (1..40_000).contains(&interrupted.records),
            "{}",
            interrupted.records
        );
        let rest = archive.pass(&[], None, &Poll::never()).unwrap();
        assert_eq!(interrupted.records + rest.records, 40_000);
        assert!(!rest.is_interrupted);
        // The commits are whole: every file is there, and nothing is left over.
        let again = Archive::open(&directory, &to, Unsigned::Decimal).unwrap();
        assert_eq!(addresses(&again, 0).concat().len(), 20_000);
    }
}
