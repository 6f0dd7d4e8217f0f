//! The losses on their way into `loom_losses`: they gather for a second, survive a kill, and are recorded once.
//!
//! A loss is entered here at once, and is in staging's table of pending losses before a client learns of it. Its record follows when a second has
//! passed and the log has space. Each row of the table gets the address of its record before that record is published, so readers and the next start
//! know which rows are already in the log: none is lost and none counts twice.
//!
//! The daemon uses this, and so does a load that writes a directory itself.

use std::time::{Duration, Instant};

use loom_engine::format::{LOSS_ROWS_MAX, PendingLoss};
use loom_engine::ingest::Writer;
use loom_engine::query::{Directory, pending_since};
use loom_engine::schema::{LossEncoder, LossReason, LossRecord, losses_source};
use loom_engine::{Error, SourceId, TimeRange, Timestamp, proven};

/// How long losses of one cause gather in one record.
const GATHER: Duration = Duration::from_secs(1);
/// With so many causes, they are recorded without waiting.
const ROWS_PATIENT_MAX: usize = LOSS_ROWS_MAX / 2;
/// Further causes become one. That one may need two rows: one has a record that is not published yet, and one gathers.
const CAUSES_MAX: usize = LOSS_ROWS_MAX - 2;
/// The longest reason that is kept, in bytes.
const DETAIL_BYTES_MAX: usize = 160;

/// Some records that were refused or dropped.
#[derive(Copy, Clone, Debug)]
pub struct Lost<'a> {
    pub source: Option<SourceId>,
    pub reason: LossReason,
    pub records: u64,
    /// The payload bytes, if they are known. Input that could not be read as a record has none.
    pub bytes: Option<u64>,
    pub detail: &'a str,
}

/// The losses of one cause since it was last recorded.
struct Cause {
    row: PendingLoss,
    /// Why the last of the records was refused. A kill loses it.
    detail: String,
}

impl Cause {
    /// Whether it gathers losses of that source and reason. Once it has a record, it gathers no more.
    fn is_of(&self, source: Option<SourceId>, reason: u8) -> bool {
        (self.row.source, self.row.reason) == (source, reason) && self.row.recorded_at.is_none()
    }

    fn add(&mut self, other: &PendingLoss) {
        // The sum is unknown if a part is unknown or if it overflows.
        let sum = |one: Option<u64>, other: Option<u64>| one?.checked_add(other?);
        let row = &mut self.row;
        row.records = sum(row.records, other.records);
        row.bytes = sum(row.bytes, other.bytes);
        row.from = row.from.min(other.from);
        row.to = row.to.max(other.to);
    }
}

pub struct Losses {
    causes: Vec<Cause>,
    /// Staging does not have the current causes yet.
    dirty: bool,
    encoder: LossEncoder,
    source: Option<SourceId>,
    recorded: Option<Instant>,
    /// Why the last attempt to record them failed.
    trouble: Option<String>,
}

impl Losses {
    /// Takes over the losses that the last writer of the directory had no time to record.
    pub fn open(writer: &mut Writer) -> Result<Losses, Error> {
        let now = writer.now();
        let mut rows = writer.pending_losses().to_vec();
        if rows.iter().any(|row| row.from == Timestamp::MIN) {
            let newest = Directory::open(writer.dir())?.snapshot()?.newest_ts()?;
            for row in &mut rows {
                row.from = row.from.max(pending_since(newest));
            }
        }
        let taken_over = |row: PendingLoss| Cause {
            row: PendingLoss {
                to: row.to.min(now),
                ..row
            },
            detail: String::new(),
        };
        let mut causes: Vec<Cause> = Vec::with_capacity(rows.len());
        for row in rows {
            // A kill may leave a cause twice, once with a record that was never published.
            match causes
                .iter_mut()
                .find(|known| known.is_of(row.source, row.reason))
            {
                Some(known) => known.add(&row),
                None => causes.push(taken_over(row)),
            }
        }
        Ok(Losses {
            causes,
            dirty: true,
            encoder: LossEncoder::new()?,
            source: None,
            recorded: None,
            trouble: None,
        })
    }

