//! A segment of the record log: a file of units, read as the chunks that they encode.
//!
//! Every chunk comes back byte for byte, with its own checksum. Units are read and decoded on demand; the latest unit and chunk are kept.

use std::cell::Cell;
use std::iter;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::storage::{FileId, StorageFile, read_at, write_at};
use super::unit_cache::{UnitCache, UnitKey};
use super::unit_places::UnitPlaces;
use super::unit_prefetch::UnitPrefetch;
use crate::error::{Error, Result};
use crate::format::{
    Buffers, FormatError, PartColumns, SegmentDirectory, SegmentZones, SourceZones, Template,
    UNIT_CHUNKS, UNIT_HEADER_BYTES, Unit, UnitHeader, UnitPart, Wanted, Zone, ZonesBuilder,
};
use crate::log::sync::{Mutex, locked};
use crate::memory::{self, NoMemory};
use crate::proven::{at, at_mut};
use crate::types::{Address, SourceId};

/// Most heads are shorter, also those of some hundred sources.
const HEAD_BYTES: usize = 4096;
/// A segment of more units has no zones at its end, because they would be too long.
const ZONES_UNITS_MOST: usize = 4096;

/// A disk reads a gap of this length sooner than it begins another read.
const FETCHED_GAP_BYTES: usize = 16 << 10;
/// Units that have no more bytes on average are fetched whole: their parts in one column are closer together than a disk's latency is long.
const SHORT_UNIT_BYTES: u64 = 128 << 10;

#[derive(Debug)]
pub struct UnitFile {
    file: Arc<dyn StorageFile>,
    id: FileId,
    uuid: [u8; 16],
    first: Address,
    chunk_bytes: u32,
    segment_bytes: u64,
    /// Threads that open the file share them.
    places: Arc<Mutex<UnitPlaces>>,
    latest: Mutex<Latest>,
}

/// The unit that was read last. The bytes at an address never change.
#[derive(Debug, Default)]
pub struct HeldUnit {
    unit: Option<(UnitKey, Unit)>,
    /// The cache that units come from and go to, before the file.
    cache: Option<Arc<UnitCache>>,
    /// The buffers of the next unit.
    buffers: Buffers,
    /// A buffer for the bytes of the next unit.
    spare: Vec<u8>,
    /// The ways through the heads, and through the units of which more was read.
    of_heads: UnitPrefetch,
    of_units: UnitPrefetch,
}

impl HeldUnit {
    /// Holds no unit yet; units come from a cache and return there.
    pub fn of(cache: Arc<UnitCache>) -> HeldUnit {
        let mut held = HeldUnit::default();
        held.cache = Some(cache);
        held
    }

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

    /// Returns the number of the chunk at an address in the unit, if the wanted part is held.
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

    /// `None` before the first read, and after a read that failed.
    pub fn unit(&self) -> Option<&Unit> {
        self.unit.as_ref().map(|(_, unit)| unit)
    }
}

impl Drop for HeldUnit {
    fn drop(&mut self) {
        self.put_back();
    }
}

/// The wanted part of a chunk's unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum UnitWanted<'a> {
    Head,
    /// Columns of a source, in `chunks` chunks from the chunk on; `None`: all columns.
    Columns {
        source: SourceId,
        chunks: usize,
        columns: Option<&'a Wanted>,
        addresses: bool,
    },
    All,
}

impl<'a> UnitWanted<'a> {
    /// The same part of all chunks of a unit.
    fn in_whole_units(self) -> UnitWanted<'a> {
        match self {
            UnitWanted::Columns {
                source,
                columns,
                addresses,
                ..
            } => UnitWanted::Columns {
                source,
                chunks: UNIT_CHUNKS as usize,
                columns,
                addresses,
            },
            wanted => wanted,
        }
    }

    /// Returns the part of a unit in which the chunk has number `nth`.
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

/// The unit and the chunk that `read_at` read last.
#[derive(Debug, Default)]
struct Latest {
    unit: HeldUnit,
    chunk: Option<Address>,
    bytes: Vec<u8>,
}

impl UnitFile {
    /// Opens the segment that begins at `first`.
    pub fn of(
        uuid: &[u8; 16],
        first: Address,
        chunk_bytes: u32,
        segment_bytes: u64,
        file: Arc<dyn StorageFile>,
        places: Arc<Mutex<UnitPlaces>>,
    ) -> Result<UnitFile> {
        Ok(UnitFile {
            id: file.id()?,
            file,
            uuid: *uuid,
            first,
            chunk_bytes,
            segment_bytes,
            places,
            latest: Mutex::default(),
        })
    }

    /// Returns the damage of the segment's end, which holds the zones and the directory.
    pub fn end_damage(&self) -> Result<Option<FormatError>> {
        if let Some(damage) = locked(&self.places).directory_damage() {
            return Ok(Some(damage.clone()));
        }
        Ok(self.read_zones()?.err())
    }

