//! Where the objects of an input stand: one on each line, or in documents, which are arrays of objects and objects of several lines.
//!
//! Lines cost least, and a bad line costs no other. What a line does not hold by itself is looked for only where it is no object: several
//! objects on it, or the beginning of one that goes on in the next lines.

use std::fmt;

use loom_engine::proven::at;
use memchr::{memchr, memchr_iter, memchr2, memrchr};
use serde::de::IgnoredAny;

use super::super::ROW_BYTES_MAX;
use super::super::blocks::Blocks;
use super::super::text_rows::{Step, unended};
use super::HALF_A_PAIR;
use super::object::Unread;

/// What the parser says of a key that has half a surrogate pair; it reads no values.
const OF_HALF_A_PAIR: [&str; 2] = [
    "lone leading surrogate in hex escape",
    "unexpected end of hex escape",
];
/// What some programs write before each object (RFC 7464).
const RECORD_SEPARATOR: u8 = 0x1E;

/// Finds the objects of an input, one after the other.
#[derive(Copy, Clone)]
pub(super) struct Objects {
    shape: Shape,
    /// Where the next one begins.
    position: Position,
}

/// How objects are found.
#[derive(Copy, Clone)]
enum Shape {
    Lines(Lines),
    Documents(Documents),
}

impl Objects {
    /// By the first bytes: documents are an array, an object whose first line goes on in the next, or objects without line breaks.
    pub(super) fn of(blocks: &mut Blocks) -> anyhow::Result<Objects> {
        let documents = loop {
            let is_between = |byte: &u8| byte.is_ascii_whitespace() || *byte == RECORD_SEPARATOR;
            let before = blocks.data().iter().take_while(|byte| is_between(byte));
            let data = at(blocks.data(), before.count()..);
            if data.starts_with(b"[") {
                break true;
            }
            if let Some(end) = memchr(b'\n', data) {
                break goes_on(at(data, ..end));
            }
            if first_of_several(data).is_some() {
                break true;
            }
            if blocks.data().len() > ROW_BYTES_MAX || !blocks.fill()? {
                break false;
            }
        };
        Ok(Objects {
            shape: match documents {
                true => Shape::Documents(Documents::default()),
                false => Shape::Lines(Lines::default()),
            },
            position: Position { line: 1, before: 0 },
        })
    }

    /// Finds the object at the beginning of the data, and gives it to `parse`, which may be called again with another end. `ended`: no more
    /// bytes follow.
    pub(super) fn next<'a>(
        &mut self,
        data: &'a [u8],
        ended: bool,
        mut parse: impl FnMut(&'a [u8]) -> Result<(), Unread>,
    ) -> Step<()> {
        let here = self.position;
        let step = match &mut self.shape {
            Shape::Lines(lines) => lines.next(data, ended, &mut parse),
            Shape::Documents(documents) => match documents.next(data, ended, here) {
                Step::Row(text, bytes) => Step::Row(parse(text), bytes),
                Step::Blank(bytes) => Step::Blank(bytes),
                Step::Bad(reason, bytes) => Step::Bad(reason, bytes),
                Step::TooLong => Step::TooLong,
                Step::More => Step::More,
            },
        };
        match &step {
            Step::Row(_, bytes) | Step::Blank(bytes) | Step::Bad(_, bytes) => {
                match &mut self.shape {
                    // Most lines are an object, and are not looked through again.
                    Shape::Lines(lines) if lines.line_bytes == *bytes => {
                        lines.look_ahead_bytes += LOOK_AHEAD_FACTOR * bytes;
                        self.position.next_line();
                    }
                    _ => self.position.advance(at(data, ..*bytes)),
                }
            }
            Step::TooLong => self.position.next_line(),
            Step::More => {}
        }
        match step {
            Step::Row(Ok(()), bytes) => Step::Row((), bytes),
            Step::Row(Err(error), bytes) => Step::Bad(here.explained(&error), bytes),
            Step::Blank(bytes) => Step::Blank(bytes),
            Step::Bad(reason, bytes) => Step::Bad(reason, bytes),
            Step::TooLong => Step::TooLong,
            Step::More => Step::More,
        }
    }
}

