//! Whether the directory is still where the daemon opened it. Once it is removed or moved, nobody finds what the daemon records.
//!
//! The writer thread looks regularly; syncs fail and the status says why until the directory is back.

use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the daemon looks.
const LOOK: Duration = Duration::from_millis(500);

pub(super) struct Home {
    dir: PathBuf,
    id: Id,
    looked: Instant,
    /// What is wrong, while something is.
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

    /// Looks when it is time to, and logs a change.
    pub(super) fn look(&mut self) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let found = match id_of(&self.dir) {
            Ok(id) if id == self.id => None,
            Ok(_) => Some("was replaced by another directory".to_owned()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Some("was removed or moved away".to_owned())
            }
            Err(error) => Some(format!("cannot be reached: {error}")),
        };
        let dir = self.dir.display();
        let trouble = found.map(|what| {
            format!(
                "the Loom directory {dir} {what}, so new records are lost; move it back, or stop this daemon and start it again"
            )
        });
        match (&self.trouble, &trouble) {
            (before, Some(now)) if before.as_ref() != Some(now) => tracing::error!("{now}"),
            (Some(_), None) => tracing::info!("the Loom directory {dir} is back"),
            _ => {}
        }
        self.trouble = trouble;
    }
}

fn id_of(dir: &Path) -> io::Result<Id> {
    let found = std::fs::metadata(dir)?;
    Ok(Id(found.dev(), found.ino()))
}
