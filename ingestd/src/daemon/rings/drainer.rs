//! The thread that drains all rings, at a pace that leaves their producers alone, and answers connections that wait for a ring to be drained.

use std::time::{Duration, Instant};

use flume::{Receiver, RecvTimeoutError, Sender};
use loom_client::ring::Ending;

use super::ring::{Progress, Ring};
use crate::daemon::answer::Gone;
use crate::daemon::message::{Inbox, Request};

/// The pause between two looks at a ring that is in use: records gather meanwhile, and its producer's cache lines stay with it.
const PAUSE_LEAST: Duration = Duration::from_micros(500);
/// The longest pause between two looks, and so the longest that a record waits.
const PAUSE_MOST: Duration = Duration::from_millis(4);
/// The interval of the calibration from ticks to time.
const CALIBRATE: Duration = Duration::from_secs(1);

pub(super) enum Order {
    Open(Box<Ring>),
    /// Drain the rings of a client up to where they are now, and at the end of its connection drop them.
    Drain {
        peer: u64,
        end: Option<Ending>,
        done: Sender<()>,
    },
}

pub(super) struct Drainer {
    inbox: Inbox,
    orders: Receiver<Order>,
    rings: Vec<Drained>,
    waiting: Vec<Waiting>,
    calibrated: Instant,
}

/// A ring, and the position up to which a connection waits for it to be drained.
struct Drained {
    ring: Box<Ring>,
    goal: Option<u64>,
}

struct Waiting {
    peer: u64,
    end: Option<Ending>,
    done: Sender<()>,
}

impl Drainer {
    pub(super) fn new(inbox: Inbox, orders: Receiver<Order>) -> Drainer {
        Drainer {
            inbox,
            orders,
            rings: Vec::new(),
            waiting: Vec::new(),
            calibrated: Instant::now(),
        }
    }

    /// Drains until no connection remains, or the writer thread is gone. Those that wait learn it then.
    pub(super) fn run(mut self) {
        let mut pause = PAUSE_LEAST;
        while let Ok(more) = self.take_orders(pause)
            && more
        {
            pause = match self.drain() {
                Ok(pace) => pace.pause_after(pause),
                Err(Gone) => return,
            };
            self.answer();
        }
    }

    /// Takes orders; waits for the first while there is nothing else to do. False once nobody can give any.
    fn take_orders(&mut self, pause: Duration) -> Result<bool, Gone> {
        let first = if self.rings.is_empty() && self.waiting.is_empty() {
            self.orders
                .recv()
                .map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            self.orders.recv_timeout(pause)
        };
        match first {
            Ok(order) => self.take(order),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(false),
        }
        while let Ok(order) = self.orders.try_recv() {
            self.take(order);
        }
        self.calibrate()?;
        Ok(true)
    }

    fn take(&mut self, order: Order) {
        match order {
            Order::Open(ring) => self.rings.push(Drained { ring, goal: None }),
            Order::Drain { peer, end, done } => {
                let rings = self.rings.iter_mut();
                for drained in rings.filter(|one| one.ring.peer_id() == peer) {
                    if end.is_some() {
                        drained.ring.close();
                    }
                    drained.goal = drained.ring.end();
                }
                self.waiting.push(Waiting { peer, end, done });
            }
        }
    }

    fn calibrate(&mut self) -> Result<(), Gone> {
        if self.rings.is_empty() || self.calibrated.elapsed() < CALIBRATE {
            return Ok(());
        }
        self.calibrated = Instant::now();
        if let Some(line) = self.inbox.ask(Request::Calibration)? {
            for drained in &mut self.rings {
                drained.ring.calibrate(line);
            }
        }
        Ok(())
    }

    fn drain(&mut self) -> Result<Pace, Gone> {
        let mut pace = Pace::Idle;
        let mut broken = Vec::new();
        for (place, Drained { ring, goal }) in self.rings.iter_mut().enumerate() {
            let progress = ring.drain(&self.inbox)?;
            // Without a free buffer the drain looked at nothing: its connection waits on.
            if progress != Progress::Waits && goal.is_some_and(|goal| ring.is_taken(goal)) {
                *goal = None;
            }
            if progress == Progress::Broken {
                broken.push(place);
            }
            pace = pace.max(match progress {
                Progress::Idle if goal.is_none() => Pace::Idle,
                Progress::Full => Pace::Full,
                _ => Pace::Busy,
            });
        }
        for place in broken.into_iter().rev() {
            let ring = self.rings.swap_remove(place).ring;
            ring.end_as(Ending::OfClient);
        }
        Ok(pace)
    }

    fn answer(&mut self) {
        let rings = &mut self.rings;
        self.waiting.retain(|waiting| {
            let is_own = |one: &Drained| one.ring.peer_id() == waiting.peer;
            if rings.iter().any(|one| is_own(one) && one.goal.is_some()) {
                return true;
            }
            if let Some(ending) = waiting.end {
                let own = rings.extract_if(.., |one| is_own(one));
                own.for_each(|one| one.ring.end_as(ending));
            }
            // A connection waits for its answer, or the daemon ends.
            let _ = waiting.done.send(());
            false
        });
    }
}

/// The amount that the rings have to give; the busiest counts.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Pace {
    Idle,
    Busy,
    Full,
}

impl Pace {
    fn pause_after(self, pause: Duration) -> Duration {
        match self {
            Pace::Idle => (2 * pause).clamp(PAUSE_LEAST, PAUSE_MOST),
            Pace::Busy => PAUSE_LEAST,
            Pace::Full => Duration::ZERO,
        }
    }
}
