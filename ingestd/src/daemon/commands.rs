//! Requests that change or describe the catalog: read on the connection's thread, carried out on the writer thread.

use std::sync::Arc;

use loom_engine::Error;
use loom_engine::schema::{IndexDef, SourceDef, parse_sources};

use super::catalog_json;
use super::connection::Service;
use super::definitions;
use super::message::{Gone, Inbox};
use super::peer::Peer;
use crate::protocol::{ErrorCode, Reply, Request, RequestId};

/// Carries a request out, after everything that the connection sent before, and returns the reply; None if it is a hello, a push, a sync or a ring, which the connection serves itself.
pub(super) fn carry_out(
    request: Request<'_>,
    service: &Service,
    peer: &Arc<Peer>,
) -> Result<Option<Reply>, Gone> {
    let Service { inbox, rules, .. } = service;
    let (request, done) = match request {
        Request::Hello { .. } | Request::Push(_) | Request::Sync { .. } | Request::Ring { .. } => {
            return Ok(None);
        }
        Request::Define { request, toml } => (request, define(inbox, peer, request, toml)?),
        Request::CloseSource { request, source } => {
            let source = source.to_owned();
            let closed = inbox.call(Some(peer), move |recorder| {
                definitions::close_source(&mut recorder.writer, &source)
            })?;
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
                Ok(def) => inbox.call(Some(peer), move |recorder| {
                    definitions::add_index(&mut recorder.writer, &source, &def)
                })?,
            };
            let reply = added.map(|index| Reply::IndexAdded { request, index });
            (request, reply)
        }
        Request::CloseIndex {
            request,
            source,
            index,
        } => {
            let (source, index) = (source.to_owned(), index.to_owned());
            let closed = inbox.call(Some(peer), move |recorder| {
                definitions::close_index(&mut recorder.writer, &source, &index)
            })?;
            (request, closed.map(|()| Reply::Done { request }))
        }
        Request::Refused {
            request,
            records,
            source,
            reason,
        } => {
            let (source, reason) = (source.to_owned(), reason.to_owned());
            let refuser = Arc::clone(peer);
            let entered = inbox.call(Some(peer), move |recorder| {
                recorder.enter_refused(&refuser, &source, records, &reason)
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
            let (source, reason) = (source.to_owned(), reason.to_owned());
            let entered = inbox.call(Some(peer), move |recorder| {
                recorder.enter_lost(&source, records, span, cause, &reason)
            })?;
            (request, entered.map(|()| Reply::Done { request }))
        }
        Request::Catalog { request } => {
            let learner = Arc::clone(peer);
            let catalog = inbox.call(Some(peer), move |recorder| {
                let catalog = recorder.writer.catalog().clone();
                learner.learn_all(&catalog);
                catalog
            })?;
            let json = catalog_json::render(&catalog);
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
            let status = inbox.call(Some(peer), |recorder| recorder.status())?;
            let json = status.to_json();
            (request, Ok(Reply::Status { request, json }))
        }
    };
    Ok(Some(done.unwrap_or_else(|error| Reply::Error {
        request: Some(request),
        code: code_of(&error),
        message: error.to_string(),
    })))
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
    toml::from_str(toml).map_err(|error| Error::schema(error.message()))
}

fn code_of(error: &Error) -> ErrorCode {
    match error {
        Error::UnknownSource { .. } | Error::UnknownIndex { .. } => ErrorCode::NotFound,
        Error::Schema(_) | Error::SourceClosed { .. } => ErrorCode::Definition,
        _ => ErrorCode::Failed,
    }
}