    /// Defines the source now, because a daemon may have no space for it when it has losses to record.
    pub fn define(&mut self, writer: &mut Writer) -> Result<SourceId, Error> {
        let id = match self.source {
            Some(id) => id,
            None => writer.define_builtin_source(&losses_source())?,
        };
        self.source = Some(id);
        Ok(id)
    }

    /// Adds records that were lost just now.
    pub fn note(&mut self, lost: &Lost<'_>, now: Timestamp) {
        let span = TimeRange {
            first: now,
            last: now,
        };
        self.note_span(lost, span);
    }

    /// Adds records that were lost in a span of time.
    pub fn note_span(&mut self, lost: &Lost<'_>, span: TimeRange) {
        self.dirty = true;
        let mut row = PendingLoss {
            source: lost.source,
            reason: lost.reason as u8,
            from: span.first,
            to: span.last,
            records: Some(lost.records),
            bytes: lost.bytes,
            recorded_at: None,
        };
        let mut known = self.gathering(&row);
        if known.is_none() && self.causes.len() >= CAUSES_MAX {
            (row.source, row.reason) = (None, LossReason::Several as u8);
            known = self.gathering(&row);
        }
        let detail = shortened(lost.detail);
        match known.map(|place| proven::at_mut(&mut self.causes, place)) {
            Some(cause) => {
                cause.add(&row);
                detail.clone_into(&mut cause.detail);
            }
            None => self.causes.push(Cause {
                row,
                detail: detail.to_owned(),
            }),
        }
    }

    /// The index of the cause that a row adds to, if that has no record yet.
    fn gathering(&self, row: &PendingLoss) -> Option<usize> {
        let mut causes = self.causes.iter();
        causes.position(|cause| cause.is_of(row.source, row.reason))
    }

    /// The number of lost records that are not in the log yet, as far as it is known.
    pub fn pending(&self) -> u64 {
        let records = self.causes.iter().filter_map(|cause| cause.row.records);
        // The sum saturates because the rows of a killed daemon come from a file.
        records.fold(0, u64::saturating_add)
    }

    /// Why losses cannot be recorded, if so.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Stores new losses in staging, and records those that are due. The caller does this before it publishes the records that were pushed with them,
    /// so no client learns of a loss before.
    pub fn settle(&mut self, writer: &mut Writer) {
        if self.causes.is_empty() && !self.dirty {
            return;
        }
        self.keep_pending(writer);
        let due = self.recorded.is_none_or(|at| at.elapsed() >= GATHER);
        if due || self.causes.len() > ROWS_PATIENT_MAX {
            self.record(writer);
        }
    }

    /// Records everything, for the last time. The next start records the losses that the log does not take now.
    pub fn finish(&mut self, writer: &mut Writer) -> Result<(), Error> {
        writer.publish()?;
        self.keep_pending(writer);
        self.record(writer);
        writer.publish()?;
        self.keep_pending(writer);
        Ok(())
    }

    /// Records the gathering causes once all earlier records are published, so that the table has space for the rows of both.
    fn record(&mut self, writer: &mut Writer) {
        let mut rows = self.causes.iter().map(|cause| cause.row);
        if self.causes.is_empty() || rows.any(|row| row.recorded_at.is_some()) {
            return;
        }
        match self.try_record(writer) {
            Ok(()) => self.trouble = None,
            Err(error) => self.complain(format!("cannot record losses in loom_losses: {error}; they stay counted and are recorded later")),
        }
    }

