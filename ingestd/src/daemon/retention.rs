//! The daemon's part of retention: it follows the clock and the room on the disk, and evicts or refuses records as the configuration says.
//!
//! The writer thread calls it before each publish; the engine evicts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use loom_engine::ingest::{Eviction, Limits, Shortfall, Writer};
use loom_engine::log::LogReader;
use loom_engine::query::read_catalog;
use loom_engine::schema::{Catalog, Source};
use loom_engine::{Address, Error};
use rustix::io::Errno;

use super::archive_watch::{ArchiveWatch, Known};
use super::clock::ClockWatch;
use crate::config::{ArchiveConfig, ByteSize, OnFull, RetentionConfig};
use crate::counted;
use crate::output::archive::Archived;

/// The interval between looks at the disk.
const LOOK: Duration = Duration::from_millis(200);
/// A line of the log names at most so many sources.
const NAMED_MAX: usize = 10;
const WARN_EVERY: Duration = Duration::from_secs(60);
/// Retention waits for a pin no longer than this.
const PIN_WAIT: Duration = Duration::from_secs(60);

pub(super) struct Retention {
    dir: PathBuf,
    config: RetentionConfig,
    archive: ArchiveConfig,
    clock: ClockWatch,
    pin: Option<PinWait>,
    watch: Option<ArchiveWatch>,
    /// The reach of the archive when it was last read; `None` before the first answer.
    archived: Option<Archived>,
    /// The sources without anything in the archive, as the log named them last.
    unarchived: Vec<String>,
    looked: Option<Instant>,
    /// The bytes of the log's segments then.
    looked_bytes: u64,
    /// The bytes that the log may write before the next look.
    ahead_bytes: u64,
    warned: Option<Instant>,
    evicted_segments: u64,
    /// The last eviction removed too little.
    falls_short: bool,
    /// At the last look the disk was full, and old segments were to go.
    makes_room: bool,
    /// The reason why new records are refused now.
    refusal: Option<String>,
    /// The log says that records are refused, and not yet that they are stored again.
    refusal_logged: bool,
}

/// A pin that is being written. Nothing is removed meanwhile, because the pin would lose it.
struct PinWait {
    since: Instant,
    /// The end of the log then.
    position: Address,
    is_logged: bool,
}

impl Retention {
    pub(super) fn new(
        dir: &Path,
        config: RetentionConfig,
        archive: ArchiveConfig,
        clock: ClockWatch,
    ) -> Retention {
        Retention {
            dir: dir.to_owned(),
            config,
            archive,
            clock,
            pin: None,
            watch: None,
            archived: None,
            unarchived: Vec::new(),
            looked: None,
            looked_bytes: 0,
            ahead_bytes: 0,
            warned: None,
            evicted_segments: 0,
            falls_short: false,
            makes_room: false,
            refusal: None,
            refusal_logged: false,
        }
    }

    pub(super) fn reconfigure(&mut self, config: RetentionConfig, archive: ArchiveConfig) {
        (self.config, self.archive) = (config, archive);
        (self.watch, self.archived, self.looked) = (None, None, None);
    }

    /// Removes nothing for a while, because a pin is about to be written.
    pub(super) fn wait_for_pin(&mut self, position: Address) {
        self.pin = Some(PinWait {
            since: Instant::now(),
            position,
            is_logged: false,
        });
    }

    pub(super) fn end_wait(&mut self) {
        self.pin = None;
        self.looked = None;
    }

    /// True while retention waits for a pin: not for ever, not for more bytes than pins may take, and not while the log waits for room.
    fn waits(&mut self, writer: &Writer) -> bool {
        let Some(pin) = &self.pin else { return false };
        let came = writer.position().0.saturating_sub(pin.position.0);
        let is_over = pin.since.elapsed() >= PIN_WAIT
            || came > self.config.pin_max_bytes.0
            || writer.waits_for_space();
        if is_over {
            if pin.is_logged {
                tracing::warn!(
                    "{}: retention waits no longer for the pin that is being written",
                    self.dir.display()
                );
            }
            self.pin = None;
        }
        !is_over
    }

