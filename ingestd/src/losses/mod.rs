//! Losses on their way into `loom_losses`: gathered for a second, kept where a kill does not reach them, recorded once.
//!
//! What is refused or dropped is entered here at once, and stands in a file before a client is told of it. A record of it follows as soon
//! as a second has passed and the log has room. Each entry is marked with the address of its record before that record is published, so
//! whoever starts next knows which entries the log holds already: none is lost and none counts twice.
//!
//! The daemon does so, and a load that writes a directory itself.

mod unrecorded;

use std::path::Path;
use std::time::{Duration, Instant};

use loom_engine::ingest::Writer;
use loom_engine::log::storage::not_opened;
use loom_engine::query::{Directory, Poll, unrecorded_since};
use loom_engine::schema::{LossEncoder, LossReason, LossRecord, losses_source};
use loom_engine::unrecorded::Entry;
use loom_engine::{Error, SourceId, Timestamp};

use unrecorded::UnrecordedFile;

/// How long losses of one cause are gathered into one record.
const GATHER: Duration = Duration::from_secs(1);
/// So many causes at a time, and they are recorded without waiting.
const ENTRIES_MAX: usize = 100;
/// The longest reason that is kept, in bytes.
const DETAIL_BYTES_MAX: usize = 160;

/// Some records that were refused or dropped.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Lost<'a> {
    pub(crate) source: Option<SourceId>,
    pub(crate) reason: LossReason,
    pub(crate) records: u64,
    /// Payload bytes, where they are known: what could not be read as a record has none.
    pub(crate) bytes: Option<u64>,
    pub(crate) detail: &'a str,
}

pub(crate) struct Losses {
    entries: Vec<Entry>,
    file: UnrecordedFile,
    /// The file does not say what `entries` say.
    dirty: bool,
    encoder: LossEncoder,
    source: Option<SourceId>,
    recorded: Option<Instant>,
    /// What the last attempt to keep or record them failed with.
    trouble: Option<String>,
}

impl Losses {
    /// Takes over what the last daemon of the directory had no time to record.
    pub(crate) fn open(dir: &Path, writer: &mut Writer) -> Result<Losses, Error> {
        let opened = UnrecordedFile::open(dir, writer.meta().uuid)
            .map_err(|error| not_opened(&UnrecordedFile::path(dir), error))?;
        let (file, kept) = opened;
        let damage = kept.what();
        let snapshot = Directory::open(dir)?.snapshot()?;
        let mut entries = snapshot.without_recorded(kept, &Poll::never())?;
        for entry in &mut entries {
            entry.recorded_at = None;
        }
        if let Some(what) = damage {
            let path = UnrecordedFile::path(dir);
            tracing::error!("{}: {what}", path.display());
            entries.push(Entry {
                source: None,
                reason: LossReason::Unknown as u8,
                from: unrecorded_since(snapshot.newest_ts()?),
                to: writer.now(),
                records: None,
                bytes: None,
                detail: "the file of unrecorded losses was damaged".to_owned(),
                recorded_at: None,
            });
        }
        let mut losses = Losses {
            entries,
            file,
            dirty: true,
            encoder: LossEncoder::new()?,
            source: None,
            recorded: None,
            trouble: None,
        };
        losses.keep();
        Ok(losses)
    }

    /// Defines the source now, for a daemon that may have no room to do so once it has losses to record.
    pub(crate) fn define(&mut self, writer: &mut Writer) -> Result<SourceId, Error> {
        let id = match self.source {
            Some(id) => id,
            None => writer.define_builtin_source(&losses_source())?,
        };
        self.source = Some(id);
        Ok(id)
    }

    /// Enters records that were lost just now.
    pub(crate) fn note(&mut self, lost: &Lost<'_>, now: Timestamp) {
        let reason = lost.reason as u8;
        let same = |entry: &&mut Entry| {
            (entry.source, entry.reason) == (lost.source, reason) && entry.recorded_at.is_none()
        };
        let detail = shortened(lost.detail);
        match self.entries.iter_mut().find(same) {
            Some(entry) => {
                let known = entry.records;
                entry.records = known.map(|records| records.saturating_add(lost.records));
                let bytes = entry.bytes.zip(lost.bytes);
                entry.bytes = bytes.map(|(one, other)| one.saturating_add(other));
                entry.to = now.max(entry.to);
                detail.clone_into(&mut entry.detail);
            }
            None => self.entries.push(Entry {
                source: lost.source,
                reason,
                from: now,
                to: now,
                records: Some(lost.records),
                bytes: lost.bytes,
                detail: detail.to_owned(),
                recorded_at: None,
            }),
        }
        self.dirty = true;
    }

    /// What is not in the log yet.
    pub(crate) fn unrecorded(&self) -> u64 {
        let records = self.entries.iter().filter_map(|entry| entry.records);
        records.fold(0, u64::saturating_add)
    }

