//! Checks that the directory is still where the daemon opened it. Once it is removed or moved, nobody finds the records.
//!
//! After that, syncs fail and the status says why until the daemon is started again, even if the directory
//! comes back: files may be missing from the time between.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The interval between checks.
const LOOK: Duration = Duration::from_millis(500);

pub(super) struct Home {
    dir: PathBuf,
    id: Id,
    looked: Instant,
    /// The accident that the directory had.
    trouble: Option<String>,
}

/// Device and inode.
#[derive(Copy, Clone, PartialEq, Eq)]
struct Id(u64, u64);

impl Home {
    pub(super) fn of(dir: &Path) -> io::Result<Home> {
        Ok(Home {
            dir: dir.to_owned(),
            id: id_of(dir)?,
            looked: Instant::now(),
            trouble: None,
        })
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Checks when it is time to, and logs once that the directory is gone.
    pub(super) fn look(&mut self) {
        if self.trouble.is_some() || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let what = match id_of(&self.dir) {
            Ok(id) if id == self.id => return,
            Ok(_) => "was replaced by another directory".to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                "was removed or moved away".to_owned()
            }
            Err(error) => format!("cannot be reached: {error}"),
        };
        let message = format!(
            "the Loom directory {} {what}; move it back if you can, and restart this daemon: until then new records may be lost",
            self.dir.display()
        );
        tracing::error!("{message}");
        self.trouble = Some(message);
    }
}

fn id_of(dir: &Path) -> io::Result<Id> {
    let found = std::fs::metadata(dir)?;
    Ok(Id(found.dev(), found.ino()))
}
