//! Reads all files of a load one after the other as one stream of batches.
//!
//! The fields of a new source must keep the columns of every file, so all files are opened before the first is read.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use loom_engine::schema::SourceDef;

use super::blocks::{Blocks, input_name, is_stream};
use super::compression::{Compression, MARK_BYTES_MAX, Seen, inner_name};
use super::format::unread;
use super::own_time::OwnTime;
use super::panics::decode;
use super::plan::{Definition, LoadOptions, Plan, define};
use super::unpacking::Unpacking;
use super::{Format, InputBatch, Reader};

/// The input of a load.
pub struct Input {
    options: LoadOptions,
    format: Option<Format>,
    definition: Definition,
    files: VecDeque<PathBuf>,
    /// A pipe can be opened only once, so its reader is kept from the first look.
    pipe: Option<(PathBuf, Opened)>,
    current: Option<Current>,
    notes: Vec<String>,
    noted: BTreeSet<String>,
    bytes_done: u64,
    bytes_total: Option<u64>,
}

struct Current {
    name: String,
    reader: Box<dyn Reader>,
    plan: Plan,
    /// Rows that are read but not all framed yet.
    unpacking: Option<Unpacking>,
    is_stream: bool,
    next_row: u64,
    bytes: u64,
}

/// Opens files, or standard input for `-`, for a load into one source.
pub fn open(
    files: &[PathBuf],
    format: Option<Format>,
    mut options: LoadOptions,
) -> anyhow::Result<Input> {
    options.files = files.to_vec();
    let streams = files.iter().filter(|path| is_stream(path)).count();
    ensure!(
        streams <= 1,
        "cannot load {streams} pipes at once: only one of the files can be standard input or a pipe"
    );
    let mut pipe = None;
    let mut columns = Vec::new();
    let mut notes = Vec::new();
    let mut unread: VecDeque<PathBuf> = files.iter().cloned().collect();
    if options.takes_fields() {
        unread.clear();
        let mut unfilled = Vec::new();
        for path in files {
            let Some((mut reader, own_notes)) = open_one(path, format, &options)? else {
                continue;
            };
            if !reader.may_have_rows() {
                unfilled.push(reader.columns().to_vec());
                notes.extend(own_notes);
                notes.extend(reader.take_notes());
                continue;
            }
            columns.push(reader.columns().to_vec());
            unread.push_back(path.clone());
            if is_stream(path) {
                pipe = Some((path.clone(), (reader, own_notes)));
            }
        }
        if columns.is_empty() && options.declared.is_none() {
            columns = unfilled;
        }
    }
    let mut definition = define(&options, columns)?;
    notes.append(&mut definition.notes);
    let lengths = files
        .iter()
        .map(|path| fs::metadata(path).ok().filter(fs::Metadata::is_file));
    let bytes_total = lengths
        .map(|meta| meta.map(|meta| meta.len()))
        .sum::<Option<u64>>();
    Ok(Input {
        options,
        format,
        definition,
        files: unread,
        pipe,
        current: None,
        notes,
        noted: BTreeSet::new(),
        bytes_done: 0,
        bytes_total: bytes_total.filter(|bytes| *bytes > 0),
    })
}

/// A reader of one input, and notes about it.
type Opened = (Box<dyn Reader>, Vec<String>);

/// Opens one input; `None` if it is empty.
fn open_one(
    path: &Path,
    format: Option<Format>,
    options: &LoadOptions,
) -> anyhow::Result<Option<Opened>> {
    let mut blocks = Blocks::open(path)?;
    let compression = blocks.unpack()?;
    if blocks.is_blank()? {
        return Ok(None);
    }
    let name = blocks.name().to_owned();
    if compression.is_some() {
        blocks.fill_to(MARK_BYTES_MAX)?;
        if let Seen::Compressed(inner) = Compression::of_bytes(blocks.data(), true) {
            bail!(
                "cannot read {name}: it is compressed twice; unpack it twice, the second time with '{} -d'",
                inner.program()
            );
        }
    }
    let format = match format.or_else(|| Format::of_name(inner_name(path))) {
        Some(format) => format,
        None => {
            blocks.fill_to(10)?;
            match (Format::of_bytes(blocks.data()), unread(blocks.data())) {
                (Some(format), _) => format,
                (None, Some(what)) => bail!("cannot read {name}: {what}"),
                (None, None) => bail!(
                    "cannot recognise the format of {name} by its name or first bytes; give it with --format"
                ),
            }
        }
    };
    format.check(&mut blocks, path, options)?;
    let mut notes = Vec::new();
    if let Some(named) = Compression::of_name(path).filter(|_| compression.is_none()) {
        let program = named.program();
        notes.push(format!(
            "{name} is not compressed with {program}, whatever its name says; it is read as it is"
        ));
    }
    let reader = decode(&name, || format.read(blocks, path, options))?;
    Ok(Some((reader, notes)))
}

