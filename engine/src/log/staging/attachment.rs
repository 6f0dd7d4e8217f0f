//! Reads the staging file from outside the writer, with `pread`.
//!
//! Readers attach while the writer lives, recovery after it died. Neither maps the file, so a truncated file gives an error and not a signal.

use std::path::Path;
use std::sync::Arc;

use super::control::{self, DaemonWord, HEADER_BYTES, Header, Pair, Word};
use super::mapped::StagingLayout;
use super::note::StagingNote;
use super::protocol::Protocol;
use crate::error::{Error, Result};
use crate::format::{LOSS_TABLE_BYTES, LossTable};
use crate::log::files::storage::{FileId, OpenMode, Storage, StorageFile, read_at};
use crate::log::options::ADDRESS_LIMIT;
use crate::log::sync::Memory;
use crate::types::{Address, LogKind};

/// A word is read again this often before the writer counts as stopped between the word and its complement.
const ATTEMPTS: u32 = 64;

/// A staging file that is open for reading.
#[derive(Debug)]
pub struct Attachment {
    file: Arc<dyn StorageFile>,
    id: FileId,
    uuid: [u8; 16],
    epoch: u64,
    layout: StagingLayout,
}

impl Attachment {
    /// Opens the file that the note names; any other file in its place is an error.
    pub fn open(storage: &dyn Storage, dir: &Path, note: &StagingNote) -> Result<Attachment> {
        let path = dir.join(&note.path);
        let file = storage.open(&path, OpenMode::Read)?;
        let unfit = |what: String| unusable(&path, &what);
        let id = file.id()?;
        if id
            != (FileId {
                device: note.device,
                inode: note.inode,
            })
        {
            return Err(unfit("another file is in its place".to_owned()));
        }
        let mut header = [0; HEADER_BYTES];
        read_whole(&*file, &mut header, 0)?;
        let header = Header::decode(&header).map_err(unfit)?;
        if header.uuid != *note.uuid.as_bytes() || header.epoch != note.epoch {
            return Err(unfit("it is of another directory or epoch".to_owned()));
        }
        let layout = StagingLayout::new(header.block_bytes)
            .ok_or_else(|| unfit("its block sizes are damaged".to_owned()))?;
        if file.bytes()? < layout.total_bytes() {
            return Err(unfit(format!(
                "it has {} bytes, its header says {}",
                file.bytes()?,
                layout.total_bytes()
            )));
        }
        Ok(Attachment {
            file,
            id,
            uuid: header.uuid,
            epoch: note.epoch,
            layout,
        })
    }

    pub fn path(&self) -> &Path {
        self.file.path()
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn layout(&self) -> StagingLayout {
        self.layout
    }

    pub fn is_named_by(&self, note: &StagingNote) -> bool {
        self.epoch == note.epoch
            && self.id
                == FileId {
                    device: note.device,
                    inode: note.inode,
                }
    }

    /// Returns a word of a log. If the writer stopped while it stored a head or begin, the new value counts, because the bytes below it may be gone; for any
    /// other word the old value counts, because its bytes certainly exist.
    pub fn word(&self, log: LogKind, word: Word) -> Result<Address> {
        let pair = self.pair(control::word_offset(log, word))?;
        let between = match word {
            Word::Head | Word::Begin => pair.greater(),
            Word::Tail | Word::Flushed | Word::Durable => pair.lesser(),
        };
        let value = Address(pair.agreed().unwrap_or(between));
        if value < ADDRESS_LIMIT && value.0.is_multiple_of(8) {
            return Ok(value);
        }
        Err(self.damaged(&format!("its mark {word:?} of the {log} is damaged")))
    }

    /// Reports content that no writer stored.
    pub fn damaged(&self, what: &str) -> Error {
        unusable(self.path(), what)
    }

    /// Returns the tail of a log, which lies at most two blocks above its head; a reader that believed a higher tail would read the same blocks forever. The
    /// head is loaded last, because it only moves up.
    pub fn tail(&self, log: LogKind) -> Result<Address> {
        let tail = self.word(log, Word::Tail)?;
        let head = self.word(log, Word::Head)?;
        if tail.0.saturating_sub(head.0) <= 2 * self.layout.block(log) {
            return Ok(tail);
        }
        Err(self.damaged(&format!(
            "its Tail of the {log}, {tail}, lies too far above its Head, {head}"
        )))
    }

    pub fn daemon_word(&self, word: DaemonWord) -> Result<u64> {
        let pair = self.pair(control::daemon_offset(word))?;
        Ok(pair.agreed().unwrap_or_else(|| pair.lesser()))
    }

    /// Returns the table of pending losses. A writer stores the next table beside it and overwrites it with the one after, so this looks again.
    pub fn losses(&self) -> Result<LossTable> {
        for _ in 0..ATTEMPTS {
            let number = self.daemon_word(DaemonWord::LossTable)?;
            let mut bytes = vec![0; LOSS_TABLE_BYTES];
            read_whole(&*self.file, &mut bytes, control::loss_table_offset(number))?;
            if let Some(table) = LossTable::decode(&self.uuid, number, &bytes) {
                return Ok(table);
            }
            Memory::fence_after_copy();
            if self.daemon_word(DaemonWord::LossTable)? == number {
                break;
            }
            std::thread::yield_now();
        }
        Err(Error::Staging {
            path: self.path().to_owned(),
            what: "its table of pending losses is damaged; the next start records a loss of unknown number in its place"
                .to_owned(),
        })
    }

    /// Copies bytes of a log from staging. The caller checks which of them belong to the log: the tail before the copy, the head after it.
    pub fn copy_out(&self, log: LogKind, address: Address, buffer: &mut [u8]) -> Result<()> {
        let mut address = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let in_block = self.layout.run_bytes(log, address);
            let run = in_block.min(rest.len() as u64) as usize;
            let (piece, later) = rest.split_at_mut(run);
            read_whole(&*self.file, piece, self.layout.offset(log, address))?;
            address += run as u64;
            rest = later;
        }
        Ok(())
    }

