//! Into the daemon that runs on the directory, over its socket.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use loom_engine::SourceId;
use loom_engine::schema::SourceDef;
use serde::Serialize;

use loom_wire::client::{Client, ClientError};
use loom_wire::protocol::{Counts, Shape, Synced};

use super::{Finished, InputBatch, Result, Sink, SinkError, existing};

pub(super) struct DaemonSink {
    client: Client,
    dir: PathBuf,
    /// The names of the sources that were defined.
    names: BTreeMap<SourceId, String>,
    /// Rows that the daemon counts with the payloads.
    noted: u64,
}

impl DaemonSink {
    pub(super) fn new(client: Client, dir: &Path) -> DaemonSink {
        DaemonSink {
            client,
            dir: dir.to_owned(),
            names: BTreeMap::new(),
            noted: 0,
        }
    }
}

impl DaemonSink {
    /// What is known where the daemon confirms nothing. One that stopped counted what it took, and dropped the rest; of what was given to one that is
    /// gone nothing is known.
    fn unconfirmed(&self, stopped: Option<&Synced>) -> Finished {
        let received = self.client.pushed();
        let Some(said) = stopped else {
            let counts = Counts {
                received,
                ..Counts::default()
            };
            return Finished {
                counts,
                unconfirmed: received,
                ..Finished::default()
            };
        };
        let stored = said.counts.stored;
        let refused = said.counts.refused.saturating_sub(self.noted);
        let counts = Counts {
            received,
            stored,
            refused,
            dropped: received.saturating_sub(stored + refused),
        };
        Finished {
            counts,
            reason: said.reason.clone(),
            ..Finished::default()
        }
    }
}

impl DaemonSink {
    /// Why a source cannot be defined, with what to do where the daemon has ended: no row was pushed yet.
    fn explained(&self, error: ClientError) -> SinkError {
        match error {
            ClientError::Io(_) | ClientError::Stopped(_) => SinkError::Failed(format!(
                "{error}; if the daemon has ended, start it again with 'ingestd run {}' and load again, or load without it",
                self.dir.display()
            )),
            error => error.into(),
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
        let source = self
            .client
            .define_one(&toml)
            .map_err(|error| self.explained(error))?;
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
        self.noted += u64::from(rows);
        Ok(())
    }

    fn tick(&mut self) -> Result<()> {
        Ok(())
    }

    fn finish(self: Box<Self>) -> (Finished, Result<()>) {
        let synced = match self.client.sync_durable() {
            Ok(synced) => synced,
            Err(error) => {
                let said = format!("the daemon did not confirm that all rows are stored: {error}");
                let stopped = match &error {
                    ClientError::Stopped(synced) => Some(synced),
                    _ => None,
                };
                return (self.unconfirmed(stopped), Err(SinkError::Failed(said)));
            }
        };
        let mut counts = synced.counts;
        for count in [&mut counts.received, &mut counts.refused] {
            let noted = self.noted;
            let Some(payloads) = count.checked_sub(noted) else {
                let said = format!(
                    "the daemon confirmed {noted} refused rows and counts {count}; its counts are wrong"
                );
                return (self.unconfirmed(None), Err(SinkError::Failed(said)));
            };
            *count = payloads;
        }
        let finished = Finished {
            counts,
            reason: synced.reason,
            ..Finished::default()
        };
        (finished, Ok(()))
    }
}
