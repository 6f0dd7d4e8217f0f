//! A second thread reads and verifies chunks before the check asks for them in order.
//!
//! The thread confirms a chunk or says nothing. Chunks that are staged, damaged or missing are left to the check, which reads them and
//! reports what is wrong. So this file only makes a check faster and never changes its result.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::Scope;

use crate::format::{Run, walk_runs};
use crate::log::{LogReader, Origin, Tails};
use crate::schema::{Catalog, Payloads};
use crate::types::{Address, ChunkNo, LogKind, Timestamp};

/// The size of a piece, in bytes and in chunks. A few pieces fit a core's cache.
const PIECE_BYTES: u64 = 256 << 10;
const PIECE_CHUNKS_MAX: u64 = 64;
/// The most pieces that wait.
const WAITING_MAX: usize = 4;
/// The distance ahead of a piece at which reads are announced to the disk.
const FETCHED_BYTES: u64 = 8 << 20;

/// The records of a chunk, and the first and last arrival.
#[derive(Copy, Clone)]
pub(super) struct Records {
    pub count: u64,
    pub first: Timestamp,
    pub last: Timestamp,
}

/// The data that a thread needs to verify chunks.
#[derive(Copy, Clone)]
pub(super) struct Verifier<'a> {
    pub reader: &'a LogReader,
    pub tails: Tails,
    pub catalog: &'a Catalog,
}

/// Consecutive chunks, starting at `first`.
struct Piece {
    first: ChunkNo,
    /// At least as many buffers as the piece has chunks.
    bytes: Vec<Vec<u8>>,
    /// The records of each chunk, up to the first that is not sound.
    records: Vec<Records>,
}

/// The part of the check: the chunks that were read ahead, and the thread that reads more.
pub(super) struct Ahead<'scope, 'a> {
    scope: &'scope Scope<'scope, 'a>,
    verifier: Verifier<'a>,
    /// The piece that the check is reading.
    piece: Piece,
    running: Option<Running>,
    /// The chunk where the next thread may begin. After a chunk that is not sound the check reads the rest of the piece itself.
    begin: ChunkNo,
}

/// A thread, which ends when its receiver is dropped or at the first chunk that is not sound.
struct Running {
    pieces: Receiver<Piece>,
    /// Used pieces, to be filled again.
    used: Sender<Piece>,
}

impl<'scope, 'a> Ahead<'scope, 'a> {
    pub(super) fn new(
        scope: &'scope Scope<'scope, 'a>,
        verifier: Verifier<'a>,
        first: ChunkNo,
    ) -> Self {
        Ahead {
            scope,
            verifier,
            piece: Piece::empty(first),
            running: None,
            begin: first,
        }
    }

    /// Moves a chunk above all earlier ones into `bytes`. Returns `None` if the caller has to read it.
    pub(super) fn take(&mut self, chunk: ChunkNo, bytes: &mut Vec<u8>) -> Option<Records> {
        while chunk >= self.piece.end() {
            match self.running.as_ref().map(|running| running.pieces.recv()) {
                Some(Ok(piece)) => self.turn_to(piece),
                Some(Err(_ended)) => {
                    self.running = None;
                    self.begin = self.verifier.piece_end(self.piece.end());
                }
                None if chunk < self.begin => return None,
                None if self.verifier.piece_end(chunk) > self.verifier.end() => return None,
                None => self.run(chunk),
            }
        }
        self.piece.take(chunk, bytes)
    }

    fn turn_to(&mut self, piece: Piece) {
        let before = std::mem::replace(&mut self.piece, piece);
        if let Some(running) = &self.running {
            // A thread that ended needs no piece.
            let _ended = running.used.send(before);
        }
    }

    /// Starts a thread at a chunk.
    fn run(&mut self, first: ChunkNo) {
        let (full, pieces) = sync_channel(WAITING_MAX);
        let (used, empty) = channel();
        let verifier = self.verifier;
        self.scope
            .spawn(move || verifier.read_from(first, &full, &empty));
        self.piece = Piece::empty(first);
        self.running = Some(Running { pieces, used });
    }
}

