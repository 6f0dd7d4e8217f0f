//! Who takes requests: one thread, one request at a time, so that what requests need at once is bounded by what waits for it.

use std::net::IpAddr;
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
    /// A limit for new senders or series refuses all of it, which is counted.
    #[error("{0}")]
    Limited(String),
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Who knows what to do with requests.
pub trait Handler: Send + 'static {
    /// Takes a request in protobuf that came from an address: all of it except what it reports as refused, or nothing.
    fn take(&mut self, signal: Signal, from: IpAddr, body: &[u8]) -> Result<Taken, NotTaken>;

    /// Learns of a request that could not be read to its end or out of its compression.
    fn turned_away(&mut self, signal: Signal, why: &str);
}

/// A request that was read whole.
pub(crate) struct Sent {
    pub(crate) signal: Signal,
    pub(crate) form: Form,
    pub(crate) from: IpAddr,
    pub(crate) body: Bytes,
}

enum Job {
    Take {
        sent: Sent,
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

    pub(crate) async fn take(&self, sent: Sent) -> Result<Taken, NotTaken> {
        let (answer, answered) = oneshot::channel();
        let job = Job::Take { sent, answer };
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
            Job::Take { sent, answer } => {
                let Sent { signal, from, .. } = sent;
                let taken = match sent.form {
                    Form::Protobuf => handler.take(signal, from, &sent.body),
                    Form::Json => match from_json::protobuf(signal, &sent.body) {
                        Ok(body) => handler.take(signal, from, &body),
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
