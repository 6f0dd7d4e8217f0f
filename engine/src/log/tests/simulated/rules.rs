//! The faults of a simulated disk: an operation that matches a rule fails, shortens, tears, waits or lies.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Kind {
    Open,
    MakeFolder,
    Rename,
    Unlink,
    SyncFolder,
    Read,
    Write,
    Sync,
    WriteBack,
    Allocate,
    Truncate,
}

/// One operation, as a rule sees it.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub kind: Kind,
    pub path: PathBuf,
}

impl Op {
    /// Reports whether it changes something.
    pub fn changes(&self) -> bool {
        !matches!(self.kind, Kind::Open | Kind::Read)
    }

    /// Reports whether it concerns the Loom directory and not shared memory.
    pub fn is_on_disk(&self) -> bool {
        self.path.starts_with(super::loom())
    }

    /// Reports whether it concerns a file in that folder of the directory.
    pub fn is_in(&self, folder: &str) -> bool {
        self.path.parent() == Some(&super::loom().join(folder))
    }
}

#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// It fails and changes nothing; a sync makes any part durable and forgets the rest.
    Fails(i32),
    /// A write stores some leading sectors and fails.
    Tears(i32),
    /// A write stores at most this many bytes and returns their number.
    Shortens(usize),
    /// It waits this long.
    Takes(Duration),
    /// It reports success and does nothing.
    Lies,
}

/// `fault` hits `times` matching operations, after the first `after` of them.
pub(crate) struct Rule {
    pub fault: Fault,
    pub after: u64,
    pub times: u64,
    pub fits: Box<dyn Fn(&Op) -> bool + Send>,
}

impl Rule {
    /// Hits every matching operation.
    pub fn always(fault: Fault, fits: impl Fn(&Op) -> bool + Send + 'static) -> Rule {
        Rule {
            fault,
            after: 0,
            times: u64::MAX,
            fits: Box::new(fits),
        }
    }

    pub fn once(fault: Fault, fits: impl Fn(&Op) -> bool + Send + 'static) -> Rule {
        Rule {
            times: 1,
            ..Rule::always(fault, fits)
        }
    }

    pub fn after(self, after: u64) -> Rule {
        Rule { after, ..self }
    }

    /// Returns the fault, if it hits this operation.
    pub fn judge(&mut self, op: &Op) -> Option<Fault> {
        if self.times == 0 || !(self.fits)(op) {
            return None;
        }
        if self.after > 0 {
            self.after -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.fault)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} {} times after {}",
            self.fault, self.times, self.after
        )
    }
}
