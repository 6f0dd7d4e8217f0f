//! The destination of an export: a file of a disk, a pipe or a device that has a path, standard output, or a receiver over HTTP.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    File(PathBuf),
    Stdout,
    /// The URL of a receiver.
    Endpoint(String),
}

/// `-` is standard output, and a URL is a receiver.
impl From<OsString> for Out {
    fn from(text: OsString) -> Out {
        match text.to_str() {
            Some("-" | "/dev/stdout") => Out::Stdout,
            Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
                Out::Endpoint(url.to_owned())
            }
            _ => Out::File(text.into()),
        }
    }
}

impl fmt::Display for Out {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Out::File(path) => write!(f, "'{}'", path.display()),
            Out::Stdout => f.write_str("to standard output"),
            Out::Endpoint(url) => write!(f, "'{url}'"),
        }
    }
}

impl Out {
    /// The path of a file of a disk, which may be renamed, made durable and read back.
    pub(super) fn kept(&self) -> Option<&Path> {
        match self {
            Out::File(path) => {
                // Others are pipes, sockets and devices.
                let is_kept = |about: fs::Metadata| about.is_file() || about.is_dir();
                let is_kept = fs::metadata(path).ok().is_none_or(is_kept);
                is_kept.then_some(path.as_path())
            }
            Out::Stdout | Out::Endpoint(_) => None,
        }
    }

    /// Opens the destination; a file begins again.
    pub(super) fn open(&self) -> io::Result<File> {
        match self {
            Out::File(path) => File::create(path),
            Out::Stdout => Ok(io::stdout().as_fd().try_clone_to_owned()?.into()),
            Out::Endpoint(_) => Err(io::Error::other(
                "only OTLP goes to an address; give a file, or --format otlp",
            )),
        }
    }
}
