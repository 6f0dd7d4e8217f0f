//! Hands requests to the handler: one at a time, in a thread that may wait for a disk. The number of requests that wait is limited, and so is
//! the room that their bodies take together. Refusals before the handler are counted there too, as soon as it is free, and again if it fails.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Mutex as AsyncMutex, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::body::room_for;
use crate::from_json;
use crate::handler::{Handler, NotTaken, Taken};
use crate::signal::Signal;
use crate::utf8::REPAIRED;

/// A sender that a limit refuses is to come again after this time.
pub(crate) const LIMITED_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Connections that are served at a time.
pub(crate) const CONNECTIONS_MAX: usize = 256;
/// The room for the bodies of all requests, in longest bodies.
const BODIES_MAX: usize = 4;
/// Requests that wait for the handler; a sender of one more is asked to come again.
const WAITING_MAX: usize = 16;
/// Causes of refusals that wait to be counted; others are counted together.
const CAUSES_MAX: usize = 16;
/// The tries to count what is owed, and the time between them, in which the cause of a failure may pass.
const TRIES_MAX: u32 = 10;
const TRY_AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct Service {
    hands: Arc<AsyncMutex<Hands>>,
    places: Semaphore,
    owed: Arc<Mutex<Owed>>,
    pub(crate) body_bytes_max: usize,
    /// The bytes that the bodies of all requests may still take.
    pub(crate) room: Arc<Semaphore>,
}

/// The handler, unless it panicked: it may have half of a request then, so another one begins.
struct Hands {
    handler: Option<Box<dyn Handler>>,
    begin: Box<dyn Fn() -> io::Result<Box<dyn Handler>> + Send>,
}

impl Hands {
    fn work<R>(&mut self, work: impl FnOnce(&mut dyn Handler) -> R) -> io::Result<R> {
        let mut handler = match self.handler.take() {
            Some(handler) => handler,
            None => (self.begin)()?,
        };
        let done = work(&mut *handler);
        self.handler = Some(handler);
        Ok(done)
    }
}

/// Refusals that the handler has not counted yet.
#[derive(Default)]
struct Owed {
    causes: VecDeque<(Cause, u64)>,
    /// They wait for the handler.
    is_due: bool,
}

#[derive(PartialEq, Eq)]
enum Cause {
    TurnedAway(Signal, String),
    /// A connection was closed at once.
    Closed,
}

impl Owed {
    fn add(&mut self, cause: Cause, count: u64) {
        let cause = match cause {
            Cause::TurnedAway(signal, why) if !self.has_room_for(&why) => {
                Cause::TurnedAway(signal, "several".to_owned())
            }
            cause => cause,
        };
        match self.causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, owed)) => *owed += count,
            None => self.causes.push_back((cause, count)),
        }
    }

    fn has_room_for(&self, why: &str) -> bool {
        let is_known = |cause: &Cause| matches!(cause, Cause::TurnedAway(_, known) if known == why);
        self.causes.len() < CAUSES_MAX || self.causes.iter().any(|(cause, _)| is_known(cause))
    }
}

/// Refusals that are being counted. Those that are left when the handler panics are owed again.
struct Counting<'a> {
    owed: &'a Mutex<Owed>,
    left: VecDeque<(Cause, u64)>,
}

impl Counting<'_> {
    /// Takes all that is owed now: others owe meanwhile, because counting waits for the log, and nobody may wait for this lock.
    fn begin(owed: &Mutex<Owed>) -> Counting<'_> {
        let left = std::mem::take(&mut *lock(owed)).causes;
        Counting { owed, left }
    }

    fn count(mut self, handler: &mut dyn Handler) {
        while let Some((cause, count)) = self.left.front() {
            match cause {
                Cause::TurnedAway(signal, why) => handler.turned_away(*signal, *count, why),
                Cause::Closed => handler.closed(*count, CONNECTIONS_MAX),
            }
            self.left.pop_front();
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        // The handler panicked at the first one, which may not keep it from the others.
        let failed = self.left.pop_front();
        self.left.extend(failed);
        let mut owed = lock(self.owed);
        for (cause, count) in self.left.drain(..) {
            owed.add(cause, count);
        }
    }
}

