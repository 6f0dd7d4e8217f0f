//! The places of an archive's files: a folder for each source, date and hour, as Hive names them, and a file by the address of its first record.
//!
//! A source may be called `../x`, so its folder's name is encoded. Readers ignore names that start with `_`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, bail};
use jiff::tz::Offset;
use loom_engine::{Address, Timestamp};

use crate::output::path_part::path_part;

/// The longest name that a file system takes.
const NAME_BYTES_MAX: usize = 255;
const FOLDER_KEY: &str = "source=";
const HOUR_NS: i64 = 3_600_000_000_000;
const SUFFIX: &str = ".parquet";
/// The folder of files that no commit names and that may be the only copy of their records.
pub(super) const ASIDE: &str = "_left_over";
/// Enough for every address, so that names sort as addresses do.
const ADDRESS_DIGITS: usize = 20;

/// The hour of a time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) struct Hour(i64);

impl Hour {
    pub fn of(time: Timestamp) -> Hour {
        Hour(time.0.div_euclid(HOUR_NS))
    }

    /// Its folders, below the source's.
    fn folders(self) -> String {
        let start = jiff::Timestamp::from_second(self.0 * 3600);
        let start =
            Offset::UTC.to_datetime(start.expect("64 bits of nanoseconds end within the calendar"));
        format!(
            // Without zeros in front, which some readers take for text.
            "loom_date={}/loom_hour={}",
            start.date(),
            start.time().hour()
        )
    }
}

/// The folder of a source. The end of a long name becomes a checksum.
pub(super) fn source_folder(name: &str) -> String {
    let part = path_part(name, NAME_BYTES_MAX - FOLDER_KEY.len());
    format!("{FOLDER_KEY}{part}")
}

/// Refuses a path where no archive can be: a file, and a Loom directory or a folder inside one.
pub(super) fn require_outside(archive: &Path) -> anyhow::Result<()> {
    if archive.exists() && !archive.is_dir() {
        bail!(
            "cannot archive into '{}': it is not a folder; give --to a folder",
            archive.display()
        );
    }
    let failed = || format!("cannot find '{}'", archive.display());
    let absolute = std::path::absolute(archive).with_context(failed)?;
    // A path that does not exist yet belongs to the nearest folder that does.
    let existing = absolute.ancestors().find(|path| path.exists());
    let real = fs::canonicalize(existing.unwrap_or(&absolute)).with_context(failed)?;
    if let Some(dir) = real
        .ancestors()
        .find(|path| path.join("loom.json").exists())
    {
        bail!(
            "cannot archive into '{}': the Loom directory '{}' may not hold other files; give --to a folder outside",
            archive.display(),
            dir.display()
        );
    }
    Ok(())
}

/// Refuses a folder with files of others; `manifest` is the name of the missing file.
pub(super) fn require_empty(archive: &Path, manifest: &str) -> anyhow::Result<()> {
    // A run that was killed before its first commit has left such names.
    let own = |name: &String| name.starts_with("./_");
    if let Some(other) = children(archive, ".")?.iter().find(|name| !own(name)) {
        bail!(
            "'{}' holds '{}' and no {manifest}, so it is not an archive; give --to an empty folder",
            archive.display(),
            other.trim_start_matches("./")
        );
    }
    Ok(())
}

/// A file of a source, by its hour and the least address in it.
pub(super) fn file(folder: &str, hour: Hour, least: Address) -> String {
    let (hour, least) = (hour.folders(), least.0);
    format!("{folder}/{hour}/{least:0ADDRESS_DIGITS$}{SUFFIX}")
}

/// Puts a file in its place, and makes its name durable.
pub(super) fn move_in(archive: &Path, from: &Path, file: &str) -> anyhow::Result<()> {
    let to = archive.join(file);
    let failed = || format!("cannot write '{}'", to.display());
    let folder = to.parent().with_context(failed)?;
    fs::create_dir_all(folder).with_context(failed)?;
    fs::rename(from, &to).with_context(failed)?;
    for folder in folder
        .ancestors()
        .take_while(|folder| folder.starts_with(archive))
    {
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.with_context(failed)?;
    }
    Ok(())
}

