//! The segment files that a thread has open for reading: at most two, whatever it reads, so that evicted segments give their space back.

use std::cell::RefCell;
use std::sync::Arc;

use crate::error::Result;
use crate::log::files::storage::StorageFile;
use crate::types::{Address, LogKind};

const OPEN_MAX: usize = 2;

/// Which file: `view` is unique to a reader and to what it is attached to, so a file of an earlier epoch is never taken for one of this.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SegmentKey {
    pub view: u64,
    pub log: LogKind,
    pub first: Address,
}

/// After so many uses there is a look whether the file was removed, which takes a fifth of the time of a short read.
const USES_BETWEEN_LOOKS: u32 = 16;

struct OpenFile {
    key: SegmentKey,
    file: Arc<dyn StorageFile>,
    /// Since there was a look.
    uses: u32,
}

thread_local! {
    /// The most recently used first.
    static OPEN: RefCell<Vec<OpenFile>> = const { RefCell::new(Vec::new()) };
}

/// The thread's open file of that key, opened with `open` where it is not. A file that is found removed is opened again, since another generation may
/// have its place; if none has, it was evicted, and what this thread has of it still serves. What stands at an address never changes, so a few reads more
/// of a file that was removed give the same bytes, or too few.
pub fn open_segment(
    key: SegmentKey,
    open: impl FnOnce() -> Result<Arc<dyn StorageFile>>,
) -> Result<Arc<dyn StorageFile>> {
    let held = OPEN.with_borrow_mut(|files| {
        let at = files.iter().position(|open| open.key == key)?;
        Some(files.remove(at))
    });
    // Room first, so that there are never more than the limit.
    OPEN.with_borrow_mut(|files| files.truncate(OPEN_MAX - 1));
    let (file, uses) = match held {
        Some(held) if held.uses < USES_BETWEEN_LOOKS => (held.file, held.uses + 1),
        Some(held) if held.file.is_removed()? => (open().unwrap_or(held.file), 0),
        Some(held) => (held.file, 0),
        None => (open()?, 0),
    };
    let held = OpenFile {
        key,
        file: Arc::clone(&file),
        uses,
    };
    OPEN.with_borrow_mut(|files| files.insert(0, held));
    Ok(file)
}

/// Closes what the thread has open of a view.
pub fn forget_view(view: u64) {
    OPEN.with_borrow_mut(|files| files.retain(|open| open.key.view != view));
}
