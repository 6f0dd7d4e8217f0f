//! Rehearses a configuration: would a daemon start with it, and which parts would not take effect? Nothing here changes the directory.
//!
//! `ingestd validate` calls it, and the daemon does at its start and at each reload.

use std::path::Path;

use loom_engine::log::storage::OsStorage;
use loom_engine::log::{LogReader, refuse_foreign};
use loom_engine::query::read_catalog;
use loom_engine::schema::Catalog;
use loom_engine::{Address, Error, LogKind};

use super::definitions::{archive_notes, check_units, wanted};
use super::otlp::check as check_otlp;
use super::{DaemonError, rules};
use crate::config::{ByteSize, Config};
use crate::metrics;
use crate::rules::file::RuleFile;
use crate::rules::judge;

/// Rehearses a start on this directory. Returns notes on the parts of the configuration that would not take effect.
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

/// Rehearses a start in a new directory, before clients define their sources. Returns notes on the parts that would not take effect.
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

/// Checks the files that a start needs beside the directory, those of `[otlp]`.
///
/// # Errors
/// A file that cannot be used.
pub fn check_files(config: &Config) -> Result<(), DaemonError> {
    config.otlp.as_ref().map_or(Ok(()), check_otlp)
}

/// Notes on the parts of a configuration that this machine cannot do yet: programs and files that it names. A daemon starts
/// nevertheless, because they may come later.
pub fn doubts(config: &Config) -> Vec<String> {
    let actions = config.rules.iter().flat_map(rules::doubts);
    actions
        .chain(config.scrapes.iter().filter_map(metrics::doubt))
        .collect()
}

/// Notes on the rules of a configuration that cannot be evaluated.
fn rule_notes(catalog: &Catalog, config: &Config) -> Vec<String> {
    let rules = config.rules.iter();
    let notes = rules.filter_map(|def| {
        let error = judge::subject(catalog, def).err()?;
        Some(judge::not_yet(def, &error))
    });
    notes.collect()
}
