//! Compares the zones of units with the least and the greatest key of their rows.

use std::collections::BTreeMap;

use super::*;
use crate::types::Key;

/// The values of a record: its null bits; a number, a signed one, a float and a narrow one; 9 bytes of text; a string; the field that a later layout adds.
#[derive(Clone, Debug)]
struct Values {
    nulls: u8,
    number: u64,
    signed: i32,
    double: f64,
    single: f32,
    text: [u8; 9],
    string: Vec<u8>,
    added: i64,
}

const SIGNED: usize = 1;
const ADDED: usize = 4;

/// The fields in order: the signed number is never NULL, and the added one is the last before the string.
fn template_of(source: SourceId, has_added: bool) -> Template {
    let piece = |bytes, kind| Piece { bytes, kind };
    let added = has_added.then(|| piece(8, PieceKind::Signed));
    let pieces = [
        piece(1, PieceKind::Number),
        piece(8, PieceKind::Number),
        piece(4, PieceKind::Signed),
        piece(8, PieceKind::Float),
        piece(4, PieceKind::Float),
    ];
    let text = [piece(8, PieceKind::Number), piece(1, PieceKind::Number)];
    let length = [piece(2, PieceKind::Length)];
    let pieces = pieces.into_iter().chain(added).chain(text).chain(length);
    let pieces: Vec<Piece> = pieces.collect();
    let last = pieces.len() as u16 - 1;
    let field = |nth: u8, piece, is_text| FieldPlace {
        piece,
        is_text,
        null: (usize::from(nth) != SIGNED).then_some((0, nth)),
    };
    let numbers = (0..4u8).map(|nth| field(nth, u16::from(nth) + 1, false));
    let added = has_added.then(|| field(6, 5, false));
    let texts = [field(4, last - 2, true), field(5, last, false)];
    Template {
        source,
        pieces,
        has_rest: false,
        fields: numbers.chain(added).chain(texts).collect(),
    }
}

impl Values {
    fn payload(&self, has_added: bool) -> Vec<u8> {
        let mut payload = vec![self.nulls];
        payload.extend_from_slice(&self.number.to_le_bytes());
        payload.extend_from_slice(&self.signed.to_le_bytes());
        payload.extend_from_slice(&self.double.to_le_bytes());
        payload.extend_from_slice(&self.single.to_le_bytes());
        if has_added {
            payload.extend_from_slice(&self.added.to_le_bytes());
        }
        payload.extend_from_slice(&self.text);
        payload.extend_from_slice(&(self.string.len() as u16).to_le_bytes());
        payload.extend_from_slice(&self.string);
        payload
    }

    /// The key of each field, `None` for NULL.
    fn keys(&self, has_added: bool) -> Vec<Option<Key>> {
        let first_bytes = |text: &[u8]| {
            let bytes = text.iter().copied().chain([0; 8]).take(8);
            Key(bytes.fold(0, |key, byte| key << 8 | u64::from(byte)))
        };
        let mut keys = vec![
            (0, Key::from_u64(self.number)),
            (7, Key::from_i64(self.signed.into())),
            (2, Key::from_f64(self.double)),
            (3, Key::from_f64(self.single.into())),
            (4, first_bytes(&self.text)),
            (5, first_bytes(&self.string)),
        ];
        if has_added {
            keys.insert(ADDED, (6, Key::from_i64(self.added)));
        }
        let of = |(bit, key): &(u8, Key)| (self.nulls >> bit & 1 == 0).then_some(*key);
        keys.iter().map(of).collect()
    }
}

