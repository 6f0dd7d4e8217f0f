//! The state that the writer thread and the flusher thread share: marks in memory, requests, and the flusher's trouble.
//!
//! Each mark only grows and has one thread that stores it. The control page repeats some of them for readers; nothing is ever loaded from there, so a damaged
//! page cannot mislead the writer.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::record_files::RecordFiles;
use crate::error::{Error, Result};
use crate::log::files::meta::DirMeta;
use crate::log::files::storage::Storage;
use crate::log::options::Geometry;
use crate::log::staging::mapped::Staging;
use crate::log::staging::protocol;
use crate::log::sync::{AtomicBool, AtomicU64, Condvar, Memory, Mutex, Ordering, locked};
use crate::types::{Address, LogKind, PerLog};

/// A mark that one thread stores with release and another loads with acquire.
#[derive(Debug, Default)]
pub struct Mark(AtomicU64);

impl Mark {
    pub fn new(value: Address) -> Mark {
        Mark(AtomicU64::new(value.0))
    }

    /// The caller sees everything that was stored or written below the mark before it was set.
    pub fn get(&self) -> Address {
        protocol::mark::<Memory>(&self.0)
    }

    pub fn set(&self, value: Address) {
        protocol::set_mark::<Memory>(&self.0, value);
    }
}

/// Marks of one log that the writer stores. They have cache lines of their own, as the flusher's do.
#[derive(Debug)]
#[repr(align(128))]
pub struct WriterMarks {
    /// Bytes below it are stored and never change. It is at or above the tail.
    pub appended: Mark,
    pub tail: Mark,
    /// Blocks below it are reused.
    pub head: Mark,
    pub begin: Mark,
}

/// Marks of one log that the flusher stores.
#[derive(Debug)]
#[repr(align(128))]
pub struct FlusherMarks {
    /// Bytes below it are in segments; in the record log, in units.
    pub flushed: Mark,
    pub durable: Mark,
    /// Blocks below it may be reused.
    pub released: Mark,
    /// Segments below it have durable names; those of the index logs are allocated.
    pub allocated: Mark,
    /// Segments that lie wholly below it are gone.
    pub evicted: Mark,
}

/// A condition that stops the flusher, for now or for good.
#[derive(Clone, Debug, Default)]
enum Trouble {
    #[default]
    None,
    /// Space or the like is missing: it tries again. The count lets a waiter recognise a failure after its request.
    Waiting {
        message: String,
        failures: u64,
        /// Space on the disk is missing.
        for_space: bool,
    },
    Failed(String),
}

/// Work of the flusher.
#[derive(Debug, Default)]
pub struct Counters {
    pub written_bytes: AtomicU64,
    pub syncs: AtomicU64,
    pub segments: AtomicU64,
}

/// The directory of the logs, and its epoch.
#[derive(Debug)]
pub struct Setup {
    pub storage: Arc<dyn Storage>,
    pub dir: PathBuf,
    pub meta: DirMeta,
    pub epoch: u64,
    pub files: RecordFiles,
}

/// The beginning of one log in this epoch.
#[derive(Copy, Clone, Debug, Default)]
pub struct LogStart {
    pub at: Address,
    /// Segments hold everything below. In the record log it is a unit's begin, and staging holds everything from there on.
    pub flushed: Address,
    /// Everything below is published and durable; a gap extends from there to `at`.
    pub published: Address,
    /// Staging repeats the bytes of segments from here on.
    pub head: Address,
    pub begin: Address,
    pub allocated: Address,
}

#[derive(Debug)]
pub struct Shared {
    pub storage: Arc<dyn Storage>,
    pub dir: PathBuf,
    pub meta: DirMeta,
    pub geometry: Geometry,
    pub epoch: u64,
    pub files: RecordFiles,
    pub staging: Staging,
    writer: PerLog<WriterMarks>,
    flusher: PerLog<FlusherMarks>,
    /// Ordinals of the latest requested sync, and of the latest completed one.
    requested: AtomicU64,
    done: AtomicU64,
    /// The flusher ends when it sees this.
    stop: AtomicBool,
    trouble: Mutex<Trouble>,
    progress: Condvar,
    pub counters: Counters,
}

impl Shared {
    /// The writer's and the flusher's marks begin at `logs`; `staging` was laid out by `geometry`.
    pub fn new(
        setup: Setup,
        staging: Staging,
        geometry: Geometry,
        logs: PerLog<LogStart>,
    ) -> Shared {
        let Setup {
            storage,
            dir,
            meta,
            epoch,
            files,
        } = setup;
        let writer = logs.map(|log| WriterMarks {
            appended: Mark::new(log.at),
            tail: Mark::new(log.published),
            head: Mark::new(log.head),
            begin: Mark::new(log.begin),
        });
        let flusher = logs.map(|log| FlusherMarks {
            flushed: Mark::new(log.flushed),
            durable: Mark::new(log.published),
            released: Mark::new(log.flushed),
            allocated: Mark::new(log.allocated),
            evicted: Mark::new(log.begin),
        });
        Shared {
            storage,
            dir,
            meta,
            geometry,
            epoch,
            files,
            staging,
            writer,
            flusher,
            requested: AtomicU64::new(0),
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            trouble: Mutex::new(Trouble::None),
            progress: Condvar::new(),
            counters: Counters::default(),
        }
    }

