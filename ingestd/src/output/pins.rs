//! Pins: the records around an alert or before a request, as Parquet files in `DIR/pins/ID`, which retention does not remove.
//!
//! A pin is written aside, synced, and moved in as a whole: a daemon that is killed at any point has written all of it or nothing. Its `pin.json`
//! lists its sources, and the records that retention had removed before.

use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use loom_engine::log::Access;
use loom_engine::log::storage::{OsStorage, read_file};
use loom_engine::query::{Poll, Predicate, ScanSpec, Snapshot};
use loom_engine::schema::{Source, TimeKind, is_builtin, is_pin};
use loom_engine::{Address, Error, LogKind, TimeRange, Timestamp};
use serde::{Deserialize, Serialize};

use super::copy::Gaps;
use super::out::Out;
use super::path_part::path_part;
use super::table::{self, Part, TooLarge};
use crate::config::RetentionConfig;
use crate::rfc3339;

const FOLDER: &str = "pins";
const ABOUT: &str = "pin.json";
/// The longest `pin.json`: a few hundred bytes for each of the sources that there may be.
const ABOUT_BYTES_MAX: u64 = 64 << 20;
/// The folder of a pin that is not whole begins so.
const PARTIAL: &str = ".partial-";
/// The file that counts the tries of a pin begins so: it has a byte for each.
const TRIES: &str = ".tries-";
const TRIES_MAX: u64 = 3;
/// No pin waits for so long, so its tries are of no use.
const TRIES_AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// The name of a rule or a source is cut to so many bytes in the name of a file.
const NAME_BYTES_MAX: usize = 150;
/// The most by which records shrink in a pin, except for rare ones.
const SMALLER_MOST: u64 = 32;

/// The contents of a pin. If its `pin.json` cannot be read, the id alone is known, and `missing` says why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pin {
    pub id: String,
    /// The rule that asked for it, or the name that a person gave it.
    pub rule: String,
    /// A person asked for it.
    pub by_hand: bool,
    /// The span of arrival, half open.
    pub from_ns: i64,
    pub to_ns: i64,
    /// The same span by the wall clock: of sources with their own time, the pin also has the records whose time lies in it.
    pub own_from_ns: i64,
    pub own_to_ns: i64,
    pub sources: Vec<PinnedSource>,
    /// Names the records that are known to be missing.
    pub missing: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PinnedSource {
    pub source: String,
    pub file: String,
    pub records: u64,
}

#[derive(Clone, Debug)]
pub struct Pinned {
    pub pin: Pin,
    pub path: PathBuf,
    pub bytes: u64,
}

/// A pin that was kept by hand, for the person who asked: the JSON document of `PROTOCOL.md`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Kept {
    pub id: String,
    pub path: PathBuf,
    pub records: u64,
    pub bytes: u64,
    pub missing: Option<String>,
    /// The ids of the pins that made room for it.
    pub removed: Vec<String>,
}

impl Kept {
    pub fn new(pinned: &Pinned, removed: Vec<String>) -> Kept {
        let sources = pinned.pin.sources.iter();
        Kept {
            id: pinned.pin.id.clone(),
            path: pinned.path.clone(),
            records: sources.map(|source| source.records).sum(),
            bytes: pinned.bytes,
            missing: pinned.pin.missing.clone(),
            removed,
        }
    }
}

/// The wanted contents of a pin.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The name of the rule or of the pin by hand.
    pub name: String,
    pub by_hand: bool,
    /// Empty for all.
    pub sources: Vec<String>,
    /// The span of arrival.
    pub span: TimeRange,
    /// The same span by the wall clock, which the own times of sources follow.
    pub own_span: TimeRange,
    /// Says which part of the wanted time the span omits.
    pub left_out: Option<String>,
}

