//! Pins: the records of all sources around an alert, as Parquet files in `DIR/pins/ID`, which retention leaves alone.
//!
//! A pin is written aside, synced, and moved in as a whole: a daemon that is killed at any point leaves it whole or absent. Its `pin.json` says
//! what it holds, and what retention had removed before.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use loom_engine::query::{Poll, Snapshot};
use loom_engine::schema::{is_builtin, is_pin};
use loom_engine::{Address, TimeRange, Timestamp};
use serde::{Deserialize, Serialize};

use super::export::{Export, export};
use super::path_part::path_part;
use crate::rfc3339;

/// The folder of all pins in a Loom directory.
const FOLDER: &str = "pins";
const ABOUT: &str = "pin.json";
/// How the folder of a pin that is not whole begins.
const PARTIAL: &str = ".partial-";
/// The longest name of a rule or a source in a path.
const NAME_BYTES_MAX: usize = 150;

/// What a pin holds. Of one whose `pin.json` cannot be read the id alone is known, and `missing` says why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pin {
    pub id: String,
    pub rule: String,
    /// The span, half open: of arrival, or of the own time of sources that have it.
    pub from_ns: i64,
    pub to_ns: i64,
    pub sources: Vec<PinnedSource>,
    /// What is not in it, if something is known to be missing.
    pub missing: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinnedSource {
    pub source: String,
    pub file: String,
    pub records: u64,
}

/// A pin on the disk.
#[derive(Clone, Debug)]
pub struct Pinned {
    pub pin: Pin,
    pub path: PathBuf,
    pub bytes: u64,
}

/// Writes the records of a span, unless a daemon that was killed did, and makes room for them among the pins; the oldest go first. Returns the pin, and the ids of those that went.
///
/// # Errors
/// The disk is full, or fails; an interruption; the pin alone is larger than `bytes_max`. Nothing of it is left then.
pub fn write(
    dir: &Path,
    snapshot: &Snapshot,
    rule: &str,
    span: TimeRange,
    bytes_max: u64,
    poll: &Poll<'_>,
) -> anyhow::Result<(Pinned, Vec<String>)> {
    let folder = dir.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| failed(&folder))?;
    let to = span.end().0;
    let time = jiff::Timestamp::from_nanosecond(to.into())?;
    let id = format!(
        "{}.{:09}Z-{}",
        time.strftime("%Y%m%dT%H%M%S"),
        to.rem_euclid(1_000_000_000),
        escaped(rule)
    );
    let path = folder.join(&id);
    if path.exists() {
        return Ok((read(path, id)?, Vec::new()));
    }
    let partial = folder.join(format!("{PARTIAL}{id}"));
    let written = fill(&partial, snapshot, rule, &id, span, poll).and_then(|pin| {
        let bytes = bytes_of(&partial)?;
        if bytes > bytes_max {
            bail!("the pin has {bytes} bytes, more than pin_max_bytes, {bytes_max}; raise it, or lower pin");
        }
        let gone = make_room(dir, bytes_max - bytes)?;
        fs::rename(&partial, &path).with_context(|| failed(&path))?;
        sync(&folder)?;
        Ok((Pinned { pin, path, bytes }, gone))
    });
    if written.is_err() {
        // A part of a pin is of no use; the next start removes what this cannot.
        let _ = fs::remove_dir_all(&partial);
    }
    written
}