    pub fn writer(&self, log: LogKind) -> &WriterMarks {
        &self.writer[log]
    }

    pub fn flusher(&self, log: LogKind) -> &FlusherMarks {
        &self.flusher[log]
    }

    /// Copies bytes of one block from staging for the flusher. Returns the first staged address; the bytes below are in its segment.
    pub fn copy_staged(&self, log: LogKind, from: Address, bytes: &mut [u8]) -> Address {
        let head = &self.writer(log).head;
        let mut seen = head.get();
        let end = from + bytes.len() as u64;
        let Ok(split) = protocol::copy_staged::<Memory, Infallible>(
            from,
            end,
            &mut seen,
            |at| {
                let (_, staged) = bytes.split_at_mut((at.0 - from.0) as usize);
                self.staging.copy_out(log, at, staged);
                Ok(())
            },
            || Ok(head.get()),
        );
        split
    }

    /// Requests a sync of all published bytes; `is_done` reports its completion.
    pub fn request_sync(&self) -> u64 {
        // Release pairs with the acquire in `requested`: the flusher that sees the request sees the tails stored before it.
        self.requested.fetch_add(1, Ordering::Release) + 1
    }

    pub fn requested(&self) -> u64 {
        self.requested.load(Ordering::Acquire)
    }

    pub fn is_done(&self, ticket: u64) -> bool {
        // Pairs with the release in `complete`: a thread that sees it done sees the durable marks.
        self.done.load(Ordering::Acquire) >= ticket
    }

    /// Completes all requests up to `ticket`.
    pub fn complete(&self, ticket: u64) {
        self.done.store(ticket, Ordering::Release);
    }

    pub fn stop(&self) {
        // Relaxed: the flag guards no memory; `join` orders later accesses.
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Announces that marks moved.
    pub fn notify(&self) {
        // The lock keeps it from falling between a waiter's last look at the marks and its wait.
        let _guard = locked(&self.trouble);
        self.progress.notify_all();
    }

    /// Waits until the flusher announces something, or a little while.
    pub fn wait(&self, ready: impl Fn() -> bool) {
        let guard = locked(&self.trouble);
        if !ready() {
            let _ = self.progress.wait_timeout(guard, Duration::from_millis(10));
        }
    }

    /// Notes that the flusher cannot continue for now.
    pub fn trouble(&self, message: String, for_space: bool) {
        let mut trouble = locked(&self.trouble);
        let failures = match &*trouble {
            Trouble::Waiting { failures, .. } => *failures,
            Trouble::None => 0,
            Trouble::Failed(_) => return,
        };
        *trouble = Trouble::Waiting {
            message,
            failures: failures + 1,
            for_space,
        };
        self.progress.notify_all();
    }

    /// Notes that the flusher continues. Returns whether there was trouble.
    pub fn recovered(&self) -> bool {
        let mut trouble = locked(&self.trouble);
        let waited = matches!(&*trouble, Trouble::Waiting { .. });
        if waited {
            *trouble = Trouble::None;
        }
        waited
    }

    /// Notes that the flusher has ended for good.
    pub fn fail(&self, message: String) {
        *locked(&self.trouble) = Trouble::Failed(message);
        self.progress.notify_all();
    }

    /// Fails once the flusher has failed for good.
    pub fn check(&self) -> Result<()> {
        match &*locked(&self.trouble) {
            Trouble::Failed(message) => Err(Error::Flusher(message.clone())),
            Trouble::None | Trouble::Waiting { .. } => Ok(()),
        }
    }

    /// Returns the number of consecutive failures of the flusher, and the reason.
    pub fn waiting(&self) -> Option<(u64, String)> {
        match &*locked(&self.trouble) {
            Trouble::Waiting {
                message, failures, ..
            } => Some((*failures, message.clone())),
            Trouble::None | Trouble::Failed(_) => None,
        }
    }

    /// Returns the reason why nothing is flushed, while it waits or since it has ended.
    pub fn stopped_by(&self) -> Option<String> {
        match &*locked(&self.trouble) {
            Trouble::Waiting { message, .. } | Trouble::Failed(message) => Some(message.clone()),
            Trouble::None => None,
        }
    }

    /// Reports whether the flusher waits for space on the disk.
    pub fn waits_for_space(&self) -> bool {
        let trouble = locked(&self.trouble);
        matches!(
            &*trouble,
            Trouble::Waiting {
                for_space: true,
                ..
            }
        )
    }
}
