//! A directory of a few KiB with known rows, and every way to damage one byte or one length of it.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use loom_engine::ingest::Writer;
use loom_engine::schema::parse_sources;
use loom_engine::testkit::options;
use tempfile::TempDir;

use crate::seed::Seed;

pub const CHUNK_BYTES: u64 = 4 << 10;
pub const SEGMENT_BYTES: u64 = 64 << 10;
/// A segment of two units.
const SEGMENT_BYTES_IN_COLUMNS: u64 = 2 * UNIT_BYTES;
/// The bytes of the record log that a unit holds.
const UNIT_BYTES: u64 = 16 * CHUNK_BYTES;
/// The file with the chunks that are not in a unit yet, in two areas.
pub const TAIL: &str = "tail";
const TAIL_AREA_BYTES: usize = 2 * UNIT_BYTES as usize;
/// The bytes before the content of a piece of the tail.
const PIECE_HEADER_BYTES: usize = 24;
/// A sync after this many records waits for the encoder, so that no unit is written raw.
const RECORDS_TO_SYNC: u64 = 1000;

/// The source `r` holds the number of each record and a mark that follows from it; the source `t` holds texts between them.
const SOURCES: &str = "
[[source]]
name = 'r'
[[source.field]]
name = 'n'
type = 'u64'
[[source.field]]
name = 'mark'
type = 'u64'
[[source.index]]
name = 'n'
value = 'n'

[[source]]
name = 't'
[[source.field]]
name = 'text'
type = 'utf8'
";

/// The mark of row `n`.
pub fn mark_of(n: u64) -> u64 {
    (n ^ 0x5bd1_e995).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// A closed directory, and the rows of `r` by address.
pub struct Small {
    _place: TempDir,
    pub dir: PathBuf,
    pub rows: BTreeMap<u64, u64>,
    segment_bytes: u64,
    /// The content of each file by its path in the directory, in order.
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Small {
    /// A directory with `records` records of `r`. A chunk holds some 150.
    pub fn new(records: u64) -> Result<Small> {
        Small::of(records, SEGMENT_BYTES)
    }

    /// As `new`, with two units in each full segment.
    pub fn in_columns(records: u64) -> Result<Small> {
        Small::of(records, SEGMENT_BYTES_IN_COLUMNS)
    }

    fn of(records: u64, segment_bytes: u64) -> Result<Small> {
        let place = tempfile::tempdir()?;
        let dir = place.path().join("small");
        let mut writer = Writer::open(&dir, options(64 << 10, segment_bytes))?;
        let mut ids = Vec::new();
        for source in parse_sources(SOURCES)? {
            ids.push(writer.define_source(&source)?);
        }
        let &[r, t] = ids.as_slice() else {
            anyhow::bail!("two sources, not {}", ids.len());
        };
        let mut rows = BTreeMap::new();
        for n in 0..records {
            if n % RECORDS_TO_SYNC == 0 {
                writer.sync_durable()?;
            }
            let payload = [n.to_le_bytes(), mark_of(n).to_le_bytes()].concat();
            rows.insert(writer.push(r, &payload)?.0, n);
            if n % 9 == 0 {
                let text = format!("between {n}");
                let payload = [&(text.len() as u16).to_le_bytes()[..], text.as_bytes()].concat();
                writer.push(t, &payload)?;
            }
        }
        writer.close()?;
        let mut files = Vec::new();
        collect(&dir, Path::new(""), &mut files)?;
        Ok(Small {
            _place: place,
            dir,
            rows,
            segment_bytes,
            files,
        })
    }

    /// The chunks of the record log that hold a row of `r`, and their rows in order.
    pub fn chunks(&self) -> BTreeMap<u64, Vec<u64>> {
        let mut chunks: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (address, n) in &self.rows {
            chunks.entry(address / CHUNK_BYTES).or_default().push(*n);
        }
        chunks
    }

    /// Bytes of all files together.
    pub fn bytes(&self) -> usize {
        self.files.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// A flip of a bit in every byte, and a cut of each file to every length.
    pub fn damages(&self, seed: &mut Seed) -> Vec<Damage> {
        let mut damages = Vec::new();
        for (file, bytes) in &self.files {
            for at in 0..bytes.len() {
                let file = file.clone();
                let mask = 1 << (seed.draw() % 8);
                damages.push(Damage::Flip {
                    file: file.clone(),
                    at,
                    mask,
                });
                damages.push(Damage::Cut { file, bytes: at });
            }
        }
        damages
    }

    /// Damages the directory, calls `look`, and repairs the directory.
    pub fn damaged<T>(&self, damage: &Damage, look: impl FnOnce() -> Result<T>) -> Result<T> {
        let (_, sound) = self
            .files
            .iter()
            .find(|(file, _)| file == damage.file())
            .context("no such file")?;
        let path = self.dir.join(damage.file());
        let mut bytes = sound.clone();
        match *damage {
            Damage::Flip { at, mask, .. } => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= mask;
                }
            }
            Damage::Cut { bytes: kept, .. } => bytes.truncate(kept),
        }
        fs::write(&path, &bytes)?;
        let seen = look().with_context(|| format!("{damage:?}"));
        fs::write(&path, sound)?;
        seen
    }
}

/// A damage of one file.
#[derive(Clone, Debug)]
pub enum Damage {
    Flip {
        file: PathBuf,
        at: usize,
        mask: u8,
    },
    /// Only the first bytes are left.
    Cut {
        file: PathBuf,
        bytes: usize,
    },
}

impl Damage {
    pub fn file(&self) -> &Path {
        match self {
            Damage::Flip { file, .. } | Damage::Cut { file, .. } => file,
        }
    }

    /// The damage in the form that a program in another language reads.
    pub fn json(&self, small: &Small) -> serde_json::Value {
        let hit: Vec<u64> = (small.chunks().into_keys())
            .filter(|chunk| small.harm(self, *chunk) != Harm::None)
            .collect();
        match self {
            Damage::Flip { file, at, mask } => {
                serde_json::json!({ "file": file, "at": at, "mask": mask, "hit": hit })
            }
            Damage::Cut { file, bytes } => {
                serde_json::json!({ "file": file, "bytes": bytes, "hit": hit })
            }
        }
    }

    /// The bytes of the file that are wrong or missing.
    fn place(&self) -> Range<u64> {
        match *self {
            Damage::Flip { at, .. } => at as u64..at as u64 + 1,
            Damage::Cut { bytes, .. } => bytes as u64..u64::MAX,
        }
    }
}

/// The effect of a damage on a chunk of the record log.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Harm {
    None,
    /// Its unit is damaged, perhaps only in other chunks.
    Perhaps,
    /// It cannot be read.
    Sure,
}

