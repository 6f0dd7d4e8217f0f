//! Look-ups: files beside the logs that tell in which of 32 units a field may have a key (FORMAT.md, *Look-ups*).
//!
//! A question reads one row of a look-up for each key that it asks for. Where there is no look-up, or it does not verify, the units answer. Whoever writes the
//! directory builds the look-ups that are missing, after their units are written; so a field that is declared later gets look-ups of old records too.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::Directory;
use super::forest::cached_nodes::CachedNodes;
use super::poll::Poll;
use super::predicate::Predicate;
use super::scan::ask::Ask;
use super::scan::batch::{Batch, FieldColumn};
use super::scan::shared_scan::{Scan, ScanSpec};
use super::snapshot::Snapshot;
use super::snapshot_logs::SnapshotLogs;
use crate::error::{Error, IoContext, Result};
use crate::format::{
    FormatError, LookupBuilder, LookupOf, LookupRow, LookupTable, UNIT_CHUNKS, UnitKeys,
    hash_of_bytes, hash_of_key,
};
use crate::log::Access;
use crate::memory;
use crate::nodes::NodeId;
use crate::proven::at_mut;
use crate::schema::{Catalog, compared};
use crate::types::{Address, ChunkNo, Key, LOOKUPS_NAME, SourceId, TimeRange, lookup_of_name};

/// The suffix of a file until it is complete.
const UNFINISHED: &str = ".new";
/// A look-up whose table is longer is damaged.
const TABLE_BYTES_MOST: usize = 1 << 25;
/// A look-up that cannot be built so many times is given up in this process.
const TRIES: u32 = 3;

fn path_of(dir: &Path, first: Address) -> PathBuf {
    dir.join(LOOKUPS_NAME).join(format!("{:020}", first.0))
}

/// A look-up, opened for questions.
#[derive(Debug)]
pub(crate) struct OpenLookup {
    file: File,
    table: LookupTable,
    /// The rows that were read; `None` for those that do not verify.
    rows: HashMap<LookupRow, Option<Vec<u8>>>,
}

impl OpenLookup {
    /// Opens the look-up of a [span](SnapshotLogs::span_of); `None` if there is none, or one of other records.
    pub fn open(logs: &Arc<SnapshotLogs>, span: &Range<ChunkNo>) -> Option<OpenLookup> {
        let of = written(logs, span).ok().flatten()?;
        let opened = OpenLookup::open_any(logs.dir(), logs.uuid(), of.first);
        opened.ok()?.ok().filter(|lookup| lookup.table.of() == of)
    }

