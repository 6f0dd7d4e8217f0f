//! Decompresses the members of a file one after the other. Members are gzip members, zstd frames, bzip2 streams and xz streams.
//!
//! `blocks` reads through this file. Each member is read to its end before the next is looked for, so that bytes after the last member are not
//! mistaken for truncated data.

use std::fs::File;
use std::io::{self, BufRead, Chain, Cursor, Read};

use bzip2::bufread::BzDecoder;
use flate2::bufread::GzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::Stream;
use loom_engine::proven::{at, at_mut};

use super::compression::{
    Compression, FOLLOWED, MARK_BYTES_MAX, XZ_MEMORY_BYTES_MAX, ZSTD_WINDOW_LOG_MAX,
};

/// The length of one read of the compressed file.
const PACKED_BLOCK_BYTES: usize = 256 << 10;

const ZEROES_BETWEEN: &str = "zeroes stand between its members";

/// The decompressed bytes of all members.
pub(super) struct Members {
    compression: Compression,
    /// `None` after the last one.
    member: Option<Member>,
}

impl Members {
    /// `first` are the bytes of the file that were read already.
    pub(super) fn new(compression: Compression, first: Vec<u8>, file: File) -> io::Result<Members> {
        let packed = Packed {
            source: Cursor::new(first).chain(file),
            buffer: Vec::new(),
            start: 0,
        };
        Ok(Members {
            compression,
            member: Some(Member::begin(compression, packed)?),
        })
    }

    /// The next member, or `None` at the end. Tapes pad the end with zeroes.
    fn next(&self, mut packed: Packed) -> io::Result<Option<Member>> {
        let padding = packed.skip_zeroes()?;
        let rest = packed.peek(MARK_BYTES_MAX)?;
        if rest.is_empty() {
            return Ok(None);
        }
        let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        if !self.compression.may_begin(rest) {
            return wrong(FOLLOWED);
        }
        if padding > 0 && self.compression != Compression::Xz {
            return wrong(ZEROES_BETWEEN);
        }
        Member::begin(self.compression, packed).map(Some)
    }
}

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            if let Some(member) = self.member.take() {
                self.member = self.next(member.into_packed())?;
            }
        }
        Ok(0)
    }
}

/// The decoder of the current member.
enum Member {
    Gzip(GzDecoder<Packed>),
    Zstd(zstd::Decoder<'static, Packed>),
    Bzip2(BzDecoder<Packed>),
    Xz(XzDecoder<Packed>),
}

impl Member {
    fn begin(compression: Compression, packed: Packed) -> io::Result<Member> {
        Ok(match compression {
            Compression::Gzip => Member::Gzip(GzDecoder::new(packed)),
            Compression::Bzip2 => Member::Bzip2(BzDecoder::new(packed)),
            Compression::Xz => {
                let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, 0)?;
                Member::Xz(XzDecoder::new_stream(packed, stream))
            }
            Compression::Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(packed)?.single_frame();
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Member::Zstd(decoder)
            }
        })
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Member::Gzip(decoder) => decoder.read(buffer),
            Member::Zstd(decoder) => decoder.read(buffer),
            Member::Bzip2(decoder) => decoder.read(buffer),
            Member::Xz(decoder) => decoder.read(buffer),
        }
    }

    /// The input after the member.
    fn into_packed(self) -> Packed {
        match self {
            Member::Gzip(decoder) => decoder.into_inner(),
            Member::Zstd(decoder) => decoder.finish(),
            Member::Bzip2(decoder) => decoder.into_inner(),
            Member::Xz(decoder) => decoder.into_inner(),
        }
    }
}

/// The compressed bytes, with look-ahead.
struct Packed {
    source: Chain<Cursor<Vec<u8>>, File>,
    buffer: Vec<u8>,
    /// The position of the first unread byte in the buffer.
    start: usize,
}

impl Packed {
    fn rest(&self) -> &[u8] {
        at(&self.buffer, self.start..)
    }

    /// At least this many of the next bytes, or all that follow.
    fn peek(&mut self, bytes: usize) -> io::Result<&[u8]> {
        while self.rest().len() < bytes && self.more()? {}
        Ok(self.rest())
    }

    fn skip_zeroes(&mut self) -> io::Result<usize> {
        let mut skipped = 0;
        loop {
            let rest = self.peek(1)?;
            let zeroes = rest.iter().take_while(|byte| **byte == 0).count();
            if zeroes == 0 {
                return Ok(skipped);
            }
            self.consume(zeroes);
            skipped += zeroes;
        }
    }

    /// Reads the next block; false at the end.
    fn more(&mut self) -> io::Result<bool> {
        self.buffer.drain(..self.start);
        self.start = 0;
        let held = self.buffer.len();
        self.buffer.resize(held + PACKED_BLOCK_BYTES, 0);
        let read = loop {
            match self.source.read(at_mut(&mut self.buffer, held..)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read,
            }
        };
        self.buffer.truncate(held + read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }
}

impl Read for Packed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(buffer)?;
        self.consume(read);
        Ok(read)
    }
}

impl BufRead for Packed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.peek(1)
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
    }
}
