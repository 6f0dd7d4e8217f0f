//! Staging as everybody else has it: the note in the directory that names the file, and reads of it with `pread`.
//!
//! Readers attach while the writer lives, recovery after it died. Neither maps the file, so one that is cut short gives an error.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::control::{self, DaemonWord, HEADER_BYTES, Header, Pair, Word};
use super::options::ADDRESS_LIMIT;
use super::staging::StagingLayout;
use super::storage::{FileId, OpenMode, Storage, StorageFile, read_at, read_file, replace_file};
use crate::error::{Error, Result};
use crate::types::{Address, LogKind};

pub const NOTE_NAME: &str = "staging";

const NOTE_BYTES_MAX: u64 = 64 << 10;

/// How often a word is read again before the writer counts as stopped between the word and its complement.
const ATTEMPTS: u32 = 64;

/// The file `staging` of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StagingNote {
    /// The staging file; a relative path counts from the directory.
    pub path: PathBuf,
    pub device: u64,
    pub inode: u64,
    pub directory_device: u64,
    pub directory_inode: u64,
    pub uuid: Uuid,
    pub epoch: u64,
    pub boot_id: String,
}

impl StagingNote {
    /// `None` where no writer runs and the last one stopped cleanly.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<StagingNote>> {
        let path = dir.join(NOTE_NAME);
        let Some(content) = read_file(storage, &path, NOTE_BYTES_MAX)? else {
            return Ok(None);
        };
        serde_json::from_slice(&content)
            .map(Some)
            .map_err(|error| Error::Damaged {
                path,
                what: error.to_string(),
            })
    }

    pub fn write(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        let path = dir.join(NOTE_NAME);
        let text = serde_json::to_vec(self).map_err(|error| Error::io(&path, error.into()))?;
        replace_file(storage, &path, &text)
    }

    /// Whether it speaks of this directory, not of one that this is a copy of, and of this boot.
    pub fn is_of(&self, storage: &dyn Storage, dir: &Path, uuid: &[u8; 16]) -> Result<bool> {
        let directory = FileId {
            device: self.directory_device,
            inode: self.directory_inode,
        };
        Ok(self.uuid.as_bytes() == uuid
            && directory == storage.dir_id(dir)?
            && self.boot_id == storage.boot_id()?)
    }
}

/// An open staging file, to read.
#[derive(Debug)]
pub struct Attachment {
    file: Arc<dyn StorageFile>,
    id: FileId,
    epoch: u64,
    layout: StagingLayout,
}

impl Attachment {
    /// Opens what the note names; any other file in its place is an error.
    pub fn open(storage: &dyn Storage, dir: &Path, note: &StagingNote) -> Result<Attachment> {
        let path = dir.join(&note.path);
        let file = storage.open(&path, OpenMode::Read)?;
        let unfit = |what: String| Error::Staging {
            path: path.clone(),
            what,
        };
        let id = file.id()?;
        if id
            != (FileId {
                device: note.device,
                inode: note.inode,
            })
        {
            return Err(unfit("another file stands in its place".to_owned()));
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
                "it is shorter than its {} bytes",
                layout.total_bytes()
            )));
        }
        Ok(Attachment {
            file,
            id,
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

    /// Whether this is the file that the note names.
    pub fn is_named_by(&self, note: &StagingNote) -> bool {
        self.epoch == note.epoch
            && self.id
                == FileId {
                    device: note.device,
                    inode: note.inode,
                }
    }

    /// A word of a log. A head or begin that the writer was stopped in storing counts as stored, any other as not: what lies below the head or
    /// begin may be gone already, and what lies below the old tail is there in any case.
    pub fn word(&self, log: LogKind, word: Word) -> Result<Address> {
        let pair = self.pair(control::word_offset(log, word))?;
        let between = match word {
            Word::Head | Word::Begin => pair.greater(),
            Word::Tail | Word::Flushed | Word::Durable => pair.lesser(),
        };
        let value = Address(pair.agreed().unwrap_or(between));
        if value < ADDRESS_LIMIT {
            return Ok(value);
        }
        Err(Error::Staging {
            path: self.path().to_owned(),
            what: format!("its {word:?} of the {log} is damaged"),
        })
    }

    pub fn daemon_word(&self, word: DaemonWord) -> Result<u64> {
        let pair = self.pair(control::daemon_offset(word))?;
        Ok(pair.agreed().unwrap_or_else(|| pair.lesser()))
    }

    /// Copies bytes of a log as they stand in staging. Which of them are the log's own the caller learns from the words: the tail before the copy,
    /// the head after it.
    pub fn copy_out(&self, log: LogKind, address: Address, buffer: &mut [u8]) -> Result<()> {
        let mut address = address;
        let mut rest = buffer;
        while !rest.is_empty() {
            let run = usize::try_from(self.layout.run_bytes(log, address))
                .unwrap_or(usize::MAX)
                .min(rest.len());
            let (piece, later) = rest.split_at_mut(run);
            read_whole(&*self.file, piece, self.layout.offset(log, address))?;
            address += run as u64;
            rest = later;
        }
        Ok(())
    }

    /// Reads a pair until both halves agree, or stand still in disagreement.
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

/// A staging file ends where its header says, or somebody cut it.
fn read_whole(file: &dyn StorageFile, buffer: &mut [u8], offset: u64) -> Result<()> {
    let read = read_at(file, buffer, offset)?;
    if read == buffer.len() {
        return Ok(());
    }
    Err(Error::Staging {
        path: file.path().to_owned(),
        what: format!(
            "it ends at byte {}, short of byte {}",
            offset + read as u64,
            offset + buffer.len() as u64
        ),
    })
}
