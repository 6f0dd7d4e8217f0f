//! The segments of one log: their names, and finding, allocating, cutting and removing them.
//!
//! A segment is named by its first address, a multiple of the segment size, and a generation; of one address the highest generation
//! counts. A segment is allocated, and its directory synced, before an address in it is published.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::column_file::ColumnFile;
use super::meta::DirMeta;
use super::open_segment::OpenSegment;
use super::storage::{
    OpenMode, Storage, StorageFile, is_not_found, read_at, unlink_if_present, write_at,
};
use crate::error::{Error, Result};
use crate::format::FormatError;
use crate::log::options::ADDRESS_LIMIT;
use crate::types::{Address, LogKind};

/// What a segment file is called.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SegmentName {
    pub first: Address,
    pub generation: Generation,
}

/// Which of the files of one first address: the highest counts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Generation {
    pub number: u32,
    pub form: SegmentForm,
}

/// How a segment file holds the log's bytes.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum SegmentForm {
    /// As they are.
    #[default]
    Rows,
    /// As units of columns; of the record log alone.
    Columns,
}

/// What the name of a column segment ends in.
const COLUMNS_SUFFIX: &str = ".columns";

impl SegmentName {
    /// `None` for names that no segment has.
    pub fn parse(name: &str) -> Option<SegmentName> {
        let (name, form) = match name.strip_suffix(COLUMNS_SUFFIX) {
            Some(name) => (name, SegmentForm::Columns),
            None => (name, SegmentForm::Rows),
        };
        let (first, number) = name.split_once('.')?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = number == "0" || !number.starts_with('0');
        if first.len() != 20 || !digits(first) || !digits(number) || !canonical {
            return None;
        }
        Some(SegmentName {
            first: Address(first.parse().ok()?),
            generation: Generation {
                number: number.parse().ok()?,
                form,
            },
        })
    }

    pub fn file_name(&self) -> String {
        let form = match self.generation.form {
            SegmentForm::Rows => "",
            SegmentForm::Columns => COLUMNS_SUFFIX,
        };
        format!("{:020}.{}{form}", self.first.0, self.generation.number)
    }
}

/// Which segments a log has: the highest generation of each first address.
pub type SegmentList = BTreeMap<Address, Generation>;

/// What a generation is called until all of it is there.
const DRAFT_SUFFIX: &str = ".new";
/// Nobody reads a file of such a name.
const DAMAGED_SUFFIX: &str = "damaged";

/// A generation that is being written. Dropped before it is published, it is gone.
#[derive(Debug)]
pub struct Draft<'a> {
    segments: &'a SegmentDir,
    name: SegmentName,
    /// What it takes the place of.
    before: Option<SegmentName>,
    file: Arc<dyn StorageFile>,
}

impl Draft<'_> {
    pub fn name(&self) -> SegmentName {
        self.name
    }

    pub fn file(&self) -> &dyn StorageFile {
        &*self.file
    }

    /// The same, for those who keep it.
    pub fn shared_file(&self) -> Arc<dyn StorageFile> {
        Arc::clone(&self.file)
    }

    /// Syncs it and lets it take the place of the generation before, which is removed.
    pub fn publish(self) -> Result<()> {
        self.appear()?;
        match self.before {
            Some(before) => self.segments.remove(before),
            None => Ok(()),
        }
    }

    /// The same, but the generation before is kept under a name that no segment has.
    fn publish_beside(self, kept: &Path) -> Result<()> {
        self.appear()?;
        let Some(before) = self.before else {
            return Ok(());
        };
        let storage = &*self.segments.storage;
        storage.rename(&self.segments.path_of(before), kept)?;
        storage.sync_dir(&self.segments.path)
    }

    fn appear(&self) -> Result<()> {
        let storage = &*self.segments.storage;
        self.file.sync()?;
        storage.rename(self.file.path(), &self.segments.path_of(self.name))?;
        storage.sync_dir(&self.segments.path)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // After `publish` there is nothing of that name.
        let _ = unlink_if_present(&*self.segments.storage, self.file.path());
    }
}

/// The folder of one log.
#[derive(Clone, Debug)]
pub struct SegmentDir {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    log: LogKind,
    uuid: [u8; 16],
    chunk_bytes: u32,
    segment_bytes: u64,
}

impl SegmentDir {
    pub fn new(storage: Arc<dyn Storage>, dir: &Path, log: LogKind, meta: &DirMeta) -> SegmentDir {
        SegmentDir {
            storage,
            path: dir.join(log.dir_name()),
            log,
            uuid: meta.uuid,
            chunk_bytes: meta.chunk_bytes,
            segment_bytes: meta.segment_bytes[log],
        }
    }