impl Objects {
    /// Whether an array has begun and not ended.
    pub(super) fn is_within_array(&self) -> bool {
        matches!(self.shape, Shape::Documents(documents) if documents.array != Array::Outside)
    }
}

/// Whether a line is the beginning of an object that is written on several lines.
fn goes_on(line: &[u8]) -> bool {
    let parsed = serde_json::from_slice::<IgnoredAny>(line);
    parsed.is_err_and(|error| error.is_eof()) && ends_within(line)
}

fn ends_within(line: &[u8]) -> bool {
    matches!(
        line.trim_ascii_end(),
        [b'{', .., b'{' | b'[' | b',' | b':'] | [b'{']
    )
}

/// The length of an object behind which another one begins.
fn first_of_several(data: &[u8]) -> Option<usize> {
    let end = Scan::default().end(data)?;
    let behind = data.get(end..)?.trim_ascii_start();
    behind.starts_with(b"{").then_some(end)
}

/// How many bytes behind incomplete lines are looked at in vain for each byte of input, so that bad input costs no more time than its length.
const LOOK_AHEAD_FACTOR: usize = 8;

/// The place within lines.
#[derive(Copy, Clone)]
struct Lines {
    /// Bytes of the line at hand behind the objects that were found on it; 0 at the beginning of a line.
    left: usize,
    /// The length of the line that was looked at last, with its break, from where that began.
    line_bytes: usize,
    /// How much may still be looked at in vain behind lines that are not a whole value.
    look_ahead_bytes: usize,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines {
            left: 0,
            line_bytes: 0,
            look_ahead_bytes: 4 * ROW_BYTES_MAX,
        }
    }
}

impl Lines {
    fn next<'a>(
        &mut self,
        data: &'a [u8],
        ended: bool,
        parse: &mut impl FnMut(&'a [u8]) -> Result<(), Unread>,
    ) -> Step<Result<(), Unread>> {
        let bytes = match self.left {
            0 => match memchr(b'\n', data) {
                Some(end) => end + 1,
                None if ended && !data.is_empty() => data.len(),
                None => return unended(data),
            },
            left => left,
        };
        self.line_bytes = bytes;
        let whole = at(data, ..bytes);
        let line = whole.strip_suffix(b"\n").unwrap_or(whole);
        if line.first() == Some(&RECORD_SEPARATOR) {
            self.left = bytes - 1;
            return Step::Blank(1);
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            self.left = 0;
            return Step::Blank(bytes);
        }
        self.left = 0;
        let Err(error) = parse(line) else {
            return Step::Row(Ok(()), bytes);
        };
        if let Unread::NoObject(_) = error
            && let Some(end) = first_of_several(line)
        {
            self.left = bytes - end;
            return Step::Row(parse(at(line, ..end)), end);
        }
        let Unread::NoObject(syntax) = &error else {
            return Step::Row(Err(error), bytes);
        };
        if !(line.trim_ascii_start().starts_with(b"{") && syntax.is_eof()) {
            return Step::Row(Err(error), bytes);
        }
        let most = data.len().min(self.look_ahead_bytes);
        match whole_value(at(data, ..most)) {
            Ok(end) => match parse(at(data, ..end)) {
                Err(Unread::NoObject(_)) => Step::Row(Err(error), bytes),
                read => Step::Row(read, end),
            },
            Err(why) if why.is_eof() && most == data.len() && !ended && most <= ROW_BYTES_MAX => {
                Step::More
            }
            Err(why) => {
                let looked_at = if why.is_eof() {
                    most
                } else {
                    offset(data, &why)
                };
                self.look_ahead_bytes = self.look_ahead_bytes.saturating_sub(looked_at);
                Step::Row(Err(error), bytes)
            }
        }
    }
}

/// The length of the value that the data begins with, which may span lines.
fn whole_value(data: &[u8]) -> serde_json::Result<usize> {
    let mut values = serde_json::Deserializer::from_slice(data).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Err(error)) => Err(error),
        Some(Ok(_)) | None => Ok(values.byte_offset()),
    }
}

/// Where the line of an error ends.
fn offset(data: &[u8], error: &serde_json::Error) -> usize {
    let end = memchr_iter(b'\n', data).nth(error.line().saturating_sub(1));
    end.unwrap_or(data.len())
}

