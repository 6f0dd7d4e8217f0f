//! Finds the file of a program or library by its name, and the file with its debug symbols.

use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Lists the libraries of this machine, for its loader. Their paths are among its texts, which NULs end.
const LOADER_CACHE: &str = "/etc/ld.so.cache";
const LIBRARY_FOLDERS: [&str; 5] = ["/lib64", "/usr/lib64", "/usr/local/lib", "/usr/lib", "/lib"];
const DEBUG_ROOT: &str = "/usr/lib/debug";

/// The file of a path or of a name such as `redis-server`, `libssl.so` or `libc`: a file that a process of `pids` has mapped, one in this folder, a library,
/// or a program of `PATH`. The path has a slash.
pub(crate) fn find(name: &str, pids: &[u32]) -> Option<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return path.is_file().then_some(path);
    }
    let mapped = pids.iter().flat_map(|pid| mapped(*pid));
    let cache = std::fs::read(LOADER_CACHE).unwrap_or_default();
    let cached = cache
        .split(|byte| *byte == 0)
        .filter(|text| text.starts_with(b"/"))
        .map(|text| Path::new(std::ffi::OsStr::from_bytes(text)).to_owned());
    let in_folders = LIBRARY_FOLDERS.iter().flat_map(entries);
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let programs = std::env::split_paths(&paths).map(|folder| folder.join(name));
    let here = [Path::new(".").join(name)];
    let others = here.into_iter().chain(cached);
    let others = others.chain(in_folders).chain(programs);
    first_named(mapped, name).or_else(|| first_named(others, name))
}

/// The first file with exactly this name, or the first that has it with a version.
fn first_named(paths: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    let mut candidates = paths.filter(|path| is_named(path, name) && path.is_file());
    let first = candidates.next()?;
    let is_exact = |path: &PathBuf| path.file_name() == Some(name.as_ref());
    if is_exact(&first) {
        return Some(first);
    }
    Some(candidates.find(is_exact).unwrap_or(first))
}

/// A part of a file, or of memory without one, that a process has mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) addresses: Range<u64>,
    /// The place of the first address in the file.
    pub(crate) offset: u64,
    /// A path, the name of a part without a file such as `[vdso]`, or nothing.
    pub(crate) name: String,
}

impl Mapping {
    fn of(line: &str) -> Option<Mapping> {
        let mut words = line.splitn(6, ' ');
        let (addresses, _, offset) = (words.next()?, words.next()?, words.next()?);
        let number = |text| u64::from_str_radix(text, 16).ok();
        let (start, end) = addresses.split_once('-')?;
        Some(Mapping {
            addresses: number(start)?..number(end)?,
            offset: number(offset)?,
            name: words.nth(2).unwrap_or_default().trim_start().to_owned(),
        })
    }

    /// The paths of the file for a process: its own, which leads there from another mount namespace until it ends, and the same path here.
    pub(crate) fn files(&self, pid: u32) -> Option<[PathBuf; 2]> {
        let path = self.name.strip_prefix('/')?;
        Some([format!("/proc/{pid}/root/{path}"), format!("/{path}")].map(PathBuf::from))
    }
}

/// The parts that a process has mapped, by their addresses.
pub(crate) fn mappings(pid: u32) -> Vec<Mapping> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps.lines().filter_map(Mapping::of).collect()
}

/// The files that a process has mapped, by paths that also lead there from another mount namespace.
fn mapped(pid: u32) -> Vec<PathBuf> {
    let path_of = |mapping: Mapping| {
        let [own, outside] = mapping.files(pid)?;
        Some(if own.is_file() { own } else { outside })
    };
    let mut paths: Vec<_> = mappings(pid).into_iter().filter_map(path_of).collect();
    paths.dedup();
    paths
}

fn entries(folder: &&str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Whether a file has this name, perhaps with a version or `.so` behind it.
fn is_named(path: &Path, name: &str) -> bool {
    let file = path.file_name().and_then(|file| file.to_str());
    let Some(rest) = file.and_then(|file| file.strip_prefix(name)) else {
        return false;
    };
    let is_library = name.contains(".so");
    rest.is_empty() || rest.starts_with(if is_library { "." } else { ".so" })
}

/// The files that may have the symbols of a stripped file, by its build id and by the name that it gives.
pub(crate) fn debug_files(path: &Path, build_id: &[u8], link: &[u8]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    if let Some((first, rest)) = build_id.split_first() {
        let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
        files.push(format!("{DEBUG_ROOT}/.build-id/{first:02x}/{rest}.debug").into());
    }
    // The path of a file in another mount namespace leads there only as it is.
    let real = path.canonicalize().unwrap_or_default();
    for folder in [path, &real].into_iter().filter_map(Path::parent) {
        if link.is_empty() {
            break;
        }
        let link = std::ffi::OsStr::from_bytes(link);
        files.push(folder.join(link));
        files.push(folder.join(".debug").join(link));
        let below = folder.strip_prefix("/").unwrap_or(folder);
        files.push(Path::new(DEBUG_ROOT).join(below).join(link));
    }
    files.retain(|file| file.is_file());
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_named_with_or_without_its_version() {
        let is = |path: &str, name: &str| is_named(Path::new(path), name);
        assert!(is("/lib/libssl.so.3", "libssl.so.3") && is("/lib/libssl.so.3", "libssl.so"));
        assert!(is("/lib/libssl.so.3", "libssl") && is("/usr/bin/env", "env"));
        assert!(!is("/lib/libssl.so.3", "libs") && !is("/lib/libssl3.so", "libssl"));
        assert!(!is("/usr/bin/redis-server", "redis"));
    }

    #[test]
    fn the_library_that_this_process_has_mapped_is_found_by_its_name() {
        let found = find("libc.so.6", &[std::process::id()]).unwrap();
        assert!(found.starts_with("/proc") && found.ends_with("libc.so.6"));
        assert_eq!(find("no-such-program", &[]), None);
    }

    #[test]
    fn a_mapping_has_its_addresses_its_place_in_the_file_and_its_name() {
        let of = |line| Mapping::of(line).unwrap();
        let file = of("7f0a-7f1b r-xp 00002000 fe:00 4242                      /a b/c");
        assert_eq!((file.addresses, file.offset), (0x7f0a..0x7f1b, 0x2000));
        assert_eq!(file.name, "/a b/c");
        assert_eq!(of("7f0a-7f1b r-xp 0 00:00 0 [vdso]").name, "[vdso]");
        assert_eq!(of("7f0a-7f1b rw-p 0 00:00 0 ").files(1), None);
    }

    #[test]
    fn debug_symbols_are_sought_by_build_id() {
        assert!(debug_files(Path::new("/usr/bin/env"), &[0, 1, 2], b"").is_empty());
    }
}
