//! The path of a Loom directory's socket, however long the directory's path is.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The socket's name in its directory.
pub const SOCKET_NAME: &str = "ingest.sock";
/// A socket address has 108 bytes, with the closing NUL. Until a socket listens, `.tmp` follows its name.
const PATH_BYTES_MAX: usize = 107 - ".tmp".len();

/// Calls `f` with a path to the directory's socket that fits a socket address.
///
/// A longer path goes through a descriptor of the directory, which is open during the call.
pub fn with_socket_path<T>(dir: &Path, f: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = dir.join(SOCKET_NAME);
    if path.as_os_str().len() <= PATH_BYTES_MAX {
        return f(&path);
    }
    let open = File::options()
        .read(true)
        .custom_flags((OFlags::DIRECTORY | OFlags::CLOEXEC).bits() as i32)
        .open(dir)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd())).join(SOCKET_NAME);
    f(&short)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_directory_with_a_long_path_has_a_socket_too() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("d".repeat(120)).join("e".repeat(120));
        std::fs::create_dir_all(&dir).unwrap();
        let _listener = with_socket_path(&dir, |path| UnixListener::bind(path)).unwrap();
        assert!(dir.join(SOCKET_NAME).exists());
        with_socket_path(&dir, |path| UnixStream::connect(path)).unwrap();
    }
}
