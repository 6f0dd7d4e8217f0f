//! The lines of the catalog file (FORMAT.md, *Catalog*): an event, and a checksum that covers the directory and the line's number.
//!
//! A line counts once it is complete. Only the last line can be torn, by a crash while it was written; nothing depended on it then. Any
//! other line that does not verify is damage.

use std::path::Path;

use super::{Catalog, Event};
use crate::error::{Error, Result};
use crate::format::{self, Rewritten};
use crate::proven::at;

/// The bytes of a page that a crash left unwritten; no event contains NUL.
const UNWRITTEN: [u8; 4] = [0; 4];
/// A crash leaves whole sectors unwritten.
const SECTOR_BYTES: usize = 512;

/// The line of event `line_no` of a directory, from 0, with its newline.
pub fn encode_line(uuid: &[u8; 16], line_no: u64, event: &Event) -> String {
    let json = serde_json::to_string(event)
        .unwrap_or_else(|error| panic!("an event is always JSON, but {event:?}: {error}"));
    format::encode_line(uuid, line_no, &json)
}

/// The catalog in a file, the number of its lines, and their bytes, after which a writer continues. A torn last line is omitted.
pub fn decode_catalog(uuid: &[u8; 16], text: &[u8]) -> Result<(Catalog, usize, usize)> {
    let rewritten = Rewritten::of(uuid, text);
    let mut catalog = Catalog::following(rewritten);
    // Line numbers count within this file; the checksum of a line uses its number since the first file.
    let (mut line_no, mut valid_bytes, mut rest) = (0u64, 0, text);
    if rewritten.lines > 0 {
        valid_bytes = 1 + rest.iter().take_while(|byte| **byte != b'\n').count();
        (line_no, rest) = (1, text.get(valid_bytes..).unwrap_or_default());
    }
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let (line, after) = rest.split_at(end + 1);
        let damaged = |what| Error::Catalog {
            line: line_no,
            what,
        };
        match decode_line(uuid, rewritten.lines + line_no, at(line, ..end)) {
            Ok(event) => catalog
                .apply(&event)
                .map_err(|error| damaged(error.to_string()))?,
            // The lines behind it were written with it, and its page was lost. The known length shows whether more was durable.
            Err(_) if is_torn(valid_bytes, line) => break,
            Err(what) => return Err(damaged(what)),
        }
        line_no += 1;
        valid_bytes += line.len();
        rest = after;
    }
    // A complete line with only its newline damaged was not torn by a crash.
    if let Some((_, line)) = rest.split_last()
        && decode_line(uuid, rewritten.lines + line_no, line).is_ok()
    {
        return Err(Error::Catalog {
            line: line_no,
            what: "its end is damaged".to_owned(),
        });
    }
    Ok((catalog, line_no as usize, valid_bytes))
}

/// The same for the directory `dir`, which records elsewhere that the lines took at least `bytes_least` bytes, including those before the
/// last rewriting.
pub fn decode_whole_catalog(
    dir: &Path,
    uuid: &[u8; 16],
    text: &[u8],
    bytes_least: u64,
) -> Result<(Catalog, usize, usize)> {
    let decoded = decode_catalog(uuid, text).map_err(|error| error.of_catalog(dir))?;
    let (catalog, _, valid_bytes) = &decoded;
    let bytes = catalog.bytes_before() + *valid_bytes as u64;
    if bytes < bytes_least {
        let what = format!("its lines end at byte {bytes} of {bytes_least} that were durable");
        return Err(Error::cut_catalog(dir, &what));
    }
    Ok(decoded)
}

fn decode_line(uuid: &[u8; 16], line_no: u64, line: &[u8]) -> Result<Event, String> {
    let json = format::line_content(uuid, line_no, line)?;
    serde_json::from_slice(json).map_err(|error| format!("it is not a known event: {error}"))
}

