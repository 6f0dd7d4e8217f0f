//! Conditions on any field, and on functions of fields and times, read only the chunks that may hold rows, and answer as DuckDB does over a
//! table of its own.

use anyhow::{Result, ensure};
use loom_tests::duckdb::{Session, Version};

const ROWS: u32 = 1_000_000;

/// Fields without an index, whose values lie side by side; the times are a day's.
const MADE: &str = "SELECT TIMESTAMPTZ '2025-01-02 00:00:00+00' + to_microseconds(i * 86400) AS t,
        i AS id, (i / 3.0)::DOUBLE AS d, (i / 7.0)::FLOAT AS f, i % 2 = 0 AND i > 950_000 AS late,
        CASE WHEN i BETWEEN 100_000 AND 100_010 THEN NULL ELSE i // 1000 END AS n,
        CASE WHEN i = 750_000 THEN 7 ELSE 0 END AS err,
        'key' || lpad(i::VARCHAR, 7, '0') AS k, 'key' || lpad(i::VARCHAR, 7, '0') || 'é' AS e,
        chr(65 + (i // 50_000)::INTEGER)::BLOB AS b,
        ('2025-01-02'::TIMESTAMP_NS + to_microseconds(i * 86400))::TIMESTAMP_NS AS due
    FROM range(1_000_000) made(i)";

/// Each holds for at most a tenth of the rows.
const CONDITIONS: &str = "id = 123_456; id IN (5, 999_999); id BETWEEN 7 AND 70; id / 1e5 > 9.5; id * 2 > 1_990_000; -id < -990_000;
    1_000_000 - id < 1000; id // 1000 = 123; id::DOUBLE / 1e3 BETWEEN 5 AND 6; id % 7 = 3 AND id // 1000 = 123;
    d > 330_000; d * 3 > 999_000; -d < -330_000; -d > -5; round(d, 1) > 330_000; floor(f) > 140_000; ceil(f / 2) - 5 > 70_000;
    late; late = true; n IS NULL; n IS NOT DISTINCT FROM NULL; n IS NOT DISTINCT FROM 999; n = 5 OR err = 7;
    err <> 0; err NOT IN (0, 1); NOT (err IN (0, 1, 2, 3, 4, 5, 6, 8, 9, 10)); err IS DISTINCT FROM 0;
    k = 'key0123456'; k IN ('key0123456', 'key0999999'); k LIKE 'key0123%'; k LIKE 'key0123_56'; k > 'key099'; k < 'key00099';
    starts_with(k, 'key0123'); k ^@ 'key0123'; k GLOB 'key0123*'; e = 'key0123456é'; e LIKE 'key0999999é%'; b = 'B'::BLOB; b > 'S'::BLOB;
    epoch(due) > 1_735_862_399; year(due) = 2024; year(due) > 2025; due + INTERVAL 1 HOUR > '2025-01-03 00:59:00';
    strftime(due, '%Y-%m-%d %H') = '2025-01-02 07'; date_trunc('hour', due) = '2025-01-02 07:00:00'; due::DATE = '2025-01-03';
    time_bucket(INTERVAL 1 HOUR, due) = '2025-01-02 07:00:00'; due::TIMESTAMP > '2025-01-02 23:59:00'; due::DATE + 1 = '2025-01-04';
    epoch(ts) > 1_735_862_399; epoch_ms(ts) > 1_735_862_399_000; epoch_us(ts) / 1e6 < 1_735_776_001; epoch_ns(ts) < 1_735_776_001_000_000_000;
    extract(epoch FROM ts) - 1_735_776_000 < 1; ts + INTERVAL 1 HOUR > '2025-01-03 00:59:00+00'; year(ts) = 2022; ts - INTERVAL 1 MONTH < '2024-11-03 00:00:00+00'";

#[test]
fn each_condition_on_a_field_reads_few_chunks_and_answers_as_duckdb_does() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("fields.loom").display().to_string();
    let mut session = Session::open(Version::V2)?;
    session.query(&format!(
        "COPY ({MADE}) TO '{dir}' (FORMAT loom, SOURCE 's', TS 't')"
    ))?;
    session.query(&format!(
        "CREATE TABLE plain AS SELECT t AS ts, * FROM ({MADE})"
    ))?;
    let mut wrong = Vec::new();
    for condition in CONDITIONS.split(';').map(str::trim) {
        let mut asked = |from: &str| {
            let sql = format!("SELECT count(*), sum(id) FROM {from} WHERE {condition}");
            session.cells(&sql)
        };
        let ours = asked(&format!("loom_scan('{dir}', 's')"))?;
        let theirs = asked("plain")?;
        let read = session.numbers(
            "SELECT chunks_read, chunks_total FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1",
        )?;
        let rows: u32 = theirs.first().map_or(Ok(0), |rows| rows.parse())?;
        if ours != theirs || rows > ROWS / 10 || read[0] * 8 > read[1] {
            wrong.push(format!("{condition}: {ours:?}, {theirs:?}, {read:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn months_in_the_offset_of_a_bucket_cut_days_off() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("months.loom").display().to_string();
    let mut session = Session::open(Version::V2)?;
    session.query(&format!(
        "COPY (SELECT TIMESTAMPTZ '2023-01-01 00:00:00+00' + to_seconds(i * 80) AS t,
             '2023-01-01'::TIMESTAMP_NS + to_seconds(i * 80) AS due FROM range(200_000) made(i))
         TO '{dir}' (FORMAT loom, SOURCE 's', TS 't')"
    ))?;
    for offset in ["1 MONTH", "-1 MONTH", "13 HOUR"] {
        for day in ["2023-03-28", "2023-02-28", "2023-01-28"] {
            let mut counted = |pushdown: bool| -> Result<String> {
                session.query(&format!("SET loom_pushdown = {pushdown}"))?;
                session.value(&format!(
                    "SELECT count(*) FROM loom_scan('{dir}', 's')
                     WHERE time_bucket(INTERVAL 1 DAY, due, INTERVAL '{offset}') = TIMESTAMP '{day}'"
                ))
            };
            assert_eq!(counted(true)?, counted(false)?, "{offset} {day}");
        }
    }
    Ok(())
}

#[test]
fn another_calendar_has_other_years() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("years.loom").display().to_string();
    let mut session = Session::open(Version::V2)?;
    session.query(&format!(
        "COPY (SELECT TIMESTAMPTZ '2025-01-02 00:00:00+00' AS t, 1 AS id) TO '{dir}' (FORMAT loom, SOURCE 's', TS 't')"
    ))?;
    session.query("SET Calendar = 'buddhist'")?;
    let sql = format!("SELECT count(*) FROM loom_scan('{dir}', 's') WHERE year(ts) = 2568");
    assert_eq!(session.value(&sql)?, "1");
    Ok(())
}
