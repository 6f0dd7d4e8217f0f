//! Into the directory itself: this process is its one writer, and leaves it as a clean stop does.

use std::path::Path;

use anyhow::Context;
use loom_engine::ingest::{Batch, Writer, WriterOptions};
use loom_engine::schema::SourceDef;
use loom_engine::{Error, SourceId};

use super::{Finished, Sink};
use crate::input::InputBatch;
use crate::protocol::Counts;

pub(super) struct DirectSink {
    writer: Writer,
    counts: Counts,
}

impl DirectSink {
    pub(super) fn open(dir: &Path) -> anyhow::Result<DirectSink> {
        let writer = match Writer::open(dir, WriterOptions::default()) {
            Err(Error::Locked { pid, .. }) => anyhow::bail!(
                "{} is written by another process{} that cannot be reached over its socket; wait for it to end",
                dir.display(),
                pid.map_or_else(String::new, |pid| format!(", {pid},"))
            ),
            writer => writer?,
        };
        Ok(DirectSink {
            writer,
            counts: Counts::default(),
        })
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
        self.writer.tick()?;
        self.counts.received += batch.rows;
        self.counts.stored += pushed.stored;
        self.counts.refused += batch.rows - pushed.stored;
        let refused = pushed.refused.iter();
        Ok(refused
            .map(|refused| (batch.row_of(refused.ordinal), refused.reason.to_string()))
            .collect())
    }

    fn tick(&mut self) -> anyhow::Result<()> {
        Ok(self.writer.tick()?)
    }

    fn finish(self: Box<Self>) -> anyhow::Result<Finished> {
        self.writer
            .close()
            .context("the directory could not be closed")?;
        Ok(Finished {
            counts: self.counts,
            reason: String::new(),
        })
    }
}
