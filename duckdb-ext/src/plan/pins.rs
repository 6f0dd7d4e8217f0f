//! The pins of a Loom directory: the records that rules kept around their alerts, and that people kept by hand. Each pin is a folder of Parquet files with a `pin.json`
//! that the daemon wrote.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use loom_engine::log::storage::{OsStorage, read_file};
use loom_engine::schema::is_pin;
use serde::Deserialize;

use super::time::micros;
use super::types::SqlType;
use crate::error::{Problem, Result};
use crate::exec::cells::Cell;

pub const FUNCTION: &str = "loom_pins";
const FOLDER: &str = "pins";
const ABOUT: &str = "pin.json";
/// A `pin.json` has a few hundred bytes for each source, and a directory has at most 65,000 sources.
const ABOUT_BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Deserialize)]
struct Pin {
    rule: String,
    #[serde(default)]
    by_hand: bool,
    from_ns: i64,
    to_ns: i64,
    sources: Vec<PinnedSource>,
    missing: Option<String>,
}

#[derive(Clone, Deserialize)]
struct PinnedSource {
    records: u64,
}

pub const COLUMNS: [(&str, SqlType); 10] = [
    ("dir", SqlType::Text),
    ("id", SqlType::Text),
    ("rule", SqlType::Text),
    ("kept_by", SqlType::Text),
    ("from_ts", SqlType::TimestampTz),
    ("to_ts", SqlType::TimestampTz),
    ("path", SqlType::Text),
    ("records", SqlType::U64),
    ("bytes", SqlType::U64),
    ("missing", SqlType::Text),
];

/// One row for each pin of a directory, the oldest first; `dir` is the text that the rows show for it. If a pin cannot be read, `missing`
/// says why.
pub fn rows(dir: &str) -> Result<Vec<Vec<Cell>>> {
    let folder = Path::new(dir).join(FOLDER);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| unread(&folder, &error.to_string()))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| unread(&folder, &error.to_string()))?;
        let (id, path) = (entry.file_name(), entry.path());
        let id = id.to_string_lossy();
        if !is_pin(&id) || !path.is_dir() {
            continue;
        }
        let (about, bytes) = (about(&path), bytes_of(&path));
        // The daemon may have deleted this pin in the meantime to make room for another.
        if path.is_dir() {
            found.push((id.into_owned(), about, path.display().to_string(), bytes));
        }
    }
    // An id begins with the end of its span, so this is the order of time.
    found.sort_by(|(one, ..), (other, ..)| one.cmp(other));
    let rows = found.into_iter().map(|(id, about, path, bytes)| {
        let (pin, missing) = match about {
            Ok(pin) => (Some(pin.clone()), pin.missing),
            Err(why) => (None, Some(why)),
        };
        let of = |cell: fn(&Pin) -> Cell| Cell::from(pin.as_ref().map(cell));
        vec![
            Cell::from(dir),
            Cell::Text(id),
            of(|pin| Cell::Text(pin.rule.clone())),
            of(|pin| Cell::from(if pin.by_hand { "hand" } else { "rule" })),
            of(|pin| Cell::Int(micros(pin.from_ns).into())),
            of(|pin| Cell::Int(micros(pin.to_ns).into())),
            Cell::Text(path),
            of(|pin| Cell::from(pin.sources.iter().map(|source| source.records).sum::<u64>())),
            Cell::from(bytes.ok().map(Cell::from)),
            Cell::from(missing.map(Cell::Text)),
        ]
    });
    Ok(rows.collect())
}

/// The content of `pin.json`, or why it cannot be read.
fn about(path: &Path) -> std::result::Result<Pin, String> {
    read_file(&OsStorage::default(), &path.join(ABOUT), ABOUT_BYTES_MAX)
        .map_err(|error| error.to_string())
        .and_then(|text| text.ok_or_else(|| "it does not exist".to_owned()))
        .and_then(|text| serde_json::from_slice(&text).map_err(|why| why.to_string()))
        .map_err(|why| format!("cannot read {ABOUT}: {why}; remove the pin if it is of no use"))
}

fn bytes_of(path: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(path)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

fn unread(path: &Path, why: &str) -> Problem {
    Problem::Io(format!(
        "cannot read '{}': {why}; make the folder readable, or remove it",
        path.display()
    ))
}
