//! What the writer thread and the flusher thread know of each other: marks in memory, requests, and the flusher's trouble.
//!
//! Each mark has one thread that stores it and only grows. The control page repeats some of them for readers; nothing is ever loaded from
//! there, so a damaged page cannot mislead the writer.

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

    /// What was stored or written below the mark before it was set is seen.
    pub fn get(&self) -> Address {
        protocol::mark::<Memory>(&self.0)
    }

    pub fn set(&self, value: Address) {
        protocol::set_mark::<Memory>(&self.0, value);
    }
}

/// Marks of one log that the writer stores. On cache lines of their own, as are the flusher's.
#[derive(Debug)]
#[repr(align(128))]
pub struct WriterMarks {
    /// Below it bytes are stored and never change; at or above the tail.
    pub appended: Mark,
    pub tail: Mark,
    /// Below it blocks are reused.
    pub head: Mark,
    pub begin: Mark,
}

/// Marks of one log that the flusher stores.
#[derive(Debug)]
#[repr(align(128))]
pub struct FlusherMarks {
    /// Below it bytes are in segments; of the record log, in units.
    pub flushed: Mark,
    pub durable: Mark,
    /// Blocks below it may be reused.
    pub released: Mark,
    /// Below it segments have names that are durable; those of the index logs are allocated.
    pub allocated: Mark,
    /// Segments that lie wholly below it are gone.
    pub evicted: Mark,
}

/// What stops the flusher, for now or for good.
#[derive(Clone, Debug, Default)]
enum Trouble {
    #[default]
    None,
    /// Out of space or the like: it tries again. Counted, so that a waiter can recognise a failure that came after its request.
    Waiting {
        message: String,
        failures: u64,
        /// What is wanted is space on the disk.
        for_space: bool,
    },
    Failed(String),
}

/// Work that the flusher did.
#[derive(Debug, Default)]
pub struct Counters {
    pub written_bytes: AtomicU64,
    pub syncs: AtomicU64,
    pub segments: AtomicU64,
}

/// Whose logs these are.
#[derive(Debug)]
pub struct Setup {
    pub storage: Arc<dyn Storage>,
    pub dir: PathBuf,
    pub meta: DirMeta,
    pub epoch: u64,
    pub files: RecordFiles,
}

/// Where one log begins in this epoch.
#[derive(Copy, Clone, Debug, Default)]
pub struct LogStart {
    pub at: Address,
    /// In segments so far; of the record log a unit's begin, from which on it is staged.
    pub flushed: Address,
    /// Published and durable so far; from there to `at` is a gap.
    pub published: Address,
    /// From here on staging holds what segments hold too.
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
    /// Ordinal of the latest sync that was asked for, and of the latest that is done.
    requested: AtomicU64,
    done: AtomicU64,
    /// The flusher ends as soon as it sees this.
    stop: AtomicBool,
    trouble: Mutex<Trouble>,
    progress: Condvar,
    pub counters: Counters,
}

impl Shared {
    /// The writer's and the flusher's marks stand at `logs`; `staging` was laid out by `geometry`.
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

    /// Copies bytes of one block from staging, for the flusher. Returns from where on they are staged; what lies below is in its segment.
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

    /// The writer asks for a sync of all that it published; `is_done` says when it happened.
    pub fn request_sync(&self) -> u64 {
        // Release pairs with the acquire in `requested`: the flusher that sees the request sees the tails stored before it.
        self.requested.fetch_add(1, Ordering::Release) + 1
    }

    pub fn requested(&self) -> u64 {
        self.requested.load(Ordering::Acquire)
    }

    pub fn is_done(&self, ticket: u64) -> bool {
        // Pairs with the release in `complete`: who sees it done sees the durable marks.
        self.done.load(Ordering::Acquire) >= ticket
    }

    /// The flusher has done all that was requested up to `ticket`.
    pub fn complete(&self, ticket: u64) {
        self.done.store(ticket, Ordering::Release);
    }

    pub fn stop(&self) {
        // Ordering: the flag carries nothing with it; `join` orders what follows.
        self.stop.store(true, Ordering::Relaxed);
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The flusher says that marks moved.
    pub fn notify(&self) {
        // Under the lock, so that it cannot fall between a waiter's last look at the marks and its wait.
        let _guard = locked(&self.trouble);
        self.progress.notify_all();
    }

    /// The writer waits until the flusher says something, or a little while.
    pub fn wait(&self, ready: impl Fn() -> bool) {
        let guard = locked(&self.trouble);
        if !ready() {
            let _ = self.progress.wait_timeout(guard, Duration::from_millis(10));
        }
    }

    /// The flusher cannot go on for now. Returns whether this is news.
    pub fn trouble(&self, message: String, for_space: bool) -> bool {
        let mut trouble = locked(&self.trouble);
        let failures = match &*trouble {
            Trouble::Waiting { failures, .. } => *failures,
            Trouble::None => 0,
            Trouble::Failed(_) => return false,
        };
        *trouble = Trouble::Waiting {
            message,
            failures: failures + 1,
            for_space,
        };
        self.progress.notify_all();
        failures == 0
    }

    /// The flusher goes on. Returns whether there was trouble.
    pub fn recovered(&self) -> bool {
        let mut trouble = locked(&self.trouble);
        let waited = matches!(&*trouble, Trouble::Waiting { .. });
        if waited {
            *trouble = Trouble::None;
        }
        waited
    }

    /// The flusher has ended for good.
    pub fn fail(&self, message: String) {
        *locked(&self.trouble) = Trouble::Failed(message);
        self.progress.notify_all();
    }

    /// An error once the flusher has failed for good.
    pub fn check(&self) -> Result<()> {
        match &*locked(&self.trouble) {
            Trouble::Failed(message) => Err(Error::Flusher(message.clone())),
            Trouble::None | Trouble::Waiting { .. } => Ok(()),
        }
    }

    /// How often in a row the flusher has failed and tried again, and why.
    pub fn waiting(&self) -> Option<(u64, String)> {
        match &*locked(&self.trouble) {
            Trouble::Waiting {
                message, failures, ..
            } => Some((*failures, message.clone())),
            Trouble::None | Trouble::Failed(_) => None,
        }
    }

    /// Why nothing is flushed, while it waits or since it has ended.
    pub fn stopped_by(&self) -> Option<String> {
        match &*locked(&self.trouble) {
            Trouble::Waiting { message, .. } | Trouble::Failed(message) => Some(message.clone()),
            Trouble::None => None,
        }
    }

    /// Whether the flusher waits for space on the disk.
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
