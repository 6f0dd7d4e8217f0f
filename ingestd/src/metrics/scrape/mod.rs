//! The threads that scrape targets, one for each: a slow target delays no other.
//!
//! A scrape is one record of each group of its target's series, which [`series`](super::series) stores. [`Target`] is a thread's loop.

mod fetch;
mod target;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Sender, bounded};
use loom_engine::query::Directory;

use crate::config::{ScrapeDef, Target as Address};
use crate::daemon::inlet::Inlet;
use crate::threads::join_within;
use target::Target;

/// Warns of a job whose files cannot be used.
pub(crate) fn doubt(job: &ScrapeDef) -> Option<String> {
    let why = fetch::usable(job).err()?;
    Some(format!("job '{}' cannot be scraped yet: {why:#}", job.job))
}

/// A stop waits so long for scrapes under way. Later ones find no writer thread.
const STOP_WAIT: Duration = Duration::from_secs(1);

/// The threads. They end with [`Scrapers::stop`].
pub(crate) struct Scrapers {
    inlet: Inlet,
    directory: Arc<Directory>,
    running: Vec<Running>,
}

struct Running {
    job: Arc<ScrapeDef>,
    address: Address,
    /// Dropped, it ends the thread.
    until: Sender<()>,
    thread: JoinHandle<()>,
}

impl Scrapers {
    pub(crate) fn start(
        scrapes: &[ScrapeDef],
        inlet: Inlet,
        directory: Arc<Directory>,
    ) -> std::io::Result<Scrapers> {
        let mut scrapers = Scrapers {
            inlet,
            directory,
            running: Vec::new(),
        };
        scrapers.reconfigure(scrapes)?;
        Ok(scrapers)
    }

    /// Ends the threads of targets that are gone or changed, and starts those of new ones.
    pub(crate) fn reconfigure(&mut self, scrapes: &[ScrapeDef]) -> std::io::Result<()> {
        let is_wanted = |running: &Running| {
            let is_same = |job: &&ScrapeDef| {
                ScrapeDef {
                    targets: running.job.targets.clone(),
                    ..(*job).clone()
                } == *running.job
            };
            let same = scrapes.iter().find(is_same);
            same.is_some_and(|job| job.targets.contains(&running.address))
        };
        let (kept, ended) = self.running.drain(..).partition(is_wanted);
        self.running = kept;
        end(ended);
        for job in scrapes {
            let job = Arc::new(job.clone());
            for address in &job.targets {
                let is_running = |running: &Running| {
                    running.job.job == job.job && running.address.instance == address.instance
                };
                if !self.running.iter().any(is_running) {
                    let started = self.begin(&job, address)?;
                    self.running.push(started);
                }
            }
        }
        Ok(())
    }

    fn begin(&self, job: &Arc<ScrapeDef>, address: &Address) -> std::io::Result<Running> {
        let (until, stopped) = bounded(0);
        let target = Target::new(
            Arc::clone(job),
            address.clone(),
            self.inlet.another()?,
            Arc::clone(&self.directory),
        );
        let thread = std::thread::Builder::new()
            .name("loom-scrape".to_owned())
            .spawn(move || target.run(&stopped))?;
        Ok(Running {
            job: Arc::clone(job),
            address: address.clone(),
            until,
            thread,
        })
    }

    pub(crate) fn stop(self) {
        end(self.running);
    }
}

/// Ends threads, and waits for them at most `STOP_WAIT`, because a target may take longer.
fn end(running: Vec<Running>) {
    let threads = running.into_iter().map(|Running { until, thread, .. }| {
        drop(until);
        thread
    });
    // All threads get the signal before the first is waited for.
    join_within(STOP_WAIT, threads.collect::<Vec<_>>());
}
