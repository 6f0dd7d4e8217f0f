//! The readers' end of the three logs, in any process: the writer's, another, or one that runs long after it.
//!
//! A reader maps nothing, writes nothing and takes no lock. Published bytes it copies from staging with `pread`, looks at the head
//! afterwards, and reads again from the segment what may have been reused meanwhile. Where no writer runs it reads what
//! recovery would keep.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::epoch_view::{Stage, View};
use super::records_end::RecordsEnd;
use super::survey::{
    Ending, GAP_CHUNKS_MAX, Survey, is_empty, keep, list_all, missing_chunks, resume_after,
    segment_dirs,
};
use crate::error::{Error, Result};
use crate::format::{FormatError, LossTable, Unit, verify_chunk, verify_part};
use crate::log::files::column_file::{HeldUnit, UnitWanted};
use crate::log::files::durable::{self, DurableLog, DurableState};
use crate::log::files::lock::LockWatch;
use crate::log::files::meta::DirMeta;
use crate::log::files::mirrored::Mirrored;
use crate::log::files::open_segment::OpenSegment;
use crate::log::files::os_storage::OsStorage;
use crate::log::files::segment::{SegmentDir, SegmentList, SegmentName};
use crate::log::files::storage::{FileId, OpenMode, Storage, StorageFile};
use crate::log::files::unit_cache::UnitCache;
use crate::log::options::ADDRESS_LIMIT;
use crate::log::staging::control::{DaemonWord, Word};
use crate::log::staging::note::StagingNote;
use crate::log::staging::protocol;
use crate::log::sync::{Memory, Mutex, locked};
use crate::log::write::record_files::ColumnSegments;
use crate::types::{Address, LogKind, PerLog, Timestamp};

/// How often a reader looks again when what it found is replaced under it: a writer begins.
const ATTEMPTS: u32 = 5;

/// Why staging that a live writer uses is not to be read here, and what helps.
fn elsewhere(path: &Path) -> String {
    let folder = path.parent().unwrap_or(path).display();
    format!(
        "the daemon runs, and its {} is not here: {folder} is another one for it, as in another container; set `[log] staging` to the Loom \
         directory and restart the daemon, or give both one {folder}: `docker run --ipc=host` or `--ipc=container:NAME`, or mount its folder here",
        path.display()
    )
}

/// Up to where, and from where, a reader may read.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Tails {
    pub tail: PerLog<Address>,
    pub begin: PerLog<Address>,
    /// Checksum of the records of the chunk in which they end, where staging is gone and the chunk is not full: it bears no seal.
    pub part_checksum: Option<u32>,
    /// Where a writer would go on, if it would leave a gap above the tail of the records: what stood there was lost with staging.
    pub gap_to: Option<Address>,
    /// Whether a writer lives.
    pub live: bool,
    /// Grows with each start of a writer.
    pub epoch: u64,
}

impl Tails {
    /// Verifies what was read from segments of the chunk at `address`: all that is published of it.
    pub fn verify_chunk(
        &self,
        meta: &DirMeta,
        address: Address,
        chunk: &[u8],
    ) -> std::result::Result<(), FormatError> {
        let is_whole = chunk.len() == meta.chunk_bytes as usize;
        match self.part_checksum {
            Some(stored) if !is_whole => verify_part(&meta.uuid, address, chunk, stored),
            // Nothing seals a part of a chunk while there is staging.
            None if !is_whole => Ok(()),
            _ => verify_chunk(&meta.uuid, address, chunk),
        }
    }
}

/// Where bytes came from. Chunks in segments are verified; those in staging are read without their checksums.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    /// At least a part came from staging.
    Staging,
    Segment,
}

/// What the daemon says of itself.
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
    segments: PerLog<SegmentDir>,
    pub(super) lock: LockWatch,
    view: Mutex<Arc<View>>,
    /// Held by the thread that looks for another view.
    looking: Mutex<()>,
    /// The writer lives in this process and outlives every question: staging, once attached, is not looked for again.
    pub(super) is_beside_writer: bool,
}

/// The logs of one writer, or the end that the last one came to.
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

/// The file that says what a directory is. While it is open, no other file has its id.
#[derive(Debug)]
struct Identity {
    id: FileId,
    _file: Arc<dyn StorageFile>,
}

impl Identity {
    /// `None` where the file's copy says it.
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

    /// For the process of the writer, which ends only after the last question: a look at what is published then opens no file.
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

    /// Fails where the directory is gone, or another one has taken its path since it was opened, be it a copy of it: the files there then look
    /// damaged, or like no records at all, or hold others at the same addresses.
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

    /// The file that holds an address, or would.
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

