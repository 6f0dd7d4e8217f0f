//! The shortest text of a catalog: it describes the records that the log retains, and none below.
//!
//! It omits layouts that ended before, and sources without retained records, except for their names and ids, which losses and roll-ups may
//! still use. Indexes stay, because their ids are dense. The writer replays the text before it replaces the file.

use super::{Catalog, Event, Source, encode_line};
use crate::format::Rewritten;
use crate::proven;
use crate::schema::index::Index;
use crate::types::Address;

/// The order of events. Ids ascend with the addresses at which they were assigned, so the ids of sources and of indexes stay dense.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: Address,
    step: Step,
    id: u32,
    /// An index can be closed at the address where it was defined.
    is_end: bool,
}

/// The order of events at one address.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// This comes before another index takes the name.
    CloseIndex,
    GiveId,
    /// A forgotten source that keeps its old id.
    DefineAgain,
    AddFields,
    DefineIndex,
    CloseSource,
}

impl Catalog {
    /// The text of a file that held `bytes` bytes in all before. It describes the records at `below` and above, without the sources that
    /// are gone.
    pub fn rewritten_text(
        &self,
        uuid: &[u8; 16],
        bytes: u64,
        below: Address,
        is_gone: impl Fn(&Source) -> bool,
    ) -> String {
        let first = Rewritten {
            lines: self.event_count(),
            bytes,
            forgotten_below: below.max(self.forgotten_below()),
        };
        let mut events = Events(Vec::new());
        for source in self.sources.iter() {
            if source.is_forgotten() || is_gone(source) {
                events.forget(source);
            } else {
                events.define(source, below);
            }
        }
        let mut text = first.encode(uuid);
        for (event, line_no) in events.in_order().zip(first.lines + 1..) {
            text.push_str(&encode_line(uuid, line_no, &event));
        }
        text
    }
}

struct Events(Vec<(Place, Event)>);

impl Events {
    fn push(&mut self, step: Step, id: u32, event: Event) {
        let place = Place {
            at: event.at(),
            step,
            id,
            is_end: matches!(event, Event::IndexClosed { .. }),
        };
        self.0.push((place, event));
    }

    fn in_order(mut self) -> impl Iterator<Item = Event> {
        self.0.sort_by_key(|(place, _)| *place);
        self.0.into_iter().map(|(_, event)| event)
    }

    fn forget(&mut self, source: &Source) {
        let event = Event::SourceForgotten {
            source: source.id,
            at: source.id_since,
            name: source.name.clone(),
            time: source.time,
        };
        self.push(Step::GiveId, source.id.0.into(), event);
    }

    fn define(&mut self, source: &Source, below: Address) {
        let id = u32::from(source.id.0);
        let ended = source
            .layouts
            .partition_point(|(since, _)| *since <= below)
            .saturating_sub(1);
        let mut described = 0;
        for (position, (since, layout)) in source.layouts.iter().enumerate().skip(ended) {
            let until = layout.field_count();
            let fields = proven::at(&source.fields, described..until).to_vec();
            described = until;
            if position > ended {
                let event = Event::FieldsAdded {
                    source: source.id,
                    at: *since,
                    fields,
                };
                self.push(Step::AddFields, id, event);
                continue;
            }
            // The first described layout holds from the source's definition on, because no query asks for the records below.
            let (defined, _) = proven::at(&source.layouts, 0);
            let event = Event::SourceDefined {
                source: source.id,
                at: *defined,
                name: source.name.clone(),
                time: source.time,
                on_overload: source.on_overload,
                fields,
            };
            if *defined == source.id_since {
                self.push(Step::GiveId, id, event);
            } else {
                self.forget(source);
                self.push(Step::DefineAgain, id, event);
            }
        }
        for index in &source.indexes {
            self.define_index(index);
        }
        if let Some(at) = source.closed_at {
            let source = source.id;
            self.push(Step::CloseSource, id, Event::SourceClosed { source, at });
        }
    }

    fn define_index(&mut self, index: &Index) {
        let event = Event::IndexDefined {
            index: index.id,
            source: index.source,
            at: index.since,
            def: index.def.clone(),
            native: index.is_native().then_some(index.kind),
        };
        self.push(Step::DefineIndex, index.id.0, event);
        if let Some(at) = index.until {
            let step = match at == index.since {
                true => Step::DefineIndex,
                false => Step::CloseIndex,
            };
            let index = index.id;
            self.push(step, index.0, Event::IndexClosed { index, at });
        }
    }
}
