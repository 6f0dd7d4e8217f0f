//! The storing half of a load: receives batches from the input's thread, hands them to the sink, and counts every row.
//!
//! `load` calls it. `finish` prints the counts in every case; a row that was not stored is counted or named.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use crossbeam_channel::{Receiver, RecvTimeoutError};
use indicatif::ProgressBar;
use ingestd::counted;
use ingestd::input::{InputBatch, Refusals};
use ingestd::sink::{self, Finished, LastingOptions, Sink};
use loom_engine::SourceId;
use loom_engine::schema::{FieldDef, SourceDef};

use super::Event;
use crate::cli::progress::progress_bar;
use crate::cli::stdout::{complain, say};

/// The interval of the writer's heartbeat while no batch comes.
const TICK: Duration = Duration::from_millis(5);
/// The interval of the progress line while no batch comes.
const REDRAW: Duration = Duration::from_millis(200);
/// The time that a stopped load waits for the end of its pipe.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// A running load.
pub(super) struct Storing<'a> {
    dir: &'a Path,
    name: &'a str,
    /// The options for waiting for the next daemon.
    waiting: LastingOptions,
    sink: Option<Box<dyn Sink>>,
    /// The source before the load.
    known: Option<SourceDef>,
    /// The source that the input needs, once the input is open.
    wanted: Option<SourceDef>,
    /// The source, once it is defined. The first row that can be stored defines it, so that an input without rows creates nothing.
    source: Option<SourceId>,
    /// Rows refused before they became payloads.
    refused: u64,
    /// The refused rows that are not in the ledger yet, and the last reason.
    unnoted: (u32, String),
    refusals: Refusals,
    bar: ProgressBar,
}

