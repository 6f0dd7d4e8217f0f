//! `tail`: the durable bytes of the record log that are not in a unit yet, at most one unit.
//!
//! It has two areas. One holds consecutive pieces of one unit; the pieces of the next unit go to the other. An area begins again only when the newest durable
//! slot does not need it: the units with its bytes are synced, and the slot says so.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::storage::{
    OpenMode, Storage, StorageFile, is_not_found, read_at, replace_file, write_at,
};
use crate::error::{Error, Result};
use crate::format::{TAIL_PIECE_HEADER_BYTES, TailPiece, UNIT_CHUNKS};
use crate::memory;
use crate::proven::{at, at_mut};
use crate::types::Address;

pub const NAME: &str = "tail";
const AREAS: u64 = 2;

/// Bytes of an area. If small pieces fill it, the other begins with larger ones of the same unit.
fn area_bytes(unit_bytes: u64) -> u64 {
    2 * unit_bytes
}

/// The bytes of one unit in the file.
#[derive(Debug, Default)]
pub struct TailImage {
    path: PathBuf,
    unit: Address,
    bytes: Vec<u8>,
    /// The present addresses, ascending.
    known: Vec<Range<Address>>,
    /// The area that holds most of the unit.
    area: Option<u64>,
}

impl TailImage {
    /// Loads the unit that begins at `unit`.
    pub fn load(
        storage: &dyn Storage,
        dir: &Path,
        uuid: &[u8; 16],
        unit_bytes: u64,
        unit: Address,
    ) -> Result<TailImage> {
        let mut image = TailImage {
            path: dir.join(NAME),
            unit,
            ..TailImage::default()
        };
        let file = match storage.open(&image.path, OpenMode::Read) {
            // Something else in its place holds no bytes.
            Err(error) if is_not_found(&error) || matches!(error, Error::Damaged { .. }) => {
                return Ok(image);
            }
            file => file?,
        };
        let mut most = unit;
        for area in 0..AREAS {
            let mut of_area = Vec::new();
            image.read_area(&*file, uuid, unit_bytes, area, &mut of_area)?;
            let end = end_of(&of_area, unit);
            if end > most {
                (most, image.area) = (end, Some(area));
            }
            image.known.append(&mut of_area);
        }
        image.known.sort_by_key(|range| range.start);
        Ok(image)
    }

