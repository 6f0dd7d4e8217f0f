//! Requests that change or describe the catalog: read on the connection's thread, carried out on the writer thread.

use std::sync::Arc;

use loom_engine::Error;
use loom_engine::schema::{IndexDef, SourceDef, parse_sources};

use super::answer::{Answer, Gone};
use super::catalog_json;
use super::message::{Inbox, Request as Asked};
use super::peer::Peer;
use super::rules::Rules;
use crate::protocol::{ErrorCode, Reply, Request, RequestId};

/// Carries a request out, after everything that the connection sent before, and returns the reply; `None` if it is a hello, a push, a sync or a ring,
/// which the connection serves itself.
pub(super) fn carry_out(
    request: Request<'_>,
    inbox: &Inbox,
    rules: &Rules,
    peer: &Arc<Peer>,
) -> Result<Option<Reply>, Gone> {
    let commands = Commands { inbox, peer };
    let (request, done) = match request {
        Request::Hello { .. } | Request::Push(_) | Request::Sync { .. } | Request::Ring { .. } => {
            return Ok(None);
        }
        Request::Define { request, toml } => (request, commands.define(request, toml)?),
        Request::CloseSource { request, source } => {
            let source = source.to_owned();
            let closed = commands.ask(|answer| Asked::CloseSource(source, answer))?;
            (request, closed.map(|()| Reply::Done { request }))
        }
        Request::AddIndex {
            request,
            source,
            toml,
        } => {
            let source = source.to_owned();
            let added = match parse_index(toml) {
                Err(error) => Err(error),
                Ok(def) => commands.ask(|answer| Asked::AddIndex(source, Box::new(def), answer))?,
            };
            let reply = added.map(|index| Reply::IndexAdded { request, index });
            (request, reply)
        }
        Request::CloseIndex {
            request,
            source,
            index,
        } => {
            let closed = commands.ask(|answer| Asked::CloseIndex {
                source: source.to_owned(),
                index: index.to_owned(),
                answer,
            })?;
            (request, closed.map(|()| Reply::Done { request }))
        }
        Request::Refused {
            request,
            records,
            source,
            reason,
        } => {
            let entered = commands.ask(|answer| Asked::Refused {
                source: source.to_owned(),
                records,
                reason: reason.to_owned(),
                answer,
            })?;
            (request, entered.map(|()| Reply::Done { request }))
        }
        Request::Lost {
            request,
            records,
            span,
            cause,
            source,
            reason,
        } => {
            let entered = commands.ask(|answer| Asked::Lost {
                source: source.to_owned(),
                records,
                span,
                cause,
                reason: reason.to_owned(),
                answer,
            })?;
            (request, entered.map(|()| Reply::Done { request }))
        }
        Request::Catalog { request } => {
            let json = catalog_json::render(&commands.ask(Asked::Catalog)?.catalog);
            (request, Ok(Reply::Catalog { request, json }))
        }
        Request::AddRule { request, toml } => {
            let added = rules.add(toml)?.map_err(Error::Schema);
            (request, added.map(|()| Reply::Done { request }))
        }
        Request::CloseRule { request, rule } => {
            let closed = rules.close(rule)?.map_err(Error::Schema);
            (request, closed.map(|()| Reply::Done { request }))
        }
        Request::Rules { request } => {
            let json = rules.list()?;
            (request, Ok(Reply::Rules { request, json }))
        }
        Request::Status { request } => {
            let json = commands.ask(Asked::Status)?.to_json();
            (request, Ok(Reply::Status { request, json }))
        }
    };
    Ok(Some(done.unwrap_or_else(|error| Reply::Error {
        request: Some(request),
        code: code_of(&error),
        message: error.to_string(),
    })))
}

/// The way of one connection's requests.
struct Commands<'a> {
    inbox: &'a Inbox,
    peer: &'a Arc<Peer>,
}

impl Commands<'_> {
    fn ask<T>(&self, asked: impl FnOnce(Answer<T>) -> Asked) -> Result<T, Gone> {
        self.inbox.ask_after(Some(self.peer), asked)
    }

    fn define(&self, request: RequestId, toml: &str) -> Result<Result<Reply, Error>, Gone> {
        let sources: Vec<SourceDef> = match parse_sources(toml) {
            Ok(sources) => sources,
            Err(error) => return Ok(Err(error)),
        };
        let names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
        let defined = self.ask(|answer| Asked::Define {
            sources,
            growth: None,
            answer,
        })?;
        Ok(defined.map(|defined| Reply::Defined {
            request,
            sources: defined.ids.into_iter().zip(names).collect(),
        }))
    }
}

/// Reads the TOML of one index; that it fits its source is checked where it is defined.
pub(crate) fn parse_index(toml: &str) -> Result<IndexDef, Error> {
    toml::from_str(toml).map_err(|error| Error::schema(error.message()))
}

fn code_of(error: &Error) -> ErrorCode {
    match error {
        Error::UnknownSource { .. } | Error::UnknownIndex { .. } => ErrorCode::NotFound,
        Error::Schema(_) | Error::SourceClosed { .. } => ErrorCode::Definition,
        _ => ErrorCode::Failed,
    }
}