    fn try_record(&mut self, writer: &mut Writer) -> Result<(), Error> {
        let id = self.define(writer)?;
        let mut payload = Vec::with_capacity(256);
        for place in 0..self.causes.len() {
            let Cause { row, detail } = proven::at_mut(&mut self.causes, place);
            if row.recorded_at.is_some() {
                continue;
            }
            let source = row.source.and_then(|id| writer.catalog().source(id));
            let record = LossRecord {
                from: row.from,
                to: row.to,
                source: source.map(|source| source.name.as_str()),
                reason: LossReason::of_number(row.reason).unwrap_or(LossReason::Unknown),
                records: row.records,
                bytes: row.bytes,
                detail: Some(detail.as_str()).filter(|detail| !detail.is_empty()),
            };
            payload.clear();
            self.encoder.encode(&record, &mut payload)?;
            match writer.try_push(id, &payload)? {
                Some(address) => row.recorded_at = Some(address),
                // The log is full, which may be the reason for this loss.
                None => return Ok(()),
            }
            // Another append could publish the record, so this comes first.
            self.dirty = true;
            self.keep(writer);
        }
        self.recorded = Some(Instant::now());
        Ok(())
    }

    /// Keeps the causes without a published record in staging.
    pub fn keep_pending(&mut self, writer: &mut Writer) {
        let position = writer.position();
        let before = self.causes.len();
        self.causes
            .retain(|cause| !cause.row.is_recorded_below(position));
        self.dirty |= self.causes.len() != before;
        self.keep(writer);
    }

    fn keep(&mut self, writer: &mut Writer) {
        if std::mem::take(&mut self.dirty) {
            writer.set_pending_losses(self.causes.iter().map(|cause| cause.row).collect());
        }
    }

    fn complain(&mut self, message: String) {
        if self.trouble.as_ref() != Some(&message) {
            tracing::error!("{message}");
            self.trouble = Some(message);
        }
    }
}

/// The reason for a payload that the writer refused with this error.
pub fn reason_of_refusal(error: &Error) -> LossReason {
    match error {
        Error::TooLong { .. } => LossReason::TooLong,
        _ => LossReason::Malformed,
    }
}

