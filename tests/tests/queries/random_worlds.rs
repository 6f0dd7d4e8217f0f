//! Random sources and random questions: Loom answers like plain DuckDB, whether or not `WHERE` prunes, in both versions.
//!
//! Runs for `LOOM_SECONDS`; `LOOM_SEED` repeats a run.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use loom_tests::answers::compare;
use loom_tests::duckdb::{Session, Version};
use loom_tests::question::Question;
use loom_tests::seed::Seed;
use loom_tests::world::World;

const SECONDS: u64 = 60;
const ZONES: [&str; 6] = [
    "UTC",
    "UTC",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
];

/// The results of a run.
#[derive(Default)]
struct Tally {
    worlds: u32,
    questions: u64,
    rows: usize,
    /// Scans that read less than the whole directory.
    pruned: u64,
    /// Worlds whose units were written between questions, which were then asked again.
    synced: u64,
    wrong: Vec<String>,
}

/// This many questions about a world are asked again once its units are written.
const ASKED_AGAIN: usize = 12;
/// The run ends after this many wrong answers.
const WRONG_MOST: usize = 5;

// G11
// case SQL: loom_rate
// case SQL: filter of a question
// case SQL: loom_top
#[test]
fn loom_answers_what_plain_duckdb_answers_over_random_sources() -> Result<()> {
    let seconds = std::env::var("LOOM_SECONDS").map_or(Ok(SECONDS), |text| text.parse())?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut seed = Seed::announced("random_worlds");
    let mut sessions = Vec::new();
    for version in Version::ALL {
        sessions.push(Session::open(version)?);
    }
    let mut tally = Tally::default();
    while Instant::now() < until && tally.wrong.len() < WRONG_MOST {
        let number = tally.worlds;
        ask_of_one(&mut seed, &mut sessions, until, &mut tally)
            .with_context(|| format!("world {number}"))?;
        tally.worlds += 1;
    }
    println!(
        "random_worlds: {} sources, {} questions, {} rows of answers, {} scans pruned, {} worlds asked again",
        tally.worlds, tally.questions, tally.rows, tally.pruned, tally.synced
    );
    ensure!(tally.wrong.is_empty(), "{}", tally.wrong.join("\n\n"));
    ensure!(tally.pruned > 0, "no question pruned anything");
    ensure!(tally.synced > 0, "no world was asked again");
    Ok(())
}

/// Generates one source and asks about it as long as there is time.
fn ask_of_one(
    seed: &mut Seed,
    sessions: &mut [Session],
    until: Instant,
    tally: &mut Tally,
) -> Result<()> {
    let place = tempfile::tempdir()?;
    let duckdb = sessions.first_mut().context("no session")?;
    let mut world = World::draw(seed, place.path(), duckdb)?;
    for session in &mut *sessions {
        world.give_plain(session)?;
    }
    let mut asked = Vec::new();
    for _ in 0..30 + world.rows.min(3000) / 30 {
        if Instant::now() >= until || tally.wrong.len() >= WRONG_MOST {
            break;
        }
        let question = Question::draw(seed, &world.table);
        let zone = seed.pick(&ZONES);
        ask_all(sessions, &world, &question, zone, tally);
        if asked.len() < ASKED_AGAIN {
            asked.push((question, zone));
        }
    }
    if world.sync()? {
        tally.synced += 1;
        world.story.push_str("; synced now");
        for (question, zone) in &asked {
            ask_all(sessions, &world, question, zone, tally);
        }
    }
    let stats = "SELECT count(*) FROM loom_scan_stats() WHERE chunks_pruned > 0 AND dir = ";
    let pruned = sessions
        .first_mut()
        .context("no session")?
        .value(&format!("{stats}'{}'", world.table.dir))?;
    tally.pruned += pruned.parse::<u64>()?;
    Ok(())
}

/// Asks both versions, and notes wrong answers.
fn ask_all(
    sessions: &mut [Session],
    world: &World,
    question: &Question,
    zone: &str,
    tally: &mut Tally,
) {
    for session in sessions {
        match ask(session, question, zone) {
            Ok(rows) => tally.rows += rows,
            Err(error) => tally.wrong.push(format!(
                "world {}, DuckDB {}, {zone}, {} rows: {}\n{error:#}",
                tally.worlds,
                session.version().name(),
                world.rows,
                world.story
            )),
        }
    }
    tally.questions += 1;
}

/// Asks twice in 2.0: with `WHERE` pruning and without.
fn ask(session: &mut Session, question: &Question, zone: &str) -> Result<usize> {
    session.query(&format!("SET TimeZone = '{zone}'"))?;
    let rows = compare(session, question).context("pruning")?;
    if session.version() == Version::V2 {
        session.query("SET loom_pushdown = false")?;
        let all = compare(session, question).context("not pruning");
        session.query("SET loom_pushdown = true")?;
        all?;
    }
    Ok(rows)
}
