//! Compressed inputs: which compression the first bytes show, and a reader of what they unpack to.
//!
//! `blocks` unpacks through this file, whatever format is inside. A reader streams, reads every member and frame of the file, and takes
//! no more memory than its limit.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::GzDecoder;
use liblzma::bufread::XzDecoder;
use liblzma::stream::{CONCATENATED, Stream};

/// How much of a compressed file is read at a time.
const PACKED_BLOCK_BYTES: usize = 256 << 10;
/// The base-2 logarithm of the longest zstd window that is unpacked, in bytes. It is zstd's own default.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The most memory that unpacking xz may take. The strongest level of xz needs 65 MiB.
const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// The ways in which a whole input may be compressed.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

/// What the first bytes show.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Compressed(Compression),
    Plain,
    /// More bytes decide.
    Unclear,
}

use Compression::{Bzip2, Gzip, Xz, Zstd};

/// The first bytes of each. A `.bz2` file names its block size and begins with a block, or ends at once.
const MARKS: [(Compression, &[u8]); 4] = [
    (Gzip, b"\x1F\x8B\x08"),
    (Zstd, b"\x28\xB5\x2F\xFD"),
    (Xz, b"\xFD7zXZ\0"),
    (Bzip2, b"BZh?1AY&SY"),
];
const EMPTY_BZIP2: &[u8] = b"BZh?\x17\x72\x45\x38\x50\x90";
/// A frame of zstd that readers skip, of which the first byte is from 0x50 to 0x5F; `pzstd` begins with one.
const SKIPPED_ZSTD: &[u8] = b"?\x2A\x4D\x18";

impl Compression {
    /// By the first bytes; `ended`: there are no more.
    pub(super) fn of_bytes(bytes: &[u8], ended: bool) -> Seen {
        let mut unclear = false;
        let skipped = bytes.first().filter(|byte| (0x50..=0x5F).contains(*byte));
        let skipped = skipped.map(|_| (Zstd, SKIPPED_ZSTD));
        for (compression, mark) in MARKS
            .into_iter()
            .chain([(Bzip2, EMPTY_BZIP2)])
            .chain(skipped)
        {
            let fits = |(byte, mark): (&u8, &u8)| byte == mark || *mark == b'?';
            if !bytes.iter().zip(mark).all(fits) {
                continue;
            }
            if bytes.len() >= mark.len() {
                return Seen::Compressed(compression);
            }
            unclear = true;
        }
        match unclear && !ended {
            true => Seen::Unclear,
            false => Seen::Plain,
        }
    }

    /// By the end of a name.
    pub(super) fn of_name(path: &Path) -> Option<Compression> {
        let extension = path.extension()?.to_str()?.to_ascii_lowercase();
        Some(match extension.as_str() {
            "gz" => Gzip,
            "zst" | "zstd" => Zstd,
            "bz2" => Bzip2,
            "xz" => Xz,
            _ => return None,
        })
    }

    /// The program that packs and unpacks it, which is also its name in messages.
    pub(super) fn program(self) -> &'static str {
        match self {
            Gzip => "gzip",
            Zstd => "zstd",
            Bzip2 => "bzip2",
            Xz => "xz",
        }
    }

    /// Reads what `first` and the rest of the file unpack to.
    pub(super) fn unpack(self, first: Vec<u8>, file: File) -> io::Result<Box<dyn Read + Send>> {
        let packed = BufReader::with_capacity(PACKED_BLOCK_BYTES, Cursor::new(first).chain(file));
        Ok(match self {
            Gzip => Box::new(Members(Some(GzDecoder::new(packed)))),
            Bzip2 => Box::new(MultiBzDecoder::new(packed)),
            Xz => {
                let stream = Stream::new_stream_decoder(XZ_MEMORY_BYTES_MAX, CONCATENATED)?;
                Box::new(XzDecoder::new_stream(packed, stream))
            }
            Zstd => {
                let mut decoder = zstd::Decoder::with_buffer(packed)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
        })
    }

    /// What is wrong with the input when unpacking fails with this error, and what to do.
    pub(super) fn explained(self, error: &io::Error) -> String {
        let program = self.program();
        let why = error.to_string();
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return format!(
                "its {program} data ends too early: the file is cut short; get it again"
            );
        }
        match self {
            Zstd if why.contains("too much memory") => format!(
                "unpacking it takes more than {} MiB of memory; unpack it with 'zstd -dc --long=31 FILE | ingestd load … -'",
                1 << (ZSTD_WINDOW_LOG_MAX - 20)
            ),
            Xz if why.contains("memory") => format!(
                "unpacking it takes more than {} MiB of memory; unpack it with 'xz -dc FILE | ingestd load … -'",
                XZ_MEMORY_BYTES_MAX >> 20
            ),
            _ => format!("its {program} data is damaged: {why}; check it with '{program} -t'"),
        }
    }
}

/// The members of a gzip file, one after the other. Zeroes behind the last, with which tapes are filled up, are none.
struct Members<R>(Option<GzDecoder<R>>);

impl<R: BufRead> Read for Members<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.0 {
            let read = member.read(buffer)?;
            if read > 0 || buffer.is_empty() {
                return Ok(read);
            }
            let Some(member) = self.0.take() else { break };
            let mut rest = member.into_inner();
            let mut zeroes = 0;
            loop {
                let bytes = rest.fill_buf()?;
                let count = bytes.iter().take_while(|byte| **byte == 0).count();
                match (bytes.is_empty(), count) {
                    (true, _) => return Ok(0),
                    (false, 0) if zeroes == 0 => break,
                    (false, 0) => {
                        return Err(io::Error::new(
                            io::ErrorKind::InvalidData,
                            "zeroes stand between its members",
                        ));
                    }
                    (false, count) => zeroes += count,
                }
                rest.consume(count);
            }
            self.0 = Some(GzDecoder::new(rest));
        }
        Ok(0)
    }
}

/// The path without the ending of a compression: the name of what is inside.
pub(super) fn inner_name(path: &Path) -> &Path {
    match (Compression::of_name(path), path.file_stem()) {
        (Some(_), Some(stem)) => Path::new(stem),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compression_is_seen_by_its_first_bytes_and_no_sooner() {
        for (bytes, seen) in [
            (&b"\x1F\x8B\x08\0"[..], Seen::Compressed(Gzip)),
            (b"\x28\xB5\x2F\xFD", Seen::Compressed(Zstd)),
            (b"\xFD7zXZ\0\0", Seen::Compressed(Xz)),
            (b"BZh91AY&SY", Seen::Compressed(Bzip2)),
            (b"BZh1\x17\x72\x45\x38\x50\x90", Seen::Compressed(Bzip2)),
            (b"\x50\x2A\x4D\x18", Seen::Compressed(Zstd)),
            (b"BZh,b\n1,2\n", Seen::Plain),
            (b"PAR1", Seen::Plain),
            (b"a", Seen::Plain),
            (b"", Seen::Unclear),
            (b"B", Seen::Unclear),
            (b"\x1F\x8B", Seen::Unclear),
        ] {
            assert_eq!(Compression::of_bytes(bytes, false), seen, "{bytes:?}");
        }
        assert_eq!(Compression::of_bytes(b"BZ", true), Seen::Plain);
    }

    #[test]
    fn the_inner_name_says_the_format() {
        for (name, inner) in [
            ("a/b.csv.gz", "b.csv"),
            ("b.jsonl.ZST", "b.jsonl"),
            ("b.csv", "b.csv"),
            ("gz", "gz"),
        ] {
            assert_eq!(inner_name(Path::new(name)), Path::new(inner));
        }
    }
}
