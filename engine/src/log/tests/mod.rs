//! Scenarios of the whole log: one writer, its flusher, and readers. Each file is about one kind of event.
//!
//! Every 8 bytes of a log are a function of their address, so all bytes that anyone reads prove themselves.

mod crash;
mod cut_off;
mod elsewhere;
mod encoders;
mod fault;
mod formats;
mod live;
mod machine;
mod restart;
mod rewriting;
mod room;
pub(crate) mod simulated;
mod units;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;
use crate::format::{put_raw_unit, put_trailer};
use crate::testkit::scene::{BLOCK, CHUNK, SEGMENT};
use crate::testkit::{Random, Scene, copy_dir, wait_until};
use crate::types::{Address, LogKind, PerLog};

/// The bytes that [`Scene::begun`] appends.
const A_LITTLE: [Address; 3] = [Address(808), Address(168), Address(48)];

impl Scene {
    fn open(&self) -> Opening {
        Opening::open(&self.dir(), &self.options.log).unwrap()
    }

    /// Starts a new directory and appends a little to its logs.
    fn begun(&self) -> Logs {
        let mut logs = self.create(Durability::None);
        append_each(&mut logs, [808, 168, 48]);
        logs
    }

    /// Starts a new directory that appends from 0.
    fn create(&self, durability: Durability) -> Logs {
        let options = LogOptions {
            durability,
            ..self.options.log.clone()
        };
        let opening = Opening::open(&self.dir(), &options).unwrap();
        assert_eq!(opening.how(), Recovered::Clean);
        opening
            .begin_at(Address(0), Address(0), Address(0), b"")
            .unwrap()
    }
}

/// The words of these logs are no records.
#[derive(Copy, Clone, Debug)]
struct RawUnits(DirMeta);

impl Encoder for RawUnits {
    fn encode(&mut self, first: Address, chunks: &[u8], out: &mut Vec<u8>) {
        put_raw_unit(&self.0.uuid, first, self.0.chunk_bytes, chunks, out);
    }

    fn another(&self) -> Box<dyn Encoder> {
        Box::new(*self)
    }
}

impl Opening {
    fn begin_at(
        self,
        records: Address,
        chunks: Address,
        times: Address,
        catalog: &[u8],
    ) -> crate::Result<Logs> {
        let units = Box::new(RawUnits(*self.meta()));
        self.start(records, chunks, times, catalog, units)
    }
}

fn resume(opening: Opening) -> Logs {
    try_resume(opening).unwrap()
}

fn try_resume(opening: Opening) -> crate::Result<Logs> {
    let starts = (
        opening.resume(),
        opening.end(LogKind::Chunks),
        opening.end(LogKind::Times),
    );
    let catalog = opening.catalog_bytes()?;
    opening.begin_at(starts.0, starts.1, starts.2, &catalog)
}

/// Returns the word that belongs at an address. It is never 0, so that unwritten bytes show.
fn word(log: LogKind, address: u64) -> u64 {
    (address ^ (log as u64) << 62)
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .rotate_left(23)
        | 1
}

fn expected(log: LogKind, from: Address, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8)
        .flat_map(|i| word(log, from.0 + 8 * i).to_le_bytes())
        .collect()
}

fn append(logs: &mut Logs, log: LogKind, bytes: usize) {
    try_append(logs, log, bytes).unwrap();
}

fn try_append(logs: &mut Logs, log: LogKind, bytes: usize) -> crate::Result<()> {
    let at = logs.end(log);
    let mut appended = expected(log, at, bytes);
    if log == LogKind::Records {
        put_trailers(&logs.meta().uuid, at, &mut appended);
    }
    assert_eq!(logs.append(log, &appended)?, at);
    Ok(())
}

/// Writes the trailer of each chunk whose last bytes are here.
fn put_trailers(uuid: &[u8; 16], at: Address, bytes: &mut [u8]) {
    let end = at + bytes.len() as u64;
    let mut chunk = at.align_down(CHUNK);
    while chunk + CHUNK <= end {
        let mut whole = expected(LogKind::Records, chunk, CHUNK as usize);
        put_trailer(uuid, chunk, &mut whole);
        let place = (chunk.0 + CHUNK - 8 - at.0) as usize;
        bytes[place..place + 8].copy_from_slice(&whole[CHUNK as usize - 8..]);
        chunk += CHUNK;
    }
}

fn append_each(logs: &mut Logs, bytes: [usize; 3]) {
    for (log, bytes) in LogKind::ALL.into_iter().zip(bytes) {
        append(logs, log, bytes);
    }
}

/// Fails unless the bytes belong there; the last 8 of each chunk of the record log are its trailer.
fn assert_whole(log: LogKind, from: Address, bytes: &[u8]) {
    for (at, found) in (from.0..).step_by(8).zip(bytes.chunks_exact(8)) {
        let is_trailer = log == LogKind::Records && at % CHUNK == CHUNK - 8;
        assert!(
            is_trailer || found == word(log, at).to_le_bytes(),
            "{log}, address {at} of {}..{}: {found:02x?}",
            from.0,
            from.0 + bytes.len() as u64
        );
    }
}

/// Reads all of `from..to` in pieces of many lengths.
fn check_range(reader: &LogReader, log: LogKind, from: Address, to: Address) {
    let mut at = from;
    let mut random = Random(to.0 ^ 77);
    while at < to {
        let mut buffer = vec![0; 8 * random.below(9000) as usize + 8];
        buffer.truncate((to.0 - at.0) as usize);
        reader.read(log, at, &mut buffer).unwrap();
        assert_whole(log, at, &buffer);
        at += buffer.len() as u64;
    }
}

fn verifies(reader: &LogReader, at: Address) -> bool {
    let mut chunk = vec![0; CHUNK as usize];
    reader.read(LogKind::Records, at, &mut chunk).unwrap();
    crate::format::verify_chunk(&reader.meta().uuid, at, &chunk).is_ok()
}

fn check_all(reader: &LogReader) -> Tails {
    let tails = reader.tails().unwrap();
    for (log, (from, to)) in LogKind::ALL
        .into_iter()
        .zip(tails.begin.into_iter().zip(tails.tail))
    {
        check_range(reader, log, from, to);
    }
    tails
}
