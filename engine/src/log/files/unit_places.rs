//! The places of a segment's units in its file: from the directory at the end of a finished segment, else by walking from unit to unit.
//!
//! A unit contains its length. Behind a damaged head, a search finds the next unit whose head verifies at its address, so damage is confined to its unit. An
//! unfinished segment grows: a missing unit may exist later.

use std::ops::Range;
use std::sync::Arc;

use super::storage::{FileId, StorageFile, read_at};
use crate::error::Result;
use crate::format::{
    FormatError, SegmentDirectory, UNIT_CHUNKS, UNIT_HEADER_BYTES, Unit, UnitHeader,
};
use crate::log::sync::{Mutex, locked};
use crate::memory;
use crate::proven::at;
use crate::types::Address;

/// A search for a head reads this much of a file at a time.
const SEARCHED_BYTES: usize = 64 << 10;
/// A search for the next head ends after this many units, because a file may have any length.
const SEARCHED_UNITS: u64 = 4;
/// The searched bytes may be full of false heads: those are read for at most this multiple of the bytes.
const HEADS_PER_SEARCHED: u64 = 16;

#[derive(Debug)]
pub struct UnitPlaces {
    file: Arc<dyn StorageFile>,
    uuid: [u8; 16],
    first: Address,
    chunk_bytes: u32,
    /// Units of the segment.
    units: usize,
    /// The starts of the found units, and the end of the last.
    starts: Vec<u64>,
    /// The latest search without a result: its start, and the length of the file.
    searched: Option<(u64, u64)>,
    directory: Directory,
}

/// The content behind the last unit.
#[derive(Debug)]
enum Directory {
    /// The directory, and in front of it the zones of all units.
    Read { zones: Range<u64> },
    /// The file, of this length, has no directory that verifies.
    Missing { why: FormatError, file_bytes: u64 },
    /// It is about to be written.
    Unwritten,
}

/// The places of the units in the file that was opened last and has no directory: as a rule the segment under way. All threads of a reader share it, so that
/// each unit is walked once, however often they open the file.
#[derive(Debug, Default)]
pub struct WalkedUnits {
    latest: Mutex<Option<(FileId, Arc<Mutex<UnitPlaces>>)>>,
}

impl WalkedUnits {
    /// Returns the places of a file. `find` walks it if another file was opened meanwhile. A file that is held open keeps its id.
    pub fn of_file(
        &self,
        id: FileId,
        find: impl FnOnce() -> Result<UnitPlaces>,
    ) -> Result<Arc<Mutex<UnitPlaces>>> {
        if let Some((of, places)) = &*locked(&self.latest)
            && *of == id
        {
            return Ok(Arc::clone(places));
        }
        let places = find()?;
        let is_walked = matches!(places.directory, Directory::Missing { .. });
        let places = Arc::new(Mutex::new(places));
        if is_walked {
            *locked(&self.latest) = Some((id, Arc::clone(&places)));
        }
        Ok(places)
    }

    /// Forgets the places, so that the next open walks the file again.
    pub fn forget(&self) {
        *locked(&self.latest) = None;
    }
}

impl UnitPlaces {
    /// Opens the segment that begins at `first` and reads its directory, if there is one.
    pub fn of(
        uuid: &[u8; 16],
        first: Address,
        chunk_bytes: u32,
        segment_bytes: u64,
        file: Arc<dyn StorageFile>,
    ) -> Result<UnitPlaces> {
        let mut places = UnitPlaces {
            file,
            uuid: *uuid,
            first,
            chunk_bytes,
            units: SegmentDirectory::units_of(segment_bytes, chunk_bytes),
            starts: vec![0],
            searched: None,
            directory: Directory::Unwritten,
        };
        places.read_directory()?;
        Ok(places)
    }

    /// Takes known places of a segment's units, all of them present but without a directory.
    pub fn known(
        uuid: &[u8; 16],
        first: Address,
        chunk_bytes: u32,
        file: Arc<dyn StorageFile>,
        starts: Vec<u64>,
    ) -> UnitPlaces {
        UnitPlaces {
            file,
            uuid: *uuid,
            first,
            chunk_bytes,
            units: starts.len() - 1,
            starts,
            searched: None,
            directory: Directory::Unwritten,
        }
    }

    /// Returns the damage of the directory at the end of a finished segment.
    pub fn directory_damage(&self) -> Option<&FormatError> {
        match &self.directory {
            Directory::Missing { why, .. } => Some(why),
            Directory::Read { .. } | Directory::Unwritten => None,
        }
    }

