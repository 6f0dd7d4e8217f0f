//! What all requests share, however they come: who may send, how long a body may be, and what all bodies may take together.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::HeaderMap;
use hyper::body::Incoming;
use hyper::header::AUTHORIZATION;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::handler::{Jobs, NotTaken, Sent, Taken};

/// How long a sender may take to send a request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// How a token is given; the word has no case (RFC 9110, 11.1).
const SCHEME: &[u8] = b"Bearer ";
/// What a sender learns that finds no room for its body.
pub(crate) const BUSY: &str = "too many requests are being received; try again";
/// When a sender that finds the daemon busy is to come again.
pub(crate) const RETRY_AFTER_SECONDS: &str = "1";
/// When a sender that a limit refuses is to come again.
pub(crate) const LIMITED_RETRY_AFTER_SECONDS: u32 = 60;
/// What the bodies of all requests may take together, in longest bodies.
const BODIES_MAX: usize = 4;

/// What every request is answered with.
pub(crate) struct Service {
    pub(crate) jobs: Jobs,
    pub(crate) body_bytes_max: usize,
    /// Without it, everybody may send.
    token: Option<String>,
    room: Arc<Semaphore>,
    open: Arc<AtomicUsize>,
}

/// A request under way, until it is dropped.
pub(crate) struct UnderWay(Arc<AtomicUsize>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Service {
    pub(crate) fn new(jobs: Jobs, body_bytes_max: usize, token: Option<String>) -> Service {
        Service {
            jobs,
            body_bytes_max,
            token,
            room: Arc::new(Semaphore::new(BODIES_MAX * body_bytes_max)),
            open: Arc::default(),
        }
    }

    pub(crate) fn under_way(&self) -> UnderWay {
        self.open.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(&self.open))
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    /// Whether the sender has the token, if one is needed.
    pub(crate) fn admits(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else {
            return true;
        };
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let given = given.and_then(|given| given.split_at_checked(SCHEME.len()));
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(SCHEME));
        given.is_some_and(|(_, given)| is_equal(given, token.as_bytes()))
    }

    /// The body of a request, as far as there is room for it.
    pub(crate) fn metered(&self, body: Incoming) -> Metered {
        Metered {
            body,
            held: self.held(),
        }
    }

    /// The room of one body, of which nothing is taken yet.
    pub(crate) fn held(&self) -> Held {
        Held {
            room: Arc::clone(&self.room),
            permit: None,
        }
    }

    /// Room for what a body unpacks to.
    pub(crate) fn room_for(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let room = Arc::clone(&self.room);
        room.try_acquire_many_owned(u32::try_from(bytes).ok()?).ok()
    }

    pub(crate) async fn take(&self, sent: Sent) -> Result<Taken, NotTaken> {
        self.jobs.take(sent).await
    }
}

/// In a time that says nothing of where they differ.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    one.len() == other.len() && differ == 0
}

/// A body that ends with an error where all bodies together take too much.
pub(crate) struct Metered {
    body: Incoming,
    held: Held,
}

/// What one body takes of the room of all, until it is dropped.
pub(crate) struct Held {
    room: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Body for Metered {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = std::task::ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame.map_err(|error| Status::from_error(error.into()))?;
            if let Some(bytes) = frame.data_ref() {
                self.held.add(bytes.len())?;
            }
            Ok(frame)
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Held {
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), Status> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let more = Arc::clone(&self.room).try_acquire_many_owned(bytes);
        let more = more.map_err(|_| Status::unavailable(BUSY))?;
        match &mut self.permit {
            Some(permit) => permit.merge(more),
            None => self.permit = Some(more),
        }
        Ok(())
    }
}
