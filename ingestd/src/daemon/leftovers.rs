//! Staging files beside the daemon's own that have no writer: a line names each, and people decide.
//!
//! Nothing here removes one. A killed writer's file may hold the only copy of records, and the next start on its directory takes them
//! in. A file whose directory cannot be found may belong to one that was moved, is not mounted, or is in another container.

use std::path::Path;

use loom_engine::log::{Holder, StagingFile, staging_files};

/// More files than this are counted in one line.
const NAMED_MAX: usize = 3;

/// A line for each orphan among the staging files in `folder`, except those of the directory `own`: it names the file and the remedy.
pub fn orphaned_staging(folder: &Path, own: Option<[u8; 16]>) -> Vec<String> {
    // The start reports a folder that it cannot read, and stages elsewhere.
    let files = staging_files(folder).unwrap_or_default().into_iter();
    let orphans = files.filter(|file| file.holder == Holder::Nobody && own != Some(file.uuid));
    orphans
        .map(|file| format!("staging file {} {}", file.path.display(), remedy(&file)))
        .collect()
}

/// Says why a staging file has no writer, and what to do about it.
pub fn remedy(file: &StagingFile) -> String {
    let inode = file.directory.inode;
    if let Some(dir) = file.dir_in_place() {
        let dir = dir.display();
        return format!(
            "is an orphan: the writer of {dir} was killed; the next start takes its records in: 'ingestd run {dir}'"
        );
    }
    let whose = match &file.dir {
        Some(dir) => format!("{}, which is not there any more", dir.display()),
        None => "a Loom directory".to_owned(),
    };
    format!(
        "is an orphan of {whose}; 'find / -type d -inum {inode}' shows where it was moved to; remove the file if it no longer exists"
    )
}

/// The lines for the log of a start: one for all if they are many.
pub(super) fn in_short(lines: Vec<String>, folder: &Path) -> Vec<String> {
    match lines.len() {
        ..=NAMED_MAX => lines,
        more => vec![format!(
            "{more} staging files in {0} have no writer; 'ingestd status --staging={0}' lists them",
            folder.display()
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_orphans_are_one_line() {
        let lines = |files: usize| {
            let lines = (0..files).map(|file| format!("staging file {file}"));
            in_short(lines.collect(), Path::new("/dev/shm"))
        };
        assert_eq!(lines(3).len(), 3);
        let many = lines(4);
        assert_eq!(many.len(), 1);
        assert!(
            many[0].starts_with("4 staging files in /dev/shm"),
            "{many:?}"
        );
    }
}
