//! An inlet for producers in the daemon's own process: captures, scrapes, OTLP and rules hand their records to the writer thread through it.
//!
//! To the writer thread an inlet is one more connection, without a socket to answer on. Records gather in a buffer until it is full or flushed;
//! a producer waits while the writer thread has all of its buffers. Records that find the log full when the daemon stops are dropped and counted.

use std::ops::Range;
use std::sync::Arc;

use loom_engine::schema::{LossReason, Source, SourceDef};
use loom_engine::{Error, SourceId, Timestamp, proven};

use super::DaemonError;
use super::answer::{Answer, Gone};
use super::buffer::{Buffer, Item, Loss, Pool, SyncAnswer};
use super::message::{Define, Defined, Frames, Growth, Inbox, Known, Message, Request};
use super::peer::Peer;
use crate::protocol::{Counts, Depth, FRAME_BYTES_MAX, Shape, Synced};

/// The records of a request, or of a target's answer, may take so many times its longest size: each may repeat a text that was sent once.
pub(crate) const UNFOLDED: usize = 4;
/// The length before a record.
const LENGTH_BYTES: usize = 2;

/// Takes records for the writer thread of a daemon in this process.
pub struct Inlet {
    peer: Arc<Peer>,
    inbox: Inbox,
    pool: Pool,
    /// The buffer in which records gather, and the number of its bytes that are filled.
    open: Option<(Buffer, usize)>,
    losses: Vec<Loss>,
    /// The counts up to the last [`Inlet::settle`].
    settled: Counts,
}

impl Inlet {
    pub(super) fn open(inbox: &Inbox) -> std::io::Result<Inlet> {
        Ok(Inlet {
            peer: Arc::new(Peer::of_inlet()?),
            inbox: inbox.clone(),
            pool: Pool::new(),
            open: None,
            losses: Vec::new(),
            settled: Counts::default(),
        })
    }

    pub(crate) fn another(&self) -> std::io::Result<Inlet> {
        Inlet::open(&self.inbox)
    }