    pub(super) fn unrecorded_clock_steps(&self) -> u64 {
        self.clock.waiting()
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    pub(super) fn bytes_max(&self) -> Option<u64> {
        let bytes_max = self.config.max_bytes.as_ref();
        bytes_max.map(|size| size.get_ref().0)
    }

    pub(super) fn evicted_segments(&self) -> u64 {
        self.evicted_segments
    }

    /// Looks at the disk when it is time to, and evicts or refuses as the configuration says.
    pub(super) fn enforce(&mut self, writer: &mut Writer) -> Result<(), Error> {
        self.clock.look(writer)?;
        // The log writes at any time, so the size of the directory, which costs nothing to know, is compared each time. The disk is looked at
        // until there is room again, because one segment goes at a time, and whenever half of what may be written ahead was written.
        let bytes_max = self.bytes_max();
        let presses = self.makes_room || writer.is_larger_than(bytes_max);
        self.ahead_bytes = writer.bytes_ahead();
        let segment_bytes = writer.segment_bytes();
        let written = segment_bytes.saturating_sub(self.looked_bytes);
        let urgent = presses && !self.falls_short || written >= self.ahead_bytes / 2;
        if !urgent && self.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return Ok(());
        }
        (self.looked, self.looked_bytes) = (Some(Instant::now()), segment_bytes);
        let scarce = self.scarce();
        let is_full = scarce.is_some() || writer.waits_for_space();
        let why = scarce.unwrap_or_else(|| "the disk is full".to_owned());
        self.refuse(is_full, &why);
        self.makes_room = is_full && self.config.on_full == OnFull::Evict;
        let mut limits = Limits {
            bytes_max,
            age_max: self.config.max_age.map(|span| span.0),
            disk_is_full: self.makes_room,
            kept_from: None,
        };
        if self.makes_room || limits.age_max.is_some() || writer.is_larger_than(bytes_max) {
            limits.kept_from = self.kept_from(writer);
        }
        let eviction = writer.evict(&limits)?;
        if eviction.shortfall == Some(Shortfall::Kept) && self.pin.is_none() {
            self.name_unarchived(writer);
        }
        self.note(&eviction, writer.segment_bytes(), &why);
        Ok(())
    }

    /// The address from which on nothing may go, because a pin is being written, or it is not archived yet. If that is unknown, nothing may.
    fn kept_from(&mut self, writer: &Writer) -> Option<Address> {
        if self.waits(writer) {
            return Some(Address::ZERO);
        }
        let archive = self.archive.awaited()?.to_owned();
        if let Err(why) = self.look_at(&archive, writer) {
            self.warn(&format!(
                "retention removes nothing, because [archive] required is true: {why}"
            ));
            self.archived = Some(Archived::default());
            return Some(Address::ZERO);
        }
        let Some(archived) = &self.archived else {
            return Some(Address::ZERO);
        };
        required(&self.archive, writer.catalog())
            .map(|source| archived.below(source))
            .min()
    }

    /// Learns the reach of the archive from the latest answer.
    fn look_at(&mut self, archive: &Path, writer: &Writer) -> Result<(), String> {
        let watch = match &mut self.watch {
            Some(watch) => watch,
            none => {
                let uuid = writer.meta().id().to_string();
                let started = ArchiveWatch::start(archive, uuid);
                none.insert(started.map_err(|error| error.to_string())?)
            }
        };
        let Known { answer, delay } = watch.ask();
        match (answer, delay) {
            (Some(answer), None) => self.archived = Some(answer?),
            (Some(Ok(archived)), Some(delay)) => {
                self.archived = Some(archived);
                self.warn(&format!(
                    "{delay}: retention removes only records that were archived by then"
                ));
            }
            (_, Some(delay)) => return Err(delay),
            (None, None) => {}
        }
        Ok(())
    }

    /// Warns once of the sources that hold everything up because the archive has nothing of them.
    fn name_unarchived(&mut self, writer: &Writer) {
        let Some(archived) = &self.archived else {
            return;
        };
        let unarchived = required(&self.archive, writer.catalog());
        let unarchived = unarchived.filter(|source| !archived.holds(source));
        let unarchived: Vec<String> = unarchived.map(|source| source.name.clone()).collect();
        if unarchived == self.unarchived {
            return;
        }
        self.unarchived = unarchived;
        let named = self.unarchived.iter().take(NAMED_MAX);
        let named: Vec<String> = named.map(|name| format!("'{name}'")).collect();
        if !named.is_empty() {
            let more = match self.unarchived.len().saturating_sub(NAMED_MAX) {
                0 => String::new(),
                more => format!(" and {more} others"),
            };
            tracing::warn!(
                "{}: nothing is removed, because the archive has nothing of {}{more}: archive them, or name them in [archive] except",
                self.dir.display(),
                named.join(", ")
            );
        }
    }

    /// Refuses records while the disk is full, if the configuration says so.
    fn refuse(&mut self, is_full: bool, why: &str) {
        let refuses = is_full && self.config.on_full == OnFull::Refuse;
        let refusal = refuses.then(|| format!("{why}, and on_full is \"refuse\"; free some space"));
        match (&self.refusal, &refusal) {
            (None, Some(_)) => {
                self.refusal_logged |= self.warn(&format!(
                    "{why}: new records are refused and counted; free some space"
                ));
            }
            // A disk that is full and not full in turn logs one of many such pairs.
            (Some(_), None) if self.refusal_logged => {
                self.refusal_logged = false;
                tracing::info!(
                    "{}: the disk has room again, and new records are stored",
                    self.dir.display()
                );
            }
            _ => {}
        }
        self.refusal = refusal;
    }

