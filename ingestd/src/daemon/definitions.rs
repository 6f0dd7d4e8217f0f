//! Changes of the catalog: what a configuration defines beside a catalog that has changed since it was written, and what clients ask for.
//!
//! A configuration is taken whole or not at all. A source or an index that was closed stays closed. The command line makes the same changes
//! itself where no daemon runs.

use std::path::Path;
use std::sync::Arc;

use loom_engine::ingest::Writer;
use loom_engine::log::storage::OsStorage;
use loom_engine::log::{LogReader, refuse_foreign};
use loom_engine::query::read_catalog;
use loom_engine::schema::{Catalog, IndexDef, Source, SourceDef, is_builtin};
use loom_engine::{Address, Error, IndexId, LogKind, SourceId};

use super::otlp::check as check_otlp;
use super::{DaemonError, rules, scrape};
use crate::config::{ByteSize, Config, LOGS_SOURCE, OtlpDef, SPANS_SOURCE};
use crate::rules::file::RuleFile;
use crate::rules::judge;

/// Whether the daemon would start on this directory with a configuration, and what of it would not take effect. Changes nothing.
///
/// # Errors
/// `Schema` if the catalog contradicts the configuration; others if the directory is not one that a daemon would open or create.
pub fn rehearse(dir: &Path, config: &Config) -> Result<Vec<String>, Error> {
    refuse_foreign(&OsStorage::default(), dir)?;
    let is_begun = |log: LogKind| dir.join(log.dir_name()).exists();
    let reader = match LogReader::open(dir) {
        Err(Error::NotLoom { .. }) if !LogKind::ALL.into_iter().any(is_begun) => {
            let dir = dir.display();
            let note = format!("{dir} is not a Loom directory yet; 'ingestd run {dir}' creates it");
            let mut notes = rehearse_alone(config)?;
            notes.insert(0, note);
            return Ok(notes);
        }
        reader => reader?,
    };
    let mut catalog = read_catalog(&reader)?;
    let mut notes = Vec::new();
    let wanted = wanted(config, &catalog, &mut notes);
    let at = catalog.latest_at();
    for source in &wanted {
        catalog.define_source(source, at)?;
    }
    check_units(&catalog, config)?;
    let added = RuleFile::open(dir).and_then(|rules| rules.fits(config));
    added.map_err(|error| Error::Schema(format!("{error:#}")))?;
    notes.extend(rule_notes(&catalog, config));
    notes.extend(archive_notes(&catalog, config));
    let meta = reader.meta();
    let segment_bytes = meta.segment_bytes.records;
    for (key, configured, created_bytes) in [
        ("chunk", &config.log.chunk, u64::from(meta.chunk_bytes)),
        ("segment", &config.log.segment, segment_bytes),
    ] {
        let (configured, kept) = (configured.get_ref(), ByteSize(created_bytes));
        if *configured != kept {
            notes.push(format!(
                "{key} is {configured}, but the directory was created with {kept} and keeps it"
            ));
        }
    }
    Ok(notes)
}

/// What of a configuration would not take effect in a new directory, before clients define their sources.
///
/// # Errors
/// `Schema` if it contradicts itself.
pub fn rehearse_alone(config: &Config) -> Result<Vec<String>, Error> {
    let mut catalog = Catalog::new();
    for source in &config.sources {
        catalog.define_source(source, Address::ZERO)?;
    }
    check_units(&catalog, config)?;
    let mut notes = rule_notes(&catalog, config);
    notes.extend(archive_notes(&catalog, config));
    Ok(notes)
}

fn check_units(catalog: &Catalog, config: &Config) -> Result<(), Error> {
    judge::check_units(catalog, &config.rules).map_err(|error| Error::Schema(error.to_string()))
}

/// Whether this machine has what a start needs beside the directory: the files of `[otlp]`.
///
/// # Errors
/// One that cannot be used.
pub fn check_files(config: &Config) -> Result<(), DaemonError> {
    config.otlp.as_ref().map_or(Ok(()), check_otlp)
}

/// What of a configuration this machine cannot do as it stands, in sentences for people: programs and files that it names. A daemon starts
/// nevertheless, for they may come later.
pub fn doubts(config: &Config) -> Vec<String> {
    let actions = config.rules.iter().flat_map(rules::doubts);
    actions
        .chain(config.scrapes.iter().filter_map(scrape::doubt))
        .collect()
}

/// Which rules of a configuration cannot be evaluated, in sentences for people.
fn rule_notes(catalog: &Catalog, config: &Config) -> Vec<String> {
    let rules = config.rules.iter();
    let notes = rules.filter_map(|def| {
        let error = judge::subject(catalog, def).err()?;
        Some(judge::not_yet(def, &error))
    });
    notes.collect()
}

/// Which names of `[archive]` are no source's, in sentences for people: retention would wait for nothing that is misspelt.
fn archive_notes(catalog: &Catalog, config: &Config) -> Vec<String> {
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

/// Defines the sources of a configuration, all or none, if its rules can watch them. Returns what does not take effect, in sentences for people.
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

/// Defines sources, all or none. A definition may omit fields that were added since it was written.
pub fn define(writer: &mut Writer, sources: &[SourceDef]) -> Result<Vec<SourceId>, Error> {
    let catalog = writer.catalog();
    let grown = sources.iter().map(|source| grown(source.clone(), catalog));
    let grown: Vec<SourceDef> = grown.collect();
    writer.define_sources(&grown)
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

/// A source that clients may change: built-in ones are the daemon's own.
pub(super) fn find<'a>(catalog: &'a Catalog, name: &str) -> Result<&'a Source, Error> {
    if is_builtin(name) {
        let what = format!("source '{name}' is built in and cannot be changed; use another name");
        return Err(Error::Schema(what));
    }
    let found = catalog.find(name).map(Arc::as_ref);
    found.ok_or_else(|| catalog.unknown_source(name))
}

/// What is to be defined of configured sources. What was closed since is left out, and `notes` says so.
fn wanted(config: &Config, catalog: &Catalog, notes: &mut Vec<String>) -> Vec<SourceDef> {
    let mut wanted = Vec::with_capacity(config.sources.len());
    let is_otlp = |name: &str| config.otlp.is_some() && [LOGS_SOURCE, SPANS_SOURCE].contains(&name);
    for def in &config.sources {
        let mut def = def.clone();
        if let Some(known) = catalog.find(&def.name) {
            if is_otlp(&def.name) {
                def.fields = OtlpDef::arranged(&def.fields, &known.fields);
            }
            if !known.is_open() {
                notes.push(format!(
                    "source '{}' was closed and stays closed; remove it from the configuration, or reopen it with 'ingestd source add'",
                    def.name
                ));
                continue;
            }
            def.indexes.retain(|index| {
                let closed = known
                    .index(&index.name)
                    .is_some_and(|found| found.until.is_some() && found.def == *index);
                if closed {
                    notes.push(format!(
                        "index '{}' of source '{}' was closed and stays closed; remove it from the configuration, or add another \
                         with 'ingestd index add'",
                        index.name, known.name
                    ));
                }
                !closed
            });
        }
        wanted.push(grown(def, catalog));
    }
    wanted
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
