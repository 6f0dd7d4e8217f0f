//! The zones of all units of a finished segment in one place, stream by stream, so that a question about one source needs no head (FORMAT.md, *Units*).
//!
//! Damage to it loses nothing: each head has the zones of its unit. The bytes are foreign: their claims are checked against the units of the segment.

use std::collections::BTreeMap;

use super::COLUMNS_LOG;
use super::codec::{ColumnEncoder, Cursor, TAIL, open_block};
use super::template::{Described, Template};
use super::unit::Unit;
use super::zone::{Zone, ZoneKind};
use crate::format::bytes::{FormatError, invalid, pad8, put_leb128, u32_at};
use crate::format::checksum::checksum_for;
use crate::memory;
use crate::proven::{at, at_mut};
use crate::types::{Address, Key, SourceId};

const ZONES_HEADER_BYTES: usize = 16;
const ZONES_MAGIC: u32 = 0x534E_4F5A;
/// Longer zones are neither written nor read; questions then look at heads.
const ZONES_BYTES_MOST: usize = 1 << 20;
/// Stands in place of a source for all members of a family.
const FAMILY: SourceId = SourceId(0);
const WHAT: &str = "the zones of a segment";

/// The bytes in a file, verified.
#[derive(Debug)]
pub struct SegmentZones {
    bytes: Vec<u8>,
    units: usize,
}

/// The zones of the rows that a source has in each unit, where they have one layout.
#[derive(Debug)]
pub struct SourceZones {
    of_units: Vec<Held>,
    /// The zones of each field, unit by unit.
    zones: Vec<Zone>,
    fields: usize,
}

/// The information about one unit.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Held {
    NoRows,
    /// Index of the first of the zones of its fields.
    Zones(usize),
    /// The unit is raw or has rows of another layout.
    Unknown,
}

/// Gathers the zones of a segment, unit by unit.
#[derive(Default)]
pub struct ZonesBuilder {
    units: usize,
    /// The units whose streams are listed.
    known: Vec<usize>,
    /// Keyed by source, or as a family, and shape.
    streams: BTreeMap<(SourceId, Vec<u8>), StreamZones>,
    /// The units in which a source is a member of a family of some shape.
    members: BTreeMap<(SourceId, Vec<u8>), Vec<usize>>,
}

struct StreamZones {
    kinds: Vec<ZoneKind>,
    units: Vec<usize>,
    /// The zones of each field, unit by unit.
    zones: Vec<Zone>,
}

impl ZonesBuilder {
    /// Adds the next unit; `None` if its head does not verify.
    pub fn add(&mut self, unit: Option<&Unit>) {
        let nth = self.units;
        self.units += 1;
        let Some(head) = unit.and_then(|unit| unit.head.as_ref()) else {
            return;
        };
        self.known.push(nth);
        head.each_shape(|sources, template, zones| {
            let mut shape = Vec::new();
            template.encode_shape(&mut shape);
            let source = match sources {
                None => template.source,
                Some(members) => {
                    for member in members {
                        let of_member = self.members.entry((*member, shape.clone()));
                        of_member.or_default().push(nth);
                    }
                    FAMILY
                }
            };
            let stream = self.streams.entry((source, shape));
            let stream = stream.or_insert_with(|| StreamZones {
                kinds: template.zone_kinds(),
                units: Vec::new(),
                zones: Vec::new(),
            });
            stream.units.push(nth);
            stream.zones.extend_from_slice(zones);
        });
    }

