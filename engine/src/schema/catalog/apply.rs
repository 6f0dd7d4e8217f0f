//! Applies events to the catalog. Each event is checked completely before anything changes, whether the writer created it or a file holds
//! it.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::{Catalog, Event, INDEXES_EVER_MAX, PARTS_MAX, SOURCES_MAX, Source};
use crate::error::{Error, Result};
use crate::proven;
use crate::schema::field::FieldDef;
use crate::schema::index::{INDEXES_MAX, Index, IndexDef};
use crate::schema::layout::TimeKind;
use crate::schema::source::SourceDef;
use crate::types::{Address, IndexId, SourceId, ValueKind};

impl Catalog {
    /// Applies an event, or changes nothing if it cannot follow the earlier ones.
    pub fn apply(&mut self, event: &Event) -> Result<()> {
        let at = event.at();
        if at < self.latest_at {
            return Err(Error::schema(format!(
                "an event at address {at} stands after one at {}",
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
            Event::LookupAdded { source, field, .. } => {
                self.edit_field(*source, *field, |field| field.lookup = true)?;
            }
            Event::WordsAdded { source, field, .. } => {
                self.edit_field(*source, *field, |field| field.words = true)?;
            }
            Event::OverloadChanged {
                source,
                on_overload,
                ..
            } => {
                self.known_open(*source)?;
                self.edit(*source)?.on_overload = *on_overload;
            }
            Event::SourceForgotten {
                source, name, time, ..
            } => self.add_forgotten(*source, name, *time, at)?,
            Event::SourceClosed { source, .. } => {
                self.known_open(*source)?;
                self.edit(*source)?.closed_at = Some(at);
            }
            Event::SourceReopened { source, .. } => {
                let known = self.known(*source)?;
                if known.is_open() || known.is_forgotten() {
                    return Err(Error::schema(format!("source {source} is not closed")));
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
        self.label_index = OnceLock::new();
        Ok(())
    }

    pub(super) fn next_source(&self) -> Result<SourceId> {
        match u16::try_from(self.sources.len() + 1) {
            Ok(id) if self.sources.len() < SOURCES_MAX => Ok(SourceId(id)),
            _ => Err(Error::schema(format!(
                "the directory has {SOURCES_MAX} sources, which is the limit"
            ))),
        }
    }

    pub(super) fn next_index(&self) -> IndexId {
        let id = u32::try_from(self.index_sources.len() + 1);
        IndexId(id.expect("a catalog has a limit of bytes, and so of indexes"))
    }

    fn edit(&mut self, id: SourceId) -> Result<&mut Source> {
        let position = usize::from(id.0).wrapping_sub(1);
        match Arc::make_mut(&mut self.sources).get_mut(position) {
            Some(source) => {
                self.trials.keep(source);
                Ok(Arc::make_mut(source))
            }
            None => Err(Error::schema(format!(
                "there is no source with the id {id}"
            ))),
        }
    }

    /// Counts an allocation against the limit.
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
        def.check()?;
        let parts = self.spend(def.fields.len())?;
        let forgotten = self.source(id).filter(|known| known.is_forgotten());
        match forgotten.filter(|known| known.name == def.name) {
            Some(known) => {
                let source = known.redefined(def, at)?;
                *self.edit(id)? = source;
            }
            None => self.add_new(Source::new(id, def, at)?)?,
        }
        self.parts = parts;
        Ok(())
    }

    fn add_forgotten(
        &mut self,
        id: SourceId,
        name: &str,
        time: TimeKind,
        at: Address,
    ) -> Result<()> {
        let def = SourceDef {
            time,
            ..SourceDef::new(name)
        };
        def.check()?;
        self.add_new(Source::forgotten(id, &def, at)?)
    }

    fn add_new(&mut self, source: Source) -> Result<()> {
        let next = self.next_source()?;
        if source.id != next {
            return Err(Error::schema(format!(
                "source {} is out of order; {next} is next",
                source.id
            )));
        }
        if self.ids.contains_key(&source.name) {
            return Err(Error::schema(format!(
                "there are two sources '{}'",
                source.name
            )));
        }
        Arc::make_mut(&mut self.ids).insert(source.name.clone(), source.id);
        Arc::make_mut(&mut self.sources).push(Arc::new(source));
        Ok(())
    }

    fn add_fields(&mut self, id: SourceId, fields: &[FieldDef], at: Address) -> Result<()> {
        let source = self.known_open(id)?;
        if fields.is_empty() || source.fields.is_empty() {
            return Err(Error::schema(format!(
                "source '{}': fields can only be added to a source that has fields",
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
        let mut field = field_of(source, position)?.clone();
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
        *proven::at_mut(&mut self.edit(id)?.fields, position) = field;
        Ok(())
    }

    fn edit_field(
        &mut self,
        id: SourceId,
        position: usize,
        edit: impl FnOnce(&mut FieldDef),
    ) -> Result<()> {
        let mut field = field_of(self.known_open(id)?, position)?.clone();
        edit(&mut field);
        field.check()?;
        *proven::at_mut(&mut self.edit(id)?.fields, position) = field;
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
                "index {id} is out of order; {next} is next"
            )));
        }
        let entry = self.known_open(source)?;
        let name = &entry.name;
        if entry.open_indexes().any(|index| index.name == def.name) {
            return Err(Error::schema(format!(
                "source '{name}' already has an open index '{}'; close it first",
                def.name
            )));
        }
        if entry.open_indexes().count() >= INDEXES_MAX || entry.indexes.len() >= INDEXES_EVER_MAX {
            return Err(Error::schema(format!(
                "source '{name}' can have {INDEXES_MAX} indexes at a time, {INDEXES_EVER_MAX} in all"
            )));
        }
        let index = Index::new(id, source, def, &entry.fields, native, at);
        let index = index.map_err(|error| Error::schema(format!("source '{name}': {error}")))?;
        let parts = self.spend(match index.bins.is_auto() {
            true => 1,
            false => index.bins.len(),
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
                "index '{}' is already closed",
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

fn field_of(source: &Source, position: usize) -> Result<&FieldDef> {
    source
        .fields
        .get(position)
        .ok_or_else(|| Error::schema(format!("source {} has no field {position}", source.id)))
}
