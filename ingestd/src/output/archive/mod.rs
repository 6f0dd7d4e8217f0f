//! An archive: the records of a directory as sorted Parquet files, each exactly once, in a folder that other engines read.
//!
//! A pass reads like any query, from the address that the last commit reached up to its snapshot's, source by source, and commits every few million
//! records: files first, under their names, then the manifest that names them. Whatever ends it in between, the next pass starts from the manifest.

mod manifest;
mod place;
mod span;

use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use loom_engine::query::{Directory, Poll, Predicate, Scan, ScanSpec, Snapshot};
use loom_engine::schema::Source;
use loom_engine::{Address, Error, Timestamp};

pub use self::manifest::{ArchivedBelow, archived_below};
use self::manifest::{Gap, Manifest};
use self::span::{Sizes, Span};
use super::columns::ArchivedField;
pub use super::columns::Unsigned;

const LOCK_NAME: &str = "_lock";
const TMP_NAME: &str = "_tmp";

/// An archive that this process alone writes.
pub struct Archive {
    path: PathBuf,
    directory: Arc<Directory>,
    manifest: Manifest,
    unsigned: Unsigned,
    sizes: Sizes,
    _lock: File,
}

/// What a pass wrote.
#[derive(Default)]
pub struct Passed {
    pub records: u64,
    pub files: u64,
    pub bytes: u64,
    /// What it found to be missing, in sentences.
    pub gaps: Vec<String>,
    /// The sources that cannot be archived, in sentences.
    pub refused: Vec<String>,
}

