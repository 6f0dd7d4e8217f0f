//! Judges the condition of a rule over a window, by the engine's aggregate over one snapshot.
//!
//! Arrival never goes back in the log, so a window is a range of addresses, also of a source with its own time.
//! Bins settle a quantile as far as the answer needs it; the exact value is read if its bin holds the threshold, and for an alert.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use loom_engine::query::{
    Aggregate, AggregateRow, AggregateSpec, Poll, Predicate, Quantile, Snapshot,
};
use loom_engine::schema::{Catalog, Domain, FieldDef, Index, Source};
use loom_engine::{Address, Error, IndexId, SourceId, TimeRange, Timestamp, ValueRange};

use super::watch::nanos;
use crate::config::{RuleDef, Shown, Unit, Window};

/// Edges that are remembered; others are searched again.
const EDGES_MAX: usize = 10_000;
/// Answers that are remembered: enough for all rules that there may be.
const ANSWERS_MAX: usize = 1000;

/// The source and the index of a rule.
#[derive(Copy, Clone, Debug)]
pub struct Subject {
    source: SourceId,
    index: IndexId,
    domain: Domain,
    /// The unit of values, if the condition has a duration.
    unit: Option<Unit>,
}

/// Returns the times of the window that ends at `end`.
pub fn window(over: Duration, end: Timestamp) -> TimeRange {
    TimeRange::half_open(Timestamp(end.0.saturating_sub(nanos(over))), end)
}

/// Finds the source and the index of a rule.
///
/// # Errors
/// They are unknown or closed; the condition has a duration, and the unit of the values is unknown.
pub fn subject(catalog: &Catalog, def: &RuleDef) -> Result<Subject, Error> {
    let source = catalog.find(&def.source);
    let source = source.ok_or_else(|| catalog.unknown_source(&def.source))?;
    let index = source.index(&def.index);
    let index = index.ok_or_else(|| source.unknown_index(&def.index))?;
    let refused = |why: String| Err(Error::Query(why));
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
    let domain = values(source, index).and_then(|field| Domain::of(field.ty));
    Ok(Subject {
        source: source.id,
        index: index.id,
        domain: domain.unwrap_or(Domain::of_kind(index.kind)),
        unit: unit(source, index, def)?,
    })
}

/// Checks that the durations of rules have a unit, as far as their sources and indexes are known already.
///
/// # Errors
/// The first rule with a duration over values of an unknown unit.
pub fn check_units(catalog: &Catalog, rules: &[RuleDef]) -> Result<(), Error> {
    for def in rules {
        if let Some(source) = catalog.find(&def.source)
            && let Some(index) = source.index(&def.index)
        {
            unit(source, index, def)?;
        }
    }
    Ok(())
}

fn unit(source: &Source, index: &Index, def: &RuleDef) -> Result<Option<Unit>, Error> {
    def.unit_of(values(source, index)).map_err(Error::Query)
}

/// The field that an index summarises.
fn values<'a>(source: &'a Source, index: &Index) -> Option<&'a FieldDef> {
    let name = index.def.value.as_ref()?;
    source.fields.iter().find(|field| field.name == *name)
}

/// The note on a rule that cannot be evaluated until its error is mended.
pub fn not_yet(def: &RuleDef, why: &Error) -> String {
    format!("rule '{}' cannot be evaluated yet: {why}", def.name)
}

/// The outcome of a rule in a window.
#[derive(Copy, Clone, Debug)]
pub struct Judged {
    pub holds: bool,
    /// The values of an alert; a quantile is the middle of its bin, unless `is_exact`.
    pub shown: Shown,
    pub is_exact: bool,
    /// The end of the window in the log, for `at`.
    pub position: u64,
}

/// Answers that rules need again and again in one epoch of a directory.
#[derive(Debug, Default)]
pub struct Known {
    /// The addresses at which windows begin and end: of the first record that arrived at their time or later.
    edges: BTreeMap<Timestamp, Address>,
    /// The begin of the retained log, and the arrival of the oldest record since then.
    oldest: Option<(Address, Option<Timestamp>)>,
    /// Rules that differ in their thresholds share an answer.
    answers: HashMap<Question, AggregateRow>,
}

/// A question about the records between two addresses.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Question {
    source: SourceId,
    index: IndexId,
    after: Address,
    end: Address,
    quantiles: Vec<Quantile>,
    approx: bool,
}

impl Known {
    /// Returns the address of the first record that arrived at a time or later. All records that are published later must be later than it.
    ///
    /// # Errors
    /// Damage, or eviction meanwhile.
    fn address(&mut self, snapshot: &Snapshot, time: Timestamp) -> Result<Address, Error> {
        if let Some(known) = self.edges.get(&time) {
            return Ok(*known);
        }
        let found = snapshot.first_arrived(time)?.known()?;
        self.edges.insert(time, found);
        while self.edges.len() > EDGES_MAX {
            self.edges.pop_first();
        }
        Ok(found)
    }

