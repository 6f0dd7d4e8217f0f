//! Encoding 5: the bits that differ among the numbers, moved together.

use super::cursor::Cursor;
use super::encoding::{Decode, Encode, Encoding, Put};
use super::look::Look;
use crate::format::bytes::FormatError;
use crate::format::columns::bits::{
    self, pack_gathered, packed_bytes, runs_of, scatter_all, scatter_bits, width_of_bits,
};
use crate::memory;

pub struct ToMask<'a> {
    pub numbers: &'a [u64],
    pub look: &'a Look,
}

impl Encode for ToMask<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Masked
    }

    fn estimate(&self) -> usize {
        packed_bytes(self.look.count, self.look.mask_width()) + 16
    }

    fn encode(&self, _: &mut Put<'_>, out: &mut Vec<u8>) {
        let varying = self.look.varying;
        out.extend_from_slice(&(self.look.first & !varying).to_le_bytes());
        out.extend_from_slice(&varying.to_le_bytes());
        let mut runs = Vec::new();
        runs_of(varying, &mut runs);
        pack_gathered(self.numbers, &runs, self.look.mask_width(), out);
    }
}

pub struct Masked<'a> {
    shared: u64,
    varying: u64,
    gathered: bits::Packed<'a>,
}

impl<'a> Masked<'a> {
    pub fn open(cursor: &mut Cursor<'a>, rows: usize) -> Result<Masked<'a>, FormatError> {
        let (shared, varying) = (cursor.fixed()?, cursor.fixed()?);
        let gathered = cursor.packed_of(rows, width_of_bits(varying.count_ones()))?;
        Ok(Masked {
            shared,
            varying,
            gathered,
        })
    }
}

impl Decode for Masked<'_> {
    fn rows(&self) -> usize {
        self.gathered.count()
    }

    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
        let mut runs = Vec::new();
        runs_of(self.varying, &mut runs);
        self.gathered.unpack(out, |number| number);
        scatter_all(out, self.shared, &runs);
        Ok(())
    }

    fn pick(&self, rows: &[u32], out: &mut Vec<u64>) -> Result<(), FormatError> {
        memory::reserve(out, rows.len())?;
        let mut runs = Vec::new();
        runs_of(self.varying, &mut runs);
        let gathered = rows.iter().map(|row| self.gathered.get(*row as usize));
        out.extend(gathered.map(|number| self.shared | scatter_bits(number, &runs)));
        Ok(())
    }
}