    fn read_zones(&self) -> Result<std::result::Result<Option<SegmentZones>, FormatError>> {
        let units = SegmentDirectory::units_of(self.segment_bytes, self.chunk_bytes);
        let Some(place) = locked(&self.places).zones()? else {
            return Ok(Ok(None));
        };
        let length = (place.end - place.start).min(SegmentZones::bytes_most());
        let room = memory::zeroed(length as usize);
        let mut bytes = room.map_err(|refused| refused.of(self.path()))?;
        let read = read_at(&*self.file, &mut bytes, place.start)?;
        bytes.truncate(read);
        Ok(SegmentZones::decode(&self.uuid, self.first, units, bytes))
    }

    /// Returns the zones of the rows of a template in each unit, from the end of a finished segment; `None`: it has none.
    pub fn zones(&self, template: &Template) -> Result<Option<SourceZones>> {
        let of_template = |zones: Option<SegmentZones>| {
            let zones = zones.map(|zones| zones.of_source(template));
            zones.transpose()
        };
        let zones = self.read_zones()?.and_then(of_template);
        zones.map_err(|error| self.damaged(self.first, &error))
    }

    /// Reports whether the unit of a chunk may hold wanted rows of a template. `may` decides by the zones in its head.
    pub fn may_have(
        &self,
        chunk: Address,
        template: &Template,
        mut may: impl FnMut(&[Zone]) -> bool,
        cache: &UnitCache,
    ) -> Result<bool> {
        let nth = (chunk.0 - self.first.0) / self.unit_bytes();
        self.look_at_head(nth as usize, cache, |unit| {
            unit.may_have(0..unit.chunks(), template, &mut may)
        })
    }

    /// Calls `look` with the head of a unit, from the cache or the file, and keeps the head.
    fn look_at_head<T>(
        &self,
        nth: usize,
        cache: &UnitCache,
        mut look: impl FnMut(&Unit) -> T,
    ) -> Result<T> {
        let key = (self.id, self.address_of(nth));
        if let Some(found) = cache.look(key, &mut look) {
            return Ok(found);
        }
        let unit = self.open_unit(nth, &Cell::new(false))?;
        let found = look(&unit);
        cache.put_head(key, unit);
        Ok(found)
    }

    /// Builds the end of a complete segment whose units begin at `starts`: the zones of all heads that verify, and the directory.
    pub fn end(&self, starts: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        if starts.len() <= ZONES_UNITS_MOST {
            let mut zones = ZonesBuilder::default();
            for nth in 0..starts.len() - 1 {
                zones.add(self.open_unit(nth, &Cell::new(false)).ok().as_ref());
            }
            zones.encode(&self.uuid, self.first, &mut bytes);
        }
        SegmentDirectory::new(starts.to_vec()).encode(&self.uuid, self.first, &mut bytes);
        bytes
    }

