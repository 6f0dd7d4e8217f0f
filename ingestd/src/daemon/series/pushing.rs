//! Records of groups on their way into the log, and what the writer thread does with them.

use std::collections::BTreeMap;

use loom_engine::schema::{
    FieldDef, FieldValue, LossReason, PayloadEncoder, Source, SourceDef, TimeKind,
};
use loom_engine::{Address, Timestamp, proven};

use super::storing::MS_NS;
use crate::daemon::definitions;
use crate::daemon::fate::Outcome;
use crate::daemon::payload_batch::PayloadBatch;
use crate::daemon::peer::Peer;
use crate::daemon::recorder::Recorder;
use crate::losses::Lost;
use crate::protocol::Shape;

/// One record on its way.
pub(super) struct Push {
    source: String,
    fields: usize,
    pub(super) payload: Vec<u8>,
}

impl Push {
    /// A record of the values of one time, with their fields.
    pub(super) fn new(def: &SourceDef, time_ms: i64, values: &[(usize, f64)]) -> Push {
        Push {
            source: def.name.clone(),
            fields: def.fields.len(),
            payload: encoded(def, time_ms, values),
        }
    }
}

/// A payload; a field without a value is NULL.
fn encoded(def: &SourceDef, time_ms: i64, values: &[(usize, f64)]) -> Vec<u8> {
    let mut all = vec![FieldValue::Null; def.fields.len()];
    for (field, value) in values {
        *proven::at_mut(&mut all, *field) = FieldValue::F64(*value);
    }
    let mut payload = Vec::new();
    let own = Timestamp(time_ms.saturating_mul(MS_NS));
    let mut encoder = PayloadEncoder::new(TimeKind::Own, &def.fields)
        .expect("a group's fields are numbers, and no more than a source has");
    encoder
        .encode(Some(own), &all, &mut payload)
        .expect("numbers that fit a payload are encoded");
    payload
}

fn holds_same(known: &Source, def: &SourceDef) -> bool {
    let mut fields = known.fields.iter().zip(&def.fields);
    fields.all(|(known, field)| known.series == field.series)
}

impl Recorder {
    /// Defines the series of groups that are new, as far as they make the catalog file no longer than `catalog_bytes_max`: all or none. The groups
    /// are of a catalog that forgot others below `forgotten_below`: if it forgot more since, somebody may have defined one of them with other series.
    pub(super) fn define_series(
        &mut self,
        defs: &[SourceDef],
        catalog_bytes_max: u64,
        forgotten_below: Address,
    ) -> Result<(), loom_engine::Error> {
        let mut new = Vec::new();
        let forgot_more = self.writer.catalog().forgotten_below() != forgotten_below;
        let mut catalog_bytes = self.writer.catalog_bytes();
        for def in defs {
            let known = self.writer.catalog().find(&def.name);
            let added = known.map_or(0, |known| known.fields.len());
            let added = def.fields.iter().skip(added);
            catalog_bytes += added.map(FieldDef::line_bytes).sum::<u64>();
            match known {
                Some(known) if !known.is_open() => {
                    let name = known.name.clone();
                    return Err(loom_engine::Error::SourceClosed { name });
                }
                Some(known) if forgot_more && !holds_same(known, def) => {
                    return Err(loom_engine::Error::schema(format!(
                        "source '{}' was forgotten and has other series now; they are read again",
                        def.name
                    )));
                }
                Some(known) if known.fields.len() >= def.fields.len() => {}
                _ => new.push(def.clone()),
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        if catalog_bytes > catalog_bytes_max {
            return Err(loom_engine::Error::schema(format!(
                "new series would make the catalog longer than {catalog_bytes_max} bytes; raise [otlp] catalog_max, of which an address has half a day"
            )));
        }
        definitions::define(&mut self.writer, &new).map(drop)
    }

    /// Pushes records until the log is full. Returns those that are left.
    pub(super) fn push_samples(
        &mut self,
        peer: &Peer,
        mut pushes: Vec<Push>,
    ) -> Result<Vec<Push>, loom_engine::Error> {
        let mut pushed = 0;
        for Push {
            source,
            fields,
            payload,
        } in &pushes
        {
            let id = definitions::find(self.writer.catalog(), source)?.id;
            peer.learn(id, *fields);
            let record_bytes = payload.len() as u16;
            let batch = PayloadBatch {
                shape: Shape::Fixed { record_bytes },
                bytes: payload,
                records: 1,
            };
            if let Outcome::Full { .. } = self.push(peer, id, &batch) {
                break;
            }
            pushed += 1;
        }
        Ok(pushes.split_off(pushed))
    }

    /// Counts samples that are refused. They are one loss: of several with one reason, the ledger would keep the words of one.
    pub(super) fn refuse_samples(
        &mut self,
        peer: &Peer,
        first: &str,
        refused: &BTreeMap<String, u64>,
    ) {
        let source = self.writer.catalog().find(first).map(|source| source.id);
        let said = refused
            .iter()
            .map(|(why, samples)| format!("{samples}: {why}"));
        // A target of which nothing was ever stored has no source.
        let named = source.is_none().then(|| format!("of {first}"));
        let lost = Lost {
            source,
            reason: LossReason::Malformed,
            records: refused.values().sum(),
            bytes: None,
            detail: &named.into_iter().chain(said).collect::<Vec<_>>().join("; "),
        };
        match source {
            Some(source) => self.enter_unstored(peer, source, &lost),
            None => self.enter_of_no_source(&lost),
        }
    }
}
