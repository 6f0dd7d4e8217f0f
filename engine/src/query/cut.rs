//! A cut: the positions of several directories, each with a writer of its own, at one moment. It is found by reading alone, so no writer
//! waits.
//!
//! If a program pushes to one directory, waits until that is published, and pushes to another, a cut holds both records, the first, or
//! neither.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::directory::Directory;
use crate::error::Result;
use crate::log::load_cut;
use crate::types::Address;

/// The longest time to read positions that keep moving, until two readings agree.
const PATIENCE: Duration = Duration::from_millis(1);
/// The most attempts, if writers start or stop meanwhile.
const ATTEMPTS: u32 = 5;

/// The position of each directory, in the order in which they were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    pub positions: Vec<Address>,
    /// Zero if all of them had these positions at one moment. Otherwise the duration of the reading; each had its position at some moment
    /// of it.
    pub apart: Duration,
}

impl Cut {
    /// The positions that are published in all of them now.
    ///
    /// # Errors
    /// Staging that a live writer uses and that cannot be read, failed reads.
    pub fn take(directories: &[Arc<Directory>]) -> Result<Cut> {
        let mut attempt = 1;
        loop {
            let attached = directories
                .iter()
                .map(|directory| directory.reader().attach())
                .collect::<Result<Vec<_>>>()?;
            let began = Instant::now();
            let mut round = began;
            let loads = attached.iter().map(|attached| || attached.records_tail());
            let (positions, is_one_moment) = load_cut(&mut loads.collect::<Vec<_>>(), || {
                round = Instant::now();
                began.elapsed() < PATIENCE
            })?;
            let apart = round.elapsed();
            // Checked afterwards, because the records of a writer that began meanwhile were not seen.
            let mut stood = true;
            for (directory, attached) in directories.iter().zip(&attached) {
                stood &= directory.reader().is_attached(attached)?;
            }
            if stood || attempt == ATTEMPTS {
                return Ok(Cut {
                    positions,
                    apart: match is_one_moment && stood {
                        true => Duration::ZERO,
                        false => apart,
                    },
                });
            }
            attempt += 1;
        }
    }
}