/// The place within documents.
#[derive(Copy, Clone, Default)]
pub(super) struct Documents {
    array: Array,
    /// Within an object that is too long.
    skipping: Option<Scan>,
}

/// What was read last of an array.
#[derive(Copy, Clone, Default, PartialEq, Eq)]
enum Array {
    /// No array has begun, or the last one has ended.
    #[default]
    Outside,
    Bracket,
    Element,
    Comma,
}

impl Documents {
    /// `here`: where the data begins.
    fn next<'a>(&mut self, data: &'a [u8], ended: bool, here: Position) -> Step<&'a [u8]> {
        if let Some(scan) = &mut self.skipping {
            let end = scan.end(data);
            if end.is_some() || ended {
                self.skipping = None;
            }
            return match end {
                None if data.is_empty() => Step::More,
                end => Step::Blank(end.unwrap_or(data.len())),
            };
        }
        match data.iter().take_while(|byte| self.passes(**byte)).count() {
            0 => {}
            bytes => return Step::Blank(bytes),
        }
        match (data.first(), self.array) {
            (None, _) => Step::More,
            (Some(b'['), Array::Outside) => {
                self.array = Array::Bracket;
                Step::Blank(1)
            }
            (Some(b']'), Array::Bracket | Array::Element) => {
                self.array = Array::Outside;
                Step::Blank(1)
            }
            (Some(byte @ (b',' | b']')), Array::Bracket | Array::Comma) => {
                self.array = match byte {
                    b',' => Array::Comma,
                    _ => Array::Outside,
                };
                let sign = char::from(*byte);
                Step::Bad(
                    format!("the array has no element before '{sign}' at {here}"),
                    1,
                )
            }
            (Some(_), Array::Element) => match self.value(data, ended) {
                Step::Row(_, bytes) => Step::Bad(
                    format!("the array has no comma before it, at {here}"),
                    bytes,
                ),
                other => other,
            },
            (Some(_), _) => self.value(data, ended),
        }
    }

    /// Whether a byte stands between values, and belongs there.
    fn passes(&mut self, byte: u8) -> bool {
        if byte == b',' && self.array == Array::Element {
            self.array = Array::Comma;
            return true;
        }
        let is_outside = self.array == Array::Outside;
        byte.is_ascii_whitespace() || byte == RECORD_SEPARATOR || byte == b',' && is_outside
    }

    fn value<'a>(&mut self, data: &'a [u8], ended: bool) -> Step<&'a [u8]> {
        let mut scan = Scan::default();
        let end = scan.end(data);
        if end.is_some() || data.len() > ROW_BYTES_MAX {
            self.array = match self.array {
                Array::Outside => Array::Outside,
                _ => Array::Element,
            };
        }
        match end {
            Some(end) if data.starts_with(b"{") => Step::Row(at(data, ..end), end),
            Some(end) => Step::Bad("it is not a JSON object".to_owned(), end),
            None if data.len() > ROW_BYTES_MAX => {
                self.skipping = Some(scan);
                let reason = format!("it is longer than {ROW_BYTES_MAX} bytes");
                Step::Bad(reason, data.len())
            }
            None if ended => {
                self.array = Array::Outside;
                let reason = "it does not end: a bracket or a quote is missing, or the file is cut short; nothing behind it is read";
                Step::Bad(reason.to_owned(), data.len())
            }
            None => Step::More,
        }
    }
}

/// Looks for the end of a value, some bytes after the others.
#[derive(Copy, Clone, Default)]
struct Scan {
    depth: usize,
    in_text: bool,
    /// The last byte was a backslash within a text.
    escaped: bool,
}

