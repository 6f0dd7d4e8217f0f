//! A failure of the flusher, by its remedy.

use std::io;

use crate::error::Error;

#[derive(Debug)]
pub enum Fault {
    /// Space, quota, open files or memory is missing and may come back. The flusher tries again.
    Passing(Error),
    /// Anything else.
    Final(Error),
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        if passes(&error) {
            Fault::Passing(error)
        } else {
            Fault::Final(error)
        }
    }
}

fn passes(error: &Error) -> bool {
    let Error::Io { source, .. } = error else {
        return false;
    };
    let kind = source.kind();
    error.is_for_space()
        || matches!(kind, io::ErrorKind::OutOfMemory | io::ErrorKind::WouldBlock)
        || matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