impl Input {
    /// The definition of the source.
    pub fn source(&self) -> &SourceDef {
        &self.definition.def
    }

    /// The next batch, or `None` at the end of the last file. Waits for a pipe.
    pub fn next_batch(&mut self) -> anyhow::Result<Option<InputBatch>> {
        loop {
            if self.current.is_none() {
                match self.files.pop_front() {
                    Some(path) => self.current = self.begin(&path)?,
                    None if self.notes.is_empty() => return Ok(None),
                    None => return Ok(Some(self.last_notes())),
                }
            }
            let Some(current) = &mut self.current else {
                continue;
            };
            let name = &current.name;
            if let Some(unpacking) = &mut current.unpacking {
                let from = unpacking.next_row();
                let framed = decode(name, || unpacking.next(&mut current.plan.framer));
                let Some(mut batch) =
                    framed.with_context(|| format!("cannot convert {name} from row {from} on"))?
                else {
                    current.unpacking = None;
                    continue;
                };
                batch.input.clone_from(name);
                batch.row_noun = current.reader.row_noun();
                self.notes.extend(current.reader.take_notes());
                let own_time = current.plan.framer.own_time.as_mut();
                let alarm = own_time.and_then(|own_time: &mut OwnTime| own_time.alarm(name));
                self.notes.extend(alarm);
                batch.notes = self.take_notes();
                return Ok(Some(batch));
            }
            let Some(rows) = decode(name, || current.reader.next())? else {
                self.notes.extend(current.reader.take_notes());
                self.notes.extend(current.plan.framer.take_changes(name));
                self.bytes_done += current.bytes;
                self.current = None;
                continue;
            };
            let first_row = current.next_row;
            if first_row == 1
                && let Some(own_time) = &current.plan.framer.own_time
                && let Some(column) = rows.columns.get(own_time.column)
            {
                decode(name, || own_time.look(column, name, current.is_stream))?;
            }
            current.next_row += rows.count as u64;
            current.unpacking = Some(Unpacking::new(rows, first_row));
        }
    }

    /// Opens the next file; `None` if it has no rows.
    fn begin(&mut self, path: &Path) -> anyhow::Result<Option<Current>> {
        let opened = match self.pipe.take_if(|(kept, ..)| kept == path) {
            Some((_, opened)) => Some(opened),
            None => open_one(path, self.format, &self.options)?,
        };
        let Some((mut reader, mut notes)) = opened else {
            return Ok(None);
        };
        let name = input_name(path);
        if self.definition.def.fields.is_empty() {
            reader.select(Vec::new());
            let has_rows = decode(&name, || reader.next())?.is_some();
            ensure!(
                !has_rows,
                "cannot infer the fields of source '{}': the rows of {name} have no columns; declare them with --fields",
                self.options.source
            );
            return Ok(None);
        }
        let mut plan = Plan::new(&self.options, &self.definition, reader.columns(), &name)?;
        reader.select(std::mem::take(&mut plan.wanted));
        self.notes.append(&mut notes);
        self.notes.append(&mut plan.notes);
        Ok(Some(Current {
            name,
            reader,
            plan,
            unpacking: None,
            is_stream: is_stream(path),
            next_row: 1,
            bytes: fs::metadata(path).map_or(0, |meta| meta.len()),
        }))
    }

    /// Notes without rows.
    fn last_notes(&mut self) -> InputBatch {
        InputBatch {
            notes: self.take_notes(),
            ..InputBatch::default()
        }
    }

    /// The notes that were not returned before.
    fn take_notes(&mut self) -> Vec<String> {
        let notes = std::mem::take(&mut self.notes);
        notes
            .into_iter()
            .filter(|note| self.noted.insert(note.clone()))
            .collect()
    }

    /// The part that was read, from 0 to 1; `None` for pipes.
    pub fn fraction(&self) -> Option<f64> {
        let total = self.bytes_total?;
        let current = self.current.as_ref();
        let part =
            current.and_then(|current| Some(current.reader.fraction()? * current.bytes as f64));
        Some((self.bytes_done as f64 + part.unwrap_or(0.0)) / total as f64)
    }
}