/// Writes a pin, unless a killed daemon did, and makes room for it: the oldest pins go first. Returns the pin, and the ids of those that went.
/// The pin names its records that are damaged, or go meanwhile.
///
/// # Errors
/// The disk is full, or fails; an interruption; the pin alone is larger than `pin_max_bytes`, its records could not become so small, or `min_free` and the
/// log leave it no room; the process ended each time that it was written. Nothing of it remains then.
pub fn write(
    snapshot: &Snapshot,
    wanted: &Wanted,
    limits: &RetentionConfig,
    poll: &Poll<'_>,
) -> anyhow::Result<(Pinned, Vec<String>)> {
    let dir = snapshot.directory().path();
    let folder = dir.join(FOLDER);
    let access = Access::of_directory(dir)?;
    create_folder(&folder, true)?;
    access.set(&folder)?;
    let id = id(wanted)?;
    let path = folder.join(&id);
    let tries = folder.join(format!("{TRIES}{id}"));
    if path.exists() && wanted.by_hand {
        bail!(
            "a pin '{id}' exists: the span of another one by this name ends at the same time; give another name"
        );
    }
    if path.exists() {
        forget(&tries);
        return Ok((read(path, id)?, Vec::new()));
    }
    let partial = folder.join(format!("{PARTIAL}{id}"));
    let written = begin_try(&folder, &tries)
        .and_then(|()| fill(&partial, snapshot, wanted, &id, limits, poll))
        .and_then(|(pin, mut gone)| {
            share_pin(&access, &partial)?;
            let bytes = bytes_of(&partial)?;
            let bytes_max = limits.pin_max_bytes.0;
            let room = bytes_max.checked_sub(bytes);
            gone.extend(make_room(dir, room.ok_or_else(|| too_large(bytes_max))?)?);
            fs::rename(&partial, &path).with_context(|| failed(&path))?;
            sync(&folder)?;
            Ok((Pinned { pin, path, bytes }, gone))
        });
    if written.is_err() {
        // A part of a pin is of no use; the next start removes a folder that this cannot.
        let _ = fs::remove_dir_all(&partial);
    }
    forget(&tries);
    written
}

/// The folder of a pin. It begins with the end of the span.
fn id(wanted: &Wanted) -> anyhow::Result<String> {
    let to = wanted.span.end().0;
    let time = jiff::Timestamp::from_nanosecond(to.into())?;
    Ok(format!(
        "{}.{:09}Z-{}",
        time.strftime("%Y%m%dT%H%M%S"),
        to.rem_euclid(1_000_000_000),
        path_part(&wanted.name, NAME_BYTES_MAX)
    ))
}

/// Counts a try in a file that outlives the process: a pin that ends the process each time, such as by its memory, is given up.
fn begin_try(folder: &Path, tries: &Path) -> anyhow::Result<()> {
    let mut file = File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(tries)
        .with_context(|| failed(tries))?;
    if file.metadata()?.len() >= TRIES_MAX {
        bail!(
            "given up: the daemon ended {TRIES_MAX} times while it wrote the pin; keep a shorter time, or give the daemon more memory"
        );
    }
    file.write_all(b".")
        .and_then(|()| file.sync_all())
        .with_context(|| failed(tries))?;
    sync(folder)
}

fn forget(tries: &Path) {
    // A later start removes it otherwise.
    let _ = fs::remove_file(tries);
}

fn fill(
    folder: &Path,
    snapshot: &Snapshot,
    wanted: &Wanted,
    id: &str,
    limits: &RetentionConfig,
    poll: &Poll<'_>,
) -> anyhow::Result<(Pin, Vec<String>)> {
    let placed = Placed::find(snapshot, wanted)?;
    let bytes_max = limits.pin_max_bytes.0;
    let log_bytes = placed.require_room(wanted, bytes_max)?;
    let dir = snapshot.directory().path();
    let gone = make_space(dir, log_bytes.min(bytes_max), limits)?;
    let space = space(dir, limits)?;
    create_folder(folder, false)?;
    let mut pin = Pin {
        id: id.to_owned(),
        rule: wanted.name.clone(),
        by_hand: wanted.by_hand,
        from_ns: wanted.span.first.0,
        to_ns: wanted.span.end().0,
        own_from_ns: wanted.own_span.first.0,
        own_to_ns: wanted.own_span.end().0,
        sources: Vec::new(),
        missing: None,
    };
    let (mut bytes_left, mut gaps) = (bytes_max.min(space), Vec::new());
    for source in placed.snapshot.catalog().sources() {
        if !wanted.has(source) {
            continue;
        }
        let file = format!("{}.parquet", path_part(&source.name, NAME_BYTES_MAX));
        let out = Out::File(folder.join(&file));
        let written = table::write(source, placed.parts(source), &out, bytes_left, poll);
        let written = written.map_err(|error| match error.is::<TooLarge>() {
            true if space < bytes_max => no_space(space),
            true => too_large(bytes_max),
            false => error,
        })?;
        gaps.extend(written.gaps);
        bytes_left = bytes_left.saturating_sub(written.bytes);
        if written.rows > 0 {
            pin.sources.push(PinnedSource {
                source: source.name.clone(),
                file,
                records: written.rows,
            });
        }
    }
    let gaps: Gaps = gaps.into_iter().collect();
    let removed = removed(&placed.snapshot, wanted.span.first)?;
    let gaps = (!gaps.is_empty()).then(|| gaps.to_string());
    let missing = [removed, gaps, wanted.left_out.clone()].into_iter();
    let missing = missing.flatten().collect::<Vec<_>>().join("; ");
    pin.missing = (!missing.is_empty()).then_some(missing);
    if wanted.by_hand && pin.sources.is_empty() && pin.missing.is_none() {
        bail!("no record arrived within the span; give a longer one, or other sources");
    }
    if let (true, Some(missing)) = (pin.sources.is_empty(), &pin.missing) {
        bail!(
            "no record of the span remains: {missing}; keep more with [retention] max_bytes and max_age, and run 'ingestd check'"
        );
    }
    let about = folder.join(ABOUT);
    let text = serde_json::to_vec(&pin)?;
    fs::write(&about, text)
        .and_then(|()| File::open(&about)?.sync_all())
        .with_context(|| failed(&about))?;
    sync(folder)?;
    Ok((pin, gone))
}

