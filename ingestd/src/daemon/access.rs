//! Access to the directory: the modes and the group of its files, and the socket with its checks.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use loom_engine::log::Access;
use rustix::fs::{Gid, Mode};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::error::DaemonError;
use super::peer_user::peer_user;
use crate::config::{AccessConfig, SocketAccess};
use crate::socket::{SOCKET_NAME, with_socket_path};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Sets modes and group of Loom's existing files; the engine creates new files with them.
pub(super) fn share(dir: &Path, group: Option<u32>) -> Result<(), DaemonError> {
    for error in Access::new(group).set_all(dir) {
        if group.is_some() {
            return Err(error.into());
        }
        tracing::warn!(
            "{error}; its mode and group stay, so users other than its owner may read it"
        );
    }
    Ok(())
}

/// Refuses a group that this process may not give files to: it must be a member, or root.
pub(super) fn may_share(group: Option<u32>) -> Result<(), String> {
    let Some(group) = group.map(Gid::from_raw) else {
        return Ok(());
    };
    let own = rustix::process::getegid();
    let others = rustix::process::getgroups()
        .map_err(|error| format!("cannot read the groups of this daemon's user: {error}"))?;
    if own == group || others.contains(&group) || rustix::process::geteuid().is_root() {
        return Ok(());
    }
    Err(format!(
        "this daemon's user is not in group {}, so it cannot share the directory; add the user to the group, or change [access] group",
        group.as_raw()
    ))
}

/// Says why users other than the daemon's may have changed a directory.
pub(super) fn distrusted(dir: &Path) -> Vec<String> {
    let Ok(found) = std::fs::metadata(dir) else {
        return Vec::new();
    };
    let mut notes = Vec::new();
    let (name, user) = (dir.display(), rustix::process::geteuid().as_raw());
    if found.uid() != user {
        notes.push(format!(
            "{name} belongs to user {}, who can replace every file that this daemon, of user {user}, writes there; run 'chown {user} {name}'",
            found.uid()
        ));
    }
    if found.mode() & 0o022 != 0 {
        notes.push(format!(
            "{name} had mode {:04o} when this daemon started: other users could write to it; check that its files are yours",
            found.mode() & 0o7777
        ));
    }
    notes
}

/// Creates the directory's socket, in place of a killed daemon's.
///
/// It gets its name when it listens, so whoever finds it can connect. Its mode is set before it has any name, so others cannot
/// connect at any moment.
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
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => {
            return Err(failed(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "a file that is not a socket has this name; move it away",
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
        let unfinished = path.with_extension("sock.tmp");
        match std::fs::remove_file(&unfinished) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        rustix::net::bind(&socket, &SocketAddrUnix::new(&unfinished)?)?;
        if for_group {
            rustix::fs::chown(&unfinished, None, group.map(Gid::from_raw))?;
        }
        rustix::fs::chmod(&unfinished, mode)?;
        rustix::net::listen(&socket, BACKLOG)?;
        std::fs::rename(&unfinished, path)
    })
    .map_err(failed)?;
    Ok(UnixListener::from(socket))
}

/// True if the process at the other end may push: the daemon's user and root may. Where a group may push, the mode of the socket
/// decides.
pub(super) fn may_push(stream: &UnixStream, access: &AccessConfig) -> bool {
    if access.socket == SocketAccess::Group {
        return true;
    }
    is_own(stream)
}

/// Refuses a process that is not of the daemon's user or root: a pin makes the oldest pins go, so a client that may only push could remove those of
/// alerts.
pub(super) fn may_pin(stream: &UnixStream) -> Result<(), String> {
    match is_own(stream) {
        true => Ok(()),
        false => Err(format!(
            "only user {}, who runs the daemon, and root may pin, because a pin can make those of alerts go; run the command as that user",
            rustix::process::geteuid().as_raw()
        )),
    }
}

fn is_own(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    peer_user(stream).is_ok_and(|user| user == 0 || user == own)
}
