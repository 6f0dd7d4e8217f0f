//! All errors as one enum: each message names the thing, the fault, and the remedy.
//!
//! Foreign bytes (files, catalogs, definitions, payloads) give an `Error`; only a broken invariant of the engine's own asserts.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use crate::types::{Address, CATALOG_NAME, Timestamp};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call on a file failed.
    #[error("{}: {source}{}", path.display(), permission_hint(source))]
    Io { path: PathBuf, source: io::Error },

    /// The directory holds no Loom files.
    #[error("{} is not a Loom directory: {what}", path.display())]
    NotLoom { path: PathBuf, what: String },

    /// Another directory has taken the path of one that is open.
    #[error("another Loom directory has replaced '{}' since it was opened; repeat the query, or open the directory again", path.display())]
    Replaced { path: PathBuf },

    /// The directory was written in another format version.
    #[error("{} has format version {found}, this build reads versions {} to {}; {}", path.display(), supported.start(), supported.end(), format_remedy(*found, supported))]
    Format {
        path: PathBuf,
        found: u64,
        supported: RangeInclusive<u64>,
    },

    /// Bytes of a log that do not verify.
    #[error("{}: damaged at address {address}: {what}; `ingestd check` reports more", path.display())]
    Corrupt {
        path: PathBuf,
        address: Address,
        what: String,
    },

    /// A damaged file, as a whole or outside the logs. `what` includes the remedy, if there is one.
    #[error("{}: damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },

    /// The system refuses the memory for the content of a file.
    #[error(
        "{}: {bytes} bytes of memory are needed to read it, and the system refuses them; ask with fewer threads or for less at a time, or \
         allow the process more memory",
        path.display()
    )]
    Memory { path: PathBuf, bytes: usize },

    /// A line of the catalog that does not verify or contradicts those before it, counted from 0 and shown from 1. `of_catalog` adds the file.
    #[error("catalog, line {}: {what}", line + 1)]
    Catalog { line: u64, what: String },

    /// A definition of a source, field, index or filter that is not allowed.
    #[error("{0}")]
    Schema(String),

    /// `hint` ends the sentence: similar names, or all names.
    #[error("unknown source '{name}'; {hint}")]
    UnknownSource { name: String, hint: String },

    #[error("source '{source_name}' has no index '{name}'; {hint}")]
    UnknownIndex {
        source_name: String,
        name: String,
        hint: String,
    },

    /// A request to a source that takes no more records.
    #[error("source '{name}' is closed; define it again to reopen it")]
    SourceClosed { name: String },

    /// A payload that does not have its source's layout.
    #[error("{0}")]
    Payload(#[from] PayloadError),

    /// A record that no chunk can hold.
    #[error("a record of {bytes} payload bytes is too long; the limit is {limit} bytes")]
    TooLong { bytes: usize, limit: usize },

    /// Both staged blocks wait for the disk.
    #[error("both staged blocks are full; the disk is too slow for the records that arrive")]
    Full,

    /// A directory that does not exist yet does not fit on its disk. Sizes are in bytes.
    #[error(
        "cannot create Loom directory '{}': its first files take {} MiB, and the disk at '{}' has {} MiB free, {} MiB too few; free some space, or \
         create it with smaller files: 'ingestd run' with [log] segment in its configuration",
        dir.display(), mebibytes(*needed), disk.display(), free / MEBIBYTE, mebibytes(needed.saturating_sub(*free))
    )]
    NoRoom {
        dir: PathBuf,
        disk: PathBuf,
        free: u64,
        needed: u64,
    },

    /// Another process holds the lock of this directory.
    #[error("{} is locked by {holder}", path.display())]
    Locked { path: PathBuf, holder: LockHolder },

    /// The staging file that a live writer uses cannot be read.
    #[error("{}: the writer's staging file cannot be used: {what}", path.display())]
    Staging { path: PathBuf, what: String },

    /// Sizes of the logs that break a rule.
    #[error("{0}")]
    Options(String),

    /// The disk accepts nothing now, for example because it is full; the flusher tries again.
    #[error("cannot write to disk now, and tries again: {0}")]
    Waiting(String),

    /// The background flusher failed; nothing more can be stored until the next start.
    #[error("writing to disk failed for good: {0}; start again")]
    Flusher(String),

    /// The range was removed by retention.
    #[error(
        "{}: retention evicted address {address}, the records now begin at {begin}; query from there, or keep more with max_bytes and max_age",
        dir.display()
    )]
    Evicted {
        dir: PathBuf,
        address: Address,
        begin: Address,
    },

    /// The range was lost with staging and is known to be missing.
    #[error(
        "the range from address {from} to {to} is a gap: its records were lost with the staging file"
    )]
    Gap { from: Address, to: Address },

    /// A read past the published end.
    #[error("address {address} is past the published end {tail}")]
    PastTail { address: Address, tail: Address },

    /// The log's newest record is further ahead of the wall clock than is credible.
    #[error(
        "the newest record ({newest} ns) is more than a day ahead of the clock ({now} ns); \
         set the clock, or pass --accept-clock"
    )]
    Clock { newest: Timestamp, now: Timestamp },

    /// A query that must be complete, over a time in which records were lost.
    #[error(
        "source '{source_name}' is not complete: {what}; loom_losses() lists every loss; without \
         complete := true the query answers from the records that are there"
    )]
    Incomplete { source_name: String, what: String },

    /// An argument that a query cannot accept.
    #[error("{0}")]
    Query(String),

    /// The caller asked for a stop.
    #[error("interrupted")]
    Interrupted,
}

