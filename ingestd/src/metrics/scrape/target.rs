//! One target: asks it again and again, and stores each answer as one record of each group of its series.
//!
//! An answer is stored whole, or not at all. In any case the first group gets a record of the scrape: `up` and the other metrics that Prometheus
//! reports beside it.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use loom_engine::query::Directory;
use loom_engine::schema::Overload;
use ureq::Agent;

use super::fetch::{Answer, TooLong, fetch};
use crate::config::{ScrapeDef, Target as Address};
use crate::daemon::answer::Gone;
use crate::daemon::inlet::{Inlet, UNFOLDED};
use crate::daemon::refused::Refused;
use crate::exposition::{self, Sample};
use crate::metrics::names::{self, Series};
use crate::metrics::series::{Arrived, Failed, GroupStore, Stored};
use crate::{wall_clock, web_client};

const MS_NS: i64 = 1_000_000;

pub(super) struct Target {
    job: Arc<ScrapeDef>,
    address: Address,
    inlet: Inlet,
    store: GroupStore,
    agent: Option<Agent>,
    trouble: Option<String>,
}

impl Target {
    pub(super) fn new(
        job: Arc<ScrapeDef>,
        address: Address,
        inlet: Inlet,
        directory: Arc<Directory>,
    ) -> Target {
        let source = names::of_target(&job.job, &address.instance);
        let mut labels: Series = job.labels.clone();
        labels.insert("job".to_owned(), job.job.clone());
        labels.insert("instance".to_owned(), address.instance.clone());
        Target {
            store: GroupStore::new(
                directory,
                source,
                labels,
                job.series_max,
                // Another scrape comes soon.
                Overload::DropNew,
            )
            .honoring_labels(job.honor_labels),
            job,
            address,
            inlet,
            agent: None,
            trouble: None,
        }
    }

    /// Scrapes until `stopped`.
    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        let mut due = Instant::now() + self.offset();
        loop {
            match stopped.recv_deadline(due) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.scrape().is_err() {
                return;
            }
            due += self.job.every;
            let late = Instant::now().saturating_duration_since(due);
            // Missed scrapes are not made up for: the target would be asked twice at once.
            let periods = late.as_nanos() / self.job.every.as_nanos().max(1);
            due += self.job.every * u32::try_from(periods).unwrap_or(u32::MAX);
        }
    }

    /// The time until the first scrape: targets are spread over the period, each with a place in it that a restart keeps.
    fn offset(&self) -> Duration {
        let mut hasher = DefaultHasher::new();
        self.store.source().hash(&mut hasher);
        let every = self.job.every.as_nanos().max(1) as u64;
        let since = wall_clock().0 as u64;
        let wait = (hasher.finish() % every + every - since % every) % every;
        Duration::from_nanos(wait)
    }

    fn scrape(&mut self) -> Result<(), Gone> {
        let began = Instant::now();
        let time_ms = wall_clock().0 / MS_NS;
        let answer = self.fetch();
        let took = began.elapsed();
        let found = match &answer {
            Ok(answer) => self.samples(answer).map_err(|why| (why, true)),
            Err(error) => Err((format!("{error:#}"), error.is::<TooLong>())),
        };
        let stored = self.store(&found, time_ms, took);
        self.report(match (stored, found) {
            (Err(Failed::WriterGone), _) => return Err(Gone),
            (Err(Failed::Defining(why)), _) => Some(why),
            (Ok(stored), found) => stored.trouble.or(found.err().map(|(why, _)| why)),
        });
        Ok(())
    }

    /// The samples of an answer, or the reason why it is refused.
    fn samples<'a>(&self, answer: &'a Answer) -> Result<Vec<Sample<'a>>, String> {
        let parsed = exposition::parse(&answer.body, answer.format);
        let mut samples = parsed.map_err(|error| format!("its answer is not metrics: {error}"))?;
        let (series, series_max) = (samples.len(), self.job.series_max);
        if series > series_max {
            return Err(format!(
                "it has {series} series, more than series_max = {series_max}; raise series_max, or let it drop labels"
            ));
        }
        if !self.job.honor_timestamps {
            samples.iter_mut().for_each(|sample| sample.time_ms = None);
        }
        Ok(samples)
    }

    fn fetch(&mut self) -> anyhow::Result<Answer> {
        let agent = match self.agent.take() {
            Some(agent) => agent,
            None => web_client::agent(&self.address.url, self.job.timeout, self.job.tls.as_ref())?,
        };
        // After a failure, a new agent reads the certificates again.
        let answer = fetch(&agent, &self.job, &self.address.url)?;
        self.agent = Some(agent);
        Ok(answer)
    }

    /// Stores the samples of a scrape, or the reason why there are none. It is counted if the target answered.
    fn store(
        &mut self,
        found: &Result<Vec<Sample<'_>>, (String, bool)>,
        time_ms: i64,
        took: Duration,
    ) -> Result<Stored, Failed> {
        let refused = match found {
            Err((why, true)) => Refused::unread(1, why),
            Ok(_) | Err((_, false)) => Refused::default(),
        };
        let samples = found.as_ref().ok().map(Vec::as_slice);
        let reported = [
            ("up", f64::from(found.is_ok())),
            ("scrape_duration_seconds", took.as_secs_f64()),
            (
                "scrape_samples_scraped",
                samples.map_or(0, <[_]>::len) as f64,
            ),
        ];
        let reported = reported.map(|(metric, value)| Sample {
            metric,
            labels: Vec::new(),
            value,
            time_ms: None,
        });
        let arrived = Arrived {
            time_ms,
            reported: &reported,
            samples,
            refused,
            record_bytes_max: UNFOLDED * self.job.body_bytes_max as usize,
            // The configuration chose the target, so the catalog's own limit suffices.
            catalog_bytes_max: u64::MAX,
        };
        let stored = self.store.store(&mut self.inlet, &arrived);
        // Nobody repeats a scrape, so refused samples are lost.
        self.inlet.count_losses()?;
        self.inlet.flush()?;
        stored
    }

    /// Logs what is wrong when it begins or changes, and when it is over.
    fn report(&mut self, trouble: Option<String>) {
        if self.trouble != trouble {
            let url = &self.address.url;
            match &trouble {
                Some(why) => tracing::warn!("cannot scrape {url}: {why}"),
                None => tracing::info!("{url} is scraped again"),
            }
        }
        self.trouble = trouble;
    }
}
