//! Stores data points in the groups of their senders.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use loom_engine::query::Directory;
use loom_engine::schema::{Catalog, LossReason, Overload};
use loom_otlp::{NotTaken, TARGET_INFO, Taken};

use super::points::{Request, Sender, Sent};
use super::shares::Shares;
use crate::config::OtlpDef;
use crate::daemon::answer::Gone;
use crate::daemon::inlet::Inlet;
use crate::daemon::refused::Refused;
use crate::exposition::Sample;
use crate::metrics::names::{self, Series};
use crate::metrics::series::{Arrived, Failed, GroupStore, Memory, Stored};
use crate::wall_clock;

const MS_NS: i64 = 1_000_000;
/// Senders that are remembered at a time; another is read from the catalog again.
const STORES_MAX: usize = 10_000;
/// The least interval between rounds of forgetting idle series.
const FORGET_EVERY_MIN: Duration = Duration::from_secs(60);

pub(crate) struct Senders {
    inlet: Inlet,
    directory: Arc<Directory>,
    series_max: usize,
    /// The limit of the catalog file with the series of all senders.
    catalog_bytes_max: u64,
    stores: HashMap<Sender, GroupStore>,
    /// They outlive this: a handler that panics, and so begins with new `Senders`, must not give them another day's share.
    shares: Arc<Mutex<Shares>>,
    /// The greatest lateness of samples.
    out_of_order: Duration,
    memory: Arc<Memory>,
    forgot: Instant,
}

/// The outcome of storing the data points of one sender.
struct Outcome {
    /// Refused points, and why.
    refused: Option<(String, u64)>,
    is_limited: bool,
}

impl Senders {
    pub(crate) fn new(
        inlet: Inlet,
        directory: Arc<Directory>,
        def: &OtlpDef,
        shares: Arc<Mutex<Shares>>,
    ) -> Senders {
        Senders {
            inlet,
            directory,
            series_max: def.series_max,
            catalog_bytes_max: def.catalog_bytes_max,
            stores: HashMap::new(),
            shares,
            out_of_order: def.out_of_order,
            memory: Arc::default(),
            forgot: Instant::now(),
        }
    }

    /// Stores a request. `NotTaken::Limited` asks the sender to send again: nothing was stored, because all series are new and a limit is reached.
    pub(crate) fn take(
        &mut self,
        from: IpAddr,
        body: &[u8],
        bytes_max: usize,
    ) -> Result<Taken, NotTaken> {
        self.forget_idle();
        let mut request = Request::new(bytes_max, self.series_max);
        let is_repaired = loom_otlp::metrics(body, |found| request.add(found))?;
        let mut refused = request.refused;
        refused.is_repaired = is_repaired;
        refused.enter(&mut self.inlet, None);
        let mut record_bytes_left = bytes_max;
        let (mut is_limited, mut points_stored) = (false, 0);
        for (sender, sent) in request.senders {
            let became = self.store(from, &sender, &sent, &mut record_bytes_left)?;
            is_limited |= became.is_limited;
            points_stored += sent.points as u64;
            if let Some((why, points)) = became.refused {
                points_stored -= points;
                refused.add(LossReason::Malformed, &why, points);
            }
        }
        self.inlet.settle()?.map_err(NotTaken::Busy)?;
        let taken = refused.taken();
        match is_limited && points_stored == 0 {
            true => Err(NotTaken::Limited(taken.why)),
            false => Ok(taken),
        }
    }

    fn store(
        &mut self,
        from: IpAddr,
        sender: &Sender,
        sent: &Sent,
        record_bytes_left: &mut usize,
    ) -> Result<Outcome, Gone> {
        let all = |why: &str, is_limited| Outcome {
            refused: Some((why.to_owned(), sent.points as u64)),
            is_limited,
        };
        let known = self.inlet.catalog()?;
        let catalog_bytes_left = self.shares().catalog_bytes_left(from);
        let catalog_bytes_max = known.catalog_bytes.saturating_add(catalog_bytes_left);
        let catalog_bytes_max = catalog_bytes_max.min(self.catalog_bytes_max);
        if let Err(why) = self.find(from, sender, &known.catalog) {
            self.lose(why, sent);
            return Ok(all(why, true));
        }
        // The writer thread would have to copy the catalog to change it.
        drop(known);
        let store = self.stores.get_mut(sender);
        let store = store.expect("it is there, or was just inserted");
        let targets = sent.targets.iter();
        let targets: Vec<Sample<'_>> = targets
            .map(|(labels, time_ms)| sample(TARGET_INFO, labels, 1.0, *time_ms))
            .collect();
        let samples = sent.samples.iter();
        let samples: Vec<Sample<'_>> = samples
            .map(|(_, time_ms, sent)| sample(&sent.metric, &sent.labels, sent.value, *time_ms))
            .collect();
        let arrived = Arrived {
            time_ms: wall_clock().0 / MS_NS,
            reported: &targets,
            samples: Some(&samples),
            refused: Refused::default(),
            record_bytes_max: *record_bytes_left,
            catalog_bytes_max,
        };
        match store.store(&mut self.inlet, &arrived) {
            Ok(stored) => {
                *record_bytes_left = stored.record_bytes_left;
                self.shares().add_catalog_bytes(from, stored.catalog_bytes);
                Ok(Outcome {
                    refused: of_points(&stored, sent),
                    is_limited: stored.is_limited,
                })
            }
            Err(Failed::WriterGone) => Err(Gone),
            Err(Failed::Defining(why)) => {
                self.stores.remove(sender);
                self.lose(&why, sent);
                Ok(all(&why, false))
            }
        }
    }

