//! The body of a request as it is received: within the room that all bodies share, which is counted in bytes and not in requests, so that slow
//! senders of little take little of it; and to the end, also where the request is refused, for a sender that is cut off does not read why.

use std::error::Error;
use std::iter::successors;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use bytes::Bytes;
use http_body::Frame;
use http_body_util::{BodyExt, LengthLimitError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tower_http::timeout::TimeoutError;

/// What a sender learns that finds no room for its body.
pub(crate) const BUSY: &str = "too many requests are being received; try again";
/// How long what is left of a refused request is read.
const DRAIN: Duration = Duration::from_secs(2);

/// A body that two can read on: who takes it, and then who answers.
#[derive(Clone)]
pub(crate) struct Received(Arc<Mutex<Inner>>);

struct Inner {
    body: Body,
    /// The room of all bodies; none once the request is refused.
    room: Option<Arc<Semaphore>>,
    held: Option<OwnedSemaphorePermit>,
}

impl Received {
    pub(crate) fn new(body: Body, room: &Arc<Semaphore>) -> Received {
        Received(Arc::new(Mutex::new(Inner {
            body,
            room: Some(Arc::clone(room)),
            held: None,
        })))
    }

    /// Reads what is left, as far as that is soon done.
    pub(crate) async fn drain(mut self, bytes_max: usize) {
        self.inner().release();
        let reading = async {
            let mut left = bytes_max;
            while let Some(Ok(frame)) = self.frame().await {
                match left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) {
                    Some(less) => left = less,
                    None => return,
                }
            }
        };
        let _ = tokio::time::timeout(DRAIN, reading).await;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let mut inner = self.inner();
        let frame = ready!(Pin::new(&mut inner.body).poll_frame(context));
        if frame.is_none() {
            // Who has all of it takes room for what it makes of it.
            inner.held = None;
        }
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            inner.hold(frame.data_ref().map_or(0, Bytes::len))?;
            Ok(frame)
        }))
    }
}

impl Inner {
    fn release(&mut self) {
        (self.room, self.held) = (None, None);
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Status> {
        let Some(room) = &self.room else {
            return Ok(());
        };
        let more = room_for(room, bytes)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

pub(crate) fn room_for(
    room: &Arc<Semaphore>,
    bytes: usize,
) -> Result<OwnedSemaphorePermit, Status> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let found = Arc::clone(room).try_acquire_many_owned(bytes);
    found.map_err(|_| Status::unavailable(BUSY))
}

/// Why a body cannot be read: layers wrap their errors in each other.
pub(crate) fn unread(error: axum::Error) -> Status {
    let is = |found: fn(&(dyn Error + 'static)) -> bool| {
        let first: &(dyn Error + 'static) = &error;
        successors(Some(first), |error| (*error).source()).any(found)
    };
    if is(|error| error.is::<LengthLimitError>()) {
        return Status::out_of_range("the request is too long");
    }
    if is(|error| error.is::<TimeoutError>()) {
        return Status::deadline_exceeded("the request took more than 30 seconds");
    }
    if is(|error| error.is::<hyper::Error>()) {
        return Status::cancelled("the request was cut short");
    }
    Status::try_from_error(error.into())
        .unwrap_or_else(|error| Status::internal(format!("the body is not gzip or zstd: {error}")))
}