    /// The first address from `address` on for whose bytes there is a segment, or staging; `None` where there is none up to the end of all addresses.
    pub fn stored_from(&self, log: LogKind, address: Address) -> Result<Option<Address>> {
        let segment = self.segments[log].stored_from(address)?;
        let view = self.refresh()?;
        let staged = match &view.stage {
            Stage::Staged(staging) if address < staging.word(log, Word::Tail)? => {
                Some(staging.word(log, Word::Head)?)
            }
            Stage::Ended { records, .. }
                if log == LogKind::Records && address < records.tail.end() =>
            {
                Some(records.encoded)
            }
            _ => None,
        };
        Ok(segment
            .into_iter()
            .chain(staged)
            .min()
            .map(|from| from.max(address)))
    }

    /// Bytes read so far, of everything: logs, words and small files.
    pub fn bytes_read(&self) -> u64 {
        self.storage.bytes_read()
    }

    /// The segments of the record log now. It looks at each of their files.
    pub fn columns(&self) -> Result<ColumnSegments> {
        let folder = &self.segments.records;
        self.tails()?;
        let encoded = locked(&self.view).encoded();
        ColumnSegments::list(folder, &folder.list()?, encoded)
    }

    /// What the segments of all logs take on the disk now. It looks at each of their files.
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

