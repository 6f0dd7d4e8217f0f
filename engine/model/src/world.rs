//! Three logs of two blocks, each block one word; a writer, a flusher and a reader, who take their steps through the protocol.
//!
//! Word `a` of a log stands for all the bytes of its block: a copy of it is torn if it is of another use of the block. Word `a` of the
//! timestamp index refers to word `a` of the chunk index, and that to word `a` of the record log. Segments are words too: a write has returned once its word is stored.

use std::convert::Infallible;

use loom_model::sync::Arc;
use loom_model::sync::atomic::{AtomicU64, Ordering};
use loom_model::thread;

use crate::mutant::{Mutant, Swap};
use crate::protocol;
use crate::types::{Address, LogKind, PerLog};

/// The scene of a run; both at once would take the checker hours.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Scene {
    /// Each log reuses a block, and a reader follows time entries down.
    Summaries,
    /// The record log reuses both blocks, and a reader reads what lies past the last summary.
    PastSummaries,
    /// The record log publishes a word, and the flusher says that it is durable.
    Durable,
    /// The record log reuses a block, and a reader reads in units what the mark says they hold.
    Units,
}

/// The words of the record log when the checker begins: both blocks are full, appended and published, and nothing is flushed.
const BEFORE: Address = Address(2);
/// More words than any log gets.
const WORDS: usize = 4;

/// A word of the control page and its complement.
pub(crate) struct Word {
    word: AtomicU64,
    complement: AtomicU64,
}

impl Word {
    pub(crate) fn new(value: Address) -> Word {
        Word {
            word: AtomicU64::new(value.0),
            complement: AtomicU64::new(!value.0),
        }
    }

    pub(crate) fn announce<M: Mutant>(&self, value: Address) {
        protocol::announce::<M>(&self.word, &self.complement, value.0);
    }

    /// Both halves as a copy of the page has them, in any order.
    fn copy<M: Mutant>(&self) -> (u64, u64) {
        let halves = (
            self.word.load(Ordering::Relaxed),
            !self.complement.load(Ordering::Relaxed),
        );
        M::fence_after_word();
        halves
    }

    /// As readers take a tail and its complement that disagree.
    pub(crate) fn tail<M: Mutant>(&self) -> Address {
        let (word, complement) = self.copy::<M>();
        Address(word.min(complement))
    }

    /// As readers take a head and its complement that disagree.
    fn head<M: Mutant>(&self) -> Address {
        let (word, complement) = self.copy::<M>();
        Address(word.max(complement))
    }
}

struct Log {
    kind: LogKind,
    staged: [AtomicU64; 2],
    segments: [AtomicU64; WORDS],
    tail: Word,
    head: Word,
    durable: Word,
    /// Units hold what lies below.
    encoded: Word,
    appended: AtomicU64,
    /// The tail as the flusher sees it.
    published: AtomicU64,
    released: AtomicU64,
}

/// The content of an address: no two words of any log are equal.
fn expected(kind: LogKind, address: Address) -> u64 {
    100 * (kind as u64 + 1) + address.0
}

impl Log {
    /// With so many words published, of which the first are in their segment.
    fn new(kind: LogKind, published: Address, flushed: Address) -> Log {
        Log {
            kind,
            staged: [0, 1].map(|at| AtomicU64::new(expected(kind, Address(at)))),
            segments: std::array::from_fn(|at| {
                let at = Address(at as u64);
                let word = expected(kind, at);
                AtomicU64::new(if at < flushed { word } else { 0 })
            }),
            tail: Word::new(published),
            head: Word::new(Address(0)),
            durable: Word::new(flushed),
            encoded: Word::new(flushed),
            appended: AtomicU64::new(published.0),
            published: AtomicU64::new(published.0),
            released: AtomicU64::new(flushed.0),
        }
    }

    fn expected(&self, address: Address) -> u64 {
        expected(self.kind, address)
    }

    fn staged(&self, address: Address) -> &AtomicU64 {
        &self.staged[(address.0 % 2) as usize]
    }