fn fill(
    folder: &Path,
    snapshot: &Snapshot,
    rule: &str,
    id: &str,
    span: TimeRange,
    poll: &Poll<'_>,
) -> anyhow::Result<Pin> {
    fs::create_dir(folder).with_context(|| failed(folder))?;
    let mut pin = Pin {
        id: id.to_owned(),
        rule: rule.to_owned(),
        from_ns: span.first.0,
        to_ns: span.end().0,
        sources: Vec::new(),
        missing: missing(snapshot, span.first)?,
    };
    for source in snapshot.catalog().sources() {
        if is_builtin(&source.name) {
            continue;
        }
        let file = format!("{}.parquet", escaped(&source.name));
        let out = folder.join(&file);
        let what = Export {
            source: source.clone(),
            time: span,
            index: None,
        };
        let records = export(snapshot, &what, &out, poll)?;
        if records == 0 {
            fs::remove_file(&out).with_context(|| failed(&out))?;
            continue;
        }
        pin.sources.push(PinnedSource {
            source: source.name.clone(),
            file,
            records,
        });
    }
    if let (true, Some(missing)) = (pin.sources.is_empty(), &pin.missing) {
        bail!("nothing of the span is left: {missing}; raise [retention] max_bytes or max_age");
    }
    let about = folder.join(ABOUT);
    let text = serde_json::to_vec(&pin)?;
    fs::write(&about, text)
        .and_then(|()| File::open(&about)?.sync_all())
        .with_context(|| failed(&about))?;
    sync(folder)?;
    Ok(pin)
}

/// What retention had removed of the span.
fn missing(snapshot: &Snapshot, from: Timestamp) -> anyhow::Result<Option<String>> {
    if snapshot.begin() == Address::ZERO {
        return Ok(None);
    }
    Ok(match snapshot.oldest_ts()? {
        Some(oldest) if oldest <= from => None,
        Some(oldest) => {
            let oldest = rfc3339(oldest);
            Some(format!("retention had removed records before {oldest}"))
        }
        None => Some("retention had removed all records".to_owned()),
    })
}

/// The pins of a directory, the oldest first.
///
/// # Errors
/// The folder of the pins cannot be read.
pub fn list(dir: &Path) -> anyhow::Result<Vec<Pinned>> {
    let mut pins = Vec::new();
    for name in names(dir)? {
        let path = dir.join(FOLDER).join(&name);
        if !is_pin(&name) || !path.is_dir() {
            continue;
        }
        let found = read(path.clone(), name);
        // One that made room for another in the meantime is none.
        if path.is_dir() {
            pins.push(found?);
        }
    }
    // An id begins with the end of its span.
    pins.sort_by(|one, other| one.pin.id.cmp(&other.pin.id));
    Ok(pins)
}

/// What the folder of a pin holds.
fn read(path: PathBuf, id: String) -> anyhow::Result<Pinned> {
    let text = fs::read(path.join(ABOUT)).map_err(|error| error.to_string());
    let about = text
        .and_then(|text| serde_json::from_slice::<Pin>(&text).map_err(|error| error.to_string()));
    let pin = about.unwrap_or_else(|why| Pin {
        missing: Some(format!(
            "cannot read {ABOUT}: {why}; remove the pin if it is of no use"
        )),
        ..Pin::default()
    });
    let bytes = bytes_of(&path)?;
    let pin = Pin { id, ..pin };
    Ok(Pinned { pin, path, bytes })
}

/// Removes the oldest pins until the rest takes at most so much. Returns the ids of those that went.
///
/// # Errors
/// One cannot be removed.
pub fn make_room(dir: &Path, bytes_max: u64) -> anyhow::Result<Vec<String>> {
    let pins = list(dir)?;
    let mut bytes: u64 = pins.iter().map(|pinned| pinned.bytes).sum();
    let mut gone = Vec::new();
    for pinned in pins {
        if bytes <= bytes_max {
            break;
        }
        // Renamed first, so that it is never half there.
        let aside = dir.join(FOLDER).join(format!("{PARTIAL}{}", pinned.pin.id));
        match fs::rename(&pinned.path, &aside) {
            // A person was faster, or a pin that is written now.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            renamed => {
                renamed
                    .and_then(|()| fs::remove_dir_all(&aside))
                    .with_context(|| format!("cannot remove '{}'", pinned.path.display()))?;
                gone.push(pinned.pin.id);
            }
        }
        bytes -= pinned.bytes;
    }
    Ok(gone)
}

