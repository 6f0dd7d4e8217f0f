//! Open connections while everything around them changes: records arrive, the daemon stops, dies and comes back, and another process reads
//! the same directory.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use ingestd::client::Client;
use ingestd::protocol::Shape;
use loom_tests::daemon::Daemon;
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::probe;
use rustix::process::Signal;

/// Pushes the records with these numbers, and waits until queries see them.
fn push(dir: &Path, numbers: std::ops::Range<u64>) -> Result<()> {
    let client = Client::connect(dir)?;
    let source = client.define_one(&probe::definition())?;
    let shape = Shape::Fixed {
        record_bytes: u16::try_from(probe::PAYLOAD_BYTES)?,
    };
    let mut payloads = Vec::new();
    numbers.for_each(|number| probe::append(number, &mut payloads));
    for batch in payloads.chunks(1000 * probe::PAYLOAD_BYTES) {
        client.push_batch(source, shape, batch)?;
    }
    client.sync()?;
    Ok(())
}

/// Each session sees `count` sound records: with a new statement, with one that was prepared earlier, and from summaries.
fn all_see(sessions: &mut [Session], dir: &str, count: u64) -> Result<()> {
    for session in sessions {
        let version = session.version().name();
        let found = probe::count_sound(session, &probe::scan(dir, "")).context(version)?;
        ensure!(
            found == count,
            "DuckDB {version}: {found} records, not {count}"
        );
        let summed = format!("SELECT count FROM loom_aggregate('{dir}', 'probe', 'number')");
        for sql in ["EXECUTE known(0)", &summed] {
            let found = session.numbers(sql).context(version)?;
            ensure!(
                found == [count],
                "DuckDB {version}: {found:?}, not {count}: {sql}"
            );
        }
    }
    Ok(())
}

fn prepare(sessions: &mut [Session], dir: &str) -> Result<()> {
    for session in sessions {
        let from = probe::scan(dir, "");
        session.query(&format!(
            "PREPARE known AS SELECT count(number) FROM {from} WHERE number >= $1"
        ))?;
    }
    Ok(())
}

// case Concurrency: restart under an open reader
#[test]
fn open_connections_outlive_daemons_that_stop_or_are_killed() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("restarts.loom");
    let shown = dir.display().to_string();
    let mut daemon = Daemon::start(&dir, "")?;
    push(&dir, 0..1000)?;
    let mut sessions = Session::all()?;
    prepare(&mut sessions, &shown)?;
    all_see(&mut sessions, &shown, 1000)?;

    let mut count = 1000;
    for signal in [Signal::TERM, Signal::KILL, Signal::KILL] {
        push(&dir, count..count + 5000)?;
        count += 5000;
        all_see(&mut sessions, &shown, count)?;
        daemon.end(signal)?;
        all_see(&mut sessions, &shown, count).with_context(|| format!("after {signal:?}"))?;
        daemon = Daemon::start(&dir, "")?;
        all_see(&mut sessions, &shown, count)
            .with_context(|| format!("restarted after {signal:?}"))?;
    }
    push(&dir, count..count + 10)?;
    all_see(&mut sessions, &shown, count + 10)?;
    daemon.stop()
}

#[test]
fn two_processes_see_the_same_at_one_position() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("position.loom");
    let shown = dir.display().to_string();
    let daemon = Daemon::start(&dir, "")?;
    push(&dir, 0..3000)?;
    let mut sessions = Session::all()?;
    let position = sessions
        .first_mut()
        .context("no session")?
        .value(&format!("SELECT position FROM loom_snapshot('{shown}')"))?;
    push(&dir, 3000..4000)?;
    for session in &mut sessions {
        let earlier = probe::count_sound(
            session,
            &probe::scan(&shown, &format!(", at := {position}")),
        )?;
        ensure!(earlier == 3000, "{earlier} records at the position");
        ensure!(probe::count_sound(session, &probe::scan(&shown, ""))? == 4000);
    }
    daemon.stop()
}

/// Begins a scan, prints its first batch, and ends it when a line arrives.
const SLOW_SCAN: &str = "
import duckdb, sys
extension, scan = sys.argv[1:3]
connection = duckdb.connect(config={'allow_unsigned_extensions': 'true', 'threads': 1})
connection.execute(f\"LOAD '{extension}'\")
connection.execute(\"SET streaming_buffer_size = '64KiB'\")
reader = connection.sql(f'SELECT number FROM {scan}').to_arrow_reader(1000)
rows = reader.read_next_batch().num_rows
print('begun', flush=True)
sys.stdin.readline()
print(rows + sum(batch.num_rows for batch in reader), flush=True)
";

#[test]
fn a_scan_that_has_begun_sees_nothing_that_arrives_later() -> Result<()> {
    const EARLIER: u64 = 200_000;
    let place = tempfile::tempdir()?;
    let dir = place.path().join("slow.loom");
    let told = place.path().join("told");
    let daemon = Daemon::start(&dir, "")?;
    push(&dir, 0..EARLIER)?;
    let mut process = Command::new(machine::python()?)
        .args(["-c", SLOW_SCAN])
        .arg(Version::V2.extension())
        .arg(probe::scan(&dir.display().to_string(), ""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(&told)?)
        .spawn()?;
    let mut input = process.stdin.take().context("no input")?;
    let mut said = BufReader::new(process.stdout.take().context("no output")?).lines();
    let mut line = || match said.next() {
        Some(line) => Ok(line?),
        None => anyhow::bail!("the scan ended: {}", std::fs::read_to_string(&told)?),
    };
    ensure!(line()? == "begun");
    push(&dir, EARLIER..EARLIER + 50_000)?;
    input.write_all(b"\n")?;
    let rows = line()?;
    ensure!(rows == EARLIER.to_string(), "{rows} rows, not {EARLIER}");
    ensure!(process.wait()?.success());
    daemon.stop()
}

#[test]
fn a_limit_is_obeyed_while_the_source_grows() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("limit.loom");
    let daemon = Daemon::start(&dir, "")?;
    push(&dir, 0..50)?;
    let mut sessions = Session::all()?;
    let from = probe::scan(&dir.display().to_string(), "");
    for session in &mut sessions {
        session.query(&format!(
            "PREPARE hundred AS SELECT count(*) FROM (FROM {from} LIMIT 100)"
        ))?;
    }
    push(&dir, 50..50_000)?;
    for session in &mut sessions {
        let rows = session.cells("EXECUTE hundred")?;
        ensure!(rows == ["100"], "{rows:?}");
    }
    daemon.stop()
}