    /// Counts and logs the eviction, and warns if it removed too little.
    fn note(&mut self, eviction: &Eviction, segment_bytes: u64, why: &str) {
        self.evicted_segments += eviction.segments;
        self.falls_short = eviction.shortfall.is_some();
        if eviction.segments > 0 {
            let evicted = counted(eviction.segments, "segment");
            let dir = self.dir.display();
            tracing::info!("{dir}: evicted {evicted} of the record log");
        }
        if let (Some(Shortfall::Kept), Some(pin)) = (&eviction.shortfall, &mut self.pin) {
            if !std::mem::replace(&mut pin.is_logged, true) {
                tracing::info!(
                    "{}: a pin is being written; retention removes nothing meanwhile",
                    self.dir.display()
                );
            }
        } else if eviction.shortfall == Some(Shortfall::Kept) {
            let why = if self.makes_room {
                why
            } else {
                "the directory is larger than max_bytes"
            };
            if self.archived.is_some() {
                self.warn(&format!(
                    "{why}, and the records to remove are not archived yet, as [archive] required demands; check that 'ingestd archive' runs"
                ));
            }
        } else if self.falls_short && self.makes_room {
            self.warn(&format!(
                "{why}, and no segment is left to evict; free some space"
            ));
        } else if eviction.shortfall == Some(Shortfall::Current) {
            let least = ByteSize(segment_bytes).approximately();
            self.warn(&format!(
                "max_bytes is too small: the files that are being written and the next ones take {least}; raise max_bytes, or lower segment"
            ));
        }
    }

    /// Says how much of the disk is free, if that is less than `min_free` once the log has written what it may before the next look.
    fn scarce(&mut self) -> Option<String> {
        let disk = match rustix::fs::statvfs(&self.dir) {
            Ok(disk) => disk,
            // `Home` reports a directory that is gone.
            Err(Errno::NOENT) => return None,
            Err(error) => {
                self.warn(&format!(
                    "cannot read how full the disk is: {error}; min_free has no effect meanwhile"
                ));
                return None;
            }
        };
        // Evicting makes room in advance. Refusing in advance would be too soon.
        let ahead = match self.config.on_full {
            OnFull::Evict => self.ahead_bytes,
            OnFull::Refuse => 0,
        };
        // A file system may claim any number of blocks.
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let disk_bytes = disk.f_blocks.saturating_mul(disk.f_frsize);
        let wanted = self.config.min_free.of(disk_bytes);
        if free.saturating_sub(ahead) >= wanted {
            return None;
        }
        let shown = |bytes| ByteSize(bytes).approximately();
        let before = match ahead {
            0 => String::new(),
            _ => format!(" before the log's next {}", shown(ahead)),
        };
        Some(format!(
            "the disk has {} free{before}, less than min_free, {}",
            shown(free),
            shown(wanted)
        ))
    }

    /// Logs a warning, unless another was logged a short time ago. True if it did.
    fn warn(&mut self, message: &str) -> bool {
        let due = self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if due {
            self.warned = Some(Instant::now());
            tracing::warn!("{}: {message}", self.dir.display());
        }
        due
    }
}

/// The sources that must be archived before their records go.
fn required<'a>(
    archive: &'a ArchiveConfig,
    catalog: &'a Catalog,
) -> impl Iterator<Item = &'a Source> {
    let all = catalog.sources().map(Arc::as_ref);
    all.filter(|source| archive.requires(&source.name))
}

/// The address from which on a start that finds the disk full may remove nothing, because it is not archived yet. If that is unknown, it may remove nothing.
pub(super) fn kept_from(dir: &Path, archive: &ArchiveConfig) -> Option<Address> {
    let to = archive.awaited()?;
    let look = || {
        let reader = LogReader::open(dir)?;
        let mut archived = Archived::default();
        archived.look(to, &reader.meta().id().to_string())?;
        let catalog = read_catalog(&reader)?;
        let below = required(archive, &catalog).map(|source| archived.below(source));
        anyhow::Ok(below.min())
    };
    look().unwrap_or_else(|error| {
        tracing::warn!(
            "{}: the disk is full, and nothing is removed, because [archive] required is true: {error:#}",
            dir.display()
        );
        Some(Address::ZERO)
    })
}

#[cfg(test)]
mod tests {
    use loom_engine::query::{Directory, Poll};
    use loom_engine::schema::SourceDef;
    use loom_tests::seed::Seed;

    use super::*;
    use crate::output::archive::{Archive, Unsigned};
    use crate::testing::small_writer;

