//! The readers' end of the three logs, in any process: the writer's, another, or one that runs long after it.
//!
//! A reader maps nothing, writes nothing and takes no lock. It copies published bytes from staging with `pread`, checks the head afterwards, and reads bytes
//! that may have been reused again from the segment. If no writer runs, it reads the bytes that recovery would keep.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::epoch_view::{Stage, View};
use super::survey::{Ending, Survey, is_empty, list_all, segment_dirs};
use crate::error::{Error, Result};
use crate::format::{
    FormatError, LossTable, SourceZones, Template, Unit, Zone, verify_chunk, verify_part,
};
use crate::log::files::durable;
use crate::log::files::lock::LockWatch;
use crate::log::files::meta::DirMeta;
use crate::log::files::mirrored::Mirrored;
use crate::log::files::open_segment::OpenSegment;
use crate::log::files::os::OsStorage;
use crate::log::files::segment::{SegmentDir, SegmentName};
use crate::log::files::storage::{FileId, OpenMode, Storage, StorageFile};
use crate::log::files::unit_cache::UnitCache;
use crate::log::files::unit_file::{HeldUnit, UnitFile, UnitWanted};
use crate::log::options::ADDRESS_LIMIT;
use crate::log::staging::control::{DaemonWord, Word};
use crate::log::staging::note::StagingNote;
use crate::log::staging::protocol;
use crate::log::sync::{Memory, Mutex, locked};
use crate::log::write::record_files::RecordSegments;
use crate::types::{Address, LogKind, PerLog, Timestamp};

/// A reader looks again this often when a starting writer replaces the files that it found.
const ATTEMPTS: u32 = 5;

/// Explains why a live writer's staging cannot be read here, with the remedy.
fn elsewhere(path: &Path) -> String {
    let folder = path.parent().unwrap_or(path).display();
    format!(
        "the daemon runs, and its {} is not here: {folder} is another one for it, as in another container; set `[log] staging` to the Loom \
         directory and restart the daemon, or give both one {folder}: `docker run --ipc=host` or `--ipc=container:NAME`, or mount its folder here",
        path.display()
    )
}

/// The bounds of reading.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Tails {
    pub tail: PerLog<Address>,
    pub begin: PerLog<Address>,
    /// Checksum of the records in their last chunk, if staging is gone and the chunk is not full: it has no seal.
    pub part_checksum: Option<u32>,
    /// The address where a writer would continue, if it would leave a gap above the tail of the records, because their bytes were lost with staging.
    pub gap_to: Option<Address>,
    /// A writer lives.
    pub live: bool,
    /// Grows with each start of a writer.
    pub epoch: u64,
}

impl Tails {
    /// Verifies all published bytes of the chunk at `address`, after a read from segments.
    pub fn verify_chunk(
        &self,
        meta: &DirMeta,
        address: Address,
        chunk: &[u8],
    ) -> std::result::Result<(), FormatError> {
        let is_whole = chunk.len() == meta.chunk_bytes as usize;
        match self.part_checksum {
            Some(stored) if !is_whole => verify_part(&meta.uuid, address, chunk, stored),
            // A partial chunk has no seal while there is staging.
            None if !is_whole => Ok(()),
            _ => verify_chunk(&meta.uuid, address, chunk),
        }
    }
}

/// The origin of bytes. Chunks in segments are verified; those in staging are read without their checksums.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// At least a part came from staging.
    Staging,
    Segment,
}

/// The daemon's words about itself.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DaemonWords {
    pub alive: bool,
    pub stopping: bool,
    pub heartbeat: Timestamp,
    pub stalls: u64,
    pub stall_ns: u64,
    pub clock_offset_ns: i64,
    pub logs: PerLog<LogWords>,
}

/// The five marks of a log.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct LogWords {
    pub begin: Address,
    pub durable: Address,
    pub flushed: Address,
    pub head: Address,
    pub tail: Address,
}

