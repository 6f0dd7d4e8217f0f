//! What calls do on the writer thread: changes of the catalog, and looks at it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use loom_engine::log::Durability;
use loom_engine::schema::{Catalog, IndexDef, LossReason, Source, SourceDef, is_builtin};
use loom_engine::{Error, IndexId, SourceId};

use super::configured::{grown, wanted};
use super::peer::Peer;
use super::status::{SourceStatus, Status};
use super::writing::Writing;
use crate::config::Config;
use crate::losses::Lost;
use crate::protocol::Counts;

impl Writing {
    /// Defines sources, all or none. A definition may lack fields that were added since it was written.
    pub(super) fn define(&mut self, sources: &[SourceDef]) -> Result<Vec<SourceId>, Error> {
        let catalog = self.writer.catalog();
        let sources: Vec<SourceDef> = sources
            .iter()
            .map(|source| grown(source.clone(), catalog))
            .collect();
        self.writer.define_sources(&sources)
    }

    /// Goes by another configuration: what it retains and records, and its sources. Returns what does not take effect.
    pub(super) fn reconfigure(&mut self, config: &Config) -> Vec<String> {
        self.retaining.reconfigure(config.retention.clone());
        self.metering.reconfigure(config.metrics.interval.0);
        let mut notes = Vec::from_iter(config.retention.too_little(self.writer.bytes_min()));
        for source in config.sources.clone() {
            let wanted = wanted(source, self.writer.catalog(), &mut notes);
            if let Some(source) = wanted
                && let Err(error) = self.define(std::slice::from_ref(&source))
            {
                notes.push(error.to_string());
            }
        }
        notes
    }

    /// What a connection learns of all sources: from now on its payloads have the layouts that they have now.
    pub(super) fn learn_all(&self, peer: &Peer) {
        let sources = self.writer.catalog().sources();
        let fields = sources.map(|source| (source.id, source.fields.len()));
        peer.account().fields_known.extend(fields);
    }

    /// What a connection says of a source: its payloads have that many fields.
    pub(super) fn learn(&self, peer: &Peer, source: SourceId, fields: usize) {
        peer.account().fields_known.insert(source, fields);
    }

    /// How many fields a connection knows of a source, where that is not all.
    pub(super) fn outgrown(&self, peer: &Peer, id: SourceId) -> Option<usize> {
        let now = self.writer.catalog().source(id)?.fields.len();
        let known = *peer.account().fields_known.entry(id).or_insert(now);
        (known < now).then_some(known)
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

    /// Enters what a client could not make records of, as if it had sent it, and keeps it before the client is told.
    pub(super) fn enter_refused(
        &mut self,
        peer: &Peer,
        source: &str,
        records: u32,
        reason: &str,
    ) -> Result<(), Error> {
        let source = self.source(source)?.id;
        let counts = Counts {
            received: records.into(),
            refused: records.into(),
            ..Counts::default()
        };
        let now = self.writer.now();
        self.ledger.enter(source, counts, 0, now);
        peer.account().counts.add(counts);
        let lost = Lost {
            source: Some(source),
            reason: LossReason::Malformed,
            records: records.into(),
            bytes: None,
            detail: reason,
        };
        self.losses.note(&lost, now);
        self.losses.settle(&mut self.writer);
        Ok(())
    }

    fn source(&self, name: &str) -> Result<&Source, Error> {
        if is_builtin(name) {
            let what = format!("source '{name}' is built in and stays as it is");
            return Err(Error::Schema(what));
        }
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
        let sources = self.writer.catalog().sources();
        let sources = sources
            .filter(|source| !is_builtin(&source.name))
            .map(|source| {
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
            segment_bytes: self.writer.segment_bytes(),
            evicted_segments: self.retaining.evicted_segments(),
            unrecorded_losses: self.losses.pending(),
            log_stalls: log.stalls,
            log_stall_ns: u64::try_from(log.stall.as_nanos()).unwrap_or(u64::MAX),
            waiting_connections: self.waiting_connections(),
            trouble: self.current_trouble(),
            sources: sources.collect(),
        }
    }

    /// What is wrong now, the gravest first.
    fn current_trouble(&self) -> Option<String> {
        let others = [self.retaining.refusal(), self.losses.trouble()];
        self.trouble
            .clone()
            .or_else(|| self.writer.trouble())
            .or_else(|| others.into_iter().flatten().next().map(str::to_owned))
    }
}
