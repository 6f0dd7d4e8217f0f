//! The way of all requests to the handler: one at a time, in a thread that may wait for a disk. The number of requests that wait is limited, and so is
//! the room that their bodies take together.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::{JoinError, spawn_blocking};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::body::room_for;
use crate::from_json;
use crate::handler::{Handler, NotTaken, Taken};
use crate::signal::Signal;
use crate::utf8::REPAIRED;

/// When a sender that a limit refuses is to come again.
pub(crate) const LIMITED_RETRY_AFTER: Duration = Duration::from_secs(60);
/// The room for the bodies of all requests, in longest bodies.
const BODIES_MAX: usize = 4;
/// Requests that wait for the handler; a sender of one more is asked to come again.
const WAITING_MAX: usize = 16;

pub(crate) struct Service {
    handler: Arc<Mutex<dyn Handler>>,
    places: Arc<Semaphore>,
    pub(crate) body_bytes_max: usize,
    /// How many bytes the bodies of all requests may still take.
    pub(crate) room: Arc<Semaphore>,
}

impl Service {
    pub(crate) fn new(handler: impl Handler, body_bytes_max: usize) -> Service {
        Service {
            handler: Arc::new(Mutex::new(handler)),
            places: Arc::new(Semaphore::new(WAITING_MAX)),
            body_bytes_max,
            room: Arc::new(Semaphore::new(BODIES_MAX * body_bytes_max)),
        }
    }

    pub(crate) async fn take(
        &self,
        signal: Signal,
        is_json: bool,
        from: IpAddr,
        body: Bytes,
    ) -> Result<Taken, Status> {
        let _held = room_for(&self.room, body.len())?;
        let taken = self.hand(move |handler| match is_json {
            true => take_json(handler, signal, from, &body),
            false => handler.take(signal, from, &body),
        });
        let Some(taken) = taken else {
            let why = format!("{WAITING_MAX} requests wait already; try again");
            return Err(Status::unavailable(why));
        };
        // The log has the message of a handler that panics.
        let taken = taken.await;
        let taken = taken.map_err(|_| Status::unavailable("the request failed; try again"))?;
        taken.map_err(|error| match error {
            NotTaken::Busy(why) => Status::unavailable(why),
            NotTaken::Limited(why) => {
                // Without a time to come again, a sender drops the request.
                let details = ErrorDetails::with_retry_info(Some(LIMITED_RETRY_AFTER));
                Status::with_error_details(Code::ResourceExhausted, why, details)
            }
            NotTaken::Malformed(error) => Status::invalid_argument(error.to_string()),
        })
    }

    /// Reports to the handler. False if too many requests wait for it now.
    pub(crate) fn tell(&self, word: impl FnOnce(&mut dyn Handler) + Send + 'static) -> bool {
        self.hand(word).map(tokio::spawn).is_some()
    }

    /// Runs some work with the handler, unless too much waits for it.
    fn hand<R, W>(&self, work: W) -> Option<impl Future<Output = Result<R, JoinError>> + use<R, W>>
    where
        R: Send + 'static,
        W: FnOnce(&mut dyn Handler) -> R + Send + 'static,
    {
        let place = Arc::clone(&self.places).try_acquire_owned().ok()?;
        let handler = Arc::clone(&self.handler);
        Some(async move {
            let mut handler = handler.lock_owned().await;
            let done = spawn_blocking(move || work(&mut *handler)).await;
            drop(place);
            done
        })
    }
}

/// Takes what can be read of a request in JSON, and counts the rest with it.
fn take_json(
    handler: &mut dyn Handler,
    signal: Signal,
    from: IpAddr,
    body: &[u8],
) -> Result<Taken, NotTaken> {
    let read = from_json::protobuf(signal, body).inspect_err(|error| {
        handler.turned_away(signal, 1, &error.to_string());
    })?;
    let mut taken = handler.take(signal, from, &read.protobuf)?;
    if let Some((count, why)) = &read.refused {
        handler.turned_away(signal, *count, why);
        taken.refuse(*count, why);
    }
    if read.is_repaired {
        taken.refuse(0, REPAIRED);
    }
    Ok(taken)
}
