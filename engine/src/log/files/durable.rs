//! `durable`: two slots, written alternately, that record up to which address each log survives a crash of the host.
//!
//! A slot is written only after everything that it names is synced, and it is synced before anything relies on it. Of the two, the greater verifying sequence
//! wins, so a slot torn in mid-write keeps the one before it valid.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::meta::DirMeta;
use super::storage::{
    OpenMode, Storage, StorageFile, is_not_found, read_at, replace_file, write_at,
};
use crate::error::Result;
use crate::format::{LOSS_TABLE_BYTES, LossTable, PendingLoss, SLOT_LOG, checksum_for};
use crate::log::options::ADDRESS_LIMIT;
use crate::log::sync::{AtomicU64, Ordering};
use crate::types::{Address, PerLog};

pub const NAME: &str = "durable";
const MAGIC: u32 = 0x4C42_5244;
const SLOT_BYTES: usize = 4096;
const ENCODED_OFFSET: usize = 144 + LOSS_TABLE_BYTES;
const _: () = assert!(8 + ENCODED_OFFSET + 8 <= SLOT_BYTES);

/// The durable state of one log.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub struct DurableLog {
    pub tail: Address,
    pub begin: Address,
    /// Checksum of the bytes from the last multiple of the chunk size to the tail.
    pub checksum: u32,
    /// The address where records continue above a gap without entries: no bytes between the tail and here count. At most the tail if there is no gap.
    pub resume: Address,
    /// For the record log: synced units hold everything below; from here to the tail the bytes are in the file `tail`.
    pub encoded: Address,
}

impl DurableLog {
    /// Reports whether a gap above the tail has no entries yet.
    pub fn ends_in_gap(&self) -> bool {
        self.resume > self.tail
    }

    /// Returns the end of the unit in which the records end or continue: a slot names no unit above.
    pub fn encoded_most(&self, unit_bytes: u64) -> Address {
        self.tail.max(self.resume).align_up(unit_bytes)
    }

    /// Reports whether units end so near to the tail that the file `tail` can hold the rest.
    fn has_units(&self, unit_bytes: u64) -> bool {
        self.encoded.0.is_multiple_of(unit_bytes)
            && self.encoded <= self.encoded_most(unit_bytes)
            && self.tail.0.saturating_sub(self.encoded.0) <= unit_bytes
    }
}

/// The content of a slot.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DurableState {
    pub sequence: u64,
    pub epoch: u64,
    pub clean: bool,
    pub logs: PerLog<DurableLog>,
    /// The least length of the catalog; 0 if unknown.
    pub catalog_bytes: u64,
    /// Pending losses of a writer that ended. While a writer runs, staging holds them.
    pub losses: Vec<PendingLoss>,
}

impl DurableState {
    pub fn tails(&self) -> PerLog<Address> {
        self.logs.map(|log| log.tail)
    }

    pub fn begins(&self) -> PerLog<Address> {
        self.logs.map(|log| log.begin)
    }

    /// Checksum of the records in the last chunk; `None` if that chunk is full.
    pub fn part_checksum(&self, chunk_bytes: u32) -> Option<u32> {
        let records = &self.logs.records;
        let is_part = !records.tail.0.is_multiple_of(chunk_bytes.into());
        is_part.then_some(records.checksum)
    }

    fn encode(&self, uuid: &[u8; 16]) -> Vec<u8> {
        let mut body = Vec::with_capacity(SLOT_BYTES);
        body.extend_from_slice(&self.sequence.to_le_bytes());
        body.extend_from_slice(uuid);
        body.extend_from_slice(&self.epoch.to_le_bytes());
        body.extend_from_slice(&u32::from(self.clean).to_le_bytes());
        body.extend_from_slice(&[0; 4]);
        for log in self.logs {
            body.extend_from_slice(&log.tail.0.to_le_bytes());
            body.extend_from_slice(&log.begin.0.to_le_bytes());
            body.extend_from_slice(&log.checksum.to_le_bytes());
            body.extend_from_slice(&[0; 4]);
            body.extend_from_slice(&log.resume.0.to_le_bytes());
        }
        body.extend_from_slice(&self.catalog_bytes.to_le_bytes());
        let losses = LossTable {
            rows: self.losses.clone(),
            recorded_below: Address::ZERO,
        };
        body.extend_from_slice(&losses.encode(uuid, self.sequence));
        body.extend_from_slice(&self.logs.records.encoded.0.to_le_bytes());
        body.resize(SLOT_BYTES - 8, 0);
        let mut slot = Vec::with_capacity(SLOT_BYTES);
        slot.extend_from_slice(&MAGIC.to_le_bytes());
        slot.extend_from_slice(
            &checksum_for(uuid, SLOT_LOG, self.sequence % 2, &body).to_le_bytes(),
        );
        slot.extend_from_slice(&body);
        slot
    }

