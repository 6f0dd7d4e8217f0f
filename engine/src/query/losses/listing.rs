//! Missing records: those in `loom_losses`, and the gaps and damaged chunks that the timestamp index marks.
//!
//! The daemon's ledger lists refused and dropped records: in its own records, and in staging's table of those that have no record yet. The
//! logs themselves show what a crash took. The cost is bounded by the number of losses: without any, only the roots of the forest are read.

use std::ops::ControlFlow;

use super::missing::{MissingRun, missing_runs};
use super::pending::Ledger;
use crate::error::{Error, Result};
use crate::format::PendingLoss;
use crate::query::poll::Poll;
use crate::query::scan::raw_scan::raw_scan;
use crate::query::snapshot::Snapshot;
use crate::schema::{
    Catalog, LOSSES_SOURCE, LossDecoder, LossReason, LossStage, LossText, TimeKind,
};
use crate::types::{Address, SourceId, TimeRange, Timestamp};

/// The earliest time of losses that have no record yet, in a directory whose newest record is `newest`.
///
/// Losses are gathered for a second before they are recorded. A log that has no room to record them has no room for records either.
pub fn pending_since(newest: Option<Timestamp>) -> Timestamp {
    const GATHERED_NS: i64 = 2_000_000_000;
    newest.map_or(Timestamp::MIN, |newest| {
        Timestamp(newest.0.saturating_sub(GATHERED_NS))
    })
}

/// Records that are known to be missing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The missing records arrived in the closed span from `from` to `to`. `MIN` and `MAX` mean that nothing is known before or after. If
    /// the source has its own time and the kernel lost them, the span is of their own times.
    pub from: Timestamp,
    pub to: Timestamp,
    /// `None` if records of any source may be missing.
    pub source: Option<String>,
    /// The stage at which they were lost: `kernel`, `input`, `log` or `crash`.
    pub stage: String,
    pub reason: String,
    /// `None` if the number is unknown.
    pub records: Option<u64>,
    /// Payload bytes; `None` if unknown.
    pub bytes: Option<u64>,
}

impl Snapshot {
    /// Every known loss among the retained records, by time. The ledger is read as it is now, even if that is later than the snapshot,
    /// because a loss is recorded after it happened.
    ///
    /// # Errors
    /// Damage, eviction meanwhile, [`Error::Interrupted`].
    pub fn losses(&self, poll: &Poll<'_>) -> Result<Vec<Loss>> {
        self.losses_since(Timestamp::MIN, poll)
    }

    /// Succeeds if no record of the source is known to be missing in the range. For a source with its own time, all losses count, because
    /// arrival says nothing about own times; those of the kernel have known own times and count only if these overlap. Records that
    /// retention removed are not a loss.
    ///
    /// # Errors
    /// [`Error::Incomplete`] names the first loss; otherwise as [`Snapshot::losses`].
    pub fn require_complete(
        &self,
        source: SourceId,
        range: TimeRange,
        poll: &Poll<'_>,
    ) -> Result<()> {
        let source = self.source_by_id(source)?;
        if range.is_empty() {
            return Ok(());
        }
        let since = match source.time {
            TimeKind::Arrival => range.first,
            TimeKind::Own => Timestamp::MIN,
        };
        let losses = self.losses_since(since, poll)?;
        let first = losses
            .iter()
            .find(|loss| loss.concerns(&source.name) && loss.times(source.time).overlaps(range));
        match first {
            Some(loss) => Err(Error::Incomplete {
                source_name: source.name.clone(),
                what: loss.sentence(),
            }),
            None => Ok(()),
        }
    }

    /// All losses that reach to `first` or past it, and perhaps others.
    fn losses_since(&self, first: Timestamp, poll: &Poll<'_>) -> Result<Vec<Loss>> {
        let chunk_bytes = self.chunk_bytes();
        let runs = missing_runs(self.logs(), poll)?;
        let mut losses: Vec<Loss> = runs
            .iter()
            .map(|run| Loss::of_run(run, chunk_bytes))
            .collect();
        if let Some((from, to)) = self.logs().gap_to_come() {
            let last = self.newest_ts()?;
            losses.push(Loss::of_gap(
                from,
                to,
                TimeRange {
                    first: last.unwrap_or(Timestamp::MIN),
                    last: Timestamp::MAX,
                },
            ));
        }
        let Ledger {
            snapshot,
            pending,
            catalog,
            unreadable,
        } = self.ledger_now(poll)?;
        losses.extend((pending.iter()).map(|loss| Loss::of_pending(loss, &catalog)));
        if let Some(error) = unreadable {
            losses.push(Loss::unreadable(&error, snapshot.newest_ts()?));
        }
        if let Some(ledger) = snapshot.catalog().find(LOSSES_SOURCE) {
            let decoder = LossDecoder::new(ledger);
            // A loss is recorded after it happened, so older records describe older losses.
            let range = TimeRange {
                first,
                last: Timestamp::MAX,
            };
            raw_scan(&snapshot, ledger.id, range, poll, |record| {
                let text = decoder.decode(record.layout, record.payload);
                losses.push(Loss::of_record(text, record.ts));
                ControlFlow::Continue(())
            })?;
        }
        losses.sort_by_key(|loss| (loss.from, loss.to));
        Ok(losses)
    }
}

