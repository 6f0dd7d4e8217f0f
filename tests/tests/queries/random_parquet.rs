//! Random rows in a Parquet file, loaded into Loom with their own times and several indexes: Loom must answer random questions like DuckDB
//! over the file, in both DuckDB versions.
//!
//! `LOOM_ROWS` and `LOOM_QUESTIONS` set the size, `LOOM_SEED` repeats a run.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use loom_tests::answers::compare;
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{Session, Version};
use loom_tests::mixed::{indexes, rows_sql, table, view_sql};
use loom_tests::question::Question;
use loom_tests::seed::Seed;

const ROWS: u64 = 1_000_000;
const QUESTIONS: u64 = 40;

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

    let table = table(&dir.display().to_string());
    let questions: Vec<Question> = (0..questions)
        .map(|_| Question::draw(&mut seed, &table))
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
    command.extend(indexes().flat_map(|column| ["--index", column]));
    command.push(parquet);
    let said = ingestd(command)?;
    let counts = format!("received={rows} stored={rows} refused=0 dropped=0");
    ensure!(said.trim_end().ends_with(&counts), "load said: {said}");
    Ok(())
}