    /// Returns `None` for bytes that do not verify as this slot of this directory, and for addresses that no log has.
    fn decode(meta: &DirMeta, number: u64, slot: &[u8]) -> Option<DurableState> {
        let uuid = &meta.uuid;
        let (head, body) = slot.split_at_checked(8)?;
        let (magic, sum) = head.split_at_checked(4)?;
        let verifies = slot.len() == SLOT_BYTES
            && u32_of(magic)? == MAGIC
            && u32_of(sum)? == checksum_for(uuid, SLOT_LOG, number, body);
        if !verifies || body.get(8..24)? != uuid {
            return None;
        }
        let u64_at = |at: usize| Some(u64::from_le_bytes(*body.get(at..)?.first_chunk()?));
        let log_at = |at: usize| {
            Some(DurableLog {
                tail: Address(u64_at(at)?),
                begin: Address(u64_at(at + 8)?),
                checksum: u32_of(body.get(at + 16..at + 20)?)?,
                resume: Address(u64_at(at + 24)?),
                encoded: Address::ZERO,
            })
        };
        let mut logs = PerLog::from([log_at(40)?, log_at(72)?, log_at(104)?]);
        logs.records.encoded = Address(u64_at(ENCODED_OFFSET)?);
        let is_sound = |log: &DurableLog| {
            let all = [log.begin, log.tail, log.resume, log.encoded];
            log.begin <= log.tail
                && (all.iter()).all(|at| *at < ADDRESS_LIMIT && at.0.is_multiple_of(8))
        };
        if !logs.iter().all(is_sound) || !logs.records.has_units(meta.unit_bytes()) {
            return None;
        }
        Some(DurableState {
            sequence: u64_at(0)?,
            epoch: u64_at(24)?,
            clean: u32_of(body.get(32..36)?)? == 1,
            logs,
            catalog_bytes: u64_at(136)?,
            losses: LossTable::decode(uuid, u64_at(0)?, body.get(144..ENCODED_OFFSET)?)?.rows,
        })
    }
}

fn u32_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.first_chunk()?))
}

/// Returns the newest slot that verifies; `None` if there is none.
pub fn read(storage: &dyn Storage, dir: &Path, meta: &DirMeta) -> Result<Option<DurableState>> {
    let slots = look(storage, dir, meta)?;
    Ok(slots.newest)
}

/// The state of both slots.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slots {
    pub newest: Option<DurableState>,
    /// The number of slots that verify.
    pub sound: usize,
}

pub fn look(storage: &dyn Storage, dir: &Path, meta: &DirMeta) -> Result<Slots> {
    let file = match storage.open(&dir.join(NAME), OpenMode::Read) {
        Err(error) if is_not_found(&error) => return Ok(Slots::default()),
        file => file?,
    };
    let mut slots = Slots::default();
    for number in 0..2 {
        let mut slot = vec![0; SLOT_BYTES];
        let read = read_at(&*file, &mut slot, number * SLOT_BYTES as u64)?;
        slot.truncate(read);
        let state = DurableState::decode(meta, number, &slot);
        slots.sound += usize::from(state.is_some());
        slots.newest = (slots.newest.into_iter())
            .chain(state)
            .max_by_key(|state| state.sequence);
    }
    Ok(slots)
}

/// The end of a slot's epoch.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum End<'a> {
    /// The epoch has not ended: staging may hold later bytes.
    Open,
    /// The epoch has ended: the slot covers everything, with the pending losses.
    Clean(&'a [PendingLoss]),
}

/// The file, open for writing. One thread owns it.
#[derive(Debug)]
pub struct DurableFile {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    uuid: [u8; 16],
    /// `None` after the medium refused it.
    file: Option<Arc<dyn StorageFile>>,
    newest: Option<DurableState>,
    catalog_bytes: Arc<AtomicU64>,
}

impl DurableFile {
    /// Opens or creates the file. Slots continue after `newest`, which `read` found, and include the catalog's length.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        uuid: [u8; 16],
        newest: Option<DurableState>,
        catalog_bytes: Arc<AtomicU64>,
    ) -> Result<DurableFile> {
        let path = dir.join(NAME);
        let file = storage.open(&path, OpenMode::Create)?;
        file.allocate(2 * SLOT_BYTES as u64)?;
        file.sync()?;
        storage.sync_dir(dir)?;
        Ok(DurableFile {
            storage,
            path,
            uuid,
            file: Some(file),
            newest,
            catalog_bytes,
        })
    }

    /// Writes and syncs the next slot. The caller has synced everything that it names. If the medium refuses the file, it is written again once, with both
    /// slots; the old one is never synced again.
    pub fn write(&mut self, epoch: u64, end: End<'_>, logs: PerLog<DurableLog>) -> Result<()> {
        let (clean, losses) = match end {
            End::Open => (false, &[][..]),
            End::Clean(losses) => (true, losses),
        };
        let state = DurableState {
            sequence: self.newest.as_ref().map_or(0, |state| state.sequence) + 1,
            epoch,
            clean,
            logs,
            losses: losses.to_vec(),
            // The length was stored before any record that needs it was published, and so before the tails in this slot were loaded.
            catalog_bytes: self.catalog_bytes.load(Ordering::Acquire),
        };
        let written = match self.file.take() {
            Some(file) => self.write_slot(&file, &state).map(|()| file),
            None => self.replace(&state),
        };
        self.file = Some(match written {
            Ok(file) => file,
            Err(error) => {
                tracing::warn!("{error}; the file is written again");
                self.replace(&state)?
            }
        });
        self.newest = Some(state);
        Ok(())
    }

    fn write_slot(&self, file: &Arc<dyn StorageFile>, state: &DurableState) -> Result<()> {
        write_at(&**file, &state.encode(&self.uuid), offset(state))?;
        file.sync()
    }

    fn replace(&self, state: &DurableState) -> Result<Arc<dyn StorageFile>> {
        let mut content = vec![0; 2 * SLOT_BYTES];
        for state in self.newest.iter().chain([state]) {
            let slots = content.iter_mut().skip(offset(state) as usize);
            slots
                .zip(state.encode(&self.uuid))
                .for_each(|(place, byte)| *place = byte);
        }
        replace_file(&*self.storage, &self.path, &content)?;
        self.storage.open(&self.path, OpenMode::Write)
    }
}

