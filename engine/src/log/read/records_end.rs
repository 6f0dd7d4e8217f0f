//! Where the record log ends without staging: units hold what lies below, the file `tail` what lies above.

use std::path::Path;

use crate::error::Result;
use crate::format::UNIT_CHUNKS;
use crate::log::files::durable::DurableLog;
use crate::log::files::meta::DirMeta;
use crate::log::files::storage::Storage;
use crate::log::files::tail_file::TailImage;
use crate::types::Address;

#[derive(Debug, Default)]
pub struct RecordsEnd {
    /// A chunk's begin.
    pub encoded: Address,
    pub tail: TailImage,
}

impl RecordsEnd {
    /// As a slot says.
    pub fn of_slot(
        storage: &dyn Storage,
        dir: &Path,
        meta: &DirMeta,
        records: &DurableLog,
    ) -> Result<RecordsEnd> {
        let unit_bytes = unit_bytes(meta);
        let encoded = records.encoded.align_down(unit_bytes);
        Ok(RecordsEnd {
            encoded,
            tail: TailImage::load(storage, dir, &meta.uuid, unit_bytes, encoded)?,
        })
    }
}

/// Addresses of a unit.
pub fn unit_bytes(meta: &DirMeta) -> u64 {
    UNIT_CHUNKS * u64::from(meta.chunk_bytes)
}
