//! Descriptors that travel with the bytes of a Unix socket: the daemon sends a ring's, and the client receives it.

use std::io::{self, IoSlice, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Sends bytes, with a descriptor beside the first of them. Returns how many bytes were sent.
pub fn send_with(
    stream: &UnixStream,
    bytes: &[u8],
    descriptor: BorrowedFd<'_>,
) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    let fits = beside.push(SendAncillaryMessage::ScmRights(&descriptors));
    assert!(fits, "the space was made for one descriptor");
    let sent = rustix::net::sendmsg(
        stream.as_fd(),
        &[IoSlice::new(bytes)],
        &mut beside,
        SendFlags::NOSIGNAL,
    );
    Ok(sent?)
}

/// A socket that keeps the latest descriptor that it received.
pub(crate) struct Receiver {
    stream: UnixStream,
    latest: Option<OwnedFd>,
}

impl Receiver {
    pub(crate) fn new(stream: UnixStream) -> Receiver {
        Receiver {
            stream,
            latest: None,
        }
    }

    /// The latest descriptor; only one call gets it.
    pub(crate) fn descriptor(&mut self) -> Option<OwnedFd> {
        self.latest.take()
    }
}

impl Read for Receiver {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut beside = RecvAncillaryBuffer::new(&mut space);
        let received = rustix::net::recvmsg(
            self.stream.as_fd(),
            &mut [IoSliceMut::new(buffer)],
            &mut beside,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.latest = descriptors.last().or(self.latest.take());
            }
        }
        Ok(received.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;

    use super::*;

    #[test]
    fn a_descriptor_arrives_with_its_bytes() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"content").unwrap();
        assert_eq!(send_with(&near, b"frame", file.as_fd()).unwrap(), 5);
        (&near).write_all(b"more").unwrap();
        let mut receiver = Receiver::new(far);
        let mut bytes = [0; 5];
        receiver.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"frame");
        let mut received = File::from(receiver.descriptor().unwrap());
        let mut content = String::new();
        std::io::Seek::rewind(&mut received).unwrap();
        received.read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
        let mut bytes = [0; 4];
        receiver.read_exact(&mut bytes).unwrap();
        assert!(receiver.descriptor().is_none());
    }
}