    pub fn log(&self) -> LogKind {
        self.log
    }

    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }

    /// Makes the folder; the caller syncs the directory above.
    pub fn make(&self) -> Result<()> {
        self.storage.make_dir(&self.path)?;
        self.refuse_link()
    }

    /// What stands in the folder is in the directory: a link could lead out of it.
    pub fn refuse_link(&self) -> Result<()> {
        if self.storage.is_link(&self.path)? {
            return Err(Error::Damaged {
                path: self.path.clone(),
                what: "a symbolic link, which Loom does not follow, stands in place of the folder: move it away, and put the folder itself there"
                    .to_owned(),
            });
        }
        Ok(())
    }

    /// First address of the segment that holds a byte.
    pub fn first_of(&self, address: Address) -> Address {
        address.align_down(self.segment_bytes)
    }

    pub fn path_of(&self, name: SegmentName) -> PathBuf {
        self.path.join(name.file_name())
    }

    /// All segments; files with other names are not looked at.
    pub fn list(&self) -> Result<SegmentList> {
        Ok(newest(&self.names()?))
    }

    fn names(&self) -> Result<Vec<SegmentName>> {
        self.refuse_link()?;
        // Without the folder, as in a copy that left out what is empty, there are no segments.
        let names = match self.storage.list(&self.path) {
            Err(error) if is_not_found(&error) => Vec::new(),
            names => names?,
        };
        Ok(names
            .iter()
            .filter_map(|name| SegmentName::parse(name))
            .filter(|name| name.first < ADDRESS_LIMIT)
            .filter(|name| name.first.0.is_multiple_of(self.segment_bytes))
            .filter(|name| {
                name.generation.form == SegmentForm::Rows || self.log == LogKind::Records
            })
            .collect())
    }

    /// Opens the file of a segment as it stands.
    fn open(&self, name: SegmentName, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        self.storage.open(&self.path_of(name), mode)
    }

    /// Opens a segment to read the bytes of the log.
    pub fn open_to_read(&self, name: SegmentName) -> Result<OpenSegment> {
        let file = self.open(name, OpenMode::Read)?;
        Ok(match name.generation.form {
            SegmentForm::Rows => OpenSegment::Rows(file),
            SegmentForm::Columns => {
                OpenSegment::Columns(Arc::new(self.columns_of(name.first, file)?))
            }
        })
    }

    /// The length of a segment's file. One that retention removes meanwhile has none, nor has something else in a segment's place.
    pub fn file_bytes(&self, name: SegmentName) -> Result<Option<u64>> {
        let opened = self.open(name, OpenMode::Read);
        match opened.and_then(|file| file.bytes()) {
            Err(error) if is_not_found(&error) || matches!(error, Error::Damaged { .. }) => {
                Ok(None)
            }
            bytes => bytes.map(Some),
        }
    }

    /// The column segments whose directory is damaged, and why. It opens each of them.
    pub fn damaged_directories(&self) -> Result<Vec<(PathBuf, String)>> {
        let mut damaged = Vec::new();
        self.each_damaged_directory(|name, _, damage| {
            damaged.push((self.path_of(name), damage.to_string()));
            Ok(())
        })?;
        Ok(damaged)
    }

    /// Writes the directories of column segments again that are damaged and whose units are all there.
    pub fn mend_directories(&self) -> Result<()> {
        self.each_damaged_directory(|name, columns, _| {
            columns.write_directory(&*self.open(name, OpenMode::Write)?)
        })
    }

    fn each_damaged_directory(
        &self,
        mut each: impl FnMut(SegmentName, &ColumnFile, &FormatError) -> Result<()>,
    ) -> Result<()> {
        for (first, generation) in self.list()? {
            if generation.form == SegmentForm::Rows {
                continue;
            }
            let name = SegmentName { first, generation };
            let file = self.open(name, OpenMode::Read);
            let columns = match file.and_then(|file| self.columns_of(first, file)) {
                // Retention was faster, or the chunks of the segment are reported one by one.
                Err(error) if is_not_found(&error) || error.is_damage() => continue,
                columns => columns?,
            };
            let is_given_up = columns.bytes()? == 0;
            if let Some(damage) = columns.directory_damage()
                && !is_given_up
            {
                each(name, &columns, damage)?;
            }
        }
        Ok(())
    }

    /// The column segment that a file is.
    pub fn columns_of(&self, first: Address, file: Arc<dyn StorageFile>) -> Result<ColumnFile> {
        ColumnFile::of(
            &self.uuid,
            first,
            self.chunk_bytes,
            self.segment_bytes,
            file,
        )
    }

    /// Opens the segment that begins at `first` to write, made and allocated in full where it is not, its name durable.
    pub fn provide(&self, first: Address, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let Some(&generation) = self.list()?.get(&first) else {
            return self.make_segment(first, mode);
        };
        let name = SegmentName { first, generation };
        self.refuse_columns(name)?;
        let file = match self.open(name, OpenMode::Write) {
            // What is missing from an index log is rebuilt from the records. The record log does not go on beside records that may only have been put
            // elsewhere.
            Err(error @ Error::Damaged { .. }) if self.log != LogKind::Records => {
                tracing::warn!("{error}; a new file is written beside it");
                return self.make_segment(first, mode);
            }
            file => file?,
        };
        if file.bytes()? < self.segment_bytes {
            // What is written there is synced before anybody relies on it, and its length with it.
            file.allocate(self.segment_bytes)?;
        }
        self.storage.sync_dir(&self.path)?;
        if mode == OpenMode::WriteDirect {
            self.open(name, mode)
        } else {
            Ok(file)
        }
    }

    /// Rewrites the segment in which the log ends as rows, if it is columns: a writer goes on in rows alone. Chunks that are damaged become zeroes, which are
    /// damaged too. Columns may still give some of their records, so a damaged file is kept under another name.
    ///
    /// # Errors
    /// The disk fails, and nothing has changed: what it cannot read now may be sound.
    pub fn rewrite_as_rows(&self, end: Address) -> Result<()> {
        let first = self.first_of(end);
        let columns = self.list()?.get(&first).copied();
        let columns = columns.filter(|it| it.form == SegmentForm::Columns && first < end);
        let Some(generation) = columns else {
            return Ok(());
        };
        let name = SegmentName { first, generation };
        let columns = self.columns_of(first, self.open(name, OpenMode::Read)?)?;
        let draft = self.draft(first)?;
        let mut chunk = vec![0; self.chunk_bytes as usize];
        let mut damaged = 0;
        for offset in (0..self.segment_bytes).step_by(chunk.len()) {
            let read = columns.read_at(&mut chunk, offset);
            if first + offset >= end {
                let is_empty = read.is_ok() && chunk.iter().all(|byte| *byte == 0);
                is_empty.then_some(()).ok_or_else(|| self.too_long(name))?;
                continue;
            }
            match read {
                Ok(_) => write_at(draft.file(), &chunk, offset)?,
                Err(error @ Error::Corrupt { .. }) => {
                    tracing::error!("{error}");
                    damaged += 1;
                }
                Err(error) => return Err(error),
            }
        }
        if damaged == 0 {
            return draft.publish();
        }
        let file = self.path_of(name);
        let kept = file.with_added_extension(DAMAGED_SUFFIX);
        draft.publish_beside(&kept)?;
        tracing::error!(
            "{}: {damaged} chunks are damaged, and the log goes on without them; the file is kept as {}",
            file.display(),
            kept.display()
        );
        Ok(())
    }

    /// Fails for a column segment, in which nothing is written or cut.
    fn refuse_columns(&self, name: SegmentName) -> Result<()> {
        match name.generation.form {
            SegmentForm::Rows => Ok(()),
            SegmentForm::Columns => Err(self.too_long(name)),
        }
    }

    /// The error of a column segment that holds more than the log.
    fn too_long(&self, name: SegmentName) -> Error {
        Error::damaged(
            &self.path_of(name),
            "the record log ends inside this column segment, which goes on; this happens only where files of different times are mixed; restore all files \
             from one backup, or move this one away, which loses its records",
        )
    }

    /// It has its name only once it is synced: a file whose sync failed is never taken for a segment later.
    fn make_segment(&self, first: Address, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        let draft = self.draft(first)?;
        let name = draft.name;
        draft.publish()?;
        self.open(name, mode)
    }

    /// Begins a new generation of a segment, allocated in full.
    pub fn draft(&self, first: Address) -> Result<Draft<'_>> {
        let draft = self.draft_of(first, SegmentForm::Rows)?;
        draft.file.allocate(self.segment_bytes)?;
        Ok(draft)
    }

    /// Begins a new generation of a segment, empty.
    pub fn draft_of(&self, first: Address, form: SegmentForm) -> Result<Draft<'_>> {
        let before = self.list()?.get(&first).copied();
        let generation = Generation {
            number: before.map_or(0, |before| before.number + 1),
            form,
        };
        let name = SegmentName { first, generation };
        let path = self
            .path
            .join(format!("{}{DRAFT_SUFFIX}", name.file_name()));
        unlink_if_present(&*self.storage, &path)?;
        let file = self.storage.open(&path, OpenMode::CreateNew)?;
        Ok(Draft {
            segments: self,
            name,
            before: before.map(|generation| SegmentName { first, generation }),
            file,
        })
    }

    /// Reads bytes by address; `false` if they are not all there.
    pub fn read(&self, list: &SegmentList, address: Address, buffer: &mut [u8]) -> Result<bool> {
        let mut address = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let first = self.first_of(address);
            let Some(&generation) = list.get(&first) else {
                return Ok(false);
            };
            let offset = address.0 - first.0;
            let run = (self.segment_bytes - offset).min(rest.len() as u64) as usize;
            let (piece, later) = rest.split_at_mut(run);
            let segment = self.open_to_read(SegmentName { first, generation })?;
            if segment.read_at(piece, offset)? != piece.len() {
                return Ok(false);
            }
            address += run as u64;
            rest = later;
        }
        Ok(true)
    }

    /// Writes bytes by address through the page cache and syncs them; segments are made as needed. For recovery, which is in no hurry.
    pub fn write_synced(&self, address: Address, bytes: &[u8]) -> Result<()> {
        let mut address = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let first = self.first_of(address);
            let offset = address.0 - first.0;
            let run = (self.segment_bytes - offset).min(rest.len() as u64) as usize;
            let (piece, later) = rest.split_at(run);
            let file = self.provide(first, OpenMode::Write)?;
            write_at(&*file, piece, offset)?;
            file.sync()?;
            address += run as u64;
            rest = later;
        }
        Ok(())
    }

    /// Syncs the segments that hold bytes between the two addresses: who wrote them may have died before it did.
    pub fn sync(&self, from: Address, to: Address) -> Result<()> {
        let list = self.list()?;
        let held = list.range(self.first_of(from.min(to))..to);
        for (first, generation) in held {
            let name = SegmentName {
                first: *first,
                generation: *generation,
            };
            if let Some(file) = self.own(name)? {
                file.sync()?;
            }
        }
        Ok(())
    }

    /// Removes a segment. What is not a file of ours keeps its place.
    pub fn remove(&self, name: SegmentName) -> Result<()> {
        match unlink_if_present(&*self.storage, &self.path_of(name)) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::IsADirectory => Ok(()),
            result => result,
        }
    }

    /// Removes what a crash left of a generation that was being written.
    pub fn remove_drafts(&self) -> Result<()> {
        for name in self.storage.list(&self.path)? {
            if name
                .strip_suffix(DRAFT_SUFFIX)
                .and_then(SegmentName::parse)
                .is_some()
            {
                unlink_if_present(&*self.storage, &self.path.join(name))?;
            }
        }
        Ok(())
    }

    /// Makes the log end at `end`: what lies above is removed, durably.
    pub fn cut(&self, end: Address) -> Result<()> {
        let keep = self.first_of(end);
        let names = self.names()?;
        let ends_in = |name: &&SegmentName| name.first == keep && name.first < end;
        if let Some(last) = names.iter().filter(ends_in).max() {
            self.refuse_columns(*last)?;
        }
        for name in names {
            if name.first >= end {
                self.remove(name)?;
            } else if name.first == keep
                && let Some(file) = self.own(name)?
            {
                if file.bytes()? > end.0 - keep.0 {
                    file.truncate(end.0 - keep.0)?;
                }
                file.sync()?;
            }
        }
        self.storage.sync_dir(&self.path)
    }

    /// Removes the segments above `end`'s that were allocated and never written: those begin with zeroes.
    pub fn remove_unwritten(&self, end: Address, below: Address) -> Result<()> {
        for name in self.names()? {
            let mut first_bytes = [0; 4096];
            if name.first > end
                && name.first < below
                && let Some(file) = self.own(name)?
            {
                read_at(&*file, &mut first_bytes, 0)?;
                if first_bytes.iter().all(|byte| *byte == 0) {
                    unlink_if_present(&*self.storage, file.path())?;
                }
            }
        }
        self.storage.sync_dir(&self.path)
    }

    /// Removes the segments that lie wholly below `begin`, and generations that others replaced. Returns what stays.
    pub fn evict(&self, begin: Address) -> Result<SegmentList> {
        let is_evicted = |first: Address| first.0.saturating_add(self.segment_bytes) <= begin.0;
        let names = self.names()?;
        let mut list = newest(&names);
        if names.len() > list.len() {
            // What replaces others was synced before it had its name; its name must be durable too before they go.
            self.storage.sync_dir(&self.path)?;
        }
        let mut removed = false;
        for name in names {
            let is_newest = list.get(&name.first) == Some(&name.generation);
            let evicted = is_evicted(name.first);
            if evicted {
                self.empty(name)?;
            }
            if evicted || !is_newest {
                self.remove(name)?;
                removed = true;
            }
        }
        if removed {
            self.storage.sync_dir(&self.path)?;
        }
        list.retain(|first, _| !is_evicted(*first));
        Ok(list)
    }

    /// Gives back the space of a segment, whoever has it open: a reader finds its file short, and then that it was evicted.
    fn empty(&self, name: SegmentName) -> Result<()> {
        match self.own(name) {
            Ok(Some(file)) => file.truncate(0),
            Ok(None) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens a segment to write; `None` where what stands in its place is not a file of ours, and so holds nothing of the log.
    fn own(&self, name: SegmentName) -> Result<Option<Arc<dyn StorageFile>>> {
        match self.open(name, OpenMode::Write) {
            Err(Error::Damaged { .. }) => Ok(None),
            file => file.map(Some),
        }
    }

    /// The error for bytes that a segment should hold and does not.
    pub fn missing(&self, list: &SegmentList, address: Address, what: &str) -> Error {
        Error::Corrupt {
            path: self.path_at(list, address),
            address,
            what: what.to_owned(),
        }
    }

    /// The segment that holds an address, or would.
    pub fn path_at(&self, list: &SegmentList, address: Address) -> PathBuf {
        let first = self.first_of(address);
        self.path_of_any(first, list.get(&first).copied())
    }

    /// The segment that begins at `first`; without a generation the name that it had first, or of the record log all that it could have.
    pub fn path_of_any(&self, first: Address, generation: Option<Generation>) -> PathBuf {
        if generation.is_none() && self.log == LogKind::Records {
            return self.path.join(format!("{:020}.*", first.0));
        }
        let generation = generation.unwrap_or_default();
        self.path_of(SegmentName { first, generation })
    }
}

/// Of each first address the highest generation.
fn newest(names: &[SegmentName]) -> SegmentList {
    let mut list = SegmentList::new();
    for name in names {
        let generation = list.entry(name.first).or_insert(name.generation);
        *generation = name.generation.max(*generation);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::storage::OsStorage;
    use crate::log::tests::simulated::{Disk, ENOSPC, Fault, Kind, Rule, loom};
    use crate::types::PerLog;

    fn rows(number: u32) -> Generation {
        Generation {
            number,
            form: SegmentForm::Rows,
        }
    }

    fn meta() -> DirMeta {
        DirMeta::new(1 << 12, PerLog::new(|_| 1 << 16))
    }

    fn segments(dir: &Path) -> SegmentDir {
        let storage = Arc::new(OsStorage::default());
        let segments = SegmentDir::new(storage, dir, LogKind::Chunks, &meta());
        segments.make().unwrap();
        segments
    }

    #[test]
    fn names_round_trip_and_others_are_no_segments() {
        let name = SegmentName {
            first: Address(1 << 30),
            generation: rows(12),
        };
        assert_eq!(name.file_name(), "00000000001073741824.12");
        assert_eq!(SegmentName::parse(&name.file_name()), Some(name));
        let columns = Generation {
            form: SegmentForm::Columns,
            ..name.generation
        };
        let name = SegmentName {
            generation: columns,
            ..name
        };
        assert_eq!(name.file_name(), "00000000001073741824.12.columns");
        assert_eq!(SegmentName::parse(&name.file_name()), Some(name));
        assert!(rows(12) < columns && columns < rows(13));
        for other in [
            "",
            "1.0",
            "00000000001073741824",
            "00000000001073741824.",
            "00000000001073741824.01",
            "99999999999999999999.0",
            "0000000000107374182x.0",
            "00000000001073741824.0.0",
            "00000000001073741824.columns",
            "00000000001073741824.0.columns.columns",
        ] {
            assert_eq!(SegmentName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_highest_generation_wins() {
        let dir = tempfile::tempdir().unwrap();
        let segments = segments(dir.path());
        for (first, generation, byte) in [
            (0, 0, 1),
            (0, 10, 3),
            (0, 9, 2),
            (1 << 16, 0, 4),
            (77, 0, 5),
        ] {
            let name = SegmentName {
                first: Address(first),
                generation: rows(generation),
            };
            let file = segments.open(name, OpenMode::Create).unwrap();
            write_at(&*file, &[byte; 8], 0).unwrap();
        }
        let list = segments.list().unwrap();
        assert_eq!(
            list,
            SegmentList::from([(Address(0), rows(10)), (Address(1 << 16), rows(0))])
        );
        let mut bytes = [0; 8];
        assert!(segments.read(&list, Address(0), &mut bytes).unwrap());
        assert_eq!(bytes, [3; 8]);
        segments.evict(Address(0)).unwrap();
        assert_eq!(segments.names().unwrap().len(), 2);
    }

    /// Not even where what failed could not be removed at once.
    // G10
    #[test]
    fn a_file_whose_sync_failed_is_never_taken_for_a_segment() {
        let disk = Disk::new();
        let segments = SegmentDir::new(disk.storage(), &loom(), LogKind::Records, &meta());
        disk.storage().make_dir(&loom()).unwrap();
        segments.make().unwrap();
        for kind in [Kind::Sync, Kind::Unlink] {
            disk.rule(Rule::once(Fault::Fails(ENOSPC), move |op| op.kind == kind));
        }
        segments.provide(Address(0), OpenMode::Write).unwrap_err();
        let file = segments.provide(Address(0), OpenMode::Write).unwrap();
        write_at(&*file, &[7; 8], 0).unwrap();
        file.sync().unwrap();
        assert_eq!(disk.synced_again(), Vec::<PathBuf>::new());
        assert_eq!(file.bytes().unwrap(), 1 << 16);
    }

    /// Its files may be of different times; nothing of the column segment is changed.
    #[test]
    fn a_record_log_that_ends_inside_a_column_segment_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let records = SegmentDir::new(
            Arc::new(OsStorage::default()),
            dir.path(),
            LogKind::Records,
            &meta(),
        );
        records.make().unwrap();
        let path = dir.path().join("records/00000000000000065536.1.columns");
        std::fs::write(&path, [7; 5000]).unwrap();
        let first = Address(1 << 16);
        for refused in [
            records.cut(first + 8).unwrap_err(),
            records.provide(first, OpenMode::Write).unwrap_err(),
            records.write_synced(first + 4096, &[1; 8]).unwrap_err(),
            records.rewrite_as_rows(first + 4096).unwrap_err(),
        ] {
            let message = refused.to_string();
            assert!(
                message.contains("65536.1.columns") && message.contains("backup"),
                "{message}"
            );
        }
        assert_eq!(std::fs::read(&path).unwrap(), [7; 5000]);
        records.cut(first).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn files_named_as_column_segments_are_nothing_in_an_index_log() {
        let dir = tempfile::tempdir().unwrap();
        let segments = segments(dir.path());
        let path = dir.path().join("chunks/00000000000000000000.7.columns");
        std::fs::write(path, b"x").unwrap();
        assert!(segments.list().unwrap().is_empty());
    }

    #[test]
    fn what_is_cut_reads_as_absent_and_later_as_zeroes() {
        let dir = tempfile::tempdir().unwrap();
        let segments = segments(dir.path());
        let bytes: Vec<u8> = (0..200_000u32).map(|i| i as u8 | 1).collect();
        segments.write_synced(Address(0), &bytes).unwrap();
        let mut back = vec![0; bytes.len()];
        assert!(
            segments
                .read(&segments.list().unwrap(), Address(0), &mut back)
                .unwrap()
        );
        assert_eq!(back, bytes);
        segments.cut(Address(70_000)).unwrap();
        let list = segments.list().unwrap();
        assert_eq!(list.len(), 2);
        assert!(!segments.read(&list, Address(69_999), &mut [0; 2]).unwrap());
        let file = segments.provide(Address(1 << 16), OpenMode::Write).unwrap();
        assert_eq!(file.bytes().unwrap(), 1 << 16);
        let mut back = [1; 8];
        assert!(segments.read(&list, Address(70_000), &mut back).unwrap());
        assert_eq!(back, [0; 8]);
        let stays = segments.evict(Address(1 << 16)).unwrap();
        assert_eq!(stays.len(), 1);
        assert_eq!(segments.list().unwrap(), stays);
    }
}
