//! A column segment, read as the rows that it was made of.
//!
//! Every chunk comes back byte for byte, with its own checksum. Units are read and decoded as they are needed; the latest unit and chunk are kept.

use std::iter;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::storage::{FileId, StorageFile, read_at, write_at};
use super::unit_cache::{UnitCache, UnitKey};
use crate::error::{Error, Result};
use crate::format::{
    Buffers, FormatError, PartColumns, SegmentDirectory, UNIT_CHUNKS, UNIT_HEADER_BYTES, Unit,
    UnitHeader, UnitPart, Wanted,
};
use crate::log::sync::{Mutex, locked};
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};
use crate::types::{Address, SourceId};

/// Most heads are shorter, also those of some hundred sources.
const HEAD_BYTES: usize = 4096;

#[derive(Debug)]
pub struct ColumnFile {
    file: Arc<dyn StorageFile>,
    id: FileId,
    uuid: [u8; 16],
    first: Address,
    chunk_bytes: u32,
    segment_bytes: u64,
    directory: SegmentDirectory,
    /// Why the directory was not read but found by walking the units, if it was.
    directory_damage: Option<FormatError>,
    latest: Mutex<Latest>,
}

/// The unit that was read last. What stands at an address never changes.
#[derive(Debug, Default)]
pub struct HeldUnit {
    unit: Option<(UnitKey, Unit)>,
    /// Where units come from and go to, beside the file.
    cache: Option<Arc<UnitCache>>,
    /// What the next unit is decoded into.
    buffers: Buffers,
    /// What the next unit may be read into.
    spare: Vec<u8>,
}

impl HeldUnit {
    /// None yet; units are taken from a cache and go there.
    pub fn of(cache: Arc<UnitCache>) -> HeldUnit {
        HeldUnit {
            unit: None,
            cache: Some(cache),
            buffers: Buffers::default(),
            spare: Vec::new(),
        }
    }

    /// Holds none any more.
    fn put_back(&mut self) {
        let Some((key, mut unit)) = self.unit.take() else {
            return;
        };
        self.buffers = unit.take_buffers();
        let gone = match &self.cache {
            Some(cache) => cache.put(key, unit),
            None => Some(unit.shed()),
        };
        if let Some(bytes) = gone {
            self.spare = bytes;
        }
    }

    /// Which chunk of the unit stands at an address, if what is wanted of it is held.
    pub fn find(&self, chunk: Address, chunk_bytes: u32, wanted: UnitWanted<'_>) -> Option<usize> {
        let ((_, first), unit) = self.unit.as_ref()?;
        let nth = chunk.0.checked_sub(first.0)? / u64::from(chunk_bytes);
        let nth = usize::try_from(nth)
            .ok()
            .filter(|nth| *nth < unit.chunks())?;
        unit.has(&wanted.part(nth, unit)).then_some(nth)
    }

    pub fn unit_mut(&mut self) -> Option<&mut Unit> {
        self.unit.as_mut().map(|(_, unit)| unit)
    }

    /// `None`: none was read yet, or the last could not be.
    pub fn unit(&self) -> Option<&Unit> {
        self.unit.as_ref().map(|(_, unit)| unit)
    }
}

impl Drop for HeldUnit {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// What is wanted of a chunk's unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum UnitWanted<'a> {
    Head,
    /// Columns of a source, in so many chunks from the chunk on; `None`: all columns.
    Columns {
        source: SourceId,
        chunks: usize,
        columns: Option<&'a Wanted>,
        addresses: bool,
    },
    All,
}

impl<'a> UnitWanted<'a> {
    /// The part of a unit where the chunk is its `nth`.
    fn part(self, nth: usize, unit: &Unit) -> UnitPart<'a> {
        match self {
            UnitWanted::Head => UnitPart::Head,
            UnitWanted::All => UnitPart::All,
            UnitWanted::Columns {
                source,
                chunks,
                columns,
                addresses,
            } => {
                let end = nth.saturating_add(chunks).min(unit.chunks());
                UnitPart::Columns(PartColumns {
                    source,
                    chunks: nth..end,
                    wanted: columns,
                    addresses,
                })
            }
        }
    }
}