impl Scan {
    /// Where the value ends; `None` if not within the data, all of which it has seen then.
    fn end(&mut self, data: &[u8]) -> Option<usize> {
        let mut at = 0;
        if std::mem::take(&mut self.escaped) {
            match data.is_empty() {
                true => self.escaped = true,
                false => at = 1,
            }
        }
        while let Some(rest) = data.get(at..) {
            let found = match self.in_text {
                true => memchr2(b'"', b'\\', rest)?,
                false => rest.iter().position(|byte| {
                    matches!(byte, b'{' | b'[' | b'}' | b']' | b'"')
                        || self.depth == 0 && matches!(byte, b',' | b'\n')
                })?,
            };
            at += found + 1;
            match (self.in_text, rest.get(found)?) {
                (true, b'\\') if at >= data.len() => {
                    self.escaped = true;
                    return None;
                }
                (true, b'\\') => at += 1,
                (true, _) => self.in_text = false,
                (false, b'"') => self.in_text = true,
                (false, b'{' | b'[') => self.depth += 1,
                // A bare value ends before what follows it.
                (false, _) if self.depth == 0 => return Some((at - 1).max(1)),
                (false, _) => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return Some(at);
                    }
                }
            }
        }
        None
    }
}

/// A line and a column of an input, as an editor counts them.
#[derive(Copy, Clone)]
struct Position {
    line: u64,
    /// Bytes of the line so far.
    before: usize,
}

impl Position {
    /// Behind a whole line.
    fn next_line(&mut self) {
        self.line += 1;
        self.before = 0;
    }

    fn advance(&mut self, bytes: &[u8]) {
        match memrchr(b'\n', bytes) {
            None => self.before += bytes.len(),
            Some(last) => {
                self.line += memchr_iter(b'\n', bytes).count() as u64;
                self.before = bytes.len() - last - 1;
            }
        }
    }

    /// What is wrong with the object that begins here, and where.
    fn explained(self, error: &Unread) -> String {
        let error = match error {
            Unread::NoObject(error) => error,
            Unread::Twice(name) => {
                return format!("it has two values for the name '{name}'");
            }
        };
        let text = error.to_string();
        let what = text
            .rsplit_once(" at line ")
            .map_or(&*text, |(what, _)| what);
        let line = self.line + (error.line() as u64).saturating_sub(1);
        let column = match error.line() {
            1 => self.before + error.column(),
            _ => error.column(),
        };
        if OF_HALF_A_PAIR.contains(&what) {
            return format!("a key {HALF_A_PAIR}, at line {line}, column {column}");
        }
        format!("it is not a JSON object: {what} at line {line}, column {column}")
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.before + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands in documents: objects as they are, `!` for what is none, `|` for more.
    fn found(text: &str) -> String {
        let mut documents = Documents::default();
        let (mut rest, mut found) = (text.as_bytes(), String::new());
        let here = Position { line: 1, before: 0 };
        loop {
            let bytes = match documents.next(rest, true, here) {
                Step::Row(object, bytes) => {
                    found += std::str::from_utf8(object).unwrap();
                    bytes
                }
                Step::Blank(bytes) => bytes,
                Step::Bad(_, bytes) => {
                    found += "!";
                    bytes
                }
                Step::TooLong => panic!("it is short"),
                Step::More => return found,
            };
            rest = &rest[bytes..];
        }
    }

    #[test]
    fn objects_are_found_wherever_they_stand() {
        for (text, objects) in [
            (
                "[{\"a\":1},\n {\"a\":\"}]\\\"\"}]\n",
                "{\"a\":1}{\"a\":\"}]\\\"\"}",
            ),
            ("{\n}\n{}", "{\n}{}"),
            ("[{}][{},{}]\n", "{}{}{}"),
            ("[{}, 1, \"a,b\", [{}], {}]", "{}!!!{}"),
            ("[{},", "{}"),
            ("[{},,{}]", "{}!{}"),
            ("[ , {}]", "!{}"),
            ("[{}, ]{}", "{}!{}"),
            ("[{} {},{}]", "{}!{}"),
            ("[{}[{}]1,{}]", "{}!!{}"),
            ("[]", ""),
            ("[{}, {\"a\":", "{}!"),
            ("]", "!"),
            ("", ""),
        ] {
            assert_eq!(found(text), objects, "{text}");
        }
    }

    #[test]
    fn a_value_is_scanned_in_any_parts() {
        let text = br#"{"a\\\"":[{"b":"}"},"\\"],"c":{}}"#;
        for step in 1..text.len() {
            let mut scan = Scan::default();
            let mut parts = text.chunks(step);
            let last = parts.next_back().unwrap();
            assert!(parts.all(|part| scan.end(part).is_none()), "{step}");
            assert_eq!(scan.end(last), Some(last.len()), "{step}");
        }
    }
}