/// The holder of a directory's lock according to its file. Anyone who may read the directory can take the lock without an entry there.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LockHolder {
    /// The process in the file.
    Named(u32),
    /// The process in the file does not run.
    NotNamed(u32),
    Unknown,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LockHolder::Named(pid) => write!(f, "another writer, process {pid}"),
            LockHolder::NotNamed(pid) => write!(
                f,
                "another process; LOCK names process {pid}, which does not run here: `lslocks` lists the holder"
            ),
            LockHolder::Unknown => {
                f.write_str("another process, which LOCK does not name: `lslocks` lists the holder")
            }
        }
    }
}

/// A payload that contradicts its source's layout.
#[derive(Copy, Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PayloadError {
    #[error("the payload has {found} bytes, its layout needs at least {least}")]
    TooShort { found: usize, least: usize },

    #[error("the payload has {found} bytes, its layout and lengths say {expected}")]
    WrongLength { found: usize, expected: usize },

    /// Fields count from 0.
    #[error("field {field} is a bool of value {value}; only 0 and 1 are allowed")]
    NotBool { field: usize, value: u8 },
}

impl Error {
    pub fn io(path: impl Into<PathBuf>, source: io::Error) -> Error {
        Error::Io {
            path: path.into(),
            source,
        }
    }

    /// Whether the disk, a quota or the limit of a file is exhausted.
    pub fn is_for_space(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let Error::Io { source, .. } = self else {
            return false;
        };
        matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    }

    pub fn damaged(path: &Path, what: impl Into<String>) -> Error {
        Error::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    /// Whether something cannot be read or is damaged, so that other data may still answer.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Error::Corrupt { .. } | Error::Damaged { .. } | Error::Io { .. }
        )
    }

    /// Whether damaged bytes were read. Reading them again gives the same, which is not sure after a failed system call.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Error::Corrupt { .. } | Error::Damaged { .. })
    }

    /// The fault without the place.
    pub fn what(&self) -> String {
        match self {
            Error::Corrupt { what, .. } | Error::Damaged { what, .. } => what.clone(),
            Error::Io { source, .. } => source.to_string(),
            other => other.to_string(),
        }
    }

    /// Adds the directory's catalog to the error of a bad line.
    pub fn of_catalog(self, dir: &Path) -> Error {
        match self {
            Error::Catalog { line, what } => Error::Damaged {
                path: dir.join(CATALOG_NAME),
                what: format!("line {}: {what}", line + 1),
            },
            other => other,
        }
    }

    /// Reports a catalog that lost lines; `what` is the evidence.
    pub fn cut_catalog(dir: &Path, what: &str) -> Error {
        Error::Damaged {
            path: dir.join(CATALOG_NAME),
            what: format!("{what}; the records are unchanged; restore the file from a backup"),
        }
    }

    pub fn schema(message: impl Into<String>) -> Error {
        Error::Schema(message.into())
    }
}

/// Adds the path to a failed system call.
pub trait IoContext<T> {
    fn at(self, path: &Path) -> Result<T>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn at(self, path: &Path) -> Result<T> {
        self.map_err(|source| Error::io(path, source.into()))
    }
}

const MEBIBYTE: u64 = 1 << 20;

/// Rounds up to MiB.
fn mebibytes(bytes: u64) -> u64 {
    bytes.div_ceil(MEBIBYTE)
}

fn format_remedy(found: u64, supported: &RangeInclusive<u64>) -> &'static str {
    match found > *supported.end() {
        true => "install a release of Loom as new as the one that wrote it",
        false => {
            "export its records with the Loom that wrote it, and load them into a new directory"
        }
    }
}

fn permission_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "; the daemon's user may use it, and the group that its [access] group names may read it"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_catalog_is_counted_from_1_and_shown_with_its_file() {
        let what = "it is torn".to_owned();
        let error = Error::Catalog { line: 0, what };
        assert_eq!(error.to_string(), "catalog, line 1: it is torn");
        let error = error.of_catalog(Path::new("dir"));
        let expected = "dir/catalog: damaged: line 1: it is torn";
        assert_eq!(error.to_string(), expected);
    }

    #[test]
    fn failures_of_system_calls_name_their_path() {
        let failed: io::Result<()> = Err(io::Error::other("no space"));
        let error = failed
            .at(Path::new("dir/LOCK"))
            .expect_err("an error stays one");
        assert_eq!(error.to_string(), "dir/LOCK: no space");
    }

    #[test]
    fn a_refused_permission_names_the_remedy() {
        let error = Error::io("dir/loom.json", io::ErrorKind::PermissionDenied.into());
        let said = error.to_string();
        assert!(
            said.starts_with("dir/loom.json: permission denied; "),
            "{said}"
        );
        assert!(said.contains("[access] group"), "{said}");
    }
}
