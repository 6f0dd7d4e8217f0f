//! The look-up of some units of a segment: in which of them a field may have a key, or a word (FORMAT.md, *Look-ups*).
//!
//! Each unit has a split-block Bloom filter of its own for each field: a key has one block of 32 bytes, and eight bits in it. The blocks of one number stand
//! side by side for all units, so one small read answers for a key. Nothing is lost with a look-up: a question without one reads the units.

use super::bytes::{FormatError, invalid, u32_at, u64_at};
use super::checksum::checksum_for;
use super::columns::UNIT_CHUNKS;
use crate::memory;
use crate::proven::{at, at_mut};
use crate::types::{Address, Key, SourceId, TimeRange, Timestamp};

/// Chunks of a look-up; the last one of a segment may have fewer.
pub const LOOKUP_CHUNKS: u64 = 32 * UNIT_CHUNKS;
/// The log number under which look-ups are checksummed.
const LOOKUP_LOG: u8 = 7;
const MAGIC: u64 = 0x5055_4B4C_4D4F_4F4C;
const HEADER_BYTES: usize = 48;
const ENTRY_BYTES: usize = 24;
const CHECKSUM_BYTES: usize = 8;
const BLOCK_BYTES: usize = 32;
/// Sixteen bits for each key leave fewer than five thousandths of the units without a key as false finds, which are read in vain.
const BITS_A_KEY: usize = 16;
/// A part of a text has several hashes, which must all be found.
const BITS_A_WORD: usize = 10;
/// More entries than a catalog can define are damage.
const ENTRIES_MOST: u32 = 1 << 20;
const WHAT: &str = "a look-up";
/// Marks the number of a field whose words are meant.
const WORDS: u32 = 1 << 31;

/// The multipliers that choose the eight bits of a key, those of Parquet's filters.
const SALTS: [u32; 8] = [
    0x47b6_137b,
    0x4497_4d91,
    0x8824_ad5b,
    0xa2b7_289d,
    0x7054_95c7,
    0x2df1_424b,
    0x9efc_4947,
    0x5c6b_fb31,
];

/// The hash of a number, by its key.
pub fn hash_of_key(key: Key) -> u64 {
    mixed(key.0 ^ 0x9e37_79b9_7f4a_7c15)
}

/// The hash of a text or bytes.
pub fn hash_of_bytes(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    at_mut(&mut last, ..rest.len()).copy_from_slice(rest);
    let words = words.iter().chain(std::iter::once(&last));
    words.fold(bytes.len() as u64, |hash, word| {
        mixed(hash.rotate_left(29) ^ u64::from_le_bytes(*word))
    })
}

fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let word = (word ^ word >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    word ^ word >> 32
}

/// The block of a key among some.
fn block_of(hash: u64, blocks: u32) -> u32 {
    (((hash >> 32) * u64::from(blocks)) >> 32) as u32
}

/// The bits of a key in its block.
fn bits_of(hash: u64) -> [u32; 8] {
    SALTS.map(|salt| 1 << ((hash as u32).wrapping_mul(salt) >> 27))
}

/// The keys of a field that a look-up holds; the field by its number.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum LookedUp {
    /// Its values.
    Keys(usize),
    /// The [words](super::words) of its texts.
    Words(usize),
}

impl LookedUp {
    pub fn field(self) -> usize {
        match self {
            LookedUp::Keys(field) | LookedUp::Words(field) => field,
        }
    }

    /// The number in the table.
    fn number(self) -> u32 {
        match self {
            LookedUp::Keys(field) => field as u32,
            LookedUp::Words(field) => field as u32 | WORDS,
        }
    }

    /// The bits of the filter for each hash.
    fn bits(self) -> usize {
        match self {
            LookedUp::Keys(_) => BITS_A_KEY,
            LookedUp::Words(_) => BITS_A_WORD,
        }
    }
}

/// The keys of a field in one unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnitKeys {
    /// Their hashes, each once.
    Known(Vec<u64>),
    /// The unit cannot be read, so it may hold any.
    Any,
}