impl Wanted {
    /// Whether the pin has the records of a source. The built-in ones are about the directory, which a pin outlives.
    fn has(&self, source: &Source) -> bool {
        let is_named = self.sources.is_empty() || self.sources.contains(&source.name);
        is_named && !is_builtin(&source.name)
    }
}

/// The place of a pin's records: those that arrived in its span have addresses in a row.
struct Placed {
    snapshot: Snapshot,
    from: Address,
    to: Address,
    own_span: TimeRange,
}

impl Placed {
    fn find(snapshot: &Snapshot, wanted: &Wanted) -> anyhow::Result<Placed> {
        // Records that retention removes meanwhile are noted as missing.
        let mut snapshot = snapshot.clone();
        let (from, to) = snapshot.ask_retained(|snapshot| {
            let first = snapshot.first_arrived(wanted.span.first)?;
            let end = snapshot.first_arrived(wanted.span.end())?;
            Ok((first.from(), end.address))
        })?;
        Ok(Placed {
            snapshot,
            from,
            to,
            own_span: wanted.own_span,
        })
    }

    /// Refuses records that take so much of the log that they can hardly become so small a pin, before anything is written. Returns the bytes.
    fn require_room(&self, wanted: &Wanted, bytes_max: u64) -> anyhow::Result<u64> {
        let log_bytes = self.log_bytes(wanted).unwrap_or_else(|error| {
            tracing::warn!("cannot estimate the size of a pin: {error}");
            0
        });
        if log_bytes / SMALLER_MOST > bytes_max {
            bail!(
                "the records of the span take {log_bytes} bytes of the log, more than {SMALLER_MOST} times pin_max_bytes, {bytes_max}; raise it, or keep a shorter time"
            );
        }
        Ok(log_bytes)
    }

    /// The bytes of the log for records that arrived in the span, from summaries.
    fn log_bytes(&self, wanted: &Wanted) -> loom_engine::Result<u64> {
        let below = |end| {
            let totals = self.snapshot.up_to(end).totals()?;
            let of_wanted = totals.iter().filter(|(id, _)| {
                let source = self.snapshot.catalog().source(**id);
                source.is_some_and(|source| wanted.has(source))
            });
            Ok::<u64, Error>(of_wanted.map(|(_, totals)| totals.bytes).sum())
        };
        Ok(below(self.to)?.saturating_sub(below(self.from)?))
    }

    /// The records of a source that arrived in the span, and those that arrived before or after it and whose own times lie in it.
    fn parts(&self, source: &Source) -> Vec<Part> {
        let part = |after, until, exact| Part {
            snapshot: self.snapshot.up_to(until),
            spec: ScanSpec {
                source: source.id,
                after,
                exact,
                prune: Predicate::All,
                index_filters: Vec::new(),
            },
        };
        let arrived = part(self.from, self.to, Predicate::All);
        if source.time == TimeKind::Arrival {
            return vec![arrived];
        }
        let own = || Predicate::time(self.own_span);
        let end = Address(self.snapshot.position());
        let mut parts = vec![arrived];
        if self.from > self.snapshot.begin() {
            parts.insert(0, part(Address::ZERO, self.from, own()));
        }
        if self.to < end {
            parts.push(part(self.to, end, own()));
        }
        parts
    }
}

