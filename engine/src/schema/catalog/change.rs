//! Changes of the catalog: what may follow what. Each is checked in full before anything changes, whether the writer
//! asks for it or a file tells it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Catalog, Event, INDEXES_EVER_MAX, PARTS_MAX, SOURCES_MAX, Source};
use crate::error::{Error, Result};
use crate::schema::bins::BinsDef;
use crate::schema::field::FieldDef;
use crate::schema::index::{INDEXES_MAX, Index, IndexDef};
use crate::schema::source::SourceDef;
use crate::types::{Address, IndexId, SourceId, ValueKind};

impl Catalog {
    /// Defines a source from `at` on, which is the start of a chunk, and gives its id and the events to append. The same
    /// definition again changes nothing; fields at the end, labels and indexes are added; a closed source is reopened.
    pub fn define_source(
        &mut self,
        def: &SourceDef,
        at: Address,
    ) -> Result<(SourceId, Vec<Event>)> {
        def.validate()?;
        self.define(def, at)
    }

    /// As `define_source`, for the sources that are built in, whose names start with `loom_`.
    pub fn define_builtin_source(
        &mut self,
        def: &SourceDef,
        at: Address,
    ) -> Result<(SourceId, Vec<Event>)> {
        def.check()?;
        self.define(def, at)
    }

    /// Closes a source: it takes no more records. What it has stays readable.
    pub fn close_source(&mut self, source: SourceId, at: Address) -> Result<Event> {
        self.made(Event::SourceClosed { source, at })
    }

    /// Opens an index from `at` on. The same definition again gives the index that there is, and no event.
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
                "source '{}' has an index '{}' that is defined otherwise; close it first",
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

    /// Opens an index whose keys a closure of the writing process makes. It ends with the process: whoever opens the
    /// directory next closes it.
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

    /// Applies an event, or changes nothing where it cannot follow those before.
    pub fn apply(&mut self, event: &Event) -> Result<()> {
        let at = event.at();
        if at < self.latest_at {
            return Err(Error::schema(format!(
                "an event at address {at} cannot follow one at {}",
                self.latest_at
            )));
        }
        match event {
            Event::SourceDefined {
                source,
                name,
                time,
                on_overload,
                fields,
                ..
            } => {
                let def = SourceDef {
                    name: name.clone(),
                    time: *time,
                    on_overload: *on_overload,
                    fields: fields.clone(),
                    indexes: Vec::new(),
                };
                self.add_source(*source, &def, at)?;
            }
            Event::FieldsAdded { source, fields, .. } => self.add_fields(*source, fields, at)?,
            Event::LabelsAdded {
                source,
                field,
                labels,
                ..
            } => {
                self.add_labels(*source, *field, labels)?;
            }
            Event::OverloadChanged {
                source,
                on_overload,
                ..
            } => {
                self.known_open(*source)?;
                self.edit(*source)?.on_overload = *on_overload;
            }
            Event::SourceClosed { source, .. } => {
                self.known_open(*source)?;
                self.edit(*source)?.closed_at = Some(at);
            }
            Event::SourceReopened { source, .. } => {
                if self.known(*source)?.is_open() {
                    return Err(Error::schema(format!("source {source} is open already")));
                }
                self.edit(*source)?.closed_at = None;
            }
            Event::IndexDefined {
                index,
                source,
                def,
                native,
                ..
            } => {
                self.add_index(*index, *source, def, *native, at)?;
            }
            Event::IndexClosed { index, .. } => self.end_index(*index, at)?,
        }
        self.event_count += 1;
        self.latest_at = at;
        Ok(())
    }

    fn made(&mut self, event: Event) -> Result<Event> {
        self.apply(&event)?;
        Ok(event)
    }

    /// Makes all of a definition's events, or changes nothing.
    fn define(&mut self, def: &SourceDef, at: Address) -> Result<(SourceId, Vec<Event>)> {
        let before = Before::of(self, &def.name);
        let defined = self.define_parts(def, at);
        if defined.is_err() {
            before.restore(self, &def.name);
        }
        defined
    }

