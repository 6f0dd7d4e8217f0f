//! The daemon's part of retention: which steps the clock made, how full the disk is, what the configuration wants then, and why records are refused meanwhile.
//!
//! The writer thread calls it before each publish; the engine evicts.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loom_engine::ingest::{Eviction, Limits, Shortfall, Writer};
use loom_engine::{Address, Error};
use rustix::io::Errno;

use super::clock::ClockWatch;
use crate::config::{ArchiveConfig, ByteSize, FreeSpace, OnFull, RetentionConfig};
use crate::counted;
use crate::output::archive::{ArchivedBelow, archived_below};

/// How often the disk is looked at.
const LOOK: Duration = Duration::from_millis(200);
const WARN_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Retention {
    dir: PathBuf,
    config: RetentionConfig,
    archive: ArchiveConfig,
    clock: ClockWatch,
    /// What its manifest said when it was last read.
    archived: Option<ArchivedBelow>,
    looked: Option<Instant>,
    /// What the log was about to allocate then.
    ahead_bytes: u64,
    warned: Option<Instant>,
    evicted_segments: u64,
    /// More should have gone the last time, and nothing could.
    falls_short: bool,
    /// The disk was full the last time, and old segments were to go for it.
    makes_room: bool,
    /// Why new records are refused, while they are.
    refusal: Option<String>,
    /// The log says that records are refused, and not yet that they no longer are.
    refusal_logged: bool,
}

/// How much of the disk is free, where that is less than is wanted once the log has allocated what it is about to.
struct Scarce {
    free: ByteSize,
    ahead: ByteSize,
    wanted: ByteSize,
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
            archived: None,
            looked: None,
            ahead_bytes: 0,
            warned: None,
            evicted_segments: 0,
            falls_short: false,
            makes_room: false,
            refusal: None,
            refusal_logged: false,
        }
    }

    /// Goes by another configuration from now on.
    pub(super) fn reconfigure(&mut self, config: RetentionConfig, archive: ArchiveConfig) {
        (self.config, self.archive, self.archived) = (config, archive, None);
        self.looked = None;
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    pub(super) fn evicted_segments(&self) -> u64 {
        self.evicted_segments
    }

    /// Looks at the disk when it is time to, and evicts or refuses as the configuration says.
    pub(super) fn enforce(&mut self, writer: &mut Writer) -> Result<(), Error> {
        self.clock.look(writer)?;
        // Segments are allocated at any time, so the size of the directory, which costs nothing to know, is compared each time. The disk
        // is looked at until there is room again: one segment goes at a time.
        let bytes_max = self.config.max_bytes.as_ref();
        let bytes_max = bytes_max.map(|size| size.get_ref().0);
        let presses = self.makes_room || writer.is_larger_than(bytes_max);
        let ahead_bytes = writer.bytes_ahead();
        let urgent = presses && !self.falls_short || ahead_bytes > self.ahead_bytes;
        self.ahead_bytes = ahead_bytes;
        if !urgent && self.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let scarce = self.scarce();
        let is_full = scarce.is_some() || writer.waits_for_space();
        let why = match scarce {
            Some(Scarce {
                free,
                ahead,
                wanted,
            }) => {
                let ahead = match ahead.0 {
                    0 => String::new(),
                    _ => format!(" before the log's next file of {}", ahead.approximately()),
                };
                format!(
                    "the disk has {} free{ahead}, less than min_free, {}",
                    free.approximately(),
                    wanted.approximately()
                )
            }
            None => "the disk is full".to_owned(),
        };
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
        self.note(&eviction, writer.segment_bytes(), &why);
        Ok(())
    }

    /// From where on nothing may go, because it is not archived yet. If that is unknown, nothing may.
    fn kept_from(&mut self, writer: &Writer) -> Option<Address> {
        let archive = self.archive.awaited()?;
        let read = archived_below(archive, &writer.meta().id().to_string(), &mut self.archived);
        let kept_from = read.unwrap_or_else(|error| {
            self.warn(&format!(
                "retention removes nothing, because [archive] required is true: {error:#}"
            ));
            Address::ZERO
        });
        Some(kept_from)
    }

    /// Refuses records while the disk is full, where the configuration says so.
    fn refuse(&mut self, is_full: bool, why: &str) {
        let refuses = is_full && self.config.on_full == OnFull::Refuse;
        let refusal = refuses.then(|| format!("{why}, and on_full is \"refuse\"; free some space"));
        match (&self.refusal, &refusal) {
            (None, Some(_)) => {
                self.refusal_logged |= self.warn(&format!(
                    "{why}: new records are refused and counted; free some space"
                ));
            }
            // Where the disk is full and not full in turn, one of many such pairs is logged.
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

    /// Counts and logs what went, and warns when too little could go.
    fn note(&mut self, eviction: &Eviction, segment_bytes: u64, why: &str) {
        self.evicted_segments += eviction.segments;
        self.falls_short = eviction.shortfall.is_some();
        if eviction.segments > 0 {
            let evicted = counted(eviction.segments, "segment");
            let dir = self.dir.display();
            tracing::info!("{dir}: evicted {evicted} of the record log");
        }
        if eviction.shortfall == Some(Shortfall::Kept) {
            let why = if self.makes_room {
                why
            } else {
                "the directory is larger than max_bytes"
            };
            self.warn(&format!(
                "{why}, and what should go is not archived yet, as [archive] required demands; see that 'ingestd archive' runs"
            ));
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

    fn scarce(&mut self) -> Option<Scarce> {
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
        // A file that is allocated later is made room for before: what is refused meanwhile would be refused too soon.
        let ahead = match self.config.on_full {
            OnFull::Evict => self.ahead_bytes,
            OnFull::Refuse => 0,
        };
        // A file system may claim any number of blocks.
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let wanted = match self.config.min_free {
            FreeSpace::Bytes(bytes) => bytes,
            FreeSpace::Percent(percent) => {
                (disk.f_blocks as f64 * disk.f_frsize as f64 * percent / 100.0) as u64
            }
        };
        (free.saturating_sub(ahead) < wanted).then_some(Scarce {
            free: ByteSize(free),
            ahead: ByteSize(ahead),
            wanted: ByteSize(wanted),
        })
    }

    /// Logs a warning, unless another was logged a short time ago; whether it did.
    fn warn(&mut self, message: &str) -> bool {
        let due = self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY);
        if due {
            self.warned = Some(Instant::now());
            tracing::warn!("{}: {message}", self.dir.display());
        }
        due
    }
}