fn lock(owed: &Mutex<Owed>) -> MutexGuard<'_, Owed> {
    owed.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    pub(crate) fn new<H: Handler>(
        begin: impl Fn() -> io::Result<H> + Send + 'static,
        body_bytes_max: usize,
    ) -> io::Result<Service> {
        let begin = move || Ok(Box::new(begin()?) as Box<dyn Handler>);
        let hands = Hands {
            handler: Some(begin()?),
            begin: Box::new(begin),
        };
        Ok(Service {
            hands: Arc::new(AsyncMutex::new(hands)),
            places: Semaphore::new(WAITING_MAX),
            owed: Arc::default(),
            body_bytes_max,
            room: Arc::new(Semaphore::new(BODIES_MAX * body_bytes_max)),
        })
    }

    pub(crate) async fn take(
        &self,
        signal: Signal,
        is_json: bool,
        from: IpAddr,
        body: Bytes,
    ) -> Result<Taken, Status> {
        let _held = room_for(&self.room, body.len())?;
        let Ok(_place) = self.places.try_acquire() else {
            let why = format!("{WAITING_MAX} requests wait already; try again");
            return Err(Status::unavailable(why));
        };
        let taken = hand(&self.hands, move |handler| match is_json {
            true => take_json(handler, signal, from, &body),
            false => handler.take(signal, from, &body),
        });
        taken.await?.map_err(|error| match error {
            NotTaken::Busy(why) => Status::unavailable(why),
            NotTaken::Limited(why) => {
                // Without a time to come again, a sender drops the request.
                let details = ErrorDetails::with_retry_info(Some(LIMITED_RETRY_AFTER));
                Status::with_error_details(Code::ResourceExhausted, why, details)
            }
            NotTaken::Malformed(error) => Status::invalid_argument(error.to_string()),
        })
    }

    /// Counts a request that was refused before it reached the handler.
    pub(crate) fn turned_away(&self, signal: Signal, why: &str) {
        self.owe(Cause::TurnedAway(signal, why.to_owned()), 1);
    }

    /// Counts connections that were closed at once.
    pub(crate) fn closed(&self, count: u64) {
        self.owe(Cause::Closed, count);
    }

    fn owe(&self, cause: Cause, count: u64) {
        let mut owed = lock(&self.owed);
        owed.add(cause, count);
        if !std::mem::replace(&mut owed.is_due, true) {
            let (hands, owed) = (Arc::clone(&self.hands), Arc::clone(&self.owed));
            tokio::spawn(settle(hands, owed));
        }
    }
}

/// Has the handler count what is owed.
async fn settle(hands: Arc<AsyncMutex<Hands>>, owed: Arc<Mutex<Owed>>) {
    let mut trouble = String::new();
    for _ in 0..TRIES_MAX {
        let taken = Arc::clone(&owed);
        let counted = hand(&hands, move |handler| {
            Counting::begin(&taken).count(handler)
        });
        match counted.await {
            Ok(()) => return,
            Err(status) => status.message().clone_into(&mut trouble),
        }
        sleep(TRY_AGAIN).await;
    }
    tracing::error!("refusals over OTLP are not counted until there is another: {trouble}");
    lock(&owed).is_due = false;
}

/// Works with the handler, after everything that waits for it already.
async fn hand<R, W>(hands: &Arc<AsyncMutex<Hands>>, work: W) -> Result<R, Status>
where
    R: Send + 'static,
    W: FnOnce(&mut dyn Handler) -> R + Send + 'static,
{
    let mut hands = Arc::clone(hands).lock_owned().await;
    let done = spawn_blocking(move || hands.work(work)).await;
    // The log has the message of a handler that panics.
    let done = done.map_err(|_| Status::unavailable("the request failed; try again"))?;
    done.map_err(|error| Status::unavailable(format!("{error}; try again")))
}