/// A directory, open for reading. Threads share it.
#[derive(Debug)]
pub struct LogReader {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) dir: PathBuf,
    pub(super) meta: DirMeta,
    identity: Option<Identity>,
    pub(super) segments: PerLog<SegmentDir>,
    pub(super) lock: LockWatch,
    view: Mutex<Arc<View>>,
    /// Held by the thread that looks for another view.
    looking: Mutex<()>,
    /// The writer lives in this process and outlives every question, so attached staging stays valid.
    pub(super) is_beside_writer: bool,
}

/// The logs of one writer, or the end that the last one reached.
#[derive(Debug)]
pub struct Attached {
    view: Arc<View>,
}

impl Attached {
    /// The published end of the record log.
    pub fn records_tail(&self) -> Result<Address> {
        match &self.view.stage {
            Stage::Staged(staging) => staging.word(LogKind::Records, Word::Tail),
            Stage::Ended { tails, .. } => Ok(tails.records),
            Stage::Unknown => unreachable!("a refreshed view is known"),
        }
    }
}

/// The file that identifies a directory. While it is open, no other file has its id.
#[derive(Debug)]
struct Identity {
    id: FileId,
    _file: Arc<dyn StorageFile>,
}

impl Identity {
    /// `None` if only the file's copy is readable.
    fn of(storage: &dyn Storage, dir: &Path) -> Option<Identity> {
        let file = storage.open(&Identity::path_in(dir), OpenMode::Read).ok()?;
        Some(Identity {
            id: file.id().ok()?,
            _file: file,
        })
    }

    fn path_in(dir: &Path) -> PathBuf {
        dir.join(DirMeta::FILE.name)
    }
}

impl LogReader {
    pub fn open(dir: &Path) -> Result<LogReader> {
        LogReader::open_with(Arc::new(OsStorage::default()), dir)
    }

    /// Opens a reader in the writer's process, which ends only after the last question. A look at published bytes then opens no file.
    pub fn beside_writer(dir: &Path) -> Result<LogReader> {
        let reader = LogReader::open(dir)?;
        Ok(LogReader {
            is_beside_writer: true,
            ..reader
        })
    }

    pub fn open_with(storage: Arc<dyn Storage>, dir: &Path) -> Result<LogReader> {
        let dir = std::path::absolute(dir).map_err(|error| Error::io(dir, error))?;
        let identity = Identity::of(&*storage, &dir);
        let meta = DirMeta::require(&*storage, &dir)?;
        let segments = segment_dirs(&storage, &dir, &meta);
        let lock = LockWatch::new(&dir);
        let view = Arc::new(View::new(Stage::Unknown));
        Ok(LogReader {
            storage,
            dir,
            meta,
            identity,
            segments,
            lock,
            view: Mutex::new(view),
            looking: Mutex::new(()),
            is_beside_writer: false,
        })
    }

