//! Who may come near: the modes and the group of the directory, and the socket itself.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use rustix::fs::{Gid, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::DaemonError;
use crate::config::{AccessConfig, SocketAccess};
use crate::socket::{SOCKET_NAME, with_socket_path};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Lets the group read what the directory holds already; the engine makes new files so from the start.
pub(super) fn share(dir: &Path, group: u32) -> Result<(), DaemonError> {
    let entries =
        std::fs::read_dir(dir).and_then(|entries| entries.collect::<io::Result<Vec<_>>>());
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| DaemonError::Io { path, source }
    };
    for entry in entries.map_err(failed(dir))? {
        let path = entry.path();
        let kind = entry.file_type().map_err(failed(&path))?;
        let mode = match (kind.is_dir(), kind.is_file()) {
            (true, _) => 0o750,
            (_, true) => 0o640,
            _ => continue,
        };
        rustix::fs::chown(&path, None, Some(Gid::from_raw(group)))
            .and_then(|()| rustix::fs::chmod(&path, Mode::from_raw_mode(mode)))
            .map_err(|error| failed(&path)(error.into()))?;
        if kind.is_dir() {
            share(&path, group)?;
        }
    }
    Ok(())
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
