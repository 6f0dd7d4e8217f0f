//! The recorder carries requests out, each at once; the writer thread hands them to it. A request that is refused changes nothing.

use loom_client::ring::{Calibration, Stamps, WhenFull};
use loom_engine::ingest::ClockLine;
use loom_engine::schema::{Overload, SourceDef, TimeKind, is_builtin};
use loom_engine::{Error, IndexId, SourceId};

use super::definitions;
use super::message::{Change, Define, Defined, Known, Request};
use super::peer::Peer;
use super::recorder::Recorder;

const OF_A_CONNECTION: &str = "only a connection asks this";

impl Recorder {
    /// Carries a request out, for the connection that asks if one does.
    pub(super) fn carry_out(&mut self, peer: Option<&Peer>, request: Request) {
        match request {
            Request::Status(answer) => answer.give(self.status()),
            Request::Publish(answer) => {
                self.publish(false);
                answer.give(self.writer.now());
            }
            Request::Room(answer) => answer.give(self.has_room()),
            Request::Reconfigure(config, answer) => answer.give(self.reconfigure(&config)),
            Request::Catalog(answer) => {
                let catalog = self.writer.catalog().clone();
                if let Some(peer) = peer {
                    peer.learn_all(&catalog);
                }
                answer.give(Known {
                    catalog,
                    catalog_bytes: self.writer.catalog_bytes(),
                    payload_bytes_max: self.writer.payload_bytes_max(),
                });
            }
            Request::Define {
                sources,
                how,
                answer,
            } => answer.give(self.define(peer, &sources, &how)),
            Request::DefineOwn(sources, answer) => {
                let sources = sources.iter();
                let defined = sources.map(|source| self.writer.define_builtin_source(source));
                answer.give(defined.collect());
            }
            Request::LoseOwn(source, records, answer) => {
                self.lose_own(Some(source), records);
                answer.give(());
            }
            Request::Change(change, answer) => answer.give(self.change(peer, change)),
            Request::Ring(source, answer) => {
                answer.give(self.ring(peer.expect(OF_A_CONNECTION), source));
            }
            Request::Calibration(answer) => answer.give(self.calibration()),
            Request::HoldRetention(answer) => {
                self.retention.wait_for_pin(self.writer.position());
                answer.give(());
            }
            Request::ReleaseRetention(answer) => {
                self.retention.end_wait();
                answer.give(());
            }
        }
    }

    fn change(&mut self, peer: Option<&Peer>, change: Change) -> Result<Option<IndexId>, Error> {
        match change {
            Change::CloseSource(source) => definitions::close_source(&mut self.writer, &source)?,
            Change::AddIndex(source, def) => {
                return definitions::add_index(&mut self.writer, &source, &def).map(Some);
            }
            Change::CloseIndex { source, index } => {
                definitions::close_index(&mut self.writer, &source, &index)?;
            }
            Change::Refused {
                source,
                records,
                reason,
            } => self.enter_refused(peer.expect(OF_A_CONNECTION), &source, records, reason)?,
            Change::Lost {
                source,
                records,
                span,
                cause,
                reason,
            } => self.enter_lost(&source, records, span, cause, &reason)?,
        }
        Ok(None)
    }

    fn define(
        &mut self,
        peer: Option<&Peer>,
        sources: &[SourceDef],
        how: &Define,
    ) -> Result<Defined, Error> {
        let before = self.writer.catalog_bytes();
        let ids = match how {
            Define::AsAsked => definitions::define(&mut self.writer, sources)?,
            Define::Again => definitions::define_again(&mut self.writer, sources)?,
            Define::Growing(growth) => definitions::grow(&mut self.writer, sources, growth)?,
        };
        if let Some(peer) = peer {
            for (id, source) in ids.iter().zip(sources) {
                peer.learn(*id, source.fields.len());
            }
        }
        Ok(Defined {
            ids,
            catalog_bytes: self.writer.catalog_bytes().saturating_sub(before),
            forgotten_below: self.writer.catalog().forgotten_below(),
        })
    }

    fn ring(&self, peer: &Peer, id: SourceId) -> Option<(Stamps, WhenFull)> {
        let catalog = self.writer.catalog();
        let source = catalog.source(id)?;
        if is_builtin(&source.name) {
            return None;
        }
        // The ring's records have the layout that the client knows now.
        peer.known_fields(catalog, id);
        let stamps = match source.time {
            TimeKind::Arrival => Stamps::None,
            TimeKind::Own => self.calibration().map_or(Stamps::Realtime, Stamps::Ticks),
        };
        let when_full = match source.on_overload {
            Overload::Block => WhenFull::Wait,
            Overload::DropNew => WhenFull::Drop,
        };
        Some((stamps, when_full))
    }

    fn calibration(&self) -> Option<Calibration> {
        let line = self.writer.time_stamp_line();
        line.map(|ClockLine { ticks, time, rate }| Calibration {
            ticks,
            time_ns: time.0,
            rate,
        })
    }
}
