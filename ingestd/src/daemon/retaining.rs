//! The daemon's part of retention: how full the disk is, what the configuration says of it, and what is refused meanwhile.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use loom_engine::ingest::{Limits, Shortfall};

use super::writing::Writing;
use crate::config::{ByteSize, FreeSpace, OnFull, RetentionConfig};
use crate::counted;

/// How often the disk is looked at.
const LOOK: Duration = Duration::from_millis(200);
const WARN_EVERY: Duration = Duration::from_secs(60);

pub(super) struct Retaining {
    dir: PathBuf,
    config: RetentionConfig,
    looked: Option<Instant>,
    warned: Option<Instant>,
    evicted_segments: u64,
    /// More should have gone the last time, and nothing could.
    falls_short: bool,
    /// The disk was full the last time, and old segments were to go for it.
    makes_room: bool,
    /// Why new records are refused, while they are.
    refusal: Option<String>,
}

impl Retaining {
    pub(super) fn new(dir: &Path, config: RetentionConfig) -> Retaining {
        Retaining {
            dir: dir.to_owned(),
            config,
            looked: None,
            warned: None,
            evicted_segments: 0,
            falls_short: false,
            makes_room: false,
            refusal: None,
        }
    }

    /// Goes by another configuration from now on.
    pub(super) fn reconfigure(&mut self, config: RetentionConfig) {
        self.config = config;
        self.looked = None;
    }

    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    pub(super) fn evicted_segments(&self) -> u64 {
        self.evicted_segments
    }

    /// How many bytes of the disk are free, where that is less than is wanted.
    fn scarce_bytes(&self) -> Option<u64> {
        let disk = match rustix::fs::statvfs(&self.dir) {
            Ok(disk) => disk,
            Err(error) => {
                tracing::debug!("{}: {error}", self.dir.display());
                return None;
            }
        };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        let wanted = match self.config.min_free {
            FreeSpace::Bytes(bytes) => bytes,
            FreeSpace::Percent(percent) => {
                let total = disk.f_blocks.saturating_mul(disk.f_frsize);
                (total as f64 * percent / 100.0) as u64
            }
        };
        (free < wanted).then_some(free)
    }

    fn warn(&mut self, message: &str) {
        if self.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            tracing::warn!("{}: {message}", self.dir.display());
        }
    }
}

impl Writing {
    /// Looks at the disk when it is time to, and evicts or refuses as the configuration says.
    pub(super) fn retain(&mut self) {
        let retaining = &mut self.retaining;
        // Segments are allocated at any time; what the directory takes is looked at each time, for that costs nothing, and what the disk has
        // until there is room again: one segment goes at a time.
        let bytes_max = retaining
            .config
            .max_bytes
            .as_ref()
            .map(|size| size.get_ref().0);
        let presses = retaining.makes_room || self.writer.is_larger_than(bytes_max);
        let urgent = presses && !retaining.falls_short;
        if !urgent && retaining.looked.is_some_and(|at| at.elapsed() < LOOK) {
            return;
        }
        retaining.looked = Some(Instant::now());
        let stuck = self.writer.waits_for_space();
        let scarce = retaining.scarce_bytes();
        let is_full = stuck || scarce.is_some();
        let refuses = is_full && retaining.config.on_full == OnFull::Refuse;
        let refusal = refuses.then(|| match scarce {
            Some(free) => format!(
                "the disk is full: {} are free, less than min_free, and on_full is \"refuse\"",
                ByteSize(free).approximately()
            ),
            None => "the disk is full, and on_full is \"refuse\"".to_owned(),
        });
        if refusal.is_some() && retaining.refusal.is_none() {
            retaining.warn("the disk is full: new records are refused, and counted");
        }
        if refusal.is_none() && retaining.refusal.take().is_some() {
            tracing::info!("{}: records are taken again", retaining.dir.display());
        }
        retaining.refusal = refusal;
        let limits = Limits {
            bytes_max,
            age_max: retaining.config.max_age.map(|span| span.0),
            disk_is_full: is_full && retaining.config.on_full == OnFull::Evict,
        };
        retaining.makes_room = limits.disk_is_full;
        match self.writer.evict(&limits) {
            Ok(eviction) => {
                self.retaining.evicted_segments += eviction.segments;
                self.retaining.falls_short = eviction.shortfall.is_some();
                if eviction.segments > 0 {
                    tracing::info!(
                        "{}: evicted {} of the record log",
                        self.retaining.dir.display(),
                        counted(eviction.segments, "segment")
                    );
                }
                if eviction.shortfall.is_some() && limits.disk_is_full {
                    self.retaining
                        .warn("the disk is full, and nothing that is left can be evicted");
                } else if eviction.shortfall == Some(Shortfall::Current) {
                    let least = ByteSize(self.writer.segment_bytes()).approximately();
                    self.retaining.warn(&format!(
                        "max_bytes cannot be kept: the files that are being written, and those allocated after them, take {least}; raise it, or lower segment"
                    ));
                }
            }
            Err(error) => self.report(&error),
        }
    }
}