fn values() -> impl Strategy<Value = Values> {
    let number = prop_oneof![
        0..4u64,
        u64::MAX - 3..,
        (1 << 63) - 2..(1 << 63) + 2u64,
        any::<u64>()
    ];
    let signed = prop_oneof![-2..3i32, Just(i32::MIN), Just(i32::MAX), any::<i32>()];
    let added = prop_oneof![-2..3i64, Just(i64::MIN), Just(i64::MAX), any::<i64>()];
    let special = [
        0.0,
        -0.0,
        f64::NAN,
        -f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let double = prop_oneof![
        prop::sample::select(special.to_vec()),
        prop::num::f64::ANY,
        (-50..50i32).prop_map(|tenths| f64::from(tenths) / 10.0)
    ];
    let single = prop_oneof![
        double.clone().prop_map(|value| value as f32),
        prop::num::f32::ANY
    ];
    let byte = || prop_oneof![Just(0u8), Just(0xFF), b'a'..b'd'];
    let text = prop::array::uniform9(byte());
    let string = prop::collection::vec(byte(), 0..12);
    let nulls = prop_oneof![4 => Just(0u8), 1 => 0..0x80u8, 1 => Just(0x7F)];
    let all = (nulls, number, signed, double, single, text, string, added);
    all.prop_map(
        |(nulls, number, signed, double, single, text, string, added)| Values {
            nulls,
            number,
            signed,
            double,
            single,
            text,
            string,
            added,
        },
    )
}

/// The zones of all fields, row by row.
#[derive(Default)]
struct Expected(Vec<(bool, Vec<Key>)>);

impl Expected {
    fn add(&mut self, keys: &[Option<Key>]) {
        self.0.resize(keys.len(), (false, Vec::new()));
        for ((has_null, held), key) in self.0.iter_mut().zip(keys) {
            *has_null |= key.is_none();
            held.extend(*key);
        }
    }

    fn zones(&self) -> Vec<Zone> {
        let of = |(has_null, keys): &(bool, Vec<Key>)| Zone {
            has_null: *has_null,
            keys: keys.iter().min().copied().zip(keys.iter().max().copied()),
        };
        self.0.iter().map(of).collect()
    }
}

proptest! {
    #[test]
    fn zones_are_the_least_and_the_greatest_value_that_is_not_null(
        kinds in prop::collection::vec(prop::collection::vec(values(), 1..6), 1..5),
        times in (1..400usize, 0..400usize),
        sources in 1..5u16,
    ) {
        // Each source has values of its own, so that each layout holds some repeatedly.
        let record = |nth: usize, has_added: bool| {
            let source = nth % usize::from(sources);
            let own = &kinds[source % kinds.len()];
            let values = &own[nth / usize::from(sources) % own.len()];
            (source as u16 + 1, values, values.payload(has_added))
        };
        let all = [times.0, times.1].into_iter().zip([false, true]);
        let rows: Vec<_> = all.flat_map(|(count, has_added)| (0..count).map(move |nth| (nth, has_added))).collect();
        let mut chunks = Vec::new();
        let mut expected: BTreeMap<(u16, bool), Expected> = BTreeMap::new();
        let mut old_end = 0;
        for has_added in [false, true] {
            let own = rows.iter().filter(|(_, added)| *added == has_added);
            let mut records: Vec<Record> = Vec::new();
            for (nth, _) in own {
                let (source, values, payload) = record(*nth, has_added);
                records.push((source, 130, payload));
                expected.entry((source, has_added)).or_default().add(&values.keys(has_added));
            }
            put_chunks(&records, &mut chunks);
            if !has_added {
                old_end = chunks.len();
            }
        }
        prop_assume!(chunks.len() <= UNIT_CHUNKS as usize * CHUNK as usize);
        let mut bytes = Vec::new();
        let template = |source, at: Address| template_of(source, (at.0 - FIRST.0) as usize >= old_end);
        UnitEncoder::new(UUID, CHUNK).encode(FIRST, &chunks, template, &mut bytes);
        let unit = Unit::of(&UUID, FIRST, CHUNK, bytes).unwrap();
        let Some(head) = &unit.head else {
            return Ok(());
        };
        // The members of a family share its zones.
        let mut of_families: BTreeMap<bool, Expected> = BTreeMap::new();
        for stream in head.streams().filter(|stream| stream.groups[0].members.is_some()) {
            let has_added = stream.template.fields.len() == 7;
            let own = &expected[&(stream.template.source.0, has_added)];
            let all = of_families.entry(has_added).or_default();
            all.0.resize(own.0.len(), (false, Vec::new()));
            for (all, own) in all.0.iter_mut().zip(&own.0) {
                all.0 |= own.0;
                all.1.extend_from_slice(&own.1);
            }
        }
        prop_assert_eq!(head.count(), expected.len());
        for stream in head.streams() {
            let (source, has_added) = (stream.template.source, stream.template.fields.len() == 7);
            prop_assert_eq!(&stream.template, &template_of(source, has_added));
            let own = match stream.groups[0].members {
                Some(_) => &of_families[&has_added],
                None => &expected[&(source.0, has_added)],
            };
            prop_assert_eq!(&*stream.zones, own.zones());
        }
    }
}

/// Generates the units of a segment: sources besides the first, whether they have the later layout, records divided by 8, and whether records of the other layout follow.
fn segments() -> impl Strategy<Value = Vec<(u16, bool, usize, bool)>> {
    prop::collection::vec((0..9u16, any::<bool>(), 0..80usize, any::<bool>()), 1..5)
}

/// Builds the units of a segment whose values drift from unit to unit.
fn units_of(shapes: &[(u16, bool, usize, bool)], values: &[Values]) -> Vec<Option<Unit>> {
    let unit_bytes = UNIT_CHUNKS as usize * CHUNK as usize;
    let mut chunks = Vec::new();
    let units = shapes.iter().enumerate();
    let units = units.map(|(nth, &(sources, has_added, count, is_mixed))| {
        chunks.resize(nth * unit_bytes, 0);
        let record = |row: usize, has_added: bool| {
            let source = 1 + row as u16 % (sources + 1);
            // One source has its rows alone, and the others have few each.
            let source = if row.is_multiple_of(3) { 1 } else { source };
            let values = &values[(row + nth) % values.len()];
            (source, 130, values.payload(has_added))
        };
        let records: Vec<Record> = (0..count * 8).map(|row| record(row, has_added)).collect();
        put_chunks(&records, &mut chunks);
        let old_end = chunks.len();
        if is_mixed {
            let records: Vec<Record> = (0..50).map(|row| record(row, !has_added)).collect();
            put_chunks(&records, &mut chunks);
        }
        chunks.truncate((nth + 1) * unit_bytes);
        chunks.resize((nth + 1) * unit_bytes, 0);
        let first = FIRST + (nth * unit_bytes) as u64;
        let template = |source, at: Address| {
            let is_behind = (at.0 - FIRST.0) as usize >= old_end;
            template_of(source, has_added != is_behind)
        };
        let mut bytes = Vec::new();
        let own = &chunks[nth * unit_bytes..];
        UnitEncoder::new(UUID, CHUNK).encode(first, own, template, &mut bytes);
        let unit = Unit::of(&UUID, first, CHUNK, bytes).unwrap();
        (sources != 8).then_some(unit)
    });
    units.collect()
}

fn zones_at_end(units: &[Option<Unit>]) -> Vec<u8> {
    let mut builder = ZonesBuilder::default();
    units.iter().for_each(|unit| builder.add(unit.as_ref()));
    let mut bytes = Vec::new();
    builder.encode(&UUID, FIRST, &mut bytes);
    bytes
}

proptest! {
    #[test]
    fn the_zones_of_a_segment_are_those_of_its_units(
        shapes in segments(),
        values in prop::collection::vec(values(), 1..6),
        place: prop::sample::Index,
        byte: u8,
    ) {
        let units = units_of(&shapes, &values);
        let bytes = zones_at_end(&units);
        let Some(zones) = SegmentZones::decode(&UUID, FIRST, units.len(), bytes.clone()).unwrap() else {
            prop_assert!(units.iter().flatten().all(Unit::is_raw));
            return Ok(());
        };
        for (source, has_added) in (1..11).flat_map(|source| [(source, false), (source, true)]) {
            let template = template_of(SourceId(source), has_added);
            let found = zones.of_source(&template).unwrap();
            for (nth, unit) in units.iter().enumerate() {
                let mut of_segment = None;
                let may_have = found.may_have(nth, |zones| {
                    of_segment = Some(zones.to_vec());
                    true
                });
                let Some(unit) = unit.as_ref().filter(|unit| !unit.is_raw()) else {
                    prop_assert_eq!(may_have, None);
                    continue;
                };
                let head = unit.head.as_ref().unwrap();
                let own: Vec<_> = head.streams_of(SourceId(source)).map(|(_, stream)| stream).collect();
                match own.as_slice() {
                    [] => prop_assert_eq!(may_have, Some(false)),
                    [stream] if stream.template == template => {
                        prop_assert_eq!(may_have, Some(true));
                        prop_assert_eq!(of_segment, Some(stream.zones.to_vec()));
                    }
                    _ => prop_assert_eq!(may_have, None),
                }
            }
        }
        // Forged bytes that verify may claim anything.
        let mut forged = bytes;
        let place = place.index(forged.len() - 8) + 8;
        forged[place] = byte;
        let sum = crate::format::checksum::checksum_for(&UUID, COLUMNS_LOG, FIRST.0, &forged[8..]);
        forged[4..8].copy_from_slice(&sum.to_le_bytes());
        if let Ok(Some(zones)) = SegmentZones::decode(&UUID, FIRST, units.len(), forged) {
            for source in 1..11 {
                if let Ok(found) = zones.of_source(&template_of(SourceId(source), true)) {
                    let asked = (0..units.len()).map(|unit| found.may_have(unit, |_| true));
                    prop_assert_eq!(asked.count(), units.len());
                }
            }
        }
    }
}