/// Whether the line that begins at this byte was not written whole.
fn is_torn(start: usize, line: &[u8]) -> bool {
    let zeroes = line.iter().take_while(|byte| **byte == 0).count();
    // A line may begin with the last bytes of a sector.
    let begins_unwritten = zeroes > 0 && (start + zeroes).is_multiple_of(SECTOR_BYTES);
    begins_unwritten
        || line
            .windows(UNWRITTEN.len())
            .any(|bytes| bytes == UNWRITTEN)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::{UUID, at, content, decoded, def, file_of, redis};
    use super::*;
    use crate::schema::field::FieldType;
    use crate::types::{Address, IndexId, SourceId};

    #[test]
    fn a_line_is_as_the_format_says() {
        let event = Event::SourceClosed {
            source: SourceId(3),
            at: Address(65_536),
        };
        let line = encode_line(&UUID, 5, &event);
        let json = r#"{"event":"source_closed","source":3,"at":65536}"#;
        let covered = [&UUID[..], &5u64.to_le_bytes(), json.as_bytes()].concat();
        assert_eq!(line, format!("{:08x} {json}\n", crc32c::crc32c(&covered)));
    }

    /// A file of several lines, and the catalog that wrote it.
    fn sample_file() -> (String, Catalog) {
        let mut catalog = Catalog::new();
        let mut events = catalog.define_source(&redis(), at(0)).unwrap().1;
        events.extend(
            catalog
                .define_source(&def("@ packet", &[("p", FieldType::Json)]), at(1))
                .unwrap()
                .1,
        );
        events.push(catalog.close_index(IndexId(1), at(2)).unwrap());
        (file_of(&events), catalog)
    }

    #[test]
    fn a_torn_last_line_is_left_out() {
        let (file, catalog) = sample_file();
        let last = file.trim_end().rfind('\n').unwrap() + 1;
        for end in last..file.len() {
            let (_, lines, bytes) = decoded(&file.as_bytes()[..end]).unwrap();
            assert_eq!((lines, bytes), (4, last), "cut at {end}");
        }
        let (whole, lines, bytes) = decoded(file.as_bytes()).unwrap();
        assert_eq!((lines, bytes), (5, file.len()));
        assert_eq!(content(&whole), content(&catalog));
        let zeroed = [&file.as_bytes()[..last], &[0; 40], b"half\n"].concat();
        assert_eq!(decoded(&zeroed).unwrap().2, last);
        assert_eq!(decoded(&[0; 100]).unwrap().1, 0);
        assert_eq!(decoded(b"").unwrap().1, 0);
    }

    #[test]
    fn a_line_is_torn_whose_first_bytes_end_a_sector_that_was_not_written() {
        let begins = |zeroes: usize| {
            let names = (1..40).flat_map(|count| (0..40).map(move |pad| (count, pad)));
            let mut files = names.map(|(count, pad)| {
                let mut catalog = Catalog::new();
                let names = (1..count).map(|nth| format!("s{nth}"));
                let last = format!("s{}", "x".repeat(pad));
                let defined = names.chain([last]).flat_map(|name| {
                    let defined = catalog.define_source(&def(&name, &[]), at(0));
                    defined.unwrap().1
                });
                file_of(&defined.collect::<Vec<Event>>())
            });
            files.find(|file| (file.len() + zeroes).is_multiple_of(SECTOR_BYTES))
        };
        for zeroes in 1..4 {
            let before = begins(zeroes).unwrap();
            let lines = before.lines().count() as u64;
            let next = Event::SourceClosed {
                source: SourceId(1),
                at: at(1),
            };
            let mut file = before.clone() + &encode_line(&UUID, lines, &next);
            assert_eq!(decoded(file.as_bytes()).unwrap().2, file.len());
            let unwritten = "\0".repeat(zeroes);
            file.replace_range(before.len()..before.len() + zeroes, &unwritten);
            assert_eq!(decoded(file.as_bytes()).unwrap().2, before.len());
            file.replace_range(before.len() + zeroes - 1..before.len() + zeroes, "x");
            assert!(decoded(file.as_bytes()).is_err(), "{zeroes}");
        }
    }

    #[test]
    fn every_flipped_bit_is_damage() {
        let (file, _) = sample_file();
        for position in 0..file.len() {
            for bit in 0..8 {
                let mut flipped = file.clone().into_bytes();
                flipped[position] ^= 1 << bit;
                let error = decoded(&flipped).expect_err("a flipped bit is seen");
                assert!(matches!(error, Error::Catalog { .. }), "{error}");
            }
        }
    }

    // case Corruption: a damaged staging, a damaged or lost catalog or loom.json
    #[test]
    fn a_rewritten_file_is_read_like_any_other_and_no_line_of_the_older_one_in_it() {
        let (older, mut catalog) = sample_file();
        let all = older.len() as u64;
        let mut file = catalog.rewritten_text(&UUID, all, at(2), |_| false);
        let events = catalog.define_source(&def("more", &[]), at(3)).unwrap().1;
        let (before, lines, _) = decoded(file.as_bytes()).unwrap();
        assert_eq!((before.event_count(), lines), (5 + 6, 6));
        file.push_str(&encode_line(&UUID, before.event_count(), &events[0]));
        let (whole, lines, bytes) = decoded(file.as_bytes()).unwrap();
        assert_eq!((lines, bytes), (7, file.len()));
        assert!(whole.find("more").is_some());
        let dir = Path::new("dir");
        let whole = |least| decode_whole_catalog(dir, &UUID, file.as_bytes(), least).is_ok();
        let end = all + file.len() as u64;
        assert!(whole(end) && !whole(end + 1));
        let last = file.trim_end().rfind('\n').unwrap() + 1;
        for end in last..file.len() {
            assert_eq!(
                decoded(&file.as_bytes()[..end]).unwrap().1,
                6,
                "cut at {end}"
            );
        }
        for position in 0..file.len() {
            let mut flipped = file.clone().into_bytes();
            flipped[position] ^= 1;
            assert!(decoded(&flipped).is_err(), "byte {position}");
        }
        for line in older.split_inclusive('\n') {
            assert!(decoded(format!("{file}{line}").as_bytes()).is_err());
        }
    }

    #[test]
    fn foreign_and_moved_lines_are_damage() {
        let (file, _) = sample_file();
        assert!(
            decode_catalog(
                b"another directory"[..16].try_into().unwrap(),
                file.as_bytes()
            )
            .is_err()
        );
        let lines: Vec<&str> = file.split_inclusive('\n').collect();
        let swapped = [lines[1], lines[0], lines[2]].concat();
        let message = decoded(swapped.as_bytes()).unwrap_err().to_string();
        assert!(
            message.contains("line 1: its checksum does not verify"),
            "{message}"
        );
        assert!(decoded([lines[0], lines[0]].concat().as_bytes()).is_err());
        assert!(decoded([lines[0], lines[2]].concat().as_bytes()).is_err());
    }

    #[test]
    fn unknown_events_are_named() {
        let json = r#"{"event":"source_renamed","source":1}"#;
        let sum = crc32c::crc32c(&[&UUID[..], &[0; 8], json.as_bytes()].concat());
        let message = decoded(format!("{sum:08x} {json}\n").as_bytes())
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("line 1: it is not a known event")
                && message.contains("source_renamed")
        );
    }

    proptest! {
        // G8
        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decoded(&bytes);
        }

        // case Corruption: bins that do not ascend or are not numbers
        #[test]
        fn events_that_verify_but_say_anything_never_panic(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any_fragment()), 1..6),
        ) {
            let (file, _) = sample_file();
            let mut events: Vec<String> =
                file.lines().map(|line| line[format::LINE_PREFIX_BYTES..].to_owned()).collect();
            for (place, fragment) in changes {
                let event = place.get_mut(&mut events);
                let values: Vec<_> = event.match_indices([':', ',', '[']).collect();
                let from = place.get(&values).0 + 1;
                let to = from + event[from..].find([',', ']', '}']).unwrap_or(0);
                event.replace_range(from..to, fragment);
            }
            let file: String = (events.iter().zip(0..))
                .map(|(json, line_no)| format::encode_line(&UUID, line_no, json))
                .collect();
            let _ = decoded(file.as_bytes());
        }
    }

    fn any_fragment() -> impl Strategy<Value = &'static str> {
        prop::sample::select(vec![
            "0",
            "1",
            "3",
            "-1",
            "1e308",
            "18446744073709551615",
            "99999999999999999999999",
            "null",
            "true",
            "[]",
            "{}",
            r#""""#,
            r#""latency""#,
            r#""\u0000""#,
            r#""own""#,
            r#""utf8""#,
            r#""char[65535]""#,
            r#""op = 'DEL'""#,
            r#"[{"name":"x","type":"u8"}]"#,
            r#"{"1":"GET"}"#,
            "[1,2]",
            r#"{"name":"i","bins":{"from":1,"step":1,"count":4096}}"#,
            r#"{"name":"i","value":"latency","bins":[-1e308,1e308]}"#,
        ])
    }
}