    /// Refuses a window that begins before the oldest record, if records were evicted.
    fn require_retained(
        &mut self,
        snapshot: &Snapshot,
        def: &RuleDef,
        time: TimeRange,
    ) -> Result<(), Error> {
        let begin = snapshot.begin();
        if begin == Address::ZERO {
            return Ok(());
        }
        let oldest = match self.oldest {
            Some((known, oldest)) if known == begin => oldest,
            _ => snapshot.oldest_ts()?,
        };
        self.oldest = Some((begin, oldest));
        if oldest <= Some(time.first) {
            return Ok(());
        }
        Err(Error::Query(format!(
            "rule '{}': retention has removed records of the window; lower over, or raise [retention] max_bytes",
            def.name
        )))
    }

    fn ask(
        &mut self,
        span: &Span,
        subject: Subject,
        def: &RuleDef,
        approx: bool,
        poll: &Poll<'_>,
    ) -> Result<AggregateRow, Error> {
        let question = Question {
            source: subject.source,
            index: subject.index,
            after: span.after,
            end: Address(span.snapshot.position()),
            quantiles: def.when.quantiles().to_vec(),
            approx,
        };
        if let Some(row) = self.answers.get(&question) {
            return Ok(row.clone());
        }
        let row = span.ask(&question, poll)?;
        if self.answers.len() >= ANSWERS_MAX {
            self.answers.clear();
        }
        self.answers.insert(question, row.clone());
        Ok(row)
    }
}

/// The records that arrived within a window.
struct Span {
    snapshot: Snapshot,
    after: Address,
    /// The window is shorter than `over`, because it begins with the rule.
    is_cut: bool,
}

impl Span {
    fn of(
        snapshot: &Snapshot,
        known: &mut Known,
        def: &RuleDef,
        time: TimeRange,
    ) -> Result<Span, Error> {
        known.require_retained(snapshot, def, time)?;
        let after = known.address(snapshot, time.first)?;
        let end = known.address(snapshot, time.end())?;
        Ok(Span {
            snapshot: snapshot.up_to(end),
            after,
            is_cut: time.end().0 - time.first.0 < nanos(def.over),
        })
    }

    fn ask(&self, question: &Question, poll: &Poll<'_>) -> Result<AggregateRow, Error> {
        let spec = AggregateSpec {
            source: question.source,
            index: question.index,
            time: TimeRange::ALL,
            value: ValueRange::ALL,
            filter: Predicate::All,
            bucket: None,
            quantiles: question.quantiles.clone(),
            approx: question.approx,
            threads: 1,
        };
        let mut aggregate = Aggregate::new(&[(self.snapshot.clone(), spec)])?;
        aggregate.after(self.after);
        let row = aggregate.next(poll)?.and_then(|mut rows| rows.pop());
        Ok(row.expect("an aggregate without buckets has one row"))
    }
}

/// Judges the condition over a window.
///
/// # Errors
/// Records of the window are evicted; damage; [`Error::Interrupted`].
pub fn judge(
    snapshot: &Snapshot,
    known: &mut Known,
    subject: Subject,
    def: &RuleDef,
    window: TimeRange,
    poll: &Poll<'_>,
) -> Result<Judged, Error> {
    let span = Span::of(snapshot, known, def, window)?;
    let row = known.ask(&span, subject, def, true, poll)?;
    let is_exact = def.when.quantiles().is_empty();
    match settle(&span, subject, def, &row, is_exact) {
        Some(judged) => Ok(judged),
        None => exactly(&span, known, subject, def, poll),
    }
}

impl Judged {
    /// Returns the judgement with the exact value.
    ///
    /// # Errors
    /// As [`judge`].
    pub fn exact(
        self,
        snapshot: &Snapshot,
        known: &mut Known,
        subject: Subject,
        def: &RuleDef,
        window: TimeRange,
        poll: &Poll<'_>,
    ) -> Result<Judged, Error> {
        if self.is_exact {
            return Ok(self);
        }
        let span = Span::of(snapshot, known, def, window)?;
        exactly(&span, known, subject, def, poll)
    }
}

fn exactly(
    span: &Span,
    known: &mut Known,
    subject: Subject,
    def: &RuleDef,
    poll: &Poll<'_>,
) -> Result<Judged, Error> {
    let row = known.ask(span, subject, def, false, poll)?;
    let judged = settle(span, subject, def, &row, true);
    Ok(judged.expect("exact quantiles leave nothing open"))
}

/// The judgement that follows from a row; `None` if it needs an exact quantile.
fn settle(
    span: &Span,
    subject: Subject,
    def: &RuleDef,
    row: &AggregateRow,
    is_exact: bool,
) -> Option<Judged> {
    let window = Window {
        row,
        domain: subject.domain,
        unit: subject.unit,
        over: def.over,
        is_cut: span.is_cut,
    };
    Some(Judged {
        holds: def.when.holds(window)?,
        shown: def.when.shown(window),
        is_exact,
        position: span.snapshot.position(),
    })
}
