//! Data points into the groups of their senders. A sender is a job and an instance, as a target of a scrape is.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loom_engine::query::Directory;
use loom_engine::schema::LossReason;
use loom_otlp::{NotTaken, Point, Taken};

use super::batch::Refused;
use super::{WayIn, gone};
use crate::daemon::message::Gone;
use crate::daemon::series::{Arrived, Failed, GroupStore, Series, Stored};
use crate::exposition::Sample;
use crate::wall_clock;

const MS_NS: u64 = 1_000_000;
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

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Sender {
    job: String,
    instance: String,
}

/// What a request has of one sender.
#[derive(Default)]
struct Sent {
    /// With the number of the point that each belongs to.
    samples: Vec<(usize, i64, loom_otlp::Sample)>,
    points: usize,
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
        let (sent, mut refused) = self.read(body, bytes_max)?;
        let read = refused.clone();
        self.writer.settle(None, read)?;
        for (sender, sent) in sent {
            let became = self.store(&sender, &sent).map_err(|Gone| gone(Gone))?;
            for (why, points) in became {
                refused.add(LossReason::Malformed, &why, points);
            }
        }
        self.writer.settle(None, Refused::default())?;
        Ok(refused.taken())
    }

    /// The samples of a request by sender, and what is refused without a look at its series.
    fn read(
        &self,
        body: &[u8],
        bytes_max: usize,
    ) -> Result<(BTreeMap<Sender, Sent>, Refused), NotTaken> {
        let mut all: BTreeMap<Sender, Sent> = BTreeMap::new();
        let mut refused = Refused::default();
        let mut bytes_left = bytes_max;
        let now_ms = wall_clock().0 / MS_NS as i64;
        loom_otlp::metrics(body, |point| {
            let (origin, point) = match point {
                Ok(point) => point,
                Err((metric, why)) => {
                    // Names of all metrics would be as many words as there are metrics.
                    let known = refused.words_for(why);
                    let why = known.unwrap_or_else(|| format!("{why}, such as {metric}"));
                    return refused.add(LossReason::Malformed, &why, 1);
                }
            };
            let sent = all
                .entry(Sender {
                    job: origin.job(),
                    instance: origin.instance(),
                })
                .or_default();
            let Some(left) = bytes_left.checked_sub(bytes(&point)) else {
                return refused.add(
                    LossReason::TooLong,
                    "the samples take more than 4 times body_max; send fewer at once",
                    1,
                );
            };
            if sent.samples.len() + point.samples.len() > self.series_max {
                let why = "a sender has more than series_max series in one request; raise series_max, or let it drop attributes";
                return refused.add(LossReason::Malformed, why, 1);
            }
            bytes_left = left;
            let time_ms = match point.time_ns {
                0 => now_ms,
                time_ns => (time_ns / MS_NS) as i64,
            };
            let at = sent.points;
            let samples = point.samples.into_iter();
            sent.samples
                .extend(samples.map(|sample| (at, time_ms, sample)));
            sent.points += 1;
        })?;
        Ok((all, refused))
    }

    /// Stores what a sender sent; how many of its data points are refused, by why.
    fn store(&mut self, sender: &Sender, sent: &Sent) -> Result<BTreeMap<String, u64>, Gone> {
        let all = |why: String| BTreeMap::from([(why, sent.points as u64)]);
        let Some(store) = self.of(sender) else {
            let why = "more than 1000 senders are new within a day".to_owned();
            let refused = all(why);
            self.count(&refused);
            return Ok(refused);
        };
        let samples: Vec<Sample<'_>> = sent.samples.iter().map(borrowed).collect();
        let arrived = Arrived {
            time_ms: wall_clock().0 / MS_NS as i64,
            reported: &[],
            samples: Some(&samples),
            refused: BTreeMap::new(),
        };
        match store.store(&arrived) {
            Ok(stored) => Ok(of_points(&stored, sent)),
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

fn bytes(point: &Point) -> usize {
    let of = |sample: &loom_otlp::Sample| {
        let labels = sample
            .labels
            .iter()
            .map(|(name, text)| 64 + name.len() + text.len());
        64 + sample.metric.len() + labels.sum::<usize>()
    };
    point.samples.iter().map(of).sum()
}

fn borrowed<'a>((_, time_ms, sample): &'a (usize, i64, loom_otlp::Sample)) -> Sample<'a> {
    let labels = sample.labels.iter();
    Sample {
        metric: &sample.metric,
        labels: labels
            .map(|(name, text)| (name.as_str(), Cow::Borrowed(text.as_str())))
            .collect(),
        value: sample.value,
        time_ms: Some(*time_ms),
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
    match points.len() {
        0 => BTreeMap::new(),
        points => BTreeMap::from([(words.join("; "), points as u64)]),
    }
}