/// What was read last of it as rows.
#[derive(Debug, Default)]
struct Latest {
    unit: HeldUnit,
    chunk: Option<Address>,
    bytes: Vec<u8>,
}

impl ColumnFile {
    /// The rows of the segment that begins at `first`. Its directory is read, or found by walking its units where it is damaged.
    pub fn of(
        uuid: &[u8; 16],
        first: Address,
        chunk_bytes: u32,
        segment_bytes: u64,
        file: Arc<dyn StorageFile>,
    ) -> Result<ColumnFile> {
        let units = SegmentDirectory::units_of(segment_bytes, chunk_bytes);
        let (directory, directory_damage) = match read_directory(&*file, uuid, first, units)? {
            Ok(directory) => (directory, None),
            Err(damage) => (walk(&*file, units, chunk_bytes)?, Some(damage)),
        };
        Ok(ColumnFile {
            id: file.id()?,
            file,
            uuid: *uuid,
            first,
            chunk_bytes,
            segment_bytes,
            directory,
            directory_damage,
            latest: Mutex::default(),
        })
    }

    /// What is wrong with the directory at its end, if something is.
    pub fn directory_damage(&self) -> Option<&FormatError> {
        self.directory_damage.as_ref()
    }

    /// Writes the directory to `file`, which is the segment opened to write. Where units are missing, it stays damaged.
    pub fn write_directory(&self, file: &dyn StorageFile) -> Result<()> {
        let units = SegmentDirectory::units_of(self.segment_bytes, self.chunk_bytes);
        if self.directory.units() != units {
            return Ok(());
        }
        let end = self.directory.unit(units).start;
        let mut bytes = Vec::new();
        self.directory.encode(&self.uuid, self.first, &mut bytes);
        write_at(file, &bytes, end)?;
        file.truncate(end + bytes.len() as u64)?;
        file.sync()
    }

    fn unit_bytes(&self) -> u64 {
        UNIT_CHUNKS * u64::from(self.chunk_bytes)
    }

    fn address_of(&self, nth: usize) -> Address {
        self.first + nth as u64 * self.unit_bytes()
    }

    /// Where a unit stands in the file.
    fn place_of(&self, nth: usize) -> Result<Range<u64>> {
        let place = self.directory.unit(nth);
        let length = place.end - place.start;
        if length > Unit::bytes_most(self.chunk_bytes) {
            let what = FormatError::Invalid {
                what: "the length of a unit in the directory of a column segment",
                value: length,
            };
            return Err(self.damaged(self.address_of(nth), &what));
        }
        Ok(place)
    }

    /// Reads a unit's bytes.
    pub fn read_unit_bytes(&self, nth: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let place = self.place_of(nth)?;
        let room = memory::resize(bytes, (place.end - place.start) as usize);
        room.map_err(|refused| refused.of(self.path()))?;
        self.read_whole(nth, 0, bytes)
    }

    /// Fills `bytes` with what stands in a unit from `offset` on.
    fn read_whole(&self, nth: usize, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let start = self.directory.unit(nth).start + offset as u64;
        let read = read_at(&*self.file, bytes, start)?;
        if read < bytes.len() {
            let what = FormatError::Short {
                what: "a unit",
                have: offset + read,
                need: offset + bytes.len(),
            };
            return Err(self.damaged(self.address_of(nth), &what));
        }
        Ok(())
    }

