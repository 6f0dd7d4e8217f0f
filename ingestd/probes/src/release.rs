//! Compares the kernel's release with the one that a capture needs.

use std::fmt;

use crate::ProbeError;

/// The first two numbers of a release.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Release(pub u32, pub u32);

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// Fails if the kernel is older. `what` names the capture.
pub(crate) fn require_release(what: &'static str, least: Release) -> Result<(), ProbeError> {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse().ok());
    let own = Release(numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if own >= least {
        return Ok(());
    }
    Err(ProbeError::Release {
        what,
        least: least.to_string(),
        release,
    })
}
