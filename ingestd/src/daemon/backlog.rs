//! Messages whose connection waits for room in the log, in the order in which they came.
//!
//! A connection waits whole: once one of its messages is here, later ones follow it, and other connections go on.

use std::collections::{BTreeSet, VecDeque};

use super::message::Message;

#[derive(Default)]
pub(super) struct Backlog {
    messages: VecDeque<Message>,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// The number of clients that wait.
    pub(super) fn connections(&self) -> u64 {
        let peers = self.messages.iter().filter_map(Message::peer);
        let clients = peers.filter(|peer| !peer.is_inlet);
        clients.map(|peer| peer.id).collect::<BTreeSet<u64>>().len() as u64
    }

    /// True if a message must wait, because its connection does.
    pub(super) fn holds_back(message: &Message) -> bool {
        (message.peer()).is_some_and(|peer| peer.account().waiting > 0)
    }

    pub(super) fn add(&mut self, message: Message) {
        if let Some(peer) = message.peer() {
            peer.account().waiting += 1;
        }
        self.messages.push_back(message);
    }

    /// Attempts each message again, in order. `attempt` gives back a message that finds no room, and those behind it wait on.
    pub(super) fn retry(&mut self, mut attempt: impl FnMut(Message) -> Option<Message>) {
        let mut still_full = BTreeSet::new();
        for _ in 0..self.messages.len() {
            let Some(message) = self.messages.pop_front() else {
                return;
            };
            let peer = message.peer().cloned();
            let id = peer.as_ref().map(|peer| peer.id);
            let left = if id.is_some_and(|id| still_full.contains(&id)) {
                Some(message)
            } else {
                attempt(message)
            };
            match left {
                Some(message) => {
                    still_full.extend(id);
                    self.messages.push_back(message);
                }
                None => {
                    if let Some(peer) = peer {
                        peer.account().waiting -= 1;
                    }
                }
            }
        }
    }
}
