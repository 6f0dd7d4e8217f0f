//! Sorts the data points of a request by sender. It refuses some before a look at their series.

use std::collections::BTreeMap;

use loom_engine::schema::LossReason;
use loom_otlp::{Found, Origin, Point};

use crate::daemon::refused::Refused;
use crate::wall_clock;

const MS_NS: u64 = 1_000_000;

/// A request as far as it is read.
pub(super) struct Request {
    pub(super) senders: BTreeMap<Sender, Sent>,
    /// Refused before a look at their series.
    pub(super) refused: Refused,
    bytes_left: usize,
    targets_max: usize,
    now_ms: i64,
}

/// The job and the instance, which also identify the target of a scrape.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Sender {
    pub(super) job: String,
    pub(super) instance: String,
}

/// The part of a request that belongs to one sender.
#[derive(Default)]
pub(super) struct Sent {
    /// Each has the number of its point and its time.
    pub(super) samples: Vec<(usize, i64, loom_otlp::Sample)>,
    pub(super) points: usize,
    /// Labels of `target_info`, and the latest time: a Collector may repeat a resource for each of its points.
    pub(super) targets: BTreeMap<BTreeMap<String, String>, i64>,
}

impl Request {
    pub(super) fn new(bytes_max: usize, targets_max: usize) -> Request {
        Request {
            senders: BTreeMap::new(),
            refused: Refused::default(),
            bytes_left: bytes_max,
            targets_max,
            now_ms: wall_clock().0 / MS_NS as i64,
        }
    }

    pub(super) fn add(&mut self, found: Found<'_>) {
        match found {
            Found::Point(origin, point) => self.add_point(origin, point),
            Found::Target(origin, labels, time_ns) => self.add_target(origin, labels, time_ns),
            Found::Refused(metric, why) => {
                let refused = &mut self.refused;
                refused.add_such(LossReason::Malformed, why, || metric.to_owned());
            }
        }
    }

    fn add_point(&mut self, origin: &Origin, point: Point) {
        let samples = point.samples.iter();
        let bytes = samples.map(|sample| sample.metric.len() + bytes(&sample.labels));
        if !self.has_room(bytes.sum()) {
            return;
        }
        let time_ms = self.time_ms(point.time_ns);
        let sent = self.of(origin);
        let at = sent.points;
        let samples = point.samples.into_iter();
        sent.samples
            .extend(samples.map(|sample| (at, time_ms, sample)));
        sent.points += 1;
    }

    fn add_target(&mut self, origin: &Origin, labels: BTreeMap<String, String>, time_ns: u64) {
        let (time_ms, targets_max) = (self.time_ms(time_ns), self.targets_max);
        let targets = &mut self.of(origin).targets;
        if let Some(latest_ms) = targets.get_mut(&labels) {
            *latest_ms = time_ms.max(*latest_ms);
        } else if targets.len() >= targets_max {
            let why = "a sender has more than series_max resources in one request";
            self.refused.add(LossReason::Malformed, why, 1);
        } else if self.has_room(bytes(&labels)) {
            self.of(origin).targets.insert(labels, time_ms);
        }
    }

    /// Counts the bytes of a point or a target, or refuses it if they are too many.
    fn has_room(&mut self, bytes: usize) -> bool {
        let Some(left) = self.bytes_left.checked_sub(bytes) else {
            let why = "the samples take more than 4 times body_max; send fewer at once";
            self.refused.add(LossReason::TooLong, why, 1);
            return false;
        };
        self.bytes_left = left;
        true
    }

    fn of(&mut self, origin: &Origin) -> &mut Sent {
        let sender = Sender {
            job: origin.job(),
            instance: origin.instance(),
        };
        self.senders.entry(sender).or_default()
    }

    fn time_ms(&self, time_ns: u64) -> i64 {
        match time_ns {
            0 => self.now_ms,
            time_ns => (time_ns / MS_NS) as i64,
        }
    }
}

/// The approximate size of a sample, without the name of its metric.
fn bytes(labels: &BTreeMap<String, String>) -> usize {
    let labels = labels.iter();
    let each = labels.map(|(name, text)| 64 + name.len() + text.len());
    64 + each.sum::<usize>()
}
