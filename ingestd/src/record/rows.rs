//! Reads rows that a program writes in a format of `load`, and stores them in a source.

use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::ChildStdout;
use std::thread;

use anyhow::{Context, anyhow, ensure};
use crossbeam_channel::{Receiver, bounded};
use loom_engine::schema::SourceDef;

use super::outlet::Outlet;
use crate::input::{self, Format, Input, InputBatch, LoadOptions, Refusals};
use crate::protocol::Shape;

/// The limit of batches that are read ahead.
const AHEAD: usize = 4;

pub(super) struct Rows {
    input: Input,
    /// `input` reads it by its path.
    pipe: ChildStdout,
    named: Named,
}

/// Replaces the path of the pipe in messages by the name of the program.
struct Named {
    path: String,
    program: String,
}

impl Named {
    fn says(&self, text: &str) -> String {
        text.replace(&self.path, &self.program)
    }

    fn error(&self, error: &anyhow::Error) -> anyhow::Error {
        anyhow!(self.says(&format!("{error:#}")))
    }

    fn batch(&self, mut batch: InputBatch) -> InputBatch {
        batch.input = self.says(&batch.input);
        batch.notes = batch.notes.iter().map(|note| self.says(note)).collect();
        batch
    }
}

impl Rows {
    /// Opens the pipe, and reads the header if the format has one. `program` names the pipe in messages.
    pub(super) fn open(
        pipe: ChildStdout,
        program: &str,
        format: Format,
        options: LoadOptions,
    ) -> anyhow::Result<Rows> {
        let named = Named {
            path: format!("/proc/self/fd/{}", pipe.as_raw_fd()),
            program: program.to_owned(),
        };
        let input = input::open(&[PathBuf::from(&named.path)], Some(format), options)
            .map_err(|error| named.error(&error))?;
        let SourceDef { name, fields, .. } = input.source();
        ensure!(
            !fields.is_empty(),
            "cannot record into source '{name}': '{program}' wrote nothing; run it alone to see what it writes"
        );
        Ok(Rows { input, pipe, named })
    }

    pub(super) fn source(&self) -> &SourceDef {
        self.input.source()
    }

    /// Reads on another thread; the channel ends when the pipe ends.
    pub(super) fn read(self) -> anyhow::Result<Receiver<anyhow::Result<InputBatch>>> {
        let (sender, batches) = bounded(AHEAD);
        let Rows {
            mut input,
            pipe,
            named,
        } = self;
        let read = move || {
            while let Some(batch) = input.next_batch().transpose() {
                let batch = batch
                    .map(|batch| named.batch(batch))
                    .map_err(|error| named.error(&error));
                if sender.send(batch).is_err() {
                    break;
                }
            }
            drop(pipe);
        };
        let thread = thread::Builder::new().name("loom-rows".to_owned());
        thread.spawn(read).context("cannot start a thread")?;
        Ok(batches)
    }
}

/// Stores a batch; reports the refused rows, and enters them in the ledger.
pub(super) fn store(
    batch: &InputBatch,
    refusals: &mut Refusals,
    outlet: &Outlet,
) -> anyhow::Result<()> {
    let source = outlet.source();
    let refused = refusals.sentences(batch, &batch.refused);
    for sentence in batch.notes.iter().chain(&refused) {
        tracing::warn!("source '{source}': {sentence}");
    }
    outlet.push(Shape::Framed, &batch.bytes, batch.rows)?;
    match batch.refused.last() {
        Some(last) => outlet.refused(batch.refused.len() as u32, &batch.refusal(last)),
        None => Ok(()),
    }
}
