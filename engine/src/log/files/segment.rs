//! The segments of one log: their names, and finding, allocating, cutting and removing them.
//!
//! The name of a segment is its first address, a multiple of the segment size, and a generation; the highest generation of an address counts. A segment is
//! allocated, and its directory synced, before an address in it is published.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::meta::DirMeta;
use super::open_segment::OpenSegment;
use super::storage::{
    OpenMode, Storage, StorageFile, is_not_found, read_at, unlink_if_present, write_at,
};
use super::unit_file::UnitFile;
use super::unit_places::{UnitPlaces, WalkedUnits};
use crate::error::{Error, Result};
use crate::format::{FormatError, SegmentDirectory, UNIT_CHUNKS, UNIT_HEADER_BYTES};
use crate::log::options::ADDRESS_LIMIT;
use crate::log::sync::Mutex;
use crate::types::{Address, LogKind};

/// The name of a segment file.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SegmentName {
    pub first: Address,
    /// Distinguishes the files of one first address: the highest counts.
    pub generation: u32,
}

impl SegmentName {
    /// Returns `None` for names that no segment has.
    pub fn parse(name: &str) -> Option<SegmentName> {
        let (first, number) = name.split_once('.')?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let canonical = number == "0" || !number.starts_with('0');
        if first.len() != 20 || !digits(first) || !digits(number) || !canonical {
            return None;
        }
        Some(SegmentName {
            first: Address(first.parse().ok()?),
            generation: number.parse().ok()?,
        })
    }

    pub fn file_name(&self) -> String {
        format!("{:020}.{}", self.first.0, self.generation)
    }
}

/// The segments of a log: the highest generation of each first address.
pub type SegmentList = BTreeMap<Address, u32>;

/// The suffix of a generation until it is complete.
const DRAFT_SUFFIX: &str = ".new";

/// A generation that is being written. It is removed if it is dropped before it is published.
#[derive(Debug)]
pub struct Draft<'a> {
    segments: &'a SegmentDir,
    name: SegmentName,
    /// The generation that it replaces.
    before: Option<SegmentName>,
    file: Arc<dyn StorageFile>,
}

