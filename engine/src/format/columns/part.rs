//! Which parts of a unit are read: a question about one source leaves those of the others where they are.

use std::iter;
use std::ops::Range;

use super::groups::Section;
use super::rows::Wanted;
use super::stream::Stream;
use super::unit::Unit;
use crate::memory::NoMemory;
use crate::proven::at;
use crate::types::SourceId;

/// What is read of a unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UnitPart<'a> {
    Head,
    Columns(PartColumns<'a>),
    All,
}

/// What [`Unit::columns`] takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartColumns<'a> {
    pub source: SourceId,
    pub chunks: Range<usize>,
    /// `None`: all columns.
    pub wanted: Option<&'a Wanted>,
    /// Also what says where the rows stand: the order of all sources' records, and how long these are.
    pub addresses: bool,
}

/// Up to so many bytes between two sections are read too.
const GAP_BYTES_MOST: usize = 4096;

/// What is yet to be read of a part.
enum Missing {
    Nothing,
    /// From one section to another each.
    Sections(Vec<(Section, Section)>),
    All,
}

impl Unit {
    /// Has `read` read what is yet to be read of a part: it is given where that begins in the unit. A buffer is taken from `spare`, if one is needed.
    ///
    /// # Errors
    /// Those of `read`, and what `refused` makes of memory that is refused.
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

    /// Where in the unit stands what is yet to be read of a part.
    pub fn missing(&self, part: &UnitPart<'_>) -> Vec<Range<usize>> {
        match self.look(part) {
            Missing::Nothing => Vec::new(),
            Missing::Sections(runs) => runs.iter().map(range_of).collect(),
            Missing::All => iter::once(self.header.head_bytes..self.header.unit_bytes).collect(),
        }
    }

    /// Whether a part was read.
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

    /// Keeps no more than the head. Returns the buffer of what was read.
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

    /// The sections of a part that were not read yet; `None`: it is not made of sections, or all of the unit was read.
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
    /// What is taken of a stream.
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
