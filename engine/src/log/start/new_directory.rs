//! A directory that does not exist yet: the check of its room, and its `loom.json`.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::log::files::meta::DirMeta;
use crate::log::files::mirrored::Mirrored;
use crate::log::files::storage::Storage;
use crate::log::options::LogOptions;
use crate::types::LogKind;

/// Reads `loom.json`, or writes it into a directory that holds no log yet.
pub fn provide_meta(storage: &dyn Storage, dir: &Path, options: &LogOptions) -> Result<DirMeta> {
    if let Some(meta) = DirMeta::load(storage, dir)? {
        let asked = (options.chunk_bytes, options.segment_bytes);
        if asked != (meta.chunk_bytes, meta.segment_bytes)
            && asked
                != (
                    LogOptions::default().chunk_bytes,
                    LogOptions::default().segment_bytes,
                )
        {
            tracing::warn!(
                "{}: the configured chunk and segment sizes are ignored; a directory keeps the sizes that it was created with",
                dir.display()
            );
        }
        return Ok(meta);
    }
    let names = storage.list(dir)?;
    if let Some(log) = LogKind::ALL
        .into_iter()
        .find(|log| names.iter().any(|name| name == log.dir_name()))
    {
        let what = format!(
            "it holds {}/ but no loom.json; restore that file from a backup (it never changes), or move the folder away",
            log.dir_name()
        );
        return Err(Error::NotLoom {
            path: dir.to_owned(),
            what,
        });
    }
    if let Some(parent) = dir.parent() {
        sync_name(storage, parent)?;
    }
    let meta = DirMeta::new(options.chunk_bytes, options.segment_bytes);
    meta.store(storage, dir)?;
    Ok(meta)
}

/// Refuses a new directory whose first segments do not fit, before any part of it exists.
pub fn require_room(storage: &dyn Storage, dir: &Path, options: &LogOptions) -> Result<()> {
    let exists = storage.file_id(dir).is_ok();
    let within = dir.parent().filter(|_| !exists).unwrap_or(dir);
    // If the folder above is missing too, creating the directory fails with the reason.
    let Ok(free) = storage.free_bytes(within) else {
        return Ok(());
    };
    let needed = options.segment_bytes.iter().sum();
    if free >= needed {
        return Ok(());
    }
    Err(Error::NoRoom {
        dir: dir.to_owned(),
        disk: mount_point(storage, within)?,
        free,
        needed,
    })
}

/// Returns the uppermost folder on the file system of `dir`.
fn mount_point(storage: &dyn Storage, dir: &Path) -> Result<PathBuf> {
    let device = storage.file_id(dir)?.device;
    let is_beyond = |above: &&Path| !storage.file_id(above).is_ok_and(|id| id.device == device);
    let beyond = dir.ancestors().position(|above| is_beyond(&above));
    let top = dir.ancestors().take(beyond.unwrap_or(usize::MAX)).last();
    Ok(top.unwrap_or(dir).to_owned())
}

/// Makes the name of a new directory durable. A process that may not read the folder above did not create the name, so its creator has made it durable.
fn sync_name(storage: &dyn Storage, parent: &Path) -> Result<()> {
    match storage.sync_dir(parent) {
        Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}
