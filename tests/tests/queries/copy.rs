//! `COPY … TO` a directory that a daemon writes, and the records that a statement leaves if it does not end.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use loom_tests::daemon::{Daemon, ingestd, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use rustix::process::{Pid, Signal, kill_process};

/// The number of stored records, if they are the numbers from 0 on without a gap or a repetition.
fn stored(dir: &Path) -> Result<Option<u64>> {
    let mut session = Session::open(Version::V2)?;
    let asked = session.query(&format!(
        "SELECT count(*), count(DISTINCT n), coalesce(max(n) + 1, 0) FROM loom_scan('{}', 's')",
        dir.display()
    ));
    // Before the first record there is no directory, or no source.
    let Ok(rows) = asked else { return Ok(None) };
    let row = rows.first().context("no row")?;
    let numbers: Vec<u64> = row
        .iter()
        .map(|cell| {
            let text = cell.as_deref().context("NULL")?;
            text.parse().with_context(|| format!("{row:?}"))
        })
        .collect::<Result<_>>()?;
    ensure!(
        numbers.windows(2).all(|pair| pair.first() == pair.last()),
        "{row:?}"
    );
    Ok(numbers.first().copied())
}

/// A statement that runs until it is stopped, in a process of its own.
fn endless(dir: &Path) -> Result<std::process::Child> {
    let script = format!(
        "import duckdb, signal\n\
         connection = duckdb.connect(config={{'allow_unsigned_extensions': 'true'}})\n\
         connection.execute(\"LOAD '{}'\")\n\
         signal.signal(signal.SIGTERM, lambda *_: connection.interrupt())\n\
         try:\n    \
             connection.execute(\"COPY (SELECT n FROM range(1000000000000) AS made(n)) TO '{}' (FORMAT loom, SOURCE 's')\")\n\
         except duckdb.InterruptException:\n    \
             print('interrupted')\n",
        Version::V2.extension().display(),
        dir.display()
    );
    let mut command = Command::new(machine::python()?);
    Ok(command
        .args(["-c", &script])
        .stdout(Stdio::piped())
        .spawn()?)
}

// case SQL: COPY … TO
#[test]
fn rows_go_through_the_daemon_that_runs_and_what_it_refuses_is_counted() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("d.loom");
    let daemon = Daemon::start(&dir, "")?;
    let mut session = Session::open(Version::V2)?;
    let copy = |what: &str| {
        format!(
            "COPY ({what}) TO '{}' (FORMAT loom, SOURCE 's', INDEX 'n')",
            dir.display()
        )
    };
    session.query(&copy("SELECT n FROM range(300000) AS made(n)"))?;
    ensure!(stored(&dir)? == Some(300_000));
    // Only the daemon knows its limit of a record.
    let long = "SELECT n, repeat('x', 70000) AS text FROM range(300000, 300003) AS made(n)";
    let refused = session.query(&format!(
        "COPY ({long}) TO '{}' (FORMAT loom, SOURCE 's', ADD_FIELDS true)",
        dir.display()
    ));
    let message = refused.err().context("long rows were taken")?.0;
    ensure!(message.contains("3 of 3 rows are refused"), "{message}");
    daemon.stop()?;
    ensure!(stored(&dir)? == Some(300_000));
    ingestd(["check".as_ref(), dir.as_os_str()]).map(drop)
}

// case SQL: COPY … TO
#[test]
fn an_interrupt_keeps_the_rows_before_it_and_closes_the_directory() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("i.loom");
    let child = endless(&dir)?;
    ensure!(wait_until(|| Ok(
        stored(&dir)?.is_some_and(|rows| rows > 0)
    ))?);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::TERM)?;
    let output = child.wait_with_output()?;
    // DuckDB prints its progress first if the statement takes two seconds.
    ensure!(output.stdout.ends_with(b"interrupted\n"), "{output:?}");
    let rows = stored(&dir)?.context("nothing is stored")?;
    ensure!(rows > 0);
    ingestd(["check".as_ref(), dir.as_os_str()])?;
    // The next statement appends its rows.
    let mut session = Session::open(Version::V2)?;
    session.query(&format!(
        "COPY (SELECT n FROM range({rows}, {rows} + 1000) AS made(n)) TO '{}' (FORMAT loom, SOURCE 's')",
        dir.display()
    ))?;
    ensure!(stored(&dir)? == Some(rows + 1000));
    Ok(())
}

// case SQL: COPY … TO
#[test]
fn a_kill_keeps_what_was_stored_before_it() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("k.loom");
    let mut child = endless(&dir)?;
    ensure!(wait_until(|| Ok(
        stored(&dir)?.is_some_and(|rows| rows > 100_000)
    ))?);
    child.kill()?;
    child.wait()?;
    let rows = stored(&dir)?.context("nothing is stored")?;
    ensure!(rows > 100_000);
    let mut session = Session::open(Version::V2)?;
    session.query(&format!(
        "COPY (SELECT n FROM range({rows}, {rows} + 1000) AS made(n)) TO '{}' (FORMAT loom, SOURCE 's')",
        dir.display()
    ))?;
    ensure!(stored(&dir)? == Some(rows + 1000));
    ingestd(["check".as_ref(), dir.as_os_str()]).map(drop)
}

// case SQL: COPY … TO
#[test]
fn a_statement_declares_look_ups_of_new_and_existing_fields_and_builds_them() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("l.loom");
    let mut session = Session::open(Version::V2)?;
    let copy = |rows: u64, options: &str| {
        format!(
            "COPY (SELECT md5(n::VARCHAR) AS id, hash(n) AS key FROM range({rows}) AS made(n)) TO '{}' (FORMAT loom, SOURCE 's'{options})",
            dir.display()
        )
    };
    // Whether a question for one value reads few of the chunks.
    let is_pruned = |session: &mut Session, condition: &str| -> Result<bool> {
        let found = session.value(&format!(
            "SELECT count(*) FROM loom_scan('{}', 's') WHERE {condition}",
            dir.display()
        ))?;
        ensure!(found == "1", "{condition}: {found}");
        let read = session.numbers(
            "SELECT chunks_read, chunks_total FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1",
        )?;
        Ok(matches!(read[..], [read, total] if read * 2 < total))
    };
    let (by_id, by_key) = ("id = md5('777777')", "key = hash(777777::BIGINT)");
    // The log has a look-up for each 32 MiB, and one for its end.
    session.query(&copy(1_200_000, ", LOOKUP 'id'"))?;
    ensure!(is_pruned(&mut session, by_id)? && !is_pruned(&mut session, by_key)?);
    // Another statement declares them for what is there, and leaves those that exist.
    session.query(&copy(10, ", LOOKUP ('KEY')"))?;
    ensure!(is_pruned(&mut session, by_id)? && is_pruned(&mut session, by_key)?);
    // A daemon builds them itself.
    std::fs::remove_dir_all(dir.join("lookups"))?;
    let daemon = Daemon::start(&dir, "")?;
    session.query(&copy(10, ", LOOKUP 'id'"))?;
    ensure!(wait_until(|| is_pruned(&mut session, by_id))?);
    daemon.stop()
}