    /// Reads a pair until both halves agree, or differ without a change.
    fn pair(&self, offset: u64) -> Result<Pair> {
        let read = || {
            let mut bytes = [0; 16];
            read_whole(&*self.file, &mut bytes, offset)?;
            Ok::<Pair, Error>(Pair::decode(bytes))
        };
        let mut pair = read()?;
        let mut unchanged = 0;
        while pair.agreed().is_none() && unchanged < ATTEMPTS {
            let again = read()?;
            unchanged = if again == pair { unchanged + 1 } else { 0 };
            pair = again;
        }
        Ok(pair)
    }
}

/// A staging file that ends before the length in its header was truncated.
fn read_whole(file: &dyn StorageFile, buffer: &mut [u8], offset: u64) -> Result<()> {
    let read = read_at(file, buffer, offset)?;
    if read == buffer.len() {
        return Ok(());
    }
    let what = format!(
        "it ends at byte {} and should have byte {}",
        offset + read as u64,
        offset + buffer.len() as u64
    );
    Err(unusable(file.path(), &what))
}

/// Reports a file that cannot serve as staging. Records may be lost with it, so only the user may move it away.
fn unusable(path: &Path, what: &str) -> Error {
    Error::Staging {
        path: path.to_owned(),
        what: format!(
            "{what}; stop the daemon if one runs, and move the file away: records that only it held are then lost and listed as a gap"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use uuid::Uuid;

    use super::*;
    use crate::log::files::mirrored::Mirrored;
    use crate::log::storage::{OsStorage, write_at};

    /// Creates a staging file of 4 KiB blocks with all words 0, and the note that names it.
    fn staged(dir: &Path) -> (Arc<dyn StorageFile>, StagingNote) {
        let file = OsStorage::default()
            .open(&dir.join("file"), OpenMode::Create)
            .unwrap();
        file.allocate(9 * 4096).unwrap();
        let header = Header {
            uuid: [5; 16],
            epoch: 9,
            block_bytes: [4096; 3].into(),
        };
        write_at(&*file, &header.encode(), 0).unwrap();
        let (id, owner) = (
            file.id().unwrap(),
            OsStorage::default().file_id(dir).unwrap(),
        );
        let note = StagingNote {
            path: PathBuf::from("file"),
            device: id.device,
            inode: id.inode,
            directory_device: owner.device,
            directory_inode: owner.inode,
            uuid: Uuid::from_bytes([5; 16]),
            epoch: 9,
            boot_id: OsStorage::default().boot_id().unwrap(),
        };
        (file, note)
    }

    #[test]
    fn a_writer_stopped_between_a_word_and_its_complement_keeps_no_reader_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let (file, note) = staged(dir.path());
        let attachment = Attachment::open(&OsStorage::default(), dir.path(), &note).unwrap();
        let store = |word: Word, value: u64, complement: u64| {
            let at = control::word_offset(LogKind::Chunks, word);
            write_at(&*file, &value.to_le_bytes(), at).unwrap();
            write_at(&*file, &complement.to_le_bytes(), at + 8).unwrap();
            attachment.word(LogKind::Chunks, word).unwrap()
        };
        assert_eq!(store(Word::Tail, 800, !800), Address(800));
        assert_eq!(store(Word::Tail, 1600, !800), Address(800));
        assert_eq!(store(Word::Head, 8192, !4096), Address(8192));
        let at = control::word_offset(LogKind::Times, Word::Tail);
        write_at(&*file, &u64::MAX.to_le_bytes(), at).unwrap();
        assert!(attachment.word(LogKind::Times, Word::Tail).is_err());
    }

    #[test]
    fn a_note_is_of_one_directory_and_one_boot() {
        let dir = tempfile::tempdir().unwrap();
        let (_file, note) = staged(dir.path());
        note.store(&OsStorage::default(), dir.path()).unwrap();
        let note = StagingNote::load(&OsStorage::default(), dir.path())
            .unwrap()
            .unwrap();
        let is_ours = |note: &StagingNote| {
            note.is_of(&OsStorage::default(), dir.path(), &[5; 16])
                .unwrap()
        };
        assert!(is_ours(&note));
        let changes: [fn(&mut StagingNote); 3] = [
            |note| note.boot_id.push('x'),
            |note| note.directory_inode += 1,
            |note| note.uuid = Uuid::from_bytes([6; 16]),
        ];
        for change in changes {
            let mut other = note.clone();
            change(&mut other);
            assert!(!is_ours(&other), "{other:?}");
        }
    }

    #[test]
    fn another_file_in_its_place_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (file, note) = staged(dir.path());
        let refused = |note: &StagingNote, why: &str| {
            let error = Attachment::open(&OsStorage::default(), dir.path(), note).unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains(why) && error.contains("move the file away"),
                "{error}"
            );
        };
        let with = |change: fn(&mut StagingNote)| {
            let mut note = note.clone();
            change(&mut note);
            note
        };
        refused(&with(|note| note.inode += 1), "another file");
        refused(&with(|note| note.epoch += 1), "epoch");
        file.truncate(8 * 4096).unwrap();
        refused(&note, "its header says");
        write_at(&*file, &[0xFF; 8], 48).unwrap();
        refused(&note, "block sizes");
        write_at(&*file, &[0; 8], 0).unwrap();
        refused(&note, "not a staging file");
    }
}