/// The units that a look-up is of. In a directory that was restored, other records may stand at their addresses, which arrived at another time.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LookupOf {
    pub first: Address,
    pub units: usize,
    /// The arrivals in their last chunk.
    pub last: TimeRange,
}

/// Builds a look-up, field by field.
pub struct LookupBuilder {
    uuid: [u8; 16],
    of: LookupOf,
    fields: Vec<LookupField>,
    rows: Vec<u8>,
    /// The number of rows so far.
    ordinal: u64,
}

impl LookupBuilder {
    pub fn new(uuid: &[u8; 16], of: LookupOf) -> LookupBuilder {
        LookupBuilder {
            uuid: *uuid,
            of,
            fields: Vec::new(),
            rows: Vec::new(),
            ordinal: 0,
        }
    }

    /// Adds a field with its keys in each unit. Where they would take more than `bytes_most`, more units are found in vain.
    pub fn add(
        &mut self,
        source: SourceId,
        held: LookedUp,
        of_units: &[UnitKeys],
        bytes_most: usize,
    ) {
        assert_eq!(of_units.len(), self.of.units, "each unit has its keys");
        let count = |keys: &UnitKeys| match keys {
            UnitKeys::Known(hashes) => hashes.len(),
            UnitKeys::Any => 1,
        };
        let most = of_units.iter().map(count).max().unwrap_or(0);
        let row_bytes = row_bytes(self.of.units);
        let blocks = (most * held.bits()).div_ceil(8 * BLOCK_BYTES);
        let blocks = blocks.min((bytes_most / row_bytes).max(1)) as u32;
        self.fields.push(LookupField {
            source,
            field: held.number(),
            blocks,
            offset: self.rows.len() as u64,
            ordinal: self.ordinal,
        });
        let start = self.rows.len();
        self.rows.resize(start + row_bytes * blocks as usize, 0);
        for (unit, keys) in of_units.iter().enumerate() {
            let rows = at_mut(&mut self.rows, start..).chunks_exact_mut(row_bytes);
            match keys {
                UnitKeys::Any => rows.for_each(|row| block_mut(row, unit).fill(u8::MAX)),
                UnitKeys::Known(hashes) => {
                    for hash in hashes {
                        let row = row_bytes * block_of(*hash, blocks) as usize + start;
                        let row = at_mut(&mut self.rows, row..row + row_bytes);
                        let (words, _) = block_mut(row, unit).as_chunks_mut::<4>();
                        for (word, bit) in words.iter_mut().zip(bits_of(*hash)) {
                            *word = (u32::from_le_bytes(*word) | bit).to_le_bytes();
                        }
                    }
                }
            }
        }
        for row in at_mut(&mut self.rows, start..).chunks_exact_mut(row_bytes) {
            let (content, checksum) = row.split_at_mut(row_bytes - CHECKSUM_BYTES);
            let sum = row_checksum(&self.uuid, self.of.first, self.ordinal, content);
            at_mut(checksum, ..4).copy_from_slice(&sum.to_le_bytes());
            self.ordinal += 1;
        }
    }

    /// The bytes of the file.
    pub fn finish(self) -> Vec<u8> {
        let table = HEADER_BYTES + self.fields.len() * ENTRY_BYTES;
        let mut out = Vec::with_capacity(table + self.rows.len());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.fields.len() as u32).to_le_bytes());
        let LookupOf { first, units, last } = self.of;
        out.extend_from_slice(&first.0.to_le_bytes());
        out.extend_from_slice(&(units as u64).to_le_bytes());
        out.extend_from_slice(&last.first.0.to_le_bytes());
        out.extend_from_slice(&last.last.0.to_le_bytes());
        for field in &self.fields {
            out.extend_from_slice(&u32::from(field.source.0).to_le_bytes());
            out.extend_from_slice(&field.field.to_le_bytes());
            out.extend_from_slice(&u64::from(field.blocks).to_le_bytes());
            out.extend_from_slice(&(table as u64 + field.offset).to_le_bytes());
        }
        let sum = checksum_for(&self.uuid, LOOKUP_LOG, first.0, at(&out, 12..));
        at_mut(&mut out, 8..12).copy_from_slice(&sum.to_le_bytes());
        out.extend_from_slice(&self.rows);
        out
    }
}

