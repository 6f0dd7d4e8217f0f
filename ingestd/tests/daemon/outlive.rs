//! Producers that push while their daemon ends and starts again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use loom_tests::command::until;

use super::support::{Place, There, stop};

/// What a producer says of itself, and is told.
pub struct Progress<'a> {
    pushed: &'a AtomicU64,
    ends: &'a AtomicBool,
}

impl Progress<'_> {
    /// Notes how many records were pushed so far. Whether to go on.
    pub fn goes_on(&self, pushed: u64) -> bool {
        self.pushed.store(pushed, Ordering::Relaxed);
        std::thread::yield_now();
        !self.ends.load(Ordering::Relaxed)
    }
}

/// Several producers, while the daemon ends in this way and starts again, so many times. Returns what each gave. The first may wait for the next
/// daemon; the others push also while there is none.
pub fn outlive<T: Send>(
    place: &Place,
    producers: u64,
    times: u64,
    end: fn(There),
    produce: impl Fn(u64, Progress) -> T + Sync,
) -> Vec<T> {
    let pushed: Vec<AtomicU64> = (0..producers).map(|_| AtomicU64::new(0)).collect();
    let ends = AtomicBool::new(false);
    let mut daemon = place.start("");
    std::thread::scope(|scope| {
        let (produce, ends) = (&produce, &ends);
        let started = pushed.iter().zip(0..).map(|(pushed, producer)| {
            let progress = Progress { pushed, ends };
            scope.spawn(move || produce(producer, progress))
        });
        let started: Vec<_> = started.collect();
        let so_far = || -> Vec<u64> {
            let pushed = pushed.iter();
            pushed.map(|one| one.load(Ordering::Relaxed)).collect()
        };
        // Of the producers from this one on.
        let more = |first: usize, before: &[u64]| {
            until(|| {
                let now = so_far();
                let mut both = now.iter().zip(before).skip(first);
                both.all(|(now, then)| *now > then + 7_000)
            });
        };
        more(0, &so_far());
        for time in 0..times {
            // Without a daemon there may be no room for so many: those count that are pushed while it ends.
            let before = so_far();
            end(daemon);
            if time % 2 == 1 {
                // Some records wait for the next daemon.
                more(1, &before);
            }
            daemon = place.start("");
            more(0, &so_far());
        }
        ends.store(true, Ordering::Relaxed);
        let given = started.into_iter().map(|one| one.join().unwrap());
        let given = given.collect();
        stop(daemon);
        given
    })
}
