//! A reader's view of the small files beside the logs: the catalog, `loom.json`, the note of staging and the slots of `durable`.

use std::path::PathBuf;

use super::epoch_view::Stage;
use super::reader::{LogReader, Tails};
use crate::error::{Error, Result};
use crate::log::files::catalog_file::{self, CatalogBytes};
use crate::log::files::durable::{self, Slots};
use crate::log::files::meta::DirMeta;
use crate::log::files::mirrored::Mirrored;
use crate::log::staging::control::DaemonWord;
use crate::log::staging::note::StagingNote;
use crate::types::{Address, CATALOG_NAME, PerLog};

impl LogReader {
    /// Returns the begins of the logs for a reader that loaded `tails` before a catalog that no longer describes records below an address: at least that
    /// address, because the records below were given up in between.
    pub fn begins_described(
        &self,
        tails: &Tails,
        forgotten_below: Address,
    ) -> Result<PerLog<Address>> {
        if tails.begin.records >= forgotten_below {
            return Ok(tails.begin);
        }
        let begin = self.tails()?.begin;
        if begin.records >= forgotten_below {
            return Ok(begin);
        }
        let what = format!(
            "it does not describe records below address {forgotten_below}, and the log begins at {}; restore the whole directory from one backup",
            begin.records
        );
        Err(Error::damaged(&self.dir.join(CATALOG_NAME), what))
    }

    /// The catalog, as far as the file or its copy has it.
    pub fn catalog_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.catalog_files()?.into_merged(&self.meta.uuid))
    }

    /// Returns the damaged ones of `loom.json`, the note that names staging, and their copies, with the reasons. Each has a copy that serves.
    pub fn damaged_files(&self) -> Vec<(PathBuf, String)> {
        let mut damaged = DirMeta::damaged_files(&*self.storage, &self.dir);
        damaged.extend(StagingNote::damaged_files(&*self.storage, &self.dir));
        damaged
    }

    /// Returns the note or its copy if it is missing although the newest slot says that an epoch has begun and not ended. A writer stores and removes them one
    /// by one, so one may be missing while a writer starts or stops.
    pub fn missing_notes(&self) -> Result<Vec<PathBuf>> {
        let is_held = self.lock.is_held(&*self.storage)?;
        let slot = durable::read(&*self.storage, &self.dir, &self.meta)?;
        if slot.is_none_or(|slot| slot.clean) {
            return Ok(Vec::new());
        }
        let missing = StagingNote::FILE.missing(&*self.storage, &self.dir);
        Ok(if is_held && missing.len() == 1 {
            Vec::new()
        } else {
            missing
        })
    }

    /// The separate contents of the catalog's file and its copy.
    pub fn catalog_files(&self) -> Result<CatalogBytes> {
        CatalogBytes::read(&*self.storage, &self.dir)
    }

    /// The least length of the catalog according to the newest slot of `durable` and staging; 0 if neither knows it.
    pub fn catalog_bytes_least(&self) -> Result<u64> {
        let slot = durable::read(&*self.storage, &self.dir, &self.meta)?;
        let of_slot = slot.map_or(0, |slot| slot.catalog_bytes);
        match &self.refresh()?.stage {
            Stage::Staged(staging) => {
                Ok(of_slot.max(staging.daemon_word(DaemonWord::CatalogBytes)?))
            }
            _ => Ok(of_slot),
        }
    }

    /// The state of the slots of `durable`.
    pub fn slots(&self) -> Result<Slots> {
        durable::look(&*self.storage, &self.dir, &self.meta)
    }

    /// Length of everything that the catalog's file ever held, which changes with every change of the file.
    pub fn catalog_len(&self) -> Result<u64> {
        if self.is_beside_writer
            && let Some(view) = self.standing_view()?
            && let Stage::Staged(staging) = &view.stage
        {
            return staging.daemon_word(DaemonWord::CatalogBytes);
        }
        catalog_file::bytes_ever(&*self.storage, &self.dir, &self.meta.uuid)
    }
}