    /// Returns the place of the zones of a finished segment, between its units and its directory; `None` without a directory.
    pub fn zones(&mut self) -> Result<Option<Range<u64>>> {
        // A segment under way gets its directory with its last unit.
        if let Directory::Missing { file_bytes, .. } = self.directory
            && self.file.bytes()? != file_bytes
        {
            self.read_directory()?;
        }
        Ok(match &self.directory {
            Directory::Read { zones } => Some(zones.clone()),
            Directory::Missing { .. } | Directory::Unwritten => None,
        })
    }

    /// Reads the directory at the end of the file, or finds that there is none.
    fn read_directory(&mut self) -> Result<()> {
        let file_bytes = self.file.bytes()?;
        let directory_bytes = SegmentDirectory::bytes_of(self.units) as u64;
        let length = directory_bytes.min(file_bytes);
        let room = memory::zeroed(length as usize);
        let mut bytes = room.map_err(|refused| refused.of(self.file.path()))?;
        let read = read_at(&*self.file, &mut bytes, file_bytes - length)?;
        bytes.truncate(read);
        let (uuid, units) = (&self.uuid, self.units);
        let read = SegmentDirectory::decode(uuid, self.first, units, &bytes, file_bytes);
        self.directory = match read {
            Ok(directory) => {
                self.starts = directory.into_starts();
                let end = *at(&self.starts, self.units);
                Directory::Read {
                    zones: end..file_bytes - directory_bytes,
                }
            }
            Err(why) => Directory::Missing { why, file_bytes },
        };
        Ok(())
    }

    /// Returns the place of a unit; `None` if it is missing.
    pub fn unit(&mut self, nth: usize) -> Result<Option<Range<u64>>> {
        self.walk_to(nth + 1)?;
        let place = self.starts.get(nth..nth + 2);
        Ok(place.map(|ends| *at(ends, 0)..*at(ends, 1)))
    }

    /// Reports whether a unit exists, damaged or not.
    pub fn reaches(&mut self, nth: usize) -> Result<bool> {
        if self.unit(nth)?.is_some() {
            return Ok(true);
        }
        match self.starts.get(nth) {
            Some(start) => Ok(*start < self.file.bytes()?),
            None => Ok(false),
        }
    }

    /// Returns the starts of the first units, as far as they exist, and the end of the last. The file must not grow in the meantime.
    pub fn first_units(&mut self, count: usize) -> Result<Vec<u64>> {
        self.walk_to(count)?;
        let mut starts = self.starts.clone();
        starts.truncate(count + 1);
        let (found, file_bytes) = (starts.len() - 1, self.file.bytes()?);
        let end = *at(&starts, found);
        if found < count && end < file_bytes {
            starts.push(self.damaged_end(end)?);
        } else if let Some(last) = found.checked_sub(1)
            && !self.head_verifies(last, *at(&starts, last))?
        {
            starts.truncate(found);
            starts.push(self.damaged_end(*at(&starts, last))?);
        }
        Ok(starts)
    }

    /// Returns the greatest possible end of the last unit, which begins there with a head that does not verify.
    fn damaged_end(&self, start: u64) -> Result<u64> {
        let most = start + Unit::bytes_most(self.chunk_bytes);
        Ok(self.file.bytes()?.next_multiple_of(8).min(most))
    }

    /// Finds the ends of `count` units, as far as they exist.
    fn walk_to(&mut self, count: usize) -> Result<()> {
        if self.starts.len() > count {
            return Ok(());
        }
        let file_bytes = self.file.bytes()?;
        while self.starts.len() <= count && self.walk(file_bytes)? {}
        Ok(())
    }

    /// Finds the end of one more unit in a file of this length; `false` if the unit is missing.
    fn walk(&mut self, file_bytes: u64) -> Result<bool> {
        let nth = self.starts.len() - 1;
        if nth >= self.units {
            return Ok(false);
        }
        let start = *at(&self.starts, nth);
        let header = self.header(start)?;
        let end = header.map(|header| start + header.unit_bytes as u64);
        if let Some(end) = end.filter(|end| *end <= file_bytes) {
            self.starts.push(end);
            return Ok(true);
        }
        if start >= file_bytes {
            return Ok(false);
        }
        // Either this unit is damaged, or the one before it leads to a wrong place. A head that verifies is at the right place, though its unit may be cut
        // short: blaming the one before would find the same place again and again.
        let wrong = match nth.checked_sub(1) {
            Some(before)
                if !self.head_verifies(nth, start)?
                    && !self.head_verifies(before, *at(&self.starts, before))? =>
            {
                before
            }
            _ => nth,
        };
        let from = *at(&self.starts, wrong) + 8;
        if self.searched == Some((from, file_bytes)) {
            return Ok(false);
        }
        let Some((found, place)) = self.search(wrong + 1, from)? else {
            self.searched = Some((from, file_bytes));
            return Ok(false);
        };
        self.starts.truncate(wrong + 1);
        self.starts.resize(found + 1, place);
        Ok(true)
    }