    /// Why losses are not kept or recorded as they should be, if so.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Why a kill would forget some of them, if so.
    pub(crate) fn unkept(&self) -> Option<&str> {
        self.trouble().filter(|_| self.dirty)
    }

    /// To be called before what was pushed with them is published, and so before anybody is told: keeps what is new, and records what
    /// is due.
    pub(crate) fn settle(&mut self, writer: &mut Writer) {
        if self.entries.is_empty() && !self.dirty {
            return;
        }
        let position = writer.position();
        let before = self.entries.len();
        let is_published = |entry: &Entry| entry.recorded_at.is_some_and(|at| at < position);
        self.entries.retain(|entry| !is_published(entry));
        self.dirty |= self.entries.len() != before;
        self.keep();
        let due = self.recorded.is_none_or(|at| at.elapsed() >= GATHER);
        if due || self.entries.len() > ENTRIES_MAX {
            self.record(writer);
        }
    }

    /// Records everything, for the last time. What the log does not take is left to the next start.
    pub(crate) fn finish(&mut self, writer: &mut Writer) -> Result<(), Error> {
        self.record(writer);
        writer.publish()?;
        self.recorded = Some(Instant::now());
        self.settle(writer);
        Ok(())
    }

    /// After a clean stop the file is needed no more, unless something is left in it.
    pub(crate) fn remove(self) {
        if self.entries.is_empty() {
            self.file.remove();
        }
    }

    fn record(&mut self, writer: &mut Writer) {
        if self.entries.iter().all(|entry| entry.recorded_at.is_some()) {
            return;
        }
        if let Err(error) = self.try_record(writer) {
            self.complain(format!("losses cannot be recorded for now: {error}"));
        }
    }

    fn try_record(&mut self, writer: &mut Writer) -> Result<(), Error> {
        let id = self.define(writer)?;
        for at in 0..self.entries.len() {
            let Some(entry) = self.entries.get_mut(at) else {
                break;
            };
            let Some(reason) = LossReason::of_number(entry.reason) else {
                continue;
            };
            if entry.recorded_at.is_some() {
                continue;
            }
            let source = entry.source.and_then(|id| writer.catalog().source(id));
            let record = LossRecord {
                from: entry.from,
                to: entry.to,
                source: source.map(|source| source.name.as_str()),
                reason,
                records: entry.records,
                bytes: entry.bytes,
                detail: Some(entry.detail.as_str()).filter(|detail| !detail.is_empty()),
            };
            let mut payload = Vec::with_capacity(256);
            self.encoder.encode(&record, &mut payload)?;
            match writer.try_push(id, &payload)? {
                Some(address) => entry.recorded_at = Some(address),
                // The log is full: this very loss may be why.
                None => return Ok(()),
            }
            // Before anything else is appended, which could publish the record.
            self.dirty = true;
            self.keep();
        }
        self.recorded = Some(Instant::now());
        Ok(())
    }

    fn keep(&mut self) {
        if !self.dirty {
            return;
        }
        match self.file.write(&self.entries) {
            Ok(()) => {
                self.dirty = false;
                self.trouble = None;
            }
            Err(error) => self.complain(format!("losses are kept in memory only: {error}")),
        }
    }

    fn complain(&mut self, message: String) {
        if self.trouble.as_ref() != Some(&message) {
            tracing::error!("{message}");
            self.trouble = Some(message);
        }
    }
}

