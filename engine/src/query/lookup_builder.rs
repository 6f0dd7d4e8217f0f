//! Builds the missing look-ups of a directory (see [`super::lookups`]).
//!
//! The writer of the directory does so after it has written the units, so a field that is declared later gets look-ups of old records too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use ahash::AHashSet;

use super::directory::Directory;
use super::lookups::{OpenLookup, path_of, written};
use super::poll::Poll;
use super::predicate::Predicate;
use super::scan::ask::Ask;
use super::scan::batch::{Batch, FieldColumn};
use super::scan::shared_scan::{Scan, ScanSpec};
use super::snapshot::Snapshot;
use crate::error::{Error, IoContext, Result};
use crate::format::{
    LookedUp, LookupBuilder, UNIT_CHUNKS, UnitKeys, each_word, hash_of_bytes, hash_of_key,
};
use crate::log::Access;
use crate::proven::at_mut;
use crate::schema::{Catalog, compared};
use crate::types::{Address, ChunkNo, LOOKUPS_NAME, SourceId, lookup_of_name};

/// The suffix of a file until it is complete.
const UNFINISHED: &str = ".new";
/// A look-up that cannot be built so many times is given up in this process.
const TRIES: u32 = 3;

/// Words take at most one in so many bytes of the texts.
const TEXT_PER_WORDS: usize = 9;

/// The fields that have look-ups.
fn declared(catalog: &Catalog) -> Vec<(SourceId, LookedUp)> {
    let sources = catalog.sources().filter(|source| !source.is_forgotten());
    let fields = sources.flat_map(|source| {
        let fields = source.fields.iter().enumerate();
        let held = fields.flat_map(|(nth, field)| {
            let keys = field.lookup.then_some(LookedUp::Keys(nth));
            keys.into_iter()
                .chain(field.words.then_some(LookedUp::Words(nth)))
        });
        held.map(|held| (source.id, held))
    });
    fields.collect()
}

/// Builds the missing look-ups of a directory, and removes those of units that no longer exist.
pub struct Lookups {
    directory: Arc<Directory>,
    access: Access,
    /// The fields that those in `done` have.
    declared: Vec<(SourceId, LookedUp)>,
    /// The first addresses of the look-ups that are there.
    done: BTreeSet<Address>,
    /// Those that are given up, or of units that can have none.
    without: BTreeSet<Address>,
    tries: BTreeMap<Address, u32>,
}

impl Lookups {
    /// Files get this access.
    pub fn of(directory: Arc<Directory>, access: Access) -> Lookups {
        Lookups {
            directory,
            access,
            declared: Vec::new(),
            done: BTreeSet::new(),
            without: BTreeSet::new(),
            tries: BTreeMap::new(),
        }
    }

    /// Builds one look-up that is missing. Returns false if none is. A look-up that cannot be built is tried again twice, and then reported in
    /// the log and given up.
    ///
    /// # Errors
    /// A directory that cannot be read, and [`Error::Interrupted`].
    pub fn build_next(&mut self, poll: &Poll<'_>) -> Result<bool> {
        let snapshot = self.directory.snapshot()?;
        let declared = declared(snapshot.catalog());
        if self.declared != declared {
            self.declared = declared;
            self.done.clear();
            self.without.clear();
            self.tries.clear();
        }
        let logs = snapshot.logs();
        let mut span = logs.span_of(logs.first_chunk());
        self.look_at_files(span.start.address(logs.chunk_bytes()))?;
        if self.declared.is_empty() {
            return Ok(false);
        }
        while span.end <= logs.summarised_chunks() {
            let first = span.start.address(logs.chunk_bytes());
            if !self.done.contains(&first) && !self.without.contains(&first) {
                let built = self.build_if_missing(&snapshot, &span, poll);
                match built {
                    Ok(Found::Built) => {
                        self.done.insert(first);
                        return Ok(true);
                    }
                    Ok(Found::There) => drop(self.done.insert(first)),
                    Ok(Found::Nothing) => drop(self.without.insert(first)),
                    Err(error @ Error::Interrupted) => return Err(error),
                    // Retention was faster.
                    Err(Error::Evicted { .. }) => return Ok(true),
                    Err(error) => {
                        let tries = self.tries.entry(first).or_default();
                        *tries += 1;
                        if *tries >= TRIES {
                            self.without.insert(first);
                            tracing::error!(
                                "the look-up at address {first} cannot be built: {error}; questions for keys read its units"
                            );
                        }
                        return Ok(false);
                    }
                }
            }
            span = logs.span_of(span.end);
        }
        Ok(false)
    }