/// Removes what a daemon that was killed left of a pin.
///
/// # Errors
/// It cannot be removed.
pub fn remove_partial(dir: &Path) -> anyhow::Result<()> {
    for name in names(dir)? {
        if name.starts_with(PARTIAL) {
            let path = dir.join(FOLDER).join(&name);
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove '{}'", path.display()))?;
        }
    }
    Ok(())
}

fn names(dir: &Path) -> anyhow::Result<Vec<String>> {
    let folder = dir.join(FOLDER);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot read '{}'", folder.display()))?,
    };
    entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect()
}

fn bytes_of(folder: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| failed(folder))? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

fn sync(folder: &Path) -> anyhow::Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| failed(folder))
}

/// A name as a part of a path. One that is too long is cut, and ends in a checksum of all of it, so that two names stay two.
fn escaped(name: &str) -> String {
    let whole = path_part(name);
    match whole.split_at_checked(NAME_BYTES_MAX) {
        None => whole,
        Some((kept, _)) => format!("{kept}~{:08x}", crc_fast::crc32_iscsi(name.as_bytes())),
    }
}

fn failed(path: &Path) -> String {
    format!("cannot write '{}'", path.display())
}

#[cfg(test)]
mod tests {
    use loom_engine::ingest::{Writer, WriterOptions};
    use loom_engine::query::Directory;
    use loom_engine::schema::parse_sources;

    use super::*;

    /// A directory with ten records of a source whose name needs care.
    fn world() -> (tempfile::TempDir, Snapshot) {
        let dir = tempfile::tempdir().unwrap();
        let mut writer = Writer::open(dir.path(), WriterOptions::default()).unwrap();
        let toml = "[[source]]\nname = '../a/b'\n[[source.field]]\nname = 'n'\ntype = 'u64'\n[[source]]\nname = 'idle'\n";
        let id = writer
            .define_sources(&parse_sources(toml).unwrap())
            .unwrap()[0];
        for number in 0..10u64 {
            writer.push(id, &number.to_le_bytes()).unwrap();
        }
        writer.close().unwrap();
        let snapshot = Directory::open(dir.path()).unwrap().snapshot().unwrap();
        (dir, snapshot)
    }

    fn span(snapshot: &Snapshot) -> TimeRange {
        TimeRange {
            first: snapshot.oldest_ts().unwrap().unwrap(),
            last: snapshot.newest_ts().unwrap().unwrap(),
        }
    }

    #[test]
    fn a_pin_holds_every_record_of_its_span_under_a_safe_name() {
        let (dir, snapshot) = world();
        let (pinned, gone) = write(
            dir.path(),
            &snapshot,
            "a/rule",
            span(&snapshot),
            1 << 20,
            &Poll::never(),
        )
        .unwrap();
        assert!(gone.is_empty());
        let sources = [PinnedSource {
            source: "../a/b".to_owned(),
            file: "%2E%2E%2Fa%2Fb.parquet".to_owned(),
            records: 10,
        }];
        assert_eq!(pinned.pin.sources, sources);
        assert_eq!(pinned.pin.missing, None);
        let listed = list(dir.path()).unwrap();
        assert_eq!((listed.len(), &listed[0].pin), (1, &pinned.pin));
        assert!(listed[0].path.join("%2E%2E%2Fa%2Fb.parquet").exists());
    }

    #[test]
    fn long_names_that_begin_alike_stay_apart() {
        let [one, other] = ["a", "b"]
            .map(|end| "/".repeat(200) + end)
            .map(|name| escaped(&name));
        assert_ne!(one, other);
        assert!(one.len() < NAME_BYTES_MAX + 10);
        assert_eq!(escaped("short.name"), "short%2Ename");
    }

