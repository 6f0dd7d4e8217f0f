//! Changes of the catalog: those of a configuration, which may be older than the catalog, and those that clients ask for.
//!
//! A configuration is taken whole or not at all. A source or an index that was closed stays closed. The command line makes the same changes
//! itself where no daemon runs.

use std::sync::Arc;

use loom_engine::ingest::Writer;
use loom_engine::schema::{Catalog, FieldDef, IndexDef, Source, SourceDef, is_builtin};
use loom_engine::{Error, IndexId, SourceId};

use super::message::Growth;
use crate::config::{Config, LOGS_SOURCE, OtlpDef, SPANS_SOURCE};
use crate::rules::judge;

/// Defines the sources of a configuration, all or none, if its rules can watch them. Returns notes on the parts that do not take effect.
pub(super) fn configure(writer: &mut Writer, config: &Config) -> Result<Vec<String>, Error> {
    let mut notes = Vec::new();
    let mut planned = writer.catalog().clone();
    let wanted = wanted(config, &planned, &mut notes);
    let at = planned.latest_at();
    for source in &wanted {
        planned.define_source(source, at)?;
    }
    check_units(&planned, config)?;
    notes.extend(archive_notes(&planned, config));
    writer.define_sources(&wanted)?;
    Ok(notes)
}

pub(super) fn check_units(catalog: &Catalog, config: &Config) -> Result<(), Error> {
    judge::check_units(catalog, &config.rules).map_err(|error| Error::Schema(error.to_string()))
}

/// Notes on the names of `[archive]` that no source has: retention would not wait for a misspelt one.
pub(super) fn archive_notes(catalog: &Catalog, config: &Config) -> Vec<String> {
    let archive = &config.archive;
    let named = [("sources", &archive.sources), ("except", &archive.except)];
    let named = named
        .into_iter()
        .flat_map(|(key, names)| names.iter().map(move |name| (key, name)));
    let unknown = named.filter(|(_, name)| !is_builtin(name) && catalog.find(name).is_none());
    unknown
        .map(|(key, name)| {
            let error = catalog.unknown_source(name);
            format!("[archive] {key} counts for '{name}' once it is defined: {error}")
        })
        .collect()
}

/// Defines sources, all or none. A definition may omit fields that were added since it was written.
pub fn define(writer: &mut Writer, sources: &[SourceDef]) -> Result<Vec<SourceId>, Error> {
    let catalog = writer.catalog();
    let grown = sources.iter().map(|source| grown(source.clone(), catalog));
    let grown: Vec<SourceDef> = grown.collect();
    writer.define_sources(&grown)
}

/// Defines sources, all or none, for a client that defined them before: what was closed since stays closed.
pub(super) fn define_again(
    writer: &mut Writer,
    sources: &[SourceDef],
) -> Result<Vec<SourceId>, Error> {
    let catalog = writer.catalog();
    let open = sources.iter().cloned();
    let open = open.filter_map(|def| without_closed(def, catalog, &mut |_| {}));
    let open: Vec<SourceDef> = open.collect();
    writer.define_sources(&open)?;
    let ids = sources
        .iter()
        .map(|def| Ok(find(writer.catalog(), &def.name)?.id));
    ids.collect()
}

/// Defines sources that grow by themselves, or adds their new fields, all or none. A source that has grown further keeps its fields.
pub(super) fn grow(
    writer: &mut Writer,
    defs: &[SourceDef],
    growth: &Growth,
) -> Result<Vec<SourceId>, Error> {
    let catalog = writer.catalog();
    let mut new = Vec::new();
    // If the catalog forgot more since, somebody may have defined one of them with other fields.
    let forgot_more = catalog.forgotten_below() != growth.forgotten_below;
    let mut catalog_bytes = writer.catalog_bytes();
    for def in defs {
        let known = catalog.find(&def.name);
        let added = known.map_or(0, |known| known.fields.len());
        let added = def.fields.iter().skip(added);
        catalog_bytes += added.map(FieldDef::line_bytes).sum::<u64>();
        match known {
            Some(known) if !known.is_open() => {
                let name = known.name.clone();
                return Err(Error::SourceClosed { name });
            }
            Some(known) if forgot_more && !holds_same(known, def) => {
                return Err(Error::schema(format!(
                    "source '{}' was forgotten and has other series now; they are read again",
                    def.name
                )));
            }
            Some(known) if known.fields.len() >= def.fields.len() => {}
            _ => new.push(def.clone()),
        }
    }
    if !new.is_empty() {
        let catalog_bytes_max = growth.catalog_bytes_max;
        if catalog_bytes > catalog_bytes_max {
            return Err(Error::schema(format!(
                "new series would make the catalog longer than {catalog_bytes_max} bytes; raise [otlp] catalog_max, of which an address has half a day"
            )));
        }
        define(writer, &new)?;
    }
    let ids = defs
        .iter()
        .map(|def| Ok(find(writer.catalog(), &def.name)?.id));
    ids.collect()
}

