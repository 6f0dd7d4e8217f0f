//! Records that describe themselves: each holds its number, from which every further word follows.
//!
//! So one query over a snapshot shows whether a record is torn (its words disagree), missing or repeated (the numbers are not 0 … n-1, once
//! each).

use anyhow::{Context, Result, ensure};

use crate::duckdb::Session;

/// Words after the number. With the number a payload has 64 bytes.
const WORDS: usize = 7;
pub const PAYLOAD_BYTES: usize = 8 * (1 + WORDS);

/// The difference between word `word` and the number; it is in all bytes.
const fn mask(word: usize) -> u64 {
    0x0123_4567_89AB_CDEF_u64.rotate_left(9 * word as u32 + 5)
}

/// The source `probe`, with an index over its numbers.
pub fn definition() -> String {
    let field = |name: &str| format!("[[source.field]]\nname = \"{name}\"\ntype = \"u64\"\n");
    let words: String = (0..WORDS).map(|word| field(&format!("w{word}"))).collect();
    format!(
        "[[source]]\nname = \"probe\"\n{}{words}[[source.index]]\nname = \"number\"\nvalue = \"number\"\n",
        field("number")
    )
}

/// Appends the payload of record `number`.
pub fn append(number: u64, payloads: &mut Vec<u8>) {
    payloads.extend_from_slice(&number.to_le_bytes());
    for word in 0..WORDS {
        payloads.extend_from_slice(&(number ^ mask(word)).to_le_bytes());
    }
}

/// The number of the record with this payload; `None` if its words disagree.
pub fn number(payload: &[u8]) -> Option<u64> {
    let (words, []) = payload.as_chunks::<8>() else {
        return None;
    };
    let mut words = words.iter().map(|word| u64::from_le_bytes(*word));
    let number = words.next()?;
    let expected = (0..WORDS).map(|word| number ^ mask(word));
    words.eq(expected).then_some(number)
}

/// A scan with parameters such as `, at := …`, or without any, of all visible records.
pub fn scan(dir: &str, parameters: &str) -> String {
    format!("loom_scan('{dir}', 'probe'{parameters})")
}

/// Fails unless `from` holds whole records with the numbers 0 … n-1, once each. Returns n.
pub fn count_sound(session: &mut Session, from: &str) -> Result<u64> {
    let torn: Vec<String> = (0..WORDS)
        .map(|word| format!("xor(xor(w{word}, {}::UBIGINT), number)", mask(word)))
        .collect();
    let sql = format!(
        "SELECT count(*), max(number), sum(number::HUGEINT), sum(number::HUGEINT * number::HUGEINT), bit_or({}) FROM {from}",
        torn.join(" | ")
    );
    let rows = session.query(&sql)?;
    let row = rows.first().context("no row")?;
    let mut numbers = row
        .iter()
        .map(|value| value.as_ref().map_or(Ok(0), |text| text.parse::<i128>()));
    let mut next = || {
        numbers
            .next()
            .context("a column is missing")?
            .context("not a number")
    };
    let (count, greatest, sum, squares, torn) = (next()?, next()?, next()?, next()?, next()?);
    ensure!(torn == 0, "torn records among {count}: {torn:#x}");
    let expected = [
        count - 1,
        count * (count - 1) / 2,
        count * (count - 1) * (2 * count - 1) / 6,
    ];
    ensure!(
        count == 0 || [greatest, sum, squares] == expected,
        "missing or repeated among {count}: greatest, sum and sum of squares are {:?}, not {expected:?}",
        [greatest, sum, squares]
    );
    Ok(u64::try_from(count)?)
}
