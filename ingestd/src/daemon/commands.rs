//! Requests that change or describe the catalog: read on the connection's thread, carried out on the writer thread.

use std::sync::Arc;

use loom_engine::Error;
use loom_engine::schema::{IndexDef, SourceDef, parse_sources};

use super::catalog_json;
use super::definitions;
use super::message::{Gone, Inbox};
use super::peer::Peer;
use crate::protocol::{ErrorCode, Reply, Request, RequestId};

/// A request other than hello, push and sync, with what it needs of its frame.
pub(super) struct Command {
    request: RequestId,
    action: Action,
}

enum Action {
    Define {
        toml: String,
    },
    CloseSource {
        source: String,
    },
    AddIndex {
        source: String,
        toml: String,
    },
    CloseIndex {
        source: String,
        index: String,
    },
    Catalog,
    Status,
    Refused {
        records: u32,
        source: String,
        reason: String,
    },
}

impl Command {
    /// None for the requests that are no commands.
    pub(super) fn from_request(request: Request<'_>) -> Option<Command> {
        let (request, action) = match request {
            Request::Hello { .. } | Request::Push(_) | Request::Sync { .. } => return None,
            Request::Define { request, toml } => {
                let toml = toml.to_owned();
                (request, Action::Define { toml })
            }
            Request::CloseSource { request, source } => {
                let source = source.to_owned();
                (request, Action::CloseSource { source })
            }
            Request::AddIndex {
                request,
                source,
                toml,
            } => {
                let (source, toml) = (source.to_owned(), toml.to_owned());
                (request, Action::AddIndex { source, toml })
            }
            Request::CloseIndex {
                request,
                source,
                index,
            } => {
                let (source, index) = (source.to_owned(), index.to_owned());
                (request, Action::CloseIndex { source, index })
            }
            Request::Catalog { request } => (request, Action::Catalog),
            Request::Status { request } => (request, Action::Status),
            Request::Refused {
                request,
                records,
                source,
                reason,
            } => {
                let (source, reason) = (source.to_owned(), reason.to_owned());
                (
                    request,
                    Action::Refused {
                        records,
                        source,
                        reason,
                    },
                )
            }
        };
        Some(Command { request, action })
    }

    /// Does it, after everything that the connection sent before, and returns the reply.
    pub(super) fn carry_out(self, inbox: &Inbox, peer: &Arc<Peer>) -> Result<Reply, Gone> {
        let request = self.request;
        let done = match self.action {
            Action::Define { toml } => define(inbox, peer, request, &toml)?,
            Action::CloseSource { source } => inbox
                .call(Some(peer), move |recorder| {
                    definitions::close_source(&mut recorder.writer, &source)
                })?
                .map(|()| Reply::Done { request }),
            Action::AddIndex { source, toml } => match parse_index(&toml) {
                Err(error) => Err(error),
                Ok(def) => inbox
                    .call(Some(peer), move |recorder| {
                        definitions::add_index(&mut recorder.writer, &source, &def)
                    })?
                    .map(|index| Reply::IndexAdded { request, index }),
            },
            Action::CloseIndex { source, index } => inbox
                .call(Some(peer), move |recorder| {
                    definitions::close_index(&mut recorder.writer, &source, &index)
                })?
                .map(|()| Reply::Done { request }),
            Action::Refused {
                records,
                source,
                reason,
            } => {
                let refuser = Arc::clone(peer);
                inbox
                    .call(Some(peer), move |recorder| {
                        recorder.enter_refused(&refuser, &source, records, &reason)
                    })?
                    .map(|()| Reply::Done { request })
            }
            Action::Catalog => {
                let learner = Arc::clone(peer);
                let catalog = inbox.call(Some(peer), move |recorder| {
                    let catalog = recorder.writer.catalog().clone();
                    learner.learn_all(&catalog);
                    catalog
                })?;
                Ok(Reply::Catalog {
                    request,
                    json: catalog_json::render(&catalog),
                })
            }
            Action::Status => {
                let status = inbox.call(Some(peer), |recorder| recorder.status())?;
                Ok(Reply::Status {
                    request,
                    json: status.to_json(),
                })
            }
        };
        Ok(done.unwrap_or_else(|error| Reply::Error {
            request: Some(request),
            code: code_of(&error),
            message: error.to_string(),
        }))
    }
}

fn define(
    inbox: &Inbox,
    peer: &Arc<Peer>,
    request: RequestId,
    toml: &str,
) -> Result<Result<Reply, Error>, Gone> {
    let sources: Vec<SourceDef> = match parse_sources(toml) {
        Ok(sources) => sources,
        Err(error) => return Ok(Err(error)),
    };
    let names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    let learner = Arc::clone(peer);
    let ids = inbox.call(Some(peer), move |recorder| {
        let ids = definitions::define(&mut recorder.writer, &sources)?;
        for (id, source) in ids.iter().zip(&sources) {
            learner.learn(*id, source.fields.len());
        }
        Ok(ids)
    })?;
    Ok(ids.map(|ids| Reply::Defined {
        request,
        sources: ids.into_iter().zip(names).collect(),
    }))
}

/// Reads the TOML of one index; that it fits its source is checked where it is defined.
pub(crate) fn parse_index(toml: &str) -> Result<IndexDef, Error> {
    toml::from_str(toml).map_err(|error| Error::schema(error.to_string().trim_end()))
}

fn code_of(error: &Error) -> ErrorCode {
    match error {
        Error::UnknownSource { .. } | Error::UnknownIndex { .. } => ErrorCode::NotFound,
        Error::Schema(_) | Error::SourceClosed { .. } => ErrorCode::Definition,
        _ => ErrorCode::Failed,
    }
}
