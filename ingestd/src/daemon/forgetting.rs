//! Forgets sources with their records, so that the catalog grows with the retained log alone.
//!
//! The writer thread looks after retention; the engine rewrites the catalog.

use std::time::{Duration, Instant};

use loom_engine::ingest::Writer;
use loom_engine::schema::Source;

const LOOK: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(60);

pub(super) struct Forgetting {
    /// Chooses the sources that may be forgotten.
    is_forgettable: fn(&Source) -> bool,
    due: Instant,
}

impl Forgetting {
    pub(super) fn new(is_forgettable: fn(&Source) -> bool) -> Forgetting {
        Forgetting {
            is_forgettable,
            due: Instant::now(),
        }
    }

    /// Rewrites the catalog if much of it is of series that are gone.
    pub(super) fn look(&mut self, writer: &mut Writer) {
        let now = Instant::now();
        if now < self.due {
            return;
        }
        let before = writer.catalog_bytes();
        let forgot = writer.forget(self.is_forgettable);
        let (dir, after) = (writer.dir().display(), writer.catalog_bytes());
        self.due = now + LOOK;
        match forgot {
            Ok(false) => {}
            Ok(true) => tracing::info!(
                "{dir}: the catalog forgot series without retained records, and takes {after} bytes instead of {before}"
            ),
            Err(error) => {
                self.due = now + RETRY;
                tracing::warn!("{dir}: cannot forget series without retained records: {error}");
            }
        }
    }
}