/// Says what retention had removed of the span.
fn removed(snapshot: &Snapshot, from: Timestamp) -> anyhow::Result<Option<String>> {
    if snapshot.begin() == Address::ZERO {
        return Ok(None);
    }
    Ok(match snapshot.oldest_ts() {
        Ok(Some(oldest)) if oldest <= from => None,
        Ok(Some(oldest)) => {
            let oldest = rfc3339(oldest);
            Some(format!("retention had removed records before {oldest}"))
        }
        Ok(None) => Some("retention had removed all records".to_owned()),
        Err(error @ Error::Evicted { .. }) => Some(error.to_string()),
        Err(error) if error.is_corruption() => Some(format!(
            "retention had removed records, up to when is unknown: {error}"
        )),
        Err(error) => return Err(error.into()),
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
        // It may have made room for another pin meanwhile.
        if path.is_dir() {
            pins.push(found?);
        }
    }
    // An id begins with the end of its span.
    pins.sort_by(|one, other| one.pin.id.cmp(&other.pin.id));
    Ok(pins)
}

/// Reads the pin in a folder.
fn read(path: PathBuf, id: String) -> anyhow::Result<Pinned> {
    let about = read_file(&OsStorage::default(), &path.join(ABOUT), ABOUT_BYTES_MAX)
        .map_err(|error| error.to_string())
        .and_then(|text| text.ok_or_else(|| "it does not exist".to_owned()))
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

/// Removes the oldest pins until the others take at most so many bytes. Returns the ids of those that went.
///
/// # Errors
/// A pin cannot be removed.
pub fn make_room(dir: &Path, bytes_max: u64) -> anyhow::Result<Vec<String>> {
    let pins = list(dir)?;
    let mut bytes: u64 = pins.iter().map(|pinned| pinned.bytes).sum();
    let mut gone = Vec::new();
    for pinned in pins {
        if bytes <= bytes_max {
            break;
        }
        // It is renamed first, so that it is never half there.
        let aside = dir.join(FOLDER).join(format!("{PARTIAL}{}", pinned.pin.id));
        match fs::rename(&pinned.path, &aside) {
            // A person was faster, or a pin that is being written.
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

/// Removes the oldest pins until the disk has space for another.
fn make_space(dir: &Path, wanted: u64, limits: &RetentionConfig) -> anyhow::Result<Vec<String>> {
    let (free, reserved) = disk(dir, limits)?;
    let missing = wanted.saturating_add(reserved).saturating_sub(free);
    if missing == 0 {
        return Ok(Vec::new());
    }
    let bytes: u64 = list(dir)?.iter().map(|pinned| pinned.bytes).sum();
    // Where all of them are too few, the new one may still become small enough, and else none has gone in vain.
    match bytes.checked_sub(missing) {
        Some(bytes_max) => make_room(dir, bytes_max),
        None => Ok(Vec::new()),
    }
}

/// The bytes that a pin may take of the disk.
fn space(dir: &Path, limits: &RetentionConfig) -> anyhow::Result<u64> {
    let (free, reserved) = disk(dir, limits)?;
    Ok(free.saturating_sub(reserved))
}

/// The free bytes of the disk, and those of them that are for `min_free` and for what the log may still take by `max_bytes`.
fn disk(dir: &Path, limits: &RetentionConfig) -> anyhow::Result<(u64, u64)> {
    let folder = dir.join(FOLDER);
    let unknown = || format!("cannot read how full the disk of '{}' is", folder.display());
    let disk = rustix::fs::statvfs(&folder).with_context(unknown)?;
    let of = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    // The pins may lie on a disk of their own.
    let is_same = fs::metadata(dir)?.dev() == fs::metadata(&folder)?.dev();
    let log_may_grow = match limits.max_bytes.as_ref().filter(|_| is_same) {
        None => 0,
        Some(bytes_max) => {
            let logs = LogKind::ALL.map(|log| bytes_of(&dir.join(log.dir_name())));
            let bytes = logs.into_iter().sum::<anyhow::Result<u64>>()?;
            bytes_max.get_ref().0.saturating_sub(bytes)
        }
    };
    let reserved = limits
        .min_free
        .of(of(disk.f_blocks))
        .saturating_add(log_may_grow);
    Ok((of(disk.f_bavail), reserved))
}

/// Removes unfinished pins of a killed daemon.
///
/// # Errors
/// It cannot be removed.
pub fn remove_partial(dir: &Path) -> anyhow::Result<()> {
    for name in names(dir)? {
        let path = dir.join(FOLDER).join(&name);
        let failed = || format!("cannot remove '{}'", path.display());
        if name.starts_with(PARTIAL) {
            fs::remove_dir_all(&path).with_context(failed)?;
        } else if name.starts_with(TRIES) {
            let begun = fs::metadata(&path).and_then(|found| found.modified());
            let is_old =
                |begun: std::time::SystemTime| begun.elapsed().is_ok_and(|age| age > TRIES_AGE_MAX);
            if begun.is_ok_and(is_old) {
                fs::remove_file(&path).with_context(failed)?;
            }
        }
    }
    Ok(())
}

/// Gives the pins the mode and the group of the directory, which follow `[access]`.
///
/// # Errors
/// A pin belongs to another user.
pub fn share(dir: &Path) -> anyhow::Result<()> {
    let access = Access::of_directory(dir)?;
    access.set(&dir.join(FOLDER))?;
    for pinned in list(dir)? {
        share_pin(&access, &pinned.path)?;
    }
    Ok(())
}

/// Shares the files first: others reach them once the folder is shared.
fn share_pin(access: &Access, folder: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(folder).with_context(|| failed(folder))? {
        access.set(&entry?.path())?;
    }
    Ok(access.set(folder)?)
}

/// Creates a folder for the owner alone, until it is shared.
fn create_folder(folder: &Path, may_be_there: bool) -> anyhow::Result<()> {
    let created = DirBuilder::new().mode(0o700).create(folder);
    match created {
        Err(error) if may_be_there && error.kind() == ErrorKind::AlreadyExists => Ok(()),
        created => created.with_context(|| failed(folder)),
    }
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
    let failed = || format!("cannot read '{}'", folder.display());
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(failed)? {
        // Retention may have removed it meanwhile.
        bytes += entry?.metadata().map_or(0, |found| found.len());
    }
    Ok(bytes)
}

fn sync(folder: &Path) -> anyhow::Result<()> {
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| failed(folder))
}

fn too_large(bytes_max: u64) -> anyhow::Error {
    anyhow!(
        "the pin takes more than pin_max_bytes, {bytes_max} bytes; raise it, or keep a shorter time"
    )
}

fn no_space(bytes: u64) -> anyhow::Error {
    anyhow!(
        "the disk has {bytes} bytes for the pin, beside what [retention] min_free and max_bytes reserve; keep a shorter time, or make room"
    )
}

fn failed(path: &Path) -> String {
    format!("cannot write '{}'", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use loom_engine::ingest::{Writer, WriterOptions};
    use loom_engine::log::LogOptions;
    use loom_engine::query::Directory;
    use loom_engine::schema::parse_sources;
    use loom_tests::command::until;

    use super::*;
    use crate::config::{ByteSize, Config, FreeSpace};

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

    /// The longest span that has a name.
    fn everything() -> TimeRange {
        TimeRange::half_open(Timestamp(0), Timestamp(i64::MAX))
    }

    fn wanted(rule: &str, span: TimeRange) -> Wanted {
        Wanted {
            name: rule.to_owned(),
            by_hand: false,
            sources: Vec::new(),
            span,
            own_span: span,
            left_out: None,
        }
    }

    /// Writes a pin of a span in which the clocks agree.
    fn pin(
        snapshot: &Snapshot,
        rule: &str,
        span: TimeRange,
        bytes_max: u64,
    ) -> anyhow::Result<(Pinned, Vec<String>)> {
        write(
            snapshot,
            &wanted(rule, span),
            &limits(bytes_max),
            &Poll::never(),
        )
    }

    fn limits(pin_max_bytes: u64) -> RetentionConfig {
        RetentionConfig {
            pin_max_bytes: ByteSize(pin_max_bytes),
            min_free: FreeSpace::Bytes(0),
            ..RetentionConfig::default()
        }
    }

    #[test]
    fn a_pin_holds_every_record_of_its_span_under_a_safe_name() {
        let (dir, snapshot) = world();
        let (pinned, gone) = pin(&snapshot, "a/rule", span(&snapshot), 1 << 20).unwrap();
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

    // case Rules: a pin by hand
    #[test]
    fn a_pin_by_hand_has_the_sources_that_are_named_and_is_refused_without_a_record() {
        let (dir, snapshot) = world();
        let by_hand = |sources: &[&str]| {
            let wanted = Wanted {
                by_hand: true,
                sources: sources.iter().map(|&name| name.to_owned()).collect(),
                ..wanted("mine", span(&snapshot))
            };
            write(&snapshot, &wanted, &limits(1 << 20), &Poll::never())
        };
        let error = by_hand(&["idle"]).unwrap_err();
        assert!(error.to_string().contains("no record arrived"), "{error}");
        assert_eq!(names(dir.path()).unwrap().len(), 0);
        let (pinned, gone) = by_hand(&["idle", "../a/b"]).unwrap();
        let listed = list(dir.path()).unwrap();
        assert_eq!((listed.len(), listed[0].pin.by_hand), (1, true));
        let kept = Kept::new(&pinned, gone);
        assert_eq!((kept.records, &kept.id), (10, &listed[0].pin.id));
    }

    // case Rules: pins
    #[test]
    fn the_oldest_pins_go_first_and_one_that_is_too_large_leaves_nothing() {
        let (dir, snapshot) = world();
        let whole = span(&snapshot);
        let at = |shift: i64| TimeRange {
            last: Timestamp(whole.last.0 + shift),
            ..whole
        };
        let (first, _) = pin(&snapshot, "r", at(0), 1 << 20).unwrap();
        let bytes_max = first.bytes * 5 / 2;
        let (second, _) = pin(&snapshot, "r", at(1), bytes_max).unwrap();
        let (third, gone) = pin(&snapshot, "r", at(2), bytes_max).unwrap();
        assert_eq!(gone, [first.pin.id]);
        for (bytes_max, why) in [
            (10, "the pin takes more than pin_max_bytes, 10 bytes"),
            (1, "more than 32 times pin_max_bytes, 1; raise"),
        ] {
            let error = pin(&snapshot, "r", at(3), bytes_max).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        let pins = list(dir.path()).unwrap().into_iter();
        let ids: Vec<String> = pins.map(|pinned| pinned.pin.id).collect();
        assert_eq!(ids, [second.pin.id, third.pin.id]);
        assert_eq!(names(dir.path()).unwrap().len(), 2);
    }

    #[test]
    fn a_pin_that_cannot_be_read_is_named_beside_the_others() {
        let (dir, snapshot) = world();
        let whole = span(&snapshot);
        let of_rule = |rule: &str| pin(&snapshot, rule, whole, 1 << 20).unwrap().0;
        let (broken, sound) = (of_rule("a"), of_rule("b"));
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
        let again = || pin(&snapshot, "r", whole, 1 << 20);
        let (first, second) = (again().unwrap().0, again().unwrap().0);
        assert_eq!((first.pin, first.bytes), (second.pin, second.bytes));
        assert_eq!(names(dir.path()).unwrap().len(), 1);
    }

    // case Rules: pins
    #[test]
    fn what_a_kill_left_is_no_pin_and_goes() {
        let (dir, snapshot) = world();
        pin(&snapshot, "r", span(&snapshot), 1 << 20).unwrap();
        let partial = dir.path().join(FOLDER).join(format!("{PARTIAL}x"));
        fs::create_dir(&partial).unwrap();
        fs::write(partial.join("half.parquet"), "half").unwrap();
        assert_eq!(list(dir.path()).unwrap().len(), 1);
        remove_partial(dir.path()).unwrap();
        assert!(!partial.exists());
        assert_eq!(list(dir.path()).unwrap().len(), 1);
        // A person's own folder beside the pins makes no room for them.
        let own = dir.path().join(FOLDER).join("2026-own");
        fs::create_dir(&own).unwrap();
        assert_eq!(make_room(dir.path(), 0).unwrap().len(), 1);
        assert!(own.exists() && list(dir.path()).unwrap().is_empty());
    }

    // case Rules: a pin that ends the daemon each time
    #[test]
    fn a_pin_that_ended_the_process_three_times_is_given_up_and_counts_anew() {
        let (dir, snapshot) = world();
        let whole = span(&snapshot);
        let folder = dir.path().join(FOLDER);
        fs::create_dir(&folder).unwrap();
        let id = id(&wanted("r", whole)).unwrap();
        let tries = folder.join(format!("{TRIES}{id}"));
        for _ in 0..TRIES_MAX {
            begin_try(&folder, &tries).unwrap();
            remove_partial(dir.path()).unwrap();
        }
        let error = pin(&snapshot, "r", whole, 1 << 20).unwrap_err();
        assert!(
            error.to_string().contains("the daemon ended 3 times"),
            "{error}"
        );
        assert_eq!(names(dir.path()).unwrap().len(), 0);
        pin(&snapshot, "r", whole, 1 << 20).unwrap();
        assert_eq!(names(dir.path()).unwrap(), [id]);
    }

    // case Rules: who may read a pin
    #[test]
    fn pins_are_for_those_who_may_read_the_directory() {
        let (dir, snapshot) = world();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        for (nth, (of_dir, of_file)) in [(0o750, 0o640), (0o700, 0o600)].into_iter().enumerate() {
            fs::set_permissions(dir.path(), PermissionsExt::from_mode(of_dir)).unwrap();
            share(dir.path()).unwrap();
            let rule = format!("r{nth}");
            let pinned = pin(&snapshot, &rule, span(&snapshot), 1 << 20).unwrap().0;
            assert_eq!(mode(&dir.path().join(FOLDER)), of_dir);
            // Earlier pins are shared too.
            for pinned in list(dir.path()).unwrap() {
                assert_eq!(mode(&pinned.path), of_dir);
                for entry in fs::read_dir(&pinned.path).unwrap() {
                    assert_eq!(mode(&entry.unwrap().path()), of_file);
                }
            }
            assert!(pinned.path.join(ABOUT).exists());
        }
    }

    /// A source whose records of this many bytes bring their times along.
    fn own_world(bytes: usize, times: &[i64]) -> (tempfile::TempDir, Snapshot) {
        world_of("own", bytes, times.iter().map(|time| Some(*time)))
    }

    fn world_of(
        time: &str,
        bytes: usize,
        times: impl Iterator<Item = Option<i64>>,
    ) -> (tempfile::TempDir, Snapshot) {
        let dir = tempfile::tempdir().unwrap();
        let log = LogOptions {
            chunk_bytes: 64 << 10,
            ..LogOptions::default()
        };
        let options = WriterOptions {
            log,
            ..WriterOptions::default()
        };
        let mut writer = Writer::open(dir.path(), options).unwrap();
        let toml = format!(
            "[[source]]\nname = '{time}'\ntime = '{time}'\n[[source.field]]\nname = 'b'\ntype = 'bytes'\n"
        );
        let id = writer
            .define_sources(&parse_sources(&toml).unwrap())
            .unwrap()[0];
        let mut noise = fastrand::Rng::with_seed(bytes as u64);
        for time in times {
            let mut payload = time.map_or(Vec::new(), |time| time.to_le_bytes().to_vec());
            payload.extend_from_slice(&(bytes as u16).to_le_bytes());
            payload.extend((0..bytes).map(|_| noise.u8(..)));
            writer.push(id, &payload).unwrap();
        }
        writer.close().unwrap();
        let snapshot = Directory::open(dir.path()).unwrap().snapshot().unwrap();
        (dir, snapshot)
    }

    // case Rules: a pin after a step of the clock
    #[test]
    fn a_record_with_its_own_time_is_pinned_by_arrival_or_by_the_wall_clock() {
        let (_dir, snapshot) = own_world(4, &[7, 100, 101, 199, 200, 8]);
        let arrived = span(&snapshot);
        let later = TimeRange {
            first: Timestamp(arrived.last.0 + 1),
            last: Timestamp(arrived.last.0 + 9),
        };
        let own_span = TimeRange::half_open(Timestamp(100), Timestamp(200));
        for (span, own_span, records) in [
            (arrived, later, 6),
            (later, own_span, 3),
            (arrived, own_span, 6),
            (later, later, 0),
        ] {
            let wanted = Wanted {
                own_span,
                ..wanted(&format!("r{}{}", span.first, own_span.first), span)
            };
            let (pinned, _) = write(&snapshot, &wanted, &limits(1 << 20), &Poll::never()).unwrap();
            let found: u64 = pinned.pin.sources.iter().map(|source| source.records).sum();
            assert_eq!(found, records, "{span:?} {own_span:?}");
            assert_eq!(pinned.pin.missing, None);
        }
    }

    // case Rules: pins
    #[test]
    fn long_records_are_pinned_within_the_budget_alone() {
        let (dir, snapshot) = own_world(60_000, &[1; 200]);
        let whole = span(&snapshot);
        // Noise of 12 MB: more than the budget, and less than is refused at once.
        let error = pin(&snapshot, "r", whole, 5 << 20).unwrap_err().to_string();
        assert!(
            error.contains("more than pin_max_bytes, 5242880"),
            "{error}"
        );
        assert_eq!(names(dir.path()).unwrap().len(), 0);
        let (pinned, _) = pin(&snapshot, "r", whole, 20 << 20).unwrap();
        assert_eq!(pinned.pin.sources[0].records, 200);
    }

    // case Rules: retention or damage under a pin
    #[test]
    fn damage_is_a_gap_of_the_pin_which_names_it() {
        let (dir, _) = own_world(10_000, &[1; 60]);
        // No unit is whole yet.
        let path = dir.path().join("tail");
        let mut bytes = fs::read(&path).unwrap();
        bytes[(64 << 10) + 5_000] ^= 1;
        fs::write(&path, bytes).unwrap();
        let snapshot = Directory::open(dir.path()).unwrap().snapshot().unwrap();
        let (pinned, _) = pin(&snapshot, "r", everything(), 20 << 20).unwrap();
        let missing = pinned.pin.missing.unwrap();
        assert!(
            missing.contains("addresses 65536 to 131072 cannot be read: ")
                && missing.contains(path.to_str().unwrap()),
            "{missing}"
        );
        // One of ten chunks with six records each is damaged.
        assert_eq!(pinned.pin.sources[0].records, 54);
    }

    // case Rules: retention or damage under a pin
    #[test]
    fn damage_where_the_span_begins_is_a_gap_too() {
        let (dir, _) = world_of("arrival", 10_000, std::iter::repeat_n(None, 60));
        let path = dir.path().join("tail");
        let mut bytes = fs::read(&path).unwrap();
        bytes[5_000] ^= 1;
        fs::write(&path, bytes).unwrap();
        let snapshot = Directory::open(dir.path()).unwrap().snapshot().unwrap();
        let (pinned, _) = pin(&snapshot, "r", everything(), 20 << 20).unwrap();
        let missing = pinned.pin.missing.unwrap();
        assert!(
            missing.contains("addresses 0 to 65536 cannot be read: "),
            "{missing}"
        );
        assert_eq!(pinned.pin.sources[0].records, 54);
    }

    // case Rules: pins
    #[test]
    fn a_pin_leaves_min_free_and_the_room_of_the_log_and_the_oldest_pins_make_room_for_it() {
        let (dir, snapshot) = own_world(60_000, &[1; 20]);
        let whole = span(&snapshot);
        let (first, _) = pin(&snapshot, "first", whole, 1 << 30).unwrap();
        let with_free = |min_free: u64| {
            let limits = RetentionConfig {
                min_free: FreeSpace::Bytes(min_free),
                ..limits(1 << 30)
            };
            write(&snapshot, &wanted("next", whole), &limits, &Poll::never())
        };
        let error = with_free(1 << 62).unwrap_err().to_string();
        assert!(
            error.contains("the disk has 0 bytes for the pin"),
            "{error}"
        );
        assert_eq!(list(dir.path()).unwrap().len(), 1, "none went in vain");
        // Half of what the pin may take is missing, unless another program fills or empties the disk at this moment.
        until(|| {
            let free = space(dir.path(), &limits(1 << 30)).unwrap();
            let Ok((next, gone)) = with_free(free - first.bytes / 2) else {
                return false;
            };
            if gone.is_empty() {
                fs::remove_dir_all(next.path).unwrap();
            }
            gone == [first.pin.id.as_str()]
        });
        let of_log = "[retention]\nmin_free = '0%'\nmax_bytes = '1024GiB'\n";
        let limits = Config::parse(of_log).unwrap().retention;
        assert_eq!(space(dir.path(), &limits).unwrap(), 0);
    }
}
