//! The rows of `COPY … TO` on their way into a directory. The thread that has them encodes them; batches are stored one after the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use loom_engine::proven::{at, at_mut};
use loom_engine::query::Poll;
use loom_engine::schema::{FieldValue, PayloadEncoder};
use loom_engine::{SourceId, Timestamp};
use loom_sink::{Finished, InputBatch, LastingOptions, Sink};

use crate::error::{Problem, Result};
use crate::plan::copy::{CopyPlan, problem};

/// The interval at which the writer of a directory runs while the query has no rows.
const TICK: Duration = Duration::from_millis(5);
/// The name of the statement in the daemon's messages.
const CLIENT: &str = "copy";
/// The time that a statement waits for the next daemon if the one that takes its rows ends. An interrupt takes as long.
const PATIENCE: Duration = Duration::from_secs(10);
/// The bytes of the length before a payload.
const LENGTH_BYTES: usize = 2;

fn waiting() -> LastingOptions {
    LastingOptions {
        name: CLIENT.to_owned(),
        patience: PATIENCE,
        ..LastingOptions::default()
    }
}

/// The values of a column in some rows.
pub enum Values<'a> {
    Fields(Vec<FieldValue<'a>>),
    /// Nanoseconds since the Unix epoch; `None` for NULL.
    Times(Vec<Option<i64>>),
}

/// Rows that became payloads, and rows that did not. Rows count from 0 in the batch.
#[derive(Default)]
pub struct Encoded {
    bytes: Vec<u8>,
    rows: u64,
    payloads: u64,
    refused: Vec<(u64, String)>,
}

/// Encodes the rows of one batch, chunk by chunk.
pub struct Encoding<'a> {
    plan: &'a CopyPlan,
    encoder: PayloadEncoder,
    done: Encoded,
}