    /// Builds the look-up of the whole units behind those that [`Lookups::build_next`] has built, of a log that does not grow now. Returns false if it
    /// is there, or if there are no such units.
    ///
    /// # Errors
    /// A directory that cannot be read, damage, and [`Error::Interrupted`].
    pub fn build_rest(&mut self, poll: &Poll<'_>) -> Result<bool> {
        let snapshot = self.directory.snapshot()?;
        self.declared = declared(snapshot.catalog());
        let logs = snapshot.logs();
        let written = logs.summarised_chunks();
        if self.declared.is_empty() || written <= logs.first_chunk() {
            return Ok(false);
        }
        let first = logs.span_of(ChunkNo(written.0 - 1)).start;
        let units = (written.0 - first.0) / UNIT_CHUNKS;
        let rest = first..ChunkNo(first.0 + units * UNIT_CHUNKS);
        let built = self.build_if_missing(&snapshot, &rest, poll)?;
        Ok(matches!(built, Found::Built))
    }

    fn build_if_missing(
        &self,
        snapshot: &Snapshot,
        span: &Range<ChunkNo>,
        poll: &Poll<'_>,
    ) -> Result<Found> {
        let logs = snapshot.logs();
        let Some(of) = written(logs, span)? else {
            return Ok(Found::Nothing);
        };
        let is_whole = |lookup: OpenLookup| {
            let mut fields = self.declared.iter();
            lookup.units() == of.units && fields.all(|(source, field)| lookup.has(*source, *field))
        };
        if OpenLookup::open(logs, span).is_some_and(is_whole) {
            return Ok(Found::There);
        }
        let mut builder = LookupBuilder::new(logs.uuid(), of);
        let mut fields = self.declared.as_slice();
        while let Some((source, _)) = fields.first() {
            let count = fields.partition_point(|(other, _)| other == source);
            let (of_source, rest) = fields.split_at(count);
            let of_source: Vec<LookedUp> = of_source.iter().map(|(_, held)| *held).collect();
            let keys = keys_of(snapshot, *source, &of_source, span, of.units, poll)?;
            for (held, keys) in of_source.iter().zip(keys) {
                let bytes_most = match held {
                    LookedUp::Keys(_) => usize::MAX,
                    LookedUp::Words(_) => keys.bytes / TEXT_PER_WORDS,
                };
                builder.add(*source, *held, &keys.of_units, bytes_most);
            }
            fields = rest;
        }
        self.write(of.first, &builder.finish())?;
        Ok(Found::Built)
    }

    fn write(&self, first: Address, bytes: &[u8]) -> Result<()> {
        self.directory.reader().require_in_place()?;
        let folder = self.directory.path().join(LOOKUPS_NAME);
        match std::fs::create_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => {
                made.at(&folder)?;
                self.access.set(&folder)?;
            }
        }
        let path = path_of(self.directory.path(), first);
        let mut unfinished = path.clone().into_os_string();
        unfinished.push(UNFINISHED);
        let unfinished = PathBuf::from(unfinished);
        let written = || -> Result<()> {
            let mut file = File::create(&unfinished).at(&unfinished)?;
            self.access.set(&unfinished)?;
            let done = file.write_all(bytes).and_then(|()| file.sync_data());
            done.at(&unfinished)?;
            std::fs::rename(&unfinished, &path).at(&path)
        };
        written().inspect_err(|_| {
            // A file that is left is written over by the next try.
            let _ = std::fs::remove_file(&unfinished);
        })
    }

    /// Removes the look-ups below an address, and finds out which others are there.
    fn look_at_files(&mut self, begin: Address) -> Result<()> {
        let folder = self.directory.path().join(LOOKUPS_NAME);
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            entries => Some(entries.at(&folder)?),
        };
        let mut there = BTreeSet::new();
        for entry in entries.into_iter().flatten() {
            let entry = entry.at(&folder)?;
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let finished = name.strip_suffix(UNFINISHED);
            let Some(first) = lookup_of_name(finished.unwrap_or(name)) else {
                continue;
            };
            if first < begin {
                // A file that cannot be removed is tried again.
                let _ = std::fs::remove_file(entry.path());
            } else if finished.is_none() {
                there.insert(first);
            }
        }
        // Look-ups that were removed by hand are built again.
        self.done.retain(|first| there.contains(first));
        self.without = self.without.split_off(&begin);
        self.tries = self.tries.split_off(&begin);
        Ok(())
    }
}