impl Archive {
    /// Opens the archive of a directory, or begins it. What an earlier process left unfinished is removed.
    ///
    /// # Errors
    /// A folder that cannot be written, or is not an archive and not empty; the archive of another directory, one that another process writes; a
    /// missing file. A folder that is refused stays as it is.
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
        manifest.clean_up(path)?;
        fs::remove_dir_all(&tmp)
            .and_then(|()| fs::create_dir(&tmp))
            .with_context(|| format!("cannot empty '{}'", tmp.display()))?;
        Ok(Archive {
            path: path.to_owned(),
            directory: Arc::clone(directory),
            manifest,
            unsigned,
            sizes: Sizes::USUAL,
            _lock: lock,
        })
    }

    /// Archives what arrived before `until` and is not archived yet, of these sources, or of all if none are named.
    ///
    /// # Errors
    /// An unknown source, files that cannot be read or written, [`Error::Interrupted`]. What was committed before stays.
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
            names => names
                .iter()
                .map(|name| snapshot.source(name))
                .collect::<Result<_, _>>()?,
        };
        let mut passed = Passed::default();
        let mut archivable = Vec::new();
        // A source that is new holds retention back with the first commit of any.
        for source in chosen {
            match self.manifest.source_mut(&source.name) {
                Ok(_) => archivable.push(source),
                Err(error) => passed.refused.push(error.to_string()),
            }
        }
        for source in archivable {
            let reached = self.manifest.source_mut(&source.name)?.position;
            if reached.0 > snapshot.position() {
                bail!(
                    "the archive '{}' reaches address {reached} of source '{}', and '{}' ends at {}: give --to another folder if it is an older copy, or start a daemon on it if it lost records in a crash",
                    self.path.display(),
                    source.name,
                    self.directory.path().display(),
                    snapshot.position()
                );
            }
            // Retention may remove records as they are read: then the rest is archived, and the gap is noted.
            while let Err(error) = self.source(&source, end, &mut passed, poll) {
                if !matches!(error.downcast_ref(), Some(Error::Evicted { .. })) {
                    return Err(error);
                }
            }
        }
        Ok(passed)
    }

    fn source(
        &mut self,
        source: &Source,
        end: Address,
        passed: &mut Passed,
        poll: &Poll<'_>,
    ) -> anyhow::Result<()> {
        let position = self.manifest.source_mut(&source.name)?.position;
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
        self.note_gap(source, begin, snapshot.as_ref(), passed)?;
        match snapshot {
            Some(snapshot) => self.spans(source, &snapshot, passed, poll),
            None => self.commit(source, Vec::new(), end, passed),
        }
    }

    /// Notes what retention removed of the source below `begin`.
    fn note_gap(
        &mut self,
        source: &Source,
        begin: Address,
        snapshot: Option<&Snapshot>,
        passed: &mut Passed,
    ) -> anyhow::Result<()> {
        let archived = self.manifest.source_mut(&source.name)?;
        let defined = source.layouts.first().map(|(since, _)| *since);
        let from = archived.position.max(defined.unwrap_or(Address::ZERO));
        let is_over = source.closed_at.is_some_and(|closed| closed <= from);
        if is_over || from >= begin {
            return Ok(());
        }
        let oldest = snapshot.map(Snapshot::oldest_ts).transpose()?.flatten();
        let chunk_bytes = u64::from(self.directory.chunk_bytes());
        let gap = Gap {
            from,
            to: begin,
            bytes: begin.0 - from.0,
            chunks: (begin.0 - from.0).div_ceil(chunk_bytes),
            to_ts_ns: oldest,
        };
        passed.gaps.push(format!(
            "retention removed records before they were archived: source '{}', addresses {from} to {begin}, {} bytes of all sources in {} chunks; archive more often, or keep more with max_bytes and max_age",
            source.name, gap.bytes, gap.chunks
        ));
        archived.gaps.push(gap);
        archived.position = begin;
        Ok(())
    }

    fn spans(
        &mut self,
        source: &Source,
        snapshot: &Snapshot,
        passed: &mut Passed,
        poll: &Poll<'_>,
    ) -> anyhow::Result<()> {
        let archived = self.manifest.source_mut(&source.name)?;
        let spec = ScanSpec {
            source: source.id,
            after: archived.position,
            exact: Predicate::All,
            prune: Predicate::All,
            index_filters: Vec::new(),
        };
        let scan = Scan::new(snapshot, spec)?;
        // The snapshot's, which may have more fields than when the pass began.
        let source = Arc::clone(scan.source());
        let tmp = self.path.join(TMP_NAME);
        let mut span = Span::new(&tmp, &archived.path, &source, self.unsigned, self.sizes);
        let mut reader = scan.reader();
        while let Some(chunk) = scan.next(poll)? {
            let rows = reader.read(chunk)?;
            if span.is_full(&rows) {
                span.end_group()?;
                if span.is_due() {
                    let files = span.move_in(&self.path)?;
                    self.commit(&source, files, rows.base, passed)?;
                }
            }
            span.append(rows);
        }
        span.end_group()?;
        let files = span.move_in(&self.path)?;
        self.commit(&source, files, Address(snapshot.position()), passed)
    }

    fn commit(
        &mut self,
        source: &Source,
        files: Vec<manifest::ArchivedFile>,
        position: Address,
        passed: &mut Passed,
    ) -> anyhow::Result<()> {
        let archived = self.manifest.source_mut(&source.name)?;
        passed.files += files.len() as u64;
        passed.records += files.iter().map(|file| file.records).sum::<u64>();
        passed.bytes += files.iter().map(|file| file.bytes).sum::<u64>();
        archived.files.extend(files);
        archived.fields = source.fields.iter().map(ArchivedField::of).collect();
        archived.position = position;
        self.manifest.commit(&self.path)
    }
}

/// Keeps every other process from writing into the archive, until this one ends.
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
    use loom_engine::ingest::{Writer, WriterOptions};
    use loom_engine::log::LogOptions;
    use loom_engine::schema::{SourceDef, TimeKind};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    use super::*;
    use crate::output::columns::BatchMost;

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
        let log = LogOptions {
            chunk_bytes: 4 << 10,
            block_bytes: 64 << 10,
            segment_bytes: [1 << 20; 3].into(),
            staging: Some(place.path().to_owned()),
            ..LogOptions::default()
        };
        let options = WriterOptions {
            log,
            ..WriterOptions::default()
        };
        let dir = place.path().join("loom");
        let mut writer = Writer::open(&dir, options).unwrap();
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
        archive.sizes = Sizes {
            group: BatchMost {
                rows: 600,
                bytes: 3000,
            },
            span_records: 2000,
        };
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
        // What was committed is whole: every file is there, and nothing is left over.
        let again = Archive::open(&directory, &to, Unsigned::Decimal).unwrap();
        assert_eq!(addresses(&again, 0).concat().len(), 20_000);
    }
}
