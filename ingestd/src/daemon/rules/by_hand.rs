//! A pin that a person asks for, and the answer to that person.

use std::sync::Arc;
use std::time::Duration;

use loom_engine::schema::{Catalog, check_name, is_builtin};
use loom_engine::{Error, Timestamp};

use crate::daemon::error::code_of;
use crate::daemon::peer::Peer;
use crate::output::pins::Kept;
use crate::protocol::{ErrorCode, Reply, RequestId, Within};
use crate::rfc3339;

/// A request to keep the records of some sources, or of all.
#[derive(Clone)]
pub(in crate::daemon) struct ByHand {
    pub(in crate::daemon) name: String,
    pub(in crate::daemon) within: Within,
    pub(in crate::daemon) sources: Vec<String>,
    pub(in crate::daemon) asker: Asker,
}

/// The connection and the request that ask.
#[derive(Clone)]
pub(in crate::daemon) struct Asker {
    peer: Arc<Peer>,
    request: RequestId,
}

impl ByHand {
    /// Refuses a pin that could not be written.
    pub(super) fn check(&self, catalog: &Catalog) -> Result<(), Error> {
        check_name("pin", &self.name)?;
        if self.within == Within::Last(0) {
            return Err(Error::schema("the last 0s hold no record; use 5m"));
        }
        for name in &self.sources {
            if is_builtin(name) {
                let why = format!("source '{name}' is built in, and pins have no such source");
                return Err(Error::schema(why));
            }
            let found = catalog.find(name);
            found.ok_or_else(|| catalog.unknown_source(name))?;
        }
        Ok(())
    }

    /// Returns the end of its span, and the length. `now` is the end of the records that have arrived.
    pub(super) fn span(&self, now: Timestamp) -> Result<(Timestamp, Duration), String> {
        match self.within {
            Within::Last(ns) => Ok((now, Duration::from_nanos(ns))),
            Within::Span(span) if span.end() <= now => {
                let ns = span.end().0.abs_diff(span.first.0);
                Ok((span.end(), Duration::from_nanos(ns)))
            }
            Within::Span(span) => Err(format!(
                "the span ends at {}, which is still to come; give an end that has passed",
                rfc3339(span.end())
            )),
        }
    }
}

impl Asker {
    pub(in crate::daemon) fn new(peer: &Arc<Peer>, request: RequestId) -> Asker {
        Asker {
            peer: Arc::clone(peer),
            request,
        }
    }

    pub(super) fn kept(&self, kept: &Kept) {
        self.answer(&Reply::Pinned {
            request: self.request,
            json: serde_json::to_string(kept).expect("names and numbers are always JSON"),
        });
    }

    pub(super) fn refuse(&self, error: &Error) {
        self.fail(code_of(error), error.to_string());
    }

    pub(super) fn fail(&self, code: ErrorCode, message: String) {
        self.answer(&Reply::Error {
            request: Some(self.request),
            code,
            message,
        });
    }

    /// A client that is gone or takes no answer finds the pin in the list.
    fn answer(&self, reply: &Reply) {
        self.peer.answer_at_once(reply);
    }
}
