//! Producers that push while their daemon ends and starts again.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use loom_tests::command::until;

use super::support::{Place, There, stop};

/// About so many records at most a producer pushes between two steps of the test. A daemon that is killed soon may have taken none of them, and the
/// rings have room for those of all steps, some 530,000.
const AHEAD: u64 = 30_000;

/// Connects a producer with the test.
pub struct Progress<'a> {
    pushed: &'a AtomicU64,
    most: &'a AtomicU64,
    ends: &'a AtomicBool,
}

impl Progress<'_> {
    /// Notes how many records were pushed so far, and waits while they are enough. Whether to go on.
    pub fn goes_on(&self, pushed: u64) -> bool {
        self.pushed.store(pushed, Ordering::Relaxed);
        std::thread::yield_now();
        while pushed >= self.most.load(Ordering::Relaxed) && !self.ends.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        !self.ends.load(Ordering::Relaxed)
    }
}

/// Ends the producers, also if the test fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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
    let most = AtomicU64::new(AHEAD);
    let ends = AtomicBool::new(false);
    let mut daemon = place.start("");
    std::thread::scope(|scope| {
        let (produce, most, ends) = (&produce, &most, &ends);
        let ending = Ending(ends);
        let started = pushed.iter().zip(0..).map(|(pushed, producer)| {
            let progress = Progress { pushed, most, ends };
            scope.spawn(move || produce(producer, progress))
        });
        let started: Vec<_> = started.collect();
        let so_far = || -> Vec<u64> {
            let pushed = pushed.iter();
            pushed.map(|one| one.load(Ordering::Relaxed)).collect()
        };
        let go_on = |before: &[u64]| {
            let furthest = before.iter().max().copied().unwrap_or(0);
            most.store(furthest + AHEAD, Ordering::Relaxed);
        };
        // Waits for the producers from this one on.
        let more = |first: usize, before: &[u64]| {
            go_on(before);
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
            go_on(&before);
            end(daemon);
            if time % 2 == 1 {
                // Some records wait for the next daemon.
                more(1, &before);
            }
            daemon = place.start("");
            more(0, &so_far());
        }
        drop(ending);
        let given = started.into_iter().map(|one| one.join().unwrap());
        let given = given.collect();
        stop(daemon);
        given
    })
}
