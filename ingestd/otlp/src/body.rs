//! The body of a request. All bodies share one limit of bytes, not of requests, so a slow sender takes little of it. A body is read to its end even
//! if the request is refused, because a sender that is cut off does not read the reason.

use std::error::Error;
use std::iter::successors;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
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

/// How long the rest of a refused request is read.
const DRAIN: Duration = Duration::from_secs(2);

/// A body with two readers: first the route of its request, then the answer to a refused one.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Body>>);

impl Shared {
    pub(crate) fn new(body: Body) -> Shared {
        Shared(Arc::new(Mutex::new(body)))
    }

    /// Reads the rest, for a short time.
    pub(crate) async fn drain(mut self, bytes_max: usize) {
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
}

impl http_body::Body for Shared {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut body = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut *body).poll_frame(context)
    }
}

/// A body that is collected. It ends with an error if all bodies together are too long.
pub(crate) struct Metered {
    body: Body,
    room: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Metered {
    pub(crate) fn new(body: Body, room: &Arc<Semaphore>) -> Metered {
        Metered {
            body,
            room: Arc::clone(room),
            held: None,
        }
    }

    fn hold(&mut self, bytes: usize) -> Result<(), Status> {
        let more = room_for(&self.room, bytes)?;
        match &mut self.held {
            Some(held) => held.merge(more),
            None => self.held = Some(more),
        }
        Ok(())
    }
}

impl http_body::Body for Metered {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(frame.map(|frame| {
            let frame = frame?;
            self.hold(frame.data_ref().map_or(0, Bytes::len))?;
            Ok(frame)
        }))
    }
}

/// A share of the limit that is freed when this is dropped.
pub(crate) fn room_for(
    room: &Arc<Semaphore>,
    bytes: usize,
) -> Result<OwnedSemaphorePermit, Status> {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    let found = Arc::clone(room).try_acquire_many_owned(bytes);
    found.map_err(|_| Status::unavailable("too many requests are being received; try again"))
}

/// Why a body cannot be read. Layers wrap their errors in each other.
pub(crate) fn unread(error: impl Into<BoxError>) -> Status {
    let error = error.into();
    let is = |found: fn(&(dyn Error + 'static)) -> bool| {
        let first: &(dyn Error + 'static) = &*error;
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
    Status::try_from_error(error)
        .unwrap_or_else(|error| Status::internal(format!("the body is not gzip: {error}")))
}