/// Takes the readable part of a request in JSON, and counts the rest with it.
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tokio::runtime::{Builder, Runtime};
    use tokio::task::yield_now;

    use super::*;

    /// Takes a request once the gate opens, panics at an empty one, and notes refusals. The first handler panics at a refusal that is bad.
    struct Gated {
        nth: usize,
        gate: Arc<Mutex<Receiver<()>>>,
        noted: Sender<(usize, u64, String)>,
    }

    impl Handler for Gated {
        fn take(&mut self, _: Signal, _: IpAddr, body: &[u8]) -> Result<Taken, NotTaken> {
            assert!(!body.is_empty(), "an empty request");
            let _ = self.gate.lock().unwrap().recv();
            Ok(Taken::default())
        }

        fn turned_away(&mut self, _: Signal, count: u64, why: &str) {
            assert!(why != "bad" || self.nth > 1, "a bad refusal");
            self.noted.send((self.nth, count, why.to_owned())).unwrap();
            if why == "slow" {
                let _ = self.gate.lock().unwrap().recv();
            }
        }

        fn closed(&mut self, count: u64, _: usize) {
            self.turned_away(Signal::Logs, count, "closed");
        }
    }

    struct Scene {
        service: Arc<Service>,
        runtime: Runtime,
        opens: Sender<()>,
        noted: Receiver<(usize, u64, String)>,
    }

    fn scene() -> Scene {
        let (opens, gate) = channel();
        let (sender, noted) = channel();
        let (gate, begun) = (Arc::new(Mutex::new(gate)), Mutex::new(0));
        let begin = move || {
            let mut begun = begun.lock().unwrap();
            *begun += 1;
            Ok(Gated {
                nth: *begun,
                gate: Arc::clone(&gate),
                noted: sender.clone(),
            })
        };
        Scene {
            service: Arc::new(Service::new(begin, 1 << 10).unwrap()),
            runtime: Builder::new_current_thread().enable_time().build().unwrap(),
            opens,
            noted,
        }
    }

    async fn take(service: Arc<Service>, body: &'static [u8]) -> Result<Taken, Status> {
        let body = Bytes::from_static(body);
        let from = Ipv4Addr::LOCALHOST.into();
        service.take(Signal::Logs, false, from, body).await
    }

    /// The next refusal that a handler counts.
    async fn next(noted: &Receiver<(usize, u64, String)>) -> (usize, u64, String) {
        loop {
            match noted.try_recv() {
                Ok(counted) => break counted,
                Err(_) => yield_now().await,
            }
        }
    }

    #[test]
    fn refusals_are_counted_while_every_place_is_taken() {
        let Scene {
            service,
            runtime,
            opens,
            noted,
        } = scene();
        runtime.block_on(async {
            let waiting: Vec<_> = (0..WAITING_MAX)
                .map(|_| tokio::spawn(take(Arc::clone(&service), b"x")))
                .collect();
            while service.places.available_permits() > 0 {
                yield_now().await;
            }
            let refused = take(Arc::clone(&service), b"x").await.unwrap_err();
            assert!(refused.message().contains("wait already"), "{refused}");
            for why in ["long", "long", "packed"] {
                service.turned_away(Signal::Spans, why);
            }
            service.closed(4);
            drop(opens);
            for taken in waiting {
                taken.await.unwrap().unwrap();
            }
            // This one waits behind the count.
            take(Arc::clone(&service), b"x").await.unwrap();
        });
        let counted: Vec<_> = noted
            .try_iter()
            .map(|(_, count, why)| (count, why))
            .collect();
        let wanted = [(2, "long"), (1, "packed"), (4, "closed")];
        assert_eq!(counted, wanted.map(|(count, why)| (count, why.to_owned())));
    }

    #[test]
    fn a_refusal_does_not_wait_until_those_before_it_are_counted() {
        let Scene {
            service,
            runtime,
            opens,
            noted,
        } = scene();
        runtime.block_on(async {
            service.turned_away(Signal::Logs, "slow");
            assert_eq!(next(&noted).await.2, "slow");
            // The handler counts still.
            let (done, is_done) = channel();
            let (refused, handle) = (Arc::clone(&service), tokio::runtime::Handle::current());
            std::thread::spawn(move || {
                let _runtime = handle.enter();
                refused.turned_away(Signal::Logs, "next");
                done.send(()).unwrap();
            });
            is_done.recv_timeout(Duration::from_secs(60)).unwrap();
            drop(opens);
            assert_eq!(next(&noted).await.2, "next");
        });
    }

    #[test]
    fn refusals_at_which_a_handler_panics_are_counted_by_the_next_one() {
        let Scene {
            service,
            runtime,
            opens,
            noted,
        } = scene();
        runtime.block_on(async {
            service.turned_away(Signal::Logs, "first");
            for why in ["bad", "last", "bad"] {
                service.turned_away(Signal::Spans, why);
            }
            service.closed(4);
            for wanted in [
                (1, 1, "first"),
                (2, 1, "last"),
                (2, 4, "closed"),
                (2, 2, "bad"),
            ] {
                let (nth, count, why) = next(&noted).await;
                assert_eq!((nth, count, why.as_str()), wanted);
            }
            drop(opens);
            take(Arc::clone(&service), b"x").await.unwrap();
        });
        assert_eq!(noted.try_iter().count(), 0);
        assert!(lock(&service.owed).causes.is_empty());
    }

    #[test]
    fn a_handler_that_panics_is_replaced_and_never_asked_again() {
        let Scene {
            service,
            runtime,
            opens,
            noted,
        } = scene();
        drop(opens);
        runtime.block_on(async {
            for nth in [1, 2] {
                take(Arc::clone(&service), b"x").await.unwrap();
                service.turned_away(Signal::Logs, "why");
                assert_eq!(next(&noted).await, (nth, 1, "why".to_owned()));
                let failed = take(Arc::clone(&service), b"").await.unwrap_err();
                assert!(failed.message().contains("try again"), "{failed}");
            }
        });
    }
}
