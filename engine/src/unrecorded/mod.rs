//! `unrecorded`: the file of a directory in which its writer keeps what was refused or dropped and has no record in `loom_losses` yet.
//!
//! The daemon and a load write it; whoever lists what is missing reads it. It is made whole, with a slot that verifies, before it has its name:
//! a file in which none does was damaged. Which of its entries the log holds by now, `Snapshot::without_recorded` says.

mod entry;
mod kept;
mod slots;

pub use entry::Entry;
pub use kept::{Condition, Kept};
pub use slots::{FILE_BYTES, MARK_BYTES, SLOT_BYTES, Slots};

use std::path::Path;

use crate::error::Result;
use crate::log::storage::{OpenMode, OsStorage, Storage, is_not_found, read_at};

/// The file's name in its directory.
pub const FILE_NAME: &str = "unrecorded";

/// While a writer goes through both slots, one that reads them in turn may see each half-written.
const READS_MOST: usize = 16;

/// What the file of a directory says now; nothing where there is none.
///
/// # Errors
/// What it says cannot be known: it is not to be read by this user, or no file.
pub fn read(dir: &Path, uuid: [u8; 16]) -> Result<Kept> {
    let path = dir.join(FILE_NAME);
    let slots = Slots::of_this_boot(uuid)?;
    let mut found = Kept::default();
    for _ in 0..READS_MOST {
        let file = match OsStorage::default().open(&path, OpenMode::Read) {
            Err(error) if is_not_found(&error) => return Ok(Kept::none()),
            file => file?,
        };
        let mut bytes = vec![0; FILE_BYTES];
        read_at(&*file, &mut bytes, 0)?;
        found = slots.decode(&bytes);
        if found.condition == Condition::Sound {
            break;
        }
    }
    Ok(found)
}
