//! A directory whose writer is about to begin: locked, its bytes recovered, but not yet appendable.
//!
//! It is a type of its own, so that nothing can be appended before recovery has decided where. It recovers the bytes (FORMAT.md, *Recovery*, 1 to 3); the
//! caller of `start` knows their meaning and so decides where the index logs are cut. Every step can be repeated after a crash in it.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::new_directory::{provide_meta, require_room};
use super::open_bytes::OpenBytes;
use super::salvage::{Salvage, Salvaged, append_units};
use crate::error::{Error, Result};
use crate::format::{LOST_ENTRY, LossTable, PendingLoss, checksum, put_trailer, verify_chunk};
use crate::log::files::catalog_file::{CatalogBytes, CatalogFile};
use crate::log::files::durable::{DurableFile, DurableLog, End};
use crate::log::files::lock::WriterLock;
use crate::log::files::meta::DirMeta;
use crate::log::files::mirrored::Mirrored;
use crate::log::files::os::OsStorage;
use crate::log::files::own_files::{refuse_foreign, remove_unfinished};
use crate::log::files::segment::{SegmentDir, SegmentList};
use crate::log::files::storage::{Storage, unlink_if_present};
use crate::log::files::tail_file::TailFile;
use crate::log::files::unit_appender::UnitAppender;
use crate::log::options::{Durability, LogOptions};
use crate::log::read::epoch_view::{Stage, View};
use crate::log::read::records_end::RecordsEnd;
use crate::log::read::survey::{
    Ending, Survey, is_empty, is_there, keep, list_all, missing_chunks, resume_after, segment_dirs,
};
use crate::log::staging::control::{DaemonWord, LOSS_TABLE_FIRST, Word};
use crate::log::staging::mapped::Staging;
use crate::log::staging::note::StagingNote;
use crate::log::staging::placement::{self, Placed};
use crate::log::sync::AtomicU64;
use crate::log::write::encoder::Encoder;
use crate::log::write::encoders::Encoders;
use crate::log::write::flusher::{Flusher, FlusherParts};
use crate::log::write::log_flusher::{LogFlusher, Release};
use crate::log::write::logs::{Logs, Parts};
use crate::log::write::record_files::RecordFiles;
use crate::log::write::record_flusher::RecordFlusher;
use crate::log::write::shared::{LogStart, Setup, Shared};
use crate::types::{Address, LogKind, PerLog};

/// The outcome of recovery.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Recovered {
    /// The last writer stopped cleanly, or there was none.
    Clean,
    /// The last writer was killed; everything that it had published is here.
    Salvaged,
    /// Its staging is gone too. Everything durable is here, and everything above it that verifies.
    StagingLost,
}

/// A recovered directory, locked.
#[derive(Debug)]
pub struct Opening {
    storage: Arc<dyn Storage>,
    dir: PathBuf,
    options: LogOptions,
    meta: DirMeta,
    lock: WriterLock,
    survey: Survey,
    how: Recovered,
    /// Tail, begin and the checksum below the tail of each log, as recovered.
    logs: PerLog<DurableLog>,
    /// Refused and dropped records without a record in the log.
    losses: Vec<PendingLoss>,
    /// Records resume no lower. It is the head of the last writer's staging, which is above the end while entries of a gap are unpublished.
    floor: Address,
    segments: PerLog<SegmentDir>,
    lists: PerLog<SegmentList>,
    /// The place of the records' bytes.
    records: RecordsEnd,
    tail: TailFile,
    /// Salvage may have written units of these addresses raw. Staging still has their records, so `start` encodes them.
    raw: Range<Address>,
    /// Keeps files open from one read to the next.
    view: View,
}

impl Opening {
    /// Opens a directory, or creates it, takes its lock and recovers its bytes. An existing directory keeps its own chunk and segment sizes.
    pub fn open(dir: &Path, options: &LogOptions) -> Result<Opening> {
        let storage = OsStorage::new(options.group);
        Opening::open_with(Arc::new(storage), dir, options)
    }

