//! A column segment, read as the rows that it was made of: whoever reads segments need not know which form they have.
//!
//! Every chunk comes back byte for byte, with its own checksum. Units are read and decoded as they are needed; the latest unit and chunk are kept.

use std::path::Path;
use std::sync::Arc;

use memmap2::MmapRaw;

use super::storage::{FileId, StorageFile, read_at};
use crate::error::{Error, Result};
use crate::format::{
    FormatError, SegmentDirectory, Template, UNIT_CHUNKS, UNIT_HEADER_BYTES, Unit, UnitRow, Wanted,
};
use crate::log::sync::{Mutex, locked};
use crate::proven::{at, at_mut};
use crate::types::Address;

#[derive(Debug)]
pub struct ColumnFile {
    file: Arc<dyn StorageFile>,
    uuid: [u8; 16],
    first: Address,
    chunk_bytes: u32,
    segment_bytes: u64,
    directory: SegmentDirectory,
    latest: Mutex<Latest>,
}

/// What was read last.
#[derive(Debug, Default)]
struct Latest {
    unit: Option<(usize, Unit)>,
    chunk: Option<u64>,
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
        let file_bytes = file.bytes()?;
        let held = SegmentDirectory::bytes_of(units).filter(|bytes| *bytes as u64 <= file_bytes);
        let mut bytes = vec![0; held.unwrap_or(0)];
        let read = read_at(&*file, &mut bytes, file_bytes - held.unwrap_or(0) as u64)?;
        bytes.truncate(read);
        let directory = match SegmentDirectory::decode(uuid, first, units, &bytes, file_bytes) {
            Ok(directory) => directory,
            Err(_) => walk(&*file, units, chunk_bytes, file_bytes)?,
        };
        Ok(ColumnFile {
            file,
            uuid: *uuid,
            first,
            chunk_bytes,
            segment_bytes,
            directory,
            latest: Mutex::default(),
        })
    }

    fn unit_bytes(&self) -> u64 {
        UNIT_CHUNKS * u64::from(self.chunk_bytes)
    }

    fn address_of(&self, nth: usize) -> Address {
        self.first + nth as u64 * self.unit_bytes()
    }

    /// Reads what the file holds of a unit.
    pub fn read_unit_bytes(&self, nth: usize, bytes: &mut Vec<u8>) -> Result<()> {
        let place = self.directory.unit(nth);
        let length = place.end - place.start;
        if length > Unit::bytes_most(self.chunk_bytes) {
            let what = FormatError::Invalid {
                what: "the length of a unit in the directory of a column segment",
                value: length,
            };
            return Err(self.damaged(self.address_of(nth), &what));
        }
        bytes.resize(length as usize, 0);
        let read = read_at(&*self.file, bytes, place.start)?;
        bytes.truncate(read);
        Ok(())
    }

    fn read_unit(&self, nth: usize) -> Result<Unit> {
        let address = self.address_of(nth);
        let mut bytes = Vec::new();
        self.read_unit_bytes(nth, &mut bytes)?;
        let unit = Unit::of(&self.uuid, address, self.chunk_bytes, bytes);
        let unit = unit.map_err(|error| self.damaged(address, &error))?;
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

    /// Writes a chunk, counted in the segment, to `out`.
    fn read_chunk(&self, latest: &mut Latest, chunk: u64, out: &mut [u8]) -> Result<()> {
        self.with_unit(latest, chunk, |unit, nth| unit.chunk(nth, out))
    }

    /// Gives `read` the unit of a chunk, and which of the unit's chunks it is.
    fn with_unit<T>(
        &self,
        latest: &mut Latest,
        chunk: u64,
        read: impl FnOnce(&mut Unit, usize) -> Result<T, FormatError>,
    ) -> Result<T> {
        let (nth, in_unit) = (
            (chunk / UNIT_CHUNKS) as usize,
            (chunk % UNIT_CHUNKS) as usize,
        );
        let mut unit = match latest.unit.take() {
            Some((held, unit)) if held == nth => unit,
            _ => self.read_unit(nth)?,
        };
        let address = self.first + chunk * u64::from(self.chunk_bytes);
        let done = read(&mut unit, in_unit).map_err(|error| self.damaged(address, &error))?;
        latest.unit = Some((nth, unit));
        Ok(done)
    }

    /// The rows of a source in the chunk at an address, as [`Unit::rows`] gives them.
    pub fn rows(
        &self,
        chunk: Address,
        template: &Template,
        wanted: &Wanted,
        out: &mut [u8],
        rows: &mut Vec<UnitRow>,
    ) -> Result<bool> {
        let chunk = (chunk.0 - self.first.0) / u64::from(self.chunk_bytes);
        let mut latest = locked(&self.latest);
        self.with_unit(&mut latest, chunk, |unit, nth| {
            unit.rows(nth, template, wanted, out, rows)
        })
    }

    fn damaged(&self, address: Address, error: &FormatError) -> Error {
        Error::Corrupt {
            path: self.file.path().to_owned(),
            address,
            what: error.to_string(),
        }
    }
}

