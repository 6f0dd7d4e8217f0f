//! A segment that is open to be read as the bytes of its log: of an index log as they stand in the file, of the record log from units.

use std::path::Path;
use std::sync::Arc;

use super::column_file::ColumnFile;
use super::storage::{StorageFile, read_at};
use crate::error::Result;

#[derive(Clone, Debug)]
pub enum OpenSegment {
    Bytes(Arc<dyn StorageFile>),
    Units(Arc<ColumnFile>),
}

impl OpenSegment {
    pub fn path(&self) -> &Path {
        match self {
            OpenSegment::Bytes(file) => file.path(),
            OpenSegment::Units(units) => units.path(),
        }
    }

    /// Reads all of `buffer` or, at the end of the segment, less; returns how much.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            OpenSegment::Bytes(file) => read_at(&**file, buffer, offset),
            OpenSegment::Units(units) => units.read_at(buffer, offset),
        }
    }

    /// Says that these bytes are read soon, so that they are fetched meanwhile.
    pub fn will_read(&self, offset: u64, bytes: u64) {
        match self {
            OpenSegment::Bytes(file) => file.will_read(offset, bytes),
            OpenSegment::Units(units) => units.will_read(offset, bytes),
        }
    }

    /// Whether its file has no name any more.
    pub fn is_removed(&self) -> Result<bool> {
        match self {
            OpenSegment::Bytes(file) => file.is_removed(),
            OpenSegment::Units(units) => units.is_removed(),
        }
    }
}
