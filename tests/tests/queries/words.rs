//! Questions for parts of texts read few chunks of a field with words, and answer as DuckDB does over a table of its own.

use anyhow::{Result, ensure};
use loom_tests::duckdb::{Session, Version};

/// Lines of a log, some of them seldom and in the first half: in other cases, in other alphabets, and absent.
const MADE: &str = "SELECT TIMESTAMPTZ '2025-01-02 00:00:00+00' + to_microseconds(i * 1000) AS t, i AS id,
        CASE WHEN i % 120_000 = 5 THEN 'Payment 7f3a9b2c4d5e6f70 TimedOut after 30 s'
             WHEN i = 6006 THEN 'Größe überſchritten, ' || chr(8490) || 'elvin in İstanbul: DIſK sda1 is full'
             WHEN i % 1000 = 9 THEN NULL WHEN i % 1000 = 10 THEN ''
             WHEN i % 3 = 0 THEN 'request ' || md5(i::VARCHAR) || ' from 10.0.0.' || i % 256 || ' finished in ' || i % 977 || ' ms with status 200'
             ELSE 'GET /api/v1/users/' || i % 5000 || '/orders?page=' || i % 50 || ' 200 ' || i % 70_001 || ' \"-\" \"Mozilla/5.0 (X11; Linux x86_64)\"' END AS body
    FROM range(600_000) made(i)";

/// Only the units with such a text are read.
const PRUNED: &str = "body ILIKE '%timedout%'; contains(body, 'TimedOut'); body LIKE '%TimedOut%30%'; body LIKE 'Payment%TimedOut%'; body LIKE '%after 30 s';
    ends_with(body, 'after 30 s'); contains(lower(body), 'timedout'); lower(body) LIKE '%timed_ut%s'; upper(body) LIKE '%TIMEDOUT%'; body ILIKE 'PAYMENT%';
    lower(body) LIKE 'payment%'; starts_with(body, 'Payment'); body GLOB '*Payment*'; body GLOB '*TimedOut*[0-9]*'; lower(body) GLOB '*payment*'; body ^@ 'Payment 7f3a';
    regexp_matches(body, 'TimedOut after \\d+'); regexp_matches(body, '(?i)timedout|out of time') AND contains(body, 'after 30 s');
    regexp_matches(body, 'timedout', 'i'); regexp_full_match(body, 'Payment.*'); body ~ '.*(Timed)Out.*'; body SIMILAR TO 'Payment .*';
    body LIKE '%7f3a9b2c4d5e6f70%'; body LIKE '%a9b2c4d5e%'; body ILIKE '%KELVIN%'; body ILIKE '%İstanbul%'; body ILIKE '%istanbul: disk%' OR body ILIKE '%timedout%';
    upper(body) LIKE '%ISTANBUL%'; regexp_matches(body, '(?i)disk sda1'); regexp_matches(body, '(?i)kelvin'); body LIKE '%überſchritten%'; body ILIKE '%ÜBERſCHRITTEN%';
    contains(body COLLATE NOCASE, 'timedOUT'); body LIKE '% sda1 %'; body LIKE '%no such text%'; body = 'no such text'";

/// Conditions without a word, or that Loom does not understand.
const UNPRUNED: &str = "body LIKE '%x86%'; body ILIKE '%S wI%'; NOT contains(body, 'Mozilla'); body NOT LIKE '%Mozilla%'; body NOT ILIKE '%mozilla%'; body LIKE '%';
    regexp_matches(body, 'x8[0-9]|timed'); regexp_matches(body, 'status 200|sda'); regexp_matches(body, 'stat(us)? 200'); regexp_matches(body, '[[s]|t]tatus'); regexp_matches(body, '[[:]|t]tatus no such text');
    regexp_matches(body, 'a.*|b', 'l'); body LIKE '%10!.0%' ESCAPE '!'; contains(body, ''); body LIKE '%ſ%'; body ILIKE '%s%k%'; NOT body ILIKE '%timedout%'";

fn directory(place: &tempfile::TempDir, session: &mut Session) -> Result<String> {
    let dir = place.path().join("logs.loom").display().to_string();
    session.query(&format!(
        "COPY ({MADE}) TO '{dir}' (FORMAT loom, SOURCE 'logs', TS 't', WORDS 'body')"
    ))?;
    Ok(dir)
}

/// The chunks that the latest scan read, and all.
fn chunks(session: &mut Session) -> Result<Vec<u64>> {
    session.numbers(
        "SELECT chunks_read, chunks_total FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1",
    )
}

#[test]
fn each_question_for_a_part_of_a_text_reads_few_chunks_and_answers_as_duckdb_does() -> Result<()> {
    let place = tempfile::tempdir()?;
    let mut session = Session::open(Version::V2)?;
    let dir = directory(&place, &mut session)?;
    session.query(&format!("CREATE TABLE plain AS {MADE}"))?;
    let mut wrong = Vec::new();
    let pruned = PRUNED.split(';').map(|condition| (condition.trim(), true));
    let unpruned = UNPRUNED
        .split(';')
        .map(|condition| (condition.trim(), false));
    for (condition, is_pruned) in pruned.chain(unpruned) {
        let mut asked = |from: &str| {
            let sql = format!("SELECT count(*), sum(id) FROM {from} WHERE {condition}");
            session.cells(&sql)
        };
        let ours = asked(&format!("loom_scan('{dir}', 'logs')"))?;
        let theirs = asked("plain")?;
        let read = chunks(&mut session)?;
        if ours != theirs || is_pruned != (read[0] * 2 < read[1]) {
            wrong.push(format!("{condition}: {ours:?}, {theirs:?}, {read:?}"));
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn a_filter_for_a_part_of_a_text_reads_few_chunks_in_both_versions() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = directory(&place, &mut Session::open(Version::V2)?)?;
    for mut session in Session::all()? {
        let mut count = |filter: &str| {
            session.cells(&format!(
                "SELECT count(*) FROM loom_scan('{dir}', 'logs', filter := '{filter}')"
            ))
        };
        ensure!(
            count("body NOT CONTAINS ''Mozilla'' AND body CONTAINS ''status 200''")? == ["199599"]
        );
        ensure!(count("body CONTAINS ''timedout''")? == ["0"]);
        ensure!(count("body CONTAINS ''TimedOut''")? == ["5"]);
        let read = chunks(&mut session)?;
        ensure!(read[0] * 2 < read[1], "{read:?}");
    }
    Ok(())
}

#[test]
fn no_other_letter_is_an_ascii_letter_in_another_case() -> Result<()> {
    for version in Version::every()? {
        let mut session = Session::open(version)?;
        let mut letters = |condition: &str| {
            session.value(&format!(
                "SELECT coalesce(list(i ORDER BY i)::VARCHAR, '[]')
                 FROM (SELECT i, chr(i::INTEGER) AS x FROM (SELECT unnest(range(128, 55_296) || range(57_344, 1_114_112)) AS i))
                 WHERE {condition}"
            ))
        };
        let cased = letters("regexp_matches(lower(x) || upper(x), '[A-Za-z0-9]')")?;
        assert_eq!(cased, "[304, 305, 383, 8490]", "{}", version.name());
        let equal = letters("regexp_matches(x, '(?i)[a-z0-9]')")?;
        assert_eq!(equal, "[383, 8490]", "{}", version.name());
        assert_eq!(
            letters("length(lower(x)) <> 1 OR length(upper(x)) <> 1")?,
            "[]"
        );
    }
    Ok(())
}