/// Replaces a small file of the archive as a whole; durable when this returns.
pub(super) fn replace(path: &Path, text: &str) -> anyhow::Result<()> {
    let fresh = path.with_added_extension("new");
    let write = || {
        let mut file = File::create(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
    };
    write().with_context(|| format!("cannot write '{}'", path.display()))
}

/// The folders of all sources that have one.
pub(super) fn source_folders(archive: &Path) -> anyhow::Result<Vec<String>> {
    let all = children(archive, ".")?.into_iter();
    let all = all.filter_map(|name| name.strip_prefix("./").map(str::to_owned));
    Ok(all.filter(|name| name.starts_with(FOLDER_KEY)).collect())
}

/// Removes the files of a source's folder that the archiver wrote and no commit names; all below `position` are named. A file with records that the log, which
/// begins at `begin`, no longer has may be the only copy, such as beside a manifest from a backup: it is kept aside. Returns these.
pub(super) fn remove_left_over(
    archive: &Path,
    folder: &str,
    position: Address,
    begin: Address,
    named: &BTreeSet<&str>,
) -> anyhow::Result<Vec<String>> {
    let mut kept = Vec::new();
    for date in children(archive, folder)? {
        for hour in children(archive, &date)? {
            for file in children(archive, &hour)? {
                if named.contains(file.as_str()) {
                    continue;
                }
                let path = archive.join(&file);
                let aside = archive.join(ASIDE);
                match address(&file) {
                    Some(address) if address >= position.0.max(begin.0) => {
                        fs::remove_file(&path)
                            .with_context(|| format!("cannot remove '{}'", path.display()))?;
                    }
                    Some(address) if address >= position.0 && !aside.join(&file).exists() => {
                        move_in(&aside, &path, &file)?;
                        kept.push(file);
                    }
                    _ => bail!(
                        "'{}' is in the archive and not in its manifest; readers would read it as a part: move it away",
                        path.display()
                    ),
                }
            }
        }
    }
    Ok(kept)
}

/// The address in a file's name.
fn address(file: &str) -> Option<u64> {
    let (_, name) = file.rsplit_once('/')?;
    let digits = name.strip_suffix(SUFFIX)?;
    (digits.len() == ADDRESS_DIGITS)
        .then(|| digits.parse().ok())
        .flatten()
}

/// The names in a folder of the archive, as paths from the archive.
fn children(archive: &Path, folder: &str) -> anyhow::Result<Vec<String>> {
    let path = archive.join(folder);
    let failed = || format!("cannot read '{}'", path.display());
    let entries = match fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(failed),
    };
    entries
        .map(|entry| {
            let name = entry.with_context(failed)?.file_name();
            Ok(format!("{folder}/{}", name.display()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_one_folder_whatever_its_name() {
        assert_eq!(source_folder("redis_request"), "source=redis_request");
        assert_eq!(source_folder("../x"), "source=%2E%2E%2Fx");
        assert_eq!(source_folder("a=ä"), "source=a%3D%C3%A4");
        // A name that fits is kept; a longer one ends in the checksum of the whole name.
        let fits = "x".repeat(248);
        assert_eq!(source_folder(&fits), format!("source={fits}"));
        let long = ["y", "z"].map(|end| source_folder(&(fits.clone() + end)));
        assert_ne!(long[0], long[1]);
        assert!(long.iter().all(|folder| folder.len() == 255));
    }

    #[test]
    fn a_file_stands_in_the_hour_of_its_records() {
        let file = |ns| file("source=s", Hour::of(Timestamp(ns)), Address(42));
        let name = "00000000000000000042.parquet";
        assert_eq!(
            file(0),
            format!("source=s/loom_date=1970-01-01/loom_hour=0/{name}")
        );
        assert_eq!(
            file(-1),
            format!("source=s/loom_date=1969-12-31/loom_hour=23/{name}")
        );
        assert_eq!(
            file(i64::MAX),
            format!("source=s/loom_date=2262-04-11/loom_hour=23/{name}")
        );
        assert_eq!(
            file(i64::MIN),
            format!("source=s/loom_date=1677-09-21/loom_hour=0/{name}")
        );
        assert_eq!(address(&file(0)), Some(42));
        assert_eq!(address("source=s/loom_date=x/loom_hour=y/42.parquet"), None);
    }
}
