//! Chooses the parts of a unit to read, so that a question about one source does not read the others.

use std::iter;
use std::ops::Range;

use super::groups::Section;
use super::rows::Wanted;
use super::stream::Stream;
use super::unit::Unit;
use crate::memory::NoMemory;
use crate::proven::at;
use crate::types::SourceId;

/// A part of a unit to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnitPart<'a> {
    Head,
    Columns(PartColumns<'a>),
    All,
}

/// The part that [`Unit::columns`] needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartColumns<'a> {
    pub source: SourceId,
    pub chunks: Range<usize>,
    /// `None`: all columns.
    pub wanted: Option<&'a Wanted>,
    /// Also reads the places of the rows: the order of all sources' records and their lengths.
    pub addresses: bool,
}

/// A gap of at most this many bytes between two sections is read too.
const GAP_BYTES_MOST: usize = 4096;

/// The unread rest of a part.
enum Missing {
    Nothing,
    /// Ranges, each from one section to another.
    Sections(Vec<(Section, Section)>),
    All,
}

impl Unit {
    /// Calls `read` for the unread rest of a part with its offset in the unit. It takes a buffer from `spare`, if it needs one.
    ///
    /// # Errors
    /// Returns errors of `read`, and the error that `refused` makes of refused memory.
    pub fn fill<E>(
        &mut self,
        part: &UnitPart<'_>,
        spare: &mut Vec<u8>,
        read: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
        refused: impl FnOnce(NoMemory) -> E,
    ) -> Result<(), E> {
        let unit_bytes = self.header.unit_bytes;
        match self.look(part) {
            Missing::Nothing => {}
            Missing::Sections(runs) => {
                let ranges = runs.iter().map(range_of);
                (self.bytes).read(ranges, unit_bytes, spare, read, refused)?;
                for (first, last) in &runs {
                    self.bytes.note_read(first, last);
                }
                if let UnitPart::Columns(columns) = part
                    && let Some(wanted) = columns.wanted
                    && columns.chunks == (0..self.header.chunks)
                {
                    self.complete = Some((columns.source, wanted.clone(), columns.addresses));
                }
            }
            Missing::All => {
                let all = iter::once(self.header.head_bytes..unit_bytes);
                *spare = self.shed();
                (self.bytes).read(all, unit_bytes, spare, read, refused)?;
                self.is_whole = true;
            }
        }
        Ok(())
    }

    /// Returns the places in the unit of the unread rest of a part.
    pub fn missing(&self, part: &UnitPart<'_>) -> Vec<Range<usize>> {
        match self.look(part) {
            Missing::Nothing => Vec::new(),
            Missing::Sections(runs) => runs.iter().map(range_of).collect(),
            Missing::All => iter::once(self.header.head_bytes..self.header.unit_bytes).collect(),
        }
    }

    /// Reports whether a part was read.
    pub fn has(&self, part: &UnitPart<'_>) -> bool {
        if let (UnitPart::Columns(columns), Some((source, complete, addresses))) =
            (part, &self.complete)
            && columns.source == *source
            && (*addresses || !columns.addresses)
            && columns.wanted.is_some_and(|wanted| complete.covers(wanted))
        {
            return true;
        }
        match (self.unread(part), part) {
            (Some(mut unread), _) => unread.next().is_none(),
            (None, UnitPart::Head) => true,
            (None, _) => self.is_whole,
        }
    }

    /// Keeps only the head and returns the buffer.
    pub fn shed(&mut self) -> Vec<u8> {
        self.is_whole = false;
        self.complete = None;
        self.bytes.take()
    }

    fn look(&self, part: &UnitPart<'_>) -> Missing {
        let Some(unread) = self.unread(part) else {
            return match part {
                _ if self.is_whole => Missing::Nothing,
                UnitPart::Head => Missing::Nothing,
                _ => Missing::All,
            };
        };
        // Members of a family have the same sections.
        let mut unread: Vec<Section> = unread.collect();
        unread.sort_unstable_by_key(|section| section.ordinal);
        let mut runs: Vec<(Section, Section)> = Vec::new();
        for section in unread {
            match runs.last_mut() {
                Some((_, last)) if section.start <= last.start + last.bytes + GAP_BYTES_MOST => {
                    *last = section;
                }
                _ => runs.push((section, section)),
            }
        }
        match runs.is_empty() {
            true => Missing::Nothing,
            false => Missing::Sections(runs),
        }
    }

    /// Returns the unread sections of a part; `None` if it has no sections or the whole unit was read.
    fn unread<'a>(&'a self, part: &'a UnitPart<'_>) -> Option<impl Iterator<Item = Section> + 'a> {
        let (UnitPart::Columns(columns), Some(head)) = (part, &self.head) else {
            return None;
        };
        if self.is_whole {
            return None;
        }
        let orders = match columns.addresses {
            true => at(&head.orders, columns.chunks.clone()),
            false => &[],
        };
        let own = head.streams_of(columns.source);
        let own = (!columns.addresses).then(|| own.map(|(_, stream)| stream));
        let all = columns.addresses.then(|| head.streams());
        let streams = own.into_iter().flatten().chain(all.into_iter().flatten());
        let of_streams = streams.flat_map(|stream| columns.sections(stream));
        let sections = orders.iter().copied().chain(of_streams);
        Some(sections.filter(|section| !self.bytes.is_read(section)))
    }
}

impl PartColumns<'_> {
    /// Returns the sections of a stream that the part needs.
    fn sections<'a>(&'a self, stream: &'a Stream) -> impl Iterator<Item = Section> + 'a {
        let (template, chunks) = (&stream.template, &self.chunks);
        let is_own = template.source == self.source;
        let is_taken = move |blocks| match self.wanted {
            Some(wanted) if is_own => wanted.takes(template, blocks),
            None if is_own => true,
            _ => Wanted::lengths().takes(template, blocks),
        };
        let groups = stream
            .groups
            .iter()
            .filter(|group| group.first_chunk < chunks.end && group.end_chunk > chunks.start);
        groups.flat_map(move |group| {
            let mut end = 0;
            let parts = group.parts.iter().filter(move |part| {
                is_taken(std::mem::replace(&mut end, part.end_block)..part.end_block)
            });
            parts.map(|part| part.section)
        })
    }
}

fn range_of((first, last): &(Section, Section)) -> Range<usize> {
    first.start..last.start + last.bytes
}