    /// Hands over payloads of a source, all of `record_bytes`, without waiting for more.
    pub fn push(
        &mut self,
        source: SourceId,
        record_bytes: u16,
        payloads: &[u8],
    ) -> Result<(), DaemonError> {
        let size = usize::from(record_bytes);
        let most = FRAME_BYTES_MAX / size * size;
        for piece in payloads.chunks(most) {
            let (buffer, range) = self.room(piece.len())?;
            proven::at_mut(&mut buffer.bytes, range.clone()).copy_from_slice(piece);
            buffer.items.push(Item::Push {
                source,
                shape: Shape::Fixed { record_bytes },
                range,
                records: (piece.len() / size) as u64,
            });
            self.flush()?;
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, source: SourceId, payload: &[u8]) -> Result<(), Gone> {
        let length = u16::try_from(payload.len()).expect("an encoder makes no longer payload");
        let (buffer, range) = self.room(LENGTH_BYTES + payload.len())?;
        let place = proven::at_mut(&mut buffer.bytes, range.clone());
        let (before, record) = place.split_at_mut(LENGTH_BYTES);
        before.copy_from_slice(&length.to_le_bytes());
        record.copy_from_slice(payload);
        match buffer.items.last_mut() {
            Some(Item::Push {
                source: last,
                shape: Shape::Framed,
                range: held,
                records,
            }) if *last == source && held.end == range.start => {
                held.end = range.end;
                *records += 1;
            }
            _ => buffer.items.push(Item::Push {
                source,
                shape: Shape::Framed,
                range,
                records: 1,
            }),
        }
        Ok(())
    }

    /// Gathers records that each follow their length.
    pub(crate) fn add_framed(&mut self, source: SourceId, mut framed: &[u8]) -> Result<(), Gone> {
        while let Some((length, rest)) = framed.split_first_chunk() {
            let (payload, rest) = rest.split_at(u16::from_le_bytes(*length).into());
            self.add(source, payload)?;
            framed = rest;
        }
        assert!(framed.is_empty(), "half a length ends framed records");
        Ok(())
    }

    /// Gathers one record of a built-in source, unless the writer thread has all buffers.
    pub(super) fn add_own(&mut self, source: SourceId, payload: &[u8]) -> Result<bool, Gone> {
        if !self.has_room_for(payload.len())? {
            return Ok(false);
        }
        let (buffer, range) = self.room(payload.len())?;
        proven::at_mut(&mut buffer.bytes, range.clone()).copy_from_slice(payload);
        buffer.items.push(Item::Own { source, range });
        Ok(true)
    }

    /// Notes records that could not be made or read, and so are refused, or dropped by `Overload`. [`Inlet::settle`] counts them, or
    /// [`Inlet::count_losses`].
    pub(crate) fn lose(
        &mut self,
        source: Option<SourceId>,
        reason: LossReason,
        records: u64,
        detail: String,
    ) {
        self.losses.push(Loss {
            source,
            reason,
            records,
            bytes: None,
            detail,
        });
    }

    /// Gathers the losses behind the records.
    pub(crate) fn count_losses(&mut self) -> Result<(), Gone> {
        for loss in std::mem::take(&mut self.losses) {
            self.room(0)?.0.items.push(Item::Lost(loss));
        }
        Ok(())
    }

    /// Hands over the gathered records.
    pub(crate) fn flush(&mut self) -> Result<(), Gone> {
        match self.open.take() {
            None => Ok(()),
            Some((buffer, _)) => {
                let frames = Frames::new(&self.peer, buffer, self.pool.home());
                self.inbox.send(Message::Frames(frames))
            }
        }
    }

    /// Hands over the gathered records, and waits until they are published, with `batch` durability until they are durable. The losses are counted
    /// with them. Returns the counts of the records since the last time. If an error says why they are not published, their sender sends them
    /// again, so no loss is counted.
    pub(crate) fn settle(&mut self) -> Result<Result<Synced, String>, Gone> {
        let (answer, answered) = Answer::new();
        let losses = std::mem::take(&mut self.losses);
        let (buffer, _) = self.room(0)?;
        buffer.items.push(Item::Sync {
            depth: Depth::Configured,
            answer: SyncAnswer::Inlet { answer, losses },
        });
        self.flush()?;
        let settled = self.inbox.alive().wait(&answered)?;
        let before = std::mem::replace(&mut self.settled, self.peer.account().counts);
        Ok(settled.map(|synced| Synced {
            counts: synced.counts.since(before),
            ..synced
        }))
    }

    /// Ends the inlet. Returns the counts of everything that was pushed, and why the latest refused record was refused.
    pub fn finish(mut self) -> Result<(Counts, String), DaemonError> {
        self.flush()?;
        self.pool.wait_for_all(self.inbox.alive())?;
        let account = self.peer.account();
        Ok((account.counts, account.reason.clone()))
    }

    pub(crate) fn catalog(&self) -> Result<Known, Gone> {
        self.ask(Request::Catalog)
    }

    /// From now on, payloads that are pushed into a source have this layout, also after the source gets another.
    pub(crate) fn learn(&self, source: &Source) {
        self.peer.learn(source.id, source.fields.len());
    }

    /// From now on, payloads that are pushed into a source have its first fields, so many.
    pub fn has_fields(&self, source: SourceId, fields: usize) {
        self.peer.learn(source, fields);
    }

    /// Adds fields to sources, or defines them, all or none: later payloads have these layouts.
    pub(crate) fn grow(
        &mut self,
        sources: Vec<SourceDef>,
        growth: Growth,
    ) -> Result<Result<Defined, Error>, Gone> {
        self.ask_after(|answer| Request::Define {
            sources,
            how: Define::Growing(growth),
            answer,
        })
    }

    /// Publishes the records that were handed over: readers see them.
    pub(crate) fn publish(&mut self) -> Result<Timestamp, Gone> {
        self.ask_after(Request::Publish)
    }

    /// An error says why the log takes no records now.
    pub(crate) fn has_room(&self) -> Result<Result<(), String>, Gone> {
        self.ask(Request::Room)
    }

    /// Asks at once, also while records wait for room in the log.
    pub(super) fn ask<T>(&self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, Gone> {
        self.inbox.ask(request)
    }

    fn ask_after<T>(&mut self, request: impl FnOnce(Answer<T>) -> Request) -> Result<T, Gone> {
        self.flush()?;
        self.inbox.ask_after(Some(&self.peer), request)
    }

    /// Returns a buffer with room for so many bytes, and their place in it. Waits while the writer thread has all buffers.
    fn room(&mut self, bytes: usize) -> Result<(&mut Buffer, Range<usize>), Gone> {
        if !self.has_room_for(bytes)? {
            let buffer = self.pool.take_or_wait(self.inbox.alive())?;
            self.open = Some((buffer, 0));
        }
        let (buffer, filled) = self.open.as_mut().expect("a buffer was just opened");
        let range = *filled..*filled + bytes;
        *filled = range.end;
        Ok((buffer, range))
    }

    /// True if a buffer has room for so many bytes. Hands over one that is too full, and opens another if one is free.
    fn has_room_for(&mut self, bytes: usize) -> Result<bool, Gone> {
        let filled = self.open.as_ref().map_or(0, |(_, filled)| *filled);
        if filled + bytes > FRAME_BYTES_MAX {
            self.flush()?;
        }
        if self.open.is_none() {
            self.open = self.pool.take().map(|buffer| (buffer, 0));
        }
        Ok(self.open.is_some())
    }
}

#[cfg(test)]
mod tests {
    use loom_engine::Address;

    use super::*;
    use crate::daemon::peer::PeerAccount;

    /// The items of each buffer that was handed over, with the bytes of the pushes.
    fn handed_over(outlet: &super::super::message::Outlet) -> Vec<Vec<(u16, Vec<u8>, u64)>> {
        let frames = outlet.messages().try_iter().map(|message| {
            let Message::Frames(Frames { buffer, .. }) = message else {
                panic!("an inlet that gathers sends buffers alone");
            };
            let pushed = |item: &Item| match item {
                Item::Push {
                    source,
                    range,
                    records,
                    ..
                } => (source.0, buffer.bytes[range.clone()].to_vec(), *records),
                _ => panic!("nothing but records was gathered"),
            };
            buffer.items.iter().map(pushed).collect()
        });
        frames.collect()
    }

    #[test]
    fn records_that_follow_each_other_in_a_source_are_one_push_and_none_crosses_a_buffer() {
        let (inbox, outlet) = Inbox::new();
        let mut inlet = Inlet::open(&inbox).unwrap();
        let [one, other] = [SourceId(1), SourceId(2)];
        for (source, payload) in [(one, &b"ab"[..]), (one, b""), (other, b"c"), (one, b"d")] {
            inlet.add(source, payload).unwrap();
        }
        assert_eq!(handed_over(&outlet), [] as [Vec<_>; 0]);
        inlet.flush().unwrap();
        let pushes = [
            (1, b"\x02\0ab\0\0".to_vec(), 2),
            (2, b"\x01\0c".to_vec(), 1),
            (1, b"\x01\0d".to_vec(), 1),
        ];
        assert_eq!(handed_over(&outlet), [pushes.to_vec()]);

        let long = [[7; 2 + 60_000], [9; 2 + 60_000]].map(|mut framed| {
            framed[..2].copy_from_slice(&60_000_u16.to_le_bytes());
            framed
        });
        let framed: Vec<u8> = long.iter().cycle().take(6).flatten().copied().collect();
        inlet.add_framed(one, &framed).unwrap();
        inlet.flush().unwrap();
        let buffers = handed_over(&outlet);
        let records: Vec<u64> = buffers.iter().map(|pushes| pushes[0].2).collect();
        assert_eq!(records, [4, 2]);
        let bytes = buffers.into_iter().flatten().map(|(_, bytes, _)| bytes);
        assert!(bytes.flatten().eq(framed));
    }

    #[test]
    fn losses_go_with_the_sync_of_their_records() {
        let (inbox, outlet) = Inbox::new();
        let mut inlet = Inlet::open(&inbox).unwrap();
        for (records, trouble) in [(1, Some("the disk is gone")), (2, None)] {
            inlet.add(SourceId(1), b"x").unwrap();
            inlet.lose(None, LossReason::Malformed, records, "wrong".to_owned());
            let settled = std::thread::scope(|scope| {
                let settled = scope.spawn(|| inlet.settle().unwrap());
                let Ok(Message::Frames(frames)) = outlet.messages().recv() else {
                    panic!("an inlet that settles sends buffers alone");
                };
                let [Item::Push { .. }, Item::Sync { answer, .. }] = &frames.buffer.items[..]
                else {
                    panic!("the records and one sync are handed over");
                };
                let lost: Vec<u64> = answer.losses().iter().map(|loss| loss.records).collect();
                assert_eq!(lost, [records]);
                let SyncAnswer::Inlet { answer, .. } = answer else {
                    panic!("an inlet gets the answer");
                };
                let synced = PeerAccount::default().synced(Address::ZERO);
                answer.give(trouble.map_or(Ok(synced), |why| Err(why.to_owned())));
                frames.home.give_back(frames.buffer);
                settled.join().unwrap()
            });
            assert_eq!(settled.err().as_deref(), trouble);
        }
        assert!(outlet.messages().is_empty());
    }

    #[test]
    fn a_producer_learns_that_the_writer_thread_is_gone() {
        let (inbox, outlet) = Inbox::new();
        let mut inlet = Inlet::open(&inbox).unwrap();
        inlet.push(SourceId(1), 4, &[0; 8]).unwrap();
        drop(outlet);
        assert!(inlet.settle().is_err());
        assert!(inlet.catalog().is_err());
        assert!(inlet.finish().is_err());
    }
}
