//! Into the directory itself: this process is its one writer, and leaves it as a clean stop does.

use std::path::Path;

use anyhow::Context;
use loom_engine::ingest::{Batch, Writer, WriterOptions};
use loom_engine::schema::{LossReason, SourceDef};
use loom_engine::{Error, SourceId};

use super::{Finished, Sink};
use crate::input::InputBatch;
use crate::losses::{Losses, Lost, reason_of_refusal};
use crate::protocol::{Counts, Shape};

pub(super) struct DirectSink {
    writer: Writer,
    losses: Losses,
    counts: Counts,
}

impl DirectSink {
    pub(super) fn open(dir: &Path) -> anyhow::Result<DirectSink> {
        let mut writer = match Writer::open(dir, WriterOptions::default()) {
            Err(error @ Error::Locked { .. }) => {
                anyhow::bail!("{error}; it has no socket to load through; wait for it to end")
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
}

impl DirectSink {
    /// Enters a loss of just now; the next tick keeps it.
    fn note(&mut self, lost: &Lost<'_>) {
        let now = self.writer.now();
        self.losses.note(lost, now);
    }
}

impl Sink for DirectSink {
    fn payload_bytes_max(&self) -> usize {
        self.writer.payload_bytes_max()
    }

    fn existing(&self, source: &str) -> anyhow::Result<Option<SourceDef>> {
        let found = self.writer.catalog().find(source);
        Ok(found.map(|source| SourceDef {
            indexes: Vec::new(),
            ..source.def()
        }))
    }

    fn define(&mut self, def: &SourceDef) -> anyhow::Result<SourceId> {
        Ok(self.writer.define_source(def)?)
    }

    fn push(&mut self, source: SourceId, batch: &InputBatch) -> anyhow::Result<Vec<(u64, String)>> {
        let payloads = Batch::Framed {
            bytes: &batch.bytes,
        };
        let pushed = self.writer.push_batch(source, &payloads)?;
        if let Some(last) = pushed.refused.last() {
            let payload_bytes = Shape::Framed.payload_bytes(batch.bytes.len(), batch.rows);
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
        self.tick()?;
        self.counts.received += batch.rows;
        self.counts.stored += pushed.stored;
        self.counts.refused += batch.rows - pushed.stored;
        let refused = pushed.refused.iter();
        Ok(refused
            .map(|refused| (batch.row_of(refused.ordinal), refused.reason.to_string()))
            .collect())
    }

    fn note_refused(&mut self, source: SourceId, rows: u32, reason: &str) -> anyhow::Result<()> {
        self.note(&Lost {
            source: Some(source),
            reason: LossReason::Malformed,
            records: rows.into(),
            bytes: None,
            detail: reason,
        });
        Ok(())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        self.losses.settle(&mut self.writer);
        Ok(self.writer.tick()?)
    }

    fn finish(self: Box<Self>) -> anyhow::Result<Finished> {
        let DirectSink {
            mut writer,
            mut losses,
            counts,
        } = *self;
        let recorded = losses.finish(&mut writer);
        recorded
            .and_then(|()| writer.close())
            .context("cannot close the directory")?;
        Ok(Finished {
            counts,
            reason: String::new(),
        })
    }
}