    /// Appends the zones of the segment at `first`, or nothing if they are too long or no unit has any.
    pub fn encode(&self, uuid: &[u8; 16], first: Address, out: &mut Vec<u8>) {
        if self.streams.is_empty() {
            return;
        }
        let start = out.len();
        out.extend_from_slice(&ZONES_MAGIC.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&(self.units as u32).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let mut encoder = ColumnEncoder::default();
        self.put_units(&self.known, &mut encoder, out);
        put_leb128(out, self.streams.len() as u64);
        let mut content = Vec::new();
        for ((source, shape), stream) in &self.streams {
            put_leb128(out, source.0.into());
            out.extend_from_slice(shape);
            content.clear();
            self.put_units(&stream.units, &mut encoder, &mut content);
            stream.put_zones(&mut encoder, &mut content);
            put_leb128(out, content.len() as u64);
            out.extend_from_slice(&content);
        }
        put_leb128(out, self.members.len() as u64);
        for ((source, shape), units) in &self.members {
            put_leb128(out, source.0.into());
            out.extend_from_slice(shape);
            content.clear();
            self.put_units(units, &mut encoder, &mut content);
            put_leb128(out, content.len() as u64);
            out.extend_from_slice(&content);
        }
        out.extend_from_slice(&TAIL);
        pad8(out);
        if out.len() - start > ZONES_BYTES_MOST {
            return out.truncate(start);
        }
        let checksum = checksum_for(uuid, COLUMNS_LOG, first.0, at(out, start + 8..));
        at_mut(out, start + 4..start + 8).copy_from_slice(&checksum.to_le_bytes());
    }

    /// Appends a set of units, a bit each.
    fn put_units(&self, units: &[usize], encoder: &mut ColumnEncoder, out: &mut Vec<u8>) {
        let mut words = vec![0u64; self.units.div_ceil(64)];
        for unit in units {
            *at_mut(&mut words, unit / 64) |= 1 << (unit % 64);
        }
        encoder.put(&words, None, &[], out);
    }
}

impl StreamZones {
    /// Appends the zones field by field: flags for NULL and for other values, the least, the greatest.
    fn put_zones(&self, encoder: &mut ColumnEncoder, out: &mut Vec<u8>) {
        for (field, kind) in self.kinds.iter().enumerate() {
            let zones = self.zones.iter().skip(field).step_by(self.kinds.len());
            let shapes = zones.clone();
            let shapes =
                shapes.map(|zone| u64::from(zone.has_null) | u64::from(zone.keys.is_some()) << 1);
            encoder.put(&shapes.collect::<Vec<u64>>(), None, &[], out);
            let held: Vec<(Key, Key)> = zones.filter_map(|zone| zone.keys).collect();
            if held.is_empty() {
                continue;
            }
            let least = held.iter().map(|(least, _)| kind.number(*least));
            let greatest = held.iter().map(|(_, greatest)| kind.number(*greatest));
            let (least, greatest): (Vec<u64>, Vec<u64>) = (least.collect(), greatest.collect());
            encoder.put(&least, kind.floats(), &[], out);
            encoder.put(&greatest, kind.floats(), &[], out);
        }
    }
}

impl SegmentZones {
    /// Decodes the zones of the segment at `first`; `None` if there are none.
    pub fn decode(
        uuid: &[u8; 16],
        first: Address,
        units: usize,
        bytes: Vec<u8>,
    ) -> Result<Option<SegmentZones>, FormatError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.len() < ZONES_HEADER_BYTES {
            return Err(FormatError::Short {
                what: WHAT,
                have: bytes.len(),
                need: ZONES_HEADER_BYTES,
            });
        }
        if u32_at(&bytes, 0) != ZONES_MAGIC {
            return invalid(
                "the mark of the zones of a segment",
                u32_at(&bytes, 0).into(),
            );
        }
        let (stored, stored_units) = (u32_at(&bytes, 4), u32_at(&bytes, 8));
        let computed = checksum_for(uuid, COLUMNS_LOG, first.0, at(&bytes, 8..));
        if stored != computed {
            return Err(FormatError::Checksum {
                what: WHAT,
                stored,
                computed,
            });
        }
        match stored_units as usize == units {
            true => Ok(Some(SegmentZones { bytes, units })),
            false => invalid("the units of the zones of a segment", stored_units.into()),
        }
    }

    /// The greatest length in bytes.
    pub fn bytes_most() -> u64 {
        ZONES_BYTES_MOST as u64
    }

    /// Returns the zones of a source's rows of one template.
    pub fn of_source(&self, template: &Template) -> Result<SourceZones, FormatError> {
        let mut own = Vec::new();
        template.encode_shape(&mut own);
        let own = Described::take(&mut Cursor::new(&own))?;
        let kinds = template.zone_kinds();
        let mut found = SourceZones {
            of_units: vec![Held::Unknown; self.units],
            zones: Vec::new(),
            fields: kinds.len(),
        };
        let mut cursor = Cursor::new(at(&self.bytes, ZONES_HEADER_BYTES..));
        for unit in self.take_units(&mut cursor)? {
            *at_mut(&mut found.of_units, unit) = Held::NoRows;
        }
        let mut family = None;
        for _ in 0..cursor.number()? {
            let (source, shape, mut content) = entry(&mut cursor)?;
            let is_own = shape == own;
            if source == u64::from(template.source.0) {
                let units = self.take_units(&mut content)?;
                let zones = match is_own {
                    true => found.take_zones(&kinds, units.len(), &mut content)?,
                    false => None,
                };
                found.note(&units, &units, zones);
            } else if source == u64::from(FAMILY.0) && is_own {
                family = Some(content);
            }
        }
        for _ in 0..cursor.number()? {
            let (source, shape, mut content) = entry(&mut cursor)?;
            if source != u64::from(template.source.0) {
                continue;
            }
            let units = self.take_units(&mut content)?;
            match family.clone().filter(|_| shape == own) {
                Some(mut content) => {
                    let all = self.take_units(&mut content)?;
                    let zones = found.take_zones(&kinds, all.len(), &mut content)?;
                    found.note(&units, &all, zones);
                }
                None => found.note(&units, &[], None),
            }
        }
        Ok(found)
    }