    fn define_parts(&mut self, def: &SourceDef, at: Address) -> Result<(SourceId, Vec<Event>)> {
        let (source, mut events) = match self.find(&def.name) {
            Some(source) => (source.id, amendments(source, def, at)?),
            None => {
                let source = self.next_source()?;
                let SourceDef {
                    name,
                    time,
                    on_overload,
                    fields,
                    ..
                } = def.clone();
                (
                    source,
                    vec![Event::SourceDefined {
                        source,
                        at,
                        name,
                        time,
                        on_overload,
                        fields,
                    }],
                )
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

    fn next_source(&self) -> Result<SourceId> {
        match u16::try_from(self.sources.len() + 1) {
            Ok(id) if self.sources.len() < SOURCES_MAX => Ok(SourceId(id)),
            _ => Err(Error::schema(format!(
                "the directory has {SOURCES_MAX} sources, the limit"
            ))),
        }
    }

    fn next_index(&self) -> IndexId {
        IndexId(u32::try_from(self.index_sources.len() + 1).unwrap_or(u32::MAX))
    }

    fn edit(&mut self, id: SourceId) -> Result<&mut Source> {
        let position = usize::from(id.0).wrapping_sub(1);
        let source = Arc::make_mut(&mut self.sources).get_mut(position);
        source
            .map(Arc::make_mut)
            .ok_or_else(|| Error::schema(format!("there is no source with the id {id}")))
    }

    /// Counts what is to be allocated against the limit.
    fn spend(&self, parts: usize) -> Result<usize> {
        let spent = self.parts.saturating_add(parts);
        if spent > PARTS_MAX {
            return Err(Error::schema(format!(
                "the catalog would hold more than {PARTS_MAX} fields and bin edges"
            )));
        }
        Ok(spent)
    }

    fn add_source(&mut self, id: SourceId, def: &SourceDef, at: Address) -> Result<()> {
        let next = self.next_source()?;
        if id != next {
            return Err(Error::schema(format!(
                "source {id} cannot follow; {next} is next"
            )));
        }
        def.check()?;
        if self.ids.contains_key(&def.name) {
            return Err(Error::schema(format!(
                "there are two sources '{}'",
                def.name
            )));
        }
        let parts = self.spend(def.fields.len())?;
        let source = Source::new(id, def, at)?;
        Arc::make_mut(&mut self.ids).insert(def.name.clone(), id);
        Arc::make_mut(&mut self.sources).push(Arc::new(source));
        self.parts = parts;
        Ok(())
    }

    fn add_fields(&mut self, id: SourceId, fields: &[FieldDef], at: Address) -> Result<()> {
        let source = self.known_open(id)?;
        if fields.is_empty() || source.fields.is_empty() {
            return Err(Error::schema(format!(
                "source '{}': fields are added to a source that has some",
                source.name
            )));
        }
        let def = SourceDef {
            fields: source.fields.iter().chain(fields).cloned().collect(),
            time: source.time,
            ..SourceDef::new(&source.name)
        };
        def.check()?;
        let parts = self.spend(def.fields.len())?;
        self.edit(id)?.add_fields(def.fields, at)?;
        self.parts = parts;
        Ok(())
    }

    fn add_labels(
        &mut self,
        id: SourceId,
        position: usize,
        labels: &BTreeMap<i128, String>,
    ) -> Result<()> {
        let source = self.known_open(id)?;
        let Some(mut field) = source.fields.get(position).cloned() else {
            return Err(Error::schema(format!(
                "source {id} has no field {position}"
            )));
        };
        if let Some(taken) = labels.keys().find(|value| field.labels.contains_key(value)) {
            return Err(Error::schema(format!(
                "field '{}' of source '{}' has another label for {taken}",
                field.name, source.name
            )));
        }
        field
            .labels
            .extend(labels.iter().map(|(&value, label)| (value, label.clone())));
        field.check()?;
        if let Some(slot) = self.edit(id)?.fields.get_mut(position) {
            *slot = field;
        }
        Ok(())
    }

    fn add_index(
        &mut self,
        id: IndexId,
        source: SourceId,
        def: &IndexDef,
        native: Option<ValueKind>,
        at: Address,
    ) -> Result<()> {
        let next = self.next_index();
        if id != next {
            return Err(Error::schema(format!(
                "index {id} cannot follow; {next} is next"
            )));
        }
        let entry = self.known_open(source)?;
        let name = &entry.name;
        if entry.open_indexes().any(|index| index.name == def.name) {
            return Err(Error::schema(format!(
                "source '{name}' has an open index '{}' already; close it first",
                def.name
            )));
        }
        if entry.open_indexes().count() >= INDEXES_MAX || entry.indexes.len() >= INDEXES_EVER_MAX {
            return Err(Error::schema(format!(
                "source '{name}' can have {INDEXES_MAX} indexes at a time, {INDEXES_EVER_MAX} in all"
            )));
        }
        let index = match native {
            Some(kind) => Index::new_native(id, source, def, kind, at),
            None => Index::new(id, source, def, &entry.fields, at),
        };
        let index = index.map_err(|error| Error::schema(format!("source '{name}': {error}")))?;
        let parts = self.spend(if index.bins.is_auto() {
            1
        } else {
            index.bins.len()
        })?;
        self.edit(source)?.indexes.push(Arc::new(index));
        Arc::make_mut(&mut self.index_sources).push(source);
        self.parts = parts;
        Ok(())
    }

    fn end_index(&mut self, id: IndexId, at: Address) -> Result<()> {
        let index = self.known_index(id)?;
        if !index.is_open() {
            return Err(Error::schema(format!(
                "index '{}' is closed already",
                index.name
            )));
        }
        let source = index.source;
        let indexes = &mut self.edit(source)?.indexes;
        if let Some(index) = indexes.iter_mut().find(|index| index.id == id) {
            Arc::make_mut(index).until = Some(at);
        }
        Ok(())
    }
}

/// What a definition may change, to be put back where one of its parts is refused. A copy of the whole catalog would
/// cost a copy of all names at each definition.
struct Before {
    source: Option<Arc<Source>>,
    index_count: usize,
    event_count: u64,
    latest_at: Address,
    parts: usize,
}

impl Before {
    fn of(catalog: &Catalog, name: &str) -> Before {
        Before {
            source: catalog.find(name).cloned(),
            index_count: catalog.index_sources.len(),
            event_count: catalog.event_count,
            latest_at: catalog.latest_at,
            parts: catalog.parts,
        }
    }

    fn restore(self, catalog: &mut Catalog, name: &str) {
        let changed = catalog.find(name).map(|source| usize::from(source.id.0));
        if let (Some(id), true) = (changed, catalog.event_count > self.event_count) {
            let sources = Arc::make_mut(&mut catalog.sources);
            match (
                self.source,
                id.checked_sub(1)
                    .and_then(|position| sources.get_mut(position)),
            ) {
                (Some(source), Some(slot)) => *slot = source,
                _ => {
                    sources.truncate(id.saturating_sub(1));
                    Arc::make_mut(&mut catalog.ids).remove(name);
                }
            }
            Arc::make_mut(&mut catalog.index_sources).truncate(self.index_count);
        }
        catalog.event_count = self.event_count;
        catalog.latest_at = self.latest_at;
        catalog.parts = self.parts;
    }
}

/// The events that turn a source into what a new definition of it says; an error where that is another source.
fn amendments(source: &Source, def: &SourceDef, at: Address) -> Result<Vec<Event>> {
    let (id, name) = (source.id, &source.name);
    let refused = |what: String| Err(Error::schema(format!("source '{name}' exists and {what}")));
    if source.time != def.time {
        return refused("goes by another time, which cannot change".to_owned());
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
                "has '{}' where the definition has '{}'; fields can only be added at the end",
                old.name, new.name
            ));
        }
        if (old.ty, old.nullable) != (new.ty, new.nullable) {
            return refused(format!(
                "its field '{}' is {}, which cannot become {}; a source of another name can have it",
                old.name,
                described(old),
                described(new)
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
    if let Some(missing) = source.fields.get(def.fields.len()) {
        return refused(format!(
            "has the field '{}' besides; a definition repeats all fields",
            missing.name
        ));
    }
    match def.fields.get(source.fields.len()..) {
        Some([]) | None => {}
        Some(_) if source.fields.is_empty() => {
            return refused("has no fields; none can be added".to_owned());
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
