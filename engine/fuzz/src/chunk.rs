//! A chunk of the record log: its trailer, its records one by one, and its records as runs, which must be the same.
//!
//! Input: flags, then the chunk's bytes, padded with zeroes. With [`RAW`] the trailer is sought in exactly the bytes given.

use std::ops::ControlFlow;

use loom_engine::Address;
use loom_engine::format::{
    CHUNK_BYTES_MIN, CHUNK_TRAILER_BYTES, RawRecord, RecordIter, put_trailer, record_bytes,
    verify_chunk, walk_runs,
};

use crate::{SOUND, UNREPAIRED, UUID, flagged, label};

/// In the flags: no padding, no repair.
const RAW: u8 = 2;

const CHUNK_BYTES: usize = CHUNK_BYTES_MIN as usize;
/// Where the chunk stands.
const AT: Address = Address(3 * CHUNK_BYTES as u64);

pub fn run(input: &[u8]) -> String {
    let (flags, given) = flagged(input);
    if flags & RAW != 0 {
        return told(verify_chunk(&UUID, AT, given));
    }
    let mut chunk = given.to_vec();
    chunk.resize(CHUNK_BYTES, 0);
    if flags & UNREPAIRED == 0 {
        put_trailer(&UUID, AT, &mut chunk);
    }
    // A chunk in staging has no trailer, so records are read whether it verifies or not.
    let walked = walk(&chunk);
    match verify_chunk(&UUID, AT, &chunk) {
        Ok(()) => told(walked),
        Err(error) => label(&error),
    }
}

fn told<E: ToString>(result: Result<(), E>) -> String {
    result.map_or_else(|error| label(&error), |()| SOUND.to_owned())
}

/// Reads the records in each of the three ways.
fn walk(chunk: &[u8]) -> Result<(), loom_engine::format::FormatError> {
    let mut records: Vec<RawRecord<'_>> = Vec::new();
    let mut failed = None;
    for record in RecordIter::new(chunk, CHUNK_BYTES_MIN) {
        match record {
            Ok(record) => records.push(record),
            Err(error) => failed = Some(error),
        }
    }
    let mut end = 0;
    let mut last = None;
    for record in &records {
        let offset = record.offset as usize;
        assert!(
            offset >= end,
            "a record at {offset} begins inside the one before"
        );
        end = offset + record_bytes(record.payload.len());
        assert!(
            end <= CHUNK_BYTES - CHUNK_TRAILER_BYTES,
            "a record ends at {end}"
        );
        assert!(
            last <= Some(record.arrival),
            "arrival decreases at {offset}"
        );
        last = Some(record.arrival);
    }
    let mut walked = Vec::new();
    let outcome = RecordIter::new(chunk, CHUNK_BYTES_MIN).walk(|record| {
        walked.push(record);
        ControlFlow::<()>::Continue(())
    });
    assert_eq!((outcome.err(), &walked), (failed.clone(), &records));

    let mut of_runs = Vec::new();
    let outcome = walk_runs(chunk, |run| {
        assert!(run.records > 0, "a run without records");
        assert_eq!(
            run.entries(chunk).len(),
            run.entry_bytes() * run.records as usize
        );
        for nth in 0..run.records {
            let offset = run.offset_of(nth);
            of_runs.push((run.source, run.arrival(chunk, nth), offset));
        }
    });
    assert_eq!(outcome.is_err(), failed.is_some());
    let told: Vec<_> = records
        .iter()
        .map(|record| (record.source, record.arrival, record.offset))
        .collect();
    assert_eq!(of_runs, told);
    failed.map_or(Ok(()), Err)
}