fn holds_same(known: &Source, def: &SourceDef) -> bool {
    let mut fields = known.fields.iter().zip(&def.fields);
    fields.all(|(known, field)| known.series == field.series)
}

pub fn close_source(writer: &mut Writer, name: &str) -> Result<(), Error> {
    let source = find(writer.catalog(), name)?.id;
    writer.close_source(source)
}

pub fn add_index(writer: &mut Writer, source: &str, def: &IndexDef) -> Result<IndexId, Error> {
    let source = find(writer.catalog(), source)?.id;
    writer.define_index(source, def)
}

pub fn close_index(writer: &mut Writer, source: &str, name: &str) -> Result<(), Error> {
    let source = find(writer.catalog(), source)?;
    let index = source.index(name);
    let index = index.ok_or_else(|| source.unknown_index(name))?.id;
    writer.close_index(index)
}

/// Finds a source that clients may change: built-in ones are the daemon's own.
pub(super) fn find<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Source, Error> {
    if is_builtin(name) {
        return Err(Error::schema(format!(
            "source '{name}' is built in and cannot be changed; use another name"
        )));
    }
    let found = catalog.find(name).map(Arc::as_ref);
    found.ok_or_else(|| catalog.unknown_source(name))
}

/// The definitions of configured sources, without those that were closed since, which `notes` names.
pub(super) fn wanted(
    config: &Config,
    catalog: &Catalog,
    notes: &mut Vec<String>,
) -> Vec<SourceDef> {
    let mut wanted = Vec::with_capacity(config.sources.len());
    let is_otlp = |name: &str| config.otlp.is_some() && [LOGS_SOURCE, SPANS_SOURCE].contains(&name);
    for def in &config.sources {
        let mut def = def.clone();
        if let Some(known) = catalog.find(&def.name)
            && is_otlp(&def.name)
        {
            def.fields = OtlpDef::arranged(&def.fields, &known.fields);
        }
        wanted.extend(without_closed(def, catalog, &mut |note| notes.push(note)));
    }
    wanted
}

/// A definition without what was closed since it was written, which `note` gets, and with the fields that were added.
fn without_closed(
    mut def: SourceDef,
    catalog: &Catalog,
    note: &mut dyn FnMut(String),
) -> Option<SourceDef> {
    if let Some(known) = catalog.find(&def.name) {
        if !known.is_open() {
            note(format!(
                "source '{}' was closed and stays closed; remove it from the configuration, or reopen it with 'ingestd source add'",
                def.name
            ));
            return None;
        }
        def.indexes.retain(|index| {
            // Another index may have its name since.
            let mut same = known.indexes.iter().filter(|found| found.def == *index);
            let closed = same.clone().next().is_some() && same.all(|found| found.until.is_some());
            if closed {
                note(format!(
                    "index '{}' of source '{}' was closed and stays closed; remove it from the configuration, or add another \
                     with 'ingestd index add'",
                    index.name, known.name
                ));
            }
            !closed
        });
    }
    Some(grown(def, catalog))
}

/// A definition, with the fields that were added to its source since it was written.
fn grown(mut def: SourceDef, catalog: &Catalog) -> SourceDef {
    if let Some(known) = catalog.find(&def.name)
        && !def.fields.is_empty()
        && let Some(added) = known.fields.get(def.fields.len()..)
    {
        def.fields.extend_from_slice(added);
    }
    def
}

#[cfg(test)]
mod tests {
    use loom_engine::Address;

    use super::*;

    #[test]
    fn what_was_closed_stays_closed_unless_it_is_defined_otherwise() {
        let toml = "[[source]]\nname = 'x'\n[[source.field]]\nname = 'a'\ntype = 'u64'\n\
                    [[source.index]]\nname = 'i'\nvalue = 'a'\n[[source.index]]\nname = 'j'\nvalue = 'a'\n";
        let mut config = Config::parse(toml).unwrap();
        let def = config.sources.clone();
        let mut catalog = Catalog::new();
        let (id, _) = catalog.define_source(&def[0], Address(0)).unwrap();
        let index = catalog.source(id).unwrap().index("i").unwrap().id;
        catalog.close_index(index, Address(4096)).unwrap();
        let mut notes = Vec::new();
        let found = wanted(&config, &catalog, &mut notes);
        assert_eq!(found[0].indexes.len(), 1);
        assert!(notes[0].contains("index 'i'"), "{notes:?}");

        notes.clear();
        config.sources[0].indexes[0].filter = Some("a > 3".to_owned());
        assert_eq!(wanted(&config, &catalog, &mut notes)[0].indexes.len(), 2);
        assert!(notes.is_empty());

        catalog.close_source(id, Address(8192)).unwrap();
        assert_eq!(wanted(&config, &catalog, &mut notes), []);
        assert!(notes[0].contains("source 'x'"), "{notes:?}");
    }
}