/// Offset of a state's slot in the file.
fn offset(state: &DurableState) -> u64 {
    (state.sequence % 2) * SLOT_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::storage::OsStorage;

    const UNIT: u64 = 1 << 16;

    fn meta(uuid: u8) -> DirMeta {
        DirMeta {
            uuid: [uuid; 16],
            ..DirMeta::new((UNIT / 16) as u32, [UNIT; 3].into())
        }
    }

    fn logs(tail: u64) -> PerLog<DurableLog> {
        PerLog::from([1, 2, 3]).map(|log| DurableLog {
            tail: Address(8 * tail * log),
            begin: Address(8 * log),
            checksum: log as u32,
            resume: Address(8 * tail * log + 16),
            encoded: Address(if log == 1 { UNIT } else { 0 }),
        })
    }

    #[test]
    fn the_newest_slot_wins_and_a_torn_one_leaves_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let read = |uuid| read(&OsStorage::default(), dir.path(), &meta(uuid)).unwrap();
        assert_eq!(read(3), None);
        let catalog_bytes = Arc::new(AtomicU64::new(7));
        let open = |newest| {
            let catalog_bytes = Arc::clone(&catalog_bytes);
            let storage = Arc::new(OsStorage::default());
            DurableFile::open(storage, dir.path(), [3; 16], newest, catalog_bytes).unwrap()
        };
        let lost = PendingLoss {
            records: Some(12),
            ..PendingLoss::UNKNOWN
        };
        let mut file = open(None);
        assert_eq!(read(3), None);
        file.write(1, End::Open, logs(10)).unwrap();
        catalog_bytes.store(70, Ordering::Release);
        file.write(2, End::Clean(&[lost]), logs(20)).unwrap();
        let state = read(3).unwrap();
        assert_eq!(
            (state.sequence, state.epoch, state.clean, state.logs),
            (2, 2, true, logs(20))
        );
        assert_eq!((state.catalog_bytes, state.losses), (70, vec![lost]));

        let path = dir.path().join(NAME);
        let whole = std::fs::read(&path).unwrap();
        for at in (0..SLOT_BYTES).filter(|at| *at < 160 || at % 97 == 0) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            let state = read(3).unwrap();
            assert_eq!((state.sequence, state.logs), (1, logs(10)), "byte {at}");
            assert_eq!(state.catalog_bytes, 7);
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(read(4), None);

        let mut file = open(read(3));
        file.write(3, End::Open, logs(30)).unwrap();
        assert_eq!(read(3).unwrap().sequence, 3);
    }

    #[test]
    fn a_slot_names_no_unit_that_its_tail_cannot_follow() {
        let is_taken = |tail: u64, resume: u64, encoded: u64| {
            let mut state = DurableState::default();
            state.logs.records = DurableLog {
                tail: Address(tail),
                resume: Address(resume),
                encoded: Address(encoded),
                ..DurableLog::default()
            };
            let slot = state.encode(&[3; 16]);
            DurableState::decode(&meta(3), 0, &slot).is_some()
        };
        let tail = 5 * UNIT + 808;
        for encoded in [5 * UNIT, 6 * UNIT] {
            assert!(is_taken(tail, 0, encoded), "{encoded}");
        }
        // A gap follows the tail.
        assert!(is_taken(tail, 9 * UNIT, 9 * UNIT) && !is_taken(tail, 9 * UNIT, 10 * UNIT));
        assert!(is_taken(5 * UNIT, 0, 4 * UNIT) && is_taken(0, 0, 0));
        for encoded in [0, 4 * UNIT, 5 * UNIT + 4096, 7 * UNIT, 1 << 60] {
            assert!(!is_taken(tail, 0, encoded), "{encoded}");
        }
    }
}
