//! Changes of the catalog that the writer requests. Each returns the events to append to the file.

use std::collections::BTreeMap;

use super::{Catalog, Event, Source};
use crate::error::{Error, Result};
use crate::schema::bins::BinsDef;
use crate::schema::field::FieldDef;
use crate::schema::index::IndexDef;
use crate::schema::source::SourceDef;
use crate::types::{Address, IndexId, SourceId, ValueKind};

impl Catalog {
    /// Defines a source from `at` on, which is the start of a chunk, and returns its id and the events to append. Repeating a definition
    /// changes nothing; new fields at the end, labels and indexes are added; a closed source is reopened.
    pub fn define_source(
        &mut self,
        def: &SourceDef,
        at: Address,
    ) -> Result<(SourceId, Vec<Event>)> {
        def.validate()?;
        self.attempt(|catalog| catalog.define(def, at))
    }

    /// As `define_source`, for built-in sources, whose names start with `loom_`.
    pub fn define_builtin_source(
        &mut self,
        def: &SourceDef,
        at: Address,
    ) -> Result<(SourceId, Vec<Event>)> {
        def.check()?;
        self.attempt(|catalog| catalog.define(def, at))
    }

    /// Closes a source: it takes no more records. Its old records stay readable.
    pub fn close_source(&mut self, source: SourceId, at: Address) -> Result<Event> {
        self.made(Event::SourceClosed { source, at })
    }

    /// Opens an index from `at` on. Repeating a definition returns the existing index and no event.
    pub fn define_index(
        &mut self,
        source: SourceId,
        def: &IndexDef,
        at: Address,
    ) -> Result<(IndexId, Option<Event>)> {
        let entry = self.known_open(source)?;
        if let Some(index) = entry.open_indexes().find(|index| index.name == def.name) {
            if index.is_same(def, &entry.fields)? {
                return Ok((index.id, None));
            }
            return Err(Error::schema(format!(
                "source '{}' has an index '{}' with another definition; close it first with 'ingestd index close'",
                entry.name, def.name
            )));
        }
        let index = self.next_index();
        let event = Event::IndexDefined {
            index,
            source,
            at,
            def: def.clone(),
            native: None,
        };
        Ok((index, Some(self.made(event)?)))
    }

    /// Opens an index whose keys a closure of the writing process computes. It ends with the process: the next writer of the directory
    /// closes it.
    pub fn define_native_index(
        &mut self,
        source: SourceId,
        name: &str,
        kind: ValueKind,
        bins: &BinsDef,
        at: Address,
    ) -> Result<(IndexId, Event)> {
        let index = self.next_index();
        let def = IndexDef {
            bins: bins.clone(),
            ..IndexDef::new(name, None)
        };
        let event = Event::IndexDefined {
            index,
            source,
            at,
            def,
            native: Some(kind),
        };
        Ok((index, self.made(event)?))
    }

    /// Closes an index: it covers no records from `at` on.
    pub fn close_index(&mut self, index: IndexId, at: Address) -> Result<Event> {
        self.made(Event::IndexClosed { index, at })
    }

    fn made(&mut self, event: Event) -> Result<Event> {
        self.apply(&event)?;
        Ok(event)
    }

    fn define(&mut self, def: &SourceDef, at: Address) -> Result<(SourceId, Vec<Event>)> {
        let (source, mut events) = match self.find_even_forgotten(&def.name) {
            Some(source) if !source.is_forgotten() => (source.id, amendments(source, def, at)?),
            forgotten => {
                let source = match forgotten {
                    Some(source) => source.id,
                    None => self.next_source()?,
                };
                let def = def.clone();
                let event = Event::SourceDefined {
                    source,
                    at,
                    name: def.name,
                    time: def.time,
                    on_overload: def.on_overload,
                    fields: def.fields,
                };
                (source, vec![event])
            }
        };
        for event in &events {
            self.apply(event)?;
        }
        for index in &def.indexes {
            events.extend(self.define_index(source, index, at)?.1);
        }
        Ok((source, events))
    }
}

/// The events that turn a source into its new definition; an error if that is another source.
fn amendments(source: &Source, def: &SourceDef, at: Address) -> Result<Vec<Event>> {
    let (id, name) = (source.id, &source.name);
    let refused = |what: String| Err(Error::schema(format!("source '{name}' exists: {what}")));
    if source.time != def.time {
        return refused("its time cannot change; give the new source another name".to_owned());
    }
    let mut events = Vec::new();
    if !source.is_open() {
        events.push(Event::SourceReopened { source: id, at });
    }
    if source.on_overload != def.on_overload {
        events.push(Event::OverloadChanged {
            source: id,
            at,
            on_overload: def.on_overload,
        });
    }
    for (position, (old, new)) in source.fields.iter().zip(&def.fields).enumerate() {
        if old.name != new.name {
            return refused(format!(
                "it has the field '{}' where the definition has '{}'; add new fields at the end",
                old.name, new.name
            ));
        }
        if (old.ty, old.nullable) != (new.ty, new.nullable) {
            return refused(format!(
                "its field '{}' is {} and cannot become {}; give the new source another name",
                old.name,
                described(old),
                described(new)
            ));
        }
        if old.series != new.series {
            return refused(format!(
                "its field '{}' holds another series; give the new field another name",
                old.name
            ));
        }
        let is_new = |(value, label): &(&i128, &String)| old.labels.get(value) != Some(*label);
        let labels: BTreeMap<i128, String> = new
            .labels
            .iter()
            .filter(is_new)
            .map(|(&value, label)| (value, label.clone()))
            .collect();
        if !labels.is_empty() {
            events.push(Event::LabelsAdded {
                source: id,
                at,
                field: position,
                labels,
            });
        }
    }
    let fields = source.fields.iter().zip(&def.fields).enumerate();
    for (field, (old, new)) in fields {
        let source = id;
        if new.lookup && !old.lookup {
            events.push(Event::LookupAdded { source, at, field });
        }
        if new.words && !old.words {
            events.push(Event::WordsAdded { source, at, field });
        }
    }
    if let Some(missing) = source.fields.get(def.fields.len()) {
        return refused(format!(
            "the definition omits its field '{}'; repeat all existing fields",
            missing.name
        ));
    }
    match def.fields.get(source.fields.len()..) {
        Some([]) | None => {}
        Some(_) if source.fields.is_empty() => {
            return refused(
                "it has no fields, and none can be added; give the new source another name"
                    .to_owned(),
            );
        }
        Some(added) => {
            events.push(Event::FieldsAdded {
                source: id,
                at,
                fields: added.to_vec(),
            });
        }
    }
    Ok(events)
}

fn described(field: &FieldDef) -> String {
    format!(
        "{}{}",
        field.ty,
        if field.nullable { ", nullable" } else { "" }
    )
}