    fn append<M: Mutant>(&self, address: Address) {
        // The block is reused when the flusher is done with what it held.
        let head = Address(address.0 - 1);
        while protocol::mark::<M>(&self.released) < head {
            thread::yield_now();
        }
        if M::SWAP == Swap::BytesBeforeHead {
            self.store(address);
        }
        protocol::give_up_below::<M>(head, |head| self.head.announce::<M>(head));
        if M::SWAP == Swap::PublishBeforeBytes {
            self.tail.announce::<M>(address + 1);
        }
        self.store(address);
    }

    fn store(&self, address: Address) {
        self.staged(address)
            .store(self.expected(address), Ordering::Relaxed);
    }

    fn publish<M: Mutant>(&self, tail: Address) {
        protocol::set_mark::<M>(&self.appended, tail);
        self.tail.announce::<M>(tail);
    }

    /// Publishes, and shows the flusher so.
    fn publish_to_flusher<M: Mutant>(&self, tail: Address) {
        if M::SWAP == Swap::MarkBeforeTail {
            protocol::set_mark::<M>(&self.published, tail);
        }
        self.publish::<M>(tail);
        if M::SWAP != Swap::MarkBeforeTail {
            protocol::set_mark::<M>(&self.published, tail);
        }
    }

    fn flush<M: Mutant>(&self, address: Address) {
        while protocol::mark::<M>(&self.appended) <= address {
            thread::yield_now();
        }
        let word = self.staged(address).load(Ordering::Relaxed);
        assert_eq!(
            word,
            self.expected(address),
            "the flusher takes only what was appended, before its block is reused"
        );
        match M::SWAP {
            Swap::ReleaseBeforeWrite => protocol::set_mark::<M>(&self.released, address + 1),
            Swap::EncodedBeforeWrite => self.encoded.announce::<M>(address + 1),
            _ => {}
        }
        let write = || {
            self.segments[address.0 as usize].store(word, Ordering::Relaxed);
            Ok::<(), Infallible>(())
        };
        let announce = |end| {
            if M::SWAP != Swap::EncodedBeforeWrite {
                self.encoded.announce::<M>(end);
            }
        };
        let release = |end| {
            if M::SWAP != Swap::ReleaseBeforeWrite {
                protocol::set_mark::<M>(&self.released, end);
            }
        };
        let Ok(()) = protocol::pass_unit(address + 1, write, announce, release);
    }

    /// Reads a word below a tail that is held: in its unit, where the mark says that there is one.
    fn read_unit_or_staged<M: Mutant>(&self, address: Address, encoded: Address) {
        if address >= encoded && M::SWAP != Swap::UnitAboveMark {
            return self.read::<M>(address);
        }
        let word = self.segments[address.0 as usize].load(Ordering::Relaxed);
        assert_eq!(
            word,
            self.expected(address),
            "what the mark covers is in its unit"
        );
    }

    /// Reads a word below a tail that is held.
    fn read<M: Mutant>(&self, address: Address) {
        let mut copied = 0;
        let mut head = Address(0);
        let split = protocol::copy_staged::<M, Infallible>(
            address,
            address + 1,
            &mut head,
            |_| {
                copied = self.staged(address).load(Ordering::Relaxed);
                Ok(())
            },
            || Ok(self.head.head::<M>()),
        );
        if split == Ok(address) {
            self.hold_staged(address, copied);
        } else {
            let word = self.segments[address.0 as usize].load(Ordering::Relaxed);
            assert_eq!(
                word,
                self.expected(address),
                "what the head gave up is in its segment"
            );
        }
    }

    fn hold_staged(&self, address: Address, copied: u64) {
        assert_eq!(
            copied,
            self.expected(address),
            "what was copied from staging at or above the head is what was published there"
        );
    }
}

struct World {
    scene: Scene,
    logs: PerLog<Log>,
}

impl World {
    fn new(scene: Scene) -> World {
        let summarised = match scene {
            Scene::Summaries => BEFORE,
            Scene::PastSummaries | Scene::Durable | Scene::Units => Address(1),
        };
        World {
            scene,
            logs: PerLog {
                records: Log::new(LogKind::Records, BEFORE, Address(0)),
                chunks: Log::new(LogKind::Chunks, summarised, Address(1)),
                times: Log::new(LogKind::Times, summarised, Address(1)),
            },
        }
    }

