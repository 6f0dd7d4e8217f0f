//! The end of the record log without staging: units hold the bytes below it, the file `tail` those above.

use std::path::Path;

use crate::error::Result;
use crate::log::files::durable::DurableLog;
use crate::log::files::meta::DirMeta;
use crate::log::files::storage::Storage;
use crate::log::files::tail_file::TailImage;
use crate::types::Address;

#[derive(Debug, Default)]
pub struct RecordsEnd {
    /// A unit's begin.
    pub encoded: Address,
    pub tail: TailImage,
}

impl RecordsEnd {
    pub fn of_slot(
        storage: &dyn Storage,
        dir: &Path,
        meta: &DirMeta,
        records: &DurableLog,
    ) -> Result<RecordsEnd> {
        let (encoded, unit_bytes) = (records.encoded, meta.unit_bytes());
        Ok(RecordsEnd {
            encoded,
            tail: TailImage::load(storage, dir, &meta.uuid, unit_bytes, encoded)?,
        })
    }
}
