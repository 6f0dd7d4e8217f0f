//! Forgets the series of targets and senders with their records, so that the catalog is as large as what the log retains, whoever sent what before.
//!
//! The writer thread looks after retention did; the engine rewrites the catalog.

use std::time::{Duration, Instant};

use loom_engine::ingest::Writer;
use loom_engine::schema::{FieldDef, Source, TimeKind};

/// How the name of every source begins that holds series of a target or a sender.
pub(super) const SERIES_PREFIX: &str = "metrics/";
const LOOK: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(60);

pub(super) struct Forgetting {
    due: Instant,
}

impl Forgetting {
    pub(super) fn new() -> Forgetting {
        Forgetting {
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
        let forgot = writer.forget(is_forgettable);
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

/// Whether a source holds series, or nothing yet.
pub(super) fn holds_series(source: &Source) -> bool {
    let is_series = |field: &FieldDef| field.nullable && !field.series.is_empty();
    source.time == TimeKind::Own && source.fields.iter().all(is_series)
}

/// Whether a source may be forgotten with its records. One that was closed stays so.
pub(super) fn is_forgettable(source: &Source) -> bool {
    let is_named = source.name.starts_with(SERIES_PREFIX) && !source.fields.is_empty();
    is_named && source.is_open() && holds_series(source)
}