fn shortened(detail: &str) -> &str {
    detail
        .split_at(detail.floor_char_boundary(DETAIL_BYTES_MAX))
        .0
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use loom_engine::ingest::WriterOptions;
    use loom_engine::log::LogOptions;
    use loom_engine::query::{Loss, Poll};
    use loom_engine::schema::SourceDef;

    use super::*;

    struct Scene {
        root: tempfile::TempDir,
    }

    impl Scene {
        fn open(&self) -> (Writer, Losses, SourceId) {
            let log = LogOptions {
                chunk_bytes: 4096,
                block_bytes: 64 << 10,
                segment_bytes: [1 << 20; 3].into(),
                staging: Some(self.root.path().to_owned()),
                ..LogOptions::default()
            };
            let options = WriterOptions {
                log,
                accept_clock: false,
                ..WriterOptions::default()
            };
            let mut writer = Writer::open(&self.dir(), options).unwrap();
            let source = writer.define_source(&SourceDef::new("x")).unwrap();
            let losses = Losses::open(&mut writer).unwrap();
            (writer, losses, source)
        }

        fn dir(&self) -> std::path::PathBuf {
            self.root.path().join("loom")
        }

        fn listed(&self) -> Vec<Loss> {
            let snapshot = Directory::open(&self.dir()).unwrap().snapshot().unwrap();
            snapshot.losses(&Poll::never()).unwrap()
        }

        fn records(&self) -> u64 {
            self.listed().iter().filter_map(|loss| loss.records).sum()
        }
    }

    fn scene() -> Scene {
        Scene {
            root: tempfile::tempdir().unwrap(),
        }
    }

    fn lost(source: SourceId, records: u64) -> Lost<'static> {
        Lost {
            source: Some(source),
            reason: LossReason::Overload,
            records,
            bytes: Some(records * 8),
            detail: "full",
        }
    }

    #[test]
    fn losses_of_one_cause_within_a_second_are_one_record() {
        let scene = scene();
        let (mut writer, mut losses, source) = scene.open();
        for _ in 0..50 {
            let now = writer.now();
            losses.note(&lost(source, 3), now);
            losses.note(
                &Lost {
                    reason: LossReason::Malformed,
                    ..lost(source, 1)
                },
                now,
            );
            losses.settle(&mut writer);
            writer.publish().unwrap();
        }
        losses.finish(&mut writer).unwrap();
        assert_eq!(losses.pending(), 0);
        writer.close().unwrap();
        let listed = scene.listed();
        // The first loss is recorded at once, the others together.
        assert!(listed.len() <= 6, "{listed:?}");
        assert_eq!(scene.records(), 200);
        let dropped = listed
            .iter()
            .find(|loss| loss.reason == "overload")
            .unwrap();
        assert_eq!(dropped.source.as_deref(), Some("x"));
        assert_eq!(dropped.bytes, dropped.records.map(|records| records * 8));
    }

    // G9
    #[test]
    fn a_kill_at_any_step_neither_loses_nor_doubles_a_loss() {
        for step in 0..5 {
            let scene = scene();
            let mut expected = 0;
            for round in 1..4 {
                let (mut writer, mut losses, source) = scene.open();
                losses.settle(&mut writer);
                writer.publish().unwrap();
                losses.note(&lost(source, round), writer.now());
                losses.keep(&mut writer);
                expected += round;
                if step >= 1 {
                    losses.try_record(&mut writer).unwrap();
                }
                if step >= 2 {
                    writer.publish().unwrap();
                }
                if step >= 3 {
                    losses.settle(&mut writer);
                }
                if step >= 4 {
                    losses.note(&lost(source, 1), writer.now());
                    losses.settle(&mut writer);
                    expected += 1;
                }
                assert_eq!(scene.records(), expected, "live at step {step}");
                // A writer that is dropped without being closed leaves the same as a kill.
                drop((writer, losses));
                assert_eq!(scene.records(), expected, "dead at step {step}");
            }
            let (mut writer, mut losses, _) = scene.open();
            losses.finish(&mut writer).unwrap();
            assert_eq!(scene.records(), expected, "killed at step {step}");
            writer.close().unwrap();
        }
    }

    #[test]
    fn a_full_log_keeps_losses_for_later() {
        let scene = scene();
        let (mut writer, mut losses, source) = scene.open();
        for records in 1..400u64 {
            losses.note(
                &Lost {
                    source: Some(SourceId(records as u16 + 1)),
                    ..lost(source, records)
                },
                writer.now(),
            );
        }
        losses.settle(&mut writer);
        writer.publish().unwrap();
        losses.finish(&mut writer).unwrap();
        assert_eq!(scene.records(), 399 * 400 / 2);
    }

    // G9
    #[test]
    fn more_causes_than_rows_become_one_and_no_record_is_missed() {
        let scene = scene();
        let (mut writer, mut losses, source) = scene.open();
        for round in 0..3u16 {
            for number in 0..2 * LOSS_ROWS_MAX as u16 {
                let one = lost(SourceId(number + 1), 1);
                losses.note(&one, writer.now());
            }
            losses.keep(&mut writer);
            assert_eq!(
                scene.records(),
                u64::from(round + 1) * 2 * LOSS_ROWS_MAX as u64
            );
            losses.try_record(&mut writer).unwrap();
            // More losses come before the records are published, and so before their rows go.
            losses.note(&lost(source, 0), writer.now());
            losses.keep(&mut writer);
            writer.publish().unwrap();
            losses.settle(&mut writer);
        }
        assert!(
            scene
                .listed()
                .iter()
                .any(|loss| loss.reason == "several causes")
        );
    }

    #[test]
    fn causes_that_come_one_by_one_without_a_publish_find_room() {
        let scene = scene();
        let (mut writer, mut losses, source) = scene.open();
        for number in 0..4 * LOSS_ROWS_MAX as u16 {
            losses.note(&lost(SourceId(number + 1), 1), writer.now());
            losses.settle(&mut writer);
            losses.note(&lost(source, 1), writer.now());
            losses.settle(&mut writer);
        }
        drop((writer, losses));
        assert_eq!(scene.records(), 8 * LOSS_ROWS_MAX as u64);
        let (mut writer, mut losses, _) = scene.open();
        for number in 0..4 * LOSS_ROWS_MAX as u16 {
            losses.note(&lost(SourceId(number + 1), 1), writer.now());
            losses.settle(&mut writer);
        }
        losses.finish(&mut writer).unwrap();
        assert_eq!(
            (losses.pending(), scene.records()),
            (0, 12 * LOSS_ROWS_MAX as u64)
        );
    }

    // G9
    #[test]
    fn readers_count_each_loss_once_while_it_is_recorded() {
        let scene = scene();
        let (mut writer, mut losses, source) = scene.open();
        let [kept, entered] = [AtomicU64::new(0), AtomicU64::new(0)];
        std::thread::scope(|threads| {
            let reader = threads.spawn(|| {
                for _ in 0..60 {
                    let least = kept.load(Ordering::Acquire);
                    let counted = scene.records();
                    let most = entered.load(Ordering::Acquire);
                    assert!(
                        (least..=most).contains(&counted),
                        "{least} <= {counted} <= {most}"
                    );
                }
            });
            let mut round = 0;
            while !reader.is_finished() {
                round += 1;
                entered.store(round, Ordering::Release);
                losses.note(&lost(source, 1), writer.now());
                losses.keep(&mut writer);
                kept.store(round, Ordering::Release);
                if round % 3 == 0 {
                    losses.try_record(&mut writer).unwrap();
                }
                losses.settle(&mut writer);
                writer.publish().unwrap();
                // The log must not grow faster than it is read.
                std::thread::sleep(std::time::Duration::from_micros(20));
            }
            reader.join().unwrap();
            assert_eq!(scene.records(), round);
        });
    }

    // G9
    #[test]
    fn what_a_clean_stop_could_not_record_is_recorded_by_the_next_writer() {
        let scene = scene();
        let (mut writer, mut losses, source) = scene.open();
        losses.note(&lost(source, 7), writer.now());
        losses.keep(&mut writer);
        writer.close().unwrap();
        let staged = std::fs::read_dir(scene.root.path()).unwrap();
        assert_eq!(staged.count(), 1, "the directory alone: staging is gone");
        assert_eq!(scene.records(), 7);
        for _ in 0..2 {
            let (mut writer, mut losses, _) = scene.open();
            assert_eq!(scene.records(), 7);
            losses.finish(&mut writer).unwrap();
            assert_eq!((losses.pending(), scene.records()), (0, 7));
            writer.close().unwrap();
            assert_eq!(scene.records(), 7);
        }
    }

    // G9
    #[test]
    fn what_was_lost_with_staging_is_the_gap_alone() {
        let scene = scene();
        let (mut writer, mut losses, source) = scene.open();
        writer.push(source, &[1; 8]).unwrap();
        writer.sync_durable().unwrap();
        losses.note(&lost(source, 7), writer.now());
        losses.keep(&mut writer);
        drop((writer, losses));
        for entry in std::fs::read_dir(scene.root.path()).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                std::fs::remove_file(path).unwrap();
            }
        }
        let check = |when: &str| {
            let listed = scene.listed();
            let reasons: Vec<_> = listed.iter().map(|loss| loss.reason.as_str()).collect();
            let [gap] = &reasons[..] else {
                panic!("{when}: {listed:?}");
            };
            assert!(gap.starts_with("lost with staging"), "{when}: {listed:?}");
        };
        check("without a writer");
        let (mut writer, mut losses, _) = scene.open();
        check("after a start");
        losses.finish(&mut writer).unwrap();
        writer.close().unwrap();
        check("after a stop");
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = "ä".repeat(200);
        assert_eq!(shortened(&long).len(), DETAIL_BYTES_MAX);
        assert_eq!(shortened(&format!("x{long}")).len(), DETAIL_BYTES_MAX - 1);
    }
}
