//! Who may come near: the modes and the group of the directory, and the socket itself.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use loom_engine::log::Access;
use rustix::fs::{Gid, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::DaemonError;
use crate::config::{AccessConfig, SocketAccess};
use crate::socket::{SOCKET_NAME, with_socket_path};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Gives what the directory holds of Loom's already its modes and group; the engine makes new files so from the start.
pub(super) fn share(dir: &Path, group: Option<u32>) -> Result<(), DaemonError> {
    for error in Access::new(group).set_all(dir) {
        if group.is_some() {
            return Err(error.into());
        }
        tracing::warn!("{error}; its mode or group stays, so others than its owner may read it");
    }
    Ok(())
}

/// Why a directory, as it is found, is not the daemon's alone.
pub(super) fn distrusted(dir: &Path) -> Vec<String> {
    let Ok(found) = std::fs::metadata(dir) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    let (name, user) = (dir.display(), rustix::process::geteuid().as_raw());
    if found.uid() != user {
        notes.push(format!(
            "{name} belongs to user {}, who may put anything in the place of what user {user}, who runs this daemon, keeps \
             there; give it to user {user} with chown",
            found.uid()
        ));
    }
    if found.mode() & 0o022 != 0 {
        notes.push(format!(
            "{name} had mode {:04o} when this daemon started: others than its owner could write to it, and put anything there",
            found.mode() & 0o7777
        ));
    }
    notes
}

/// Makes the directory's socket, in place of one that a killed daemon left.
///
/// Its mode is set before it has a name, so there is no moment in which others could connect.
pub(super) fn bind(
    dir: &Path,
    access: &AccessConfig,
    group: Option<u32>,
) -> Result<UnixListener, DaemonError> {
    let path = dir.join(SOCKET_NAME);
    let failed = |source: io::Error| DaemonError::Io {
        path: path.clone(),
        source,
    };
    match std::fs::symlink_metadata(&path) {
        Ok(found) if found.file_type().is_socket() => {
            std::fs::remove_file(&path).map_err(failed)?
        }
        Ok(_) => {
            return Err(failed(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "something that is no socket stands in its place; move it away",
            )));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|error| failed(error.into()))?;
    let for_group = access.socket == SocketAccess::Group;
    let mode = Mode::from_raw_mode(if for_group { 0o660 } else { 0o600 });
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))
        .map_err(|error| failed(error.into()))?;
    with_socket_path(dir, |path| {
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        if for_group {
            rustix::fs::chown(path, None, group.map(Gid::from_raw))?;
        }
        rustix::fs::chmod(path, mode)?;
        Ok(())
    })
    .and_then(|()| Ok(rustix::net::listen(&socket, BACKLOG)?))
    .map_err(failed)?;
    Ok(UnixListener::from(socket))
}

/// Whether the process at the other end may push: the owner of the daemon and root, or whoever the socket's own mode
/// lets in where a group may push.
pub(super) fn may_push(stream: &UnixStream, access: &AccessConfig) -> bool {
    if access.socket == SocketAccess::Group {
        return true;
    }
    match rustix::net::sockopt::socket_peercred(stream) {
        Ok(peer) => peer.uid.is_root() || peer.uid == rustix::process::geteuid(),
        Err(_) => false,
    }
}
