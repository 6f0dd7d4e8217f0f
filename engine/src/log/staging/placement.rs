//! Chooses place and size of the staging file and creates it.
//!
//! It goes to shared memory if everything fits with a tenth to spare, with smaller blocks if necessary; else to the Loom directory. The file is fully allocated
//! before it is mapped, because a sparse file turns a full file system into a SIGBUS.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::control::{Header, Owner};
use super::mapped::{Staging, StagingLayout};
use super::name::StagingName;
use super::note::StagingNote;
use crate::error::{Error, Result};
use crate::log::files::meta::DirMeta;
use crate::log::files::storage::{OpenMode, Storage, StorageFile, unlink_if_present};
use crate::log::options::{Geometry, LogOptions, block_bytes_min};

const SHRUNK_BLOCK_BYTES_MIN: u64 = 1 << 20;
const SHARED_MEMORY: &str = "/dev/shm";

/// A new staging file, and the note about it for the directory.
#[derive(Debug)]
pub struct Placed {
    pub staging: Staging,
    pub note: StagingNote,
    pub geometry: Geometry,
    pub path: PathBuf,
}

/// Creates the staging file of a new epoch and removes the files of earlier epochs from the same places; the caller holds the lock and has salvaged them.
pub fn place(
    storage: &dyn Storage,
    dir: &Path,
    meta: &DirMeta,
    options: &LogOptions,
    epoch: u64,
) -> Result<Placed> {
    let name = StagingName {
        uuid: Uuid::from_bytes(meta.uuid),
        directory: storage.file_id(dir)?,
        epoch,
    };
    let wanted = Geometry::fitting(meta.chunk_bytes, options.block_bytes, meta.segment_bytes)?;
    let folder = options
        .staging
        .clone()
        .unwrap_or_else(|| PathBuf::from(SHARED_MEMORY));
    let folder = std::path::absolute(&folder).map_err(|error| Error::io(&folder, error))?;
    for place in [&folder, dir] {
        remove_orphans(storage, place, &name.prefix());
    }
    let site = Site {
        storage,
        meta,
        name,
        owner: Owner::of(&std::path::absolute(dir).map_err(|error| Error::io(dir, error))?),
    };
    let name = name.to_string();
    // Readers may see the directory and its content under another path, such as in a container.
    let noted = match folder.strip_prefix(dir) {
        Ok(inside) => inside.join(&name),
        Err(_) => folder.join(&name),
    };
    let refusal = match shrinking(storage, &folder, wanted, meta) {
        Ok(Some(geometry)) => match site.make(&folder, noted, geometry) {
            Ok(placed) => {
                if geometry != wanted {
                    let block = geometry.block_bytes.records;
                    tracing::warn!(
                        "{} has little room: the record log is staged in blocks of {block} bytes instead of {}",
                        folder.display(),
                        options.block_bytes
                    );
                }
                return Ok(placed);
            }
            Err(error) => error.to_string(),
        },
        Ok(None) => format!("there is too little room in {}", folder.display()),
        Err(error) => error.to_string(),
    };
    tracing::warn!("staging is placed in {} instead: {refusal}", dir.display());
    site.make(dir, PathBuf::from(&name), wanted)
}

/// Returns the largest blocks that fit with a tenth to spare; `None` if even the smallest do not.
fn shrinking(
    storage: &dyn Storage,
    folder: &Path,
    wanted: Geometry,
    meta: &DirMeta,
) -> Result<Option<Geometry>> {
    let free = storage.free_bytes(folder)?;
    let mut block = wanted.block_bytes.records;
    let least = block_bytes_min(meta.chunk_bytes);
    let least = SHRUNK_BLOCK_BYTES_MIN.max(least).min(block);
    while block >= least {
        let geometry = Geometry::new(meta.chunk_bytes, block, meta.segment_bytes)?;
        let needed = StagingLayout::of(&geometry).total_bytes();
        if needed + needed / 10 <= free {
            return Ok(Some(geometry));
        }
        block /= 2;
    }
    Ok(None)
}

/// The parameters of a new staging file in any place.
struct Site<'a> {
    storage: &'a dyn Storage,
    meta: &'a DirMeta,
    name: StagingName,
    owner: Owner,
}

impl Site<'_> {
    fn make(&self, folder: &Path, noted: PathBuf, geometry: Geometry) -> Result<Placed> {
        let path = folder.join(self.name.to_string());
        let file = self.storage.open(&path, OpenMode::CreateNew)?;
        self.fill(file, noted, geometry).inspect_err(|_| {
            // A file that was allocated only in part must not keep that memory.
            let _ = self.storage.unlink(&path);
        })
    }

    fn fill(
        &self,
        file: Arc<dyn StorageFile>,
        noted: PathBuf,
        geometry: Geometry,
    ) -> Result<Placed> {
        let layout = StagingLayout::of(&geometry);
        // The lock shows people who look for orphans that the writer lives. Without it, the listing reports the holder as unknown.
        let is_locked = file.try_lock().unwrap_or(false);
        file.allocate(layout.total_bytes())?;
        let header = Header {
            uuid: self.meta.uuid,
            epoch: self.name.epoch,
            block_bytes: geometry.block_bytes,
        };
        let owner = is_locked.then_some(&self.owner);
        let staging = Staging::create(&file, &header, owner, layout)?;
        let id = file.id()?;
        let note = StagingNote {
            path: noted,
            device: id.device,
            inode: id.inode,
            directory_device: self.name.directory.device,
            directory_inode: self.name.directory.inode,
            uuid: self.name.uuid,
            epoch: self.name.epoch,
            boot_id: self.storage.boot_id()?,
        };
        Ok(Placed {
            staging,
            note,
            geometry,
            path: file.path().to_owned(),
        })
    }
}

/// Removes staging files whose names contain this directory. A file that stays does no harm.
fn remove_orphans(storage: &dyn Storage, folder: &Path, prefix: &str) {
    let removed = storage.list(folder).and_then(|names| {
        let orphans = names.iter().filter(|name| name.starts_with(prefix));
        orphans
            .map(|name| unlink_if_present(storage, &folder.join(name)))
            .fold(Ok(()), Result::and)
    });
    if let Err(error) = removed {
        tracing::warn!("an old staging file may stay: {error}");
    }
}
