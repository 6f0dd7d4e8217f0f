//! The bytes of a file or pipe, a block at a time, with what is not consumed carried over to the next.
//!
//! A pipe gives what has arrived, so a reader that turns each fill into one batch neither waits for more nor makes
//! batches of one row while bytes queue up: batches grow with the load by themselves.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// How much one fill asks for.
const BLOCK_BYTES: usize = 1 << 20;

pub(crate) struct Blocks {
    file: File,
    name: String,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    bytes_consumed: u64,
    /// Of a regular file; a pipe has no length.
    bytes_total: Option<u64>,
}

impl Blocks {
    /// Opens a path, or standard input for `-`.
    pub(crate) fn open(path: &Path) -> anyhow::Result<Blocks> {
        let name = input_name(path);
        let opened = if path == Path::new("-") {
            io::stdin().as_fd().try_clone_to_owned().map(File::from)
        } else {
            File::open(path)
        };
        let failed = || format!("cannot open {name}");
        let file = opened.with_context(failed)?;
        let meta = file.metadata().with_context(failed)?;
        if meta.is_dir() {
            bail!("cannot load {name}: it is a directory; name the files in it");
        }
        Ok(Blocks {
            file,
            name,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            ended: false,
            bytes_consumed: 0,
            bytes_total: meta.is_file().then_some(meta.len()),
        })
    }

    /// What messages call it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is a pipe, terminal or socket: its end is not known yet.
    pub(crate) fn is_stream(&self) -> bool {
        self.bytes_total.is_none()
    }

    /// The length of a regular file.
    pub(crate) fn bytes_total(&self) -> Option<u64> {
        self.bytes_total
    }

    pub(crate) fn fraction(&self) -> Option<f64> {
        let total = self.bytes_total.filter(|total| *total > 0)?;
        Some(self.bytes_consumed as f64 / total as f64)
    }

    /// The bytes that were read and not consumed.
    pub(crate) fn data(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.bytes_consumed += bytes as u64;
    }

    /// Whether the end was seen: `data` is all there is.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Reads once more, waiting where nothing has come. False at the end.
    pub(crate) fn fill(&mut self) -> anyhow::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.buffer.len() < self.end + BLOCK_BYTES {
            self.buffer.resize(self.end + BLOCK_BYTES, 0);
        }
        let space = self.buffer.get_mut(self.end..).unwrap_or_default();
        let read = loop {
            match self.file.read(space) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.with_context(|| format!("cannot read {}", self.name))?,
            }
        };
        self.end += read;
        self.ended = read == 0;
        Ok(read > 0)
    }

    /// Fills until `bytes` are there; false if the end comes before.
    pub(crate) fn fill_to(&mut self, bytes: usize) -> anyhow::Result<bool> {
        while self.data().len() < bytes {
            if !self.fill()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether a fill would return at once, within the time given.
    pub(crate) fn ready(&self, wait: Duration) -> bool {
        if !self.is_stream() || self.ended {
            return true;
        }
        let wait = Timespec {
            tv_sec: wait.as_secs() as i64,
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let mut polled = [PollFd::new(&self.file, PollFlags::IN)];
        poll(&mut polled, Some(&wait)).is_ok_and(|ready| ready > 0)
    }

    /// A file that can be read at any place, from its beginning: the file itself, or a pipe's bytes in a nameless
    /// temporary one.
    pub(crate) fn into_seekable(mut self) -> anyhow::Result<File> {
        let mut file = match self.bytes_total {
            Some(_) => self.file,
            None => {
                let copied = self.spooled();
                copied.with_context(|| {
                    let folder = std::env::temp_dir();
                    format!(
                        "cannot copy {} to a temporary file in '{}' (TMPDIR names the folder)",
                        self.name,
                        folder.display()
                    )
                })?
            }
        };
        file.rewind()?;
        Ok(file)
    }

    /// All of a pipe, in a file that has no name.
    fn spooled(&mut self) -> io::Result<File> {
        let mut spooled = tempfile::tempfile()?;
        io::Write::write_all(&mut spooled, self.data())?;
        self.consume(self.data().len());
        io::copy(&mut self.file, &mut spooled)?;
        Ok(spooled)
    }
}

/// What messages call the input at a path.
pub(super) fn input_name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    format!("'{}'", path.display())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_not_consumed_is_carried_over() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES).map(|i| (i % 251) as u8).collect();
        file.write_all(&bytes).unwrap();
        let mut blocks = Blocks::open(file.path()).unwrap();
        let mut seen = Vec::new();
        while blocks.fill().unwrap() {
            let take = blocks.data().len() / 2;
            seen.extend_from_slice(&blocks.data()[..take]);
            blocks.consume(take);
        }
        seen.extend_from_slice(blocks.data());
        assert!(seen == bytes);
        assert!(blocks.ended());
    }

    #[test]
    fn a_pipe_gives_what_has_come() {
        let (reader, mut writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
        let mut blocks = Blocks::open(Path::new(&path)).unwrap();
        assert!(blocks.is_stream());
        assert!(!blocks.ready(Duration::ZERO));
        writer.write_all(b"abc").unwrap();
        assert!(blocks.ready(Duration::ZERO));
        assert!(blocks.fill().unwrap());
        assert_eq!(blocks.data(), b"abc");
        drop(writer);
        assert!(!blocks.fill().unwrap());
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Blocks::open(Path::new("no/such/file.csv")).err().unwrap();
        assert!(format!("{error:#}").starts_with("cannot open 'no/such/file.csv': "));
    }
}
