//! `unrecorded`: the file of a directory in which its writer keeps what was refused or dropped and has no record in `loom_losses` yet.
//!
//! The daemon and a load write it; whoever lists what is missing reads it. It is made whole, with a slot that verifies, before it has its name:
//! a file in which none does was damaged. Which of its entries the log holds by now, `Snapshot::without_recorded` says.

mod entry;
mod slots;

pub use entry::Entry;
pub use slots::{FILE_BYTES, SLOT_BYTES, Slots};

use std::path::Path;

use crate::error::{Error, Result};
use crate::log::storage::{OpenMode, OsStorage, Storage, is_not_found, read_at};

/// The file's name in its directory.
pub const FILE_NAME: &str = "unrecorded";

/// While a writer goes through both slots, one that reads them in turn may see each half-written.
const READS_MOST: usize = 16;

/// What the file of a directory says now; nothing where there is none.
///
/// # Errors
/// What it says cannot be known: it is damaged, or not to be read by this user.
pub fn read(dir: &Path, uuid: [u8; 16]) -> Result<Vec<Entry>> {
    find(dir, uuid, 1).map(|(entries, _)| entries)
}

/// As `read`, and how many slots are damaged: where one is, it may have been the newer.
///
/// # Errors
/// As `read`.
pub fn examine(dir: &Path, uuid: [u8; 16]) -> Result<(Vec<Entry>, usize)> {
    find(dir, uuid, 0)
}

/// Reads until at most so many slots seem damaged, or long enough to know that they are.
fn find(dir: &Path, uuid: [u8; 16], damaged_most: usize) -> Result<(Vec<Entry>, usize)> {
    let path = dir.join(FILE_NAME);
    let mut found = None;
    let slots = Slots::of_this_boot(uuid)?;
    for _ in 0..READS_MOST {
        let file = match OsStorage.open(&path, OpenMode::Read) {
            Err(error) if is_not_found(&error) => return Ok((Vec::new(), 0)),
            file => file?,
        };
        let mut bytes = vec![0; FILE_BYTES];
        read_at(&*file, &mut bytes, 0)?;
        let (sequence, entries) = slots.decode(&bytes);
        if sequence > 0 {
            let damaged = slots.damaged(&bytes);
            if damaged <= damaged_most {
                return Ok((entries, damaged));
            }
            found = Some((entries, damaged));
        }
    }
    found.ok_or_else(|| Error::Damaged {
        path,
        what: "neither of its slots verifies; the next start enters a loss of unknown number and writes it anew".to_owned(),
    })
}
