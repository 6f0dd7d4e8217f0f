//! The end of a connection: this detects and causes it without reading or writing.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(super) struct HangUp(UnixStream);

impl HangUp {
    pub(super) fn new(stream: UnixStream) -> HangUp {
        HangUp(stream)
    }

    pub(super) fn try_clone(&self) -> io::Result<HangUp> {
        self.0.try_clone().map(HangUp)
    }

    /// Whether one side has ended the connection. This waits for it up to `patience`.
    pub(super) fn is_hung_up(&self, patience: Duration) -> bool {
        self.poll(Some(Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        }))
    }

    /// Waits until one side ends the connection.
    pub(super) fn wait(&self) {
        while !self.poll(None) {}
    }

    /// It is also false if a signal ends the wait early; the caller asks again.
    fn poll(&self, patience: Option<Timespec>) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::RDHUP)];
        matches!(poll(&mut polled, patience.as_ref()), Ok(1..))
    }

    pub(super) fn hang_up(&self) {
        // It fails if the daemon has already ended the connection.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}
