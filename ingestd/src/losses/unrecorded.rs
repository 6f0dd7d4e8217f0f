//! `unrecorded`: losses that are not in the log yet, in a file of the directory, where a kill of the daemon leaves them.
//!
//! The file is allocated in full when it is made: a full disk does not keep losses from being counted. It gets its name with a slot that verifies
//! in it, so one in which none does was damaged. It is not synced. After a crash of
//! the host its content is of no use, for nobody knows how old it is; the gap in the log then says that the number is not known. What its
//! bytes say is the engine's `unrecorded`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, Gid, Mode, OFlags};
use rustix::io::Errno;

use loom_engine::unrecorded::{Entry, FILE_BYTES, FILE_NAME, Kept, SLOT_BYTES, Slots};

/// The file before it has its name.
const NEW_NAME: &str = "unrecorded.new";

pub(super) struct UnrecordedFile {
    file: File,
    path: PathBuf,
    slots: Slots,
    sequence: u64,
}

impl UnrecordedFile {
    pub(super) fn path(dir: &Path) -> PathBuf {
        dir.join(FILE_NAME)
    }

    /// The directory's file, made where there is none, and what it holds of this boot of the machine.
    pub(super) fn open(dir: &Path, uuid: [u8; 16]) -> io::Result<(UnrecordedFile, Kept)> {
        let path = Self::path(dir);
        let slots = Slots::of_this_boot(uuid).map_err(io::Error::other)?;
        let file = match opened(&path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => made(dir, &slots)?,
            file => file?,
        };
        if !file.metadata()?.is_file() {
            let what = "not a regular file; move it away";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        allocate(&file)?;
        let mut bytes = vec![0; FILE_BYTES];
        for (slot, number) in bytes.chunks_exact_mut(SLOT_BYTES).zip(0..) {
            // What is not there or cannot be read does not verify.
            let _ = file.read_exact_at(slot, Slots::offset(number));
        }
        let kept = slots.decode(&bytes);
        let opened = UnrecordedFile {
            file,
            path,
            slots,
            sequence: kept.sequence,
        };
        // A writer that knows of no marks left none. Where there is no room for one, torn slots count as damaged ones.
        let _ = opened.mark();
        Ok((opened, kept))
    }

    /// Replaces what the file says.
    pub(super) fn write(&mut self, entries: &[Entry]) -> io::Result<()> {
        let next = self.sequence.checked_add(1);
        let sequence =
            next.ok_or_else(|| io::Error::other("no slot can follow; remove the file"))?;
        let slot = self.slots.encode(sequence, entries)?;
        self.file.write_all_at(&slot, Slots::offset(sequence))?;
        self.sequence = sequence;
        self.mark()
    }

    /// After the slot: one that a kill tore has none.
    fn mark(&self) -> io::Result<()> {
        let (mark, at) = self.slots.mark(self.sequence);
        self.file.write_all_at(&mark, at)
    }

    /// Removes the file; that it stays does no harm.
    pub(super) fn remove(self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("{} could not be removed: {error}", self.path.display());
        }
    }
}

fn opened(path: &Path, new: bool) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(new)
        .mode(0o600)
        .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
        .open(path)
}

fn allocate(file: &File) -> io::Result<()> {
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, FILE_BYTES as u64) {
        // A file system that cannot allocate ahead takes the bytes as they come.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(FILE_BYTES as u64),
        allocated => Ok(allocated?),
    }
}

