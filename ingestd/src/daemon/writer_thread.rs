//! The one thread that writes: takes batches in, publishes, ticks, and answers syncs.
//!
//! It never waits for a client, and never for the disk while it has other work: a message that finds the log full goes to the
//! backlog with the later ones of its connection, and other connections go on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use flume::RecvTimeoutError;
use loom_engine::{Error, SourceId, proven};

use super::backlog::Backlog;
use super::buffer::Item;
use super::fate::Outcome;
use super::message::{Frames, Message, Outlet};
use super::payload_batch::PayloadBatch;
use super::peer::Peer;
use super::recorder::Recorder;
use super::rings::Place;
use super::syncs::Syncs;
use crate::protocol::{ErrorCode, Reply};

/// The interval of the writer's clock and heartbeat. Records are published at once; each wake of an idle thread costs some 25 µs.
const TICK: Duration = Duration::from_millis(20);
/// Messages are taken in for so long before their records are published.
const DRAIN: Duration = Duration::from_millis(2);
/// A full log, or an fsync under way, is checked again after this time.
const RETRY: Duration = Duration::from_micros(500);

pub(super) struct WriterThread {
    recorder: Recorder,
    backlog: Backlog,
    syncs: Syncs,
    /// Places in rings whose records are taken in and not published yet.
    places: Vec<Place>,
    /// The connections that are owed a goodbye, once the daemon stops.
    stopping: Option<Vec<Arc<Peer>>>,
}

impl WriterThread {
    pub(super) fn new(recorder: Recorder) -> Self {
        WriterThread {
            recorder,
            backlog: Backlog::default(),
            syncs: Syncs::default(),
            places: Vec::new(),
            stopping: None,
        }
    }

    /// Takes messages until one says stop, or no sender is left; then closes the log.
    pub(super) fn run(mut self, outlet: &Outlet) -> Result<(), Error> {
        let inbox = outlet.messages();
        let mut last_tick = Instant::now();
        loop {
            match inbox.recv_timeout(self.patience(last_tick)) {
                Ok(message) => {
                    self.take(message);
                    let began = Instant::now();
                    while began.elapsed() < DRAIN
                        && let Ok(message) = inbox.try_recv()
                    {
                        self.take(message);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // Messages that wait for room or for the disk are still owed.
                    self.stopping.get_or_insert_default();
                    std::thread::sleep(RETRY);
                }
            }
            let mut backlog = std::mem::take(&mut self.backlog);
            backlog.retry(|message| self.attempt(message));
            self.recorder.waiting_connections = backlog.connections();
            self.backlog = backlog;
            self.recorder.keep_house();
            let tick = last_tick.elapsed() >= TICK;
            if tick {
                last_tick = Instant::now();
            }
            if self.recorder.publish(tick) {
                self.places.drain(..).for_each(Place::stored);
            }
            self.syncs.answer(&mut self.recorder);
            if self.backlog.is_empty()
                && self.syncs.is_empty()
                && let Some(peers) = self.stopping.take()
            {
                return self.finish(&peers);
            }
        }
    }

    fn patience(&self, last_tick: Instant) -> Duration {
        if self.backlog.is_empty() && self.syncs.is_empty() {
            TICK.saturating_sub(last_tick.elapsed())
        } else {
            RETRY
        }
    }

    fn take(&mut self, message: Message) {
        let full = if Backlog::holds_back(&message) {
            Some(message)
        } else {
            self.attempt(message)
        };
        if let Some(message) = full {
            self.backlog.add(message);
            // The next status reports it.
            self.recorder.waiting_connections = self.backlog.connections();
        }
    }

    /// Carries a message out. Gives back one that found the log full.
    fn attempt(&mut self, message: Message) -> Option<Message> {
        match message {
            Message::Frames(frames) => self.attempt_frames(frames).map(Message::Frames),
            Message::Request { peer, request } => {
                self.recorder.carry_out(peer.as_deref(), request);
                None
            }
            Message::Stop { peers } => {
                self.stopping = Some(peers);
                None
            }
        }
    }

    fn attempt_frames(&mut self, mut frames: Frames) -> Option<Frames> {
        let peer = Arc::clone(&frames.peer);
        // Nobody waits for the records of an inlet; a client's wait for room in the log.
        let gives_up = peer.is_inlet && self.stopping.is_some();
        if let Some(place) = &frames.place {
            place.storing();
        }
        while let Some(item) = frames.buffer.items.get(frames.next_item) {
            match item {
                Item::Sync { depth, answer } => {
                    let durability = self.recorder.durability;
                    self.syncs.note(&peer, answer.clone(), *depth, durability);
                }
                Item::Own { source, range } => {
                    let payload = proven::at(&frames.buffer.bytes, range.clone());
                    if !self.recorder.store_own(*source, payload) {
                        if !gives_up {
                            return Some(frames);
                        }
                        self.recorder.lose_own(Some(*source), 1);
                    }
                }
                Item::Lost(loss) => self.recorder.enter_unstored(&peer, loss),
                Item::Push {
                    source,
                    shape,
                    range,
                    records,
                } => {
                    let rest = range.start + frames.taken_bytes..range.end;
                    let payloads = PayloadBatch {
                        shape: *shape,
                        bytes: proven::at(&frames.buffer.bytes, rest),
                        records: records - frames.taken_records,
                    };
                    match self.recorder.push(&peer, *source, &payloads, gives_up) {
                        Outcome::Taken => {}
                        Outcome::Full { bytes, records } => {
                            frames.taken_bytes += bytes;
                            frames.taken_records += records;
                            return Some(frames);
                        }
                        // The other pushes of the buffer are taken in: they came before the connection is cut.
                        Outcome::NoSuchSource => {
                            // A kill must not reach the losses once the client learns of them.
                            let Recorder { losses, writer, .. } = &mut self.recorder;
                            losses.keep_pending(writer);
                            no_such_source(&peer, *source);
                        }
                    }
                }
            }
            frames.next_item += 1;
            frames.taken_bytes = 0;
            frames.taken_records = 0;
        }
        self.places.extend(frames.place);
        frames.home.give_back(frames.buffer);
        None
    }

    /// Closes the log, then reports to each connection the outcome of its records.
    fn finish(mut self, peers: &[Arc<Peer>]) -> Result<(), Error> {
        self.recorder.lose_clock_steps();
        let Recorder {
            mut writer,
            mut losses,
            ..
        } = self.recorder;
        let recorded = losses.finish(&mut writer);
        let position = writer.position();
        let closed = recorded.and_then(|()| writer.close());
        if closed.is_ok() {
            self.places.into_iter().for_each(Place::stored);
        }
        for peer in peers {
            let reply = match &closed {
                Ok(()) => Reply::Goodbye(peer.account().synced(position)),
                Err(error) => Reply::Error {
                    request: None,
                    code: ErrorCode::Failed,
                    message: error.to_string(),
                },
            };
            peer.answer_and_disconnect(&reply);
        }
        closed
    }
}

/// A client that pushes to a source that does not exist gets an error, and is disconnected.
fn no_such_source(peer: &Peer, source: SourceId) {
    peer.answer_and_disconnect(&Reply::Error {
        request: None,
        code: ErrorCode::NotFound,
        message: format!("no source has the id {source}; define the source first"),
    });
}

#[cfg(test)]
mod tests {
    use loom_engine::query::{Directory, Poll};
    use loom_engine::schema::{ALERTS_SOURCE, LossReason, SourceDef};