    /// Notes the data points of a sender without a source as lost.
    fn lose(&mut self, why: &str, sent: &Sent) {
        Refused::unread(sent.points as u64, why).enter(&mut self.inlet, None);
    }

    /// Ensures that a sender has a store. The error is the reason why a new sender gets none; a sender in the catalog is not new.
    fn find(
        &mut self,
        from: IpAddr,
        sender: &Sender,
        catalog: &Catalog,
    ) -> Result<(), &'static str> {
        if !self.stores.contains_key(sender) {
            let store = self.store_of(sender);
            if catalog.find_even_forgotten(store.source()).is_none() {
                self.shares().add_sender(from)?;
            }
            if self.stores.len() >= STORES_MAX {
                let any = self.stores.keys().next().cloned();
                any.and_then(|any| self.stores.remove(&any));
            }
            self.stores.insert(sender.clone(), store);
        }
        Ok(())
    }

    fn shares(&self) -> MutexGuard<'_, Shares> {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes room in memory if that is scarce.
    fn forget_idle(&mut self) {
        let period = self.out_of_order.max(FORGET_EVERY_MIN);
        if self.memory.is_scarce() && self.forgot.elapsed() >= period {
            self.stores.values_mut().for_each(GroupStore::forget_idle);
            self.forgot = Instant::now();
        }
    }

    fn store_of(&self, sender: &Sender) -> GroupStore {
        let labels = Series::from([
            ("job".to_owned(), sender.job.clone()),
            ("instance".to_owned(), sender.instance.clone()),
        ]);
        GroupStore::new(
            Arc::clone(&self.directory),
            names::of_sender(&sender.job, &sender.instance),
            labels,
            self.series_max,
            Overload::Block,
        )
        .with_window(self.out_of_order, Arc::clone(&self.memory))
    }
}

fn sample<'a>(
    metric: &'a str,
    labels: &'a BTreeMap<String, String>,
    value: f64,
    time_ms: i64,
) -> Sample<'a> {
    let labels = labels.iter();
    Sample {
        metric,
        labels: labels
            .map(|(name, text)| (name.as_str(), Cow::Borrowed(text.as_str())))
            .collect(),
        value,
        time_ms: Some(time_ms),
    }
}

/// Counts the data points that have a refused sample, under the reasons of the samples.
fn of_points(stored: &Stored, sent: &Sent) -> Option<(String, u64)> {
    let points = stored.refused_at.iter();
    let points: BTreeSet<usize> = points
        .filter_map(|at| sent.samples.get(*at).map(|(point, ..)| *point))
        .collect();
    let mut words: Vec<String> = stored.refused.causes().cloned().collect();
    words.extend(stored.trouble.clone());
    // All refused samples may be of `target_info`, which is not a data point: then the count is 0.
    (stored.refused.count() > 0).then(|| (words.join("; "), points.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::super::shares::NEW_MAX;
    use super::*;
    use crate::config::Config;
    use crate::daemon::testing::Scene;

    #[test]
    fn senders_that_replace_others_know_what_these_added_today() {
        let scene = Scene::start(|_| {});
        let config = Config::parse("[otlp]\nlisten = ['127.0.0.1:0']\n").unwrap();
        let def = config.otlp.unwrap();
        let shares = Arc::new(Mutex::new(Shares::new(&def)));
        let directory = Directory::open(&scene.dir).unwrap();
        let senders = || {
            let (directory, shares) = (Arc::clone(&directory), Arc::clone(&shares));
            Senders::new(scene.inlet(), directory, &def, shares)
        };
        let sender = |nth: usize| Sender {
            job: "job".to_owned(),
            instance: nth.to_string(),
        };
        let from = "192.0.2.1".parse().unwrap();
        let catalog = Catalog::new();
        let mut first = senders();
        for nth in 0..NEW_MAX {
            first.find(from, &sender(nth), &catalog).unwrap();
        }
        let refused = senders().find(from, &sender(NEW_MAX), &catalog);
        assert!(refused.unwrap_err().contains("1000 senders"));
    }
}
