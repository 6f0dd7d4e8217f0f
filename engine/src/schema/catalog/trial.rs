//! Changes that can be undone. During a change the replaced sources are kept, so undoing needs no copy of the catalog, which may have tens
//! of thousands of sources.

use std::sync::Arc;

use super::{Catalog, Source};
use crate::error::Result;
use crate::proven;
use crate::types::Address;

/// The changes in progress, each within the one before.
#[derive(Clone, Debug, Default)]
pub(super) struct Trials {
    marks: Vec<Mark>,
    /// The sources that were replaced since the outermost change began, in order.
    replaced: Vec<Arc<Source>>,
}

/// The state of the catalog when a change began.
#[derive(Clone, Debug)]
struct Mark {
    replaced: usize,
    source_count: usize,
    index_count: usize,
    event_count: u64,
    latest_at: Address,
    parts: usize,
}

impl Catalog {
    /// Makes a change, undoes it, and returns its result.
    pub fn plan<T>(&mut self, change: impl FnOnce(&mut Catalog) -> Result<T>) -> Result<T> {
        self.begin_trial();
        let planned = change(self);
        self.take_back();
        planned
    }

    /// Makes a whole change, or none of it if a part is refused.
    pub(super) fn attempt<T>(
        &mut self,
        change: impl FnOnce(&mut Catalog) -> Result<T>,
    ) -> Result<T> {
        self.begin_trial();
        let made = change(self);
        match made {
            Ok(_) => drop(self.trials.end()),
            Err(_) => self.take_back(),
        }
        made
    }

    fn begin_trial(&mut self) {
        self.trials.marks.push(Mark {
            replaced: self.trials.replaced.len(),
            source_count: self.sources.len(),
            index_count: self.index_sources.len(),
            event_count: self.event_count,
            latest_at: self.latest_at,
            parts: self.parts,
        });
    }

    fn take_back(&mut self) {
        let replaced = match self.trials.marks.last() {
            Some(mark) => self.trials.replaced.split_off(mark.replaced),
            None => Vec::new(),
        };
        let Some(mark) = self.trials.end() else {
            return;
        };
        if self.event_count == mark.event_count {
            return;
        }
        let sources = Arc::make_mut(&mut self.sources);
        let ids = Arc::make_mut(&mut self.ids);
        for added in sources.drain(mark.source_count..) {
            ids.remove(&added.name);
        }
        // The first kept version of a source is the one from when the change began.
        for source in replaced.into_iter().rev() {
            let position = usize::from(source.id.0) - 1;
            *proven::at_mut(sources, position) = source;
        }
        Arc::make_mut(&mut self.index_sources).truncate(mark.index_count);
        self.event_count = mark.event_count;
        self.latest_at = mark.latest_at;
        self.parts = mark.parts;
    }
}

impl Trials {
    /// Keeps a source that is about to be replaced, if it may have to be restored.
    pub(super) fn keep(&mut self, source: &Arc<Source>) {
        let Some(mark) = self.marks.last() else {
            return;
        };
        let since = proven::at(&self.replaced, mark.replaced..);
        let is_kept = since.last().is_some_and(|kept| kept.id == source.id);
        if !is_kept && usize::from(source.id.0) <= mark.source_count {
            self.replaced.push(Arc::clone(source));
        }
    }

    fn end(&mut self) -> Option<Mark> {
        let mark = self.marks.pop();
        if self.marks.is_empty() {
            self.replaced.clear();
        }
        mark
    }
}