    use super::*;
    use crate::daemon::inlet::Inlet;
    use crate::daemon::message::{Inbox, Request};
    use crate::daemon::testing::{Scene, recorder};
    use crate::protocol::Counts;
    use crate::rules::records::alerts_source;
    use crate::testing::small_writer;

    #[test]
    fn an_alert_that_finds_no_room_before_a_stop_is_counted() {
        let place = tempfile::tempdir().unwrap();
        let (dir, mut writer) = small_writer(place.path());
        let alerts = writer.define_builtin_source(&alerts_source()).unwrap();
        let recorder = recorder(writer);
        let (inbox, outlet) = Inbox::new();
        let mut inlet = Inlet::open(&inbox).unwrap();
        // No chunk has room for it, now or later.
        assert!(inlet.add_own(alerts, &[7; 8 << 10]).unwrap());
        inlet.flush().unwrap();
        let peers = Vec::new();
        inbox.send(Message::Stop { peers }).unwrap();
        WriterThread::new(recorder).run(&outlet).unwrap();
        let snapshot = Directory::open(&dir).unwrap().snapshot().unwrap();
        let losses = snapshot.losses(&Poll::never()).unwrap();
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert_eq!(losses[0].source.as_deref(), Some(ALERTS_SOURCE));
        assert_eq!(losses[0].records, Some(1));
        assert_eq!(losses[0].reason, "overload");
    }

    // G9
    #[test]
    fn the_losses_of_a_sync_are_counted_before_its_answer_unless_it_fails() {
        let mut source = None;
        let scene = Scene::start(|writer| {
            source = Some(writer.define_source(&SourceDef::new("x")).unwrap());
        });
        let mut inlet = scene.inlet();
        let mut settle = |records| {
            inlet.lose(source, LossReason::Malformed, records, "wrong".to_owned());
            inlet.settle().unwrap().map(|synced| synced.counts)
        };
        let refused = || scene.inbox.ask(Request::Status).unwrap().sources[0].refused;
        assert_eq!(settle(3), Ok(Counts::default()));
        let snapshot = Directory::open(&scene.dir).unwrap().snapshot().unwrap();
        let losses = snapshot.losses(&Poll::never()).unwrap();
        assert_eq!(losses.len(), 1, "{losses:?}");
        assert_eq!((losses[0].records, refused()), (Some(3), 3));

        std::fs::rename(&scene.dir, scene.dir.with_extension("moved")).unwrap();
        while settle(0).is_ok() {
            std::thread::yield_now();
        }
        assert!(settle(7).is_err());
        assert_eq!(refused(), 3);
    }
}
