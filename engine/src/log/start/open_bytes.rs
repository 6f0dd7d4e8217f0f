//! The records behind the last unit, on their way from the epoch before into the new staging, and the empty units of a gap behind them.

use crate::error::Result;
use crate::log::files::segment::SegmentDir;
use crate::log::files::unit_appender::UnitAppender;
use crate::log::write::encoder::Encoder;
use crate::types::Address;

/// The records from a unit's begin to their end, a chunk boundary. Zeroes follow.
pub struct OpenBytes {
    pub first: Address,
    pub bytes: Vec<u8>,
}

impl OpenBytes {
    fn end(&self) -> Address {
        self.first + self.bytes.len() as u64
    }

    /// Returns `bytes` bytes from an address on.
    pub fn from(&self, at: Address, bytes: usize) -> Vec<u8> {
        let offset = (at.0 - self.first.0) as usize;
        let known = self.bytes.iter().skip(offset).copied();
        known.chain(std::iter::repeat(0)).take(bytes).collect()
    }

    /// Writes the units from `encoded` up to `base`, where records continue: one that ends in a gap, and those in the gap. Chunks without records are zeroes.
    pub fn close_units(
        &self,
        folder: &SegmentDir,
        encoded: Address,
        base: Address,
        encoder: &mut dyn Encoder,
    ) -> Result<()> {
        let (at, unit_bytes) = (encoded, folder.unit_bytes());
        if at >= base {
            return Ok(());
        }
        let mut appender = UnitAppender::find(folder, folder.provide(folder.first_of(at))?, at)?;
        // The truncation is durable before new bytes take the place.
        appender.file().sync()?;
        if at < self.end() {
            let mut unit = Vec::new();
            encoder.encode(at, &self.from(at, unit_bytes as usize), &mut unit);
            appender.append(&unit)?;
        }
        appender.file().sync()?;
        let first = folder.first_of(base);
        let from = first.max(appender.next());
        if base > from {
            let mut appender = UnitAppender::find(folder, folder.provide(first)?, from)?;
            appender.append_empty(base)?;
            appender.file().sync()?;
        }
        Ok(())
    }
}
