//! The encoders of the record log. One makes units on the flusher's thread; while it is behind, the others help it on threads of their own.
//!
//! Units are made in any order and passed in order. A helping thread ends with the units that it was started for.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::mpsc;
use std::thread;

use super::encoder::Encoder;
use super::fault::Fault;
use super::shared::Shared;
use crate::log::sync::{AtomicU64, Ordering};
use crate::types::{Address, LogKind};

const LOG: LogKind = LogKind::Records;
/// The share of an encoder in the units that are made at once. Those that are made too early are held in memory.
const UNITS_EACH: u64 = 8;

#[derive(Debug)]
pub struct Encoders {
    own: Box<dyn Encoder>,
    helpers: Vec<Box<dyn Encoder>>,
    /// A buffer for the next unit of the own encoder.
    spare: Vec<u8>,
}

impl Encoders {
    pub fn new(own: Box<dyn Encoder>, count: usize) -> Encoders {
        Encoders {
            helpers: (1..count).map(|_| own.another()).collect(),
            own,
            spare: Vec::new(),
        }
    }

    /// Makes the units of a range, which are staged, and passes one after the other. A stop ends it early.
    pub fn make_units(
        &mut self,
        shared: &Shared,
        units: Range<Address>,
        mut pass: impl FnMut(Address, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let unit_bytes = shared.meta.unit_bytes();
        let behind_bytes = (2 * unit_bytes).max(shared.geometry.block(LOG) / 8);
        let mut at = units.start;
        while at < units.end && !shared.is_stopping() {
            let is_behind = units.end.0 - at.0 >= behind_bytes;
            let helpers = if is_behind { self.helpers.len() } else { 0 };
            let share = UNITS_EACH * (1 + helpers as u64) * unit_bytes;
            let end = units.end.min(at + share);
            self.make_with(helpers, shared, at..end, &mut pass)?;
            at = end;
        }
        Ok(())
    }

    fn make_with(
        &mut self,
        helpers: usize,
        shared: &Shared,
        units: Range<Address>,
        pass: &mut impl FnMut(Address, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let unit_bytes = shared.meta.unit_bytes();
        let helpers = self.helpers.iter_mut().take(helpers);
        let (own, spare) = (&mut self.own, &mut self.spare);
        let queue = Queue {
            shared,
            next: AtomicU64::new(units.start.0),
            end: units.end,
        };
        thread::scope(|scope| {
            let (give, made) = mpsc::channel();
            for helper in helpers {
                let (give, queue) = (give.clone(), &queue);
                // `send` fails after the flusher met an error or was stopped.
                let help = move || {
                    while let Some(unit) = queue.make_next(&mut **helper, Vec::new())
                        && give.send(unit).is_ok()
                    {}
                };
                let thread = thread::Builder::new().name("loom-encoder".to_owned());
                // If no further thread can be started, the existing ones do all the work.
                if thread.spawn_scoped(scope, help).is_err() {
                    break;
                }
            }
            drop(give);
            let mut waiting = BTreeMap::<Address, Vec<u8>>::new();
            let mut at = units.start;
            while at < units.end && !shared.is_stopping() {
                if let Some(unit) = waiting.remove(&at) {
                    pass(at, &unit)?;
                    *spare = unit;
                    at += unit_bytes;
                    continue;
                }
                let ready = made.try_recv().ok();
                let next = ready
                    .or_else(|| queue.make_next(&mut **own, std::mem::take(spare)))
                    .or_else(|| made.recv().ok());
                let (first, unit) =
                    next.expect("a unit that was begun is made, or its thread panicked");
                waiting.insert(first, unit);
            }
            Ok(())
        })
    }
}

/// Units that are staged and that nobody has begun.
struct Queue<'a> {
    shared: &'a Shared,
    next: AtomicU64,
    end: Address,
}

impl Queue<'_> {
    /// Makes the next unit. `None`: all were begun.
    fn make_next(
        &self,
        encoder: &mut dyn Encoder,
        mut unit: Vec<u8>,
    ) -> Option<(Address, Vec<u8>)> {
        let shared = self.shared;
        let unit_bytes = shared.meta.unit_bytes();
        // Relaxed: the number guards no memory; the start of the thread orders the staged bytes.
        let first = Address(self.next.fetch_add(unit_bytes, Ordering::Relaxed));
        if first >= self.end {
            return None;
        }
        // SAFETY: the unit lies below `appended` and is not released before it is passed, which is after this has returned, so the writer stores nothing
        // there.
        let chunks = unsafe {
            let bytes = unit_bytes as usize;
            shared.staging.stable_bytes(LOG, first, bytes)
        };
        unit.clear();
        encoder.encode(first, chunks, &mut unit);
        Some((first, unit))
    }
}
