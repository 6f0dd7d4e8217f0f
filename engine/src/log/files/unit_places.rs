//! Where the units of a segment stand in its file: by the directory at the end of a finished one, else by walking from unit to unit.
//!
//! A unit says how long it is. Where a head is damaged, the next unit whose head verifies at its address is looked for, so damage is confined to its
//! unit. A segment under way grows: what is not found yet may be there later.

use std::ops::Range;
use std::sync::Arc;

use super::storage::{StorageFile, read_at};
use crate::error::Result;
use crate::format::{
    FormatError, SegmentDirectory, UNIT_CHUNKS, UNIT_HEADER_BYTES, Unit, UnitHeader,
};
use crate::memory;
use crate::proven::at;
use crate::types::Address;

/// So much of a file is searched at a time for a head.
const SEARCHED_BYTES: usize = 64 << 10;
/// So many units are searched for the head of the next: a file is as long as it likes.
const SEARCHED_UNITS: u64 = 4;

#[derive(Debug)]
pub struct UnitPlaces {
    file: Arc<dyn StorageFile>,
    uuid: [u8; 16],
    first: Address,
    chunk_bytes: u32,
    /// Units of the segment.
    units: usize,
    /// Where the units begin that were found, and where the last of them ends.
    starts: Vec<u64>,
    /// Why there is no directory.
    directory_damage: Option<FormatError>,
}

impl UnitPlaces {
    /// Of the segment that begins at `first`. Reads the directory, if there is one.
    pub fn of(
        uuid: &[u8; 16],
        first: Address,
        chunk_bytes: u32,
        segment_bytes: u64,
        file: Arc<dyn StorageFile>,
    ) -> Result<UnitPlaces> {
        let units = SegmentDirectory::units_of(segment_bytes, chunk_bytes);
        let (starts, directory_damage) = match read_directory(&*file, uuid, first, units)? {
            Ok(directory) => (directory.into_starts(), None),
            Err(damage) => (vec![0], Some(damage)),
        };
        Ok(UnitPlaces {
            file,
            uuid: *uuid,
            first,
            chunk_bytes,
            units,
            starts,
            directory_damage,
        })
    }

    /// What is wrong with the directory at the end of a finished segment, if something is.
    pub fn directory_damage(&self) -> Option<&FormatError> {
        self.directory_damage.as_ref()
    }

    /// Where a unit stands; `None` where it is not there.
    pub fn unit(&mut self, nth: usize) -> Result<Option<Range<u64>>> {
        while self.starts.len() < nth + 2 && self.walk()? {}
        let place = self.starts.get(nth..nth + 2);
        Ok(place.map(|ends| *at(ends, 0)..*at(ends, 1)))
    }

    /// Whether something stands in the place of a unit, be it damaged.
    pub fn reaches(&mut self, nth: usize) -> Result<bool> {
        let is_found = self.unit(nth)?.is_some();
        let start = self.starts.get(nth).copied();
        Ok(is_found || start.is_some_and(|start| start < self.file.bytes().unwrap_or(0)))
    }

    /// Where each of the first units begins, as far as they are there, and where the last of them ends. Nobody writes to the file meanwhile.
    pub fn first_units(&mut self, count: usize) -> Result<Vec<u64>> {
        while self.starts.len() < count + 1 && self.walk()? {}
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

    /// Where the last unit ends at most, which begins there and whose head does not verify.
    fn damaged_end(&self, start: u64) -> Result<u64> {
        let most = start + Unit::bytes_most(self.chunk_bytes);
        Ok(self.file.bytes()?.next_multiple_of(8).min(most))
    }

    /// Finds the end of one more unit; `false` where it is not there.
    fn walk(&mut self) -> Result<bool> {
        let nth = self.starts.len() - 1;
        if nth >= self.units {
            return Ok(false);
        }
        let start = *at(&self.starts, nth);
        let file_bytes = self.file.bytes()?;
        let header = self.header(start)?;
        let end = header.map(|header| start + header.unit_bytes as u64);
        if let Some(end) = end.filter(|end| *end <= file_bytes) {
            self.starts.push(end);
            return Ok(true);
        }
        if start >= file_bytes {
            return Ok(false);
        }
        // Either this unit is damaged, or the one before, which then leads to a wrong place. A head that verifies stands in the right place, though its
        // unit may be cut short: blaming the one before would find the same place again and again.
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
        let Some((found, place)) = self.search(wrong + 1, from)? else {
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

    /// Whether the head of a unit stands at a place of the file.
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

    /// The first unit from number `least` on whose head verifies, and its place, which is `from` or above.
    fn search(&self, least: usize, from: u64) -> Result<Option<(usize, u64)>> {
        let mut piece = vec![0; SEARCHED_BYTES + UNIT_HEADER_BYTES];
        let mut start = from;
        let end = from + SEARCHED_UNITS * Unit::bytes_most(self.chunk_bytes);
        while start < end {
            let read = read_at(&*self.file, &mut piece, start)?;
            let within = read.saturating_sub(UNIT_HEADER_BYTES - 8);
            for offset in (0..within.min(SEARCHED_BYTES)).step_by(8) {
                if UnitHeader::decode(at(&piece, offset..read), self.chunk_bytes).is_err() {
                    continue;
                }
                let place = start + offset as u64;
                for nth in least..self.units {
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

/// Reads the directory at the end of a file, or finds that there is none.
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
