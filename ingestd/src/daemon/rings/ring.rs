//! One ring: its records become batches of its source, in the shape that the writer thread takes fastest.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom_client::ring::{Broken, Calibration, Consumer, Ending};
use loom_engine::SourceId;
use loom_engine::schema::LossReason;

use super::{Place, Reserved};
use crate::daemon::answer::Gone;
use crate::daemon::buffer::{Buffer, Item, Loss, Pool};
use crate::daemon::message::{Frames, Inbox, Message};
use crate::daemon::peer::Peer;
use crate::protocol::{ErrorCode, Reply, Shape};

pub(super) struct Ring {
    consumer: Consumer,
    peer: Arc<Peer>,
    source: SourceId,
    pool: Pool,
    /// The length of all records so far; they are framed once they differ.
    record_bytes: Option<u16>,
    varies: bool,
    /// Its memory counts until the ring is unmapped.
    reserved: Arc<Reserved>,
}

#[derive(Copy, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    Idle,
    /// All that was published is on its way.
    Drained,
    /// There may be more than fitted into one buffer.
    Full,
    /// All buffers are with the writer thread.
    Waits,
    /// The producer left something that is not possible; the client was disconnected.
    Broken,
}

/// A batch that is being gathered in a buffer.
struct Open {
    shape: Shape,
    start: usize,
    records: u64,
}

impl Ring {
    pub(super) fn new(
        consumer: Consumer,
        peer: Arc<Peer>,
        source: SourceId,
        reserved: Reserved,
    ) -> Ring {
        Ring {
            consumer,
            peer,
            source,
            pool: Pool::new(),
            record_bytes: None,
            varies: false,
            reserved: Arc::new(reserved),
        }
    }

    pub(super) fn peer_id(&self) -> u64 {
        self.peer.id
    }

    pub(super) fn calibrate(&mut self, calibration: Calibration) {
        self.consumer.calibrate(calibration);
    }

    pub(super) fn close(&mut self) {
        self.consumer.close();
    }

    /// Ends the ring once the log has the records that were taken.
    pub(super) fn end_as(self, ending: Ending) {
        self.consumer.end(ending);
    }

    /// The end of the producer's records; `None` if the ring is broken, which the next drain reports.
    pub(super) fn end(&mut self) -> Option<u64> {
        self.consumer.look().ok()
    }

    /// True if all records below a position are handed over.
    pub(super) fn is_taken(&self, position: u64) -> bool {
        self.consumer.taken() >= position
    }

    /// Hands as much as fits into one buffer to the writer thread, which gives its place back to the producer.
    pub(super) fn drain(&mut self, inbox: &Inbox) -> Result<Progress, Gone> {
        let Some(mut buffer) = self.pool.take() else {
            return Ok(Progress::Waits);
        };
        let filled = self.fill(&mut buffer);
        let progress = match &filled {
            Ok(progress) => *progress,
            Err(broken) => {
                buffer.items.push(Item::Lost(Loss {
                    source: Some(self.source),
                    reason: LossReason::Malformed,
                    records: 1,
                    bytes: None,
                    detail: format!(
                        "the ring is broken, and its further records are unknown: {broken}"
                    ),
                }));
                Progress::Broken
            }
        };
        if buffer.items.is_empty() {
            self.pool.home().give_back(buffer);
        } else {
            let mut frames = Frames::new(&self.peer, buffer, self.pool.home());
            frames.place = Some(Place::new(self.consumer.batch(), &self.reserved));
            inbox.send(Message::Frames(frames))?;
        }
        if let Err(broken) = filled {
            self.refuse(&broken);
        }
        Ok(progress)
    }

    /// Copies records into a buffer until it is full or the ring is empty. Records that were copied before an error are sound.
    fn fill(&mut self, buffer: &mut Buffer) -> Result<Progress, Broken> {
        let mut open: Option<Open> = None;
        let mut filled = 0;
        let found = self.fill_records(buffer, &mut filled, &mut open);
        self.push_item(buffer, open, filled);
        let progress = found?;
        let dropped = self.consumer.dropped()?;
        if dropped > 0 {
            let counted = &self.reserved.clients.ring_dropped;
            counted.fetch_add(dropped, Ordering::Relaxed);
            buffer.items.push(Item::Lost(Loss {
                source: Some(self.source),
                reason: LossReason::Overload,
                records: dropped,
                bytes: None,
                detail: String::new(),
            }));
        }
        let is_idle = buffer.items.is_empty();
        Ok(if is_idle { Progress::Idle } else { progress })
    }

    fn fill_records(
        &mut self,
        buffer: &mut Buffer,
        filled: &mut usize,
        open: &mut Option<Open>,
    ) -> Result<Progress, Broken> {
        self.consumer.look()?;
        while let Some(head) = self.consumer.next()? {
            let shape = self.shape_of(head.bytes);
            let frame = match shape {
                Shape::Fixed { .. } => 0,
                Shape::Framed => 2,
            };
            let end = *filled + frame + usize::from(head.bytes);
            let Some(room) = buffer.bytes.get_mut(*filled..end) else {
                return Ok(Progress::Full);
            };
            let (length, record) = room.split_at_mut(frame);
            if frame > 0 {
                length.copy_from_slice(&head.bytes.to_le_bytes());
            }
            self.consumer.take(head, record);
            match open {
                Some(batch) if batch.shape == shape => batch.records += 1,
                _ => {
                    let before = open.replace(Open {
                        shape,
                        start: *filled,
                        records: 1,
                    });
                    self.push_item(buffer, before, *filled);
                }
            }
            *filled = end;
        }
        Ok(Progress::Drained)
    }

    /// Records of one length need no frames. From the first that differs on, all have frames.
    fn shape_of(&mut self, bytes: u16) -> Shape {
        if !self.varies && bytes > 0 && *self.record_bytes.get_or_insert(bytes) == bytes {
            return Shape::Fixed {
                record_bytes: bytes,
            };
        }
        self.varies = true;
        Shape::Framed
    }

    fn push_item(&self, buffer: &mut Buffer, batch: Option<Open>, end: usize) {
        if let Some(Open {
            shape,
            start,
            records,
        }) = batch
        {
            buffer.items.push(Item::Push {
                source: self.source,
                shape,
                range: start..end,
                records,
            });
        }
    }

    fn refuse(&mut self, broken: &Broken) {
        self.close();
        self.peer.answer_and_disconnect(&Reply::Error {
            request: None,
            code: ErrorCode::Malformed,
            message: format!("the ring of source {} is broken: {broken}", self.source),
        });
    }
}
