//! The time without a daemon: how long a client tolerates it, and when it looks for the next daemon.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a client tolerates it by default.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The pause before the second look; each pause is twice as long as the one before.
const PAUSE_LEAST: Duration = Duration::from_millis(10);
const PAUSE_MOST: Duration = Duration::from_secs(1);
/// How often a sleeping client checks whether it must stop.
const NAP: Duration = Duration::from_millis(20);

#[derive(Copy, Clone)]
pub(super) struct Absence {
    since: Instant,
    next_look: Instant,
    pause: Duration,
}

impl Absence {
    /// Begins an absence now, with a look.
    pub(super) fn begin() -> Absence {
        let now = Instant::now();
        Absence {
            since: now,
            next_look: now,
            pause: PAUSE_LEAST,
        }
    }

    pub(super) fn is_longer_than(&self, patience: Duration) -> bool {
        self.since.elapsed() > patience
    }

    pub(super) fn is_look_due(&self) -> bool {
        Instant::now() >= self.next_look
    }

    pub(super) fn looked_in_vain(&mut self) {
        self.next_look = Instant::now() + self.pause;
        self.pause = (2 * self.pause).min(PAUSE_MOST);
    }

    pub(super) fn sleep_until_look(&self) {
        std::thread::sleep(self.until_look());
    }

    /// The same, but ends soon after `stop` is set.
    pub(super) fn sleep_until_look_or(&self, stop: &AtomicBool) {
        while !self.is_look_due() && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(self.until_look().min(NAP));
        }
    }

    fn until_look(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use super::*;
    use crate::protocol::{DurabilityWord, Reply, Welcome};
    use crate::socket::SOCKET_NAME;

    /// The client of a daemon that answers only the hello.
    pub fn client_of<T>(connect: impl FnOnce(&Path) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(SOCKET_NAME)).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut welcome = Vec::new();
            Reply::Welcome(Welcome {
                durability: DurabilityWord::None,
                frame_body_bytes_max: 1 << 18,
                payload_bytes_max: 1 << 14,
                uuid: [1; 16],
            })
            .encode(&mut welcome);
            stream.write_all(&welcome).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        });
        connect(dir.path())
    }

    /// An absence that has lasted for 59 s.
    pub fn of_59_seconds() -> Absence {
        let mut absence = Absence::begin();
        absence.since -= Duration::from_secs(59);
        absence
    }

    /// Fails unless the client gave up after 60 s without a daemon, which was a second after this time.
    pub fn check_60_seconds(patience: Duration, since: Instant) {
        assert_eq!(patience, Duration::from_secs(60));
        let waited = since.elapsed().as_secs_f64();
        assert!((0.9..30.0).contains(&waited), "{waited} s");
    }
}
