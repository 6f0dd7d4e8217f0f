//! The lines of a text that only grows. Each proves itself: a checksum covers the directory, the line's number and what the line says
//! (FORMAT.md, *Catalog*).

use super::checksum::crc32c;

/// The checksum's hexadecimal digits and the space.
pub const LINE_PREFIX_BYTES: usize = 9;

/// The line that is the `line_no`th of its text, counted from 0; with its newline. `content` holds none.
pub fn encode_line(uuid: &[u8; 16], line_no: u64, content: &str) -> String {
    let checksum = line_checksum(uuid, line_no, content.as_bytes());
    format!("{checksum:08x} {content}\n")
}

/// What a line says that verifies; `line` is without its newline.
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

/// Puts a text together from two copies of it: each line from the first that holds it whole, at the place where the line before it ends.
/// From the first line on that neither holds, it goes on as `text` does.
pub fn merge_lines(uuid: &[u8; 16], text: &[u8], copy: &[u8]) -> Vec<u8> {
    let mut merged = Vec::with_capacity(text.len().max(copy.len()));
    let mut line_no = 0;
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

/// The line that `bytes` begin with, and its newline, if it verifies.
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

    #[test]
    fn what_is_damaged_or_gone_in_one_is_taken_from_the_other() {
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
