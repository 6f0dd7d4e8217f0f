//! A running `loom_scan`: threads take turns at the engine's scan, each claiming a few chunks in a row, and write the rows of their
//! chunks into vectors. The number of the first chunk claimed is the batch index, by which DuckDB keeps log order.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use loom_engine::ChunkNo;
use loom_engine::query::{ChunkReader, Poll, Scan};
use loom_engine::schema::{Place, Source};

use super::group::{self, At, Group};
use super::text::Labels;
use super::vectors::{CAPACITY, Output, RawVectors};
use super::{fixed, text};
use crate::error::Result;
use crate::plan::columns::Shown;
use crate::plan::number::Domain;
use crate::plan::stats::Entry;

/// Chunks that a thread claims at a time: enough to keep the threads apart, few enough to share out a short scan.
const CLAIM_CHUNKS: usize = 8;
/// Rows that a thread claims at a time where no record is read: DuckDB's own row group.
const CLAIM_ROWS: u64 = 60 * CAPACITY as u64;

/// What the threads of one execution share.
pub struct ScanRun {
    scan: Arc<Scan>,
    source: String,
    fills: Vec<Fill>,
    /// Where no column needs a record: the rows that are still to be handed out, of how many.
    count: Option<Count>,
    claims: Mutex<()>,
    stats: Entry,
}

struct Count {
    rows: u64,
    given: AtomicU64,
}

enum Fill {
    Source,
    Ts,
    TsNs,
    Addr,
    Payload,
    Field {
        field: usize,
        labels: Option<Labels>,
    },
    Unknown,
}

impl Fill {
    fn new(shown: Shown, source: &Source) -> Fill {
        match shown {
            Shown::Source => Fill::Source,
            Shown::Ts => Fill::Ts,
            Shown::TsNs => Fill::TsNs,
            Shown::Addr => Fill::Addr,
            Shown::Payload => Fill::Payload,
            Shown::Field(field) => {
                let labels = source
                    .fields
                    .get(field)
                    .filter(|def| !def.labels.is_empty())
                    .map(Labels::of);
                Fill::Field { field, labels }
            }
            Shown::Unknown => Fill::Unknown,
        }
    }

    fn needs_records(&self) -> bool {
        !matches!(self, Fill::Source | Fill::Unknown)
    }
}

impl ScanRun {
    /// `shown` are the columns of the output, in its order.
    pub fn new(
        scan: Arc<Scan>,
        source: &Source,
        shown: &[Shown],
        stats: Entry,
        stop: &dyn Fn() -> bool,
    ) -> Result<ScanRun> {
        let fills: Vec<Fill> = shown
            .iter()
            .map(|shown| Fill::new(*shown, source))
            .collect();
        let count = if fills.iter().any(Fill::needs_records) {
            None
        } else {
            scan.count(&Poll::new(stop))?
        };
        Ok(ScanRun {
            source: source.name.clone(),
            fills,
            count: count.map(|rows| Count {
                rows,
                given: AtomicU64::new(0),
            }),
            claims: Mutex::new(()),
            stats,
            scan,
        })
    }

    /// Threads that would find something to do.
    pub fn threads(&self) -> usize {
        let claims = match &self.count {
            Some(count) => count.rows.div_ceil(CLAIM_ROWS),
            None => self.scan.stats().chunks_total.div_ceil(CLAIM_CHUNKS as u64),
        };
        claims.clamp(1, 256) as usize
    }

    pub fn progress(&self) -> f64 {
        match &self.count {
            Some(count) => count.given.load(Ordering::Relaxed) as f64 / count.rows.max(1) as f64,
            None => self.scan.progress(),
        }
    }

    pub fn worker(&self) -> ScanWorker {
        ScanWorker {
            reader: self.scan.reader(),
            claimed: VecDeque::new(),
            next_row: 0,
            batch: 0,
            rows_left: 0,
        }
    }

    /// The next chunks that may hold rows, in a row: nobody else's lie between them.
    fn claim(&self, claimed: &mut VecDeque<ChunkNo>, poll: &Poll<'_>) -> Result<()> {
        let _turn = self.claims.lock().unwrap_or_else(PoisonError::into_inner);
        while claimed.len() < CLAIM_CHUNKS {
            match self.scan.next(poll)? {
                Some(chunk) => claimed.push_back(chunk),
                None => break,
            }
        }
        Ok(())
    }
}

impl Drop for ScanRun {
    fn drop(&mut self) {
        self.stats.finish(self.scan.stats());
    }
}

/// What one thread holds.
pub struct ScanWorker {
    reader: ChunkReader,
    claimed: VecDeque<ChunkNo>,
    /// The first row of the reader's that has not been written.
    next_row: usize,
    batch: u64,
    /// Rows of a count that were claimed and not yet given.
    rows_left: u64,
}

