//! The content of a column of `loom_scan` and similar functions, and how rows of a chunk are written into it.

use loom_engine::proven;
use loom_engine::query::Reads;
use loom_engine::schema::{Place, Source};

use super::fixed::{self, Numbers};
use super::group::{self, At, Group};
use super::text;
use super::text::Labels;
use super::vectors::Output;
use crate::error::Result;
use crate::plan::columns::Shown;

/// A column of the output, for records of one source.
pub enum Fill {
    Source,
    Ts,
    TsNs,
    Addr,
    Payload,
    Field {
        field: usize,
        labels: Option<Labels>,
    },
    Dir(String),
    Unknown,
}

impl Fill {
    /// The columns of an output, in order.
    pub fn all(shown: &[Shown], source: &Source, dir: &str) -> Vec<Fill> {
        shown
            .iter()
            .map(|shown| Fill::new(*shown, source, dir))
            .collect()
    }

    pub fn new(shown: Shown, source: &Source, dir: &str) -> Fill {
        match shown {
            Shown::Source => Fill::Source,
            Shown::Ts => Fill::Ts,
            Shown::TsNs => Fill::TsNs,
            Shown::Addr => Fill::Addr,
            Shown::Payload => Fill::Payload,
            Shown::Field(field) => {
                let def = source.fields.get(field);
                let labels = def.filter(|def| !def.labels.is_empty()).map(Labels::of);
                Fill::Field { field, labels }
            }
            Shown::Dir => Fill::Dir(dir.to_owned()),
            Shown::Unknown => Fill::Unknown,
        }
    }

    pub fn needs_records(&self) -> bool {
        !matches!(self, Fill::Source | Fill::Dir(_) | Fill::Unknown)
    }

    /// The parts of a row that some columns read.
    pub fn reads(fills: &[Fill]) -> Reads {
        let mut reads = Reads {
            fields: Some(Vec::new()),
            times: false,
            addresses: false,
            keys: Vec::new(),
        };
        for fill in fills {
            match fill {
                Fill::Payload => reads.fields = None,
                Fill::Addr => reads.addresses = true,
                Fill::Ts | Fill::TsNs => reads.times = true,
                Fill::Field { field, .. } => {
                    if let Some(fields) = &mut reads.fields {
                        fields.push(*field);
                    }
                }
                Fill::Source | Fill::Dir(_) | Fill::Unknown => {}
            }
        }
        reads
    }

    /// Whether the column has one value in all rows of a directory but not in all rows of a call.
    pub fn differs_by_directory(&self) -> bool {
        matches!(self, Fill::Dir(_))
    }
}

/// The rows that are written column by column at a time, few enough for their records to stay in the nearest cache.
const BLOCK_ROWS: usize = 256;

/// Writes a group of rows into every column from row `from` on, except columns with the same value in all rows.
pub fn group(out: &mut Output<'_>, from: usize, group: Group<'_>, fills: &[Fill]) -> Result<()> {
    let mut from = from;
    for rows in group.rows.chunks(BLOCK_ROWS) {
        let block = Group { rows, ..group };
        for (position, fill) in fills.iter().enumerate() {
            write(out, At { position, from }, block, fill)?;
        }
        from += rows.len();
    }
    Ok(())
}

/// Writes the columns with the same value in all `rows` rows of the output.
pub fn constants(out: &mut Output<'_>, source: &str, rows: usize, fills: &[Fill]) -> Result<()> {
    for (position, fill) in fills.iter().enumerate() {
        if matches!(fill, Fill::Source) {
            out.repeated(position, 0, rows, source.as_bytes())?;
        }
    }
    Ok(())
}

/// Writes the directory of some rows of an output that has rows of several directories.
pub fn dirs(out: &mut Output<'_>, from: usize, rows: usize, fills: &[Fill]) -> Result<()> {
    for (position, fill) in fills.iter().enumerate() {
        if let Fill::Dir(dir) = fill {
            out.repeated(position, from, rows, dir.as_bytes())?;
        }
    }
    Ok(())
}

fn write(out: &mut Output<'_>, at: At, group: Group<'_>, fill: &Fill) -> Result<()> {
    match fill {
        Fill::Source | Fill::Dir(_) | Fill::Unknown => Ok(()),
        Fill::Ts => group::ts(out, at, group),
        Fill::TsNs => group::ts_ns(out, at, group),
        Fill::Addr => group::addr(out, at, group),
        Fill::Payload => group::payload(out, at, group),
        Fill::Field { field, labels } => write_field(out, at, group, *field, labels.as_ref()),
    }
}

