//! Syncs that are not answered yet: they wait for the next publish, or until the records before them are durable.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use loom_engine::Address;
use loom_engine::ingest::Writer;
use loom_engine::log::Durability;

use super::buffer::SyncAnswer;
use super::peer::Peer;
use super::recorder::Recorder;
use crate::protocol::{Depth, ErrorCode, Reply, Synced};

/// A sync waits so long for a disk that takes nothing, before it is answered with the trouble.
const TROUBLE_PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(super) struct Syncs {
    /// Reached since the last publish.
    fresh: Vec<Pending>,
    /// Published, and waiting for the disk; the oldest first.
    to_be_durable: VecDeque<Pending>,
}

struct Pending {
    peer: Arc<Peer>,
    answer: SyncAnswer,
    must_be_durable: bool,
    /// The counts when the sync was reached, without its losses; the position is filled in once it is published.
    synced: Synced,
    /// The writer's ticket, and when it was drawn.
    ticket: u64,
    since: Instant,
}

impl Syncs {
    pub(super) fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.to_be_durable.is_empty()
    }

    /// A sync is reached: all earlier records of its connection are taken in.
    pub(super) fn note(
        &mut self,
        peer: &Arc<Peer>,
        answer: SyncAnswer,
        depth: Depth,
        durability: Durability,
    ) {
        self.fresh.push(Pending {
            peer: Arc::clone(peer),
            answer,
            must_be_durable: depth == Depth::Durable || durability == Durability::Batch,
            synced: peer.account().synced(Address::ZERO),
            ticket: 0,
            since: Instant::now(),
        });
    }

    /// Answers the fresh syncs, now that everything taken in is published, unless that failed, and those that are durable.
    pub(super) fn answer(&mut self, recorder: &mut Recorder) {
        match recorder.trouble() {
            Some(message) => (self.fresh.drain(..)).for_each(|pending| pending.fail(message)),
            None => self.answer_fresh(recorder),
        }
        self.answer_durable(&recorder.writer);
    }

    fn answer_fresh(&mut self, recorder: &mut Recorder) {
        let position = recorder.writer.position();
        self.count_losses(recorder);
        let writer = &mut recorder.writer;
        // One ticket serves all syncs of this round.
        let mut ticket = None;
        for mut pending in self.fresh.drain(..) {
            pending.synced.position = position;
            if !pending.must_be_durable {
                pending.succeed();
                continue;
            }
            match ticket.get_or_insert_with(|| writer.request_sync()) {
                Ok(ticket) => {
                    pending.ticket = *ticket;
                    self.to_be_durable.push_back(pending);
                }
                Err(error) => pending.fail(&error.to_string()),
            }
        }
    }

    /// Counts the losses of the fresh syncs. The ticket that is drawn next makes them durable with the records.
    fn count_losses(&self, recorder: &mut Recorder) {
        let mut is_any = false;
        for pending in &self.fresh {
            for loss in pending.answer.losses() {
                recorder.enter_unstored(&pending.peer, loss);
                is_any = true;
            }
        }
        if is_any {
            recorder.losses.settle(&mut recorder.writer);
        }
    }

    fn answer_durable(&mut self, writer: &Writer) {
        while let Some(pending) = self.to_be_durable.pop_front() {
            match writer.is_synced(pending.ticket) {
                Ok(true) => pending.succeed(),
                Ok(false) => match writer.trouble() {
                    Some(message) if pending.since.elapsed() > TROUBLE_PATIENCE => {
                        pending.fail(&message)
                    }
                    _ => return self.to_be_durable.push_front(pending),
                },
                Err(error) => pending.fail(&error.to_string()),
            }
        }
    }
}

impl Pending {
    fn succeed(self) {
        match self.answer {
            SyncAnswer::Inlet { answer, .. } => answer.give(Ok(self.synced)),
            SyncAnswer::Client(request) => {
                let synced = self.synced;
                self.peer.answer_at_once(&Reply::Synced { request, synced });
            }
        }
    }

    fn fail(self, message: &str) {
        let message = message.to_owned();
        match self.answer {
            SyncAnswer::Inlet { answer, .. } => answer.give(Err(message)),
            SyncAnswer::Client(request) => {
                self.peer.answer_at_once(&Reply::Error {
                    request: Some(request),
                    code: ErrorCode::Failed,
                    message,
                });
            }
        }
    }
}
