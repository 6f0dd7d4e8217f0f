//! The catalog as the JSON document of `PROTOCOL.md`.

use std::collections::BTreeMap;

use loom_engine::schema::{Catalog, FieldDef, FieldType, Index, Overload, Source, TimeKind};
use serde::Serialize;

/// The document of `ingestd source list --json`.
#[derive(Serialize)]
pub struct CatalogView<'a> {
    sources: Vec<SourceView<'a>>,
}

impl CatalogView<'_> {
    pub fn of(catalog: &Catalog) -> CatalogView<'_> {
        let sources = catalog.sources().map(|source| view_of_source(source));
        CatalogView {
            sources: sources.collect(),
        }
    }
}

#[derive(Serialize)]
struct SourceView<'a> {
    id: u16,
    name: &'a str,
    time: TimeKind,
    on_overload: Overload,
    closed: bool,
    fields: Vec<FieldView<'a>>,
    indexes: Vec<IndexView<'a>>,
}

#[derive(Serialize)]
struct FieldView<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    ty: FieldType,
    nullable: bool,
    /// Keys of JSON are texts.
    labels: BTreeMap<String, &'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    series: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct IndexView<'a> {
    id: u32,
    name: &'a str,
    value: Option<&'a str>,
    #[serde(rename = "where")]
    filter: Option<&'a str>,
    closed: bool,
}

pub(super) fn render(catalog: &Catalog) -> String {
    serde_json::to_string(&CatalogView::of(catalog).sources)
        .expect("names and numbers are always JSON")
}

fn view_of_source(source: &Source) -> SourceView<'_> {
    let indexes = source.indexes.iter().filter(|index| !index.is_native());
    SourceView {
        id: source.id.0,
        name: &source.name,
        time: source.time,
        on_overload: source.on_overload,
        closed: !source.is_open(),
        fields: source.fields.iter().map(view_of_field).collect(),
        indexes: indexes.map(|index| view_of_index(index)).collect(),
    }
}

fn view_of_field(field: &FieldDef) -> FieldView<'_> {
    let labels = field.labels.iter();
    FieldView {
        name: &field.name,
        ty: field.ty,
        nullable: field.nullable,
        labels: labels
            .map(|(number, text)| (number.to_string(), text.as_str()))
            .collect(),
        series: &field.series,
    }
}

fn view_of_index(index: &Index) -> IndexView<'_> {
    IndexView {
        id: index.id.0,
        name: &index.name,
        value: index.def.value.as_deref(),
        filter: index.def.filter.as_deref(),
        closed: index.until.is_some(),
    }
}
