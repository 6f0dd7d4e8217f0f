//! The client's buffer. It has whole frames, and at its end the frame that payloads are added to.

use std::io::Write;
use std::os::unix::net::UnixStream;

use loom_engine::SourceId;

use super::ClientError;
use crate::protocol::{REQUEST_BODY_BYTES_MAX, Request, Shape, fill_length};

/// A longer push is split, because a frame also has its header and the size of its payloads.
const PUSH_BYTES_MAX: usize = REQUEST_BODY_BYTES_MAX - 8;

pub(super) struct Outgoing {
    stream: UnixStream,
    bytes: Vec<u8>,
    open: Option<OpenFrame>,
    /// The sources whose payloads had several sizes.
    varying: Vec<SourceId>,
    flush_bytes: usize,
    pub(super) pushed: u64,
    /// The flusher sleeps until it is woken.
    pub(super) parked: bool,
    pub(super) closing: bool,
    failed: Option<ClientError>,
}

/// The frame at the end of the buffer, whose length is not filled in yet.
#[derive(Copy, Clone)]
struct OpenFrame {
    start: usize,
    source: SourceId,
    shape: Shape,
}

impl Outgoing {
    pub(super) fn new(stream: UnixStream, flush_bytes: usize) -> Self {
        Outgoing {
            stream,
            bytes: Vec::with_capacity(flush_bytes + 4096),
            open: None,
            varying: Vec::new(),
            flush_bytes,
            pushed: 0,
            parked: false,
            closing: false,
            failed: None,
        }
    }

    /// Appends one payload to the open frame, or to a new one if the open one has another source or shape.
    #[inline]
    pub(super) fn push(&mut self, source: SourceId, payload: &[u8]) {
        let length = u16::try_from(payload.len()).expect("the client has checked the length");
        match self.open {
            Some(open)
                if open.source == source
                    && open.shape
                        == (Shape::Fixed {
                            record_bytes: length,
                        }) => {}
            Some(open) if open.source == source && open.shape == Shape::Framed => {
                self.bytes.extend_from_slice(&length.to_le_bytes());
            }
            open => self.open_for(open, source, length),
        }
        self.bytes.extend_from_slice(payload);
        self.pushed += 1;
    }

