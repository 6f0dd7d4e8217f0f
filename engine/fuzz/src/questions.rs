//! Everything that a reader may be asked, of a directory that may say anything.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use loom_engine::check::check_logs;
use loom_engine::log::LogReader;
use loom_engine::query::{
    AggregateSpec, Ask, Bucket, ChunkList, CountSpec, Directory, Histogram, HistogramSpec,
    IndexAsked, Poll, Predicate, Quantile, RecordCounts, Scan, ScanSpec, Snapshot, TopSpec,
    aggregate, indexed_scan, raw_scan, top,
};
use loom_engine::schema::{Filter, Source};
use loom_engine::{Address, Error, IndexId, Key, Result, TimeRange, Timestamp, ValueRange};

use crate::{SOUND, label};

/// A scan that meets so many chunks in a row which cannot be read has shown enough: a file may claim any number of them.
const FAILURES_MOST: u32 = 100;

/// The labels of all errors that occurred, in order, between bars.
pub fn ask(dir: &Path) -> String {
    let mut errors = Errors::default();
    if let Err(error) = questions(dir, &mut errors) {
        errors.add(&error);
    }
    if errors.0.is_empty() {
        return SOUND.to_owned();
    }
    errors.0.into_iter().collect::<Vec<_>>().join(" | ")
}

#[derive(Default)]
struct Errors(BTreeSet<String>);

impl Errors {
    fn add(&mut self, error: &Error) {
        self.0.insert(label(error));
    }

    /// A failure ends one question; the others are asked all the same.
    fn of<T>(&mut self, result: Result<T>) -> Option<T> {
        result.inspect_err(|error| self.add(error)).ok()
    }
}

fn questions(dir: &Path, errors: &mut Errors) -> Result<()> {
    let reader = LogReader::open(dir)?;
    if let Some(report) = errors.of(check_logs(&reader, &mut |_| {})) {
        for damage in report.damage {
            errors.0.insert(format!("check: {}", label(&damage.what)));
        }
    }
    let directory = Directory::of(reader);
    errors.of(directory.status());
    let snapshot = directory.snapshot()?;
    let half = directory.snapshot_at((snapshot.position() / 2) & !7);
    if let Some(half) = errors.of(half) {
        errors.of(half.ends_between_records());
        errors.of(half.newest_ts());
    }
    let newest = errors.of(snapshot.newest_ts()).flatten();
    errors.of(snapshot.losses(&Poll::never()));
    list_chunks(&snapshot, errors);
    let sources: Vec<Arc<Source>> = snapshot.catalog().sources().take(6).cloned().collect();
    for source in sources {
        errors.of(snapshot.source_totals(source.id));
        errors.of(snapshot.require_complete(source.id, TimeRange::ALL, &Poll::never()));
        let lately = TimeRange {
            first: Timestamp(newest.unwrap_or(Timestamp(0)).0.saturating_sub(1_000_000)),
            last: Timestamp::MAX,
        };
        for time in [TimeRange::ALL, lately] {
            errors.of(raw_scan(&snapshot, source.id, time, &Poll::never(), |_| {
                ControlFlow::Continue(())
            }));
            scan(&snapshot, &source, Predicate::time(time), errors);
        }
        for index in source.indexes.iter().take(4) {
            ask_index(&snapshot, &source, index.id, lately, errors);
        }
    }
    Ok(())
}

fn list_chunks(snapshot: &Snapshot, errors: &mut Errors) {
    let mut list = ChunkList::new(snapshot, None);
    while let Some(Some(_)) = errors.of(list.next(&Poll::never())) {}
}

fn ask_index(
    snapshot: &Snapshot,
    source: &Source,
    index: IndexId,
    lately: TimeRange,
    errors: &mut Errors,
) {
    let high = ValueRange {
        min: Key::from_u64(500),
        max: Key::MAX,
    };
    let (all, some) = (Predicate::All, filter(source));
    let asked = |filter| IndexAsked {
        snapshot,
        source: source.id,
        index,
        filter,
    };
    let questions = [
        (TimeRange::ALL, ValueRange::ALL, &all, None, false),
        (lately, high, &some, Some(Bucket::nanos(200_000)), false),
        (TimeRange::ALL, high, &some, None, true),
    ];
    for (time, value, filter, bucket, approx) in questions {
        let quantiles = [0.5, 0.999].map(Quantile::new).into_iter().flatten();
        let spec = AggregateSpec {
            source: source.id,
            index,
            time,
            value,
            filter: filter.clone(),
            bucket,
            quantiles: quantiles.collect(),
            approx,
            threads: 1,
        };
        errors.of(aggregate(snapshot, &spec, &Poll::never()));
        let spec = HistogramSpec {
            time,
            bucket,
            threads: 1,
        };
        let histogram = Histogram::new(&[asked(filter)], spec);
        if let Some(mut histogram) = errors.of(histogram) {
            while let Some(Some(_)) = errors.of(histogram.next(&Poll::never())) {}
        }
    }
    for (rows, least, filter) in [(5, false, &all), (300, true, &some)] {
        let spec = TopSpec {
            time: TimeRange::ALL,
            rows,
            least,
            threads: 1,
        };
        errors.of(top(&[asked(filter)], spec, &Poll::never()));
    }
    let spec = CountSpec {
        time: lately,
        bucket: Bucket::nanos(200_000),
        threads: 1,
    };
    for filter in [&all, &some] {
        let counts = RecordCounts::new(&[(snapshot, source.id, filter)], spec);
        if let Some(mut counts) = errors.of(counts) {
            while let Some(Some(_)) = errors.of(counts.next(&Poll::never())) {}
        }
    }
    let predicate = Predicate::value(index, high);
    scan(snapshot, source, predicate, errors);
    errors.of(indexed_scan(
        snapshot,
        index,
        TimeRange::ALL,
        high,
        &Poll::never(),
        |_| ControlFlow::Continue(()),
    ));
}

/// Some records, by the first field that has numbers.
fn filter(source: &Source) -> Predicate {
    let field = source.fields.iter().find(|field| field.ty.kind().is_some());
    let text = field.map(|field| format!("\"{}\" > 500", field.name.replace('"', "\"\"")));
    let filter = text.map(|text| Filter::parse(&text, &source.fields));
    match filter {
        Some(Ok(filter)) => Predicate::matching(&filter, source),
        _ => Predicate::All,
    }
}

fn scan(snapshot: &Snapshot, source: &Source, exact: Predicate, errors: &mut Errors) {
    let spec = ScanSpec {
        source: source.id,
        after: Address::ZERO,
        exact,
        prune: Predicate::All,
        index_filters: Vec::new(),
    };
    let Some(scan) = errors.of(Scan::new(snapshot, spec)) else {
        return;
    };
    errors.of(scan.count(&Poll::never()));
    let mut reader = scan.reader(Ask::all());
    let mut failures = 0;
    while failures < FAILURES_MOST
        && let Some(Some(chunk)) = errors.of(scan.next(&Poll::never()))
    {
        match errors.of(reader.read(chunk)) {
            Some(_) => failures = 0,
            None => failures += 1,
        }
    }
}