impl Loss {
    fn of_run(run: &MissingRun, chunk_bytes: u32) -> Loss {
        let from = run.first.address(chunk_bytes);
        let to = from + run.chunks.saturating_mul(chunk_bytes.into());
        let arrived = TimeRange {
            first: run.from,
            last: run.to,
        };
        if run.damaged {
            let reason = format!("damaged from address {from} to {to}");
            Loss::unknown(arrived, LossStage::Log, reason)
        } else {
            Loss::of_gap(from, to, arrived)
        }
    }

    /// The loss of a gap. It begins early enough to cover the losses that were pending with it.
    fn of_gap(from: Address, to: Address, arrived: TimeRange) -> Loss {
        let arrived = TimeRange {
            first: pending_since(Some(arrived.first)),
            ..arrived
        };
        let reason = format!("lost with staging, from address {from} to {to}");
        Loss::unknown(arrived, LossStage::Crash, reason)
    }

    /// A loss of an unknown number of records of any source.
    fn unknown(arrived: TimeRange, stage: LossStage, reason: String) -> Loss {
        Loss {
            from: arrived.first,
            to: arrived.last,
            source: None,
            stage: stage.label().to_owned(),
            reason,
            records: None,
            bytes: None,
        }
    }

    fn of_record(text: LossText, recorded: Timestamp) -> Loss {
        let to = text.to.unwrap_or(recorded);
        Loss {
            from: text.from.unwrap_or(Timestamp::MIN).min(to),
            to,
            source: text.source,
            stage: text.stage,
            reason: text.reason,
            records: text.records,
            bytes: text.bytes,
        }
    }

    fn of_pending(loss: &PendingLoss, catalog: &Catalog) -> Loss {
        let source = loss.source.and_then(|id| catalog.source(id));
        let reason = LossReason::of_number(loss.reason).unwrap_or(LossReason::Unknown);
        Loss {
            from: loss.from,
            to: loss.to,
            source: source.map(|source| source.name.clone()),
            stage: reason.stage().label().to_owned(),
            reason: reason.label().to_owned(),
            records: loss.records,
            bytes: loss.bytes,
        }
    }

    /// A loss that covers everything the unreadable table of pending losses may hold.
    fn unreadable(error: &Error, newest: Option<Timestamp>) -> Loss {
        let arrived = TimeRange {
            first: pending_since(newest),
            last: Timestamp::MAX,
        };
        let reason = format!("pending losses cannot be read: {error}");
        Loss::unknown(arrived, LossStage::Crash, reason)
    }

    fn concerns(&self, source: &str) -> bool {
        self.source.as_deref().is_none_or(|lost| lost == source)
    }

    /// The times that the missing records may have had in a source with this kind of time.
    fn times(&self, kind: TimeKind) -> TimeRange {
        // Clients alone know the own times of lost records; only these losses are reported with them.
        let is_spanned = self.stage == LossStage::Kernel.label()
            || self.reason == LossReason::DaemonKilled.label();
        match kind {
            TimeKind::Own if !is_spanned => TimeRange::ALL,
            TimeKind::Own | TimeKind::Arrival => self.span(),
        }
    }

    fn span(&self) -> TimeRange {
        TimeRange {
            first: self.from,
            last: self.to,
        }
    }

    fn sentence(&self) -> String {
        let records = match self.records {
            Some(records) => format!("{records} records are"),
            None => "an unknown number of records is".to_owned(),
        };
        let after = match self.from {
            Timestamp::MIN => "the beginning".to_owned(),
            from => rfc3339(from),
        };
        let before = match self.to {
            Timestamp::MAX => "now".to_owned(),
            to => rfc3339(to),
        };
        let Loss { stage, reason, .. } = self;
        format!("{records} missing between {after} and {before} (stage {stage}: {reason})")
    }
}

/// A time in UTC, to the nanosecond.
fn rfc3339(time: Timestamp) -> String {
    let time = jiff::Timestamp::from_nanosecond(time.0.into());
    let time = time.expect("every i64 of nanoseconds is a time between the years 1677 and 2262");
    format!("{time:.9}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_write_them() {
        for (ns, text) in [
            (0, "1970-01-01T00:00:00.000000000Z"),
            (-1, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400_000_000_001, "2000-02-29T00:00:00.000000001Z"),
            (1_709_251_199_000_000_000, "2024-02-29T23:59:59.000000000Z"),
            (1_709_251_200_000_000_000, "2024-03-01T00:00:00.000000000Z"),
            (4_102_444_799_999_999_999, "2099-12-31T23:59:59.999999999Z"),
        ] {
            assert_eq!(rfc3339(Timestamp(ns)), text);
        }
    }

    #[test]
    fn a_loss_of_no_source_concerns_each() {
        let run = MissingRun {
            first: crate::types::ChunkNo(2),
            chunks: 3,
            damaged: false,
            from: Timestamp::MIN,
            to: Timestamp(0),
        };
        let gap = Loss::of_run(&run, 4096);
        assert!(gap.concerns("any") && gap.span().overlaps(TimeRange::ALL));
        assert_eq!(
            gap.sentence(),
            "an unknown number of records is missing between the beginning and 1970-01-01T00:00:00.000000000Z \
             (stage crash: lost with staging, from address 8192 to 20480)"
        );
        let of_one = Loss {
            source: Some("one".to_owned()),
            ..gap
        };
        assert!(of_one.concerns("one") && !of_one.concerns("other"));
    }
}
