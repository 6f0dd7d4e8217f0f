//! A cut: where several directories, each with a writer of its own, stood at one moment. It is found by looking alone, so no writer waits.
//!
//! Who pushes to one directory, waits until that is published, and pushes to another finds both records in a cut, or the first, or none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::directory::Directory;
use crate::error::Result;
use crate::log::load_cut;
use crate::types::Address;

/// How long directories that go on are looked at until they stand still for two looks.
const PATIENCE: Duration = Duration::from_millis(1);
/// How often all is begun again because a writer has started or stopped.
const ATTEMPTS: u32 = 5;

/// A position of each directory, in the order in which they were given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    pub positions: Vec<Address>,
    /// Zero where all of them stood so at one moment; else so long the look at them took, and each stood so at some moment of it.
    pub apart: Duration,
}

impl Cut {
    /// What is published in all of them now.
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
            // After the look: where a writer began during it, what that published was not looked at.
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