/// The bytes of the blocks of one number, and of their checksum.
fn row_bytes(units: usize) -> usize {
    units * BLOCK_BYTES + CHECKSUM_BYTES
}

fn block_mut(row: &mut [u8], unit: usize) -> &mut [u8] {
    at_mut(row, unit * BLOCK_BYTES..(unit + 1) * BLOCK_BYTES)
}

fn row_checksum(uuid: &[u8; 16], first: Address, ordinal: u64, content: &[u8]) -> u32 {
    checksum_for(uuid, LOOKUP_LOG, first.0 + 1 + ordinal, content)
}

/// A field of a look-up.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct LookupField {
    source: SourceId,
    field: u32,
    blocks: u32,
    offset: u64,
    /// The number of its first row in the file.
    ordinal: u64,
}

/// The fields of a look-up, and where their blocks stand.
#[derive(Debug)]
pub struct LookupTable {
    uuid: [u8; 16],
    of: LookupOf,
    fields: Vec<LookupField>,
}

/// The blocks of one number, in the file.
#[derive(Copy, Clone, PartialEq, Eq, Hash, Debug)]
pub struct LookupRow {
    pub offset: u64,
    pub bytes: usize,
    ordinal: u64,
}

impl LookupTable {
    /// The length of the table, by the start of the file.
    fn bytes_of(header: &[u8]) -> Result<usize, FormatError> {
        if header.len() < HEADER_BYTES {
            return Err(FormatError::Short {
                what: WHAT,
                have: header.len(),
                need: HEADER_BYTES,
            });
        }
        let count = u32_at(header, 12);
        if u64_at(header, 0) != MAGIC || count > ENTRIES_MOST {
            return invalid("the mark of a look-up", u64_at(header, 0));
        }
        Ok(HEADER_BYTES + count as usize * ENTRY_BYTES)
    }

    /// Decodes the table of the look-up that begins at `first`, from the start of the file.
    pub fn decode(
        uuid: &[u8; 16],
        first: Address,
        bytes: &[u8],
    ) -> Result<LookupTable, FormatError> {
        let need = LookupTable::bytes_of(bytes)?;
        let Some(bytes) = bytes.get(..need) else {
            return Err(FormatError::Short {
                what: WHAT,
                have: bytes.len(),
                need,
            });
        };
        let (stored, computed) = (
            u32_at(bytes, 8),
            checksum_for(uuid, LOOKUP_LOG, first.0, at(bytes, 12..)),
        );
        if stored != computed {
            return Err(FormatError::Checksum {
                what: WHAT,
                stored,
                computed,
            });
        }
        let units = u64_at(bytes, 24);
        if u64_at(bytes, 16) != first.0 || units > LOOKUP_CHUNKS / UNIT_CHUNKS {
            return invalid("the place of a look-up", u64_at(bytes, 16));
        }
        let arrival = |place| Timestamp(u64_at(bytes, place) as i64);
        let mut fields = Vec::new();
        memory::reserve(&mut fields, (need - HEADER_BYTES) / ENTRY_BYTES)?;
        let mut ordinal = 0_u64;
        for entry in at(bytes, HEADER_BYTES..).chunks_exact(ENTRY_BYTES) {
            let (source, blocks) = (u32_at(entry, 0), u64_at(entry, 8));
            let (Ok(id), Ok(blocks)) = (u16::try_from(source), u32::try_from(blocks)) else {
                return invalid("a field of a look-up", source.into());
            };
            fields.push(LookupField {
                source: SourceId(id),
                field: u32_at(entry, 4),
                blocks,
                offset: u64_at(entry, 16),
                ordinal,
            });
            ordinal += u64::from(blocks);
        }
        Ok(LookupTable {
            uuid: *uuid,
            of: LookupOf {
                first,
                units: units as usize,
                last: TimeRange {
                    first: arrival(32),
                    last: arrival(40),
                },
            },
            fields,
        })
    }