/// The outcome for the look-up of a span.
enum Found {
    There,
    Built,
    /// Its units have none.
    Nothing,
}

/// The keys or words of a field.
#[derive(Clone)]
struct SpanKeys {
    of_units: Vec<UnitKeys>,
    /// The length of all texts.
    bytes: usize,
}

/// The keys of some fields of a source in each unit of a span.
fn keys_of(
    snapshot: &Snapshot,
    source: SourceId,
    held: &[LookedUp],
    span: &Range<ChunkNo>,
    units: usize,
    poll: &Poll<'_>,
) -> Result<Vec<SpanKeys>> {
    let none = SpanKeys {
        of_units: vec![UnitKeys::Known(Vec::new()); units],
        bytes: 0,
    };
    let mut found = vec![none; held.len()];
    let mut fields: Vec<usize> = held.iter().map(|held| held.field()).collect();
    fields.dedup();
    let spec = ScanSpec {
        source,
        after: span.start.address(snapshot.chunk_bytes()),
        exact: Predicate::All,
        prune: Predicate::All,
        index_filters: Vec::new(),
    };
    let scan = Scan::new(snapshot, spec)?;
    let ask = || Ask {
        fields: fields.clone(),
        ..Ask::default()
    };
    let mut reader = scan.reader(ask());
    let unit_of = |chunk: ChunkNo| ((chunk.0 - span.start.0) / UNIT_CHUNKS) as usize;
    let mut next = scan.next(poll)?;
    while let Some(first) = next.filter(|chunk| *chunk < span.end) {
        let unit = unit_of(first);
        let mut chunks = vec![first];
        next = scan.next(poll)?;
        while let Some(chunk) = next.filter(|chunk| *chunk < span.end && unit_of(*chunk) == unit) {
            chunks.push(chunk);
            next = scan.next(poll)?;
        }
        let mut hashes = vec![AHashSet::new(); held.len()];
        let mut read = || -> Result<()> {
            reader.take(chunks.iter().copied(), poll)?;
            while reader.read_next()? {
                let batch = reader.batch();
                for ((held, hashes), found) in held.iter().zip(&mut hashes).zip(&mut found) {
                    match held {
                        LookedUp::Keys(field) => add_hashes(&batch, *field, hashes),
                        LookedUp::Words(field) => {
                            found.bytes += add_words(&batch, *field, hashes);
                        }
                    }
                }
            }
            Ok(())
        };
        let outcome = read();
        match outcome {
            Ok(()) => {
                for (of_field, hashes) in found.iter_mut().zip(hashes) {
                    let hashes = hashes.into_iter().collect();
                    *at_mut(&mut of_field.of_units, unit) = UnitKeys::Known(hashes);
                }
            }
            Err(error) if error.is_damage() => {
                reader = scan.reader(ask());
                for of_field in &mut found {
                    *at_mut(&mut of_field.of_units, unit) = UnitKeys::Any;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Adds the hashes of a field's values.
fn add_hashes(batch: &Batch<'_>, field: usize, hashes: &mut AHashSet<u64>) {
    let layout = batch.layout();
    match batch.field(field) {
        None => {}
        Some(FieldColumn::Numbers(numbers)) => {
            let mut keys = Vec::new();
            layout.number_keys(field, numbers, &mut keys);
            let nulls = batch.nulls(field);
            let rows = keys.into_iter().enumerate();
            let rows = rows.filter(|(row, _)| nulls.as_ref().is_none_or(|is_null| !is_null(*row)));
            let mut last = None;
            // Neighbours are often equal.
            for (_, key) in rows.filter(|(_, key)| last.replace(*key) != Some(*key)) {
                hashes.insert(hash_of_key(key));
            }
        }
        Some(_) => batch.each_value(field, |value| {
            let value = value.map(|value| compared(layout, field, value));
            hashes.extend(value.map(hash_of_bytes));
        }),
    }
}

/// Adds the hashes of the words of a field's texts, and returns the length of the texts.
fn add_words(batch: &Batch<'_>, field: usize, hashes: &mut AHashSet<u64>) -> usize {
    let mut bytes = 0;
    batch.each_value(field, |text| {
        let text = text.unwrap_or_default();
        bytes += text.len();
        each_word(text, &mut |hash| {
            hashes.insert(hash);
        });
    });
    bytes
}
