//! The sink that writes the directory itself, as its only writer, and closes it as a daemon does when it stops.

use std::path::Path;
use std::time::{Duration, Instant};

use loom_engine::ingest::{Batch, Pushed, Writer, WriterOptions};
use loom_engine::schema::{LossReason, SourceDef};
use loom_engine::{Error, SourceId};

use loom_client::protocol::{Counts, Shape};

use super::losses::{Losses, Lost, reason_of_refusal};
use super::{Finished, InputBatch, Result, Sink, SinkError, find};

/// How long a load waits for a disk that takes nothing. A short shortage, for example of open files, must not end a load.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct DirectSink {
    writer: Writer,
    losses: Losses,
    counts: Counts,
}

impl DirectSink {
    pub(super) fn open(dir: &Path) -> Result<DirectSink> {
        let mut writer = match Writer::open(dir, WriterOptions::default()) {
            Err(error @ Error::Locked { .. }) => {
                return Err(SinkError::Failed(format!(
                    "{error}; it has no socket to load through; wait for it to end"
                )));
            }
            Err(error) if error.is_for_space() => {
                return Err(SinkError::Failed(format!(
                    "{error}; free some space, then load again"
                )));
            }
            writer => writer?,
        };
        let losses = Losses::open(&mut writer)?;
        Ok(Self::of(writer, losses))
    }

    pub(super) fn of(writer: Writer, losses: Losses) -> DirectSink {
        DirectSink {
            writer,
            losses,
            counts: Counts::default(),
        }
    }

    /// Adds a loss of just now; the next tick stores it.
    fn note(&mut self, lost: &Lost<'_>) {
        let now = self.writer.now();
        self.losses.note(lost, now);
    }

    /// Counts the stored and refused payloads, and adds the refused ones to the losses.
    fn count(&mut self, source: SourceId, pushed: &Pushed) {
        self.counts.received += pushed.stored + pushed.refused_count;
        self.counts.stored += pushed.stored;
        self.counts.refused += pushed.refused_count;
        let Some(last) = pushed.refused.last() else {
            return;
        };
        let payload_bytes =
            Shape::Framed.payload_bytes(pushed.taken_bytes, pushed.stored + pushed.refused_count);
        assert!(
            pushed.stored_bytes <= payload_bytes,
            "{} payload bytes were stored of {payload_bytes}",
            pushed.stored_bytes
        );
        self.note(&Lost {
            source: Some(source),
            reason: reason_of_refusal(&last.reason),
            records: pushed.refused_count,
            bytes: Some(payload_bytes - pushed.stored_bytes),
            detail: &last.reason.to_string(),
        });
    }
}

impl Sink for DirectSink {
    fn payload_bytes_max(&self) -> usize {
        self.writer.payload_bytes_max()
    }

    fn existing(&self, source: &str) -> Result<Option<SourceDef>> {
        Ok(find(self.writer.catalog(), source))
    }

    fn define(&mut self, def: &SourceDef) -> Result<SourceId> {
        Ok(self.writer.define_source(def)?)
    }

    fn push(&mut self, source: SourceId, batch: &InputBatch) -> Result<Vec<(u64, String)>> {
        let mut refused = Vec::new();
        let mut rest = batch.bytes.as_slice();
        let mut taken = 0;
        let mut stuck_since = None;
        while !rest.is_empty() {
            let pushed = self
                .writer
                .try_push_batch(source, &Batch::Framed { bytes: rest })?;
            let reasons = pushed.refused.iter();
            refused.extend(reasons.map(|refused| {
                let row = batch.row_of(taken + refused.ordinal);
                (row, refused.reason.to_string())
            }));
            rest = rest.get(pushed.taken_bytes..).unwrap_or_default();
            taken += pushed.stored + pushed.refused_count;
            self.count(source, &pushed);
            self.tick()?;
            if rest.is_empty() || self.writer.wait_for_room()? {
                continue;
            }
            // If the flusher is only slow, it reports no trouble.
            let Some(why) = self.writer.trouble() else {
                stuck_since = None;
                continue;
            };
            if stuck_since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                let InputBatch {
                    input, row_noun, ..
                } = batch;
                let row = batch.row_of(taken);
                return Err(SinkError::Failed(format!(
                    "cannot store {row_noun} {row} of {input} and the rows after it: {why}; the rows before it are kept; free some space, then load \
                     the others"
                )));
            }
        }
        Ok(refused)
    }

    fn note_refused(&mut self, source: SourceId, rows: u32, reason: &str) -> Result<()> {
        self.note(&Lost {
            source: Some(source),
            reason: LossReason::Malformed,
            records: rows.into(),
            bytes: None,
            detail: reason,
        });
        Ok(())
    }

    fn tick(&mut self) -> Result<()> {
        self.losses.settle(&mut self.writer);
        Ok(self.writer.tick()?)
    }

    fn finish(self: Box<Self>) -> (Finished, Result<()>) {
        let DirectSink {
            mut writer,
            mut losses,
            counts,
        } = *self;
        let finished = Finished {
            counts,
            ..Finished::default()
        };
        let recorded = losses.finish(&mut writer);
        let closed = match recorded.and_then(|()| writer.close()) {
            Err(Error::Waiting(why)) => Err(SinkError::Failed(format!(
                "cannot write all of the stored rows to disk: {why}; the others are in shared memory, and the next load or daemon on the \
                 directory writes them: free some space, and start one before the host restarts"
            ))),
            Err(error) => Err(SinkError::Failed(format!(
                "cannot close the directory: {error}"
            ))),
            Ok(()) => Ok(()),
        };
        (finished, closed)
    }
}