impl Small {
    /// The effect of a damage on a chunk.
    pub fn harm(&self, damage: &Damage, chunk: u64) -> Harm {
        let address = chunk * CHUNK_BYTES;
        let file = damage.file();
        if file == Path::new(TAIL) {
            return self.harm_to_tail(damage, address);
        }
        let first = file.strip_prefix("records").ok().and_then(first_of);
        let Some(offset) = first.and_then(|first| address.checked_sub(first)) else {
            return Harm::None;
        };
        if offset >= self.segment_bytes {
            return Harm::None;
        }
        let (place, unit) = (damage.place(), self.unit(file, offset / UNIT_BYTES));
        let hit = place.start < unit.end && unit.start < place.end;
        match damage {
            _ if !hit => Harm::None,
            Damage::Flip { .. } => Harm::Perhaps,
            Damage::Cut { .. } => Harm::Sure,
        }
    }

    /// A chunk of the last unit needs all of its pieces. Pieces of earlier units are not read.
    fn harm_to_tail(&self, damage: &Damage, address: u64) -> Harm {
        let (pieces, place) = (self.tail_pieces(), damage.place());
        let last = pieces.iter().map(|(address, _)| address / UNIT_BYTES).max();
        if last != Some(address / UNIT_BYTES) {
            return Harm::None;
        }
        let is_hit = pieces.iter().any(|(of, held)| {
            of / CHUNK_BYTES == address / CHUNK_BYTES
                && place.start < held.end
                && held.start < place.end
        });
        match is_hit {
            true => Harm::Sure,
            false => Harm::None,
        }
    }

    /// The address of each piece of the tail, and its place in the file. A piece holds bytes of one chunk.
    fn tail_pieces(&self) -> Vec<(u64, Range<u64>)> {
        let bytes = self.content(Path::new(TAIL));
        let mut pieces = Vec::new();
        for (area, base) in bytes
            .chunks(TAIL_AREA_BYTES)
            .zip((0..).step_by(TAIL_AREA_BYTES))
        {
            let number = |at: usize| {
                let found = area.get(at..).and_then(|rest| rest.first_chunk());
                found.map_or(0, |number| u64::from_le_bytes(*number))
            };
            let mut start = 0;
            while area
                .get(start..)
                .is_some_and(|rest| rest.starts_with(b"TAIL"))
            {
                let end = start + PIECE_HEADER_BYTES + number(start + 8) as usize;
                pieces.push((number(start + 16), base + start as u64..base + end as u64));
                start = end;
            }
        }
        pieces
    }

    /// Whether the directory at the end of a finished segment is damaged.
    pub fn reaches_directory(&self, damage: &Damage) -> bool {
        let last = self.unit(damage.file(), self.segment_bytes / UNIT_BYTES - 1);
        !last.is_empty() && damage.place().end > last.end
    }

    fn content(&self, file: &Path) -> &[u8] {
        let held = self.files.iter().find(|(held, _)| held == file);
        held.map_or(&[], |(_, bytes)| bytes)
    }

    /// The place of a unit in a segment, from the lengths of the earlier units; empty if the unit does not exist.
    fn unit(&self, file: &Path, nth: u64) -> Range<u64> {
        let bytes = self.content(file);
        let end = |start: u64| {
            let length = bytes
                .get(start as usize + 8..)
                .and_then(|rest| rest.first_chunk());
            start + length.map_or(0, |length| u64::from(u32::from_le_bytes(*length)))
        };
        let start = (0..nth).fold(0, |start, _| end(start));
        start..end(start)
    }
}

/// Whether a file is a segment of the record log.
pub fn is_segment(file: &Path) -> bool {
    file.parent()
        .is_some_and(|folder| folder.ends_with("records"))
}

/// The first address of a segment, from its name.
fn first_of(name: &Path) -> Option<u64> {
    name.to_str()?.split('.').next()?.parse().ok()
}

/// The files below a folder, except the lock file, whose content is not used.
fn collect(dir: &Path, below: &Path, files: &mut Vec<(PathBuf, Vec<u8>)>) -> Result<()> {
    let mut entries = fs::read_dir(dir.join(below))?.collect::<std::io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(dir, &path, files)?;
        } else if entry.file_name() != "LOCK" {
            files.push((path, fs::read(entry.path())?));
        }
    }
    Ok(())
}
