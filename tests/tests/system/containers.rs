//! A daemon and its readers in containers, as far as namespaces make them: each has a `/dev/shm`, processes and networks of its own.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Result, ensure};
use ingestd::client::{Client, RingClient};
use loom_tests::daemon::{Daemon, configuration};
use loom_tests::duckdb::Version;
use loom_tests::machine;

const SOURCE: &str =
    "[[source]]\nname = \"numbers\"\n[[source.field]]\nname = \"n\"\ntype = \"u64\"\n";
const BLOCKS: &str = "[log]\nblock = \"1MiB\"\nsegment = \"1MiB\"\n";
const OWN_SHM: &str = "mount -t tmpfs none /dev/shm";

/// A command in a container in which the shell has made `mounts`.
fn within(mounts: &str, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command
        .args([
            "--mount",
            "--ipc",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
        ])
        .args(["sh", "-euc", &format!("{mounts}; exec \"$@\""), "sh"])
        .arg(program)
        .args(arguments)
        .stdin(Stdio::null());
    command
}

/// Counts the records in a container, with DuckDB.
fn counted(mounts: &str, dir: &Path) -> Result<Output> {
    let script = format!(
        "import duckdb\n\
         connection = duckdb.connect(config={{'allow_unsigned_extensions': 'true'}})\n\
         connection.execute(\"LOAD '{}'\")\n\
         print(connection.execute(\"SELECT count(*) FROM loom_scan('{}', 'numbers')\").fetchone()[0])\n",
        Version::V2.extension().display(),
        dir.display()
    );
    Ok(within(mounts, &machine::python()?, &["-c", &script]).output()?)
}

fn text(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// A configuration of a daemon that stages in its directory.
fn staged_in(dir: &Path) -> String {
    let staging = format!("[log]\nstaging = \"{}\"\n", dir.display());
    format!("{}{SOURCE}", BLOCKS.replace("[log]\n", &staging))
}

fn push(dir: &Path, count: u64) -> Result<()> {
    let client = Client::connect(dir)?;
    let source = client.define_one(SOURCE)?;
    for number in 0..count {
        client.push(source, &number.to_le_bytes())?;
    }
    client.sync()?;
    Ok(())
}

/// Whether this test can make containers.
fn can(test: &str) -> Result<bool> {
    if !machine::has(test, &["unshare", "mount"])? {
        return Ok(false);
    }
    if within(OWN_SHM, Path::new("true"), &[])
        .output()?
        .status
        .success()
    {
        return Ok(true);
    }
    machine::skip(test, "it needs namespaces, as root has them")?;
    Ok(false)
}

#[test]
fn a_reader_with_shared_memory_of_its_own_is_told_what_helps() -> Result<()> {
    if !can("a_reader_with_shared_memory_of_its_own_is_told_what_helps")? {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let dir = place.path().join("live.loom");
    let daemon = Daemon::start(&dir, &format!("{BLOCKS}{SOURCE}"))?;
    push(&dir, 5)?;
    let note: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("staging"))?)?;
    let staging = note["path"].as_str().unwrap_or_default();
    ensure!(staging.starts_with("/dev/shm/"), "{note}");
    let named = format!("{OWN_SHM}; touch {staging}");
    let shown = dir.display().to_string();
    let rows = place.path().join("rows.json");
    std::fs::write(&rows, "{\"n\": 6}\n")?;
    let rows = rows.display().to_string();
    let load = ["load", &shown, &rows, "--source", "numbers"];
    for mounts in [OWN_SHM, &named] {
        let check = within(mounts, &machine::ingestd()?, &["check", &shown]).output()?;
        let loaded = within(mounts, &machine::ingestd()?, &load).output()?;
        for output in [counted(mounts, &dir)?, check, loaded] {
            let said = text(&output);
            ensure!(!output.status.success(), "{said}");
            for word in [staging, "container", "`[log] staging`", "--ipc=host"] {
                ensure!(said.contains(word), "{word}: {said}");
            }
        }
        // It asks the daemon.
        let status = within(mounts, &machine::ingestd()?, &["status", &shown]).output()?;
        ensure!(
            status.status.success() && text(&status).contains("numbers"),
            "{}",
            text(&status)
        );
    }
    let shared = counted("true", &dir)?;
    ensure!(text(&shared).trim() == "5", "{}", text(&shared));
    daemon.stop()?;
    let after = counted(OWN_SHM, &dir)?;
    ensure!(text(&after).trim() == "5", "{}", text(&after));
    Ok(())
}

#[test]
fn staging_in_the_directory_is_read_in_containers_that_have_it_elsewhere() -> Result<()> {
    if !can("staging_in_the_directory_is_read_in_containers_that_have_it_elsewhere")? {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let dir = place.path().join("live.loom");
    let daemon = Daemon::start(&dir, &staged_in(&dir))?;
    push(&dir, 5)?;
    let elsewhere = place.path().join("elsewhere");
    std::fs::create_dir(&elsewhere)?;
    let bound = format!(
        "{OWN_SHM}; mount --bind {} {}",
        dir.display(),
        elsewhere.display()
    );
    let output = counted(&bound, &elsewhere)?;
    ensure!(text(&output).trim() == "5", "{}", text(&output));
    // Another container pushes through the socket in it.
    let rows = place.path().join("rows.json");
    std::fs::write(&rows, "{\"n\": 1}\n{\"n\": 2}\n")?;
    let (at, rows) = (elsewhere.display().to_string(), rows.display().to_string());
    let load = ["load", &at, &rows, "--source", "numbers"];
    let loaded = within(&bound, &machine::ingestd()?, &load).output()?;
    ensure!(loaded.status.success(), "{}", text(&loaded));
    let output = counted(&bound, &elsewhere)?;
    ensure!(text(&output).trim() == "7", "{}", text(&output));
    daemon.stop()
}

#[test]
fn a_daemon_in_a_container_takes_what_is_pushed_outside_and_in_another() -> Result<()> {
    if !can("a_daemon_in_a_container_takes_what_is_pushed_outside_and_in_another")? {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let dir = place.path().join("live.loom");
    let file = configuration(&dir, &staged_in(&dir))?;
    let (at, config) = (dir.display().to_string(), file.display().to_string());
    let run = ["run", &at, "--config", &config];
    let daemon = Daemon::spawn(within(OWN_SHM, &machine::ingestd()?, &run), &dir)?;
    // Outside, over the socket and through a ring.
    push(&dir, 5)?;
    let mut ring = RingClient::connect(&dir)?;
    let source = ring.define_one(SOURCE)?;
    ring.push(source, &5_u64.to_le_bytes())?;
    ring.sync()?;
    let rows = place.path().join("rows.json");
    std::fs::write(&rows, "{\"n\": 6}\n{\"n\": 7}\n")?;
    let load = [
        "load",
        &at,
        &rows.display().to_string(),
        "--source",
        "numbers",
    ];
    let loaded = within(OWN_SHM, &machine::ingestd()?, &load).output()?;
    ensure!(loaded.status.success(), "{}", text(&loaded));
    let output = counted(OWN_SHM, &dir)?;
    ensure!(text(&output).trim() == "8", "{}", text(&output));
    daemon.kill()
}
