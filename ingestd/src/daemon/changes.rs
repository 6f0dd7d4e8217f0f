//! What calls do on the writer thread: changes of the catalog, and looks at it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom_engine::log::Durability;
use loom_engine::schema::{Catalog, IndexDef, Source, SourceDef};
use loom_engine::{Error, IndexId, SourceId};

use super::peer::Peer;
use super::status::{SourceStatus, Status};
use super::writing::Writing;

impl Writing {
    /// Defines sources, all or none: each is tried on a copy of the catalog before the first is made.
    pub(super) fn define(&mut self, sources: &[SourceDef]) -> Result<Vec<SourceId>, Error> {
        let mut trial = self.writer.catalog().clone();
        let at = trial.latest_at().max(self.writer.position());
        for source in sources {
            trial.define_source(source, at)?;
        }
        sources
            .iter()
            .map(|source| self.writer.define_source(source))
            .collect()
    }

    /// What a connection learns of sources: from now on its payloads have the layout that they have now.
    pub(super) fn learn(&self, peer: &Peer, sources: &[SourceId]) {
        let catalog = self.writer.catalog();
        let known = sources.iter().filter_map(|id| catalog.source(*id));
        let fields = known.map(|source| (source.id, source.fields.len()));
        peer.account().fields_known.extend(fields);
    }

    /// Why a connection's payloads no longer have the source's layout, if so.
    pub(super) fn outgrown(&self, peer: &Peer, id: SourceId) -> Option<String> {
        let source = self.writer.catalog().source(id)?;
        let now = source.fields.len();
        let known = *peer.account().fields_known.entry(id).or_insert(now);
        let added = source.fields.get(known)?;
        Some(format!(
            "source '{}' was given the field '{}' since this connection learnt its layout; define it again with all fields",
            source.name, added.name
        ))
    }

    pub(super) fn close_source(&mut self, name: &str) -> Result<(), Error> {
        let source = self.source(name)?.id;
        self.writer.close_source(source)
    }

    pub(super) fn add_index(&mut self, source: &str, def: &IndexDef) -> Result<IndexId, Error> {
        let source = self.source(source)?.id;
        self.writer.define_index(source, def)
    }

    pub(super) fn close_index(&mut self, source: &str, name: &str) -> Result<(), Error> {
        let source = self.source(source)?;
        let index = source
            .index(name)
            .ok_or_else(|| source.unknown_index(name))?
            .id;
        self.writer.close_index(index)
    }

    fn source(&self, name: &str) -> Result<&Source, Error> {
        let catalog = self.writer.catalog();
        catalog
            .find(name)
            .map(Arc::as_ref)
            .ok_or_else(|| catalog.unknown_source(name))
    }

    pub(super) fn catalog(&self) -> Catalog {
        self.writer.catalog().clone()
    }

    pub(super) fn status(&self) -> Status {
        let log = self.writer.stats().log;
        let sources = self.writer.catalog().sources().map(|source| {
            let account = self.ledger.account(source.id);
            SourceStatus {
                id: source.id.0,
                name: source.name.clone(),
                received: account.counts.received,
                stored: account.counts.stored,
                refused: account.counts.refused,
                dropped: account.counts.dropped,
                bytes: account.stored_bytes,
                last_push_ns: account.last_push.map(|time| time.0),
            }
        });
        Status {
            pid: std::process::id(),
            uptime_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            connections: self.connections.load(Ordering::Relaxed),
            durability: match self.durability {
                Durability::None => "none".to_owned(),
                Durability::Batch => "batch".to_owned(),
                Durability::Interval(interval) => format!("{interval:?}"),
            },
            records_end: self.writer.position().0,
            records_durable: self.writer.durable().0,
            log_stalls: log.stalls,
            log_stall_ns: u64::try_from(log.stall.as_nanos()).unwrap_or(u64::MAX),
            waiting_connections: self.waiting_connections(),
            trouble: self.trouble.clone().or_else(|| self.writer.trouble()),
            sources: sources.collect(),
        }
    }
}
