//! Data points into the groups of their senders.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loom_engine::query::Directory;
use loom_engine::schema::{LossReason, Overload};
use loom_otlp::{NotTaken, TARGET_INFO, Taken};

use super::batch::Refused;
use super::points::{Request, Sender, Sent};
use super::{WayIn, gone};
use crate::daemon::message::Gone;
use crate::daemon::series::{Arrived, Failed, GroupStore, Series, Stored};
use crate::exposition::Sample;
use crate::wall_clock;

const MS_NS: i64 = 1_000_000;
const DAY: Duration = Duration::from_secs(86_400);
/// How many senders may be new within a day: each has a source, for ever.
const NEW_MAX: usize = 1000;
/// The longest part of a source's name that a sender gives.
const PART_BYTES_MAX: usize = 100;

/// All senders that are known.
pub(super) struct Senders {
    writer: WayIn,
    directory: Arc<Directory>,
    series_max: usize,
    stores: HashMap<Sender, GroupStore>,
    /// Since when new senders are counted.
    day: Instant,
}

impl Senders {
    pub(super) fn new(writer: WayIn, directory: Arc<Directory>, series_max: usize) -> Senders {
        Senders {
            writer,
            directory,
            series_max,
            stores: HashMap::new(),
            day: Instant::now(),
        }
    }

    pub(super) fn take(&mut self, body: &[u8], bytes_max: usize) -> Result<Taken, NotTaken> {
        let mut request = Request::new(bytes_max, self.series_max);
        loom_otlp::metrics(body, |found| request.add(found))?;
        let mut refused = request.refused;
        self.writer.settle(None, refused.clone())?;
        let mut record_bytes_left = bytes_max;
        for (sender, sent) in request.senders {
            let became = self.store(&sender, &sent, &mut record_bytes_left);
            for (why, points) in became.map_err(|Gone| gone(Gone))? {
                refused.add(LossReason::Malformed, &why, points);
            }
        }
        self.writer.settle(None, Refused::default())?;
        Ok(refused.taken())
    }

    /// Stores what a sender sent; how many of its data points are refused, by why.
    fn store(
        &mut self,
        sender: &Sender,
        sent: &Sent,
        record_bytes_left: &mut usize,
    ) -> Result<BTreeMap<String, u64>, Gone> {
        let all = |why: String| BTreeMap::from([(why, sent.points as u64)]);
        let Some(store) = self.of(sender) else {
            let why = "more than 1000 senders are new within a day".to_owned();
            let refused = all(why);
            self.count(&refused);
            return Ok(refused);
        };
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
            refused: BTreeMap::new(),
            record_bytes_max: *record_bytes_left,
        };
        match store.store(&arrived) {
            Ok(stored) => {
                *record_bytes_left = stored.record_bytes_left;
                Ok(of_points(&stored, sent))
            }
            Err(Failed::WriterGone) => Err(Gone),
            Err(Failed::Defining(why)) => {
                self.stores.remove(sender);
                let refused = all(why);
                self.count(&refused);
                Ok(refused)
            }
        }
    }

    /// Counts data points of a sender that has no source.
    fn count(&self, refused: &BTreeMap<String, u64>) {
        let mut counted = Refused::default();
        for (why, points) in refused {
            counted.add(LossReason::Malformed, why, *points);
        }
        // A daemon that stops counts no more.
        let _ = self.writer.settle(None, counted);
    }

    fn of(&mut self, sender: &Sender) -> Option<&mut GroupStore> {
        if !self.stores.contains_key(sender) {
            if self.day.elapsed() >= DAY {
                self.day = Instant::now();
                self.stores.clear();
            }
            if self.stores.len() >= NEW_MAX {
                return None;
            }
            let store = self.store_of(sender);
            self.stores.insert(sender.clone(), store);
        }
        self.stores.get_mut(sender)
    }

    fn store_of(&self, sender: &Sender) -> GroupStore {
        let labels = Series::from([
            ("job".to_owned(), sender.job.clone()),
            ("instance".to_owned(), sender.instance.clone()),
        ]);
        GroupStore::new(
            self.writer.inbox.clone(),
            Arc::clone(&self.writer.peer),
            Arc::clone(&self.directory),
            format!("metrics/{}/{}", part(&sender.job), part(&sender.instance)),
            labels,
            self.series_max,
            Overload::Block,
        )
    }
}

/// A text as it can stand between two slashes of a source's name.
fn part(text: &str) -> String {
    let fit = |c: char| if c == '/' || c.is_control() { '_' } else { c };
    let mut part: String = text.chars().map(fit).collect();
    part.truncate(part.floor_char_boundary(PART_BYTES_MAX));
    part
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

/// How many data points have a refused sample, by why. The words are those of the samples.
fn of_points(stored: &Stored, sent: &Sent) -> BTreeMap<String, u64> {
    let points = stored.refused_at.iter();
    let points: BTreeSet<usize> = points
        .filter_map(|at| sent.samples.get(*at).map(|(point, ..)| *point))
        .collect();
    let mut words: Vec<String> = stored.refused.keys().cloned().collect();
    words.extend(stored.trouble.clone());
    match stored.refused.is_empty() {
        true => BTreeMap::new(),
        // The words may be of `target_info` alone, which is not a data point.
        false => BTreeMap::from([(words.join("; "), points.len() as u64)]),
    }
}