    pub fn of(&self) -> LookupOf {
        self.of
    }

    pub fn field(&self, source: SourceId, held: LookedUp) -> Option<&LookupField> {
        let of = (source, held.number());
        let mut fields = self.fields.iter();
        fields.find(|field| (field.source, field.field) == of)
    }

    /// The row that answers for a hash; `None` if no unit holds a key of the field.
    pub fn row_of(&self, field: &LookupField, hash: u64) -> Option<LookupRow> {
        (field.blocks > 0).then(|| self.row(field, block_of(hash, field.blocks)))
    }

    /// All rows of the file.
    pub fn rows(&self) -> impl Iterator<Item = LookupRow> + '_ {
        let of_field =
            |field: &'_ LookupField| (0..field.blocks).map(|block| (*field, block)).collect();
        let all = self
            .fields
            .iter()
            .flat_map(move |field| -> Vec<_> { of_field(field) });
        all.map(|(field, block)| self.row(&field, block))
    }

    fn row(&self, field: &LookupField, block: u32) -> LookupRow {
        let bytes = row_bytes(self.of.units);
        LookupRow {
            offset: field.offset.saturating_add(u64::from(block) * bytes as u64),
            bytes,
            ordinal: field.ordinal + u64::from(block),
        }
    }

    /// Verifies the bytes of a row.
    pub fn verify(&self, row: LookupRow, bytes: &[u8]) -> Result<(), FormatError> {
        if bytes.len() != row.bytes {
            return Err(FormatError::Short {
                what: WHAT,
                have: bytes.len(),
                need: row.bytes,
            });
        }
        let (content, checksum) = bytes.split_at(row.bytes - CHECKSUM_BYTES);
        let stored = u32_at(checksum, 0);
        let computed = row_checksum(&self.uuid, self.of.first, row.ordinal, content);
        if stored != computed {
            return Err(FormatError::Checksum {
                what: WHAT,
                stored,
                computed,
            });
        }
        Ok(())
    }

    /// Whether a unit may hold a key, by a row that verifies.
    pub fn may_have(&self, row: &[u8], unit: usize, hash: u64) -> bool {
        if unit >= self.of.units {
            return true;
        }
        let block = at(row, unit * BLOCK_BYTES..(unit + 1) * BLOCK_BYTES);
        let (words, _) = block.as_chunks::<4>();
        let mut words = words.iter().zip(bits_of(hash));
        words.all(|(word, bit)| u32::from_le_bytes(*word) & bit != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: [u8; 16] = [7; 16];
    const FIRST: Address = Address(1 << 20);

    /// Hashes of numbers that no other unit has.
    fn hashes(unit: u64, count: u64) -> Vec<u64> {
        (0..count)
            .map(|nth| hash_of_key(Key(unit << 32 | nth)))
            .collect()
    }

    fn of(units: usize) -> LookupOf {
        let (first, last) = (Timestamp(-5), Timestamp(7));
        let last = TimeRange { first, last };
        LookupOf {
            first: FIRST,
            units,
            last,
        }
    }

    fn open(bytes: &[u8]) -> LookupTable {
        LookupTable::decode(&UUID, FIRST, bytes).unwrap()
    }

    fn finds(bytes: &[u8], table: &LookupTable, field: usize, unit: usize, hash: u64) -> bool {
        let field = table.field(SourceId(3), LookedUp::Keys(field)).unwrap();
        table.row_of(field, hash).is_some_and(|row| {
            let held = &bytes[row.offset as usize..][..row.bytes];
            table.verify(row, held).unwrap();
            table.may_have(held, unit, hash)
        })
    }

    #[test]
    fn every_key_is_found_and_few_others() {
        const KEYS: u64 = 5000;
        let mut builder = LookupBuilder::new(&UUID, of(4));
        let of_units: Vec<UnitKeys> = [0, KEYS, 100]
            .iter()
            .zip(0..)
            .map(|(count, unit)| UnitKeys::Known(hashes(unit, *count)))
            .chain([UnitKeys::Any])
            .collect();
        builder.add(SourceId(3), LookedUp::Keys(0), &of_units, usize::MAX);
        let none = vec![UnitKeys::Known(Vec::new()); 4];
        builder.add(SourceId(3), LookedUp::Keys(2), &none, usize::MAX);
        let bytes = builder.finish();
        let table = open(&bytes);
        assert_eq!(table.of(), of(4));
        for (unit, count) in [(1, KEYS), (2, 100)] {
            let found = hashes(unit, count);
            assert!(
                found
                    .iter()
                    .all(|hash| finds(&bytes, &table, 0, unit as usize, *hash))
            );
        }
        let strangers = hashes(9, 100_000);
        let false_finds = |unit: usize| {
            let found = strangers.iter();
            found
                .filter(|hash| finds(&bytes, &table, 0, unit, **hash))
                .count()
        };
        assert_eq!((false_finds(0), false_finds(3)), (0, 100_000));
        assert!(false_finds(1) < 500, "{}", false_finds(1));
        assert!(
            !finds(&bytes, &table, 2, 3, strangers[0]),
            "no row has the field"
        );
        assert!(table.field(SourceId(3), LookedUp::Keys(1)).is_none());
        assert!(table.field(SourceId(3), LookedUp::Words(0)).is_none());
        assert_eq!(table.rows().count(), (KEYS * 16).div_ceil(256) as usize);
    }

    #[test]
    fn words_take_no_more_than_their_room_and_are_found() {
        let mut builder = LookupBuilder::new(&UUID, of(2));
        let of_units = [0, 1].map(|unit| UnitKeys::Known(hashes(unit, 5000)));
        builder.add(SourceId(3), LookedUp::Words(0), &of_units, 9999);
        let bytes = builder.finish();
        let table = open(&bytes);
        assert!(bytes.len() < 10_100, "{}", bytes.len());
        assert!(table.field(SourceId(3), LookedUp::Keys(0)).is_none());
        let field = table.field(SourceId(3), LookedUp::Words(0)).unwrap();
        for hash in hashes(0, 5000) {
            let row = table.row_of(field, hash).unwrap();
            let held = &bytes[row.offset as usize..][..row.bytes];
            assert!(table.may_have(held, 0, hash));
        }
    }

    #[test]
    fn each_damaged_byte_is_noticed() {
        let mut builder = LookupBuilder::new(&UUID, of(2));
        let of_units = [UnitKeys::Known(hashes(0, 30)), UnitKeys::Any];
        builder.add(SourceId(3), LookedUp::Keys(0), &of_units, usize::MAX);
        let bytes = builder.finish();
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x10;
            let Ok(table) = LookupTable::decode(&UUID, FIRST, &damaged) else {
                continue;
            };
            let is_sound = |row: LookupRow| {
                let held = &damaged[row.offset as usize..][..row.bytes];
                table.verify(row, held).is_ok()
            };
            // The four bytes behind a checksum say nothing.
            let is_rest = table.rows().any(|row| {
                let end = row.offset as usize + row.bytes;
                (end - 4..end).contains(&place)
            });
            assert!(is_rest || !table.rows().all(is_sound), "byte {place}");
        }
        assert!(LookupTable::decode(&UUID, Address(0), &bytes).is_err());
        assert!(LookupTable::decode(&[8; 16], FIRST, &bytes).is_err());
    }

    #[test]
    fn bytes_that_differ_in_zeroes_alone_have_other_hashes() {
        let texts: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefgh\0"];
        let mut hashes = texts.map(hash_of_bytes);
        hashes.sort_unstable();
        assert!(hashes.windows(2).all(|two| two[0] != two[1]));
    }
}
