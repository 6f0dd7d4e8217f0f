//! The files beside the logs: what each says, compared with its copy and with what `durable` says of it.

use std::path::PathBuf;

use super::report::DamagedFile;
use crate::error::{Error, Result};
use crate::format::{Rewritten, line_content};
use crate::log::{CATALOG_FILE, CatalogBytes, DurableState, LogReader, Slots};
use crate::proven::at;

/// What a crash leaves where a page was not written; no line holds a NUL.
const UNWRITTEN: u8 = 0;
const MENDED: &str = "the next start, or `ingestd check --repair`, writes it again";

pub struct SmallFiles {
    slots: Slots,
    /// So long is all that the catalog ever held, at least.
    bytes_least: u64,
    files: CatalogBytes,
    /// As far as the file or its copy has it.
    pub catalog: Vec<u8>,
}

impl SmallFiles {
    pub fn read(reader: &LogReader) -> Result<SmallFiles> {
        // Before the catalog, whose length only grows.
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

    /// Whether the catalog's lines, which end there, are fewer than they were.
    pub fn lost_lines(&self, lines_end: u64) -> bool {
        lines_end < self.bytes_least
    }

    /// What is damaged of them; the catalog's lines end at `lines_end`. A directory that no writer got far with has neither `durable` nor a catalog.
    pub fn damaged(&self, reader: &LogReader, lines_end: u64) -> Result<Vec<DamagedFile>> {
        let mut damaged: Vec<DamagedFile> = (reader.damaged_files().into_iter())
            .map(|(path, what)| damage(path, format!("{what}; its copy is used instead; {MENDED}")))
            .collect();
        damaged.extend(missing_notes(reader)?);
        for (path, what) in reader.damaged_directories()? {
            let mended = "its units were found one by one; `ingestd check --repair` writes the directory again";
            damaged.push(damage(path, format!("{what}; {mended}")));
        }
        damaged.extend(self.damaged_catalog(reader, lines_end));
        let path = reader.dir().join("durable");
        match &self.slots {
            Slots { newest: None, .. } if reader.has_staging()? => {
                let what = "it is missing, or none of its slots verifies; staging holds what it would say, and the next start writes it again";
                damaged.push(damage(path, what.to_owned()));
            }
            Slots { newest: None, .. } if reader.has_segments()? => {
                let what = "it is missing, or none of its slots verifies, so the durable end of the logs is not known; the next start rebuilds \
                    the index logs and lists a gap above the last chunk that verifies; if a backup has the file, restore it first";
                damaged.push(damage(path, what.to_owned()));
            }
            // A writer that stops writes both, and the second after the first is synced. In epoch 0 no writer has begun.
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
            // A writer that stops leaves it whole; a crash may leave it behind.
            Some(DurableState { clean: true, .. }) => *copy == self.catalog,
            _ => is_prefix(&self.catalog, copy) || self.is_from_before(reader, copy),
        };
        if of_copy.is_some() || !is_whole {
            let what = why(of_copy, copy);
            damaged.push(damage(copy_path, format!("{what}; {MENDED}")));
        }
        damaged
    }

    /// Whether a copy begins as one that a crash kept from being rewritten after the file.
    fn is_from_before(&self, reader: &LogReader, copy: &[u8]) -> bool {
        let uuid = &reader.meta().uuid;
        let [of_copy, of_catalog] =
            [copy, &self.catalog].map(|text| Rewritten::of(uuid, text).lines);
        let line = copy.split(|byte| *byte == b'\n').next();
        of_copy < of_catalog && line.is_some_and(|line| line_content(uuid, of_copy, line).is_ok())
    }
}

/// The note of staging, or its copy, where a writer left both and one is gone.
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

/// Whether a copy holds nothing but what the catalog begins with, or ends in a line that a crash left unwritten.
fn is_prefix(catalog: &[u8], copy: &[u8]) -> bool {
    let rest = at(copy, lines_alike(catalog, copy).1..);
    let line = rest.split_inclusive(|byte| *byte == b'\n').next();
    line.is_none_or(|line| !line.ends_with(b"\n") || line.contains(&UNWRITTEN))
}

/// Where a file stops to say what the catalog says.
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

/// How many lines two texts begin with alike, and their bytes.
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