    #[test]
    fn the_oldest_pins_go_first_and_one_that_is_too_large_leaves_nothing() {
        let (dir, snapshot) = world();
        let whole = span(&snapshot);
        let at = |shift: i64| TimeRange {
            last: Timestamp(whole.last.0 + shift),
            ..whole
        };
        let (first, _) = write(dir.path(), &snapshot, "r", at(0), 1 << 20, &Poll::never()).unwrap();
        let bytes_max = first.bytes * 5 / 2;
        let (second, _) =
            write(dir.path(), &snapshot, "r", at(1), bytes_max, &Poll::never()).unwrap();
        let (third, gone) =
            write(dir.path(), &snapshot, "r", at(2), bytes_max, &Poll::never()).unwrap();
        assert_eq!(gone, [first.pin.id]);
        let error = write(dir.path(), &snapshot, "r", at(3), 10, &Poll::never())
            .unwrap_err()
            .to_string();
        assert!(error.contains("more than pin_max_bytes"), "{error}");
        let ids: Vec<String> = list(dir.path())
            .unwrap()
            .into_iter()
            .map(|pinned| pinned.pin.id)
            .collect();
        assert_eq!(ids, [second.pin.id, third.pin.id]);
        assert_eq!(names(dir.path()).unwrap().len(), 2);
    }

    #[test]
    fn a_pin_that_cannot_be_read_is_named_beside_the_others() {
        let (dir, snapshot) = world();
        let whole = span(&snapshot);
        let pin = |rule: &str| {
            write(dir.path(), &snapshot, rule, whole, 1 << 20, &Poll::never())
                .unwrap()
                .0
        };
        let (broken, sound) = (pin("a"), pin("b"));
        fs::write(broken.path.join(ABOUT), "{").unwrap();
        fs::write(dir.path().join(FOLDER).join("notes.txt"), "mine").unwrap();
        let listed = list(dir.path()).unwrap();
        let pins: Vec<&Pin> = listed.iter().map(|pinned| &pinned.pin).collect();
        assert_eq!(pins[1..], [&sound.pin]);
        assert_eq!((&pins[0].id, pins[0].rule.as_str()), (&broken.pin.id, ""));
        let why = pins[0].missing.as_ref().unwrap();
        assert!(why.contains("cannot read pin.json: EOF"), "{why}");
        // Its bytes count, and it goes in its turn.
        assert_eq!(
            make_room(dir.path(), sound.bytes).unwrap(),
            [broken.pin.id.as_str()]
        );
    }

    #[test]
    fn a_pin_that_was_moved_in_before_a_kill_is_the_pin() {
        let (dir, snapshot) = world();
        let whole = span(&snapshot);
        let again = || write(dir.path(), &snapshot, "r", whole, 1 << 20, &Poll::never());
        let (first, second) = (again().unwrap().0, again().unwrap().0);
        assert_eq!((first.pin, first.bytes), (second.pin, second.bytes));
        assert_eq!(names(dir.path()).unwrap().len(), 1);
    }

    #[test]
    fn what_a_kill_left_is_no_pin_and_goes() {
        let (dir, snapshot) = world();
        write(
            dir.path(),
            &snapshot,
            "r",
            span(&snapshot),
            1 << 20,
            &Poll::never(),
        )
        .unwrap();
        let partial = dir.path().join(FOLDER).join(format!("{PARTIAL}x"));
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join("half.parquet"), "half").unwrap();
        assert_eq!(list(dir.path()).unwrap().len(), 1);
        remove_partial(dir.path()).unwrap();
        assert!(!partial.exists());
        assert_eq!(list(dir.path()).unwrap().len(), 1);
        // What a person keeps beside the pins makes no room for them.
        let own = dir.path().join(FOLDER).join("2026-own");
        fs::create_dir(&own).unwrap();
        assert_eq!(make_room(dir.path(), 0).unwrap().len(), 1);
        assert!(own.exists() && list(dir.path()).unwrap().is_empty());
    }
}