/// Finds the units one by one. What cannot be found is empty or ends where the file does, and is damaged when it is read.
fn walk(
    file: &dyn StorageFile,
    units: usize,
    chunk_bytes: u32,
    file_bytes: u64,
) -> Result<SegmentDirectory> {
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

impl StorageFile for ColumnFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    /// Reads to the end of the chunk at `offset` at most.
    fn pread(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let chunk_bytes = self.chunk_bytes as usize;
        if offset >= self.segment_bytes || buffer.is_empty() {
            return Ok(0);
        }
        let chunk = offset / u64::from(self.chunk_bytes);
        let from = (offset % u64::from(self.chunk_bytes)) as usize;
        let read = buffer.len().min(chunk_bytes - from);
        let mut latest = locked(&self.latest);
        let latest = &mut *latest;
        if read == chunk_bytes {
            self.read_chunk(latest, chunk, at_mut(buffer, ..chunk_bytes))?;
            return Ok(read);
        }
        if latest.chunk != Some(chunk) {
            latest.chunk = None;
            let mut bytes = std::mem::take(&mut latest.bytes);
            bytes.resize(chunk_bytes, 0);
            let done = self.read_chunk(latest, chunk, &mut bytes);
            latest.bytes = bytes;
            done?;
            latest.chunk = Some(chunk);
        }
        at_mut(buffer, ..read).copy_from_slice(at(&latest.bytes, from..from + read));
        Ok(read)
    }

    fn will_read(&self, offset: u64, bytes: u64) {
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

    fn pwrite(&self, _bytes: &[u8], _offset: u64) -> Result<usize> {
        unreachable!("a segment that is open to be read is not written")
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn allocate(&self, _bytes: u64) -> Result<()> {
        unreachable!("a segment that is open to be read is not allocated")
    }

    fn truncate(&self, _bytes: u64) -> Result<()> {
        unreachable!("a segment that is open to be read is not cut")
    }

    fn bytes(&self) -> Result<u64> {
        // Once it is emptied, nothing is left of it.
        Ok(if self.file.bytes()? == 0 {
            0
        } else {
            self.segment_bytes
        })
    }

    fn id(&self) -> Result<FileId> {
        self.file.id()
    }

    fn is_removed(&self) -> Result<bool> {
        self.file.is_removed()
    }

    fn try_lock(&self) -> Result<bool> {
        self.file.try_lock()
    }

    fn is_locked(&self) -> Result<bool> {
        self.file.is_locked()
    }

    fn columns(&self) -> Option<&ColumnFile> {
        Some(self)
    }

    fn map(&self, bytes: usize) -> Result<Arc<MmapRaw>> {
        self.file.map(bytes)
    }
}