    pub fn meta(&self) -> &DirMeta {
        &self.meta
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Fails if the directory is gone, or another one, even a copy, has taken its path since it was opened: its files would look damaged or empty, or hold
    /// other records at the same addresses.
    pub fn require_in_place(&self) -> Result<()> {
        let own = self.identity.as_ref().map(|identity| identity.id);
        let there = self.storage.file_id(&Identity::path_in(&self.dir)).ok();
        let is_in_place = match (own, there) {
            (Some(own), Some(there)) => own == there,
            _ => DirMeta::require(&*self.storage, &self.dir)?.uuid == self.meta.uuid,
        };
        if is_in_place {
            return Ok(());
        }
        Err(Error::Replaced {
            path: self.dir.clone(),
        })
    }

    /// The file that holds, or would hold, an address.
    pub fn path_of(&self, log: LogKind, address: Address) -> PathBuf {
        let segments = &self.segments[log];
        let first = segments.first_of(address);
        let view = Arc::clone(&*locked(&self.view));
        if let (LogKind::Records, Stage::Ended { records, .. }) = (log, &view.stage)
            && address >= records.encoded
        {
            return records.tail.path().to_owned();
        }
        let generation = view.generation(log, first).or_else(|| {
            let known = segments.list().ok()?;
            known.get(&first).copied()
        });
        segments.path_of_any(first, generation)
    }

    /// Returns the first address from `address` on with bytes in a segment or staging; `None` if there is none above.
    pub fn stored_from(&self, log: LogKind, address: Address) -> Result<Option<Address>> {
        let segment = self.segments[log].stored_from(address)?;
        let view = self.refresh()?;
        let staged = match &view.stage {
            Stage::Staged(staging) if address < staging.word(log, Word::Tail)? => {
                Some(staging.word(log, Word::Head)?)
            }
            Stage::Ended { records, .. } if log == LogKind::Records => {
                records.tail.known_from(address)
            }
            _ => None,
        };
        Ok(segment
            .into_iter()
            .chain(staged)
            .min()
            .map(|from| from.max(address)))
    }

    /// Bytes read so far of everything: logs, words and small files.
    pub fn bytes_read(&self) -> u64 {
        self.storage.bytes_read()
    }

    /// The sizes of the segments of the record log now. It looks at each of their files.
    pub fn record_segments(&self) -> Result<RecordSegments> {
        let folder = &self.segments.records;
        self.tails()?;
        let encoded = locked(&self.view).encoded();
        RecordSegments::list(folder, &folder.list()?, encoded)
    }

    /// Bytes of the segments of all logs on the disk now. It looks at each of their files.
    pub fn segment_bytes(&self) -> Result<u64> {
        let mut all = 0;
        for segments in self.segments.iter() {
            for (first, generation) in segments.list()? {
                let bytes = segments.file_bytes(SegmentName { first, generation })?;
                all += bytes.unwrap_or(0);
            }
        }
        Ok(all)
    }

    /// Attaches to the present state and loads the tails: timestamp index, chunk index, records, so that every found address lies below a held tail.
    pub fn tails(&self) -> Result<Tails> {
        let view = self.refresh()?;
        match &view.stage {
            Stage::Staged(staging) => {
                // Begins come first, because retention may move them past tails that are loaded before.
                let begin = protocol::load_tails(|log| staging.word(log, Word::Begin))?;
                let encoded = staging.word(LogKind::Records, Word::Flushed)?;
                let tail = protocol::load_tails(|log| staging.tail(log))?;
                // After a kill the next start cuts off a unit that is not published to its end.
                let published = tail.records.align_down(self.meta.unit_bytes());
                view.set_encoded(encoded.min(published));
                Ok(Tails {
                    tail,
                    begin,
                    part_checksum: None,
                    gap_to: None,
                    live: self.lock.is_held(&*self.storage)?,
                    epoch: staging.epoch(),
                })
            }
            Stage::Ended {
                slot,
                tails,
                gap_to,
                ..
            } => Ok(Tails {
                tail: *tails,
                begin: slot.begins(),
                part_checksum: slot.part_checksum(self.meta.chunk_bytes),
                gap_to: *gap_to,
                live: self.lock.is_held(&*self.storage)?,
                epoch: slot.epoch,
            }),
            Stage::Unknown => unreachable!("a refreshed view is known"),
        }
    }

    /// Attaches to the present state, for repeated looks.
    pub fn attach(&self) -> Result<Attached> {
        Ok(Attached {
            view: self.refresh()?,
        })
    }

    /// Reports whether no writer began or ended since.
    pub fn is_attached(&self, attached: &Attached) -> Result<bool> {
        Ok(Arc::ptr_eq(&self.refresh()?, &attached.view))
    }

    /// Fills the buffer; the bytes must lie below a tail from `tails`.
    pub fn read(&self, log: LogKind, address: Address, buffer: &mut [u8]) -> Result<Origin> {
        let end = address.0.checked_add(buffer.len() as u64).map(Address);
        let Some(end) = end.filter(|end| *end < ADDRESS_LIMIT) else {
            return Err(Error::PastTail {
                address,
                tail: ADDRESS_LIMIT,
            });
        };
        let mut view = Arc::clone(&*locked(&self.view));
        if matches!(view.stage, Stage::Unknown) {
            view = self.refresh()?;
        }
        let Stage::Staged(staging) = &view.stage else {
            let segments = &self.segments[log];
            let read = match (&view.stage, log) {
                (Stage::Ended { records, .. }, LogKind::Records) => {
                    view.read_records(segments, records, address, buffer)
                }
                _ => view.read_segments(segments, address, buffer),
            };
            read.map_err(|error| self.explain(log, address, error))?;
            return Ok(Origin::Segment);
        };
        let mut head = view.head(log);
        let split = protocol::copy_staged::<Memory, Error>(
            address,
            end,
            &mut head,
            |from| {
                let (_, staged) = buffer.split_at_mut((from.0 - address.0) as usize);
                staging.copy_out(log, from, staged)
            },
            || staging.word(log, Word::Head),
        )?;
        view.set_head(log, head);
        let (below, staged) = buffer.split_at_mut((split.0 - address.0) as usize);
        view.read_segments(&self.segments[log], address, below)
            .map_err(|error| self.explain(log, address, error))?;
        Ok(if staged.is_empty() {
            Origin::Segment
        } else {
            Origin::Staging
        })
    }

    /// Returns the unit of a chunk with the wanted part in `held`, and the number of the chunk in it; `None` if no unit holds the chunk yet, so that `read`
    /// must be used.
    pub fn column_unit<'a>(
        &self,
        chunk: Address,
        wanted: UnitWanted<'_>,
        held: &'a mut HeldUnit,
    ) -> Result<Option<(&'a mut Unit, usize)>> {
        if let Some(nth) = held.find(chunk, self.meta.chunk_bytes, wanted) {
            return Ok(held.unit_mut().map(|unit| (unit, nth)));
        }
        let found = self.units_at(chunk);
        let found = found.and_then(|units| match &units {
            Some(units) => units.hold(chunk, wanted, held).map(Some),
            None => Ok(None),
        });
        found.map_err(|error| self.explain(LogKind::Records, chunk, error))
    }