    fn write<M: Mutant>(&self) {
        match self.scene {
            Scene::Summaries => {
                for log in self.logs.iter() {
                    log.append::<M>(BEFORE);
                }
                if M::SWAP == Swap::PublishTimesFirst {
                    for kind in LogKind::ALL.into_iter().rev() {
                        self.logs[kind].publish::<M>(BEFORE + 1);
                    }
                } else {
                    protocol::publish(|kind| self.logs[kind].publish::<M>(BEFORE + 1));
                }
            }
            Scene::PastSummaries => {
                let records = &self.logs.records;
                for at in [BEFORE, BEFORE + 1] {
                    records.append::<M>(at);
                    records.publish::<M>(at + 1);
                }
            }
            Scene::Durable => self.logs.records.publish_to_flusher::<M>(BEFORE + 1),
            Scene::Units => {
                let records = &self.logs.records;
                records.append::<M>(BEFORE);
                records.publish::<M>(BEFORE + 1);
            }
        }
    }

    /// Writes into segments what the writer needs to have released, and in the second scene a word that it appends meanwhile.
    fn flush<M: Mutant>(&self) {
        let words = match self.scene {
            Scene::Summaries => 1,
            Scene::Units => 2,
            Scene::PastSummaries => 3,
            Scene::Durable => {
                let records = &self.logs.records;
                return records
                    .durable
                    .announce::<M>(protocol::mark::<M>(&records.published));
            }
        };
        for at in 0..words {
            self.logs.records.flush::<M>(Address(at));
        }
    }

    /// Takes a snapshot and reads from it.
    fn read<M: Mutant>(&self) {
        if self.scene == Scene::Durable {
            let durable = self.logs.records.durable.tail::<M>();
            assert!(
                durable <= self.logs.records.tail.tail::<M>(),
                "what is said to be durable lies below the tail that is announced"
            );
            return;
        }
        let tail = |kind| Ok::<_, Infallible>(self.logs[kind].tail.tail::<M>());
        let loaded = if M::SWAP == Swap::LoadRecordsFirst {
            tail(LogKind::Records).and_then(|records| {
                let chunks = tail(LogKind::Chunks)?;
                let times = tail(LogKind::Times)?;
                Ok(PerLog {
                    records,
                    chunks,
                    times,
                })
            })
        } else {
            protocol::load_tails(tail)
        };
        let Ok(PerLog {
            records,
            chunks,
            times,
        }) = loaded;
        match self.scene {
            Scene::Summaries => {
                // The oldest, whose blocks are reused, and the latest, which may have been published just now.
                for entry in [Address(0), Address(times.0 - 1)] {
                    self.logs.times.read::<M>(entry);
                    assert!(
                        entry < chunks,
                        "a time entry leads to a summary below the tail that is held"
                    );
                    self.logs.chunks.read::<M>(entry);
                    assert!(
                        entry < records,
                        "a summary leads to records below the tail that is held"
                    );
                    self.logs.records.read::<M>(entry);
                }
            }
            Scene::PastSummaries => {
                let log = &self.logs.records;
                for at in [times, Address(records.0 - 1)] {
                    if M::SWAP == Swap::UnjudgedPastSummaries {
                        log.hold_staged(at, log.staged(at).load(Ordering::Relaxed));
                    } else {
                        log.read::<M>(at);
                    }
                }
            }
            Scene::Units => {
                let encoded = self.logs.records.encoded.tail::<M>();
                for at in [Address(0), Address(records.0 - 1)] {
                    self.logs.records.read_unit_or_staged::<M>(at, encoded);
                }
            }
            Scene::Durable => {}
        }
    }
}

/// One run of the writer, the flusher and a reader.
pub fn run<M: Mutant>(scene: Scene) {
    let world = Arc::new(World::new(scene));
    let flusher = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.flush::<M>())
    };
    let reader = {
        let world = Arc::clone(&world);
        thread::spawn(move || world.read::<M>())
    };
    world.write::<M>();
    for thread in [flusher, reader] {
        thread.join().expect("a panic ends the model");
    }
}