    /// Bytes that take as much room in columns.
    fn noise(seed: &mut Seed, bytes: usize) -> Vec<u8> {
        (0..bytes).map(|_| seed.draw() as u8).collect()
    }

    // case Rules: retention or damage under a pin
    #[test]
    fn nothing_goes_while_a_pin_is_written_until_as_much_has_come_as_pins_may_take() {
        let place = tempfile::tempdir().unwrap();
        let (dir, mut writer) = small_writer(place.path());
        let source = writer.define_source(&SourceDef::new("s")).unwrap();
        let config = "max_bytes = '1MiB'\nmin_free = '0%'\npin_max_bytes = '512KiB'\n";
        let config: RetentionConfig = toml::from_str(config).unwrap();
        let clock = ClockWatch::open(&dir, &mut writer).unwrap();
        let mut retention = Retention::new(&dir, config, ArchiveConfig::default(), clock);
        let mut seed = Seed::of(1);
        let mut push = |writer: &mut Writer, bytes: usize| {
            for _ in 0..bytes / 1024 {
                writer.push(source, &noise(&mut seed, 1016)).unwrap();
            }
            writer.publish().unwrap();
        };
        let enforce = |retention: &mut Retention, writer: &mut Writer| {
            retention.looked = None;
            writer.tick().unwrap();
            retention.enforce(writer).unwrap();
            retention.evicted_segments()
        };
        // The flusher takes its time, so the test repeats the eviction until it removes something.
        let evicts = |retention: &mut Retention, writer: &mut Writer| {
            let before = retention.evicted_segments();
            let began = Instant::now();
            while enforce(retention, writer) == before {
                assert!(began.elapsed() < Duration::from_secs(60), "nothing went");
            }
        };
        push(&mut writer, 3 << 20);
        evicts(&mut retention, &mut writer);
        push(&mut writer, 1 << 20);
        retention.wait_for_pin(writer.position());
        push(&mut writer, 256 << 10);
        let before = retention.evicted_segments();
        for _ in 0..100 {
            assert_eq!(enforce(&mut retention, &mut writer), before);
        }
        retention.end_wait();
        evicts(&mut retention, &mut writer);
        retention.wait_for_pin(writer.position());
        push(&mut writer, 600 << 10);
        evicts(&mut retention, &mut writer);
        assert!(retention.pin.is_none());
    }

    // case Archive: retention is faster
    #[test]
    fn every_source_that_is_required_holds_retention_until_it_is_archived_or_excepted() {
        let place = tempfile::tempdir().unwrap();
        let (dir, mut writer) = small_writer(place.path());
        let [a, b] = ["a", "b"].map(|name| writer.define_source(&SourceDef::new(name)).unwrap());
        let mut seed = Seed::of(1);
        for _ in 0..3000 {
            writer.push(a, &noise(&mut seed, 500)).unwrap();
            writer.push(b, &noise(&mut seed, 500)).unwrap();
        }
        writer.tick().unwrap();
        let to = place.path().join("archive");
        let archive = |sources: &[&str]| {
            let directory = Directory::open(&dir).unwrap();
            let sources: Vec<String> = sources.iter().map(|name| (*name).to_owned()).collect();
            let mut archive = Archive::open(&directory, &to, Unsigned::Decimal).unwrap();
            let passed = archive.pass(&sources, None, &Poll::never()).unwrap();
            assert!(passed.failed.is_none() && passed.gaps.is_empty());
        };
        let limits: RetentionConfig =
            toml::from_str("max_bytes = '1MiB'\nmin_free = '0%'\n").unwrap();
        let required = |more: &str| {
            let text = format!("to = '{}'\nrequired = true\n{more}", to.display());
            toml::from_str::<ArchiveConfig>(&text).unwrap()
        };
        let clock = ClockWatch::open(&dir, &mut writer).unwrap();
        let mut retention = Retention::new(&dir, limits.clone(), required(""), clock);
        let mut enforce = |retention: &mut Retention| {
            retention.looked = None;
            writer.tick().unwrap();
            retention.enforce(&mut writer).unwrap();
            retention.evicted_segments()
        };
        // First there is no archive, then one without one of the sources.
        assert_eq!(enforce(&mut retention), 0);
        archive(&["b"]);
        let began = Instant::now();
        while retention.unarchived != ["a"] {
            assert_eq!(enforce(&mut retention), 0);
            assert!(began.elapsed() < Duration::from_secs(60), "nobody is named");
        }
        retention.reconfigure(limits.clone(), required("except = ['a']"));
        let began = Instant::now();
        while enforce(&mut retention) == 0 {
            assert!(began.elapsed() < Duration::from_secs(60), "nothing went");
        }
    }
}
