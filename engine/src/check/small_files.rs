//! Checks the files beside the logs, by comparing them with their copies and with `durable`.

use std::path::PathBuf;

use super::report::DamagedFile;
use crate::error::{Error, Result};
use crate::format::{Rewritten, line_content};
use crate::log::{CATALOG_FILE, CatalogBytes, DurableState, LogReader, Slots};
use crate::proven::at;
use crate::query::damaged_lookups;

/// The bytes of a page that a crash left unwritten; no line contains NUL.
const UNWRITTEN: u8 = 0;
const MENDED: &str = "the next start, or `ingestd check --repair`, writes it again";

pub struct SmallFiles {
    slots: Slots,
    /// The least number of bytes that the catalog ever held.
    bytes_least: u64,
    files: CatalogBytes,
    /// The content that the file or its copy has.
    pub catalog: Vec<u8>,
}

impl SmallFiles {
    pub fn read(reader: &LogReader) -> Result<SmallFiles> {
        // The slots are read before the catalog, which only grows.
        let slots = reader.slots()?;
        let bytes_least = reader.catalog_bytes_least()?;
        let files = reader.catalog_files()?;
        Ok(SmallFiles {
            slots,
            bytes_least,
            catalog: files.merged(&reader.meta().uuid).into_owned(),
            files,
        })
    }

    /// Whether the catalog, whose lines end at `lines_end`, has lost lines.
    pub fn lost_lines(&self, lines_end: u64) -> bool {
        lines_end < self.bytes_least
    }

    /// The damaged files; the catalog's lines end at `lines_end`. A directory whose writer stopped early has neither `durable` nor a
    /// catalog.
    pub fn damaged(&self, reader: &LogReader, lines_end: u64) -> Result<Vec<DamagedFile>> {
        let mut damaged: Vec<DamagedFile> = (reader.damaged_files().into_iter())
            .map(|(path, what)| damage(path, format!("{what}; its copy is used instead; {MENDED}")))
            .collect();
        damaged.extend(missing_notes(reader)?);
        for (path, what) in reader.damaged_directories()? {
            let mended = "its units were found one by one; `ingestd check --repair` writes the directory again";
            damaged.push(damage(path, format!("{what}; {mended}")));
        }
        for (path, what) in damaged_lookups(reader.dir(), &reader.meta().uuid)? {
            let mended = "questions read the units instead; remove the file, and the daemon or `ingestd index rebuild` builds it again";
            damaged.push(damage(path, format!("{what}; {mended}")));
        }
        damaged.extend(self.damaged_catalog(reader, lines_end));
        let path = reader.dir().join("durable");
        match &self.slots {
            Slots { newest: None, .. } if reader.has_staging()? => {
                let what = "it is missing, or none of its slots verifies; staging holds its content, and the next start writes it again";
                damaged.push(damage(path, what.to_owned()));
            }
            Slots { newest: None, .. } if reader.has_segments()? => {
                let what = "it is missing, or none of its slots verifies, so the durable end of the logs is not known; the next start rebuilds \
                    the index logs and lists a gap above the last chunk that verifies; if a backup has the file, restore it first";
                damaged.push(damage(path, what.to_owned()));
            }
            // A writer that stops writes both slots, the second after the first is synced. In epoch 0 no writer has begun.
            Slots {
                newest:
                    Some(DurableState {
                        clean: true,
                        epoch: 1..,
                        ..
                    }),
                sound: 1,
            } => {
                let what = "one of its two slots does not verify, and the other serves; the next start writes both again";
                damaged.push(damage(path, what.to_owned()));
            }
            _ => {}
        }
        Ok(damaged)
    }

    fn damaged_catalog(&self, reader: &LogReader, lines_end: u64) -> Vec<DamagedFile> {
        let [path, copy_path] =
            [CATALOG_FILE.name, CATALOG_FILE.copy_name].map(|name| reader.dir().join(name));
        let CatalogBytes {
            file,
            copy,
            unreadable: [of_file, of_copy],
        } = &self.files;
        if self.lost_lines(lines_end) {
            let what = format!(
                "its lines end at byte {lines_end} of {} that were durable; restore the file from a backup",
                self.bytes_least
            );
            return vec![damage(path, what)];
        }
        let mut damaged = Vec::new();
        let why = |error: &Option<Error>, bytes: &[u8]| match error {
            Some(error) => error.what(),
            None => differs(&self.catalog, bytes),
        };
        if of_file.is_some() || *file != self.catalog {
            let what = why(of_file, file);
            damaged.push(damage(
                path,
                format!("{what}; its copy is used instead; {MENDED}"),
            ));
        }
        let is_whole = match &self.slots.newest {
            // A writer that stops completes the copy; after a crash it may be behind.
            Some(DurableState { clean: true, .. }) => *copy == self.catalog,
            _ => is_prefix(&self.catalog, copy) || self.is_from_before(reader, copy),
        };
        if of_copy.is_some() || !is_whole {
            let what = why(of_copy, copy);
            damaged.push(damage(copy_path, format!("{what}; {MENDED}")));
        }
        damaged
    }

    /// Whether a copy is from before the last rewriting, because a crash prevented its own.
    fn is_from_before(&self, reader: &LogReader, copy: &[u8]) -> bool {
        let uuid = &reader.meta().uuid;
        let [of_copy, of_catalog] =
            [copy, &self.catalog].map(|text| Rewritten::of(uuid, text).lines);
        let line = copy.split(|byte| *byte == b'\n').next();
        of_copy < of_catalog && line.is_some_and(|line| line_content(uuid, of_copy, line).is_ok())
    }
}

/// The note of staging or its copy, if a writer left both and one is missing.
fn missing_notes(reader: &LogReader) -> Result<Option<DamagedFile>> {
    let missing = reader.missing_notes()?;
    let what = match missing.len() {
        1 => format!("it is missing; its copy is used instead; {MENDED}"),
        _ => "it and its copy are missing, although the last writer did not stop cleanly; the next start loses what staging alone holds, and \
            lists a gap; restore one of them from a backup first"
            .to_owned(),
    };
    Ok(missing.into_iter().next().map(|path| damage(path, what)))
}

fn damage(path: PathBuf, what: String) -> DamagedFile {
    DamagedFile { path, what }
}

/// Whether a copy is a prefix of the catalog, apart from a last line that a crash left unwritten.
fn is_prefix(catalog: &[u8], copy: &[u8]) -> bool {
    let rest = at(copy, lines_alike(catalog, copy).1..);
    let line = rest.split_inclusive(|byte| *byte == b'\n').next();
    line.is_none_or(|line| !line.ends_with(b"\n") || line.contains(&UNWRITTEN))
}

/// The place at which a file differs from the catalog.
fn differs(catalog: &[u8], file: &[u8]) -> String {
    let (lines, bytes) = lines_alike(catalog, file);
    if file.is_empty() {
        "it is empty or missing".to_owned()
    } else if file.len() == bytes {
        format!("it ends after line {lines}")
    } else {
        format!("line {} does not verify", lines + 1)
    }
}

/// The number of lines with which both texts begin, and their bytes.
fn lines_alike(catalog: &[u8], file: &[u8]) -> (usize, usize) {
    let [of_catalog, of_file] =
        [catalog, file].map(|text| text.split_inclusive(|byte| *byte == b'\n'));
    of_catalog
        .zip(of_file)
        .take_while(|(one, other)| one == other && one.ends_with(b"\n"))
        .fold((0, 0), |(lines, bytes), (line, _)| {
            (lines + 1, bytes + line.len())
        })
}