    /// Reads the head of a unit.
    fn open_unit(&self, nth: usize) -> Result<Unit> {
        let address = self.address_of(nth);
        let damaged = |error| self.damaged(address, &error);
        let place = self.place_of(nth)?;
        let length = (place.end - place.start) as usize;
        let no_memory = |refused: NoMemory| refused.of(self.path());
        let mut head = memory::zeroed(HEAD_BYTES.min(length)).map_err(no_memory)?;
        self.read_whole(nth, 0, &mut head)?;
        let header = UnitHeader::decode(&head, self.chunk_bytes).map_err(damaged)?;
        let have = head.len();
        if header.head_bytes > have {
            memory::resize(&mut head, header.head_bytes.min(length)).map_err(no_memory)?;
            self.read_whole(nth, have, at_mut(&mut head, have..))?;
        }
        let unit = Unit::of_head(&self.uuid, address, self.chunk_bytes, &head, length);
        let unit = unit.map_err(damaged)?;
        let end = (address.0 + self.unit_bytes()).min(self.first.0 + self.segment_bytes);
        let chunks = (end - address.0) / u64::from(self.chunk_bytes);
        if unit.chunks() as u64 != chunks {
            let what = FormatError::Invalid {
                what: "the number of chunks of a unit",
                value: unit.chunks() as u64,
            };
            return Err(self.damaged(address, &what));
        }
        Ok(unit)
    }

    /// Writes the chunk at an address to `out`.
    fn read_chunk(&self, held: &mut HeldUnit, chunk: Address, out: &mut [u8]) -> Result<()> {
        let (unit, nth) = self.hold(chunk, UnitWanted::All, held)?;
        let done = unit.chunk(nth, out);
        done.map_err(|error| self.damaged(chunk, &error))
    }

    /// Has `held` hold what is wanted of the unit that the chunk at an address is of; returns the unit, and which of its chunks that is.
    pub fn hold<'a>(
        &self,
        chunk: Address,
        wanted: UnitWanted<'_>,
        held: &'a mut HeldUnit,
    ) -> Result<(&'a mut Unit, usize)> {
        let in_segment = (chunk.0 - self.first.0) / u64::from(self.chunk_bytes);
        let nth = (in_segment / UNIT_CHUNKS) as usize;
        let key = (self.id, self.address_of(nth));
        let mut unit = match held.unit.take_if(|(of, _)| *of == key) {
            Some((_, unit)) => unit,
            None => {
                held.put_back();
                let kept = held.cache.as_ref().and_then(|cache| cache.take(key));
                let mut unit = kept.map_or_else(|| self.open_unit(nth), Ok)?;
                unit.lend(std::mem::take(&mut held.buffers));
                unit
            }
        };
        let in_unit = (in_segment % UNIT_CHUNKS) as usize;
        let part = wanted.part(in_unit, &unit);
        let read = |offset, bytes: &mut [u8]| self.read_whole(nth, offset, bytes);
        unit.fill(&part, &mut held.spare, read, |refused| {
            refused.of(self.path())
        })?;
        let (_, unit) = held.unit.insert((key, unit));
        Ok((unit, in_unit))
    }

    /// Has fetched what is wanted of a chunk's unit and not kept: first the head, which says where the rest stands.
    pub fn will_read_unit(&self, chunk: Address, wanted: UnitWanted<'_>, cache: &UnitCache) {
        let in_segment = (chunk.0 - self.first.0) / u64::from(self.chunk_bytes);
        let nth = (in_segment / UNIT_CHUNKS) as usize;
        let in_unit = (in_segment % UNIT_CHUNKS) as usize;
        let key = (self.id, self.address_of(nth));
        let missing = |unit: &Unit| unit.missing(&wanted.part(in_unit, unit));
        let ranges = match cache.look(key, missing) {
            Some(missing) => missing,
            None if wanted == UnitWanted::Head => iter::once(0..HEAD_BYTES).collect(),
            // A head that cannot be read is reported when the unit is.
            None => self.open_unit(nth).map_or_else(
                |_| Vec::new(),
                |unit| {
                    let missing = missing(&unit);
                    cache.put_head(key, unit);
                    missing
                },
            ),
        };
        let start = self.directory.unit(nth).start;
        for range in ranges {
            self.file
                .will_read(start + range.start as u64, range.len() as u64);
        }
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Reads all of `buffer` or, at the end of the rows, less; returns how much.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            match self.read_in_chunk(rest, offset + done as u64)? {
                0 => break,
                bytes => done += bytes,
            }
        }
        Ok(done)
    }

    /// Reads to the end of the chunk at `offset` at most; 0 means the end of the rows.
    fn read_in_chunk(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let chunk_bytes = self.chunk_bytes as usize;
        if offset >= self.segment_bytes || buffer.is_empty() {
            return Ok(0);
        }
        let from = (offset % u64::from(self.chunk_bytes)) as usize;
        let chunk = self.first + (offset - from as u64);
        let read = buffer.len().min(chunk_bytes - from);
        let mut latest = locked(&self.latest);
        let latest = &mut *latest;
        if read == chunk_bytes {
            self.read_chunk(&mut latest.unit, chunk, at_mut(buffer, ..chunk_bytes))?;
            return Ok(read);
        }
        if latest.chunk != Some(chunk) {
            latest.chunk = None;
            let room = memory::resize(&mut latest.bytes, chunk_bytes);
            room.map_err(|refused| refused.of(self.path()))?;
            self.read_chunk(&mut latest.unit, chunk, &mut latest.bytes)?;
            latest.chunk = Some(chunk);
        }
        at_mut(buffer, ..read).copy_from_slice(at(&latest.bytes, from..from + read));
        Ok(read)
    }

    /// Says that these bytes of the rows are read soon, so that their units are fetched meanwhile.
    pub fn will_read(&self, offset: u64, bytes: u64) {
        let last = offset
            .saturating_add(bytes)
            .min(self.segment_bytes)
            .saturating_sub(1);
        let units = (offset / self.unit_bytes()) as usize..=(last / self.unit_bytes()) as usize;
        for place in units
            .filter(|nth| *nth < self.directory.units())
            .map(|nth| self.directory.unit(nth))
        {
            self.file.will_read(place.start, place.end - place.start);
        }
    }

    pub fn bytes(&self) -> Result<u64> {
        // Once it is emptied, nothing is left of it.
        Ok(if self.file.bytes()? == 0 {
            0
        } else {
            self.segment_bytes
        })
    }

    pub fn is_removed(&self) -> Result<bool> {
        self.file.is_removed()
    }

    fn damaged(&self, address: Address, error: &FormatError) -> Error {
        error.of(self.file.path().to_owned(), address)
    }
}