    fn address_of(&self, nth: usize) -> Address {
        self.first + nth as u64 * UNIT_CHUNKS * u64::from(self.chunk_bytes)
    }

    fn header(&self, start: u64) -> Result<Option<UnitHeader>> {
        let mut header = [0; UNIT_HEADER_BYTES];
        let read = read_at(&*self.file, &mut header, start)?;
        Ok(UnitHeader::decode(at(&header, ..read), self.chunk_bytes).ok())
    }

    /// Reports whether the head of a unit is at a place of the file.
    fn head_verifies(&self, nth: usize, start: u64) -> Result<bool> {
        let Some(header) = self.header(start)? else {
            return Ok(false);
        };
        let room = memory::zeroed(header.head_bytes);
        let mut head = room.map_err(|refused| refused.of(self.file.path()))?;
        read_at(&*self.file, &mut head, start)?;
        let address = self.address_of(nth);
        let unit = Unit::of_head(
            &self.uuid,
            address,
            self.chunk_bytes,
            &head,
            header.unit_bytes,
        );
        Ok(unit.is_ok())
    }

    /// Returns the first unit from number `least` on whose head verifies, and its place, which is at least `from`.
    fn search(&self, least: usize, from: u64) -> Result<Option<(usize, u64)>> {
        let mut piece = vec![0; SEARCHED_BYTES + UNIT_HEADER_BYTES];
        let mut start = from;
        let end = from + SEARCHED_UNITS * Unit::bytes_most(self.chunk_bytes);
        let mut head_bytes_most = HEADS_PER_SEARCHED * (end - from);
        while start < end {
            let read = read_at(&*self.file, &mut piece, start)?;
            let within = read.saturating_sub(UNIT_HEADER_BYTES - 8);
            for offset in (0..within.min(SEARCHED_BYTES)).step_by(8) {
                let header = UnitHeader::decode(at(&piece, offset..read), self.chunk_bytes);
                let Ok(UnitHeader { head_bytes, .. }) = header else {
                    continue;
                };
                let place = start + offset as u64;
                for nth in least..self.units {
                    let Some(rest) = head_bytes_most.checked_sub(head_bytes as u64) else {
                        return Ok(None);
                    };
                    head_bytes_most = rest;
                    if self.head_verifies(nth, place)? {
                        return Ok(Some((nth, place)));
                    }
                }
            }
            if read < piece.len() {
                break;
            }
            start += SEARCHED_BYTES as u64;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::files::meta::DirMeta;
    use crate::log::files::segment::SegmentDir;
    use crate::log::files::unit_appender::UnitAppender;
    use crate::log::storage::OsStorage;
    use crate::types::LogKind;

    const UNITS: u64 = 4;

    #[test]
    fn threads_share_what_was_walked_and_find_the_directory_once_the_segment_is_finished() {
        let dir = tempfile::tempdir().unwrap();
        let meta = DirMeta::new(4096, [UNITS << 16, 1 << 16, 1 << 16].into());
        let storage = Arc::new(OsStorage::default());
        let segments = SegmentDir::new(storage, dir.path(), LogKind::Records, &meta);
        segments.make().unwrap();
        let file = segments.provide(Address(0)).unwrap();
        let mut appender = UnitAppender::find(&segments, Arc::clone(&file), Address(0)).unwrap();
        let walked = WalkedUnits::default();
        let open = || {
            let find = || segments.places_of(Address(0), Arc::clone(&file));
            walked.of_file(file.id().unwrap(), find).unwrap()
        };
        let first = open();
        for unit in 1..UNITS {
            appender.append_empty(Address(unit << 16)).unwrap();
            let places = open();
            assert!(Arc::ptr_eq(&first, &places));
            let mut places = locked(&places);
            assert!(places.unit(unit as usize - 1).unwrap().is_some());
            assert!(places.unit(unit as usize).unwrap().is_none());
            assert_eq!(places.zones().unwrap(), None);
        }
        appender.append_empty(Address(UNITS << 16)).unwrap();
        let zones = locked(&first).zones().unwrap().unwrap();
        let last = locked(&first).unit(UNITS as usize - 1).unwrap().unwrap();
        assert_eq!(zones, last.end..last.end, "raw units have no zones");
        assert!(locked(&first).directory_damage().is_none());
        walked.forget();
        assert!(!Arc::ptr_eq(&first, &open()));
    }
}
