//! Forgets sources with their records, so that the catalog is as large as what the log retains, whoever sent what before.
//!
//! The writer thread looks after retention did; the engine rewrites the catalog.

use std::time::{Duration, Instant};

use loom_engine::ingest::Writer;
use loom_engine::schema::Source;

const LOOK: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(60);

pub(super) struct Forgetting {
    /// Which sources may be forgotten.
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

    /// Rewrites the catalog where much of it is of series that are gone.
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
                "{dir}: the catalog forgot series of which nothing is retained, and takes {after} bytes instead of {before}"
            ),
            Err(error) => {
                self.due = now + RETRY;
                tracing::warn!("{dir}: cannot forget series of which nothing is retained: {error}");
            }
        }
    }
}