/// Reads the directory at the end of a file, or finds that it is damaged.
fn read_directory(
    file: &dyn StorageFile,
    uuid: &[u8; 16],
    first: Address,
    units: usize,
) -> Result<std::result::Result<SegmentDirectory, FormatError>> {
    let file_bytes = file.bytes()?;
    let length = SegmentDirectory::bytes_of(units).map_or(0, |bytes| bytes as u64);
    let length = length.min(file_bytes);
    let room = memory::zeroed(length as usize);
    let mut bytes = room.map_err(|refused| refused.of(file.path()))?;
    let read = read_at(file, &mut bytes, file_bytes - length)?;
    bytes.truncate(read);
    Ok(SegmentDirectory::decode(
        uuid, first, units, &bytes, file_bytes,
    ))
}

/// Finds the units one by one. What cannot be found is empty or ends where the file does, and is damaged when it is read.
fn walk(file: &dyn StorageFile, units: usize, chunk_bytes: u32) -> Result<SegmentDirectory> {
    let file_bytes = file.bytes()?;
    let mut starts = vec![0];
    let mut start = 0;
    while starts.len() <= units && start < file_bytes {
        let mut header = [0; UNIT_HEADER_BYTES];
        let read = read_at(file, &mut header, start)?;
        let next = SegmentDirectory::next(start, at(&header, ..read), chunk_bytes);
        start = next
            .ok()
            .filter(|next| *next <= file_bytes)
            .unwrap_or(file_bytes);
        starts.push(start);
    }
    Ok(SegmentDirectory::new(starts))
}
