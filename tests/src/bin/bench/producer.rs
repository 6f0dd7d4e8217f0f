//! A thread that pushes records at a steady rate, as a host emits them, and that can be paused.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::clock::Stopwatch;
use super::ingest::open_writer;
use super::payloads::{Payloads, RECORD_BYTES};

/// The interval at which due records are pushed and published.
const STEP: Duration = Duration::from_millis(1);

/// The work of a producer.
#[derive(Clone, Debug, Default)]
pub struct Produced {
    pub records: u64,
    /// Wall time, and CPU time of all threads of this process, without pauses.
    pub wall: Duration,
    pub cpu: Duration,
    /// The greatest delay of a push.
    pub lag_most: Duration,
    pub stalls: u64,
    pub stall: Duration,
}

#[derive(Default)]
struct Control {
    ended: AtomicBool,
    paused: AtomicBool,
    pushed: AtomicU64,
}

pub struct Producer {
    control: Arc<Control>,
    thread: Option<JoinHandle<Result<Produced>>>,
}

impl Producer {
    /// Begins to push `rate` records a second, at most `limit`, into the first source of a new directory.
    pub fn start(
        dir: &Path,
        toml: &str,
        payloads: Arc<Payloads>,
        rate: u64,
        limit: u64,
    ) -> Result<Producer> {
        let (writer, sources) = open_writer(dir, toml)?;
        let source = *sources.first().context("no source")?;
        let control = Arc::new(Control::default());
        let work = Work {
            writer,
            source,
            payloads,
            rate,
            limit,
            control: Arc::clone(&control),
            produced: Produced::default(),
        };
        let thread = std::thread::Builder::new()
            .name("producer".to_owned())
            .spawn(move || work.run())?;
        Ok(Producer {
            control,
            thread: Some(thread),
        })
    }

    pub fn pause(&self, paused: bool) {
        self.control.paused.store(paused, Ordering::Relaxed);
    }

    pub fn pushed(&self) -> u64 {
        self.control.pushed.load(Ordering::Relaxed)
    }

    pub fn is_running(&self) -> bool {
        self.thread
            .as_ref()
            .is_some_and(|thread| !thread.is_finished())
    }

    /// Waits until the limit is reached and everything is on the disk.
    pub fn finish(mut self) -> Result<Produced> {
        self.join()
    }

    /// Stops the producer.
    pub fn stop(mut self) -> Result<Produced> {
        self.control.ended.store(true, Ordering::Relaxed);
        self.join()
    }

    fn join(&mut self) -> Result<Produced> {
        let thread = self.thread.take().context("joined twice")?;
        thread
            .join()
            .map_err(|_| anyhow!("the producer panicked"))?
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.control.ended.store(true, Ordering::Relaxed);
        if self.thread.is_some() {
            let _its_error_is_not_asked_for = self.join();
        }
    }
}

struct Work {
    writer: loom_engine::ingest::Writer,
    source: loom_engine::SourceId,
    payloads: Arc<Payloads>,
    rate: u64,
    limit: u64,
    control: Arc<Control>,
    produced: Produced,
}

impl Work {
    fn run(mut self) -> Result<Produced> {
        while !self.ended() {
            if self.control.paused.load(Ordering::Relaxed) {
                self.writer.tick()?;
                std::thread::sleep(STEP);
            } else {
                self.stretch()?;
            }
        }
        let stats = self.writer.stats().log;
        (self.produced.stalls, self.produced.stall) = (stats.stalls, stats.stall);
        self.writer.close().context("closing the directory")?;
        Ok(self.produced)
    }

    fn ended(&self) -> bool {
        self.control.ended.load(Ordering::Relaxed) || self.produced.records >= self.limit
    }

    /// Keeps the rate until it is paused or stopped.
    fn stretch(&mut self) -> Result<()> {
        let (watch, began, before) = (Stopwatch::start(), Instant::now(), self.produced.records);
        while !self.ended() && !self.control.paused.load(Ordering::Relaxed) {
            let due = (began.elapsed().as_nanos() * u128::from(self.rate) / 1_000_000_000) as u64;
            let due = (before + due).min(self.limit);
            let behind = due.saturating_sub(self.produced.records);
            let lag = Duration::from_nanos(behind.saturating_mul(1_000_000_000) / self.rate);
            self.produced.lag_most = self.produced.lag_most.max(lag);
            self.push(behind)?;
            self.writer.tick()?;
            std::thread::sleep(STEP);
        }
        let cost = watch.cost();
        self.produced.wall += cost.wall;
        self.produced.cpu += cost.process_cpu;
        Ok(())
    }

    fn push(&mut self, records: u64) -> Result<()> {
        let mut left = records;
        while left > 0 {
            let bytes = self.payloads.slice(self.produced.records, left)?;
            for payload in bytes.chunks_exact(RECORD_BYTES) {
                self.writer.push(self.source, payload)?;
            }
            let pushed = (bytes.len() / RECORD_BYTES) as u64;
            left -= pushed;
            self.produced.records += pushed;
        }
        self.control
            .pushed
            .store(self.produced.records, Ordering::Relaxed);
        Ok(())
    }
}