fn write_field(
    out: &mut Output<'_>,
    at: At,
    group: Group<'_>,
    field: usize,
    labels: Option<&Labels>,
) -> Result<()> {
    let Some(slot) = group.layout.slot(field) else {
        return group::nulls(out, at, group.rows.len());
    };
    match (labels, slot.place) {
        (Some(labels), Place::Fixed { offset }) => {
            text::labels(out, at, group, slot, offset, labels)?
        }
        (None, Place::Fixed { offset }) if slot.ty.kind().is_some() => {
            fixed::number(out, at, slot.ty, Numbers::InPayloads(group, offset))?
        }
        (None, Place::Fixed { offset }) if group.is_whole => {
            text::in_place(out, at, group, slot, offset)?
        }
        _ => text::text(out, at, group, field, slot)?,
    }
    if slot.null_bit.is_none() && group.is_whole {
        return Ok(());
    }
    out.nulls(at.position, at.from, group.rows.len(), |row| {
        let payload = proven::at(group.rows, row).payload(group.bytes);
        group.layout.is_null(field, payload)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::memory::MemoryVectors;
    use crate::plan::types::{SqlType, of_field};
    use loom_engine::query::{Row, Rows};
    use loom_engine::schema::{FieldDef, FieldType, FieldValue, Layout, PayloadEncoder, TimeKind};
    use loom_engine::{Address, Timestamp};

    /// A chunk of records, each with space for a header before it.
    struct Chunk {
        layout: Layout,
        bytes: Vec<u8>,
        rows: Vec<Row>,
    }

    impl Chunk {
        fn new(fields: &[FieldDef], records: &[Vec<FieldValue<'_>>]) -> Chunk {
            let mut encoder = PayloadEncoder::new(TimeKind::Own, fields).unwrap();
            let mut chunk = Chunk {
                layout: encoder.layout().clone(),
                bytes: vec![0xEE; 8],
                rows: Vec::new(),
            };
            for (at, values) in records.iter().enumerate() {
                let ts = Timestamp(at as i64 * 1001 - 3000);
                let mut payload = Vec::new();
                encoder.encode(Some(ts), values, &mut payload).unwrap();
                chunk.push(ts, &payload);
            }
            chunk
        }

        fn push(&mut self, ts: Timestamp, payload: &[u8]) {
            self.bytes.extend([0xEE; 8]);
            let start = self.bytes.len() as u32;
            self.bytes.extend(payload);
            self.rows.push(Row {
                ts,
                start,
                length: payload.len() as u16,
            });
        }

        /// The distance between rows, if it is the same for all.
        fn stride(&self) -> Option<usize> {
            let steps = self.rows.windows(2).map(|two| two[1].start - two[0].start);
            let steps: Vec<u32> = steps.collect();
            let same = steps.windows(2).all(|two| two[0] == two[1]);
            let first = steps.first().filter(|_| same)?;
            Some(*first as usize)
        }

        fn group(&self, stride: Option<usize>) -> Group<'_> {
            let rows = Rows {
                base: Address(1 << 20),
                bytes: &self.bytes,
                layout: &self.layout,
                rows: &self.rows,
                stride,
            };
            Group::new(rows, &self.rows)
        }

        /// Fills one vector with a field, from row 3 on.
        fn filled(&self, field: usize, def: &FieldDef) -> MemoryVectors {
            self.filled_at(field, def, None)
        }

        fn filled_at(&self, field: usize, def: &FieldDef, stride: Option<usize>) -> MemoryVectors {
            let types = [of_field("requests", def)];
            let mut memory = MemoryVectors::new(&types);
            let labels = (!def.labels.is_empty()).then(|| Labels::of(def));
            let at = At {
                position: 0,
                from: 3,
            };
            write_field(
                &mut Output::new(&mut memory, &types),
                at,
                self.group(stride),
                field,
                labels.as_ref(),
            )
            .unwrap();
            memory
        }
    }

    fn nullable(name: &str, ty: FieldType) -> FieldDef {
        FieldDef {
            nullable: true,
            ..FieldDef::new(name, ty)
        }
    }

    #[test]
    fn integers_of_every_width_come_out_as_they_went_in() {
        let unsigned = [
            (FieldType::U8, 8),
            (FieldType::U16, 16),
            (FieldType::U32, 32),
            (FieldType::U64, 64),
        ];
        for (ty, bits) in unsigned {
            let def = nullable("n", ty);
            let greatest = u64::MAX >> (64 - bits);
            let chunk = Chunk::new(
                std::slice::from_ref(&def),
                &[
                    vec![FieldValue::U64(0)],
                    vec![FieldValue::Null],
                    vec![FieldValue::U64(greatest)],
                ],
            );
            let memory = chunk.filled(0, &def);
            let mask = u128::from(greatest);
            assert_eq!(memory.integer(0, bits / 8, 3), 0);
            assert_eq!(memory.integer(0, bits / 8, 5) as u128 & mask, mask);
            assert_eq!(
                [3, 4, 5].map(|row| memory.valid(0, row)),
                [true, false, true]
            );
        }
        let signed = [
            (FieldType::I8, 8),
            (FieldType::I16, 16),
            (FieldType::I32, 32),
            (FieldType::I64, 64),
            (FieldType::TimestampNs, 64),
        ];
        for (ty, bits) in signed {
            let def = FieldDef::new("n", ty);
            let least = i64::MIN >> (64 - bits);
            let chunk = Chunk::new(
                std::slice::from_ref(&def),
                &[vec![FieldValue::I64(least)], vec![FieldValue::I64(-1)]],
            );
            let memory = chunk.filled(0, &def);
            assert_eq!(memory.integer(0, bits / 8, 3), i128::from(least));
            assert_eq!(memory.integer(0, bits / 8, 4), -1);
        }
    }

    #[test]
    fn a_stride_gives_what_each_row_gives() {
        let types = [
            (FieldType::U8, 1),
            (FieldType::U16, 2),
            (FieldType::I32, 4),
            (FieldType::F32, 4),
            (FieldType::U64, 8),
            (FieldType::F64, 8),
            (FieldType::Bool, 1),
        ];
        let fields: Vec<FieldDef> = types
            .iter()
            .enumerate()
            .map(|(at, (ty, _))| FieldDef::new(format!("f{at}"), *ty))
            .collect();
        let record = |nth: u64| {
            let value = |ty: FieldType| match ty {
                FieldType::I32 => FieldValue::I64(-(nth as i64)),
                FieldType::F32 | FieldType::F64 => FieldValue::F64(nth as f64 / 4.0),
                FieldType::Bool => FieldValue::Bool(nth.is_multiple_of(3)),
                _ => FieldValue::U64(nth * 7 % 256),
            };
            types.iter().map(|(ty, _)| value(*ty)).collect::<Vec<_>>()
        };
        let records: Vec<_> = (0..1000).map(record).collect();
        let chunk = Chunk::new(&fields, &records);
        let stride = chunk.stride();
        assert!(stride.is_some());
        for (field, (def, (_, width))) in fields.iter().zip(types).enumerate() {
            let (naive, fast) = (
                chunk.filled(field, def),
                chunk.filled_at(field, def, stride),
            );
            for row in 3..1003 {
                assert_eq!(
                    fast.integer(0, width, row),
                    naive.integer(0, width, row),
                    "field {field}, row {row}"
                );
            }
        }
    }

    #[test]
    fn floats_and_bools_keep_their_bits() {
        let fields = [
            FieldDef::new("f", FieldType::F32),
            FieldDef::new("d", FieldType::F64),
            FieldDef::new("b", FieldType::Bool),
        ];
        let chunk = Chunk::new(
            &fields,
            &[vec![
                FieldValue::F64(-0.0),
                FieldValue::F64(f64::NEG_INFINITY),
                FieldValue::Bool(true),
            ]],
        );
        assert_eq!(
            chunk.filled(0, &fields[0]).integer(0, 4, 3) as u32,
            (-0.0f32).to_bits()
        );
        assert_eq!(
            chunk.filled(1, &fields[1]).integer(0, 8, 3) as u64,
            f64::NEG_INFINITY.to_bits()
        );
        assert_eq!(chunk.filled(2, &fields[2]).integer(0, 1, 3), 1);
    }

    #[test]
    fn texts_of_every_kind_are_strings() {
        let fields = [
            FieldDef::new("short", FieldType::Char(6)),
            FieldDef::new("long", FieldType::Char(30)),
            FieldDef::new("raw", FieldType::Bytes(4)),
            nullable("text", FieldType::Utf8),
            FieldDef::new("blob", FieldType::VarBytes),
        ];
        let record = |short, long, text: &'static str, blob| {
            let text = if text == "NULL" {
                FieldValue::Null
            } else {
                FieldValue::Bytes(text.as_bytes())
            };
            vec![
                FieldValue::Bytes(short),
                FieldValue::Bytes(long),
                FieldValue::Bytes(b"\0\xff\0a"),
                text,
                FieldValue::Bytes(blob),
            ]
        };
        let chunk = Chunk::new(
            &fields,
            &[
                record(
                    b"abc".as_slice(),
                    b"exactly so".as_slice(),
                    "",
                    b"\0".as_slice(),
                ),
                record(b"sixsix", b"thirty bytes of text, as given", "NULL", b""),
                record(
                    b"h\xc3\xa9",
                    "a long one with é".as_bytes(),
                    "longer than what fits into an entry",
                    b"\xff\xfe",
                ),
            ],
        );
        let strings = |field: usize| {
            let memory = chunk.filled(field, &fields[field]);
            [3, 4, 5].map(|row| {
                memory
                    .valid(0, row)
                    .then(|| String::from_utf8_lossy(&memory.string(0, row)).into_owned())
            })
        };
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(strings(0), [some("abc"), some("sixsix"), some("hé")]);
        assert_eq!(
            strings(1),
            [
                some("exactly so"),
                some("thirty bytes of text, as given"),
                some("a long one with é")
            ]
        );
        assert_eq!(
            strings(3),
            [some(""), None, some("longer than what fits into an entry")]
        );
        assert_eq!(chunk.filled(2, &fields[2]).string(0, 4), b"\0\xff\0a");
        assert_eq!(chunk.filled(4, &fields[4]).string(0, 5), b"\xff\xfe");
    }

    #[test]
    fn labels_show_and_other_numbers_show_themselves() {
        let mut def = nullable("op", FieldType::I16);
        def.labels.insert(1, "GET".into());
        def.labels
            .insert(-2, "a label that is longer than an entry".into());
        let values = [
            FieldValue::I64(1),
            FieldValue::I64(-2),
            FieldValue::I64(300),
            FieldValue::Null,
        ];
        let chunk = Chunk::new(std::slice::from_ref(&def), &values.map(|value| vec![value]));
        let memory = chunk.filled(0, &def);
        assert_eq!(memory.string(0, 3), b"GET");
        assert_eq!(memory.string(0, 4), b"a label that is longer than an entry");
        assert_eq!(memory.string(0, 5), b"300");
        assert!(!memory.valid(0, 6));
    }

    #[test]
    fn what_a_record_is_too_old_or_too_short_to_hold_is_null() {
        let fields = [
            FieldDef::new("n", FieldType::U32),
            FieldDef::new("name", FieldType::Char(20)),
        ];
        let mut chunk = Chunk::new(
            &fields,
            &[vec![FieldValue::U64(7), FieldValue::Bytes(b"whole")]],
        );
        chunk.push(Timestamp(0), b"cut");
        let number = chunk.filled(0, &fields[0]);
        assert_eq!(
            (
                number.integer(0, 4, 3),
                number.valid(0, 3),
                number.valid(0, 4)
            ),
            (7, true, false)
        );
        let name = chunk.filled(1, &fields[1]);
        assert_eq!(
            (name.string(0, 3).as_slice(), name.valid(0, 4)),
            (b"whole".as_slice(), false)
        );
        let added = chunk.filled(2, &FieldDef::new("added", FieldType::Utf8));
        assert!(!added.valid(0, 3) && !added.valid(0, 4) && added.string(0, 4).is_empty());
    }

    #[test]
    fn times_and_addresses_are_those_of_the_record() {
        let field = FieldDef::new("n", FieldType::U8);
        let chunk = Chunk::new(
            std::slice::from_ref(&field),
            &[vec![FieldValue::U64(1)], vec![FieldValue::U64(2)]],
        );
        let types = [
            SqlType::TimestampTz,
            SqlType::I64,
            SqlType::U64,
            SqlType::Blob,
        ];
        let mut memory = MemoryVectors::new(&types);
        let mut out = Output::new(&mut memory, &types);
        for (position, fill) in [Fill::Ts, Fill::TsNs, Fill::Addr, Fill::Payload]
            .iter()
            .enumerate()
        {
            write(&mut out, At { position, from: 0 }, chunk.group(None), fill).unwrap();
        }
        assert_eq!([memory.integer(0, 8, 0), memory.integer(0, 8, 1)], [-3, -2]);
        assert_eq!(
            [memory.integer(1, 8, 0), memory.integer(1, 8, 1)],
            [-3000, -1999]
        );
        let address = i128::from((1u64 << 20) + u64::from(chunk.rows[1].start) - 8);
        assert_eq!(memory.integer(2, 8, 1), address);
        assert_eq!(memory.string(3, 1), [2]);
    }
}
