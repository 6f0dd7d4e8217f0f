//! Random rows in a Parquet file, loaded into Loom with their own times and several indexes: random questions must get from
//! Loom what DuckDB says over the file, in both DuckDB versions.
//!
//! `LOOM_ROWS` and `LOOM_QUESTIONS` set the size, `LOOM_SEED` repeats a run.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{Row, Session, Version};
use loom_tests::mixed::{indexes, rows_sql, view_sql};
use loom_tests::questions::Question;
use loom_tests::seed::Seed;

const ROWS: u64 = 5_000_000;
const QUESTIONS: u64 = 200;

#[test]
fn loom_answers_what_duckdb_answers_over_the_parquet_file() -> Result<()> {
    let mut seed = Seed::announced("random_parquet");
    let rows = size("LOOM_ROWS", ROWS)?;
    let questions = size("LOOM_QUESTIONS", QUESTIONS)?;
    let place = tempfile::tempdir()?;
    let parquet = place.path().join("mixed.parquet").display().to_string();
    let dir = place.path().join("mixed.loom");

    let make = rows_sql(rows, seed.value());
    Session::plain(Version::V2)?.query(&format!("COPY ({make}) TO '{parquet}'"))?;
    load(&dir, &parquet, rows)?;

    let dir = dir.display().to_string();
    let questions: Vec<Question> = (0..questions)
        .map(|_| Question::draw(&mut seed, &dir))
        .collect();
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        session.query(&view_sql(&parquet))?;
        let (mut wrong, mut held) = (Vec::new(), 0_usize);
        for (number, question) in questions.iter().enumerate() {
            match compare(&mut session, question) {
                Ok(rows) => held += rows,
                Err(difference) => wrong.push(format!("question {number}: {difference:#}")),
            }
        }
        println!(
            "{}: {} questions, {held} rows of answers",
            version.name(),
            questions.len()
        );
        let shown: Vec<String> = wrong.iter().take(5).cloned().collect();
        ensure!(
            wrong.is_empty(),
            "DuckDB {}: {} answers differ\n{}",
            version.name(),
            wrong.len(),
            shown.join("\n\n")
        );
    }
    Ok(())
}

fn size(variable: &str, default: u64) -> Result<u64> {
    std::env::var(variable).map_or(Ok(default), |text| {
        text.parse().with_context(|| format!("{variable}={text}"))
    })
}

fn load(dir: &Path, parquet: &str, rows: u64) -> Result<()> {
    let dir = dir.display().to_string();
    let mut command = vec!["load", dir.as_str(), "--source", "mixed", "--ts", "t"];
    command.extend(indexes().flat_map(|column| ["--index", column.name]));
    command.push(parquet);
    let said = ingestd(command)?;
    let counts = format!("received={rows} stored={rows} refused=0 dropped=0");
    ensure!(said.trim_end().ends_with(&counts), "load said: {said}");
    Ok(())
}

/// Asks both forms and gives the number of rows that they agree on.
fn compare(session: &mut Session, question: &Question) -> Result<usize> {
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

/// True where the rows are equal, but for the sum and the average, which may differ by what the last two columns allow.
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

/// Keys of an index know one zero (FORMAT.md), which is equal to the other.
fn unsigned_zero(value: &Option<String>) -> Option<&str> {
    value
        .as_deref()
        .map(|text| if text == "-0.0" { "0.0" } else { text })
}

/// A NaN is one whatever its sign: the sign of a sum that is none follows the order in which it was added up.
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
