//! Reads a file or pipe block by block, and decompresses it if necessary. Bytes that a reader does not consume stay for the next block.
//!
//! Each read of a pipe returns all bytes that have arrived. Readers turn each block into one batch, so batches grow with the load by themselves.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, bail, ensure};

use super::ROW_BYTES_MAX;
use super::compression::{Compression, Seen};
use super::members::Members;

/// The length of one read.
const BLOCK_BYTES: usize = 1 << 20;
/// The limit of the temporary file for a compressed input whose format needs seeking.
const UNPACKED_FILE_BYTES_MAX: u64 = 16 << 30;

/// Some programs write it before text in UTF-8.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

pub(crate) struct Blocks {
    file: File,
    /// The decompressor, if the file is compressed; it reads the same open file.
    unpacked: Option<(Compression, Box<dyn Read + Send>)>,
    name: String,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    ended: bool,
    /// The error of the last read; each later read repeats it.
    failed: Option<String>,
    bytes_consumed: u64,
    /// The length of a regular file on disk; `None` for a pipe.
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
            unpacked: None,
            name,
            buffer: Vec::new(),
            start: 0,
            end: 0,
            ended: false,
            failed: None,
            bytes_consumed: 0,
            bytes_total: meta.is_file().then_some(meta.len()),
        })
    }

    /// Starts decompression if the first bytes are those of a compressed file. Call it before anything is consumed.
    pub(crate) fn unpack(&mut self) -> anyhow::Result<Option<Compression>> {
        let compression = loop {
            match Compression::of_bytes(self.data(), self.ended) {
                Seen::Plain => return Ok(None),
                Seen::Compressed(compression) => break compression,
                Seen::Unclear => self.fill()?,
            };
        };
        let first = self.data().to_vec();
        let reader = self.file.try_clone();
        let reader = reader.and_then(|file| Members::new(compression, first, file));
        let reader = reader.with_context(|| format!("cannot unpack {}", self.name))?;
        self.unpacked = Some((compression, Box::new(reader)));
        (self.start, self.end, self.ended) = (0, 0, false);
        Ok(Some(compression))
    }

    /// The name in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The number of bytes; unknown for pipes and compressed files.
    pub(crate) fn bytes_total(&self) -> Option<u64> {
        self.bytes_total.filter(|_| self.unpacked.is_none())
    }

    pub(crate) fn fraction(&self) -> Option<f64> {
        let total = self.bytes_total.filter(|total| *total > 0)?;
        let read = match self.unpacked {
            Some(_) => (&self.file).stream_position().ok()?,
            None => self.bytes_consumed,
        };
        Some(read as f64 / total as f64)
    }

    /// The bytes that were read but not consumed.
    pub(crate) fn data(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    pub(crate) fn consume(&mut self, bytes: usize) {
        let bytes = bytes.min(self.end - self.start);
        self.start += bytes;
        self.bytes_consumed += bytes as u64;
    }

    /// Whether `data` ends with the last byte of the input.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Reads once more; waits for a pipe. Returns false at the end.
    pub(crate) fn fill(&mut self) -> anyhow::Result<bool> {
        if let Some(why) = &self.failed {
            bail!("{why}");
        }
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
        let (read, stopped) = match &mut self.unpacked {
            None => read_once(&mut self.file, space),
            Some((_, reader)) if self.bytes_total.is_none() => read_once(reader, space),
            // Decompressors return few bytes at a time.
            Some((_, reader)) => read_all(reader, space),
        };
        self.end += read;
        match stopped {
            None => {}
            Some(Ok(())) => self.ended = true,
            Some(Err(error)) => {
                let why = match &self.unpacked {
                    Some((compression, _)) if error.raw_os_error().is_none() => {
                        compression.explained(&error)
                    }
                    _ => error.to_string(),
                };
                let why = self
                    .failed
                    .insert(format!("cannot read {}: {why}", self.name));
                ensure!(read > 0, "{why}");
            }
        }
        Ok(read > 0)
    }

    /// Reads until `data` has this many bytes; false if the input ends before.
    pub(crate) fn fill_to(&mut self, bytes: usize) -> anyhow::Result<bool> {
        while self.data().len() < bytes {
            if !self.fill()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the whole input is white space or a byte order mark, so that it has no rows in any format.
    pub(crate) fn is_blank(&mut self) -> anyhow::Result<bool> {
        while is_blank(self.data()) && self.data().len() <= ROW_BYTES_MAX {
            if !self.fill()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Consumes the byte order mark of a text, if it has one.
    pub(crate) fn skip_byte_order_mark(&mut self) -> anyhow::Result<()> {
        while self.data().len() < BYTE_ORDER_MARK.len()
            && BYTE_ORDER_MARK.starts_with(self.data())
            && self.fill()?
        {}
        if self.data().starts_with(BYTE_ORDER_MARK) {
            self.consume(BYTE_ORDER_MARK.len());
        }
        Ok(())
    }

    /// A seekable file with all bytes: the file itself, or an unnamed temporary copy of a pipe or of the decompressed bytes.
    pub(crate) fn into_seekable(mut self) -> anyhow::Result<File> {
        let mut file = match (self.bytes_total, &self.unpacked) {
            (Some(_), None) => self.file,
            _ => self.spooled(UNPACKED_FILE_BYTES_MAX)?,
        };
        file.rewind()?;
        Ok(file)
    }

    /// Copies all bytes into an unnamed temporary file; an error if a compressed file unpacks to more than `unpacked_bytes_max`.
    fn spooled(&mut self, unpacked_bytes_max: u64) -> anyhow::Result<File> {
        let failed = |name: &str| {
            let folder = std::env::temp_dir();
            format!(
                "cannot copy {name} to a temporary file in '{}' (TMPDIR names the folder)",
                folder.display()
            )
        };
        let mut spooled = tempfile::tempfile().with_context(|| failed(&self.name))?;
        let mut bytes = 0;
        loop {
            let written = io::Write::write_all(&mut spooled, self.data());
            written.with_context(|| failed(&self.name))?;
            bytes += self.data().len() as u64;
            self.consume(self.data().len());
            if let Some((compression, _)) = &self.unpacked {
                ensure!(
                    bytes <= unpacked_bytes_max,
                    "cannot read {}: it unpacks to more than {unpacked_bytes_max} bytes, the limit for its format; unpack it with '{} -d' and load the result",
                    self.name,
                    compression.program()
                );
            }
            if !self.fill()? {
                return Ok(spooled);
            }
        }
    }
}

fn is_blank(data: &[u8]) -> bool {
    let text = data.strip_prefix(BYTE_ORDER_MARK).unwrap_or(data);
    BYTE_ORDER_MARK.starts_with(text) || text.iter().all(u8::is_ascii_whitespace)
}

/// The number of bytes that were read, and the end or the error that stopped reading.
type ReadBytes = (usize, Option<io::Result<()>>);

fn read_once(reader: &mut impl Read, space: &mut [u8]) -> ReadBytes {
    loop {
        match reader.read(space) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (0, Some(Err(error))),
            Ok(0) => return (0, Some(Ok(()))),
            Ok(read) => return (read, None),
        }
    }
}

/// Reads until the space is full.
fn read_all(reader: &mut impl Read, space: &mut [u8]) -> ReadBytes {
    let mut read = 0;
    while let Some(space) = space.get_mut(read..).filter(|space| !space.is_empty()) {
        let (more, stopped) = read_once(reader, space);
        read += more;
        if stopped.is_some() {
            return (read, stopped);
        }
    }
    (read, None)
}

/// Whether an input can be read only once: standard input, or a pipe.
pub fn is_stream(path: &Path) -> bool {
    path == Path::new("-") || fs::metadata(path).is_ok_and(|meta| !meta.is_file() && !meta.is_dir())
}

/// The name of an input in messages.
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
        assert_eq!(blocks.bytes_total(), None);
        writer.write_all(b"abc").unwrap();
        assert!(blocks.fill().unwrap());
        assert_eq!(blocks.data(), b"abc");
        drop(writer);
        assert!(!blocks.fill().unwrap());
    }

    /// Blocks of a file that is compressed.
    fn packed(bytes: &[u8]) -> (tempfile::NamedTempFile, Blocks) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&zstd::encode_all(bytes, 1).unwrap())
            .unwrap();
        let mut blocks = Blocks::open(file.path()).unwrap();
        assert_eq!(blocks.unpack().unwrap(), Some(Compression::Zstd));
        (file, blocks)
    }

    #[test]
    fn a_compressed_file_is_copied_unpacked_up_to_a_limit() {
        let bytes = vec![b'x'; 3 * BLOCK_BYTES];
        let mut copy = Vec::new();
        let mut file = packed(&bytes).1.into_seekable().unwrap();
        file.read_to_end(&mut copy).unwrap();
        assert!(copy == bytes);
        let spooled = packed(&bytes).1.spooled(2_000_000);
        let error = spooled.err().unwrap().to_string();
        assert!(
            error.contains("it unpacks to more than 2000000 bytes, the limit for its format; unpack it with 'zstd -d'"),
            "{error}"
        );
    }

    #[test]
    fn progress_goes_by_the_bytes_on_disk() {
        let text: Vec<u8> = (0..8 * BLOCK_BYTES as u64)
            .map(|at| (at.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8)
            .collect();
        let (_file, mut blocks) = packed(&text);
        let mut last = 0.0;
        while blocks.fill().unwrap() {
            let fraction = blocks.fraction().unwrap();
            assert!((last..=1.0).contains(&fraction), "{last} {fraction}");
            last = fraction;
            blocks.consume(usize::MAX);
        }
        assert_eq!(last, 1.0);
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Blocks::open(Path::new("no/such/file.csv")).err().unwrap();
        assert!(format!("{error:#}").starts_with("cannot open 'no/such/file.csv': "));
    }
}
