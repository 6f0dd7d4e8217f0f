//! Who takes requests: one thread, one request at a time, so that what requests need at once is bounded by what waits for it.

use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::from_json::{self, Read};
use crate::utf8::REPAIRED;
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

impl Taken {
    /// Adds records that are refused, or words alone.
    pub fn refuse(&mut self, records: u64, why: &str) {
        self.refused += records;
        if !self.why.is_empty() {
            self.why.push_str("; ");
        }
        if records > 0 {
            self.why.push_str(&format!("{records}: "));
        }
        self.why.push_str(why);
    }
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

    /// Learns of requests, or records of one, that could not be read.
    fn turned_away(&mut self, signal: Signal, count: u64, why: &str);

    /// Learns of connections that were closed at once, for so many are served.
    fn closed(&mut self, count: u64, served: usize);
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
    Closed {
        count: u64,
        served: usize,
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

    /// False if too many requests wait to count it now.
    pub(crate) fn closed(&self, count: u64, served: usize) -> bool {
        self.0.try_send(Job::Closed { count, served }).is_ok()
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
                        Ok(read) => taken_of(&mut handler, signal, from, &read),
                        Err(error) => {
                            handler.turned_away(signal, 1, &error.to_string());
                            Err(error.into())
                        }
                    },
                };
                // A sender that is gone needs no answer.
                let _ = answer.send(taken);
            }
            Job::TurnedAway { signal, why } => handler.turned_away(signal, 1, &why),
            Job::Closed { count, served } => handler.closed(count, served),
        }
    }
}

/// Takes what could be read of a request in JSON, and counts the rest with it.
fn taken_of(
    handler: &mut impl Handler,
    signal: Signal,
    from: IpAddr,
    read: &Read,
) -> Result<Taken, NotTaken> {
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
