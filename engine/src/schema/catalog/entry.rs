//! A source in the catalog: its layouts and indexes over the life of the log.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::proven;
use crate::schema::field::FieldDef;
use crate::schema::filter::Expr;
use crate::schema::index::Index;
use crate::schema::layout::Layout;
use crate::schema::layout::TimeKind;
use crate::schema::names::hint;
use crate::schema::source::{Overload, SourceDef};
use crate::types::{Address, SourceId};

/// A source, open or closed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Source {
    pub id: SourceId,
    pub name: String,
    pub time: TimeKind,
    pub on_overload: Overload,
    /// All fields, the latest last.
    pub fields: Vec<FieldDef>,
    /// The layouts with the addresses from which they hold, ascending; never empty.
    pub layouts: Vec<(Address, Arc<Layout>)>,
    /// All indexes, open and closed, ascending by id.
    pub indexes: Vec<Arc<Index>>,
    /// The address at which it was closed; `None` while it is open.
    pub closed_at: Option<Address>,
    latest: Arc<Layout>,
    definition_bytes: u64,
    /// The address at which its id was assigned.
    pub(super) id_since: Address,
    is_forgotten: bool,
}

impl Source {
    pub(super) fn new(id: SourceId, def: &SourceDef, at: Address) -> Result<Source> {
        let layout = Arc::new(Layout::new(def.time, &def.fields)?);
        Ok(Source {
            id,
            name: def.name.clone(),
            time: def.time,
            on_overload: def.on_overload,
            fields: def.fields.clone(),
            layouts: vec![(at, Arc::clone(&layout))],
            indexes: Vec::new(),
            closed_at: None,
            latest: layout,
            definition_bytes: def.fields.iter().map(FieldDef::line_bytes).sum(),
            id_since: at,
            is_forgotten: false,
        })
    }

    /// A source of which only the name and the id are known. It takes no records.
    pub(super) fn forgotten(id: SourceId, def: &SourceDef, at: Address) -> Result<Source> {
        Ok(Source {
            closed_at: Some(at),
            is_forgotten: true,
            ..Source::new(id, def, at)?
        })
    }

    /// A forgotten source, defined again. Roll-ups may hold its old records, so its kind of time stays the same.
    pub(super) fn redefined(&self, def: &SourceDef, at: Address) -> Result<Source> {
        if self.time != def.time {
            return Err(Error::schema(format!(
                "source '{}' was forgotten, and its time cannot change; give the new source another name",
                self.name
            )));
        }
        Ok(Source {
            id_since: self.id_since,
            ..Source::new(self.id, def, at)?
        })
    }

    /// About how many bytes its fields take in the catalog.
    pub fn definition_bytes(&self) -> u64 {
        self.definition_bytes
    }

    /// Whether the catalog was rewritten without its definition, because the log retained none of its records.
    pub fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// The layout of the record at an address.
    pub fn layout_at(&self, address: Address) -> &Arc<Layout> {
        let past = self.layouts.partition_point(|(since, _)| *since <= address);
        let (_, layout) = proven::at(&self.layouts, past.saturating_sub(1));
        layout
    }

    /// The address at which the next layout after this one begins, if there is one.
    pub fn next_layout_from(&self, address: Address) -> Option<Address> {
        let mut later = self.layouts.iter().skip(1).map(|(since, _)| *since);
        later.find(|since| *since > address)
    }

    /// The layout of new records.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.latest
    }

    /// The latest index with a name, open or closed.
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().rev().find(|index| index.name == name)
    }

    /// The field whose values an index of this source holds; `None` if the index only counts.
    pub fn value_of(&self, index: &Index) -> Option<&FieldDef> {
        self.fields.get(index.value_field()?)
    }

    /// The indexes that cover new records.
    pub fn open_indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        self.indexes.iter().filter(|index| index.is_open())
    }

    /// An index of all values of a field, which covers every record.
    pub fn index_of_field(&self, field: usize) -> Option<&Arc<Index>> {
        self.widest(|index| index.filter().is_none() && index.value_field() == Some(field))
    }

    /// An index with a value for exactly the records that match a filter.
    pub fn index_of_filter(&self, filter: &Expr) -> Option<&Arc<Index>> {
        self.widest(|index| {
            index.filter().is_some_and(|own| own.expr() == filter) && self.holds_every_match(index)
        })
    }

    /// The one of some declared indexes that covers the most addresses.
    fn widest(&self, is_one: impl Fn(&Index) -> bool) -> Option<&Arc<Index>> {
        let end = |index: &Index| index.until.unwrap_or(Address::MAX);
        self.indexes
            .iter()
            .filter(|index| !index.is_native() && is_one(index))
            .max_by_key(|index| end(index).0.saturating_sub(index.since.0))
    }

    /// Whether every record that matches the index's filter has a value, so its entries show all matches.
    pub fn holds_every_match(&self, index: &Index) -> bool {
        let Some(field) = index.value_field() else {
            return true;
        };
        let is_never_null = self.value_of(index).is_some_and(|field| !field.nullable);
        is_never_null
            && self
                .layouts
                .iter()
                .all(|(_, layout)| layout.slot(field).is_some())
    }

    /// The error for an unknown index. It does not suggest native indexes.
    pub fn unknown_index(&self, name: &str) -> Error {
        let known = self.indexes.iter().filter(|index| !index.is_native());
        Error::UnknownIndex {
            source_name: self.name.clone(),
            name: name.to_owned(),
            hint: hint(name, "indexes", known.map(|index| index.name.as_str())),
        }
    }

    pub fn is_open(&self) -> bool {
        self.closed_at.is_none()
    }

    /// Whether its records have their own time.
    pub fn own_time(&self) -> bool {
        self.time == TimeKind::Own
    }

    /// The definition that creates it again, with its open declared indexes.
    pub fn def(&self) -> SourceDef {
        let declared = self.open_indexes().filter(|index| !index.is_native());
        SourceDef {
            name: self.name.clone(),
            time: self.time,
            on_overload: self.on_overload,
            fields: self.fields.clone(),
            indexes: declared.map(|index| index.def.clone()).collect(),
        }
    }

    pub(super) fn add_fields(&mut self, fields: Vec<FieldDef>, at: Address) -> Result<()> {
        let layout = Arc::new(Layout::new(self.time, &fields)?);
        self.definition_bytes = fields.iter().map(FieldDef::line_bytes).sum();
        self.fields = fields;
        self.layouts.push((at, Arc::clone(&layout)));
        self.latest = layout;
        Ok(())
    }
}