    fn take_units(&self, cursor: &mut Cursor<'_>) -> Result<Vec<usize>, FormatError> {
        let mut words = memory::zeroed(self.units.div_ceil(64))?;
        open_block(cursor, words.len(), None, &[])?.decode(&mut words)?;
        let is_set = |unit: &usize| at(words.as_slice(), unit / 64) >> (unit % 64) & 1 == 1;
        Ok((0..self.units).filter(is_set).collect())
    }
}

/// Takes the source and the shape of the next entry, and the rest of it.
fn entry<'a>(cursor: &mut Cursor<'a>) -> Result<(u64, Described<'a>, Cursor<'a>), FormatError> {
    let source = cursor.number()?;
    let shape = Described::take(cursor)?;
    let bytes = cursor.number()?;
    let content = cursor.clone();
    cursor.bytes(usize::try_from(bytes).unwrap_or(usize::MAX))?;
    Ok((source, shape, content))
}

impl SourceZones {
    /// Reports whether rows of the source in a unit may be wanted, according to `may` of the zones of their fields. `None` means that the head of the unit must
    /// decide.
    pub fn may_have(&self, unit: usize, may: impl FnOnce(&[Zone]) -> bool) -> Option<bool> {
        match self.of_units.get(unit)? {
            Held::NoRows => Some(false),
            Held::Zones(first) => Some(may(at(&self.zones, *first..first + self.fields))),
            Held::Unknown => None,
        }
    }

    /// Takes the zones of a stream in `units` units and returns the first.
    fn take_zones(
        &mut self,
        kinds: &[ZoneKind],
        units: usize,
        content: &mut Cursor<'_>,
    ) -> Result<Option<usize>, FormatError> {
        let first = self.zones.len();
        memory::reserve(&mut self.zones, units * kinds.len())?;
        self.zones.resize(first + units * kinds.len(), Zone::NONE);
        for (field, kind) in kinds.iter().enumerate() {
            let mut shapes = memory::zeroed(units)?;
            if units > 0 {
                open_block(content, units, None, &[])?.decode(&mut shapes)?;
            }
            let held = shapes.iter().filter(|shape| **shape & 2 != 0).count();
            let (mut least, mut greatest) = (memory::zeroed(held)?, memory::zeroed(held)?);
            if held > 0 {
                open_block(content, held, kind.floats(), &[])?.decode(&mut least)?;
                open_block(content, held, kind.floats(), &[])?.decode(&mut greatest)?;
            }
            let mut keys = least.into_iter().zip(greatest);
            for (unit, shape) in shapes.into_iter().enumerate() {
                let held = keys.by_ref().take(usize::from(shape & 2 != 0)).next();
                let keys = held.map(|(least, greatest)| (kind.key(least), kind.key(greatest)));
                if let Some((_, greatest)) = keys.filter(|(least, greatest)| least > greatest) {
                    return invalid("the greatest key of a zone", greatest.0);
                }
                *at_mut(&mut self.zones, first + unit * kinds.len() + field) = Zone {
                    has_null: shape & 1 != 0,
                    keys,
                };
            }
        }
        Ok(Some(first))
    }

    /// Notes the units that have rows of the source. Their zones are among those of `all` units, from `first` on; `None` if they have another layout.
    fn note(&mut self, units: &[usize], all: &[usize], first: Option<usize>) {
        for unit in units {
            let place = first.zip(all.binary_search(unit).ok());
            let Some(held) = self.of_units.get_mut(*unit) else {
                continue;
            };
            *held = match (*held, place) {
                (Held::NoRows, Some((first, nth))) => Held::Zones(first + nth * self.fields),
                _ => Held::Unknown,
            };
        }
    }
}