/// A new file that holds no entry, for those to read who may read the directory's other files.
fn made(dir: &Path, slots: &Slots) -> io::Result<File> {
    let path = dir.join(NEW_NAME);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = opened(&path, true)?;
    allocate(&file)?;
    file.write_all_at(&slots.encode(1, &[])?, Slots::offset(1))?;
    let (mark, at) = slots.mark(0);
    file.write_all_at(&mark, at)?;
    if let Ok(other) = std::fs::metadata(dir.join("loom.json"))
        && other.mode() & 0o040 != 0
        // Who may not give it to the group keeps it closed: the group's readers are told that they cannot know.
        && rustix::fs::fchown(&file, None, Some(Gid::from_raw(other.gid()))).is_ok()
    {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o640))?;
    }
    std::fs::rename(&path, UnrecordedFile::path(dir))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use loom_engine::schema::LossReason;
    use loom_engine::unrecorded::Condition;
    use loom_engine::{SourceId, Timestamp};

    use super::*;

    fn entry(records: u64, detail: &str) -> Entry {
        Entry {
            source: Some(SourceId(1)),
            reason: LossReason::Overload as u8,
            from: Timestamp(1),
            to: Timestamp(2),
            records: Some(records),
            bytes: Some(8 * records),
            detail: detail.to_owned(),
            recorded_at: None,
        }
    }

    #[test]
    fn the_newest_slot_counts_and_a_torn_one_leaves_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let entry = |records| entry(records, "why");
        let open = || UnrecordedFile::open(dir.path(), [7; 16]).unwrap();
        let (mut file, kept) = open();
        assert_eq!(kept.entries, []);
        file.write(&[entry(1)]).unwrap();
        file.write(&[entry(1), entry(2)]).unwrap();
        let both = [entry(1), entry(2)];
        assert_eq!(open().1.entries, both);
        // The last write went to slot 1, the first to slot 0.
        let path = UnrecordedFile::path(dir.path());
        let whole = std::fs::read(&path).unwrap();
        for at in [0, 5, 9, 20, 60] {
            let mut torn = whole.clone();
            torn[SLOT_BYTES + at] ^= 1;
            std::fs::write(&path, &torn).unwrap();
            let kept = open().1;
            assert_eq!(kept.entries, [entry(1)], "byte {at}");
            assert_eq!(kept.condition, Condition::Half);
            // The older slot, or the next that a kill tore.
            torn.clone_from(&whole);
            torn[at] ^= 1;
            std::fs::write(&path, &torn).unwrap();
            let kept = open().1;
            assert_eq!(kept.entries, both, "byte {at}");
            assert_eq!(kept.condition, Condition::Sound);
        }
        std::fs::write(&path, &whole).unwrap();
        assert_eq!(
            UnrecordedFile::open(dir.path(), [8; 16]).unwrap().1.entries,
            []
        );
        std::fs::write(&path, &whole).unwrap();
        let (mut file, kept) = open();
        assert_eq!(kept.condition, Condition::Sound);
        file.slots.boot_id = "another boot".to_owned();
        file.write(&[entry(3)]).unwrap();
        assert_eq!(open().1.entries, []);
    }

    #[test]
    fn a_file_without_marks_is_read_and_gets_them() {
        const MARK_BYTES: usize = loom_engine::unrecorded::MARK_BYTES;
        let dir = tempfile::tempdir().unwrap();
        let open = || UnrecordedFile::open(dir.path(), [7; 16]).unwrap();
        let path = UnrecordedFile::path(dir.path());
        let without_marks = || {
            let mut bytes = std::fs::read(&path).unwrap();
            for slot in bytes.chunks_mut(SLOT_BYTES) {
                slot[SLOT_BYTES - MARK_BYTES..].fill(0);
            }
            bytes
        };
        drop(open());
        std::fs::write(&path, without_marks()).unwrap();
        let (mut file, kept) = open();
        assert_eq!(kept.condition, Condition::Sound);
        for records in 1..3 {
            file.write(&[entry(records, "")]).unwrap();
            let mut bytes = without_marks();
            std::fs::write(&path, &bytes).unwrap();
            let kept = loom_engine::unrecorded::read(dir.path(), [7; 16]).unwrap();
            assert_eq!(kept.entries, [entry(records, "")]);
            assert_eq!(kept.condition, Condition::Sound);
            // Nothing tells which was the newer.
            bytes[Slots::offset(records) as usize + 20] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            let kept = loom_engine::unrecorded::read(dir.path(), [7; 16]).unwrap();
            assert_eq!(kept.condition, Condition::Half);
            bytes[Slots::offset(records) as usize + 20] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
        }
        let (mut file, _) = open();
        file.write(&[entry(3, "")]).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[20] ^= 1;
        bytes[SLOT_BYTES + 20] ^= 1;
        let sound = |torn: usize| {
            let mut bytes = bytes.clone();
            bytes[torn + 20] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            open().1.condition == Condition::Sound
        };
        assert!(sound(0) && !sound(SLOT_BYTES));
    }

    #[test]
    fn reasons_give_way_where_there_are_many() {
        let dir = tempfile::tempdir().unwrap();
        let (mut file, _) = UnrecordedFile::open(dir.path(), [7; 16]).unwrap();
        let many: Vec<Entry> = (0..300)
            .map(|records| entry(records, &"y".repeat(160)))
            .collect();
        file.write(&many).unwrap();
        let (mut file, kept) = UnrecordedFile::open(dir.path(), [7; 16]).unwrap();
        assert_eq!(kept.entries.len(), 300);
        let too_many: Vec<Entry> = many.iter().cycle().take(3000).cloned().collect();
        assert!(file.write(&too_many).is_err());
        drop(file);
        let (_, kept) = UnrecordedFile::open(dir.path(), [7; 16]).unwrap();
        assert_eq!(kept.entries.len(), 300);
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