    /// Returns the segment with the unit of a chunk; `None` if no unit holds the chunk yet.
    fn units_at(&self, chunk: Address) -> Result<Option<Arc<UnitFile>>> {
        let view = Arc::clone(&*locked(&self.view));
        if chunk + u64::from(self.meta.chunk_bytes) > view.encoded() {
            return Ok(None);
        }
        match view.segment(&self.segments[LogKind::Records], chunk)? {
            (OpenSegment::Units(units), _) => Ok(Some(units)),
            (OpenSegment::Bytes(_), _) => unreachable!("the record log is units"),
        }
    }

    /// Returns the zones of the rows of a template in each unit of the segment of a chunk; `None` if its end has none, or is not written yet.
    pub fn segment_zones(
        &self,
        chunk: Address,
        template: &Template,
    ) -> Result<Option<SourceZones>> {
        let segments = &self.segments.records;
        let before = segments.segment_bytes() - u64::from(self.meta.chunk_bytes);
        let last = segments.first_of(chunk) + before;
        match self.units_at(last)? {
            Some(units) => units.zones(template),
            None => Ok(None),
        }
    }

    /// Reports whether the unit of a chunk may hold wanted rows of a template. `may` decides by the zones in its head. `None`: no unit holds the chunk yet.
    pub fn may_have(
        &self,
        chunk: Address,
        template: &Template,
        may: impl FnMut(&[Zone]) -> bool,
        cache: &UnitCache,
    ) -> Result<Option<bool>> {
        match self.units_at(chunk)? {
            Some(units) => units.may_have(chunk, template, may, cache).map(Some),
            None => Ok(None),
        }
    }

    /// Reports whether an address may still be in staging, according to the latest read near it.
    pub fn is_staged(&self, log: LogKind, address: Address) -> bool {
        let view = Arc::clone(&*locked(&self.view));
        matches!(view.stage, Stage::Staged(_)) && address >= view.head(log)
    }

    /// Prefetches the wanted part of a chunk's unit, unless it is kept: first the head, which locates the rest.
    pub fn will_read_unit(&self, chunk: Address, wanted: UnitWanted<'_>, cache: &UnitCache) {
        // The read reports an error.
        if let Ok(Some(units)) = self.units_at(chunk) {
            units.will_read_unit(chunk, wanted, cache);
        }
    }

