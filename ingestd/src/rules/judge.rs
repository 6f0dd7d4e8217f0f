//! Whether the condition of a rule holds of a window, asked of the engine's aggregate over one snapshot.
//!
//! Bins settle a quantile only as far as the answer needs it; the exact value is asked for where its bin holds the threshold, and for an alert.

use std::time::Duration;

use loom_engine::query::{AggregateRow, AggregateSpec, Poll, Snapshot, aggregate};
use loom_engine::schema::{Catalog, Domain};
use loom_engine::{Address, Error, IndexId, SourceId, TimeRange, Timestamp, ValueRange};

use super::watch::nanos;
use crate::config::{RuleDef, Shown, Window};

/// Where a rule looks.
#[derive(Copy, Clone, Debug)]
pub struct Subject {
    source: SourceId,
    index: IndexId,
    domain: Domain,
}

/// The times that a window holds.
pub fn window(over: Duration, end: Timestamp) -> TimeRange {
    TimeRange::half_open(Timestamp(end.0.saturating_sub(nanos(over))), end)
}

/// Finds the source and the index of a rule.
///
/// # Errors
/// Unknown or closed ones; a source with its own time, whose records have no order of arrival in an index.
pub fn subject(catalog: &Catalog, def: &RuleDef) -> Result<Subject, Error> {
    let source = catalog.find(&def.source);
    let source = source.ok_or_else(|| catalog.unknown_source(&def.source))?;
    let index = source.index(&def.index);
    let index = index.ok_or_else(|| source.unknown_index(&def.index))?;
    let refused = |why: String| Err(Error::Query(format!("rule '{}': {why}", def.name)));
    if !source.is_open() {
        return refused(format!(
            "source '{}' is closed; open it with 'ingestd source add', or close the rule",
            source.name
        ));
    }
    if index.until.is_some() {
        return refused(format!(
            "index '{}' of source '{}' is closed; add another with 'ingestd index add', or close the rule",
            index.name, source.name
        ));
    }
    if source.own_time() {
        return refused(format!(
            "source '{}' has its own time, and windows go by arrival; use a source with time = \"arrival\"",
            source.name
        ));
    }
    let field = index.def.value.as_ref();
    let field = field.and_then(|name| source.fields.iter().find(|field| field.name == *name));
    let domain = field.and_then(|field| Domain::of(field.ty));
    Ok(Subject {
        source: source.id,
        index: index.id,
        domain: domain.unwrap_or(Domain::of_kind(index.kind)),
    })
}

/// The note that a rule cannot be evaluated until this is mended.
pub fn not_yet(def: &RuleDef, why: &Error) -> String {
    format!("rule '{}' cannot be evaluated yet: {why}", def.name)
}

/// What a rule finds in a window.
#[derive(Copy, Clone, Debug)]
pub struct Judged {
    pub holds: bool,
    /// What an alert shows; of a quantile the middle of its bin, unless `is_exact`.
    pub shown: Shown,
    pub is_exact: bool,
}

/// Whether the condition holds of the window that ends so.
///
/// # Errors
/// Records of the window are evicted; damage; [`Error::Interrupted`].
pub fn judge(
    snapshot: &Snapshot,
    subject: Subject,
    def: &RuleDef,
    end: Timestamp,
    poll: &Poll<'_>,
) -> Result<Judged, Error> {
    let time = window(def.over, end);
    require_retained(snapshot, def, time)?;
    let row = ask(snapshot, subject, def, time, true, poll)?;
    match def.when.holds(of_row(&row, subject, def)) {
        Some(holds) => Ok(Judged {
            holds,
            shown: def.when.shown(of_row(&row, subject, def)),
            is_exact: def.when.quantiles().is_empty(),
        }),
        None => exactly(snapshot, subject, def, time, poll),
    }
}

impl Judged {
    /// The same with the exact value.
    ///
    /// # Errors
    /// As [`judge`].
    pub fn exact(
        self,
        snapshot: &Snapshot,
        subject: Subject,
        def: &RuleDef,
        end: Timestamp,
        poll: &Poll<'_>,
    ) -> Result<Judged, Error> {
        if self.is_exact {
            return Ok(self);
        }
        exactly(snapshot, subject, def, window(def.over, end), poll)
    }
}

fn exactly(
    snapshot: &Snapshot,
    subject: Subject,
    def: &RuleDef,
    time: TimeRange,
    poll: &Poll<'_>,
) -> Result<Judged, Error> {
    let row = ask(snapshot, subject, def, time, false, poll)?;
    let window = of_row(&row, subject, def);
    let holds = def.when.holds(window);
    Ok(Judged {
        holds: holds.expect("exact quantiles leave nothing open"),
        shown: def.when.shown(window),
        is_exact: true,
    })
}

fn of_row<'a>(row: &'a AggregateRow, subject: Subject, def: &RuleDef) -> Window<'a> {
    Window {
        row,
        domain: subject.domain,
        over: def.over,
    }
}

fn ask(
    snapshot: &Snapshot,
    subject: Subject,
    def: &RuleDef,
    time: TimeRange,
    approx: bool,
    poll: &Poll<'_>,
) -> Result<AggregateRow, Error> {
    let spec = AggregateSpec {
        source: subject.source,
        index: subject.index,
        time,
        value: ValueRange::ALL,
        bucket: None,
        quantiles: def.when.quantiles().to_vec(),
        approx,
        threads: 1,
    };
    let row = aggregate(snapshot, &spec, poll)?.pop();
    Ok(row.expect("an aggregate without buckets has one row"))
}

/// Refuses a window that begins before the oldest record, if records were evicted.
fn require_retained(snapshot: &Snapshot, def: &RuleDef, time: TimeRange) -> Result<(), Error> {
    if snapshot.begin() == Address::ZERO || snapshot.oldest_ts()? <= Some(time.first) {
        return Ok(());
    }
    Err(Error::Query(format!(
        "rule '{}': retention has removed records of the window; lower over, or raise [retention] max_bytes",
        def.name
    )))
}
