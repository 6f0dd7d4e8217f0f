//! Look-ups: files beside the logs that tell in which of 32 units a field may have a key or a word (FORMAT.md, *Look-ups*).
//!
//! A question reads one row of a look-up for each key that it asks for. Where there is no look-up, or it does not verify, the units answer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::forest::cached_nodes::CachedNodes;
use super::snapshot_logs::SnapshotLogs;
use crate::error::{IoContext, Result};
use crate::format::{
    FormatError, LookedUp, LookupOf, LookupRow, LookupTable, TIME_ENTRY_BYTES, UNIT_CHUNKS,
    hash_of_bytes, hash_of_key, words_within,
};
use crate::log::storage::{OpenMode, OsStorage, Storage, StorageFile, is_not_found, read_at};
use crate::memory;
use crate::nodes::NodeId;
use crate::types::{Address, ChunkNo, Key, LOOKUPS_NAME, LogKind, SourceId, lookup_of_name};

/// Most tables are shorter: of twenty fields.
const TABLE_BYTES_USUAL: usize = 512;
/// A look-up whose table is longer is damaged.
const TABLE_BYTES_MOST: usize = 1 << 25;

pub(super) fn path_of(dir: &Path, first: Address) -> PathBuf {
    dir.join(LOOKUPS_NAME).join(format!("{:020}", first.0))
}

/// A look-up, opened for questions.
#[derive(Debug)]
pub(crate) struct OpenLookup {
    file: Arc<dyn StorageFile>,
    table: LookupTable,
    /// The rows that were read; `None` for those that do not verify.
    rows: HashMap<LookupRow, Option<Vec<u8>>>,
}

/// The file of a look-up, not decoded yet.
struct LookupFile {
    file: Arc<dyn StorageFile>,
    first: Address,
    /// The bytes of its start that were read.
    start: Vec<u8>,
}

impl LookupFile {
    fn open(dir: &Path, first: Address) -> Result<LookupFile> {
        let file = OsStorage::default().open(&path_of(dir, first), OpenMode::Read)?;
        Ok(LookupFile {
            file,
            first,
            start: Vec::new(),
        })
    }

    /// Reads the start if it is cached, and fetches it otherwise. Returns whether it is cached.
    fn fetch(&mut self) -> bool {
        self.start.resize(TABLE_BYTES_USUAL, 0);
        match self.file.pread_cached(&mut self.start, 0) {
            Ok(Some(read)) => {
                self.start.truncate(read);
                true
            }
            // `decode` reads it, and reports an error.
            Ok(None) | Err(_) => {
                self.start.clear();
                self.file.will_read(0, TABLE_BYTES_USUAL as u64);
                false
            }
        }
    }

    fn decode(mut self, uuid: &[u8; 16]) -> Result<std::result::Result<OpenLookup, FormatError>> {
        let mut length = self.start.len();
        loop {
            match LookupTable::decode(uuid, self.first, &self.start) {
                Err(FormatError::Short { need, .. })
                    if (length + 1..=TABLE_BYTES_MOST).contains(&need) =>
                {
                    length = need.max(TABLE_BYTES_USUAL);
                }
                table => {
                    return Ok(table.map(|table| OpenLookup {
                        file: self.file,
                        table,
                        rows: HashMap::new(),
                    }));
                }
            }
            if let Err(refused) = memory::resize(&mut self.start, length) {
                return Ok(Err(refused.into()));
            }
            let read = read_at(&*self.file, &mut self.start, 0)?;
            self.start.truncate(read);
        }
    }
}

impl OpenLookup {
    /// Opens the look-up of a [span](SnapshotLogs::span_of), or of its first units; `None` if there is none, or one of other records.
    #[cfg(target_os = "linux")]
    pub fn open(logs: &Arc<SnapshotLogs>, span: &Range<ChunkNo>) -> Option<OpenLookup> {
        let first = span.start.address(logs.chunk_bytes());
        let file = LookupFile::open(logs.dir(), first).ok()?;
        OpenLookup::decoded(file, logs, span)
    }

    /// Opens the look-ups of some [spans](SnapshotLogs::span_of), or of their first units, and returns whether all were cached. If not, all are fetched at once.
    pub fn open_all(
        logs: &Arc<SnapshotLogs>,
        spans: &[Range<ChunkNo>],
    ) -> (Vec<Option<OpenLookup>>, bool) {
        let mut are_cached = true;
        let mut files = Vec::new();
        for span in spans {
            let first = span.start.address(logs.chunk_bytes());
            let mut file = LookupFile::open(logs.dir(), first).ok();
            if file.as_mut().is_some_and(|file| !file.fetch()) {
                are_cached = false;
                let last = ChunkNo(span.end.min(logs.summarised_chunks()).0.saturating_sub(1));
                let entry = NodeId::summary(last).entry();
                logs.will_read(LogKind::Times, entry, TIME_ENTRY_BYTES as u64);
            }
            files.push(file);
        }
        let opened = files.into_iter().zip(spans);
        let opened = opened.map(|(file, span)| OpenLookup::decoded(file?, logs, span));
        (opened.collect(), are_cached)
    }

