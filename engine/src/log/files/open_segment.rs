//! A segment that is open for reading the bytes of its log: an index log directly from the file, the record log from units.

use std::path::Path;
use std::sync::Arc;

use super::storage::{StorageFile, read_at};
use super::unit_file::UnitFile;
use crate::error::Result;

#[derive(Clone, Debug)]
pub enum OpenSegment {
    Bytes(Arc<dyn StorageFile>),
    Units(Arc<UnitFile>),
}

impl OpenSegment {
    pub fn path(&self) -> &Path {
        match self {
            OpenSegment::Bytes(file) => file.path(),
            OpenSegment::Units(units) => units.path(),
        }
    }

    /// Fills `buffer`, or less at the end of the segment, and returns the number of bytes.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            OpenSegment::Bytes(file) => read_at(&**file, buffer, offset),
            OpenSegment::Units(units) => units.read_at(buffer, offset),
        }
    }

    /// Announces that these bytes are read soon, so that they are fetched.
    pub fn will_read(&self, offset: u64, bytes: u64) {
        match self {
            OpenSegment::Bytes(file) => file.will_read(offset, bytes),
            OpenSegment::Units(units) => units.will_read(offset, bytes),
        }
    }

    /// Reports whether its file has no name any more.
    pub fn is_removed(&self) -> Result<bool> {
        match self {
            OpenSegment::Bytes(file) => file.is_removed(),
            OpenSegment::Units(units) => units.is_removed(),
        }
    }
}
