//! The user that runs the process at the other end of a socket, as the kernel noted it when that process connected.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The number of the user.
///
/// A process of another PID namespace has the number 0 here, which `rustix::net::sockopt::socket_peercred` cannot hold.
pub(super) fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `peer` is as long as `bytes` says, any bytes make one, and both live as long as the call.
    let done = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut bytes,
        )
    };
    match done {
        0 => Ok(peer.uid),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_pair_are_this_process() {
        let (one, other) = UnixStream::pair().unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(peer_user(&one).unwrap(), own);
        assert_eq!(peer_user(&other).unwrap(), own);
    }
}
