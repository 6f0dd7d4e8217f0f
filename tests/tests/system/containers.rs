//! A daemon and its readers in containers, as far as namespaces make them: each has its own `/dev/shm`, processes and networks.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use ingestd::client::{Client, RingClient};
use loom_tests::command::{Ended, says, word};
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
    command.args("--mount --ipc --net --pid --fork --kill-child".split(' '));
    command.args(["sh", "-euc", &format!("{mounts}; exec \"$@\""), "sh"]);
    command.arg(program).args(arguments).stdin(Stdio::null());
    command
}

/// Counts the records in a container, with DuckDB.
fn counted(mounts: &str, dir: &Path) -> Result<Ended> {
    let script = format!(
        "import duckdb\n\
         connection = duckdb.connect(config={{'allow_unsigned_extensions': 'true'}})\n\
         connection.execute(\"LOAD '{}'\")\n\
         print(connection.execute(\"SELECT count(*) FROM loom_scan('{}', 'numbers')\").fetchone()[0])\n",
        Version::V2.extension().display(),
        dir.display()
    );
    let mut python = within(mounts, &machine::python()?, &["-c", &script]);
    Ok(Ended::of(&mut python))
}

/// Runs a command of `ingestd` in a container.
fn ingestd(mounts: &str, words: &[&str]) -> Result<Ended> {
    Ok(Ended::of(&mut within(mounts, &machine::ingestd()?, words)))
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

/// Whether this machine can make containers.
fn can(test: &str) -> Result<bool> {
    if !machine::has(test, &["unshare", "mount"])? {
        return Ok(false);
    }
    if Ended::of(&mut within(OWN_SHM, Path::new("true"), &[])).code == Some(0) {
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
        let check = ingestd(mounts, &["check", &shown])?;
        let loaded = ingestd(mounts, &load)?;
        for ended in [counted(mounts, &dir)?, check, loaded] {
            ensure!(ended.code != Some(0), "{ended:?}");
            for words in [staging, "container", "`[log] staging`", "--ipc=host"] {
                says(&ended.all(), words);
            }
        }
        // It asks the daemon.
        ingestd(mounts, &["status", &shown])?
            .ends(0)
            .says("numbers");
    }
    counted("true", &dir)?.prints("5\n");
    daemon.stop()?;
    counted(OWN_SHM, &dir)?.prints("5\n");
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
    counted(&bound, &elsewhere)?.prints("5\n");
    // Another container pushes through the socket in the directory.
    let rows = place.path().join("rows.json");
    std::fs::write(&rows, "{\"n\": 1}\n{\"n\": 2}\n")?;
    let (at, rows) = (elsewhere.display().to_string(), rows.display().to_string());
    let load = ["load", &at, &rows, "--source", "numbers"];
    ingestd(&bound, &load)?.ends(0);
    counted(&bound, &elsewhere)?.prints("7\n");
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
    // Pushes from outside, over the socket and through a ring.
    push(&dir, 5)?;
    let mut ring = RingClient::connect(&dir)?;
    let source = ring.define_one(SOURCE)?;
    ring.push(source, &5_u64.to_le_bytes())?;
    ring.sync()?;
    let rows = place.path().join("rows.json");
    std::fs::write(&rows, "{\"n\": 6}\n{\"n\": 7}\n")?;
    let load = ["load", &at, word(&rows), "--source", "numbers"];
    ingestd(OWN_SHM, &load)?.ends(0);
    counted(OWN_SHM, &dir)?.prints("8\n");
    daemon.kill()
}
