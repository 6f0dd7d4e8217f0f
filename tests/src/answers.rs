//! Compares Loom's answer to a question with DuckDB's.

use anyhow::{Context, Result, ensure};

use crate::duckdb::{Row, Session};
use crate::question::Question;

/// Asks both forms and returns the number of rows, on which they agree.
pub fn compare(session: &mut Session, question: &Question) -> Result<usize> {
    let plain = session
        .query(&question.plain)
        .with_context(|| question.plain.clone())?;
    let loom = session
        .query(&question.loom)
        .with_context(|| question.loom.clone())?;
    let both = || format!("Loom:   {}\nDuckDB: {}", question.loom, question.plain);
    ensure!(
        loom.len() == plain.len(),
        "{} rows, not {}\n{}",
        loom.len(),
        plain.len(),
        both()
    );
    for (at, (found, expected)) in loom.iter().zip(&plain).enumerate() {
        let same = match question.inexact {
            None => found == expected,
            Some(columns) => nearly(found, expected, columns),
        };
        ensure!(
            same,
            "row {at} is\n{found:?}, not\n{expected:?}\n{}",
            both()
        );
    }
    Ok(loom.len())
}

/// True if the rows are equal, except for the sum and the average, which may differ by the tolerances in the last two columns.
fn nearly(found: &Row, expected: &Row, columns: [usize; 2]) -> bool {
    let Some((answer, tolerances)) = expected.split_at_checked(expected.len() - columns.len())
    else {
        return false;
    };
    let mut pairs = found.iter().zip(answer).enumerate();
    let alike = |(column, (found, expected)): (usize, (&Option<String>, &Option<String>))| {
        let tolerance = columns
            .iter()
            .position(|inexact| *inexact == column)
            .and_then(|at| tolerances.get(at)?.as_ref());
        let same = unsigned_zero(found) == unsigned_zero(expected);
        same || within(found.as_ref(), expected.as_ref(), tolerance).unwrap_or(false)
    };
    found.len() == answer.len() && pairs.all(alike)
}

/// Keys of an index have only one zero (FORMAT.md), so both zeros compare as equal.
fn unsigned_zero(value: &Option<String>) -> Option<&str> {
    value
        .as_deref()
        .map(|text| if text == "-0.0" { "0.0" } else { text })
}

/// All NaNs are equal, whatever their sign: the sign of a NaN sum depends on the order in which it was added up.
fn within(
    found: Option<&String>,
    expected: Option<&String>,
    tolerance: Option<&String>,
) -> Option<bool> {
    let number = |text: Option<&String>| text?.parse::<f64>().ok();
    let [found, expected] = [number(found)?, number(expected)?];
    let both_nan = found.is_nan() && expected.is_nan();
    Some(tolerance.is_some() && (both_nan || (found - expected).abs() <= number(tolerance)?))
}