impl<'a> Storing<'a> {
    pub(super) fn new(dir: &'a Path, name: &'a str, waiting: LastingOptions) -> Storing<'a> {
        let bar = progress_bar("{spinner} {human_pos} rows, {per_sec} {msg}");
        if !bar.is_hidden() {
            bar.enable_steady_tick(REDRAW);
        }
        Storing {
            dir,
            name,
            waiting,
            sink: None,
            known: None,
            wanted: None,
            source: None,
            refused: 0,
            unnoted: (0, String::new()),
            refusals: Refusals::default(),
            bar,
        }
    }

    /// Opens the directory if it exists, and returns the existing source. A new directory is created only when there are rows.
    pub(super) fn open_existing(
        &mut self,
        payload_bytes_max: &mut usize,
    ) -> anyhow::Result<Option<SourceDef>> {
        if self.sink.is_none() && self.dir.exists() {
            self.sink = Some(sink::open(self.dir, self.waiting.clone())?);
        }
        if let Some(sink) = &self.sink {
            *payload_bytes_max = sink.payload_bytes_max();
            self.known = sink.existing(self.name)?;
        }
        Ok(self.known.clone())
    }

    /// Whether another load changed the source before this one stored or reported anything, so that it can begin again.
    pub(super) fn is_overtaken(&self) -> bool {
        let is_untouched = self.source.is_none() && self.refused == 0;
        let Some(sink) = self.sink.as_ref().filter(|_| is_untouched) else {
            return false;
        };
        sink.existing(self.name).is_ok_and(|now| now != self.known)
    }

    /// Stores batches until the input ends.
    pub(super) fn follow(&mut self, events: &Receiver<Event>) -> anyhow::Result<()> {
        let stop = Arc::clone(&self.waiting.stop);
        let mut stop_at = None;
        loop {
            if stop.load(Ordering::Relaxed) && stop_at.is_none() {
                stop_at = Some(Instant::now() + LAST_WAIT);
            }
            if stop_at.is_some_and(|stop_at| Instant::now() > stop_at) {
                bail!("a signal stopped the load before the end of the input");
            }
            match events.recv_timeout(TICK) {
                Ok(Event::Opened(def)) => self.wanted = Some(def),
                Ok(Event::Batch { batch, fraction }) => self.store(&batch, fraction)?,
                Ok(Event::Ended) => return Ok(()),
                Ok(Event::Failed(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) => {
                    if let Some(sink) = &mut self.sink {
                        sink.tick()?;
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(anyhow!(
                        "cannot read the input: its reader failed; the file may be damaged"
                    ));
                }
            }
        }
    }

    fn store(&mut self, batch: &InputBatch, fraction: Option<f64>) -> anyhow::Result<()> {
        // This comes before any message, so that a load that another one overtakes can begin again.
        if batch.rows > 0 {
            self.defined()?;
        }
        for note in &batch.notes {
            self.say(note);
        }
        self.refused += batch.refused.len() as u64;
        self.name_refused(batch, &batch.refused);
        if let Some(last) = batch.refused.last() {
            self.unnoted.0 += batch.refused.len() as u32;
            self.unnoted.1 = batch.refusal(last);
        }
        if batch.rows > 0 {
            let (sink, source) = self.defined()?;
            let refused = sink.push(source, batch)?;
            self.name_refused(batch, &refused);
            self.bar.inc(batch.received());
        }
        if let Some(fraction) = fraction {
            self.bar.set_message(format!("{:3.0} %", fraction * 100.0));
        }
        self.note_refused()
    }

    /// Defines the source if necessary, and returns it with the sink.
    fn defined(&mut self) -> anyhow::Result<(&mut Box<dyn Sink>, SourceId)> {
        if self.sink.is_none() {
            self.sink = Some(sink::open(self.dir, self.waiting.clone())?);
        }
        let (Some(sink), Some(def)) = (&mut self.sink, &self.wanted) else {
            bail!("rows came before the input was open");
        };
        let source = match self.source {
            Some(source) => source,
            None => {
                let source = *self.source.insert(sink.define(def)?);
                for added in added_fields(self.known.as_ref(), def) {
                    note(&self.bar, &added);
                }
                source
            }
        };
        Ok((sink, source))
    }

    /// Enters the refused rows in the directory's ledger, if the source exists. They do not create it.
    fn note_refused(&mut self) -> anyhow::Result<()> {
        let (rows, reason) = &self.unnoted;
        let Some(sink) = self.sink.as_mut().filter(|_| *rows > 0) else {
            return Ok(());
        };
        let source = match (self.source, &self.known) {
            (Some(source), _) => source,
            (None, Some(known)) => sink.define(known)?,
            (None, None) => return Ok(()),
        };
        sink.note_refused(source, *rows, reason)?;
        self.unnoted = (0, String::new());
        Ok(())
    }

    fn name_refused(&mut self, batch: &InputBatch, refused: &[(u64, String)]) {
        for sentence in self.refusals.sentences(batch, refused) {
            self.say(&sentence);
        }
    }

    fn say(&self, message: &str) {
        note(&self.bar, message);
    }

    /// Makes the stored rows durable and prints the counts, also after a failure.
    pub(super) fn finish(mut self, outcome: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
        self.bar.finish_and_clear();
        let (finished, closed) = match self.sink.take() {
            Some(sink) => sink.finish(),
            None => (Finished::default(), Ok(())),
        };
        let Finished {
            counts,
            unconfirmed,
            reason,
            note,
        } = finished;
        if let Some(note) = note {
            complain(note);
        }
        if counts.refused > 0 {
            complain(format_args!(
                "the daemon refused {}; the last one: {reason}",
                counted(counts.refused, "row"),
            ));
        }
        let refused = self.refused + counts.refused;
        if outcome.is_ok() && self.source.is_none() {
            let why = match refused {
                0 => "the input has no rows",
                _ => "no row was stored",
            };
            let name = self.name;
            match self.known {
                Some(_) => self.say(&format!("{why}: source '{name}' stays as it is")),
                None => self.say(&format!("{why}: source '{name}' is not created")),
            }
        }
        let unknown = match unconfirmed {
            0 => String::new(),
            rows => {
                let dir = self.dir.display();
                complain(format_args!(
                    "{} of source '{}' unconfirmed: a daemon was killed before it counted them, and may have stored some or all; compare \
                     with what '{dir}' has, then load what is missing",
                    counted(rows, "row"),
                    self.name
                ));
                format!(" unconfirmed={rows}")
            }
        };
        say(format_args!(
            "received={} stored={} refused={refused} dropped={}{unknown}",
            self.refused + counts.received,
            counts.stored,
            counts.dropped
        ))?;
        // The first error explains the one at the end.
        outcome?;
        closed?;
        Ok(if refused > 0 || unconfirmed > 0 {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

fn note(bar: &ProgressBar, message: &str) {
    bar.suspend(|| complain(message));
}

/// A note for each field that is new in an existing source.
fn added_fields(known: Option<&SourceDef>, def: &SourceDef) -> Vec<String> {
    let Some(known) = known else {
        return Vec::new();
    };
    let is_known = |name: &str| known.fields.iter().any(|field| field.name == name);
    let added = def.fields.iter().filter(|field| !is_known(&field.name));
    let note = |FieldDef { name, ty, .. }: &FieldDef| {
        format!(
            "field '{name}' of type {ty} is added to source '{}'",
            def.name
        )
    };
    added.map(note).collect()
}
