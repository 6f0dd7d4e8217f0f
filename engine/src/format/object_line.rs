//! Lines of JSON with a checksum of their own: the last member covers the line's number and everything before it. Texts that only grow and that other programs
//! read use them.

use super::checksum::crc32c;

/// The text around the checksum's eight hexadecimal digits.
const BEFORE: &str = ",\"crc\":\"";
const BEHIND: &str = "\"}";
const SEAL_BYTES: usize = BEFORE.len() + 8 + BEHIND.len();

/// Encodes an object with its checksum as line `line_no` of its text, counted from 0, with its newline.
///
/// # Panics
/// Panics if the text is not an object or has no members.
pub fn seal_object(line_no: u64, object: &str) -> String {
    let members = object.strip_suffix('}');
    let members = members.filter(|members| members.len() > 1 && !object.contains('\n'));
    let members = members.expect("an object with members, on one line");
    let crc = object_checksum(line_no, members.as_bytes());
    format!("{members}{BEFORE}{crc:08x}{BEHIND}\n")
}

/// Returns the object of a line without its newline.
///
/// # Errors
/// Says why the line does not verify.
fn sealed_object(line_no: u64, line: &[u8]) -> Result<Vec<u8>, &'static str> {
    let at = line.len().checked_sub(SEAL_BYTES);
    let (members, seal) = at
        .and_then(|at| line.split_at_checked(at))
        .ok_or("it is too short")?;
    let crc = object_checksum(line_no, members);
    match seal == format!("{BEFORE}{crc:08x}{BEHIND}").as_bytes() {
        true => Ok([members, b"}"].concat()),
        false => Err("its checksum does not verify"),
    }
}

/// Returns the objects of a text, or an error for each that does not verify. An unfinished last line is omitted.
pub fn sealed_objects(text: &[u8]) -> impl Iterator<Item = Result<Vec<u8>, &'static str>> {
    let lines = text.split_inclusive(|byte| *byte == b'\n');
    let whole = lines.map_while(|line| line.strip_suffix(b"\n"));
    (0..)
        .zip(whole)
        .map(|(line_no, line)| sealed_object(line_no, line))
}

fn object_checksum(line_no: u64, members: &[u8]) -> u32 {
    crc32c(&[&line_no.to_le_bytes(), members])
}

#[cfg(test)]
mod tests {
    use super::*;

    // case Archive: what stands for the records
    #[test]
    fn an_object_comes_back_at_its_place_alone_and_every_flipped_byte_is_found() {
        let object = "{\"a\":[1,2],\"b\":\"ä\"}";
        let line = seal_object(3, object);
        assert!(line.starts_with("{\"a\":[1,2],\"b\":\"ä\",\"crc\":\""));
        let line = line.strip_suffix('\n').unwrap().as_bytes();
        assert_eq!(sealed_object(3, line).unwrap(), object.as_bytes());
        assert!(sealed_object(2, line).is_err());
        for at in 0..line.len() {
            for mask in 1..=255 {
                let mut flipped = line.to_vec();
                flipped[at] ^= mask;
                assert!(sealed_object(3, &flipped).is_err(), "byte {at}");
            }
            assert!(sealed_object(3, &line[..at]).is_err());
        }
    }

    // case Archive: what stands for the records
    #[test]
    fn a_line_that_was_not_finished_is_left_out() {
        let text = (0..3).map(|n| seal_object(n, &format!("{{\"n\":{n}}}")));
        let text: String = text.collect();
        for cut in 0..=text.len() {
            let whole = text[..cut].matches('\n').count();
            let found: Vec<_> = sealed_objects(&text.as_bytes()[..cut]).collect();
            assert_eq!(found.len(), whole);
            for (n, object) in found.into_iter().enumerate() {
                assert_eq!(object.unwrap(), format!("{{\"n\":{n}}}").into_bytes());
            }
        }
        let swapped: String = text.split_inclusive('\n').rev().collect();
        let found = sealed_objects(swapped.as_bytes());
        assert_eq!(found.filter(Result::is_ok).count(), 1);
    }
}