    /// Announces that bytes of one chunk are read soon, so that they are fetched. Staged bytes need no fetching.
    pub fn will_read(&self, log: LogKind, address: Address, bytes: u64) {
        let view = Arc::clone(&*locked(&self.view));
        let end = Address(address.0.saturating_add(bytes));
        let staged = matches!(view.stage, Stage::Staged(_)) && end > view.head(log);
        let in_tail = log == LogKind::Records && end > view.encoded();
        if !staged && !in_tail {
            view.will_read(&self.segments[log], address, bytes);
        }
    }

    /// Drops the list of segments after a wrong checksum, because a newer generation may exist.
    pub fn relist(&self) {
        locked(&self.view).forget_lists();
    }

    /// Returns the finished segments of the record log with a damaged directory and the reason; their units are still found. It opens each of them.
    pub fn damaged_directories(&self) -> Result<Vec<(PathBuf, String)>> {
        self.tails()?;
        let encoded = locked(&self.view).encoded();
        self.segments.records.damaged_directories(encoded)
    }

    /// Reports whether staging of a running or killed writer holds the published bytes.
    pub fn has_staging(&self) -> Result<bool> {
        Ok(matches!(self.refresh()?.stage, Stage::Staged(_)))
    }

    pub fn has_segments(&self) -> Result<bool> {
        Ok(!is_empty(&list_all(&self.segments)?))
    }

    /// Returns the losses without a record, and the address up to which the log must be read to find the recorded ones.
    pub fn losses(&self) -> Result<LossTable> {
        match &self.refresh()?.stage {
            Stage::Staged(staging) => staging.losses(),
            Stage::Ended { slot, tails, .. } => Ok(LossTable {
                rows: slot.losses.clone(),
                recorded_below: tails.records,
            }),
            Stage::Unknown => unreachable!("a refreshed view is known"),
        }
    }

    /// Returns the daemon's words about itself, or about its end.
    pub fn daemon(&self) -> Result<DaemonWords> {
        let view = self.refresh()?;
        let alive = self.lock.is_held(&*self.storage)?;
        let mut words = DaemonWords {
            alive,
            ..DaemonWords::default()
        };
        match &view.stage {
            Stage::Staged(staging) => {
                words.heartbeat = Timestamp(staging.daemon_word(DaemonWord::Heartbeat)? as i64);
                words.stalls = staging.daemon_word(DaemonWord::Stalls)?;
                words.stall_ns = staging.daemon_word(DaemonWord::StallNanos)?;
                words.clock_offset_ns = staging.daemon_word(DaemonWord::ClockOffset)? as i64;
                words.stopping = staging.daemon_word(DaemonWord::Stopping)? != 0;
                for log in LogKind::ALL {
                    let of_log = &mut words.logs[log];
                    // The lower marks come first: all grow, so their order stays valid.
                    of_log.begin = staging.word(log, Word::Begin)?;
                    of_log.head = staging.word(log, Word::Head)?;
                    of_log.durable = staging.word(log, Word::Durable)?;
                    of_log.flushed = staging.word(log, Word::Flushed)?;
                    of_log.tail = staging.word(log, Word::Tail)?;
                }
            }
            Stage::Ended { slot, tails, .. } => {
                words.logs = PerLog::new(|log| LogWords {
                    begin: slot.logs[log].begin,
                    durable: slot.logs[log].tail,
                    flushed: tails[log],
                    head: tails[log],
                    tail: tails[log],
                });
            }
            Stage::Unknown => unreachable!("a refreshed view is known"),
        }
        Ok(words)
    }

    /// Returns the view of the present state, which is the current one if nothing began or ended.
    pub(super) fn refresh(&self) -> Result<Arc<View>> {
        if let Some(view) = self.standing_view()? {
            return Ok(view);
        }
        // One thread looks at a time, so that an older result never replaces a newer one.
        let _looking = locked(&self.looking);
        if let Some(view) = self.standing_view()? {
            return Ok(view);
        }
        let before = Arc::clone(&*locked(&self.view));
        let found = self.look(&before);
        self.require_in_place()?;
        let Some(stage) = found? else {
            return Ok(before);
        };
        let view = Arc::new(View::new(stage));
        *locked(&self.view) = Arc::clone(&view);
        Ok(view)
    }

