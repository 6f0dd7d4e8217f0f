//! The sink that pushes to the daemon of the directory over its socket, and to the next daemon if that one ends meanwhile.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loom_engine::SourceId;
use loom_engine::schema::SourceDef;
use serde::Serialize;

use loom_client::protocol::Shape;
use loom_client::{ClientError, LastingClient};

use super::{Finished, InputBatch, Result, Sink, SinkError, existing};

pub(super) struct DaemonSink {
    client: LastingClient,
    dir: PathBuf,
    /// The names of the defined sources.
    names: BTreeMap<SourceId, String>,
}

impl DaemonSink {
    pub(super) fn new(client: LastingClient, dir: &Path) -> DaemonSink {
        DaemonSink {
            client,
            dir: dir.to_owned(),
            names: BTreeMap::new(),
        }
    }

    /// The result that is known now. Records that no daemon has got count as dropped.
    fn finished(&self) -> Finished {
        let outcome = self.client.outcome();
        let mut counts = outcome.counts;
        counts.received += outcome.unsure + outcome.unsent;
        counts.dropped += outcome.unsent;
        let note = match self.client.successors() {
            (0, _) => None,
            (1, why) => Some(format!("{why}; the load went on with the next one")),
            (times, why) => Some(format!(
                "{why}; {times} times the load went on with the next one"
            )),
        };
        Finished {
            counts,
            unconfirmed: outcome.unsure,
            reason: outcome.reason,
            note,
        }
    }
}

/// A TOML document of one source.
#[derive(Serialize)]
struct Sources<'a> {
    source: [&'a SourceDef; 1],
}

impl Sink for DaemonSink {
    fn payload_bytes_max(&self) -> usize {
        self.client.welcome().payload_bytes_max as usize
    }

    fn existing(&self, source: &str) -> Result<Option<SourceDef>> {
        existing(&self.dir, source)
    }

    fn define(&mut self, def: &SourceDef) -> Result<SourceId> {
        let toml = toml::to_string(&Sources { source: [def] }).map_err(|error| {
            SinkError::Failed(format!(
                "cannot write the definition of '{}': {error}",
                def.name
            ))
        })?;
        // No row was pushed yet, so the user can simply load again.
        let source = self.client.define_one(&toml).map_err(|error| match error {
            ClientError::NoSuccessor { .. } | ClientError::WaitStopped { .. } => {
                SinkError::Failed(format!("{error}, and load again, or load without it"))
            }
            error => error.into(),
        })?;
        self.names.insert(source, def.name.clone());
        Ok(source)
    }

    fn push(&mut self, source: SourceId, batch: &InputBatch) -> Result<Vec<(u64, String)>> {
        self.client
            .push_batch(source, Shape::Framed, &batch.bytes)?;
        Ok(Vec::new())
    }

    fn note_refused(&mut self, source: SourceId, rows: u32, reason: &str) -> Result<()> {
        let name = self.names.get(&source);
        let name = name.expect("a load defines its source before it refuses rows");
        self.client.report_refused(name, rows, reason)?;
        Ok(())
    }

    fn tick(&mut self) -> Result<()> {
        Ok(self.client.tick()?)
    }

    fn finish(mut self: Box<Self>) -> (Finished, Result<()>) {
        let confirmed = match self.client.sync_durable() {
            Ok(_) => Ok(()),
            Err(error) => Err(SinkError::Failed(format!(
                "the daemon did not confirm that all rows are stored: {error}"
            ))),
        };
        (self.finished(), confirmed)
    }
}
