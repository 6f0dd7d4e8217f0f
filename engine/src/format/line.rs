//! The lines of a text that grows and is rewritten now and then. Each line has a checksum over the directory, the line's number and its content (FORMAT.md,
//! *Catalog*).

use serde::{Deserialize, Serialize};

use super::checksum::crc32c;
use crate::types::Address;

/// The checksum's hexadecimal digits and a space.
pub const LINE_PREFIX_BYTES: usize = 9;

/// Encodes line `line_no` of a text, counted from 0, with its newline. `content` must hold no newline.
pub fn encode_line(uuid: &[u8; 16], line_no: u64, content: &str) -> String {
    let checksum = line_checksum(uuid, line_no, content.as_bytes());
    format!("{checksum:08x} {content}\n")
}

/// Returns the content of a line that verifies; `line` is without its newline.
pub fn line_content<'a>(
    uuid: &[u8; 16],
    line_no: u64,
    line: &'a [u8],
) -> Result<&'a [u8], &'static str> {
    let (prefix, content) = line
        .split_at_checked(LINE_PREFIX_BYTES)
        .ok_or("it is too short")?;
    let checksum = line_checksum(uuid, line_no, content);
    if prefix == format!("{checksum:08x} ").as_bytes() {
        Ok(content)
    } else {
        Err("its checksum does not verify")
    }
}

fn line_checksum(uuid: &[u8; 16], line_no: u64, content: &[u8]) -> u32 {
    crc32c(&[uuid, &line_no.to_le_bytes(), content])
}

/// The first line of a rewritten text is at most this long.
pub const REWRITTEN_BYTES_MAX: usize = 256;
/// A text never reaches this many lines or bytes, its earlier versions included.
const COUNT_MAX: u64 = 1 << 56;

/// The first line of a rewritten text. Line and byte counts continue from the earlier text, so both only grow and no line of an older text verifies in a newer
/// one. All fields are zero where the text was never rewritten.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rewritten {
    /// The number of lines in earlier versions of the text, and so the number of this line.
    pub lines: u64,
    /// The number of bytes in earlier versions of the text.
    pub bytes: u64,
    /// The text no longer describes records below this address.
    pub forgotten_below: Address,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum FirstLine {
    Rewritten(Rewritten),
}

impl Rewritten {
    /// Decodes the first line of a text, if it verifies.
    pub fn of(uuid: &[u8; 16], text: &[u8]) -> Rewritten {
        Rewritten::sound(uuid, text).unwrap_or_default()
    }

    fn sound(uuid: &[u8; 16], text: &[u8]) -> Option<Rewritten> {
        let head = text.get(..text.len().min(REWRITTEN_BYTES_MAX))?;
        let end = head.iter().position(|byte| *byte == b'\n')?;
        let line = head.get(..end)?;
        let content = line.get(LINE_PREFIX_BYTES..)?;
        let FirstLine::Rewritten(said) = serde_json::from_slice(content).ok()?;
        let is_possible = (1..COUNT_MAX).contains(&said.lines) && said.bytes < COUNT_MAX;
        let is_sound = is_possible && line_content(uuid, said.lines, line).is_ok();
        is_sound.then_some(said)
    }

    /// Encodes the line with its newline.
    pub fn encode(&self, uuid: &[u8; 16]) -> String {
        let json = serde_json::to_string(&FirstLine::Rewritten(*self));
        encode_line(uuid, self.lines, &json.expect("numbers are always JSON"))
    }
}

/// Merges two copies of a text: takes each line from the first copy that holds it whole, at the end of the line before it. Once both copies fail, the rest of
/// `text` follows. If one copy was rewritten, the later version wins, because the older version's lines do not verify in it.
pub fn merge_lines(uuid: &[u8; 16], text: &[u8], copy: &[u8]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(text.len().max(copy.len()));
    let [of_text, of_copy] = [text, copy].map(|text| Rewritten::of(uuid, text).lines);
    let mut line_no = of_text.max(of_copy);
    while let Some(line) = [text, copy]
        .into_iter()
        .find_map(|bytes| sound_line(uuid, line_no, bytes.get(merged.len()..)?))
    {
        merged.extend_from_slice(line);
        line_no += 1;
    }
    merged.extend_from_slice(text.get(merged.len()..).unwrap_or_default());
    merged
}

