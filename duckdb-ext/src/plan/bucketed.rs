//! The calls whose rows go by buckets of time. Each execution looks up the source again, settles the window and reads some buckets at a time.

use std::sync::Arc;

use loom_engine::query::Poll;

use super::ambient::Ambient;
use super::buckets::{Buckets, Window};
use super::clause::Clause;
use super::columns::Column;
use super::function::{Bound, Plan};
use super::part::Part;
use super::selection::Selection;
use super::stats;
use crate::error::Result;
use crate::exec::cells::{Cell, Pieces, TableRun};
use crate::exec::run::Run;

/// Returns the rows of the next buckets; `None` after the last.
pub type NextRows = Box<dyn FnMut(&Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>> + Send>;

struct BucketedPlan<S> {
    selection: Selection,
    buckets: Buckets,
    columns: Vec<Column>,
    start: S,
}

/// A bound call; `start` begins an execution over the parts and the window of that moment.
pub fn bound<S>(selection: Selection, buckets: Buckets, columns: Vec<Column>, start: S) -> Bound
where
    S: Fn(&[Part], &Window, &Ambient<'_>) -> Result<NextRows> + Send + Sync + 'static,
{
    Box::new(BucketedPlan {
        selection,
        buckets,
        columns,
        start,
    })
}

impl<S> Plan for BucketedPlan<S>
where
    S: Fn(&[Part], &Window, &Ambient<'_>) -> Result<NextRows> + Send + Sync,
{
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn prunes(&self) -> bool {
        true
    }

    fn offer(&self, clause: Clause) {
        self.buckets.offered.set(clause);
    }

    fn start(&self, projected: &[usize], ambient: &Ambient<'_>) -> Result<Arc<dyn Run>> {
        let parts = self.selection.now(ambient)?;
        let window = self.buckets.now(&self.selection, &parts, ambient)?;
        let next = (self.start)(&parts, &window, ambient)?;
        Ok(TableRun::of(BucketPieces { next, parts }, projected))
    }
}

struct BucketPieces {
    next: NextRows,
    parts: Vec<Part>,
}

impl Pieces for BucketPieces {
    fn next(&mut self, poll: &Poll<'_>) -> Result<Option<Vec<Vec<Cell>>>> {
        (self.next)(poll)
    }
}

impl Drop for BucketPieces {
    fn drop(&mut self) {
        stats::remember_all(&self.parts);
    }
}