    /// Reads the pieces of an area. It searches for the next piece behind one that does not verify.
    fn read_area(
        &mut self,
        file: &dyn StorageFile,
        uuid: &[u8; 16],
        unit_bytes: u64,
        area: u64,
        known: &mut Vec<Range<Address>>,
    ) -> Result<()> {
        let no_memory = |refused: memory::NoMemory| refused.of(file.path());
        let start = area * area_bytes(unit_bytes);
        let length = file.bytes()?.saturating_sub(start);
        let length = length.min(area_bytes(unit_bytes)) as usize;
        let mut held = memory::zeroed(length).map_err(no_memory)?;
        let read = read_at(file, &mut held, start)?;
        let held = at(&held, ..read);
        let mut offset = 0;
        while let Some(header) = held.get(offset..).and_then(<[u8]>::first_chunk) {
            let found = TailPiece::decode(header, unit_bytes).and_then(|found| {
                let end = offset + TAIL_PIECE_HEADER_BYTES + found.bytes;
                let piece = held.get(offset..end)?;
                found.verifies(uuid, piece).then_some((found, piece))
            });
            let Some((found, piece)) = found else {
                offset += 8;
                continue;
            };
            offset += piece.len();
            let within = found.address.0.wrapping_sub(self.unit.0);
            if within >= unit_bytes || found.bytes as u64 > unit_bytes - within {
                return Ok(());
            }
            let (within, end) = (within as usize, within as usize + found.bytes);
            if self.bytes.len() < end {
                memory::resize(&mut self.bytes, end).map_err(no_memory)?;
            }
            let bytes = at(piece, TAIL_PIECE_HEADER_BYTES..);
            at_mut(&mut self.bytes, within..end).copy_from_slice(bytes);
            known.push(found.address..found.address + found.bytes as u64);
        }
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Everything from the unit's begin to this address is present.
    pub fn end(&self) -> Address {
        end_of(&self.known, self.unit)
    }

    /// Returns the first present address at or above this one.
    pub fn known_from(&self, address: Address) -> Option<Address> {
        let known = self.known.iter().filter(|range| range.end > address);
        known.map(|range| range.start.max(address)).min()
    }

    pub fn read(&self, address: Address, buffer: &mut [u8]) -> Result<()> {
        if self.holds(address, buffer.len() as u64) {
            let within = (address.0 - self.unit.0) as usize;
            buffer.copy_from_slice(at(&self.bytes, within..within + buffer.len()));
            return Ok(());
        }
        Err(Error::Corrupt {
            path: self.path.clone(),
            address,
            what: format!("it does not hold the {} bytes from here on", buffer.len()),
        })
    }

    /// Copies the present bytes from an address on.
    pub fn copy_known(&self, address: Address, buffer: &mut [u8]) {
        let end = address + buffer.len() as u64;
        for range in &self.known {
            let (from, to) = (range.start.max(address), range.end.min(end));
            if from < to {
                let within = |from: Address, to: Address, first: Address| {
                    (from.0 - first.0) as usize..(to.0 - first.0) as usize
                };
                let known = at(&self.bytes, within(from, to, self.unit));
                at_mut(buffer, within(from, to, address)).copy_from_slice(known);
            }
        }
    }

    fn holds(&self, address: Address, bytes: u64) -> bool {
        address >= self.unit && end_of(&self.known, address).0 - address.0 >= bytes
    }
}

/// Returns the end up to which ascending ranges cover everything from an address.
fn end_of(known: &[Range<Address>], from: Address) -> Address {
    known
        .iter()
        .fold(from, |end, range| match range.start <= end {
            true => end.max(range.end),
            false => end,
        })
}

/// The file, open for writing. One thread owns it.
#[derive(Debug)]
pub struct TailFile {
    storage: Arc<dyn Storage>,
    path: PathBuf,
    uuid: [u8; 16],
    unit_bytes: u64,
    /// `None` before it exists, and while a refused one is replaced.
    file: Option<Arc<dyn StorageFile>>,
    /// The latest write.
    latest: Option<Latest>,
    /// The area that the newest durable slot needs.
    needed: Option<u64>,
}

#[derive(Copy, Clone, Debug)]
struct Latest {
    area: u64,
    unit: Address,
    /// The area holds the unit up to here.
    end: Address,
    /// Offset of the next piece in the area.
    offset: u64,
}

impl TailFile {
    /// `image` is the part that the newest slot needs.
    pub fn open(
        storage: Arc<dyn Storage>,
        dir: &Path,
        uuid: [u8; 16],
        unit_bytes: u64,
        image: &TailImage,
    ) -> Result<TailFile> {
        let path = dir.join(NAME);
        let file = match storage.open(&path, OpenMode::Write) {
            Err(error) if is_not_found(&error) => None,
            file => Some(file?),
        };
        // Its writer may have died before it was synced.
        let file = file.filter(|file| file.sync().is_ok());
        Ok(TailFile {
            storage,
            path,
            uuid,
            unit_bytes,
            file,
            latest: None,
            needed: image.area,
        })
    }

    /// Creates the file if it is missing and reserves its space, so that later writes need neither when the directory has moved or the disk is full.
    pub fn provide(&mut self) -> Result<()> {
        if self.file.is_none() {
            self.replace(&[])?;
        }
        let areas = AREAS * area_bytes(self.unit_bytes);
        self.file
            .as_ref()
            .map_or(Ok(()), |file| file.reserve(areas))
    }