    fn open_any(
        dir: &Path,
        uuid: &[u8; 16],
        first: Address,
    ) -> std::io::Result<std::result::Result<OpenLookup, FormatError>> {
        let file = File::open(path_of(dir, first))?;
        let mut bytes = vec![0; LookupTable::HEADER_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        let table = LookupTable::bytes_of(&bytes).and_then(|length| {
            let length = length.min(TABLE_BYTES_MOST);
            Ok(memory::resize(&mut bytes, length)?)
        });
        if let Err(damage) = table {
            return Ok(Err(damage));
        }
        file.read_exact_at(&mut bytes, 0)?;
        let table = LookupTable::decode(uuid, first, &bytes);
        Ok(table.map(|table| OpenLookup {
            file,
            table,
            rows: HashMap::new(),
        }))
    }

    /// Whether a unit may hold a key of a field, by its hash.
    pub fn may_have(&mut self, source: SourceId, field: usize, hash: u64, unit: usize) -> bool {
        let OpenLookup { file, table, rows } = self;
        let Some(of_field) = table.field(source, field) else {
            return true;
        };
        let Some(row) = table.row_of(of_field, hash) else {
            return false;
        };
        let held = rows.entry(row).or_insert_with(|| read(file, table, row));
        let held = held.as_ref();
        held.is_none_or(|bytes| table.may_have(bytes, unit, hash))
    }
}

/// Reads a row; `None` if it does not verify.
fn read(file: &File, table: &LookupTable, row: LookupRow) -> Option<Vec<u8>> {
    let mut bytes = memory::zeroed(row.bytes).ok()?;
    file.read_exact_at(&mut bytes, row.offset).ok()?;
    table.verify(row, &bytes).ok()?;
    Some(bytes)
}

/// What identifies the units of a span; `None` if not all are written, or the last chunk has no records.
fn written(logs: &Arc<SnapshotLogs>, span: &Range<ChunkNo>) -> Result<Option<LookupOf>> {
    if span.end > logs.summarised_chunks() || span.is_empty() {
        return Ok(None);
    }
    let last = ChunkNo(span.end.0 - 1);
    let entry = CachedNodes::new(Arc::clone(logs)).entry(NodeId::summary(last))?;
    let is_there = entry.node_bytes > 0;
    Ok(is_there.then(|| LookupOf {
        first: span.start.address(logs.chunk_bytes()),
        units: (span.end.0 - span.start.0).div_ceil(UNIT_CHUNKS) as usize,
        last: TimeRange {
            first: entry.first_arrival,
            last: entry.last_arrival,
        },
    }))
}

/// The fields that have look-ups.
fn declared(catalog: &Catalog) -> Vec<(SourceId, usize)> {
    let sources = catalog.sources().filter(|source| !source.is_forgotten());
    let fields = sources.flat_map(|source| {
        let fields = source.fields.iter().enumerate();
        let fields = fields.filter(|(_, field)| field.lookup);
        fields.map(|(nth, _)| (source.id, nth))
    });
    fields.collect()
}

/// Builds the look-ups that a directory lacks, and removes those of units that are gone.
pub struct Lookups {
    directory: Arc<Directory>,
    access: Access,
    /// The fields that those in `done` have.
    declared: Vec<(SourceId, usize)>,
    /// The first addresses of the look-ups that are there, or given up.
    done: BTreeSet<Address>,
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
            self.tries.clear();
        }
        let logs = snapshot.logs();
        let mut span = logs.span_of(logs.first_chunk());
        self.remove_below(span.start.address(logs.chunk_bytes()))?;
        if self.declared.is_empty() {
            return Ok(false);
        }
        while span.end <= logs.summarised_chunks() {
            let first = span.start.address(logs.chunk_bytes());
            if !self.done.contains(&first) {
                let built = self.build_if_missing(&snapshot, &span, poll);
                match built {
                    Ok(is_new) => {
                        self.done.insert(first);
                        if is_new {
                            return Ok(true);
                        }
                    }
                    Err(error @ Error::Interrupted) => return Err(error),
                    // Retention was faster.
                    Err(Error::Evicted { .. }) => return Ok(true),
                    Err(error) => {
                        let tries = self.tries.entry(first).or_default();
                        *tries += 1;
                        if *tries >= TRIES {
                            self.done.insert(first);
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

    /// Returns whether the look-up was built.
    fn build_if_missing(
        &self,
        snapshot: &Snapshot,
        span: &Range<ChunkNo>,
        poll: &Poll<'_>,
    ) -> Result<bool> {
        let logs = snapshot.logs();
        let Some(of) = written(logs, span)? else {
            return Ok(false);
        };
        let is_whole = |lookup: OpenLookup| {
            let mut fields = self.declared.iter();
            fields.all(|(source, field)| lookup.table.field(*source, *field).is_some())
        };
        if OpenLookup::open(logs, span).is_some_and(is_whole) {
            return Ok(false);
        }
        let mut builder = LookupBuilder::new(logs.uuid(), of);
        let mut fields = self.declared.as_slice();
        while let Some((source, _)) = fields.first() {
            let count = fields.partition_point(|(other, _)| other == source);
            let (of_source, rest) = fields.split_at(count);
            let of_source: Vec<usize> = of_source.iter().map(|(_, field)| *field).collect();
            let keys = keys_of(snapshot, *source, &of_source, span, of.units, poll)?;
            for (field, of_units) in of_source.iter().zip(keys) {
                builder.add(*source, *field, &of_units);
            }
            fields = rest;
        }
        self.write(of.first, &builder.finish())?;
        Ok(true)
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

    /// Removes the look-ups below an address.
    fn remove_below(&mut self, begin: Address) -> Result<()> {
        let folder = self.directory.path().join(LOOKUPS_NAME);
        let entries = match std::fs::read_dir(&folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries.at(&folder)?,
        };
        for entry in entries {
            let entry = entry.at(&folder)?;
            let of = entry.file_name().to_str().and_then(lookup_of_name);
            if of.is_some_and(|first| first < begin) {
                match std::fs::remove_file(entry.path()) {
                    Err(error) if error.kind() != ErrorKind::NotFound => {
                        return Err(error).at(&entry.path());
                    }
                    _ => {}
                }
            }
        }
        self.done = self.done.split_off(&begin);
        self.tries = self.tries.split_off(&begin);
        Ok(())
    }
}

/// The keys of some fields of a source in each unit of a span.
fn keys_of(
    snapshot: &Snapshot,
    source: SourceId,
    fields: &[usize],
    span: &Range<ChunkNo>,
    units: usize,
    poll: &Poll<'_>,
) -> Result<Vec<Vec<UnitKeys>>> {
    let mut found = vec![vec![UnitKeys::Known(Vec::new()); units]; fields.len()];
    let spec = ScanSpec {
        source,
        after: span.start.address(snapshot.chunk_bytes()),
        exact: Predicate::All,
        prune: Predicate::All,
        index_filters: Vec::new(),
    };
    let scan = Scan::new(snapshot, spec)?;
    let ask = || Ask {
        fields: fields.to_vec(),
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
        let mut hashes = vec![Vec::new(); fields.len()];
        let mut read = || -> Result<()> {
            reader.take(chunks.iter().copied(), poll)?;
            while reader.read_next()? {
                let batch = reader.batch();
                for (field, hashes) in fields.iter().zip(&mut hashes) {
                    add_hashes(&batch, *field, hashes);
                }
            }
            Ok(())
        };
        let outcome = read();
        match outcome {
            Ok(()) => {
                for (of_field, mut hashes) in found.iter_mut().zip(hashes) {
                    hashes.sort_unstable();
                    hashes.dedup();
                    *at_mut(of_field, unit) = UnitKeys::Known(hashes);
                }
            }
            Err(error) if error.is_damage() => {
                reader = scan.reader(ask());
                for of_field in &mut found {
                    *at_mut(of_field, unit) = UnitKeys::Any;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// Appends the hashes of a field's values.
fn add_hashes(batch: &Batch<'_>, field: usize, hashes: &mut Vec<u64>) {
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
                hashes.push(hash_of_key(key));
            }
        }
        Some(_) => batch.each_value(field, |value| {
            let value = value.map(|value| compared(layout, field, value));
            hashes.extend(value.map(hash_of_bytes));
        }),
    }
}

/// A unit with a look-up, for the test of zones.
#[derive(Copy, Clone)]
pub(crate) struct KeyedUnit<'a> {
    pub lookup: &'a std::cell::RefCell<OpenLookup>,
    pub source: SourceId,
    pub unit: usize,
}

impl KeyedUnit<'_> {
    pub fn may_have_key(&self, field: usize, key: Key) -> bool {
        self.may_have(field, hash_of_key(key))
    }

    pub fn may_have_bytes(&self, field: usize, bytes: &[u8]) -> bool {
        self.may_have(field, hash_of_bytes(bytes))
    }

    fn may_have(&self, field: usize, hash: u64) -> bool {
        let mut lookup = self.lookup.borrow_mut();
        lookup.may_have(self.source, field, hash, self.unit)
    }
}

/// Returns the look-ups of a directory that do not verify, with the reasons.
///
/// # Errors
/// Files that cannot be read.
pub fn damaged_lookups(dir: &Path, uuid: &[u8; 16]) -> Result<Vec<(PathBuf, String)>> {
    let folder = dir.join(LOOKUPS_NAME);
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.at(&folder)?,
    };
    let mut damaged = Vec::new();
    for entry in entries {
        let entry = entry.at(&folder)?;
        let Some(first) = entry.file_name().to_str().and_then(lookup_of_name) else {
            continue;
        };
        let what = match OpenLookup::open_any(dir, uuid, first) {
            // It was removed with its units.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => error.to_string(),
            Err(error) => return Err(error).at(&entry.path()),
            Ok(Err(damage)) => damage.to_string(),
            Ok(Ok(OpenLookup { file, table, .. })) => {
                let count = table
                    .rows()
                    .filter(|row| read(&file, &table, *row).is_none());
                match count.count() {
                    0 => continue,
                    count => format!("{count} of its {} rows do not verify", table.rows().count()),
                }
            }
        };
        damaged.push((entry.path(), what));
    }
    Ok(damaged)
}
