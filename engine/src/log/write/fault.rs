//! A failure of the flusher, by its remedy.

use std::io;

use rustix::io::Errno;

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
    const WANTS: [Errno; 7] = [
        Errno::NOSPC,
        Errno::DQUOT,
        Errno::FBIG,
        Errno::MFILE,
        Errno::NFILE,
        Errno::NOMEM,
        Errno::AGAIN,
    ];
    let Error::Io { source, .. } = error else {
        return false;
    };
    let known = source
        .raw_os_error()
        .is_some_and(|code| WANTS.iter().any(|errno| errno.raw_os_error() == code));
    known || source.kind() == io::ErrorKind::StorageFull
}
