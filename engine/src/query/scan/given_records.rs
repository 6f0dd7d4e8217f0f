//! A batch of records in memory: those of `top`, which come from many chunks.

use std::sync::Arc;

use super::batch::{Batch, BatchRows};
use super::records::Records;
use crate::error::{Error, Result};
use crate::format::{Wanted, record_bytes};
use crate::schema::{Layout, Pieces};
use crate::types::{Address, SourceId, Timestamp};

pub struct GivenRecords {
    layout: Arc<Layout>,
    pieces: Pieces,
    /// The records' bytes as in the log.
    bytes: Vec<u8>,
    records: Records,
}

impl GivenRecords {
    pub fn of(source: SourceId, layout: Arc<Layout>) -> GivenRecords {
        GivenRecords {
            pieces: Pieces::of(source, &layout),
            layout,
            bytes: Vec::new(),
            records: Records::default(),
        }
    }

    /// Adds a record that [the layout accepts](Layout::validate).
    ///
    /// # Errors
    /// Fails if the layout does not accept it.
    pub fn push(&mut self, address: Address, ts: Timestamp, payload: &[u8]) -> Result<()> {
        let refused = |error| Error::Query(format!("a record does not fit its source: {error}"));
        self.layout.validate(payload).map_err(refused)?;
        let place = self.bytes.len();
        let header = u64::from(self.pieces.template().source.0) | (payload.len() as u64) << 16;
        self.bytes.extend_from_slice(&header.to_le_bytes());
        self.bytes.extend_from_slice(payload);
        self.bytes.resize(place + record_bytes(payload.len()), 0);
        self.records.push(place as u32, ts, address);
        Ok(())
    }

    /// Returns all pushed records with every column except arrivals.
    pub fn batch(&mut self) -> Batch<'_> {
        let template = self.pieces.template();
        let all = Wanted::all(template);
        let gathered = self.records.gather(template, &all, &self.bytes);
        gathered.expect("a payload that was validated is whole");
        Batch {
            layout: &self.layout,
            pieces: &self.pieces,
            rows: BatchRows::Chunk(self.records.rows(&self.bytes)),
        }
    }
}
