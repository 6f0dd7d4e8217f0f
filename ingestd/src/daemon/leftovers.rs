//! Staging files beside those of the daemon: one line names them, and people decide.
//!
//! Nothing here removes one. A killed writer's file may hold records that are nowhere else, and the next start on its directory takes them
//! in. A file whose directory cannot be found may belong to one that was moved, is not mounted, or is in another container.

use std::path::Path;

/// Names the staging files in `folder`, except those of the directory `own`.
pub fn other_staging(folder: &Path, own: Option<[u8; 16]>) -> Option<String> {
    let own = own.map(|uuid| format!("{:032x}", u128::from_be_bytes(uuid)));
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut found: Vec<String> = names
        .filter(|name| directory_of(name).is_some_and(|uuid| own.as_deref() != Some(uuid)))
        .collect();
    found.sort();
    (!found.is_empty()).then(|| {
        format!(
            "{} holds staging files: {}; remove a file only if its Loom directory is gone",
            folder.display(),
            found.join(", ")
        )
    })
}

/// The UUID, as text, in a name that the engine gives to a staging file: `loom-`, the directory's UUID, its device and inode, the epoch.
fn directory_of(name: &str) -> Option<&str> {
    let uuid = name.strip_prefix("loom-")?.split('-').next()?;
    let is_uuid = uuid.len() == 32 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_uuid.then_some(uuid)
}