    /// Returns the current view, if it is of the staging that the directory names.
    pub(super) fn standing_view(&self) -> Result<Option<Arc<View>>> {
        let view = Arc::clone(&*locked(&self.view));
        let Stage::Staged(staging) = &view.stage else {
            return Ok(None);
        };
        if self.is_beside_writer {
            return Ok(Some(view));
        }
        let note = StagingNote::load(&*self.storage, &self.dir)?;
        Ok(note
            .is_some_and(|note| staging.is_named_by(&note))
            .then_some(view))
    }

    /// Explains the error of unreadable staging: a live writer's may be out of this reader's sight.
    fn explained(&self, error: Error) -> Result<Survey> {
        if matches!(error, Error::Staging { .. })
            && self.lock.is_held(&*self.storage)?
            && let Some(path) = self.foreign_staging()?
        {
            return Err(Error::Staging {
                path: self.dir.clone(),
                what: elsewhere(&path),
            });
        }
        Err(error)
    }

    /// Returns the path of the staging file, if this process sees another file system under it than the note names.
    fn foreign_staging(&self) -> Result<Option<PathBuf>> {
        let Some(note) = StagingNote::load(&*self.storage, &self.dir)? else {
            return Ok(None);
        };
        let path = self.dir.join(&note.path);
        let folder = path.parent().unwrap_or(&path);
        let is_here = [path.as_path(), folder].iter().any(|place| {
            let there = self.storage.file_id(place);
            there.is_ok_and(|there| there.device == note.device)
        });
        Ok((!is_here).then_some(path))
    }

    /// Returns the present state, or `None` if it equals `before`.
    fn look(&self, before: &View) -> Result<Option<Stage>> {
        let mut attempt = 1;
        loop {
            // Lists cost as much as everything else here, and are seldom needed; a link in a folder's place is reported in any case.
            self.segments.iter().try_for_each(SegmentDir::refuse_link)?;
            let survey = Survey::take(&*self.storage, &self.dir, &self.meta, || {
                Ok(is_empty(&list_all(&self.segments)?))
            });
            let survey = survey.or_else(|error| self.explained(error))?;
            let slot = survey.slot.clone().unwrap_or_default();
            match survey.ending {
                Ending::Staged(attachment) => return Ok(Some(Stage::Staged(attachment))),
                // A starting or stopping writer has just removed the named file: the next look finds its successor.
                Ending::Lost { missing: Some(_) } if attempt < ATTEMPTS => {
                    attempt += 1;
                    std::thread::yield_now();
                }
                Ending::Lost {
                    missing: Some(error),
                } if self.lock.is_held(&*self.storage)? => {
                    return Err(Error::Staging {
                        path: self.dir.clone(),
                        what: match self.foreign_staging()? {
                            Some(path) => elsewhere(&path),
                            None => format!(
                                "{error}; the daemon runs: stop it, which saves what it holds, and start it again"
                            ),
                        },
                    });
                }
                _ if before.is_ended_at(&slot) => return Ok(None),
                ending => {
                    let is_lost = matches!(ending, Ending::Lost { .. });
                    let end = self.read_end(survey.slot.as_ref(), is_lost);
                    // A writer that began meanwhile may have written over what this slot needs of the tail.
                    let newest = durable::read(&*self.storage, &self.dir, &self.meta)?;
                    if newest == survey.slot || attempt == ATTEMPTS {
                        return end.map(Some);
                    }
                    attempt += 1;
                }
            }
        }
    }

    /// Returns `Evicted` instead of an error about bytes that retention has removed meanwhile, in this epoch or a later one.
    fn explain(&self, log: LogKind, address: Address, error: Error) -> Error {
        match self.tails() {
            Ok(tails) if address < tails.begin[log] => Error::Evicted {
                dir: self.dir.clone(),
                address,
                begin: tails.begin[log],
            },
            _ => error,
        }
    }
}
