//! Who takes requests: one thread, one request at a time, so that what requests need at once is bounded by what waits for it.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::from_json;
use crate::wire::Malformed;

/// Requests that wait for the thread; a sender of one more is asked to come again.
const WAITING_MAX: usize = 16;

/// What a request holds.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Signal {
    Logs,
    Spans,
    Metrics,
}

/// How a request is written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    Protobuf,
    Json,
}

/// What became of a request that was taken: what it held is stored, except what is refused.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Taken {
    /// Records, spans or data points.
    pub refused: u64,
    /// Why, in sentences for people; empty if there is nothing to say.
    pub why: String,
}

/// Why nothing of a request was taken.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// The sender keeps it and comes again.
    #[error("{0}")]
    Busy(String),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Who knows what to do with requests.
pub trait Handler: Send + 'static {
    /// Takes a request in protobuf: all of it but what it reports as refused, or nothing.
    fn take(&mut self, signal: Signal, body: &[u8]) -> Result<Taken, NotTaken>;

    /// Learns of a request that could not be read to its end or out of its compression.
    fn turned_away(&mut self, signal: Signal, why: &str);
}

enum Job {
    Take {
        signal: Signal,
        form: Form,
        body: Bytes,
        answer: oneshot::Sender<Result<Taken, NotTaken>>,
    },
    TurnedAway {
        signal: Signal,
        why: String,
    },
}

/// The way to the thread, which ends when all of them are dropped.
#[derive(Clone)]
pub(crate) struct Jobs(SyncSender<Job>);

impl Jobs {
    pub(crate) fn start(handler: impl Handler) -> std::io::Result<(Jobs, JoinHandle<()>)> {
        let (sender, receiver) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new()
            .name("loom-otlp-take".to_owned())
            .spawn(move || run(handler, &receiver))?;
        Ok((Jobs(sender), thread))
    }

    pub(crate) async fn take(
        &self,
        signal: Signal,
        form: Form,
        body: Bytes,
    ) -> Result<Taken, NotTaken> {
        let (answer, answered) = oneshot::channel();
        let job = Job::Take {
            signal,
            form,
            body,
            answer,
        };
        match self.0.try_send(job) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                return Err(NotTaken::Busy(format!(
                    "{WAITING_MAX} requests wait already; try again"
                )));
            }
            Err(TrySendError::Disconnected(_)) => return Err(ended()),
        }
        answered.await.unwrap_or_else(|_| Err(ended()))
    }

    pub(crate) fn turned_away(&self, signal: Signal, why: &str) {
        let why = why.to_owned();
        if self.0.try_send(Job::TurnedAway { signal, why }).is_err() {
            tracing::debug!("too many requests wait to count one that was turned away");
        }
    }
}

fn ended() -> NotTaken {
    NotTaken::Busy("the daemon stops; try again".to_owned())
}

fn run(mut handler: impl Handler, jobs: &Receiver<Job>) {
    for job in jobs {
        match job {
            Job::Take {
                signal,
                form,
                body,
                answer,
            } => {
                let taken = match form {
                    Form::Protobuf => handler.take(signal, &body),
                    Form::Json => match from_json::protobuf(signal, &body) {
                        Ok(body) => handler.take(signal, &body),
                        Err(error) => {
                            handler.turned_away(signal, &error.to_string());
                            Err(error.into())
                        }
                    },
                };
                // A sender that is gone needs no answer.
                let _ = answer.send(taken);
            }
            Job::TurnedAway { signal, why } => handler.turned_away(signal, &why),
        }
    }
}
