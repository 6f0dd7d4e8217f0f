//! Staging files beside those of the daemon: a line names each, and people decide.
//!
//! Nothing here removes one. A killed writer's file may hold records that are nowhere else, and the next start on its directory takes them
//! in. A file whose directory cannot be found may belong to one that was moved, is not mounted, or is in another container.

use std::path::Path;

/// More files than this are counted in one line.
const NAMED_MAX: usize = 3;

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

/// The lines for the log of a start: one for all if they are many, which `validate` lists.
pub(super) fn in_short(lines: Vec<String>, folder: &Path) -> Vec<String> {
    match lines.len() {
        ..=NAMED_MAX => lines,
        more => vec![format!(
            "{more} staging files in {} are of other Loom directories; 'ingestd validate' with a configuration lists them",
            folder.display()
        )],
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_of_other_directories_are_one_line_and_those_of_the_own_none() {
        let place = tempfile::tempdir().unwrap();
        let name = |number: u8| format!("loom-{:032x}-fe00-{number:x}-1", u128::from(number));
        let lines = |files: u8| {
            for number in 1..=files {
                std::fs::write(place.path().join(name(number)), "").unwrap();
            }
            let own = 1u128.to_be_bytes();
            in_short(other_staging(place.path(), Some(own)), place.path())
        };
        let few = lines(4);
        assert_eq!(few.len(), 3);
        assert!(few[0].contains(&name(2)), "{few:?}");
        let many = lines(6);
        assert_eq!(many.len(), 1);
        assert!(many[0].starts_with("5 staging files in "), "{many:?}");
    }
}