impl Piece {
    fn empty(first: ChunkNo) -> Piece {
        Piece {
            first,
            bytes: Vec::new(),
            records: Vec::new(),
        }
    }

    /// The end of the sound chunks.
    fn end(&self) -> ChunkNo {
        ChunkNo(self.first.0 + self.records.len() as u64)
    }

    fn take(&mut self, chunk: ChunkNo, bytes: &mut Vec<u8>) -> Option<Records> {
        let at = usize::try_from(chunk.0.checked_sub(self.first.0)?).ok()?;
        let records = *self.records.get(at)?;
        std::mem::swap(self.bytes.get_mut(at)?, bytes);
        Some(records)
    }
}

impl Verifier<'_> {
    fn chunk_bytes(&self) -> u32 {
        self.reader.meta().chunk_bytes
    }

    /// The end of the chunks that are published whole.
    fn end(&self) -> ChunkNo {
        self.tails.tail.records.chunk(self.chunk_bytes())
    }

    /// The end of the piece that holds a chunk.
    fn piece_end(&self, chunk: ChunkNo) -> ChunkNo {
        let chunks = PIECE_BYTES / u64::from(self.chunk_bytes());
        let chunks = chunks.clamp(1, PIECE_CHUNKS_MAX);
        ChunkNo((chunk.0 / chunks + 1) * chunks)
    }

    /// Sends pieces until one is not completely sound, or the receiver is gone.
    fn read_from(&self, from: ChunkNo, pieces: &SyncSender<Piece>, used: &Receiver<Piece>) {
        let mut first = from;
        while first < self.end() {
            let end = self.piece_end(first).min(self.end());
            let mut piece = used.try_recv().unwrap_or_else(|_| Piece::empty(first));
            self.read(first, end, &mut piece);
            let is_sound = piece.end() == end;
            if pieces.send(piece).is_err() || !is_sound {
                return;
            }
            first = end;
        }
    }

    /// Fills a piece with these chunks, up to the first that is not sound.
    fn read(&self, first: ChunkNo, end: ChunkNo, piece: &mut Piece) {
        let chunk_bytes = self.chunk_bytes();
        let [address, end] = [first, end].map(|chunk| chunk.address(chunk_bytes));
        let later = address + FETCHED_BYTES;
        if later < self.tails.tail.records {
            let bytes = end.0 - address.0;
            self.reader.will_read(LogKind::Records, later, bytes);
        }
        piece.first = first;
        piece.records.clear();
        let chunks = (end.0 - address.0) / u64::from(chunk_bytes);
        piece.bytes.resize_with(chunks as usize, Vec::new);
        let mut address = address;
        for bytes in &mut piece.bytes {
            bytes.resize(chunk_bytes as usize, 0);
            let read = self.reader.read(LogKind::Records, address, bytes);
            // Reads from staging do not verify the checksum.
            if !matches!(read, Ok(Origin::Segment)) {
                return;
            }
            match self.sound_records(address, bytes) {
                Some(records) => piece.records.push(records),
                None => return,
            }
            address += u64::from(chunk_bytes);
        }
    }

    /// The records of a chunk; `None` if the chunk or one of its records is not sound.
    fn sound_records(&self, address: Address, chunk: &[u8]) -> Option<Records> {
        let meta = self.reader.meta();
        self.tails.verify_chunk(meta, address, chunk).ok()?;
        let mut found = Records {
            count: 0,
            first: Timestamp::MAX,
            last: Timestamp::MIN,
        };
        let mut is_sound = true;
        walk_runs(chunk, |run| {
            is_sound &= self.is_sound(address, chunk, &run);
            found.count += u64::from(run.records);
            found.first = found.first.min(run.arrival(chunk, 0));
            found.last = found.last.max(run.arrival(chunk, run.records - 1));
        })
        .ok()?;
        is_sound.then_some(found)
    }

    /// Whether each record of a run belongs to a source and has its layout.
    fn is_sound(&self, address: Address, chunk: &[u8], run: &Run) -> bool {
        self.catalog.source(run.source).is_some_and(|source| {
            let layout = source.layout_at(address);
            Payloads::of_run(run, chunk)
                .iter()
                .all(|payload| layout.validate(payload).is_ok())
        })
    }
}
