//! Where the objects of an input stand: one on each line, or in documents, which are arrays of objects and objects of several lines.

use memchr::{memchr, memchr2, memrchr};

use super::super::ROW_BYTES_MAX;
use super::super::blocks::Blocks;
use super::super::text_rows::{Step, unended};

/// How objects are found.
#[derive(Copy, Clone)]
pub(super) enum Shape {
    Lines,
    Documents(Documents),
}

impl Shape {
    /// By the first bytes: an array, or an object whose first line goes on in the next.
    pub(super) fn of(blocks: &mut Blocks) -> anyhow::Result<Shape> {
        loop {
            let data = blocks.data().trim_ascii_start();
            if data.starts_with(b"[") {
                return Ok(Shape::Documents(Documents::default()));
            }
            let line = memchr(b'\n', data).and_then(|end| data.get(..end));
            if let Some(line) = line {
                return Ok(match goes_on(line) {
                    true => Shape::Documents(Documents::default()),
                    false => Shape::Lines,
                });
            }
            if blocks.data().len() > ROW_BYTES_MAX || !blocks.fill()? {
                return Ok(Shape::Lines);
            }
        }
    }

    /// The object at the beginning of the data. `ended`: no more bytes follow.
    pub(super) fn next<'a>(&mut self, data: &'a [u8], ended: bool) -> Step<&'a [u8]> {
        match self {
            Shape::Lines => next_line(data, ended),
            Shape::Documents(documents) => documents.next(data, ended),
        }
    }
}

/// Whether a line is the beginning of an object that is written on several lines.
fn goes_on(line: &[u8]) -> bool {
    let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(line);
    let unended = parsed.is_err_and(|error| error.is_eof());
    unended
        && matches!(
            line.trim_ascii_end(),
            [b'{', .., b'{' | b'[' | b',' | b':'] | [b'{']
        )
}

fn next_line(data: &[u8], ended: bool) -> Step<&[u8]> {
    let (line, bytes) = match memchr(b'\n', data) {
        Some(end) => (data.get(..end).unwrap_or_default(), end + 1),
        None if ended && !data.is_empty() => (data, data.len()),
        None => return unended(data),
    };
    match line.iter().all(u8::is_ascii_whitespace) {
        true => Step::Blank(bytes),
        false => Step::Row(line, bytes),
    }
}

/// The place within documents.
#[derive(Copy, Clone, Default)]
pub(super) struct Documents {
    in_array: bool,
    /// Within an object that is too long.
    skipping: Option<Scan>,
}

impl Documents {
    fn next<'a>(&mut self, data: &'a [u8], ended: bool) -> Step<&'a [u8]> {
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
        let is_between = |byte: &u8| byte.is_ascii_whitespace() || *byte == b',';
        match data.iter().take_while(|byte| is_between(byte)).count() {
            0 => {}
            bytes => return Step::Blank(bytes),
        }
        match data.first() {
            None if ended && self.in_array => {
                self.in_array = false;
                Step::Bad(
                    "the array does not end: the file is cut short".to_owned(),
                    0,
                )
            }
            None => Step::More,
            Some(b'[') if !self.in_array => {
                self.in_array = true;
                Step::Blank(1)
            }
            Some(b']') if self.in_array => {
                self.in_array = false;
                Step::Blank(1)
            }
            Some(_) => self.value(data, ended),
        }
    }

    fn value<'a>(&mut self, data: &'a [u8], ended: bool) -> Step<&'a [u8]> {
        let mut scan = Scan::default();
        match scan.end(data) {
            Some(end) if data.starts_with(b"{") => {
                Step::Row(data.get(..end).unwrap_or_default(), end)
            }
            Some(end) => Step::Bad("it is not a JSON object".to_owned(), end),
            None if data.len() > ROW_BYTES_MAX => {
                self.skipping = Some(scan);
                let reason = format!("it is longer than {ROW_BYTES_MAX} bytes");
                Step::Bad(reason, data.len())
            }
            None if ended => {
                self.in_array = false;
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
pub(super) struct Position {
    line: u64,
    /// Bytes of the line so far.
    before: usize,
}

impl Position {
    pub(super) const START: Position = Position { line: 1, before: 0 };

    /// Behind a whole line.
    pub(super) fn next_line(&mut self) {
        self.line += 1;
    }

    pub(super) fn advance(&mut self, bytes: &[u8]) {
        match memrchr(b'\n', bytes) {
            None => self.before += bytes.len(),
            Some(last) => {
                self.line += memchr::memchr_iter(b'\n', bytes).count() as u64;
                self.before = bytes.len() - last - 1;
            }
        }
    }

    /// What is wrong with the object that begins here, and where.
    pub(super) fn explained(self, error: &serde_json::Error) -> String {
        let text = error.to_string();
        let what = text
            .rsplit_once(" at line ")
            .map_or(&*text, |(what, _)| what);
        let line = self.line + (error.line() as u64).saturating_sub(1);
        let column = match error.line() {
            1 => self.before + error.column(),
            _ => error.column(),
        };
        format!("it is not a JSON object: {what} at line {line}, column {column}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands in documents: objects as they are, `!` for what is none, `|` for more.
    fn found(text: &str) -> String {
        let mut documents = Documents::default();
        let (mut rest, mut found) = (text.as_bytes(), String::new());
        loop {
            let bytes = match documents.next(rest, true) {
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
            ("[{},", "{}!"),
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