    /// Gives back the unused space.
    pub fn give_back(&self) -> Result<()> {
        let file = self.file.as_ref();
        file.map_or(Ok(()), |file| file.truncate(file.bytes()?))
    }

    fn replace(&mut self, pieces: &[u8]) -> Result<()> {
        replace_file(&*self.storage, &self.path, pieces)?;
        self.file = Some(self.storage.open(&self.path, OpenMode::Write)?);
        Ok(())
    }

    /// Stores durably the bytes from `encoded`, a unit's begin, to `tail`, which lies in that unit or at its end. `copy` gives bytes from an address on. If the
    /// medium refuses the file, it is written again once; the old one is never synced again.
    pub fn hold(
        &mut self,
        encoded: Address,
        tail: Address,
        copy: impl Fn(Address, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        if tail <= encoded {
            return Ok(());
        }
        assert!(
            encoded.0.is_multiple_of(self.unit_bytes) && tail.0 - encoded.0 <= self.unit_bytes,
            "the tail holds a part of one unit, not {encoded} to {tail}"
        );
        let fresh = Latest {
            area: self.needed.map_or(0, |needed| AREAS - 1 - needed),
            unit: encoded,
            end: encoded,
            offset: 0,
        };
        let same = self.latest.filter(|latest| latest.unit == encoded);
        let mut next = same.unwrap_or(fresh);
        if next.end >= tail {
            return Ok(());
        }
        if let Some(file) = self.file.take() {
            let mut pieces = self.pieces(next.end, tail, &copy)?;
            if next.offset + pieces.len() as u64 > area_bytes(self.unit_bytes) {
                next = fresh;
                pieces = self.pieces(encoded, tail, &copy)?;
            }
            let place = next.area * area_bytes(self.unit_bytes) + next.offset;
            match write_at(&*file, &pieces, place).and_then(|()| file.sync()) {
                Ok(()) => {
                    self.file = Some(file);
                    next.offset += pieces.len() as u64;
                    next.end = tail;
                    self.latest = Some(next);
                    return Ok(());
                }
                Err(error) => tracing::warn!("{error}; the file is written again"),
            }
        }
        let pieces = self.pieces(encoded, tail, &copy)?;
        self.replace(&pieces)?;
        self.needed = Some(0);
        self.latest = Some(Latest {
            area: 0,
            end: tail,
            offset: pieces.len() as u64,
            ..fresh
        });
        Ok(())
    }

    /// Splits the bytes into a piece for each chunk, so that damage is confined to it.
    fn pieces(
        &self,
        from: Address,
        to: Address,
        copy: impl Fn(Address, &mut [u8]) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let chunk_bytes = self.unit_bytes / UNIT_CHUNKS;
        let mut bytes = vec![0; (to.0 - from.0) as usize];
        copy(from, &mut bytes)?;
        let (mut pieces, mut rest, mut at) = (Vec::new(), bytes.as_slice(), from);
        while at < to {
            let end = to.min(at.align_down(chunk_bytes) + chunk_bytes);
            let (piece, later) = rest.split_at((end.0 - at.0) as usize);
            TailPiece::put(&self.uuid, at, piece, &mut pieces);
            (rest, at) = (later, end);
        }
        Ok(pieces)
    }

    /// Notes that a durable slot names `tail`, and units up to `encoded`.
    pub fn named(&mut self, encoded: Address, tail: Address) {
        let latest = self.latest.filter(|latest| latest.unit == encoded);
        self.needed = match tail > encoded {
            true => latest.map(|latest| latest.area).or(self.needed),
            false => None,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::storage::OsStorage;

    const UUID: [u8; 16] = [3; 16];
    const UNIT: u64 = 1 << 16;

    fn bytes(address: Address, buffer: &mut [u8]) -> Result<()> {
        for (nth, byte) in buffer.iter_mut().enumerate() {
            *byte = (((address.0 + nth as u64) * 7) >> 3) as u8;
        }
        Ok(())
    }

    fn load(dir: &Path, unit: Address) -> TailImage {
        TailImage::load(&OsStorage::default(), dir, &UUID, UNIT, unit).unwrap()
    }

    fn open(dir: &Path, image: &TailImage) -> TailFile {
        let storage = Arc::new(OsStorage::default());
        TailFile::open(storage, dir, UUID, UNIT, image).unwrap()
    }

    fn holds(dir: &Path, unit: Address, end: Address) -> bool {
        let image = load(dir, unit);
        let mut found = vec![0; (end.0 - unit.0) as usize];
        let mut expected = found.clone();
        bytes(unit, &mut expected).unwrap();
        image.end() >= end && image.read(unit, &mut found).is_ok() && found == expected
    }

    #[test]
    fn the_area_that_the_newest_slot_needs_is_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let mut tail = open(dir.path(), &load(dir.path(), Address(0)));
        let unit = |nth: u64| Address(nth * UNIT);
        tail.hold(unit(0), unit(0) + 808, bytes).unwrap();
        tail.hold(unit(0), unit(0) + 816, bytes).unwrap();
        assert!(holds(dir.path(), unit(0), unit(0) + 816));
        tail.named(unit(0), unit(0) + 816);
        // The slots of these rounds are not written.
        for nth in [1, 2, 3] {
            tail.hold(unit(nth), unit(nth) + 80, bytes).unwrap();
            assert!(holds(dir.path(), unit(nth), unit(nth) + 80));
            assert!(holds(dir.path(), unit(0), unit(0) + 816), "{nth}");
        }
        tail.named(unit(3), unit(3) + 80);
        drop(tail);
        let mut tail = open(dir.path(), &load(dir.path(), unit(3)));
        tail.hold(unit(4), unit(5), bytes).unwrap();
        assert!(holds(dir.path(), unit(3), unit(3) + 80));
        assert!(holds(dir.path(), unit(4), unit(5)));
    }

    #[test]
    fn pieces_of_a_word_fill_an_area_and_go_on_in_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut tail = open(dir.path(), &load(dir.path(), Address(0)));
        for words in 1..=UNIT / 8 {
            tail.hold(Address(0), Address(8 * words), bytes).unwrap();
            tail.named(Address(0), Address(8 * words));
            if words % 512 == 0 {
                assert!(holds(dir.path(), Address(0), Address(8 * words)));
            }
        }
        let length = std::fs::metadata(dir.path().join(NAME)).unwrap().len();
        assert!(length <= 2 * area_bytes(UNIT), "{length}");
    }

    #[test]
    fn a_damaged_piece_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let mut tail = open(dir.path(), &load(dir.path(), Address(0)));
        for end in [100, 200, 300] {
            tail.hold(Address(0), Address(8 * end), bytes).unwrap();
        }
        let path = dir.path().join(NAME);
        let mut damaged = std::fs::read(&path).unwrap();
        damaged[24 + 800 + 24 + 7] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let image = load(dir.path(), Address(0));
        assert_eq!(image.end(), Address(800));
        image.read(Address(1600), &mut [0; 800]).unwrap();
        image.read(Address(1592), &mut [0; 16]).unwrap_err();
        image.read(Address(792), &mut [0; 8]).unwrap();
        image.read(Address(792), &mut [0; 16]).unwrap_err();
        assert_eq!(image.known_from(Address(792)), Some(Address(792)));
        assert_eq!(image.known_from(Address(800)), Some(Address(1600)));
        assert_eq!(image.known_from(Address(2400)), None);
        let (mut found, mut expected) = (vec![1; 1608], vec![0; 1608]);
        bytes(Address(792), &mut expected).unwrap();
        expected[8..808].fill(1);
        image.copy_known(Address(792), &mut found);
        assert_eq!(found, expected);
    }
}
