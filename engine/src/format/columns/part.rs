//! Which parts of a unit are read: a question about one source leaves those of the others where they are.

use std::ops::Range;

use super::head::{Head, Section};
use super::unit::Unit;
use crate::types::SourceId;

/// What is read of a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnitPart {
    Head,
    /// What [`Unit::columns`] takes of a source in these chunks, without addresses.
    Columns(SourceId, Range<usize>),
    All,
}

/// What is yet to be read of a part.
enum Missing {
    Nothing,
    /// The first and the last section; those of other sources at most stand between them.
    Sections(Section, Section),
    All,
}

impl Unit {
    /// Has `read` read what is yet to be read of a part: it is given where that begins in the unit. A buffer is taken from `spare`, if one is needed.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn fill<E>(
        &mut self,
        part: &UnitPart,
        spare: &mut Vec<u8>,
        read: impl FnOnce(usize, &mut [u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let missing = self.look(part);
        let Some(range) = self.place(&missing) else {
            return Ok(());
        };
        self.complete = None;
        let done = read(range.start, self.bytes.room(range, spare));
        match (missing, part) {
            (Missing::Sections(first, last), UnitPart::Columns(source, chunks)) => {
                self.bytes.note_read(&first, &last, done.is_ok());
                let is_complete = done.is_ok() && *chunks == (0..self.header.chunks);
                self.complete = is_complete.then_some(*source);
            }
            _ => {
                self.bytes.forget_verified();
                self.is_whole = done.is_ok();
            }
        }
        done
    }

    /// Where in the unit stands what is yet to be read of a part.
    pub fn missing(&self, part: &UnitPart) -> Option<Range<usize>> {
        self.place(&self.look(part))
    }

    /// Whether a part was read.
    pub fn has(&self, part: &UnitPart) -> bool {
        matches!(self.look(part), Missing::Nothing)
    }

    /// Keeps no more than the head. Returns the buffer of what was read.
    pub fn shed(&mut self) -> Vec<u8> {
        self.is_whole = false;
        self.complete = None;
        self.bytes.take()
    }

    fn look(&self, part: &UnitPart) -> Missing {
        let (source, chunks) = match part {
            _ if self.is_whole => return Missing::Nothing,
            UnitPart::Head => return Missing::Nothing,
            UnitPart::Columns(source, _) if self.complete == Some(*source) => {
                return Missing::Nothing;
            }
            UnitPart::Columns(source, chunks) => (*source, chunks.clone()),
            UnitPart::All => return Missing::All,
        };
        let Some(head) = &self.head else {
            return Missing::All;
        };
        let sections = sections_of(head, source, chunks);
        let mut missing = sections.filter(|section| !self.bytes.is_read(section));
        match missing.next() {
            Some(first) => Missing::Sections(first, missing.next_back().unwrap_or(first)),
            None => Missing::Nothing,
        }
    }

    fn place(&self, missing: &Missing) -> Option<Range<usize>> {
        match missing {
            Missing::Nothing => None,
            Missing::Sections(first, last) => Some(first.start..last.start + last.bytes),
            Missing::All => Some(self.header.head_bytes..self.header.unit_bytes),
        }
    }
}

/// The sections of the row groups that hold a source's rows in some chunks, in order.
fn sections_of(
    head: &Head,
    source: SourceId,
    chunks: Range<usize>,
) -> impl DoubleEndedIterator<Item = Section> {
    let groups = head
        .streams_of(source)
        .flat_map(|(_, stream)| &stream.groups);
    groups
        .filter(move |group| group.first_chunk < chunks.end && group.end_chunk > chunks.start)
        .map(|group| group.section)
}