    pub fn open_with(
        storage: Arc<dyn Storage>,
        dir: &Path,
        options: &LogOptions,
    ) -> Result<Opening> {
        options.check()?;
        let dir = std::path::absolute(dir).map_err(|error| Error::io(dir, error))?;
        refuse_foreign(&*storage, &dir)?;
        if DirMeta::load(&*storage, &dir)?.is_none() {
            require_room(&*storage, &dir, options)?;
        }
        storage.make_dir(&dir)?;
        let lock = WriterLock::take(&*storage, &dir)?;
        remove_unfinished(&*storage, &dir)?;
        let meta = provide_meta(&*storage, &dir, options)?;
        // The creator of `loom.json` may have died before its name was durable, and a folder without it is not a Loom directory.
        storage.sync_dir(&dir)?;
        let segments = segment_dirs(&storage, &dir, &meta);
        segments.iter().try_for_each(SegmentDir::make)?;
        storage.sync_dir(&dir)?;

        let mut lists = list_all(&segments)?;
        let survey = Survey::take(&*storage, &dir, &meta, || Ok(is_empty(&lists)))?;
        let of_slot = survey
            .slot
            .as_ref()
            .map_or_else(PerLog::default, |slot| slot.logs);
        let records = RecordsEnd::of_slot(&*storage, &dir, &meta, &of_slot.records)?;
        let mut tail = TailFile::open(
            Arc::clone(&storage),
            &dir,
            meta.uuid,
            meta.unit_bytes(),
            &records.tail,
        )?;
        let mut floor = Address::ZERO;
        let whole = |logs, end| Salvaged {
            logs,
            end,
            ..Salvaged::default()
        };
        let (how, salvaged) = match &survey.ending {
            Ending::Clean => (Recovered::Clean, whole(of_slot, records)),
            Ending::Staged(staging) => {
                floor = staging.word(LogKind::Records, Word::Head)?;
                let salvage = Salvage {
                    storage: &*storage,
                    dir: &dir,
                    meta: &meta,
                    staging,
                    segments: &segments,
                    encoded: records.encoded,
                    durable: of_slot.records.tail,
                };
                (Recovered::Salvaged, salvage.run(&mut tail)?)
            }
            Ending::Lost { .. } => {
                let slot = survey.slot.as_ref();
                let (logs, end) = keep(&*storage, &dir, &segments, &lists, &meta, slot)?;
                let from = records_from(&of_slot);
                segments.records.mend_directories(from, end.encoded)?;
                (Recovered::StagingLost, whole(logs, end))
            }
        };
        let Salvaged { logs, end, raw } = salvaged;
        let losses = pending_losses(&survey, logs.records.tail);
        if how != Recovered::Clean {
            for log in LogKind::ALL {
                let synced = of_slot[log];
                let from = match log {
                    LogKind::Records => records_from(&of_slot),
                    LogKind::Chunks | LogKind::Times => synced.tail,
                };
                segments[log].sync(from, logs[log].tail)?;
            }
            lists = list_all(&segments)?;
        }
        Ok(Opening {
            storage,
            dir,
            options: options.clone(),
            meta,
            lock,
            survey,
            how,
            logs,
            losses,
            floor,
            segments,
            lists,
            records: end,
            tail,
            raw,
            view: View::new(Stage::Unknown),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn meta(&self) -> &DirMeta {
        &self.meta
    }

    pub fn how(&self) -> Recovered {
        self.how
    }

    pub fn begin(&self, log: LogKind) -> Address {
        self.logs[log].begin
    }

    /// Returns the end of the recovered bytes, which may lie inside a chunk of the record log.
    pub fn end(&self, log: LogKind) -> Address {
        self.logs[log].tail
    }

    /// Returns the lowest address at which the record log may continue: a chunk boundary, and past every segment if staging was lost, because bytes that were
    /// published above the end must not share their addresses with later ones.
    pub fn resume(&self) -> Address {
        let lost = (self.how == Recovered::StagingLost).then_some(&self.lists);
        let floor = self.floor.align_up(u64::from(self.meta.chunk_bytes));
        resume_after(&self.logs, &self.meta, lost).max(floor)
    }

    /// Returns the number of chunks of the record log between two addresses that are in no segment.
    pub fn missing_chunks(&self, from: Address, to: Address) -> u64 {
        let (folder, list) = (&self.segments.records, &self.lists.records);
        missing_chunks(folder, list, &self.meta, from, to)
    }

    /// Returns the file that holds, or would hold, an address.
    pub fn path_of(&self, log: LogKind, address: Address) -> PathBuf {
        if log == LogKind::Records && address >= self.records.encoded {
            return self.records.tail.path().to_owned();
        }
        self.segments[log].path_at(&self.lists[log], address)
    }

    /// Reads bytes between a log's begin and end.
    pub fn read(&self, log: LogKind, address: Address, buffer: &mut [u8]) -> Result<()> {
        let segments = &self.segments[log];
        match log {
            LogKind::Records => (self.view).read_records(segments, &self.records, address, buffer),
            LogKind::Chunks | LogKind::Times => self.view.read_segments(segments, address, buffer),
        }
    }

    /// Returns the catalog, as far as the file or its copy has it.
    pub fn catalog_bytes(&self) -> Result<Vec<u8>> {
        let bytes = CatalogBytes::read(&*self.storage, &self.dir)?;
        Ok(bytes.into_merged(&self.meta.uuid))
    }

    /// Returns a lower bound of the catalog's length when the newest slot was written; 0 where it is unknown.
    pub fn catalog_bytes_least(&self) -> Result<u64> {
        let of_slot = self
            .survey
            .slot
            .as_ref()
            .map_or(0, |slot| slot.catalog_bytes);
        match &self.survey.ending {
            Ending::Staged(staging) => {
                Ok(of_slot.max(staging.daemon_word(DaemonWord::CatalogBytes)?))
            }
            Ending::Clean | Ending::Lost { .. } => Ok(of_slot),
        }
    }

    /// Returns the recovered part of a chunk of the record log; `None` if it does not verify.
    pub fn sound_chunk(&self, first: Address) -> Result<Option<Vec<u8>>> {
        let records = self.logs.records;
        let uuid = &self.meta.uuid;
        let chunk_bytes = u64::from(self.meta.chunk_bytes);
        let known = records.tail.0.saturating_sub(first.0).min(chunk_bytes);
        let mut chunk = vec![0; known as usize];
        let is_sound = is_there(self.read(LogKind::Records, first, &mut chunk))?
            && if known == chunk_bytes {
                verify_chunk(uuid, first, &chunk).is_ok()
            } else {
                checksum(uuid, LogKind::Records, first, &chunk) == records.checksum
            };
        Ok(is_sound.then_some(chunk))
    }

    /// Gives up everything below `begins`, because the room does not suffice to begin with all of it. As in a running writer's retention, the slot is durable
    /// before a file is removed, which needs no space. The slot has an epoch of its own, because the content of staging is in segments now.
    pub fn evict(self, begins: PerLog<Address>) -> Result<()> {
        let mut slot = self.logs;
        for (entry, begin) in slot.iter_mut().zip(begins) {
            entry.begin = begin.clamp(entry.begin, entry.tail);
        }
        slot.records.resume = self.resume();
        slot.records.encoded = self.records.encoded;
        let end = match self.how {
            Recovered::Clean | Recovered::Salvaged => End::Clean(&self.losses),
            Recovered::StagingLost => End::Open,
        };
        DurableFile::open(
            Arc::clone(&self.storage),
            &self.dir,
            self.meta.uuid,
            self.survey.slot.clone(),
            Arc::new(AtomicU64::new(self.catalog_bytes_least()?)),
        )?
        .write(self.survey.epoch() + 1, end, slot)?;
        for (segments, entry) in self.segments.iter().zip(slot) {
            segments.evict(entry.begin)?;
        }
        Ok(())
    }

    /// Refused and dropped records without a record in the log, which the next writer must record.
    pub fn losses(&self) -> &[PendingLoss] {
        &self.losses
    }

    /// Begins a new epoch: seals the last chunk, cuts the index logs to `chunks` and `times`, and creates staging. `records` is a chunk boundary at or above
    /// `resume`; the others lie at or below their ends and are multiples of 8. `catalog` holds the valid lines. `encoder` makes the units of the record log.
    pub fn start(
        mut self,
        records: Address,
        chunks: Address,
        times: Address,
        catalog: &[u8],
        mut encoder: Box<dyn Encoder>,
    ) -> Result<Logs> {
        let chunk_bytes = u64::from(self.meta.chunk_bytes);
        assert!(
            records.0.is_multiple_of(chunk_bytes) && records >= self.resume(),
            "the record log resumes at {records}, a chunk boundary from {}",
            self.resume()
        );
        for (log, at) in [(LogKind::Chunks, chunks), (LogKind::Times, times)] {
            assert!(
                at.0.is_multiple_of(8) && at <= self.end(log),
                "the {log} resumes at {at}, at or below its end {}",
                self.end(log)
            );
        }
        let starts = PerLog {
            records,
            chunks,
            times,
        };
        // The bytes between the end and `records` are a gap. Readers see no address in it before its entry is in the index logs.
        let known = PerLog {
            records: self.end(LogKind::Records).align_up(chunk_bytes),
            ..starts
        };
        // The directory and its catalog have verified by now.
        self.meta.store(&*self.storage, &self.dir)?;
        let uuid = &self.meta.uuid;
        let catalog = CatalogFile::begin(Arc::clone(&self.storage), &self.dir, uuid, catalog)?;
        let mut durable = DurableFile::open(
            Arc::clone(&self.storage),
            &self.dir,
            self.meta.uuid,
            self.survey.slot.clone(),
            catalog.shared_bytes(),
        )?;
        if self.survey.slot.is_none() && self.how == Recovered::Clean {
            // From the first segment on, a directory without a slot has lost it.
            durable.write(0, End::Clean(&[]), PerLog::default())?;
        }
        if let Ending::Staged(staging) = &self.survey.ending {
            // Salvage can be repeated until the slot below is written, so its units may be removed and written again in columns.
            let encode = |at, chunks: &[u8], unit: &mut Vec<u8>| encoder.encode(at, chunks, unit);
            append_units(staging, &self.segments.records, self.raw.clone(), encode)?;
            self.view.forget_lists();
        }
        let base = records.align_down(self.meta.unit_bytes());
        let open = self.open_bytes(base, known.records)?;
        open.close_units(
            &self.segments.records,
            self.records.encoded,
            base,
            &mut *encoder,
        )?;
        let in_tail = base.min(known.records);
        self.tail.hold(in_tail, known.records, |from, bytes| {
            bytes.copy_from_slice(&open.from(from, bytes.len()));
            Ok(())
        })?;
        for (segments, start) in self.segments.iter().zip(starts) {
            segments.remove_drafts()?;
            if segments.log() != LogKind::Records {
                segments.cut(start)?;
            }
            segments.provide_reserved(segments.first_of(start))?;
        }
        self.view.forget_lists();

        let epoch = self.survey.epoch();
        let mut slot = self.logs;
        for log in LogKind::ALL {
            let known = known[log];
            let bytes = self.last_bytes(log, known)?;
            let from = known.align_down(chunk_bytes);
            let begin = self.begin(log).min(known);
            slot[log] = DurableLog {
                tail: known,
                begin,
                checksum: checksum(&self.meta.uuid, log, from, &bytes),
                ..DurableLog::default()
            };
        }
        slot.records.resume = records;
        slot.records.encoded = base;
        // From here on the slot covers everything that old staging held: the epoch before has ended, and none has begun.
        durable.write(epoch, End::Clean(&self.losses), slot)?;
        self.tail.named(base, known.records);
        // This follows the slot: `provide` may replace a refused file, whose bytes the slot before needed.
        self.tail.provide()?;
        // Units above were never published, and others take their addresses. After lost staging nothing of the record log is removed: a person may want to
        // look at the bytes above its end.
        if self.how != Recovered::StagingLost {
            let folder = &self.segments.records;
            folder.cut(base + 1)?;
            let file = folder.provide(folder.first_of(base))?;
            UnitAppender::find(folder, file, base)?.file().sync()?;
        }
        // A crash may have come between a begin and the removal of files below it.
        self.lists = PerLog::try_new(|log| self.segments[log].evict(slot[log].begin))?;
        let end = known.records;
        if records > end {
            tracing::warn!(
                "{}: the records from address {end} to {records} were lost with staging; loom_losses lists the gap",
                self.dir.display()
            );
            // The slot replaces these from now on.
            let folder = &self.segments.records;
            folder.remove_unwritten(self.end(LogKind::Records), records)?;
            self.lists = list_all(&self.segments)?;
        }
        let begun = Begun {
            epoch: epoch + 1,
            starts,
            slot,
            open,
        };
        self.start_epoch(begun, durable, catalog, encoder)
    }

    /// Returns the bytes of an index log from the last chunk boundary to its new end.
    fn last_bytes(&self, log: LogKind, start: Address) -> Result<Vec<u8>> {
        let from = start.align_down(u64::from(self.meta.chunk_bytes));
        let mut bytes = vec![0; (start.0 - from.0) as usize];
        self.read(log, from, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the records up to `known`, a chunk boundary, from the unit's begin `base`, or from the end of units if that is lower. It fills and seals the
    /// last chunk, so that the chunk verifies from now on. A damaged chunk stays damaged, because readers of staging check no checksums.
    fn open_bytes(&self, base: Address, known: Address) -> Result<OpenBytes> {
        let end = self.end(LogKind::Records);
        let first = base.min(self.records.encoded).min(known);
        let first = first.align_down(self.meta.unit_bytes());
        let mut bytes = vec![0; (known.0 - first.0) as usize];
        for (nth, chunk) in bytes.chunks_mut(self.meta.chunk_bytes as usize).enumerate() {
            let at = first + nth as u64 * u64::from(self.meta.chunk_bytes);
            let Some(mut sound) = self.sound_chunk(at)? else {
                let words = chunk.chunks_exact_mut(LOST_ENTRY.len());
                words.for_each(|word| word.copy_from_slice(&LOST_ENTRY));
                self.records.tail.copy_known(at, chunk);
                // A chunk of zeroes is a gap.
                if chunk.iter().any(|byte| *byte != 0) {
                    tracing::error!(
                        "{}: the chunk at address {at} is damaged, and stays so in its unit",
                        self.path_of(LogKind::Records, at).display()
                    );
                }
                continue;
            };
            let is_part = sound.len() < chunk.len();
            sound.resize(chunk.len(), 0);
            if is_part {
                put_trailer(&self.meta.uuid, at, &mut sound);
            }
            chunk.copy_from_slice(&sound);
        }
        assert!(first <= end || bytes.is_empty(), "{first} lies below {end}");
        Ok(OpenBytes { first, bytes })
    }

    fn start_epoch(
        self,
        begun: Begun,
        mut durable: DurableFile,
        catalog: CatalogFile,
        encoder: Box<dyn Encoder>,
    ) -> Result<Logs> {
        let Begun {
            epoch,
            starts,
            slot,
            open,
        } = begun;
        self.remove_old_staging();
        let Placed {
            staging,
            note,
            geometry,
            path,
        } = placement::place(&*self.storage, &self.dir, &self.meta, &self.options, epoch)?;
        let mut logs = PerLog::<LogStart>::default();
        for log in LogKind::ALL {
            let (at, entry) = (starts[log], slot[log]);
            let (head, flushed) = match log {
                LogKind::Records => {
                    let base = entry.encoded;
                    let bytes = open.from(base, (at.0 - base.0) as usize);
                    staging.copy_in(log, base, &bytes);
                    (base, base)
                }
                LogKind::Chunks | LogKind::Times => {
                    let head = at.align_down(u64::from(self.meta.chunk_bytes));
                    staging.copy_in(log, head, &self.last_bytes(log, at)?);
                    (head, at)
                }
            };
            store_all(&staging, log, head, flushed, &entry);
            let segments = &self.segments[log];
            let allocated = segments.first_of(at) + segments.segment_bytes();
            logs[log] = LogStart {
                at,
                flushed,
                published: entry.tail,
                head,
                begin: entry.begin,
                allocated,
            };
        }
        staging.announce_daemon(DaemonWord::CatalogBytes, catalog.bytes());
        let losses = LossTable {
            recorded_below: self.end(LogKind::Records),
            rows: self.losses.clone(),
        };
        staging.store_losses(
            LOSS_TABLE_FIRST,
            &losses.encode(&self.meta.uuid, LOSS_TABLE_FIRST),
        );
        note.store(&*self.storage, &self.dir)?;
        // Staging can be lost only from here on. Both slots record that before anything is published, so that damage to one leaves no clean one.
        durable.write(epoch, End::Open, slot)?;
        durable.write(epoch, End::Open, slot)?;

        let files = RecordFiles::find(
            &self.segments.records,
            &self.segments.records.list()?,
            slot.records.begin,
            slot.records.encoded,
        )?;
        let setup = Setup {
            storage: self.storage,
            dir: self.dir,
            meta: self.meta,
            epoch,
            files,
        };
        let shared = Arc::new(Shared::new(setup, staging, geometry, logs));
        let release = match self.options.durability {
            Durability::Batch => Release::Synced,
            Durability::None | Durability::Interval(_) => Release::Written,
        };
        let PerLog {
            records,
            chunks,
            times,
        } = self.segments;
        let flusher = Flusher::new(FlusherParts {
            durability: self.options.durability,
            encoders: Encoders::new(encoder, self.options.encoders),
            records: RecordFlusher::new(&shared, records, release),
            indexes: [chunks, times].map(|segments| LogFlusher::new(&shared, segments, release)),
            tail: self.tail,
            durable,
            slot,
            shared: Arc::clone(&shared),
        });
        Logs::new(Parts {
            shared,
            flusher,
            catalog,
            losses,
            staging_path: path,
            lock: self.lock,
        })
    }

    /// Removes the staging file of the epoch before. Readers that have it open keep it.
    fn remove_old_staging(&self) {
        let Some(note) = &self.survey.note else {
            return;
        };
        let storage = &*self.storage;
        let is_ours = note.is_of(storage, &self.dir, &self.meta.uuid);
        let removed = is_ours.and_then(|is_ours| match is_ours {
            true => unlink_if_present(storage, &self.dir.join(&note.path)),
            false => Ok(()),
        });
        if let Err(error) = removed {
            tracing::warn!(
                "cannot remove the staging file that '{}' names: {error}",
                StagingNote::FILE.name
            );
        }
    }
}

/// The beginning of an epoch: the content of its slot, and the address of the first append.
struct Begun {
    epoch: u64,
    starts: PerLog<Address>,
    slot: PerLog<DurableLog>,
    open: OpenBytes,
}

/// Unsynced bytes may lie in the segments of the record log from this address on.
fn records_from(of_slot: &PerLog<DurableLog>) -> Address {
    of_slot.records.encoded.min(of_slot.records.tail)
}

/// Returns the losses of the last writer without a record in the log. If staging is lost, the gap in the log represents them.
fn pending_losses(survey: &Survey, records: Address) -> Vec<PendingLoss> {
    match &survey.ending {
        Ending::Clean | Ending::Lost { .. } => {
            (survey.slot.as_ref()).map_or_else(Vec::new, |slot| slot.losses.clone())
        }
        Ending::Staged(staging) => match staging.losses() {
            Ok(losses) => losses.unrecorded(records),
            Err(error) => {
                tracing::error!("{error}; loom_losses will hold a loss of unknown number");
                vec![PendingLoss::UNKNOWN]
            }
        },
    }
}

/// Stores the marks of a log in a new staging file.
fn store_all(staging: &Staging, log: LogKind, head: Address, flushed: Address, entry: &DurableLog) {
    staging.announce(log, Word::Head, head);
    staging.announce(log, Word::Begin, entry.begin);
    staging.announce(log, Word::Flushed, flushed);
    for word in [Word::Tail, Word::Durable] {
        staging.announce(log, word, entry.tail);
    }
}
