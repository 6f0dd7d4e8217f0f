//! The end of a connection, as seen and made without reading or writing it.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

pub(super) struct HangUp(UnixStream);

impl HangUp {
    pub(super) fn new(stream: UnixStream) -> HangUp {
        HangUp(stream)
    }

    /// Whether the daemon has ended the connection; waits for that as long as `patience`.
    pub(super) fn is_hung_up(&self, patience: Duration) -> bool {
        let mut polled = [PollFd::new(&self.0, PollFlags::RDHUP)];
        let patience = Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: i64::from(patience.subsec_nanos()),
        };
        // A signal ends the wait early, and the caller asks again.
        matches!(poll(&mut polled, Some(&patience)), Ok(1..))
    }

    pub(super) fn hang_up(&self) {
        // It fails where the daemon has ended the connection already.
        let _ = self.0.shutdown(std::net::Shutdown::Both);
    }
}
