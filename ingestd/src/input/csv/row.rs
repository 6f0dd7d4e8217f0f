//! Finds one row of CSV in a block of bytes, and its fields.
//!
//! `csv-core` accepts any bytes: after a stray quote it reads the lines up to the next quote as one field. Here such a row is malformed, and reading
//! goes on after its first line break.

use memchr::{memchr, memchr2};

/// The byte range of a field in its row, without quotes.
#[derive(Copy, Clone)]
pub(super) struct Span {
    pub start: usize,
    pub end: usize,
    /// The field contains doubled quotes.
    pub escaped: bool,
}

pub(super) enum Found {
    /// A row with its length, including the line break; `lines` says that it contains a line break within quotes.
    Row { bytes: usize, lines: bool },
    /// The row does not end within the data.
    More,
    /// The reason why the first line is not a row.
    Malformed(&'static str),
}

/// Finds the first row in `data` and its fields. `ended` says that no more bytes follow.
pub(super) fn find(data: &[u8], delimiter: u8, ended: bool, spans: &mut Vec<Span>) -> Found {
    spans.clear();
    if data.is_empty() {
        return Found::More;
    }
    let (mut at, mut lines) = (0, false);
    loop {
        let is_quoted = data.get(at) == Some(&b'"');
        let (mut span, after) = match is_quoted {
            false => unquoted(data, at, delimiter),
            true => match quoted(data, at + 1) {
                Some(found) => found,
                None if ended => return Found::Malformed("a quote is not closed"),
                None => return Found::More,
            },
        };
        let text = || data.get(span.start..span.end).unwrap_or_default();
        lines |= is_quoted && memchr(b'\n', text()).is_some();
        let break_bytes = match data.get(after..).unwrap_or_default() {
            [byte, ..] if *byte == delimiter => {
                spans.push(span);
                at = after + 1;
                continue;
            }
            [b'\n', ..] => 1,
            [b'\r', b'\n', ..] => 2,
            [] | [b'\r'] if !ended => return Found::More,
            [] => 0,
            [b'\r'] => 1,
            _ => {
                return Found::Malformed(
                    "text follows a closing quote; double the quotes within a field",
                );
            }
        };
        if !is_quoted && text().ends_with(b"\r") {
            span.end -= 1;
        }
        spans.push(span);
        let bytes = after + break_bytes;
        return Found::Row { bytes, lines };
    }
}

/// The field up to the next delimiter or line break, and its end.
fn unquoted(data: &[u8], start: usize, delimiter: u8) -> (Span, usize) {
    let rest = data.get(start..).unwrap_or_default();
    let end = start + memchr2(delimiter, b'\n', rest).unwrap_or(rest.len());
    let span = Span {
        start,
        end,
        escaped: false,
    };
    (span, end)
}

/// The quoted field that begins at `start`, and its end; `None` if the quote is not closed.
fn quoted(data: &[u8], start: usize) -> Option<(Span, usize)> {
    let mut at = start;
    let mut escaped = false;
    loop {
        let end = at + memchr(b'"', data.get(at..)?)?;
        if data.get(end + 1) != Some(&b'"') {
            let span = Span {
                start,
                end,
                escaped,
            };
            return Some((span, end + 1));
        }
        escaped = true;
        at = end + 2;
    }
}
