//! Staging files that killed writers left and no process uses. The next start on a writer's directory takes its file in; one whose
//! directory is gone stays until the machine starts anew, or somebody removes it.
//!
//! Nothing here removes one: a directory that cannot be found may have been moved, be unmounted, or stand in another container, and its
//! file may hold records that stand nowhere else. People are told instead.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::config::ByteSize;
use crate::counted;

/// More are only counted.
const NAMED_MAX: usize = 4;

/// What is to be said of a folder for staging files, if anything is.
pub fn told(folder: &Path) -> Option<String> {
    let own = rustix::process::geteuid();
    let entries = fs::read_dir(folder).ok()?.flatten();
    let files = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let found = entry.metadata().ok()?;
        // Whether another user's file is in use cannot be seen.
        let visible = own.is_root() || found.uid() == own.as_raw();
        (is_staging(&name) && found.is_file() && visible).then_some((name, found.blocks() * 512))
    });
    let mut files: Vec<(String, u64)> = files.collect();
    if !files.is_empty() {
        let mapped = mapped_files();
        files.retain(|(name, _)| !mapped.contains(name.as_str()));
    }
    files.sort();
    let bytes = files.iter().map(|(_, bytes)| bytes).sum();
    let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
    let more = names.len().saturating_sub(NAMED_MAX);
    let shown = names.get(..NAMED_MAX).unwrap_or(&names).join(", ");
    (!files.is_empty()).then(|| {
        format!(
            "{} holds {} that no process here uses, {}: {shown}{}; each is taken in by the next start on its directory, so remove those \
             alone whose directory is gone",
            folder.display(),
            counted(files.len() as u64, "staging file"),
            ByteSize(bytes).approximately(),
            if more > 0 { format!(" and {more} more") } else { String::new() }
        )
    })
}

/// Whether a file is called as the engine calls them: `loom-`, the directory's UUID, device and inode, and the epoch.
fn is_staging(name: &str) -> bool {
    let parts: Vec<&str> = name.split('-').collect();
    let hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    match parts.as_slice() {
        ["loom", uuid, rest @ ..] => {
            uuid.len() == 32 && rest.len() == 3 && parts.iter().skip(1).all(hex)
        }
        _ => false,
    }
}

/// What all processes that may be looked at have mapped, as one text.
fn mapped_files() -> String {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let maps = processes.filter_map(|process| {
        let maps = fs::read(process.path().join("maps")).ok()?;
        let maps = String::from_utf8_lossy(&maps);
        Some(
            maps.lines()
                .filter(|line| line.contains("loom-"))
                .collect::<Vec<_>>()
                .join("\n"),
        )
    });
    maps.collect::<Vec<_>>().join("\n")
}
