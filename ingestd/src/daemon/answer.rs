//! Waits for the writer thread: for the answer to a question, or for a buffer that comes back. A thread that waits learns if that thread is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flume::{Receiver, RecvTimeoutError, Sender, bounded};

/// A thread that waits checks so often that the writer thread lives: a request that it had not taken is never answered.
const CHECK: Duration = Duration::from_secs(1);

/// The writer thread has ended.
#[derive(Debug)]
pub(crate) struct Gone;

/// True while the writer thread lives. It is cleared once, and guards no other memory.
#[derive(Clone)]
pub(super) struct Alive(Arc<AtomicBool>);

impl Alive {
    pub(super) fn new() -> Alive {
        Alive(Arc::new(AtomicBool::new(true)))
    }

    pub(super) fn end(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn wait<T>(&self, from_writer: &Receiver<T>) -> Result<T, Gone> {
        loop {
            match from_writer.recv_timeout(CHECK) {
                Ok(sent) => return Ok(sent),
                Err(RecvTimeoutError::Timeout) if self.get() => {}
                Err(_) => return Err(Gone),
            }
        }
    }
}

/// The channel for the answer to one question.
#[derive(Clone)]
pub(super) struct Answer<T>(Sender<T>);

impl<T> Answer<T> {
    pub(super) fn new() -> (Answer<T>, Receiver<T>) {
        let (sender, receiver) = bounded(1);
        (Answer(sender), receiver)
    }

    /// An asker that is gone needs no answer.
    pub(super) fn give(&self, answer: T) {
        let _ = self.0.send(answer);
    }
}