impl Draft<'_> {
    pub fn file(&self) -> &Arc<dyn StorageFile> {
        &self.file
    }

    /// Syncs it and replaces the generation before, which is removed.
    pub fn publish(self) -> Result<()> {
        let storage = &*self.segments.storage;
        self.file.sync()?;
        storage.rename(self.file.path(), &self.segments.path_of(self.name))?;
        storage.sync_dir(&self.segments.path)?;
        match self.before {
            Some(before) => self.segments.remove(before),
            None => Ok(()),
        }
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // After `publish` no file has that name.
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

    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Addresses of a unit of the record log.
    pub fn unit_bytes(&self) -> u64 {
        UNIT_CHUNKS * u64::from(self.chunk_bytes)
    }

    pub fn uuid(&self) -> &[u8; 16] {
        &self.uuid
    }

    /// Creates the folder; the caller syncs the directory above.
    pub fn make(&self) -> Result<()> {
        self.storage.make_dir(&self.path)?;
        self.refuse_link()
    }

    /// Refuses a link in the folder's place, because it could lead out of the directory.
    pub fn refuse_link(&self) -> Result<()> {
        if self.storage.is_link(&self.path)? {
            return Err(Error::Damaged {
                path: self.path.clone(),
                what: "a symbolic link, which Loom does not follow, is in place of the folder: move it away, and put the folder itself there"
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

    /// Lists all segments and ignores files with other names.
    pub fn list(&self) -> Result<SegmentList> {
        Ok(newest(&self.names()?))
    }

    fn names(&self) -> Result<Vec<SegmentName>> {
        self.refuse_link()?;
        // A missing folder, as in a copy without empty folders, has no segments.
        let names = match self.storage.list(&self.path) {
            Err(error) if is_not_found(&error) => Vec::new(),
            names => names?,
        };
        Ok(names
            .iter()
            .filter_map(|name| SegmentName::parse(name))
            .filter(|name| name.first < ADDRESS_LIMIT)
            .filter(|name| name.first.0.is_multiple_of(self.segment_bytes))
            .collect())
    }

    /// Opens the file of a segment.
    fn open(&self, name: SegmentName, mode: OpenMode) -> Result<Arc<dyn StorageFile>> {
        self.storage.open(&self.path_of(name), mode)
    }

    /// Opens a segment to read the bytes of the log. If its units must be found by walking, `walked` keeps their places.
    pub fn open_to_read(&self, name: SegmentName, walked: &WalkedUnits) -> Result<OpenSegment> {
        let file = self.open(name, OpenMode::Read)?;
        Ok(match self.log {
            LogKind::Records => {
                OpenSegment::Units(Arc::new(self.units_of(name.first, file, walked)?))
            }
            LogKind::Chunks | LogKind::Times => OpenSegment::Bytes(file),
        })
    }

    /// Returns the length of a segment's file; `None` if retention removed it in the meantime, or something else has its place.
    pub fn file_bytes(&self, name: SegmentName) -> Result<Option<u64>> {
        let opened = self.open(name, OpenMode::Read);
        match opened.and_then(|file| file.bytes()) {
            Err(error) if is_not_found(&error) || matches!(error, Error::Damaged { .. }) => {
                Ok(None)
            }
            bytes => bytes.map(Some),
        }
    }

    /// Returns the segments of units that end at or below `end` and whose directory is damaged, with the reasons. It opens each of them.
    pub fn damaged_directories(&self, end: Address) -> Result<Vec<(PathBuf, String)>> {
        let mut damaged = Vec::new();
        self.each_damaged_directory(Address::ZERO, end, |name, _, damage| {
            damaged.push((self.path_of(name), damage.to_string()));
            Ok(())
        })?;
        Ok(damaged)
    }

    /// Rewrites the directories of segments that end above `from` and have all units.
    pub fn mend_directories(&self, from: Address, end: Address) -> Result<()> {
        self.each_damaged_directory(from, end, |name, units, _| {
            units.write_end(&*self.open(name, OpenMode::Write)?)
        })
    }

    fn each_damaged_directory(
        &self,
        from: Address,
        end: Address,
        mut each: impl FnMut(SegmentName, &UnitFile, &FormatError) -> Result<()>,
    ) -> Result<()> {
        for (&first, &generation) in self.list()?.range(self.first_of(from)..) {
            if first.0.saturating_add(self.segment_bytes) > end.0 {
                break;
            }
            let name = SegmentName { first, generation };
            let file = self.open(name, OpenMode::Read);
            let units = file.and_then(|file| self.units_of(first, file, &WalkedUnits::default()));
            let units = match units {
                // Retention was faster, or the chunks of the segment are reported one by one.
                Err(error) if is_not_found(&error) || error.is_damage() => continue,
                units => units?,
            };
            if let Some(damage) = units.end_damage()?
                && units.has_last_unit()?
            {
                each(name, &units, &damage)?;
            }
        }
        Ok(())
    }

    /// Opens a file as the segment of units at `first`.
    fn units_of(
        &self,
        first: Address,
        file: Arc<dyn StorageFile>,
        walked: &WalkedUnits,
    ) -> Result<UnitFile> {
        let find = || self.places_of(first, Arc::clone(&file));
        let places = walked.of_file(file.id()?, find)?;
        let (uuid, segment_bytes) = (&self.uuid, self.segment_bytes);
        UnitFile::of(uuid, first, self.chunk_bytes, segment_bytes, file, places)
    }

    /// Returns the places of the units of a segment in its file.
    pub fn places_of(&self, first: Address, file: Arc<dyn StorageFile>) -> Result<UnitPlaces> {
        UnitPlaces::of(
            &self.uuid,
            first,
            self.chunk_bytes,
            self.segment_bytes,
            file,
        )
    }

    /// Returns the zones and the directory that belong behind the units of the complete segment at `first`.
    pub fn end_of(
        &self,
        first: Address,
        file: &Arc<dyn StorageFile>,
        starts: &[u64],
    ) -> Result<Vec<u8>> {
        let (uuid, chunk_bytes) = (&self.uuid, self.chunk_bytes);
        let of_file = || Arc::clone(file);
        let places = UnitPlaces::known(uuid, first, chunk_bytes, of_file(), starts.to_vec());
        let segment_bytes = self.segment_bytes;
        let places = Arc::new(Mutex::new(places));
        let units = UnitFile::of(uuid, first, chunk_bytes, segment_bytes, of_file(), places)?;
        Ok(units.end(starts))
    }

    /// Returns the first address from `address` on with bytes in a segment; in the record log, with a unit in their place.
    pub fn stored_from(&self, address: Address) -> Result<Option<Address>> {
        let (list, first) = (self.list()?, self.first_of(address));
        let is_there = !list.contains_key(&first)
            || self.log != LogKind::Records
            || match self.open_units(first) {
                Ok(units) => units.map_or(Ok(false), |units| units.reaches(address))?,
                // A segment that cannot be opened is damaged, not missing.
                Err(error) => !is_not_found(&error),
            };
        let from = if is_there { first } else { first + 1 };
        let next = list.range(from..).next();
        Ok(next.map(|(first, _)| (*first).max(address)))
    }

    /// Opens the segment of units that begins at `first`, if it exists.
    pub fn open_units(&self, first: Address) -> Result<Option<UnitFile>> {
        let Some(&generation) = self.list()?.get(&first) else {
            return Ok(None);
        };
        let file = self.open(SegmentName { first, generation }, OpenMode::Read)?;
        self.units_of(first, file, &WalkedUnits::default())
            .map(Some)
    }

    /// Opens the segment that begins at `first` for writing, or creates it with a durable name. A segment of an index log is fully allocated; units are
    /// appended.
    pub fn provide(&self, first: Address) -> Result<Arc<dyn StorageFile>> {
        let Some(&generation) = self.list()?.get(&first) else {
            return self.make_segment(first);
        };
        let name = SegmentName { first, generation };
        let file = match self.open(name, OpenMode::Write) {
            // A missing part of an index log is rebuilt from the records. The record log does not continue beside records that may only have been moved
            // elsewhere.
            Err(error @ Error::Damaged { .. }) if self.log != LogKind::Records => {
                tracing::warn!("{error}; a new file is written beside it");
                return self.make_segment(first);
            }
            file => file?,
        };
        if self.log != LogKind::Records && file.bytes()? < self.segment_bytes {
            // The bytes in it, and the length, are synced before anything relies on them.
            file.allocate(self.segment_bytes)?;
        }
        self.storage.sync_dir(&self.path)?;
        Ok(file)
    }

    /// Does the same as `provide`, and reserves the greatest space that the segment can take.
    pub fn provide_reserved(&self, first: Address) -> Result<Arc<dyn StorageFile>> {
        let file = self.provide(first)?;
        if self.log == LogKind::Records {
            let units = SegmentDirectory::units_of(self.segment_bytes, self.chunk_bytes);
            // Units of columns save more bytes than their zones take.
            let raw = self.segment_bytes + (units * UNIT_HEADER_BYTES) as u64;
            file.reserve(raw + SegmentDirectory::bytes_of(units) as u64)?;
        }
        Ok(file)
    }

    /// Gives back the unused space of the segment that holds `end`.
    pub fn give_back(&self, end: Address) -> Result<()> {
        let first = self.first_of(end);
        let Some(&generation) = self.list()?.get(&first) else {
            return Ok(());
        };
        match self.own(SegmentName { first, generation })? {
            Some(file) => file.truncate(file.bytes()?),
            None => Ok(()),
        }
    }

    /// The file gets its name only after it is synced, so a file whose sync failed is never taken for a segment later.
    fn make_segment(&self, first: Address) -> Result<Arc<dyn StorageFile>> {
        let draft = self.draft(first)?;
        let name = draft.name;
        draft.publish()?;
        self.open(name, OpenMode::Write)
    }

    /// Begins a new generation of a segment: fully allocated for an index log, empty for the record log.
    pub fn draft(&self, first: Address) -> Result<Draft<'_>> {
        let before = self.list()?.get(&first).copied();
        let generation = before.map_or(0, |before| before + 1);
        let name = SegmentName { first, generation };
        let path = self
            .path
            .join(format!("{}{DRAFT_SUFFIX}", name.file_name()));
        unlink_if_present(&*self.storage, &path)?;
        let file = self.storage.open(&path, OpenMode::CreateNew)?;
        let draft = Draft {
            segments: self,
            name,
            before: before.map(|generation| SegmentName { first, generation }),
            file,
        };
        if self.log != LogKind::Records {
            draft.file.allocate(self.segment_bytes)?;
        }
        Ok(draft)
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
            let name = SegmentName { first, generation };
            let segment = self.open_to_read(name, &WalkedUnits::default())?;
            if segment.read_at(piece, offset)? != piece.len() {
                return Ok(false);
            }
            address += run as u64;
            rest = later;
        }
        Ok(true)
    }

    /// Writes bytes of an index log by address, syncs them and creates segments as needed. It syncs each piece, because only recovery uses it.
    pub fn write_synced(&self, address: Address, bytes: &[u8]) -> Result<()> {
        let mut address = address;
        let mut rest = bytes;
        while !rest.is_empty() {
            let first = self.first_of(address);
            let offset = address.0 - first.0;
            let run = (self.segment_bytes - offset).min(rest.len() as u64) as usize;
            let (piece, later) = rest.split_at(run);
            let file = self.provide(first)?;
            write_at(&*file, piece, offset)?;
            file.sync()?;
            address += run as u64;
            rest = later;
        }
        Ok(())
    }

    /// Syncs the segments with bytes between the two addresses, because their writer may have died before it did.
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

    /// Removes a segment, unless something else has its place.
    pub fn remove(&self, name: SegmentName) -> Result<()> {
        match unlink_if_present(&*self.storage, &self.path_of(name)) {
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::IsADirectory => Ok(()),
            result => result,
        }
    }

    /// Removes unfinished generations that a crash left.
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

    /// Makes the log end at `end`: durably removes everything above, which for the record log is whole segments.
    pub fn cut(&self, end: Address) -> Result<()> {
        let keep = self.first_of(end);
        for name in self.names()? {
            if name.first >= end {
                self.remove(name)?;
            } else if name.first == keep
                && self.log != LogKind::Records
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

    /// Removes the segments above the one of `end` that were created and never written: they are empty, or begin with zeroes.
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

    /// Removes the segments that lie wholly below `begin`, and replaced generations. Returns the remaining ones.
    pub fn evict(&self, begin: Address) -> Result<SegmentList> {
        let is_evicted = |first: Address| first.0.saturating_add(self.segment_bytes) <= begin.0;
        let names = self.names()?;
        let mut list = newest(&names);
        if names.len() > list.len() {
            // The names of the replacements must be durable too before the old generations go.
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

    /// Gives back the space of a segment even while readers have it open: a reader finds its file short, and then that it was evicted.
    fn empty(&self, name: SegmentName) -> Result<()> {
        match self.own(name) {
            Ok(Some(file)) => file.truncate(0),
            Ok(None) => Ok(()),
            Err(error) if is_not_found(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Opens a segment for writing; `None` if something else has its place, which holds nothing of the log.
    fn own(&self, name: SegmentName) -> Result<Option<Arc<dyn StorageFile>>> {
        match self.open(name, OpenMode::Write) {
            Err(Error::Damaged { .. }) => Ok(None),
            file => file.map(Some),
        }
    }

    /// Reports bytes that are missing from a segment.
    pub fn missing(&self, list: &SegmentList, address: Address, what: &str) -> Error {
        Error::Corrupt {
            path: self.path_at(list, address),
            address,
            what: what.to_owned(),
        }
    }

    /// The segment that holds, or would hold, an address.
    pub fn path_at(&self, list: &SegmentList, address: Address) -> PathBuf {
        let first = self.first_of(address);
        self.path_of_any(first, list.get(&first).copied())
    }

    /// The segment that begins at `first`; without a generation, its first name.
    pub fn path_of_any(&self, first: Address, generation: Option<u32>) -> PathBuf {
        let generation = generation.unwrap_or_default();
        self.path_of(SegmentName { first, generation })
    }
}

/// Keeps the highest generation of each first address.
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
            generation: 12,
        };
        assert_eq!(name.file_name(), "00000000001073741824.12");
        assert_eq!(SegmentName::parse(&name.file_name()), Some(name));
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
                generation,
            };
            let file = segments.open(name, OpenMode::Create).unwrap();
            write_at(&*file, &[byte; 8], 0).unwrap();
        }
        let list = segments.list().unwrap();
        assert_eq!(
            list,
            SegmentList::from([(Address(0), 10), (Address(1 << 16), 0)])
        );
        let mut bytes = [0; 8];
        assert!(segments.read(&list, Address(0), &mut bytes).unwrap());
        assert_eq!(bytes, [3; 8]);
        segments.evict(Address(0)).unwrap();
        assert_eq!(segments.names().unwrap().len(), 2);
    }

    /// The rule holds even if the failed file could not be removed at once.
    // G10
    #[test]
    fn a_file_whose_sync_failed_is_never_taken_for_a_segment() {
        let disk = Disk::new();
        let segments = SegmentDir::new(disk.storage(), &loom(), LogKind::Chunks, &meta());
        disk.storage().make_dir(&loom()).unwrap();
        segments.make().unwrap();
        for kind in [Kind::Sync, Kind::Unlink] {
            disk.rule(Rule::once(Fault::Fails(ENOSPC), move |op| op.kind == kind));
        }
        segments.provide(Address(0)).unwrap_err();
        let file = segments.provide(Address(0)).unwrap();
        write_at(&*file, &[7; 8], 0).unwrap();
        file.sync().unwrap();
        assert_eq!(disk.synced_again(), Vec::<PathBuf>::new());
        assert_eq!(file.bytes().unwrap(), 1 << 16);
    }

    #[test]
    fn bytes_that_were_cut_read_as_absent_and_later_as_zeroes() {
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
        let file = segments.provide(Address(1 << 16)).unwrap();
        assert_eq!(file.bytes().unwrap(), 1 << 16);
        let mut back = [1; 8];
        assert!(segments.read(&list, Address(70_000), &mut back).unwrap());
        assert_eq!(back, [0; 8]);
        let stays = segments.evict(Address(1 << 16)).unwrap();
        assert_eq!(stays.len(), 1);
        assert_eq!(segments.list().unwrap(), stays);
    }
}
