//! Encoding 7: differences from row to row within each member of a shared row group.

use super::cursor::Cursor;
use super::encoding::{Block, Decode, put_signed};
use crate::format::bytes::FormatError;
use crate::format::columns::bits::{self, pack, width_of};
use crate::proven::{at, at_mut};

/// Appends the block without its encoding byte. `members` holds the numbers of each member, at least one.
pub fn encode(
    numbers: &[u64],
    members: &[usize],
    put: impl FnOnce(&[u64], &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let mut firsts = Vec::with_capacity(members.len());
    let mut steps = Vec::with_capacity(numbers.len());
    let mut rest = numbers;
    for rows in members {
        let (own, after) = rest.split_at(*rows);
        firsts.extend(own.first());
        let pairs = own.iter().zip(own.iter().skip(1));
        steps.extend(pairs.map(|(before, after)| after.wrapping_sub(*before)));
        rest = after;
    }
    let least = steps.iter().map(|step| *step as i64).min().unwrap_or(0);
    let mut greatest = 0;
    for step in &mut steps {
        *step = step.wrapping_sub(least as u64);
        greatest = greatest.max(*step);
    }
    let width = width_of(greatest);
    put(&firsts, out);
    put_signed(out, least);
    out.push(width);
    pack(&steps, width, out);
}

pub struct Members<'a> {
    members: &'a [usize],
    firsts: Block<'a>,
    least: u64,
    steps: bits::Packed<'a>,
}

impl<'a> Members<'a> {
    /// Opens the part behind the block of the first numbers.
    pub fn open(
        cursor: &mut Cursor<'a>,
        members: &'a [usize],
        firsts: Block<'a>,
    ) -> Result<Members<'a>, FormatError> {
        let least = cursor.signed()?;
        let steps = cursor.packed(members.iter().sum::<usize>() - members.len())?;
        Ok(Members {
            members,
            firsts,
            least,
            steps,
        })
    }
}

impl Decode for Members<'_> {
    fn rows(&self) -> usize {
        self.steps.count() + self.members.len()
    }

    fn decode(&self, out: &mut [u64]) -> Result<(), FormatError> {
        let (firsts, least) = (self.firsts.decoded()?, self.least);
        // Each member has a row at least, so its steps lie behind the place of its numbers until these overwrite them.
        let mut step_at = self.members.len();
        self.steps
            .unpack(at_mut(out, step_at..), |step| step.wrapping_add(least));
        let mut next = 0;
        for (rows, first) in self.members.iter().zip(firsts) {
            let mut number = first;
            *at_mut(out, next) = number;
            for row in next + 1..next + rows {
                number = number.wrapping_add(*at(out, step_at));
                *at_mut(out, row) = number;
                step_at += 1;
            }
            next += rows;
        }
        Ok(())
    }
}