    /// Appends whole frames for a batch, and sends when the buffer is full.
    pub(super) fn push_batch(
        &mut self,
        source: SourceId,
        shape: Shape,
        payloads: &[u8],
    ) -> Result<(), ClientError> {
        let ragged = ClientError::Ragged {
            bytes: payloads.len(),
        };
        self.close_frame();
        let mut rest = payloads;
        while !rest.is_empty() {
            let (records, length) = whole_payloads(shape, rest).ok_or_else(|| ragged.clone())?;
            let (head, tail) = rest
                .split_at_checked(length)
                .ok_or_else(|| ragged.clone())?;
            self.open_frame(source, shape);
            self.bytes.extend_from_slice(head);
            self.close_frame();
            self.pushed += records;
            rest = tail;
            if self.must_send() {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Appends a request behind all payloads.
    pub(super) fn append(&mut self, request: &Request<'_>) {
        self.close_frame();
        request.encode(&mut self.bytes);
    }

    /// Sends everything. After a failure the connection is over, and each call returns that error.
    pub(super) fn send(&mut self) -> Result<(), ClientError> {
        self.close_frame();
        if let Some(failed) = &self.failed {
            self.bytes.clear();
            return Err(failed.clone());
        }
        let sent = (&self.stream).write_all(&self.bytes);
        self.bytes.clear();
        sent.map_err(|error| {
            let error = ClientError::from(error);
            self.failed = Some(error.clone());
            error
        })
    }

    /// The connection is over: every later send fails.
    pub(super) fn fail(&mut self, error: &ClientError) {
        self.failed.get_or_insert_with(|| error.clone());
    }

    #[inline]
    pub(super) fn must_send(&self) -> bool {
        self.bytes.len() >= self.flush_bytes || self.failed.is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Whether the flusher slept; the caller then wakes it.
    #[inline]
    pub(super) fn unpark(&mut self) -> bool {
        std::mem::take(&mut self.parked)
    }

    pub(super) fn close(&mut self) {
        self.closing = true;
        self.parked = false;
    }

    /// Opens a frame for a payload of this length. A source whose payloads vary gets framed ones from now on.
    #[cold]
    fn open_for(&mut self, open: Option<OpenFrame>, source: SourceId, length: u16) {
        if open.is_some_and(|open| open.source == source) && !self.varying.contains(&source) {
            self.varying.push(source);
        }
        self.close_frame();
        if length == 0 || self.varying.contains(&source) {
            self.open_frame(source, Shape::Framed);
            self.bytes.extend_from_slice(&length.to_le_bytes());
        } else {
            self.open_frame(
                source,
                Shape::Fixed {
                    record_bytes: length,
                },
            );
        }
    }

    fn open_frame(&mut self, source: SourceId, shape: Shape) {
        self.open = Some(OpenFrame {
            start: self.bytes.len(),
            source,
            shape,
        });
        shape.begin(source, &mut self.bytes);
    }

    fn close_frame(&mut self) {
        if let Some(open) = self.open.take() {
            fill_length(&mut self.bytes, open.start);
        }
    }
}

/// How many payloads at the start of `bytes` fit a frame, and how many bytes they take; `None` if not one is whole.
fn whole_payloads(shape: Shape, bytes: &[u8]) -> Option<(u64, usize)> {
    match shape {
        Shape::Fixed { record_bytes } => {
            let record_bytes = usize::from(record_bytes);
            let records = bytes.len().min(PUSH_BYTES_MAX).checked_div(record_bytes)?;
            (records > 0).then_some((records as u64, records * record_bytes))
        }
        Shape::Framed => {
            let mut records = 0;
            let mut end = 0usize;
            while let Some(length) = bytes.get(end..).and_then(|rest| rest.first_chunk::<2>()) {
                let next = end + 2 + usize::from(u16::from_le_bytes(*length));
                if next > PUSH_BYTES_MAX || next > bytes.len() {
                    break;
                }
                end = next;
                records += 1;
            }
            (records > 0).then_some((records, end))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{HEADER_BYTES, Header};

    /// The payloads in the frames of `bytes`, with their sources.
    fn payloads(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let header = Header::decode(bytes, REQUEST_BODY_BYTES_MAX)
                .unwrap()
                .unwrap();
            let (frame, rest) = bytes.split_at(HEADER_BYTES + header.body_bytes);
            bytes = rest;
            let Request::Push(push) = Request::decode(header, &frame[HEADER_BYTES..]).unwrap()
            else {
                panic!("only pushes were sent");
            };
            let before = found.len();
            match push.shape {
                Shape::Fixed { record_bytes } => {
                    let chunks = push.bytes.chunks(usize::from(record_bytes));
                    found.extend(chunks.map(|payload| (push.source.0, payload.to_vec())));
                }
                Shape::Framed => {
                    let mut rest = push.bytes;
                    while let Some((length, after)) = rest.split_first_chunk::<2>() {
                        let (payload, after) = after.split_at(u16::from_le_bytes(*length).into());
                        found.push((push.source.0, payload.to_vec()));
                        rest = after;
                    }
                }
            }
            assert_eq!(push.records, (found.len() - before) as u64);
        }
        found
    }

    proptest! {
        #[test]
        fn what_is_pushed_stands_in_the_frames_in_order(
            pushed in prop::collection::vec((1u16..4, prop::collection::vec(any::<u8>(), 0..50)), 0..200),
        ) {
            let (near, mut far) = UnixStream::pair().unwrap();
            let mut outgoing = Outgoing::new(near, 1 << 20);
            for (source, payload) in &pushed {
                outgoing.push(SourceId(*source), payload);
            }
            outgoing.send().unwrap();
            drop(outgoing);
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            prop_assert_eq!(payloads(&bytes), pushed);
        }
    }

    #[test]
    fn a_batch_is_split_into_frames_of_whole_payloads() {
        let record = [7u8; 48];
        let fixed = record.repeat(20_000);
        let mut framed = Vec::new();
        for length in 0..1000u16 {
            framed.extend_from_slice(&length.to_le_bytes());
            framed.extend_from_slice(&vec![1; length.into()]);
        }
        let (near, mut far) = UnixStream::pair().unwrap();
        let reader = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            payloads(&bytes)
        });
        let mut outgoing = Outgoing::new(near, 64 * 1024);
        let shape = Shape::Fixed { record_bytes: 48 };
        outgoing.push_batch(SourceId(1), shape, &fixed).unwrap();
        outgoing
            .push_batch(SourceId(2), Shape::Framed, &framed)
            .unwrap();
        assert_eq!(outgoing.pushed, 21_000);
        outgoing.send().unwrap();
        drop(outgoing);
        let found = reader.join().unwrap();
        assert_eq!(found.len(), 21_000);
        assert!(
            found[..20_000]
                .iter()
                .all(|(source, payload)| *source == 1 && payload == &record)
        );
        assert!((20_000..21_000).all(|i| found[i].0 == 2 && found[i].1.len() == i - 20_000));
    }

    #[test]
    fn a_batch_with_half_a_payload_is_refused() {
        let (near, _far) = UnixStream::pair().unwrap();
        let mut outgoing = Outgoing::new(near, 64 * 1024);
        let ragged = |result| matches!(result, Err(ClientError::Ragged { .. }));
        let shape = Shape::Fixed { record_bytes: 8 };
        assert!(ragged(outgoing.push_batch(SourceId(1), shape, &[0; 12])));
        assert!(ragged(outgoing.push_batch(
            SourceId(1),
            Shape::Framed,
            &[3, 0, 1]
        )));
        let nothing = Shape::Fixed { record_bytes: 0 };
        assert!(ragged(outgoing.push_batch(SourceId(1), nothing, &[0; 12])));
    }

    #[test]
    fn a_failed_connection_says_so_at_every_push() {
        let (near, far) = UnixStream::pair().unwrap();
        drop(far);
        let mut outgoing = Outgoing::new(near, 64 * 1024);
        outgoing.push(SourceId(1), b"lost");
        assert!(outgoing.send().is_err());
        outgoing.push(SourceId(1), b"lost too");
        assert!(outgoing.must_send());
        assert!(outgoing.send().is_err());
        assert!(outgoing.is_empty());
    }
}
