//! Rows as readers of scans give them, and the expected rows, made from single records.

use std::sync::Arc;

use crate::query::{Ask, Batch, FieldColumn, PayloadRoom, Poll, Scan, ScanSpec};
use crate::schema::{Filter, Layout, Place};
use crate::testkit::asked::chunks_of;
use crate::testkit::oracle::Record;

/// The time, the address, the values of some fields, and the payload. Parts that are not read are 0 or empty.
pub type Row = (i64, u64, Vec<Option<Vec<u8>>>, Vec<u8>);

/// The rows that a reader gave.
#[derive(Default)]
pub struct Found {
    pub rows: Vec<Row>,
    /// The number of chunks that came together with the one before them.
    pub together: usize,
}

/// Reads the rows of a scan, `at_once` chunks at a time.
pub fn read(scan: &Arc<Scan>, ask: &Ask, at_once: usize) -> Found {
    let mut reader = scan.reader(ask.clone());
    let mut found = Found::default();
    let mut room = PayloadRoom::default();
    for chunks in chunks_of(scan).chunks(at_once) {
        reader.take(chunks.iter().copied(), &Poll::never()).unwrap();
        found.together += chunks.len();
        while reader.read_next().unwrap() {
            found.together -= 1;
            let batch = reader.batch();
            let mut payloads = ask.payloads.then(|| batch.payloads(&mut room));
            for nth in 0..batch.count() {
                let of = |field: &usize| column_value(&batch, *field, nth);
                let ts = ask.times.then(|| batch.times()[nth] as i64);
                let address = ask.addresses.then(|| batch.addresses()[nth]);
                let payload = payloads.as_mut().and_then(Iterator::next);
                found.rows.push((
                    ts.unwrap_or(0),
                    address.unwrap_or(0),
                    ask.fields.iter().map(of).collect(),
                    payload.unwrap_or_default().to_vec(),
                ));
            }
        }
    }
    found
}

/// The oracle's rows of the records that pass a filter, if there is one.
pub fn expected<'a>(
    records: impl IntoIterator<Item = &'a Record>,
    spec: &ScanSpec,
    ask: &Ask,
    filter: Option<&Filter>,
) -> Vec<Row> {
    let wanted = records.into_iter().filter(|record| {
        record.source == spec.source
            && record.address >= spec.after
            && record.matches(&spec.exact)
            && record.passes(filter)
    });
    wanted.map(|record| row_of(record, ask)).collect()
}

/// The row that a reader gives for a record.
pub fn row_of(record: &Record, ask: &Ask) -> Row {
    let of = |field: &usize| value(&record.layout, *field, &record.payload);
    (
        if ask.times { record.ts.0 } else { 0 },
        if ask.addresses { record.address.0 } else { 0 },
        ask.fields.iter().map(of).collect(),
        match ask.payloads {
            true => record.payload.clone(),
            false => Vec::new(),
        },
    )
}

/// The value of a record's field; `None` is NULL.
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

/// The value of a field in a row of a batch; `None` is NULL.
pub fn column_value(batch: &Batch<'_>, field: usize, row: usize) -> Option<Vec<u8>> {
    let is_null = batch.nulls(field).is_some_and(|nulls| nulls(row));
    let column = batch.field(field).filter(|_| !is_null)?;
    let width = batch.layout().slot(field)?.ty.fixed_bytes();
    Some(match column {
        FieldColumn::Numbers(numbers) => numbers[row].to_le_bytes()[..width.unwrap()].to_vec(),
        FieldColumn::Words(words) => {
            let bytes = words.iter().flat_map(|words| words[row].to_le_bytes());
            bytes.take(width.unwrap()).collect()
        }
        FieldColumn::Strings(strings) => strings.iter().nth(row).unwrap().to_vec(),
        FieldColumn::Shared { strings, codes } => strings[codes[row] as usize].to_vec(),
    })
}
