//! Rows as readers of scans give them, column by column or whole, and the same from records that are looked at one by one.

use std::sync::Arc;

use crate::query::{Batch, Columns, FieldColumn, Poll, Reads, Scan, ScanSpec};
use crate::schema::{Filter, Layout, Place};
use crate::testkit::asked::chunks_of;
use crate::testkit::oracle::Record;

/// The time, the address and the values of some fields; 0 what is not read.
pub type Row = (i64, u64, Vec<Option<Vec<u8>>>);

/// What a reader gave.
#[derive(Default)]
pub struct Found {
    pub rows: Vec<Row>,
    /// So many rows came as columns.
    pub of_columns: usize,
    /// So many chunks came together with the one before.
    pub together: usize,
}

/// Reads what a scan finds, so many chunks at a time.
pub fn read(scan: &Arc<Scan>, reads: &Reads, at_once: usize) -> Found {
    let fields = reads.fields.as_ref().unwrap();
    let mut reader = scan.reader();
    reader.read_only(reads.clone());
    let mut found = Found::default();
    for chunks in chunks_of(scan).chunks(at_once) {
        reader.take(chunks.iter().copied(), &Poll::never()).unwrap();
        found.together += chunks.len();
        while reader.read_next().unwrap() {
            found.together -= 1;
            match reader.batch() {
                Batch::Columns(columns) => {
                    found.of_columns += columns.count();
                    for nth in 0..columns.count() {
                        let of = |field: &usize| column_value(&columns, *field, nth);
                        let ts = reads.times.then(|| columns.times()[nth] as i64);
                        let address = reads.addresses.then(|| columns.addresses()[nth]);
                        let values = fields.iter().map(of).collect();
                        let row = (ts.unwrap_or(0), address.unwrap_or(0), values);
                        found.rows.push(row);
                    }
                }
                Batch::Rows(rows) => {
                    for row in rows.rows {
                        let payload = row.payload(rows.bytes);
                        let of = |field: &usize| value(rows.layout, *field, payload);
                        let values = fields.iter().map(of).collect();
                        let row = (row.ts.0, row.address(rows.base).0, values);
                        found.rows.push(read_of(row, reads));
                    }
                }
            }
        }
    }
    found
}

/// What the oracle finds of records that pass a filter, if there is one.
pub fn expected<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    spec: &ScanSpec,
    reads: &Reads,
    filter: Option<&Filter>,
) -> Vec<Row> {
    let wanted = records.into_iter().filter(|record| {
        record.source == spec.source
            && record.address >= spec.after
            && record.matches(&spec.exact)
            && record.passes(filter)
    });
    wanted.map(|record| row_of(record, reads)).collect()
}

pub fn row_of(record: &Record, reads: &Reads) -> Row {
    let of = |field: &usize| value(&record.layout, *field, &record.payload);
    let values = reads.fields.iter().flatten().map(of).collect();
    read_of((record.ts.0, record.address.0, values), reads)
}

/// What is read of a row.
fn read_of((ts, address, values): Row, reads: &Reads) -> Row {
    let ts = if reads.times { ts } else { 0 };
    (ts, if reads.addresses { address } else { 0 }, values)
}

/// What a field of a record holds; `None` is NULL.
pub fn value(layout: &Layout, field: usize, payload: &[u8]) -> Option<Vec<u8>> {
    let slot = layout
        .slot(field)
        .filter(|_| !layout.is_null(field, payload))?;
    Some(match slot.place {
        Place::Fixed { offset } => {
            payload[offset..offset + slot.ty.fixed_bytes().unwrap()].to_vec()
        }
        Place::Var { .. } => layout.bytes(field, payload).unwrap().to_vec(),
    })
}

/// The same of a row that was read column by column.
pub fn column_value(columns: &Columns<'_>, field: usize, row: usize) -> Option<Vec<u8>> {
    let is_null = columns.nulls(field).is_some_and(|nulls| nulls(row));
    let column = columns.field(field).filter(|_| !is_null)?;
    let width = columns.layout().slot(field)?.ty.fixed_bytes();
    Some(match column {
        FieldColumn::Numbers(numbers) => numbers[row].to_le_bytes()[..width.unwrap()].to_vec(),
        FieldColumn::Words(words) => {
            let bytes = words.iter().flat_map(|words| words[row].to_le_bytes());
            bytes.take(width.unwrap()).collect()
        }
        FieldColumn::Strings(strings) => strings[row].to_vec(),
    })
}
