//! Staging files beside those of the daemon: a line names each, and people decide.
//!
//! Nothing here removes one. A killed writer's file may hold records that are nowhere else, and the next start on its directory takes them
//! in. A file whose directory cannot be found may belong to one that was moved, is not mounted, or is in another container.

use std::path::Path;

/// A line for each staging file in `folder`, except those of the directory `own`: which file, and how to find its directory.
pub fn other_staging(folder: &Path, own: Option<[u8; 16]>) -> Vec<String> {
    let own = own.map(|uuid| format!("{:032x}", u128::from_be_bytes(uuid)));
    // A folder that cannot be read is the affair of the start, which stages elsewhere and says so.
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut lines: Vec<String> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let Owner { uuid, inode } = owner(&name)?;
            let path = entry.path();
            (own.as_deref() != Some(uuid)).then(|| {
                format!(
                    "staging file {} is of another Loom directory, which 'find / -type d -inum {inode}' shows; \
                     remove the file only if that directory no longer exists",
                    path.display()
                )
            })
        })
        .collect();
    lines.sort();
    lines
}

/// The directory that a staging file belongs to.
struct Owner<'a> {
    uuid: &'a str,
    inode: u64,
}

/// What the name says that the engine gives to a staging file: `loom-`, the directory's UUID, its device and inode, the epoch.
fn owner(name: &str) -> Option<Owner<'_>> {
    let parts: Vec<&str> = name.split('-').collect();
    let &["loom", uuid, _device, inode, _epoch] = parts.as_slice() else {
        return None;
    };
    let is_uuid = uuid.len() == 32 && uuid.bytes().all(|byte| byte.is_ascii_hexdigit());
    let inode = u64::from_str_radix(inode, 16).ok()?;
    is_uuid.then_some(Owner { uuid, inode })
}
