//! Requests that change or describe the catalog: read on the connection's thread, carried out on the writer thread.

use std::sync::Arc;

use loom_engine::Error;
use loom_engine::schema::{IndexDef, SourceDef, parse_sources};

use super::access::may_pin;
use super::answer::Gone;
use super::catalog_json;
use super::error::code_of;
use super::message::{Change, Define, Inbox, Request as Asked};
use super::peer::Peer;
use super::rules::{Asker, ByHand, Rules};
use crate::protocol::{ErrorCode, Reply, Request, RequestId};

/// Carries a request out, after everything that the connection sent before, and returns the reply; `None` if it is a hello, a push, a sync or a ring,
/// which the connection serves itself, or a pin, which is answered once it is written.
pub(super) fn carry_out(
    request: Request<'_>,
    inbox: &Inbox,
    rules: &Rules,
    peer: &Arc<Peer>,
) -> Result<Option<Reply>, Gone> {
    let change = |request, change| -> Result<Outcome, Gone> {
        let changed = inbox.ask_after(Some(peer), |answer| Asked::Change(change, answer))?;
        let done = changed.map(|index| match index {
            Some(index) => Reply::IndexAdded { request, index },
            None => Reply::Done { request },
        });
        Ok((request, done))
    };
    let owned = str::to_owned;
    let (request, done) = match request {
        Request::Hello { .. } | Request::Push(_) | Request::Sync { .. } | Request::Ring { .. } => {
            return Ok(None);
        }
        Request::Define {
            request,
            again,
            toml,
        } => define(request, again, toml, inbox, peer)?,
        Request::CloseSource { request, source } => {
            change(request, Change::CloseSource(owned(source)))?
        }
        Request::AddIndex {
            request,
            source,
            toml,
        } => match parse_index(toml) {
            Err(error) => (request, Err(error)),
            Ok(def) => change(request, Change::AddIndex(owned(source), Box::new(def)))?,
        },
        Request::CloseIndex {
            request,
            source,
            index,
        } => {
            let (source, index) = (owned(source), owned(index));
            change(request, Change::CloseIndex { source, index })?
        }
        Request::Refused {
            request,
            records,
            source,
            reason,
        } => {
            let refused = Change::Refused {
                source: owned(source),
                records,
                reason: owned(reason),
            };
            change(request, refused)?
        }
        Request::Lost {
            request,
            records,
            span,
            cause,
            source,
            reason,
        } => {
            let lost = Change::Lost {
                source: owned(source),
                records,
                span,
                cause,
                reason: owned(reason),
            };
            change(request, lost)?
        }
        Request::Catalog { request } => {
            let known = inbox.ask_after(Some(peer), Asked::Catalog)?;
            let json = catalog_json::render(&known.catalog);
            (request, Ok(Reply::Catalog { request, json }))
        }
        Request::AddRule { request, toml } => {
            let toml = owned(toml);
            let added = rules.call(move |keeper| keeper.add(&toml))?;
            let added = added.map_err(Error::Schema);
            (request, added.map(|()| Reply::Done { request }))
        }
        Request::CloseRule { request, rule } => {
            let rule = owned(rule);
            let closed = rules.call(move |keeper| keeper.close(&rule))?;
            let closed = closed.map_err(Error::Schema);
            (request, closed.map(|()| Reply::Done { request }))
        }
        Request::Rules { request } => {
            let json = rules.call(|keeper| keeper.list())?;
            (request, Ok(Reply::Rules { request, json }))
        }
        Request::Pin {
            request,
            within,
            name,
            sources,
        } => match may_pin(&peer.stream) {
            Ok(()) => {
                rules.pin(ByHand {
                    name: owned(name),
                    within,
                    sources: sources.lines().map(owned).collect(),
                    asker: Asker::new(peer, request),
                })?;
                return Ok(None);
            }
            Err(message) => {
                return Ok(Some(Reply::Error {
                    request: Some(request),
                    code: ErrorCode::NotPermitted,
                    message,
                }));
            }
        },
        Request::Status { request } => {
            let json = inbox.ask_after(Some(peer), Asked::Status)?.to_json();
            (request, Ok(Reply::Status { request, json }))
        }
    };
    Ok(Some(done.unwrap_or_else(|error| Reply::Error {
        request: Some(request),
        code: code_of(&error),
        message: error.to_string(),
    })))
}

/// A request, and its reply or why it is refused.
type Outcome = (RequestId, Result<Reply, Error>);

fn define(
    request: RequestId,
    again: bool,
    toml: &str,
    inbox: &Inbox,
    peer: &Arc<Peer>,
) -> Result<Outcome, Gone> {
    let how = if again {
        Define::Again
    } else {
        Define::AsAsked
    };
    let sources: Vec<SourceDef> = match parse_sources(toml) {
        Ok(sources) => sources,
        Err(error) => return Ok((request, Err(error))),
    };
    let names: Vec<String> = sources.iter().map(|source| source.name.clone()).collect();
    let defined = inbox.ask_after(Some(peer), |answer| Asked::Define {
        sources,
        how,
        answer,
    })?;
    let done = defined.map(|defined| Reply::Defined {
        request,
        sources: defined.ids.into_iter().zip(names).collect(),
    });
    Ok((request, done))
}
/// Reads the TOML of one index. Its definition checks that it fits its source.
pub(crate) fn parse_index(toml: &str) -> Result<IndexDef, Error> {
    toml::from_str(toml).map_err(|error| Error::schema(error.message()))
}