    /// Attaches to what is there now and loads the tails: timestamp index, chunk index, records, so that every address found lies below
    /// a tail that is held.
    pub fn tails(&self) -> Result<Tails> {
        let view = self.refresh()?;
        match &view.stage {
            Stage::Staged(staging) => {
                // Begins first: retention may move them past tails that are loaded before.
                let begin = protocol::load_tails(|log| staging.word(log, Word::Begin))?;
                view.set_encoded(staging.word(LogKind::Records, Word::Flushed)?);
                Ok(Tails {
                    tail: protocol::load_tails(|log| staging.tail(log))?,
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

    /// What there is now, to look at again and again.
    pub fn attach(&self) -> Result<Attached> {
        Ok(Attached {
            view: self.refresh()?,
        })
    }

    /// Whether no writer began or ended since.
    pub fn is_attached(&self, attached: &Attached) -> Result<bool> {
        Ok(Arc::ptr_eq(&self.refresh()?, &attached.view))
    }

    /// Reads exactly the bytes asked for, which lie below a tail that `tails` gave.
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

    /// The unit of a chunk, of which `held` holds a part, and which of its chunks that is; `None` where no unit holds the chunk yet, and it is to be read with
    /// `read`.
    pub fn column_unit<'a>(
        &self,
        chunk: Address,
        wanted: UnitWanted<'_>,
        held: &'a mut HeldUnit,
    ) -> Result<Option<(&'a mut Unit, usize)>> {
        if let Some(nth) = held.find(chunk, self.meta.chunk_bytes, wanted) {
            return Ok(held.unit_mut().map(|unit| (unit, nth)));
        }
        let view = Arc::clone(&*locked(&self.view));
        if chunk + u64::from(self.meta.chunk_bytes) > view.encoded() {
            return Ok(None);
        }
        let found = match view.segment(&self.segments[LogKind::Records], chunk) {
            Ok((OpenSegment::Units(units), _)) => units.hold(chunk, wanted, held).map(Some),
            Ok((OpenSegment::Bytes(_), _)) => unreachable!("the record log is units"),
            Err(error) => Err(error),
        };
        found.map_err(|error| self.explain(LogKind::Records, chunk, error))
    }

    /// Whether an address was not known to be evicted from staging when it was last read around there.
    pub fn is_staged(&self, log: LogKind, address: Address) -> bool {
        let view = Arc::clone(&*locked(&self.view));
        matches!(view.stage, Stage::Staged(_)) && address >= view.head(log)
    }

    /// Has fetched what is wanted of a chunk's unit and not kept: first the head, which says where the rest stands.
    pub fn will_read_unit(&self, chunk: Address, wanted: UnitWanted<'_>, cache: &UnitCache) {
        let view = Arc::clone(&*locked(&self.view));
        if chunk + u64::from(self.meta.chunk_bytes) > view.encoded() {
            return;
        }
        // What cannot be opened is reported when it is read.
        let found = view.segment(&self.segments[LogKind::Records], chunk);
        if let Ok((OpenSegment::Units(units), _)) = found {
            units.will_read_unit(chunk, wanted, cache);
        }
    }

    /// Says that bytes of one chunk are read soon, so that they are fetched meanwhile. What is staged needs no fetching.
    pub fn will_read(&self, log: LogKind, address: Address, bytes: u64) {
        let view = Arc::clone(&*locked(&self.view));
        let end = Address(address.0.saturating_add(bytes));
        let staged = matches!(view.stage, Stage::Staged(_)) && end > view.head(log);
        let in_tail = log == LogKind::Records && end > view.encoded();
        if !staged && !in_tail {
            view.will_read(&self.segments[log], address, bytes);
        }
    }

    /// Forgets what segments there are, for a caller that found a checksum wrong: a newer generation may have come.
    pub fn relist(&self) {
        locked(&self.view).forget_lists();
    }

    /// The finished segments of the record log whose directory is damaged, and why: their units are found without it. It opens each of them.
    pub fn damaged_directories(&self) -> Result<Vec<(PathBuf, String)>> {
        self.tails()?;
        let encoded = locked(&self.view).encoded();
        self.segments.records.damaged_directories(encoded)
    }

    /// Whether staging holds what is published, of a writer that runs or was killed.
    pub fn has_staging(&self) -> Result<bool> {
        Ok(matches!(self.refresh()?.stage, Stage::Staged(_)))
    }

    /// Whether any log has a segment.
    pub fn has_segments(&self) -> Result<bool> {
        Ok(!is_empty(&list_all(&self.segments)?))
    }

    /// What was refused or dropped and is not recorded, with up to where the log must be read to find what was.
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

    /// What the daemon says of itself, or of the end that it came to.
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
                    // The lower ones first: all grow, so their order holds in what is shown.
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

    /// The view of what is there now: the one that stands, if nothing began or ended.
    pub(super) fn refresh(&self) -> Result<Arc<View>> {
        if let Some(view) = self.standing_view()? {
            return Ok(view);
        }
        // One thread looks at a time, so that what was seen earlier never replaces what was seen later.
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

    /// The view that stands, if it is of the staging that the directory names.
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

    /// The error of staging that cannot be read, or why it cannot: a live writer's may be out of this reader's sight.
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

    /// The path of the staging file, where what this process has under that path is on another file system than the file that the note names.
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

    /// What is there now, or `None` if it is what `before` says.
    fn look(&self, before: &View) -> Result<Option<Stage>> {
        let mut attempt = 1;
        loop {
            // Lists cost as much as all else here, and are seldom needed; that a link leads elsewhere is reported in any case.
            self.segments.iter().try_for_each(SegmentDir::refuse_link)?;
            let list = || list_all(&self.segments);
            let survey = Survey::take(&*self.storage, &self.dir, &self.meta, || {
                Ok(is_empty(&list()?))
            });
            let survey = survey.or_else(|error| self.explained(error))?;
            let slot = survey.slot.clone().unwrap_or_default();
            match survey.ending {
                Ending::Staged(attachment) => return Ok(Some(Stage::Staged(attachment))),
                // A writer that begins or stops removes the file that was named a moment before: the next look finds what it left.
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
                Ending::Clean => {
                    self.require_stored(&slot)?;
                    let records = &slot.logs.records;
                    let (storage, dir) = (&*self.storage, &self.dir);
                    let records = RecordsEnd::of_slot(storage, dir, &self.meta, records)?;
                    return Ok(Some(self.ended(slot, records, None)));
                }
                Ending::Lost { .. } => {
                    let list = list()?;
                    let (logs, records) = keep(
                        &*self.storage,
                        &self.dir,
                        &self.segments,
                        &list,
                        &self.meta,
                        survey.slot.as_ref(),
                    )?;
                    let slot = DurableState { logs, ..slot };
                    self.require_stored(&slot)?;
                    return Ok(Some(self.ended(slot, records, Some(&list))));
                }
            }
        }
    }

    /// Refuses an end further past what is stored than a crash leaves it: a question that looks at each chunk would not end.
    fn require_stored(&self, slot: &DurableState) -> Result<()> {
        let DurableLog { begin, tail, .. } = slot.logs.records;
        let chunks = tail.0.saturating_sub(begin.0) / u64::from(self.meta.chunk_bytes);
        if chunks <= GAP_CHUNKS_MAX {
            return Ok(());
        }
        let folder = &self.segments.records;
        let missing = missing_chunks(folder, &folder.list()?, &self.meta, begin, tail);
        if missing <= GAP_CHUNKS_MAX {
            return Ok(());
        }
        Err(Error::damaged(
            &self.dir.join(durable::NAME),
            format!(
                "it says that the records end at {tail}, {missing} chunks below are in no segment, and no crash leaves so many; restore the segments, or move the file away"
            ),
        ))
    }

    /// The end that the slot describes; where staging was lost, `lost` is what segments there are.
    fn ended(
        &self,
        slot: DurableState,
        records: RecordsEnd,
        lost: Option<&PerLog<SegmentList>>,
    ) -> Stage {
        let tails = slot.tails();
        let resume = resume_after(&slot.logs, &self.meta, lost);
        let chunk_bytes = u64::from(self.meta.chunk_bytes);
        let gap_to = Some(resume).filter(|resume| *resume > tails.records.align_up(chunk_bytes));
        Stage::Ended {
            slot,
            tails,
            records: Box::new(records),
            gap_to,
        }
    }

    /// Says `Evicted` of bytes that retention removed while they were wanted: in the epoch that is read, or in one that began since.
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
