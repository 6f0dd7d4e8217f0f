//! Encoding 3: runs of equal numbers, as two nested blocks.

use std::iter;

use super::encoding::{Block, Decode, Encode, Encoding, Put, Run, Within};
use super::look::Look;
use crate::format::bytes::{FormatError, invalid, put_leb128};
use crate::format::columns::bits::packed_bytes;
use crate::memory;
use crate::proven::at_mut;

pub struct ToRun<'a> {
    pub numbers: &'a [u64],
    pub look: &'a Look,
}

impl Encode for ToRun<'_> {
    fn encoding(&self) -> Encoding {
        Encoding::Runs
    }

    /// Assumes that a run's number and length are a little narrower than the widest.
    fn estimate(&self) -> usize {
        let look = self.look;
        let width = look.width().min(look.step_width().saturating_add(4));
        packed_bytes(look.runs, width + 6) + 16
    }

    fn encode(&self, put: &mut Put<'_>, out: &mut Vec<u8>) {
        // Ends of runs cannot be predicted, so there is no branch for each number.
        let (mut values, mut ends) = (vec![0; self.look.runs], vec![0; self.look.runs]);
        let (mut run, mut before) = (0, self.look.first);
        for (row, &number) in (1..).zip(self.numbers) {
            run += usize::from(number != before);
            *at_mut(&mut values, run) = number;
            *at_mut(&mut ends, run) = row;
            before = number;
        }
        let starts = iter::once(&0).chain(&ends);
        let lengths: Vec<u64> = ends
            .iter()
            .zip(starts)
            .map(|(end, start)| end - start)
            .collect();
        put_leb128(out, values.len() as u64);
        put(Within::Inner, &values, out);
        put(Within::Flat, &lengths, out);
    }
}

pub struct Runs<'a> {
    pub rows: usize,
    pub values: Block<'a>,
    pub lengths: Block<'a>,
}

impl Runs<'_> {
    /// Passes the runs to `each` and checks that they cover the rows.
    fn each(&self, mut each: impl FnMut(Run)) -> Result<(), FormatError> {
        let (values, lengths) = (self.values.decoded()?, self.lengths.decoded()?);
        let mut left = self.rows;
        for (value, length) in values.iter().zip(lengths.iter()) {
            let length = usize::try_from(*length).unwrap_or(usize::MAX);
            let Some(after) = left.checked_sub(length) else {
                return invalid("the length of a run in a column", length as u64);
            };
            each(Run {
                number: *value,
                rows: length,
            });
            left = after;
        }
        match left {
            0 => Ok(()),
            _ => invalid("the rows that no run of a column covers", left as u64),
        }
    }
}

impl Decode for Runs<'_> {
    fn rows(&self) -> usize {
        self.rows
    }

    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
        let mut done = 0;
        self.each(|run| {
            at_mut(out, done..done + run.rows).fill(run.number);
            done += run.rows;
        })
    }

    fn runs(&self, out: &mut Vec<Run>) -> Result<(), FormatError> {
        memory::reserve(out, self.values.rows())?;
        self.each(|run| out.push(run))
    }
}
