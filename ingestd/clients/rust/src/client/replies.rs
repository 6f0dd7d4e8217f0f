//! The frames that the client receives, for one request at a time.

use std::io::{self, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use super::ClientError;
use crate::descriptors::Receiver;
use crate::protocol::{HEADER_BYTES, Header, REPLY_BODY_BYTES_MAX, Reply, RequestId};

pub(super) struct Replies {
    stream: BufReader<Receiver>,
    next_request: RequestId,
    body: Vec<u8>,
    ended: Option<ClientError>,
}

impl Replies {
    pub(super) fn new(stream: UnixStream) -> Self {
        Replies {
            stream: BufReader::new(Receiver::new(stream)),
            next_request: RequestId::MIN,
            body: Vec::new(),
            ended: None,
        }
    }

    /// The descriptor that came with the latest answer, if there was one.
    pub(super) fn take_descriptor(&mut self) -> Option<OwnedFd> {
        self.stream.get_mut().descriptor()
    }

    /// Why the connection is over; `None` if it is not.
    pub(super) fn ended(&self) -> Option<&ClientError> {
        self.ended.as_ref()
    }

    /// The number of the next request.
    pub(super) fn next_request(&mut self) -> RequestId {
        let request = self.next_request;
        // After the greatest number the first follows, because only one request runs at a time.
        self.next_request = request.checked_add(1).unwrap_or(RequestId::MIN);
        request
    }

    /// Waits for the answer to `request`.
    pub(super) fn receive_answer(&mut self, request: RequestId) -> Result<Reply, ClientError> {
        let reply = self.receive()?;
        if reply.request() == Some(request) {
            match reply {
                Reply::Error { code, message, .. } => Err(ClientError::Daemon { code, message }),
                reply => Ok(reply),
            }
        } else {
            Err(ClientError::Protocol(format!(
                "a reply to another request than {request}: {reply:?}"
            )))
        }
    }

    /// Waits for a frame. A goodbye, or an error that answers no request, ends the connection.
    pub(super) fn receive(&mut self) -> Result<Reply, ClientError> {
        if let Some(ended) = &self.ended {
            return Err(ended.clone());
        }
        let error = match self.receive_frame() {
            Ok(Reply::Goodbye(synced)) => ClientError::Stopped(synced),
            Ok(Reply::Error {
                request: None,
                code,
                message,
            }) => ClientError::Daemon { code, message },
            Ok(reply) => return Ok(reply),
            Err(error) => error,
        };
        self.ended = Some(error.clone());
        Err(error)
    }

    /// The daemon's last message before it ended the connection.
    pub(super) fn last_word(&mut self) -> Option<ClientError> {
        loop {
            match self.receive() {
                Ok(_) => {}
                Err(ClientError::Io(_)) => return None,
                Err(word) => return Some(word),
            }
        }
    }

    fn receive_frame(&mut self) -> Result<Reply, ClientError> {
        let protocol = |error: &dyn ToString| ClientError::Protocol(error.to_string());
        let mut head = [0; HEADER_BYTES];
        self.stream.read_exact(&mut head).map_err(closed)?;
        let header = Header::decode(&head, REPLY_BODY_BYTES_MAX)
            .ok_or_else(|| protocol(&"a header cut short"))?
            .map_err(|malformed| protocol(&malformed))?;
        self.body.clear();
        let length = header.body_bytes as u64;
        // The buffer grows with the bytes that arrive, not with the length in the header.
        let read = self
            .stream
            .by_ref()
            .take(length)
            .read_to_end(&mut self.body)?;
        if read as u64 != length {
            return Err(closed(io::ErrorKind::UnexpectedEof.into()));
        }
        Reply::decode(header, &self.body).map_err(|malformed| protocol(&malformed))
    }
}

fn closed(error: io::Error) -> ClientError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        io::Error::new(error.kind(), "the daemon closed it").into()
    } else {
        error.into()
    }
}