    fn decoded(
        file: LookupFile,
        logs: &Arc<SnapshotLogs>,
        span: &Range<ChunkNo>,
    ) -> Option<OpenLookup> {
        let lookup = file.decode(logs.uuid()).ok()?.ok()?;
        let end = span.start.0 + lookup.units() as u64 * UNIT_CHUNKS;
        let written = written(logs, &(span.start..ChunkNo(end.min(span.end.0))));
        (written.ok()? == Some(lookup.table.of())).then_some(lookup)
    }

    /// The number of its units.
    pub fn units(&self) -> usize {
        self.table.of().units
    }

    #[cfg(target_os = "linux")]
    pub fn has(&self, source: SourceId, what: LookedUp) -> bool {
        self.table.field(source, what).is_some()
    }

    /// Fetches the row that answers for a hash.
    fn announce(&self, source: SourceId, what: LookedUp, hash: u64) {
        let of_field = self.table.field(source, what);
        if let Some(row) = of_field.and_then(|field| self.table.row_of(field, hash)) {
            self.file.will_read(row.offset, row.bytes as u64);
        }
    }

    /// Whether a unit may hold a key or a word of a field, by its hash.
    pub fn may_have(&mut self, source: SourceId, what: LookedUp, hash: u64, unit: usize) -> bool {
        let OpenLookup { file, table, rows } = self;
        let Some(of_field) = table.field(source, what) else {
            return true;
        };
        let Some(row) = table.row_of(of_field, hash) else {
            return false;
        };
        let held = rows.entry(row).or_insert_with(|| read(&**file, table, row));
        let held = held.as_ref();
        held.is_none_or(|bytes| table.may_have(bytes, unit, hash))
    }
}

/// Reads a row; `None` if it does not verify.
fn read(file: &dyn StorageFile, table: &LookupTable, row: LookupRow) -> Option<Vec<u8>> {
    let mut bytes = memory::zeroed(row.bytes).ok()?;
    let read = read_at(file, &mut bytes, row.offset).ok()?;
    bytes.truncate(read);
    table.verify(row, &bytes).ok()?;
    Some(bytes)
}

/// Returns the identity of the units of a span; `None` if not all are written, or the last chunk has no records.
pub(super) fn written(logs: &Arc<SnapshotLogs>, span: &Range<ChunkNo>) -> Result<Option<LookupOf>> {
    if span.end > logs.summarised_chunks() || span.is_empty() {
        return Ok(None);
    }
    let last = ChunkNo(span.end.0 - 1);
    let entry = CachedNodes::new(Arc::clone(logs)).entry(NodeId::summary(last))?;
    let is_there = entry.node_bytes > 0;
    Ok(is_there.then(|| LookupOf {
        first: span.start.address(logs.chunk_bytes()),
        units: (span.end.0 - span.start.0).div_ceil(UNIT_CHUNKS) as usize,
        last: entry.arrivals(),
    }))
}

/// A unit with a look-up, for the test of zones.
#[derive(Copy, Clone)]
pub(crate) struct KeyedUnit<'a> {
    pub lookup: &'a RefCell<OpenLookup>,
    pub source: SourceId,
    pub unit: usize,
    /// Only fetches what would be asked: a key is never found, so that those behind it are fetched too.
    pub announces: bool,
}

impl KeyedUnit<'_> {
    pub fn may_have_key(&self, field: usize, key: Key) -> bool {
        self.may_have(LookedUp::Keys(field), hash_of_key(key))
    }

    pub fn may_have_bytes(&self, field: usize, bytes: &[u8]) -> bool {
        self.may_have(LookedUp::Keys(field), hash_of_bytes(bytes))
    }

    /// Whether a text of the unit may contain this part, in upper or lower case.
    pub fn may_have_part(&self, field: usize, part: &[u8]) -> bool {
        let mut words = words_within(part).into_iter();
        words.all(|word| self.may_have(LookedUp::Words(field), word))
    }

    fn may_have(&self, what: LookedUp, hash: u64) -> bool {
        let mut lookup = self.lookup.borrow_mut();
        if self.announces {
            lookup.announce(self.source, what, hash);
            return matches!(what, LookedUp::Words(_));
        }
        lookup.may_have(self.source, what, hash, self.unit)
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
        Err(error) if error.kind() == ErrorKind::NotADirectory => {
            return Ok(vec![(folder, "it is no folder".to_owned())]);
        }
        entries => entries.at(&folder)?,
    };
    let mut damaged = Vec::new();
    for entry in entries {
        let entry = entry.at(&folder)?;
        let Some(first) = entry.file_name().to_str().and_then(lookup_of_name) else {
            continue;
        };
        let opened = LookupFile::open(dir, first);
        let what = match opened.and_then(|file| file.decode(uuid)) {
            // It was removed with its units.
            Err(error) if is_not_found(&error) => continue,
            Err(error) if error.is_corruption() => error.what(),
            Err(error) => return Err(error),
            Ok(Err(damage)) => damage.to_string(),
            Ok(Ok(OpenLookup { file, table, .. })) => {
                let count = table
                    .rows()
                    .filter(|row| read(&*file, &table, *row).is_none());
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
