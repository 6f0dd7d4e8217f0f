//! `unrecorded`: losses that are not in the log yet, in a file of the directory, where a kill of the daemon leaves them.
//!
//! Two slots are written alternately, each with a sequence number and a checksum, so that one torn by a kill leaves the other. The
//! file is allocated in full when it is made: a full disk does not keep losses from being counted. It is not synced. After a crash of the
//! host its content is of no use, for nobody knows how old it is; the gap in the log then says that the number is not known.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use loom_engine::format::checksum_for;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::Entry;

const NAME: &str = "unrecorded";
const SLOT_BYTES: usize = 64 << 10;
/// Checksum, length, sequence.
const HEADER_BYTES: usize = 16;
/// What the checksum covers in place of a log's number: none has this one.
const SLOT_LOG: u8 = 4;

pub(super) struct UnrecordedFile {
    file: File,
    path: PathBuf,
    uuid: [u8; 16],
    boot_id: String,
    sequence: u64,
}

#[derive(Serialize, Deserialize)]
struct Content<'a, L> {
    boot_id: std::borrow::Cow<'a, str>,
    entries: L,
}

impl UnrecordedFile {
    pub(super) fn path(dir: &Path) -> PathBuf {
        dir.join(NAME)
    }

    /// The directory's file, made where there is none, and what it holds of this boot of the machine.
    pub(super) fn open(dir: &Path, uuid: [u8; 16]) -> io::Result<(UnrecordedFile, Vec<Entry>)> {
        let path = Self::path(dir);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
            .open(&path)?;
        if !file.metadata()?.is_file() {
            let what = "not a regular file; move it away";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 * SLOT_BYTES as u64) {
            // A file system that cannot allocate ahead takes the bytes as they come.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(error) => return Err(error.into()),
        }
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let mut opened = UnrecordedFile {
            file,
            path,
            uuid,
            boot_id: boot_id.trim().to_owned(),
            sequence: 0,
        };
        let slots = [opened.read(0), opened.read(1)];
        let newest = slots
            .into_iter()
            .flatten()
            .max_by_key(|(sequence, _)| *sequence);
        let mut entries = Vec::new();
        if let Some((sequence, json)) = newest {
            opened.sequence = sequence;
            if let Ok(content) = serde_json::from_slice::<Content<'_, Vec<Entry>>>(&json)
                && content.boot_id == opened.boot_id.as_str()
            {
                entries = content.entries;
            }
        }
        Ok((opened, entries))
    }

    /// Replaces what the file says. Reasons are left out where they do not fit.
    pub(super) fn write(&mut self, entries: &[Entry]) -> io::Result<()> {
        let mut json = self.encode(entries)?;
        if json.len() > SLOT_BYTES - HEADER_BYTES {
            let bare: Vec<Entry> = entries.iter().map(Entry::without_detail).collect();
            json = self.encode(&bare)?;
        }
        if json.len() > SLOT_BYTES - HEADER_BYTES {
            let what = format!("{} causes of loss at a time are too many", entries.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        let sequence = self.sequence + 1;
        let mut slot = Vec::with_capacity(HEADER_BYTES + json.len());
        let sum = checksum_for(&self.uuid, SLOT_LOG, sequence, &json);
        slot.extend_from_slice(&sum.to_le_bytes());
        slot.extend_from_slice(&(json.len() as u32).to_le_bytes());
        slot.extend_from_slice(&sequence.to_le_bytes());
        slot.extend_from_slice(&json);
        self.file.write_all_at(&slot, Self::offset(sequence % 2))?;
        self.sequence = sequence;
        Ok(())
    }

    /// Removes the file; that it stays does no harm.
    pub(super) fn remove(self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("{} could not be removed: {error}", self.path.display());
        }
    }

    fn encode(&self, entries: &[Entry]) -> io::Result<Vec<u8>> {
        let content = Content {
            boot_id: self.boot_id.as_str().into(),
            entries,
        };
        Ok(serde_json::to_vec(&content)?)
    }

    fn offset(slot: u64) -> u64 {
        slot * SLOT_BYTES as u64
    }

    /// The sequence and the content of a slot that verifies.
    fn read(&self, slot: u64) -> Option<(u64, Vec<u8>)> {
        let mut bytes = vec![0; SLOT_BYTES];
        self.file
            .read_exact_at(&mut bytes, Self::offset(slot))
            .ok()?;
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (sum, header) = header.split_first_chunk::<4>()?;
        let (length, sequence) = header.split_first_chunk::<4>()?;
        let sequence = u64::from_le_bytes(*sequence.first_chunk()?);
        let json = rest.get(..u32::from_le_bytes(*length) as usize)?;
        let verifies = checksum_for(&self.uuid, SLOT_LOG, sequence, json)
            == u32::from_le_bytes(*sum)
            && sequence % 2 == slot;
        verifies.then(|| (sequence, json.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_slot_counts_and_a_torn_one_leaves_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let entry = |records| Entry::for_test(records, "why");
        let open = || UnrecordedFile::open(dir.path(), [7; 16]).unwrap();
        let (mut file, found) = open();
        assert_eq!(found, []);
        file.write(&[entry(1)]).unwrap();
        file.write(&[entry(1), entry(2)]).unwrap();
        assert_eq!(open().1, [entry(1), entry(2)]);
        // The second write went to slot 0.
        let path = UnrecordedFile::path(dir.path());
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 5, 9, 20, 60] {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(open().1, [entry(1)], "byte {at}");
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(UnrecordedFile::open(dir.path(), [8; 16]).unwrap().1, []);
        let (mut file, _) = open();
        file.boot_id = "another boot".to_owned();
        file.write(&[entry(3)]).unwrap();
        assert_eq!(open().1, []);
    }

    #[test]
    fn reasons_give_way_where_there_are_many() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = UnrecordedFile::open(dir.path(), [7; 16]).unwrap();
        let many: Vec<Entry> = (0..300)
            .map(|records| Entry::for_test(records, &"y".repeat(160)))
            .collect();
        file.write(&many).unwrap();
        let (mut file, found) = UnrecordedFile::open(dir.path(), [7; 16]).unwrap();
        assert_eq!(found.len(), 300);
        let too_many: Vec<Entry> = many.iter().cycle().take(3000).cloned().collect();
        assert!(file.write(&too_many).is_err());
        drop(file);
        assert_eq!(
            UnrecordedFile::open(dir.path(), [7; 16]).unwrap().1.len(),
            300
        );
    }

    #[test]
    fn a_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, b"precious").unwrap();
        std::os::unix::fs::symlink(&victim, UnrecordedFile::path(dir.path())).unwrap();
        assert!(UnrecordedFile::open(dir.path(), [7; 16]).is_err());
        assert_eq!(std::fs::read(&victim).unwrap(), b"precious");
    }
}