/// Returns the first line of `bytes` with its newline, if it verifies.
fn sound_line<'a>(uuid: &[u8; 16], line_no: u64, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    line_content(uuid, line_no, bytes.get(..end)?).ok()?;
    bytes.get(..=end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: [u8; 16] = [7; 16];

    fn text(lines: u64) -> Vec<u8> {
        (0..lines)
            .flat_map(|n| encode_line(&UUID, n, &format!("{{\"says\":{}}}", n * n)).into_bytes())
            .collect()
    }

    /// Builds the rewritten text with one line as long as before and some others.
    fn rewritten(lines: u64) -> Vec<u8> {
        let said = Rewritten {
            lines,
            bytes: text(lines).len() as u64,
            forgotten_below: Address(4096),
        };
        let more = (1..4).map(|n| encode_line(&UUID, lines + n, &format!("{{\"says\":{n}}}")));
        let all: String = [said.encode(&UUID)].into_iter().chain(more).collect();
        assert_eq!(Rewritten::of(&UUID, all.as_bytes()), said);
        all.into_bytes()
    }

    #[test]
    fn a_first_line_describes_the_earlier_text_or_does_not_verify() {
        let whole = rewritten(9);
        let end = whole.iter().position(|byte| *byte == b'\n').unwrap();
        for at in 0..end {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            assert_eq!(Rewritten::of(&UUID, &flipped), Rewritten::default());
        }
        assert_eq!(Rewritten::of(&[8; 16], &whole), Rewritten::default());
        for text in [&whole[end + 1..], &whole[..end], &text(3), b""] {
            assert_eq!(Rewritten::of(&UUID, text), Rewritten::default());
        }
        let most = Rewritten {
            lines: COUNT_MAX - 1,
            bytes: COUNT_MAX - 1,
            forgotten_below: Address::MAX,
        };
        let line = most.encode(&UUID);
        assert!(line.len() < REWRITTEN_BYTES_MAX);
        assert_eq!(Rewritten::of(&UUID, line.as_bytes()), most);
        for more in [
            Rewritten {
                lines: COUNT_MAX,
                ..most
            },
            Rewritten { lines: 0, ..most },
            Rewritten {
                bytes: u64::MAX,
                ..most
            },
        ] {
            let line = more.encode(&UUID);
            assert_eq!(Rewritten::of(&UUID, line.as_bytes()), Rewritten::default());
        }
    }

    // case Corruption: a damaged staging, a damaged or lost catalog or loom.json
    #[test]
    fn the_later_of_two_rewritings_counts_and_only_an_equal_copy_restores_its_losses() {
        let (older, newer) = (text(9), rewritten(9));
        let newest = rewritten(13);
        for (one, other) in [(&older, &newer), (&newer, &newest), (&older, &newest)] {
            assert!(merge_lines(&UUID, one, other).starts_with(other));
            assert_eq!(&merge_lines(&UUID, other, one), other);
        }
        for at in 0..newer.len() {
            let mut flipped = newer.clone();
            flipped[at] ^= 1;
            assert_eq!(merge_lines(&UUID, &flipped, &newer), newer, "byte {at}");
            assert_eq!(merge_lines(&UUID, &newer, &flipped), newer, "byte {at}");
            // Nothing of the older text follows a damaged line.
            let merged = merge_lines(&UUID, &flipped, &older);
            assert!(
                merged == older || merged == flipped || merged.starts_with(&older),
                "byte {at}"
            );
        }
    }

    fn line_of(text: &[u8], at: usize) -> usize {
        text[..at].iter().filter(|byte| **byte == b'\n').count()
    }

    #[test]
    fn a_line_verifies_at_its_place_alone() {
        let line = encode_line(&UUID, 3, "content");
        let line = line.strip_suffix('\n').unwrap().as_bytes();
        assert_eq!(line_content(&UUID, 3, line), Ok(&b"content"[..]));
        assert!(line_content(&UUID, 2, line).is_err());
        assert!(line_content(&[8; 16], 3, line).is_err());
        assert!(line_content(&UUID, 3, b"12345678").is_err());
    }

    // case Corruption: a damaged staging, a damaged or lost catalog or loom.json
    #[test]
    fn damaged_or_missing_lines_of_one_are_taken_from_the_other() {
        let whole = text(9);
        for at in 0..whole.len() {
            for mask in [1, 0x80] {
                let mut flipped = whole.clone();
                flipped[at] ^= mask;
                assert_eq!(merge_lines(&UUID, &flipped, &whole), whole, "byte {at}");
                assert_eq!(merge_lines(&UUID, &whole, &flipped), whole, "byte {at}");
            }
            let junk = [&whole[..], &whole[at..]].concat();
            assert_eq!(merge_lines(&UUID, &whole, &junk), whole, "junk from {at}");
            assert_eq!(
                merge_lines(&UUID, &whole[..at], &whole),
                whole,
                "cut at {at}"
            );
            assert_eq!(
                merge_lines(&UUID, &whole, &whole[..at]),
                whole,
                "cut at {at}"
            );
        }
    }

    proptest! {
        #[test]
        fn lines_come_back_unless_both_lost_the_same(flips in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), 1u8..), 0..4)) {
            let whole = text(7);
            let mut files = [whole.clone(), whole.clone()];
            let mut hit = [[false; 8]; 2];
            for (which, at, mask) in flips {
                let at = at.index(whole.len());
                files[usize::from(which)][at] ^= mask;
                hit[usize::from(which)][line_of(&whole, at)] = true;
            }
            let both = (0..7).find(|line| hit[0][*line] && hit[1][*line]);
            let merged = merge_lines(&UUID, &files[0], &files[1]);
            // Two flips of one byte may undo each other.
            match both {
                None => prop_assert_eq!(merged, whole),
                Some(line) => {
                    let sound = text(line as u64);
                    prop_assert!(merged.starts_with(&sound));
                }
            }
        }

        #[test]
        fn any_bytes_end_as_the_text_does(text in prop::collection::vec(any::<u8>(), 0..60), copy in prop::collection::vec(any::<u8>(), 0..60)) {
            let merged = merge_lines(&UUID, &text, &copy);
            prop_assert_eq!(merged, text);
        }
    }
}
