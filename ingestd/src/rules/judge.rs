//! Whether the condition of a rule holds of a window, asked of the engine's aggregate over one snapshot.
//!
//! Arrival never goes back in the log, so a window is a range of addresses, also of a source with its own time.
//! Bins settle a quantile only as far as the answer needs it; the exact value is asked for where its bin holds the threshold, and for an alert.

use std::collections::BTreeMap;
use std::time::Duration;

use loom_engine::query::{Aggregate, AggregateRow, AggregateSpec, Poll, Snapshot};
use loom_engine::schema::{Catalog, Domain};
use loom_engine::{Address, Error, IndexId, SourceId, TimeRange, Timestamp, ValueRange};

use super::watch::nanos;
use crate::config::{RuleDef, Shown, Window};

/// Edges that are remembered; others are searched again.
const EDGES_MAX: usize = 10_000;

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
/// Unknown or closed ones.
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
    /// The end of the window in the log, for `at`.
    pub position: u64,
}

/// The addresses at which windows begin and end: of the first record that arrived at their time or later.
#[derive(Debug, Default)]
pub struct Edges(BTreeMap<Timestamp, Address>);

impl Edges {
    /// The address of a time which every record that is published later follows.
    ///
    /// # Errors
    /// Damage, or eviction meanwhile.
    fn address(&mut self, snapshot: &Snapshot, time: Timestamp) -> Result<Address, Error> {
        if let Some(known) = self.0.get(&time) {
            return Ok(*known);
        }
        let below = self.0.range(..time).next_back();
        let from = below.map_or(Address::ZERO, |(_, address)| *address);
        let found = snapshot.first_arrived(time, from)?;
        self.0.insert(time, found);
        while self.0.len() > EDGES_MAX {
            self.0.pop_first();
        }
        Ok(found)
    }
}

/// The records that arrived within a window.
struct Span {
    snapshot: Snapshot,
    after: Address,
}

impl Span {
    fn of(
        snapshot: &Snapshot,
        edges: &mut Edges,
        def: &RuleDef,
        end: Timestamp,
    ) -> Result<Span, Error> {
        let time = window(def.over, end);
        require_retained(snapshot, def, time)?;
        let after = edges.address(snapshot, time.first)?;
        let end = edges.address(snapshot, end)?;
        Ok(Span {
            snapshot: snapshot.up_to(end),
            after,
        })
    }
}

/// Whether the condition holds of the window that ends so.
///
/// # Errors
/// Records of the window are evicted; damage; [`Error::Interrupted`].
pub fn judge(
    snapshot: &Snapshot,
    edges: &mut Edges,
    subject: Subject,
    def: &RuleDef,
    end: Timestamp,
    poll: &Poll<'_>,
) -> Result<Judged, Error> {
    let span = Span::of(snapshot, edges, def, end)?;
    let row = ask(&span, subject, def, true, poll)?;
    match def.when.holds(of_row(&row, subject, def)) {
        Some(holds) => Ok(Judged {
            holds,
            shown: def.when.shown(of_row(&row, subject, def)),
            is_exact: def.when.quantiles().is_empty(),
            position: span.snapshot.position(),
        }),
        None => exactly(&span, subject, def, poll),
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
        edges: &mut Edges,
        subject: Subject,
        def: &RuleDef,
        end: Timestamp,
        poll: &Poll<'_>,
    ) -> Result<Judged, Error> {
        if self.is_exact {
            return Ok(self);
        }
        exactly(&Span::of(snapshot, edges, def, end)?, subject, def, poll)
    }
}

fn exactly(span: &Span, subject: Subject, def: &RuleDef, poll: &Poll<'_>) -> Result<Judged, Error> {
    let row = ask(span, subject, def, false, poll)?;
    let window = of_row(&row, subject, def);
    let holds = def.when.holds(window);
    Ok(Judged {
        holds: holds.expect("exact quantiles leave nothing open"),
        shown: def.when.shown(window),
        is_exact: true,
        position: span.snapshot.position(),
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
    span: &Span,
    subject: Subject,
    def: &RuleDef,
    approx: bool,
    poll: &Poll<'_>,
) -> Result<AggregateRow, Error> {
    let spec = AggregateSpec {
        source: subject.source,
        index: subject.index,
        time: TimeRange::ALL,
        value: ValueRange::ALL,
        bucket: None,
        quantiles: def.when.quantiles().to_vec(),
        approx,
        threads: 1,
    };
    let mut aggregate = Aggregate::new(&[(span.snapshot.clone(), spec)])?;
    aggregate.after(span.after);
    let row = aggregate.next(poll)?.and_then(|mut rows| rows.pop());
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
