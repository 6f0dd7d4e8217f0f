//! Recognises compressions by the first bytes, limits their memory, and explains their errors.
//!
//! `blocks` calls it, whatever format is inside, and decompresses with `members`.

use std::io;
use std::path::Path;

/// The base-2 logarithm of the longest accepted zstd window in bytes, which is zstd's own default.
pub(super) const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// The memory limit of the xz decoder. The strongest level of xz needs 65 MiB.
pub(super) const XZ_MEMORY_BYTES_MAX: u64 = 256 << 20;

/// The error if no member begins after the last one.
pub(super) const FOLLOWED: &str = "something else follows";

/// The compression of a whole input.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum Compression {
    Gzip,
    Zstd,
    Bzip2,
    Xz,
}

/// The result of looking at the first bytes.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Seen {
    Compressed(Compression),
    Plain,
    /// More bytes are needed.
    Unclear,
}

use Compression::{Bzip2, Gzip, Xz, Zstd};

/// The first bytes of each compression; `?` matches any byte. A `.bz2` file has its block size in the fourth byte and then a block or the end mark.
/// Frames that zstd readers skip (`pzstd` writes one first) begin with a byte from 0x50 to 0x5F.
const MARKS: [(Compression, &[u8]); 6] = [
    (Gzip, b"\x1F\x8B\x08"),
    (Zstd, b"\x28\xB5\x2F\xFD"),
    (Zstd, b"?\x2A\x4D\x18"),
    (Xz, b"\xFD7zXZ\0"),
    (Bzip2, b"BZh?1AY&SY"),
    (Bzip2, b"BZh?\x17\x72\x45\x38\x50\x90"),
];
/// The length of the longest mark.
pub(super) const MARK_BYTES_MAX: usize = 10;

/// The marks that the bytes match so far.
fn marks(bytes: &[u8]) -> impl Iterator<Item = (Compression, &'static [u8])> {
    let is_skipped = matches!(bytes.first(), Some(0x50..=0x5F));
    let fits = |(byte, mark): (&u8, &u8)| byte == mark || *mark == b'?';
    MARKS.into_iter().filter(move |(_, mark)| {
        bytes.iter().zip(*mark).all(fits) && (is_skipped || !mark.starts_with(b"?"))
    })
}

impl Compression {
    /// Recognises a compression by the first bytes; `ended` says that no more follow.
    pub(super) fn of_bytes(bytes: &[u8], ended: bool) -> Seen {
        if let Some((seen, _)) = marks(bytes).find(|(_, mark)| bytes.len() >= mark.len()) {
            return Seen::Compressed(seen);
        }
        match marks(bytes).next() {
            Some(_) if !ended => Seen::Unclear,
            _ => Seen::Plain,
        }
    }

    /// Whether a member of this compression may begin with these bytes.
    pub(super) fn may_begin(self, bytes: &[u8]) -> bool {
        marks(bytes).any(|(compression, _)| compression == self)
    }

    /// Recognises a compression by the extension of a file name.
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

    /// The command-line program, which also names the compression in messages.
    pub(super) fn program(self) -> &'static str {
        match self {
            Gzip => "gzip",
            Zstd => "zstd",
            Bzip2 => "bzip2",
            Xz => "xz",
        }
    }

    /// Explains an error of the decoder, with a remedy.
    pub(super) fn explained(self, error: &io::Error) -> String {
        let program = self.program();
        let why = error.to_string();
        if error.kind() == io::ErrorKind::UnexpectedEof {
            return format!(
                "its {program} data ends too early: the file is cut short; get it again"
            );
        }
        match self {
            _ if why == FOLLOWED => format!(
                "something that is not {program} follows its {program} data; cut it off, or get the file again"
            ),
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

/// The path without the extension of a compression.
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
