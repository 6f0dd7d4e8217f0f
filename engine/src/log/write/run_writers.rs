//! Two threads beside the flusher that write runs of the record log, so that the disk always has the next one.
//!
//! They know nothing of order: the flusher hands out runs, takes them back as they end, and moves its marks over what is written without a gap.

use std::sync::Arc;
use std::thread::JoinHandle;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::shared::Shared;
use super::staged_run::StagedRun;
use crate::error::{Error, Result};
use crate::log::files::storage::StorageFile;

const THREADS: usize = 2;
/// One more than there are threads, so that none waits for the flusher to hand out the next.
pub const RUNS_MAX: usize = THREADS + 1;

struct Job {
    run: StagedRun,
    file: Arc<dyn StorageFile>,
}

/// A run that ended.
pub struct Ended {
    pub run: StagedRun,
    pub result: Result<()>,
}

#[derive(Debug)]
pub struct RunWriters {
    /// `None` only while it is dropped.
    jobs: Option<Sender<Job>>,
    ended: Receiver<Ended>,
    threads: Vec<JoinHandle<()>>,
}

impl RunWriters {
    pub fn start(shared: &Arc<Shared>) -> Result<RunWriters> {
        let dir = &shared.dir;
        let (jobs, waiting) = unbounded::<Job>();
        let (done, ended) = unbounded::<Ended>();
        let mut writers = RunWriters {
            jobs: Some(jobs),
            ended,
            threads: Vec::new(),
        };
        for number in 0..THREADS {
            let (shared, waiting, done) = (Arc::clone(shared), waiting.clone(), done.clone());
            let thread = std::thread::Builder::new()
                .name(format!("loom-writer-{number}"))
                .spawn(move || waiting.iter().for_each(|job| work(&shared, &job, &done)))
                .map_err(|error| Error::io(dir, error))?;
            writers.threads.push(thread);
        }
        Ok(writers)
    }

    /// Hands out a run; `next_ended` gives it back.
    pub fn begin(&self, run: StagedRun, file: Arc<dyn StorageFile>) -> Result<()> {
        let handed = self.jobs.as_ref().map(|jobs| jobs.send(Job { run, file }));
        if matches!(handed, Some(Ok(()))) {
            Ok(())
        } else {
            Err(died())
        }
    }

    /// Waits for the next run to end, in any order.
    pub fn next_ended(&self) -> Result<Ended> {
        self.ended.recv().map_err(|_| died())
    }
}

impl Drop for RunWriters {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // A panic was reported where its run ended.
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared, job: &Job, done: &Sender<Ended>) {
    let mut report = Report {
        run: job.run,
        result: Err(died()),
        done,
    };
    report.result = job.run.write(shared, &*job.file);
}

/// Gives a run back when it is dropped, so that a panic does not keep the flusher waiting.
struct Report<'a> {
    run: StagedRun,
    result: Result<()>,
    done: &'a Sender<Ended>,
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        let result = std::mem::replace(&mut self.result, Ok(()));
        // Nobody waits any more only when the flusher is gone.
        let _ = self.done.send(Ended {
            run: self.run,
            result,
        });
    }
}

fn died() -> Error {
    Error::Flusher("a thread that writes for it panicked".to_owned())
}