    /// Writes the end to `file`, which is the segment opened for writing. If units are missing, the end stays damaged.
    pub fn write_end(&self, file: &dyn StorageFile) -> Result<()> {
        let units = SegmentDirectory::units_of(self.segment_bytes, self.chunk_bytes);
        let starts = locked(&self.places).first_units(units)?;
        if starts.len() != units + 1 {
            return Ok(());
        }
        let end = *at(&starts, units);
        let bytes = self.end(&starts);
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

    /// Reads a unit's bytes, and returns their place in the file.
    pub fn read_unit_bytes(&self, nth: usize, bytes: &mut Vec<u8>) -> Result<u64> {
        let place = self.place_of(nth)?;
        let room = memory::resize(bytes, (place.end - place.start) as usize);
        room.map_err(|refused| refused.of(self.path()))?;
        self.read_whole(nth, place.start, 0, bytes, &Cell::new(false))?;
        Ok(place.start)
    }

    /// Fills `bytes` from `offset` of a unit, which begins at `start`. `waits` becomes true if not all of them were cached.
    fn read_whole(
        &self,
        nth: usize,
        start: u64,
        offset: usize,
        bytes: &mut [u8],
        waits: &Cell<bool>,
    ) -> Result<()> {
        let from = start + offset as u64;
        let mut read = self.file.pread_cached(bytes, from)?.unwrap_or(0);
        if read < bytes.len() {
            waits.set(true);
            read += read_at(&*self.file, at_mut(bytes, read..), from + read as u64)?;
        }
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
    fn open_unit(&self, nth: usize, waits: &Cell<bool>) -> Result<Unit> {
        let address = self.address_of(nth);
        let damaged = |error| self.damaged(address, &error);
        let place = self.place_of(nth)?;
        let length = (place.end - place.start) as usize;
        let no_memory = |refused: NoMemory| refused.of(self.path());
        let mut head = memory::zeroed(HEAD_BYTES.min(length)).map_err(no_memory)?;
        self.read_whole(nth, place.start, 0, &mut head, waits)?;
        let header = UnitHeader::decode(&head, self.chunk_bytes).map_err(damaged)?;
        let have = head.len();
        if header.head_bytes > have {
            memory::resize(&mut head, header.head_bytes.min(length)).map_err(no_memory)?;
            self.read_whole(nth, place.start, have, at_mut(&mut head, have..), waits)?;
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

    /// Reads the wanted part of the unit with the chunk at an address into `held`. Returns the unit, and the number of the chunk in it.
    pub fn hold<'a>(
        &self,
        chunk: Address,
        wanted: UnitWanted<'_>,
        held: &'a mut HeldUnit,
    ) -> Result<(&'a mut Unit, usize)> {
        let in_segment = (chunk.0 - self.first.0) / u64::from(self.chunk_bytes);
        let nth = (in_segment / UNIT_CHUNKS) as usize;
        let key = (self.id, self.address_of(nth));
        let waits = Cell::new(false);
        let mut unit = match held.unit.take_if(|(of, _)| *of == key) {
            Some((_, unit)) => unit,
            None => {
                held.put_back();
                let kept = held.cache.as_ref().and_then(|cache| cache.take(key));
                let mut unit = kept.map_or_else(|| self.open_unit(nth, &waits), Ok)?;
                unit.lend(std::mem::take(&mut held.buffers));
                unit
            }
        };
        let in_unit = (in_segment % UNIT_CHUNKS) as usize;
        let part = wanted.part(in_unit, &unit);
        let start = self.place_of(nth)?.start;
        if waits.get() {
            self.will_read_ranges(start, &unit.missing(&part));
        }
        let read = |offset, bytes: &mut [u8]| self.read_whole(nth, start, offset, bytes, &waits);
        unit.fill(&part, &mut held.spare, read, |refused| {
            refused.of(self.path())
        })?;
        if let Some(cache) = &held.cache {
            let prefetch = match wanted {
                UnitWanted::Head => &mut held.of_heads,
                _ => &mut held.of_units,
            };
            let ahead = prefetch.after(self.id, nth, waits.get());
            self.will_read_units(ahead, wanted, cache);
        }
        let (_, unit) = held.unit.insert((key, unit));
        Ok((unit, in_unit))
    }

    /// Prefetches the wanted part of some units, as far as they exist: short units whole, of others first all heads, which give the places of the rest.
    fn will_read_units(&self, units: Range<usize>, wanted: UnitWanted<'_>, cache: &UnitCache) {
        let count = SegmentDirectory::units_of(self.segment_bytes, self.chunk_bytes);
        let units = units.start..units.end.min(count);
        let Some(last) = units.clone().last() else {
            return;
        };
        let heads = (wanted != UnitWanted::Head).then_some(UnitWanted::Head);
        if heads.is_some()
            && let (Ok(first), Ok(last)) = (self.place_of(units.start), self.place_of(last))
            && last.end - first.start <= units.len() as u64 * SHORT_UNIT_BYTES
        {
            return self.file.will_read(first.start, last.end - first.start);
        }
        for wanted in heads.into_iter().chain([wanted.in_whole_units()]) {
            for nth in units.clone() {
                self.will_read_unit(self.address_of(nth), wanted, cache);
            }
        }
    }

    /// Prefetches the wanted part of a chunk's unit, unless it is kept: first the head, which locates the rest.
    pub fn will_read_unit(&self, chunk: Address, wanted: UnitWanted<'_>, cache: &UnitCache) {
        let in_segment = (chunk.0 - self.first.0) / u64::from(self.chunk_bytes);
        let nth = (in_segment / UNIT_CHUNKS) as usize;
        let in_unit = (in_segment % UNIT_CHUNKS) as usize;
        let key = (self.id, self.address_of(nth));
        let missing = |unit: &Unit| unit.missing(&wanted.part(in_unit, unit));
        let ranges = match wanted {
            UnitWanted::Head if cache.look(key, |_| ()).is_none() => {
                Ok(iter::once(0..HEAD_BYTES).collect())
            }
            _ => self.look_at_head(nth, cache, missing),
        };
        // The read of the unit reports an error.
        if let (Ok(ranges), Ok(place)) = (ranges, self.place_of(nth)) {
            self.will_read_ranges(place.start, &ranges);
        }
    }

    /// Prefetches parts of the unit that begins at `start`.
    fn will_read_ranges(&self, start: u64, ranges: &[Range<usize>]) {
        let joined = ranges.chunk_by(|before, next| next.start <= before.end + FETCHED_GAP_BYTES);
        for (first, last) in joined.filter_map(|ranges| ranges.first().zip(ranges.last())) {
            let from = start + first.start as u64;
            self.file.will_read(from, (last.end - first.start) as u64);
        }
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Fills `buffer`, or less at the end of the rows, and returns the number of bytes.
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

    /// Reads at most to the end of the chunk at `offset`; 0 means the end of the rows.
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

    /// Announces that these bytes of the rows are read soon, so that their units are fetched.
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

    /// Reports whether the unit of an address exists, damaged or not.
    pub fn reaches(&self, address: Address) -> Result<bool> {
        let nth = (address.0 - self.first.0) / self.unit_bytes();
        locked(&self.places).reaches(nth as usize)
    }

    /// Reports whether the segment was written to its end, and retention has not emptied it.
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