impl<'a> Encoding<'a> {
    pub fn new(plan: &'a CopyPlan) -> Encoding<'a> {
        Encoding {
            encoder: plan.encoder.clone(),
            plan,
            done: Encoded::default(),
        }
    }

    pub fn finish(self) -> Encoded {
        self.done
    }

    /// `values` has the values of each column. `bad` lists rows of the chunk with a value that no field takes, ascending, with the reason.
    pub fn take(
        &mut self,
        rows: usize,
        values: &[Values<'_>],
        bad: &[(usize, String)],
    ) -> Result<()> {
        let columns: Vec<Option<&[FieldValue<'_>]>> = self
            .plan
            .fields
            .iter()
            .map(|column| match column.map(|column| at(values, column)) {
                Some(Values::Fields(values)) => Ok(Some(values.as_slice())),
                None => Ok(None),
                Some(Values::Times(_)) => Err(Problem::missing("the values of a field")),
            })
            .collect::<Result<_>>()?;
        let times = match self.plan.time {
            None => None,
            Some((column, _)) => match values.get(column) {
                Some(Values::Times(times)) => Some(times),
                _ => return Err(Problem::missing("the times of the rows")),
            },
        };
        let mut bad = bad.iter().peekable();
        let mut row_values = Vec::with_capacity(columns.len());
        for row in 0..rows {
            let number = self.done.rows;
            self.done.rows += 1;
            let mut refused = None;
            while let Some((_, reason)) = bad.next_if(|(bad, _)| *bad <= row) {
                refused.get_or_insert_with(|| reason.clone());
            }
            let time = times.map(|times| *at(times.as_slice(), row));
            if time == Some(None) {
                refused.get_or_insert_with(|| "its time is NULL".to_owned());
            }
            if let Some(reason) = refused {
                self.done.refused.push((number, reason));
                continue;
            }
            row_values.clear();
            row_values.extend(columns.iter().map(|column| match column {
                Some(values) => *at(values, row),
                None => FieldValue::Null,
            }));
            let start = self.done.bytes.len();
            self.done.bytes.extend_from_slice(&[0; LENGTH_BYTES]);
            let time = time.flatten().map(Timestamp);
            match self.encoder.encode(time, &row_values, &mut self.done.bytes) {
                Ok(()) => {
                    let payload = self.done.bytes.len() - start - LENGTH_BYTES;
                    let length =
                        u16::try_from(payload).map_err(|_| Problem::missing("a short payload"))?;
                    at_mut(&mut self.done.bytes, start..start + LENGTH_BYTES)
                        .copy_from_slice(&length.to_le_bytes());
                    self.done.payloads += 1;
                }
                Err(error) => {
                    self.done.bytes.truncate(start);
                    self.done.refused.push((number, error.to_string()));
                }
            }
        }
        Ok(())
    }
}

enum Way {
    /// A missing directory is created for the first row that can be stored, so a query without rows creates nothing.
    Unopened,
    Open(Box<dyn Sink>),
    Ended,
}

/// A running statement.
pub struct Storing {
    open: Arc<Mutex<Open>>,
    ended: Arc<AtomicBool>,
    ticker: Option<JoinHandle<()>>,
}

struct Open {
    way: Way,
    /// The source, which is defined with the first row that can be stored.
    source: Option<SourceId>,
    next_row: u64,
    /// The number of rows that became no payload.
    refused: u64,
    /// The first refused row, and the reason.
    why: String,
    trouble: Option<Problem>,
}

impl Storing {
    /// # Errors
    /// Neither a daemon nor this process can write the directory.
    pub fn open(plan: &CopyPlan) -> Result<Storing> {
        let way = match plan.dir.exists() {
            true => Way::Open(loom_sink::open(&plan.dir, waiting()).map_err(problem)?),
            false => Way::Unopened,
        };
        let open = Arc::new(Mutex::new(Open {
            way,
            source: None,
            next_row: 1,
            refused: 0,
            why: String::new(),
            trouble: None,
        }));
        let ended = Arc::new(AtomicBool::new(false));
        let (of_ticker, until) = (Arc::clone(&open), Arc::clone(&ended));
        let ticker = std::thread::Builder::new().name("loom-copy".to_owned());
        let ticker = ticker.spawn(move || {
            while !until.load(Ordering::Acquire) {
                std::thread::park_timeout(TICK);
                // While a batch is being stored, the writer runs anyway.
                if let Ok(mut open) = of_ticker.try_lock() {
                    open.tick();
                }
            }
        });
        let ticker = ticker.map_err(|error| {
            Problem::Io(format!(
                "cannot start the thread that writes the directory: {error}"
            ))
        })?;
        Ok(Storing {
            open,
            ended,
            ticker: Some(ticker),
        })
    }

    fn open_now(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a batch after the earlier ones.
    ///
    /// # Errors
    /// The directory takes no more; earlier batches stay.
    pub fn store(&self, plan: &CopyPlan, encoded: &mut Encoded) -> Result<()> {
        self.open_now().store(plan, std::mem::take(encoded))
    }

    /// Makes the stored batches durable, and builds the look-ups of the directory, unless a daemon does.
    ///
    /// # Errors
    /// That fails, or the statement is strict and a row was refused.
    pub fn finish(&self, plan: &CopyPlan, poll: &Poll<'_>) -> Result<()> {
        self.open_now().finish(plan, poll)
    }
}

impl Drop for Storing {
    /// A statement that ended early also keeps what it stored.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(ticker) = self.ticker.take() {
            ticker.thread().unpark();
            let _ = ticker.join();
        }
        let way = std::mem::replace(&mut self.open_now().way, Way::Ended);
        if let Way::Open(sink) = way {
            // The statement reports its own error already.
            let _ = sink.finish();
        }
    }
}

impl Open {
    fn tick(&mut self) {
        if let Way::Open(sink) = &mut self.way
            && let Err(error) = sink.tick()
        {
            self.trouble.get_or_insert(problem(error));
        }
    }

    fn store(&mut self, plan: &CopyPlan, encoded: Encoded) -> Result<()> {
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        let first_row = self.next_row;
        self.next_row += encoded.rows;
        let shift = |(row, reason)| (row + first_row, reason);
        let batch = InputBatch {
            bytes: encoded.bytes,
            rows: encoded.payloads,
            first_row,
            refused: encoded.refused.into_iter().map(shift).collect(),
            input: "the query".to_owned(),
            row_noun: "row",
            notes: Vec::new(),
        };
        if batch.rows == 0 && self.source.is_none() {
            self.count(&batch, &[]);
            return Ok(());
        }
        if matches!(self.way, Way::Unopened) {
            self.way = Way::Open(loom_sink::open(&plan.dir, waiting()).map_err(problem)?);
        }
        let Way::Open(sink) = &mut self.way else {
            return Err(Problem::missing("an open directory"));
        };
        let source = match self.source {
            Some(source) => source,
            None => *self.source.insert(sink.define(&plan.def).map_err(problem)?),
        };
        let pushed = sink.push(source, &batch).map_err(problem)?;
        if let Some(last) = batch.refused.last() {
            let rows = u32::try_from(batch.refused.len()).unwrap_or(u32::MAX);
            sink.note_refused(source, rows, &batch.refusal(last))
                .map_err(problem)?;
        }
        self.count(&batch, &pushed);
        Ok(())
    }

    /// `pushed` are the rows that the directory refused, which it counts itself.
    fn count(&mut self, batch: &InputBatch, pushed: &[(u64, String)]) {
        let first = batch.refused.first().or(pushed.first());
        if let Some(first) = first.filter(|_| self.why.is_empty()) {
            self.why = batch.refusal(first);
        }
        self.refused += batch.refused.len() as u64;
    }

    fn finish(&mut self, plan: &CopyPlan, poll: &Poll<'_>) -> Result<()> {
        let (finished, closed) = match std::mem::replace(&mut self.way, Way::Ended) {
            Way::Open(sink) => sink.finish(),
            Way::Unopened | Way::Ended => (Finished::default(), Ok(())),
        };
        let refused = self.refused + finished.counts.refused + finished.counts.dropped;
        if self.why.is_empty() {
            self.why.clone_from(&finished.reason);
        }
        closed.map_err(problem)?;
        if let Some(trouble) = &self.trouble {
            return Err(trouble.clone());
        }
        let (rows, stored) = (self.next_row - 1, finished.counts.stored);
        if finished.unconfirmed > 0 {
            return Err(Problem::Io(format!(
                "of {rows} rows {stored} are stored in source '{}' and {} may be: a daemon ended before it could say; count them before you copy again",
                plan.def.name, finished.unconfirmed
            )));
        }
        if plan.has_lookups && stored > 0 {
            loom_sink::build_lookups(&plan.dir, poll).map_err(problem)?;
        }
        if refused == 0 || !plan.is_strict {
            return Ok(());
        }
        Err(Problem::input(format!(
            "{refused} of {rows} rows are refused, the other {stored} are stored in source '{}': {}; STRICT false ends such a statement without an error",
            plan.def.name, self.why
        )))
    }
}
