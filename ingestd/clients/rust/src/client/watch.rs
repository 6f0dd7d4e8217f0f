//! A thread that sleeps until a connection ends, and then closes the rings. In this way a push, which only looks at its ring, notices that the daemon
//! is gone.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use super::hang_up::HangUp;
use crate::ring::{Closer, Producer};

/// The thread only waits and closes.
const STACK_BYTES: usize = 64 << 10;

pub(super) struct Watch {
    watched: Arc<Mutex<Watched>>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Watched {
    has_ended: bool,
    rings: Vec<Closer>,
}

impl Watch {
    pub(super) fn start(connection: HangUp) -> io::Result<Watch> {
        let watched = Arc::<Mutex<Watched>>::default();
        let thread = std::thread::Builder::new()
            .name("loom-ring-watch".to_owned())
            .stack_size(STACK_BYTES)
            .spawn({
                let watched = Arc::clone(&watched);
                move || {
                    connection.wait();
                    let mut watched = lock(&watched);
                    watched.has_ended = true;
                    watched.rings.drain(..).for_each(|ring| ring.close());
                }
            })?;
        Ok(Watch { watched, thread })
    }

    /// Closes this ring too once the connection ends.
    pub(super) fn add(&self, ring: &Producer) {
        let mut watched = lock(&self.watched);
        if watched.has_ended {
            ring.closer().close();
        } else {
            watched.rings.push(ring.closer());
        }
    }

    /// Waits for the thread after the connection has ended.
    pub(super) fn join(self) {
        // The thread has no state that a panic could leave half done.
        let _ = self.thread.join();
    }
}

fn lock(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}
