//! A segment that is open to be read as the bytes of its log, whichever form its file has.

use std::path::Path;
use std::sync::Arc;

use super::column_file::ColumnFile;
use super::storage::{StorageFile, read_at};
use crate::error::Result;

/// By the form of the file.
#[derive(Clone, Debug)]
pub enum OpenSegment {
    Rows(Arc<dyn StorageFile>),
    Columns(Arc<ColumnFile>),
}

impl OpenSegment {
    pub fn path(&self) -> &Path {
        match self {
            OpenSegment::Rows(file) => file.path(),
            OpenSegment::Columns(columns) => columns.path(),
        }
    }

    /// Reads all of `buffer` or, at the end of the segment, less; returns how much.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match self {
            OpenSegment::Rows(file) => read_at(&**file, buffer, offset),
            OpenSegment::Columns(columns) => columns.read_at(buffer, offset),
        }
    }

    /// Says that these bytes are read soon, so that they are fetched meanwhile.
    pub fn will_read(&self, offset: u64, bytes: u64) {
        match self {
            OpenSegment::Rows(file) => file.will_read(offset, bytes),
            OpenSegment::Columns(columns) => columns.will_read(offset, bytes),
        }
    }

    /// How many bytes of the log it holds; none once it was emptied.
    pub fn bytes(&self) -> Result<u64> {
        match self {
            OpenSegment::Rows(file) => file.bytes(),
            OpenSegment::Columns(columns) => columns.bytes(),
        }
    }

    /// Whether its file has no name any more.
    pub fn is_removed(&self) -> Result<bool> {
        match self {
            OpenSegment::Rows(file) => file.is_removed(),
            OpenSegment::Columns(columns) => columns.is_removed(),
        }
    }
}
