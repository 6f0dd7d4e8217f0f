//! A segment of the record log, a file of units, read as the chunks that it was made of.
//!
//! Every chunk comes back byte for byte, with its own checksum. Units are read and decoded as they are needed; the latest unit and chunk are kept.

use std::iter;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::storage::{FileId, StorageFile, read_at, write_at};
use super::unit_cache::{UnitCache, UnitKey};
use super::unit_places::UnitPlaces;
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
    places: Mutex<UnitPlaces>,
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
    /// The segment that begins at `first`.
    pub fn of(
        uuid: &[u8; 16],
        first: Address,
        chunk_bytes: u32,
        segment_bytes: u64,
        file: Arc<dyn StorageFile>,
        places: UnitPlaces,
    ) -> Result<ColumnFile> {
        Ok(ColumnFile {
            id: file.id()?,
            file,
            uuid: *uuid,
            first,
            chunk_bytes,
            segment_bytes,
            places: Mutex::new(places),
            latest: Mutex::default(),
        })
    }

    /// What is wrong with the directory at its end, if something is.
    pub fn directory_damage(&self) -> Option<FormatError> {
        locked(&self.places).directory_damage().cloned()
    }

    /// Writes the directory to `file`, which is the segment opened to write. Where units are missing, it stays damaged.
    pub fn write_directory(&self, file: &dyn StorageFile) -> Result<()> {
        let units = SegmentDirectory::units_of(self.segment_bytes, self.chunk_bytes);
        let starts = locked(&self.places).first_units(units)?;
        if starts.len() != units + 1 {
            return Ok(());
        }
        let end = *at(&starts, units);
        let mut bytes = Vec::new();
        SegmentDirectory::new(starts).encode(&self.uuid, self.first, &mut bytes);
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
        let found = locked(&self.places).unit(nth)?;
        let Some(place) = found else {
            let what = FormatError::Short {
                what: "a unit",
                have: 0,
                need: UNIT_HEADER_BYTES,
            };
            return Err(self.damaged(self.address_of(nth), &what));
        };
        let length = place.end - place.start;
        if length > Unit::bytes_most(self.chunk_bytes) {
            let what = FormatError::Invalid {
                what: "the length of a unit by the places of its segment's units",
                value: length,
            };
            return Err(self.damaged(self.address_of(nth), &what));
        }
        Ok(place)
    }

    /// Reads a unit's bytes, and returns where they stand in the file.
    pub fn read_unit_bytes(&self, nth: usize, bytes: &mut Vec<u8>) -> Result<u64> {
        let place = self.place_of(nth)?;
        let room = memory::resize(bytes, (place.end - place.start) as usize);
        room.map_err(|refused| refused.of(self.path()))?;
        self.read_whole(nth, place.start, 0, bytes)?;
        Ok(place.start)
    }

    /// Fills `bytes` with what stands in a unit, which begins at `start`, from `offset` on.
    fn read_whole(&self, nth: usize, start: u64, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let read = read_at(&*self.file, bytes, start + offset as u64)?;
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
        self.read_whole(nth, place.start, 0, &mut head)?;
        let header = UnitHeader::decode(&head, self.chunk_bytes).map_err(damaged)?;
        let have = head.len();
        if header.head_bytes > have {
            memory::resize(&mut head, header.head_bytes.min(length)).map_err(no_memory)?;
            self.read_whole(nth, place.start, have, at_mut(&mut head, have..))?;
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
        let start = self.place_of(nth)?.start;
        let read = |offset, bytes: &mut [u8]| self.read_whole(nth, start, offset, bytes);
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
        if let Ok(place) = self.place_of(nth) {
            for range in ranges {
                let start = place.start + range.start as u64;
                self.file.will_read(start, range.len() as u64);
            }
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
        for place in units.flat_map(|nth| self.place_of(nth)) {
            self.file.will_read(place.start, place.end - place.start);
        }
    }

    /// Whether something stands in the place of the unit that holds an address, be it damaged.
    pub fn reaches(&self, address: Address) -> Result<bool> {
        let nth = (address.0 - self.first.0) / self.unit_bytes();
        locked(&self.places).reaches(nth as usize)
    }

    /// Whether it was written to its end, and retention has not emptied it.
    pub fn has_last_unit(&self) -> Result<bool> {
        let units = SegmentDirectory::units_of(self.segment_bytes, self.chunk_bytes);
        Ok(locked(&self.places).unit(units - 1)?.is_some())
    }

    pub fn is_removed(&self) -> Result<bool> {
        self.file.is_removed()
    }

    fn damaged(&self, address: Address, error: &FormatError) -> Error {
        error.of(self.file.path().to_owned(), address)
    }
}
