//! The segment files that a thread has open for reading: at most two, so that evicted segments give their space back.

use std::cell::RefCell;

use crate::error::Result;
use crate::log::files::open_segment::OpenSegment;
use crate::types::{Address, LogKind};

const OPEN_MAX: usize = 2;

/// Identifies a file. `view` is unique to a reader and its epoch, so a file of an earlier epoch is never taken for one of this.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct SegmentKey {
    pub view: u64,
    pub log: LogKind,
    pub first: Address,
}

thread_local! {
    /// The most recently used first.
    static OPEN: RefCell<Vec<(SegmentKey, OpenSegment)>> = const { RefCell::new(Vec::new()) };
}

/// Returns the thread's open file of that key, or opens it with `open`. It opens a removed file again, because another generation may have its place; if none
/// has, it was evicted, and the open file still serves.
pub fn open_segment(
    key: SegmentKey,
    open: impl FnOnce() -> Result<OpenSegment>,
) -> Result<OpenSegment> {
    let held = OPEN.with_borrow_mut(|files| {
        let at = files.iter().position(|(other, _)| *other == key)?;
        Some(files.remove(at).1)
    });
    // Room comes first, so that there are never more than the limit.
    OPEN.with_borrow_mut(|files| files.truncate(OPEN_MAX - 1));
    let segment = match held {
        Some(segment) if segment.is_removed()? => open().unwrap_or(segment),
        Some(segment) => segment,
        None => open()?,
    };
    OPEN.with_borrow_mut(|files| files.insert(0, (key, segment.clone())));
    Ok(segment)
}

/// Closes the thread's open files of a view.
pub fn forget_view(view: u64) {
    OPEN.with_borrow_mut(|files| files.retain(|(key, _)| key.view != view));
}