/// As much of a reason as is kept.
fn shortened(detail: &str) -> &str {
    let mut end = detail.len().min(DETAIL_BYTES_MAX);
    while !detail.is_char_boundary(end) {
        end -= 1;
    }
    detail.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use loom_engine::ingest::WriterOptions;
    use loom_engine::log::LogOptions;
    use loom_engine::query::Loss;
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
            let losses = Losses::open(&self.dir(), &mut writer).unwrap();
            (writer, losses, source)
        }

        fn dir(&self) -> std::path::PathBuf {
            self.root.path().join("loom")
        }

        fn told(&self) -> Vec<Loss> {
            let snapshot = Directory::open(&self.dir()).unwrap().snapshot().unwrap();
            snapshot.losses(&Poll::never()).unwrap()
        }

        fn records(&self) -> u64 {
            self.told().iter().filter_map(|loss| loss.records).sum()
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
        assert_eq!(losses.unrecorded(), 0);
        writer.close().unwrap();
        losses.remove();
        assert!(!UnrecordedFile::path(&scene.dir()).exists());
        let told = scene.told();
        // The first at once, the others together.
        assert!(told.len() <= 6, "{told:?}");
        assert_eq!(scene.records(), 200);
        let dropped = told.iter().find(|loss| loss.reason == "overload").unwrap();
        assert_eq!(dropped.source.as_deref(), Some("x"));
        assert_eq!(dropped.bytes, dropped.records.map(|records| records * 8));
    }

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
                losses.keep();
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
                // Dropped without being closed, a writer leaves what a kill leaves.
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

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        assert_eq!(shortened("short"), "short");
        let long = "ä".repeat(200);
        assert_eq!(shortened(&long).len(), DETAIL_BYTES_MAX);
        assert_eq!(shortened(&format!("x{long}")).len(), DETAIL_BYTES_MAX - 1);
    }

    #[test]
    fn a_damaged_file_is_a_loss_of_unknown_number_and_half_a_one_tells_what_it_has() {
        const SLOT_BYTES: usize = loom_engine::unrecorded::SLOT_BYTES;
        let blanked =
            |range: std::ops::Range<usize>| move |bytes: &mut Vec<u8>| bytes[range.clone()].fill(0);
        type Harm = Box<dyn Fn(&mut Vec<u8>)>;
        // What is known all the same, and whether that is all.
        let harms: [(Harm, u64, bool); 7] = [
            (Box::new(|bytes| bytes.clear()), 0, false),
            (Box::new(|bytes| bytes.fill(0)), 0, false),
            (Box::new(|bytes| bytes.fill(0xA5)), 0, false),
            (Box::new(|bytes| bytes.truncate(9)), 0, false),
            (
                Box::new(|bytes| {
                    bytes[30] ^= 1;
                    bytes[SLOT_BYTES + 30] ^= 1;
                }),
                0,
                false,
            ),
            (Box::new(blanked(0..SLOT_BYTES)), 5, false),
            (Box::new(blanked(SLOT_BYTES..2 * SLOT_BYTES)), 10, true),
        ];
        for (number, (harm, known, is_all)) in harms.into_iter().enumerate() {
            let scene = scene();
            let (mut writer, mut losses, source) = scene.open();
            writer.push(source, &[1; 8]).unwrap();
            writer.publish().unwrap();
            for _ in 0..2 {
                losses.note(&lost(source, 5), writer.now());
                losses.keep();
            }
            let path = UnrecordedFile::path(&scene.dir());
            let mut bytes = std::fs::read(&path).unwrap();
            harm(&mut bytes);
            std::fs::write(&path, &bytes).unwrap();
            drop((writer, losses));
            let check = |told: &[Loss], when: &str| {
                let unknown: Vec<_> = told.iter().filter(|loss| loss.records.is_none()).collect();
                let records: u64 = told.iter().filter_map(|loss| loss.records).sum();
                let found = (records, unknown.is_empty());
                assert_eq!(found, (known, is_all), "harm {number} {when}: {told:?}");
                if let Some(loss) = unknown.first() {
                    assert_eq!((loss.stage.as_str(), unknown.len()), ("crash", 1));
                    assert!(loss.from > Timestamp::MIN, "{loss:?}");
                }
            };
            check(&scene.told(), "without a writer");
            let (mut writer, mut losses, _) = scene.open();
            check(&scene.told(), "after a start");
            losses.finish(&mut writer).unwrap();
            writer.close().unwrap();
            losses.remove();
            check(&scene.told(), "after a stop");
        }
    }

    #[test]
    fn a_damaged_newer_slot_is_a_loss_of_unknown_number_beside_each_known_one_once() {
        const SLOT_BYTES: usize = loom_engine::unrecorded::SLOT_BYTES;
        // By steps: what is lost, what of it is known where the newer slot is damaged, and where that stands.
        for (step, all, known, newer) in
            [(0, 7, 7, 0), (1, 12, 7, 1), (2, 12, 12, 0), (3, 12, 12, 1)]
        {
            for slot in [0, 1] {
                let scene = scene();
                let (mut writer, mut losses, source) = scene.open();
                losses.note(&lost(source, 7), writer.now());
                losses.settle(&mut writer);
                writer.publish().unwrap();
                if step >= 1 {
                    losses.note(&lost(source, 5), writer.now());
                    losses.settle(&mut writer);
                    writer.publish().unwrap();
                }
                if step >= 2 {
                    losses.try_record(&mut writer).unwrap();
                    writer.publish().unwrap();
                }
                if step >= 3 {
                    losses.settle(&mut writer);
                }
                drop((writer, losses));
                let path = UnrecordedFile::path(&scene.dir());
                let mut bytes = std::fs::read(&path).unwrap();
                bytes[slot * SLOT_BYTES + 20] ^= 1;
                std::fs::write(&path, &bytes).unwrap();
                let expected = match slot == newer {
                    true => (known, 1),
                    false => (all, 0),
                };
                let check = |when: &str| {
                    let told = scene.told();
                    let unknown = told.iter().filter(|loss| loss.records.is_none());
                    let found = (scene.records(), unknown.count());
                    assert_eq!(
                        found, expected,
                        "step {step}, slot {slot}, {when}: {told:?}"
                    );
                };
                check("without a writer");
                for _ in 0..2 {
                    let (mut writer, mut losses, _) = scene.open();
                    check("after a start");
                    losses.finish(&mut writer).unwrap();
                    check("once recorded");
                }
            }
        }
    }
}
