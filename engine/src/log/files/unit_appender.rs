//! The end of a segment of the record log, where units are appended. The zones of all units and the directory follow the last one.

use std::sync::Arc;

use super::segment::SegmentDir;
use super::storage::{StorageFile, write_at};
use crate::error::Result;
use crate::format::{SegmentDirectory, put_raw_unit};
use crate::proven::at;
use crate::types::Address;

#[derive(Debug)]
pub struct UnitAppender {
    segments: SegmentDir,
    file: Arc<dyn StorageFile>,
    /// First address of the segment.
    first: Address,
    /// The start of each unit, and of the next one.
    starts: Vec<u64>,
    /// Bytes of the zones and the directory, once they are written.
    end_bytes: u64,
}

impl UnitAppender {
    /// Finds the place in the segment of `next`, whose file this is: behind the units below `next`. It removes the bytes there. Missing units become empty, and
    /// so damage.
    pub fn find(
        segments: &SegmentDir,
        file: Arc<dyn StorageFile>,
        next: Address,
    ) -> Result<UnitAppender> {
        let first = segments.first_of(next);
        let unit_bytes = segments.unit_bytes();
        assert!(
            next.0.is_multiple_of(unit_bytes),
            "units are appended from {next} on, a multiple of {unit_bytes}"
        );
        let count = ((next.0 - first.0) / unit_bytes) as usize;
        let mut places = segments.places_of(first, Arc::clone(&file))?;
        let mut appender = UnitAppender {
            segments: segments.clone(),
            starts: places.first_units(count)?,
            end_bytes: 0,
            file,
            first,
        };
        if appender.file.bytes()? > appender.end() {
            appender.file.truncate(appender.end())?;
        }
        if appender.next() < next {
            tracing::error!(
                "{}: the units from address {} to {next} are missing",
                appender.file.path().display(),
                appender.next()
            );
            appender.append_empty(next)?;
        }
        Ok(appender)
    }

    /// The address of the next unit; the end of the segment if it is full.
    pub fn next(&self) -> Address {
        let units = self.starts.len() as u64 - 1;
        self.first + units * self.segments.unit_bytes()
    }

    pub fn file_bytes(&self) -> u64 {
        self.end() + self.end_bytes
    }

    /// The offset of the next unit.
    fn end(&self) -> u64 {
        *at(&self.starts, self.starts.len() - 1)
    }

    pub fn is_of(&self, file: &Arc<dyn StorageFile>) -> bool {
        Arc::ptr_eq(&self.file, file)
    }

    pub fn file(&self) -> &dyn StorageFile {
        &*self.file
    }

    /// Appends the next unit, and behind the last one the zones of all and the directory. It can be repeated after an error.
    pub fn append(&mut self, unit: &[u8]) -> Result<()> {
        let start = self.end();
        let end = start + unit.len() as u64;
        write_at(&*self.file, unit, start)?;
        let mut starts = self.starts.clone();
        starts.push(end);
        let units =
            SegmentDirectory::units_of(self.segments.segment_bytes(), self.segments.chunk_bytes());
        if starts.len() == units + 1 {
            let bytes = self.segments.end_of(self.first, &self.file, &starts)?;
            write_at(&*self.file, &bytes, end)?;
            self.end_bytes = bytes.len() as u64;
            // Gives back the space that was reserved for raw units.
            self.file.truncate(end + self.end_bytes)?;
        }
        self.starts = starts;
        self.file.start_write_back(start, end - start);
        Ok(())
    }

    /// Appends units without records up to `next`, at most to the end of the segment.
    pub fn append_empty(&mut self, next: Address) -> Result<()> {
        let chunks = vec![0; self.segments.unit_bytes() as usize];
        let end = next.min(self.first + self.segments.segment_bytes());
        while self.next() < end {
            let mut unit = Vec::new();
            let (uuid, chunk_bytes) = (self.segments.uuid(), self.segments.chunk_bytes());
            put_raw_unit(uuid, self.next(), chunk_bytes, &chunks, &mut unit);
            self.append(&unit)?;
        }
        Ok(())
    }
}