impl ScanWorker {
    /// Never decreases, and no other thread has the same.
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// Writes up to a vector of rows. 0: there are no more.
    pub fn fill<V: RawVectors>(
        &mut self,
        run: &ScanRun,
        out: &mut Output<'_, V>,
        poll: &Poll<'_>,
    ) -> Result<usize> {
        let filled = match &run.count {
            Some(count) => self.count(count),
            None => self.records(run, out, poll)?,
        };
        for (position, _) in run
            .fills
            .iter()
            .enumerate()
            .filter(|(_, fill)| matches!(fill, Fill::Source))
        {
            out.constant(position, &run.source, filled)?;
        }
        Ok(filled)
    }

    fn count(&mut self, count: &Count) -> usize {
        if self.rows_left == 0 {
            let from = count.given.fetch_add(CLAIM_ROWS, Ordering::Relaxed);
            self.rows_left = count.rows.saturating_sub(from).min(CLAIM_ROWS);
            self.batch = from / CLAIM_ROWS;
        }
        let given = self.rows_left.min(CAPACITY as u64);
        self.rows_left -= given;
        given as usize
    }

    fn records<V: RawVectors>(
        &mut self,
        run: &ScanRun,
        out: &mut Output<'_, V>,
        poll: &Poll<'_>,
    ) -> Result<usize> {
        let mut filled = 0;
        loop {
            let rows = self.reader.rows();
            let pending = rows.rows.get(self.next_row..).unwrap_or_default();
            let taken = pending.get(..CAPACITY - filled).unwrap_or(pending);
            if !taken.is_empty() {
                let group = Group::new(rows, taken);
                for (position, fill) in run.fills.iter().enumerate() {
                    write(
                        out,
                        At {
                            position,
                            from: filled,
                        },
                        group,
                        fill,
                    )?;
                }
                filled += taken.len();
                self.next_row += taken.len();
                if filled == CAPACITY {
                    return Ok(filled);
                }
            }
            let Some(chunk) = self.claimed.pop_front() else {
                // A vector holds rows of one batch only.
                if filled > 0 {
                    return Ok(filled);
                }
                run.claim(&mut self.claimed, poll)?;
                match self.claimed.front() {
                    Some(chunk) => self.batch = chunk.0,
                    None => return Ok(0),
                }
                continue;
            };
            poll.check()?;
            self.next_row = 0;
            self.reader.read(chunk)?;
        }
    }
}

fn write<V: RawVectors>(
    out: &mut Output<'_, V>,
    at: At,
    group: Group<'_>,
    fill: &Fill,
) -> Result<()> {
    match fill {
        Fill::Source | Fill::Unknown => Ok(()),
        Fill::Ts => group::ts(out, at, group),
        Fill::TsNs => group::ts_ns(out, at, group),
        Fill::Addr => group::addr(out, at, group),
        Fill::Payload => group::payload(out, at, group),
        Fill::Field { field, labels } => write_field(out, at, group, *field, labels.as_ref()),
    }
}

fn write_field<V: RawVectors>(
    out: &mut Output<'_, V>,
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
        (None, Place::Fixed { offset }) if Domain::of(slot.ty).is_some() => {
            fixed::number(out, at, group, slot, offset)?
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
        group
            .rows
            .get(row)
            .is_none_or(|row| group.layout.is_null(field, row.payload(group.bytes)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::memory::Memory;
    use crate::plan::types::{SqlType, of_field};
    use loom_engine::query::{Row, Rows};
    use loom_engine::schema::{FieldDef, FieldType, FieldValue, Layout, PayloadEncoder, TimeKind};
    use loom_engine::{Address, Timestamp};

    /// A chunk of records, each after a header's worth of bytes.
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

        fn group(&self) -> Group<'_> {
            let rows = Rows {
                base: Address(1 << 20),
                bytes: &self.bytes,
                layout: &self.layout,
                rows: &self.rows,
            };
            Group::new(rows, &self.rows)
        }

        /// Fills one vector with a field, from row 3 on.
        fn filled(&self, field: usize, def: &FieldDef) -> Memory {
            let types = [of_field(def)];
            let mut memory = Memory::new(&types);
            let labels = (!def.labels.is_empty()).then(|| Labels::of(def));
            let at = At {
                position: 0,
                from: 3,
            };
            write_field(
                &mut Output::new(&mut memory, &types),
                at,
                self.group(),
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
        let mut memory = Memory::new(&types);
        let mut out = Output::new(&mut memory, &types);
        for (position, fill) in [Fill::Ts, Fill::TsNs, Fill::Addr, Fill::Payload]
            .iter()
            .enumerate()
        {
            write(&mut out, At { position, from: 0 }, chunk.group(), fill).unwrap();
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
