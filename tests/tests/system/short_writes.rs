//! Writes that the kernel cuts short: what is left of them is written too.

use std::collections::HashMap;
use std::path::Path;
use std::thread;

use anyhow::{Result, ensure};
use ingestd::client::Client;
use loom_tests::daemon::{Daemon, configuration, wait_until};
use loom_tests::machine;
use loom_tests::producer::Life;
use loom_tests::strace;
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use super::{Place, settle};

const RECORDS: u64 = 60_000;
/// Whole chunks are written, unless some of one is to be made durable.
const WHOLE_CHUNKS: &str =
    "[log]\nchunk = \"16KiB\"\nblock = \"64KiB\"\nsegment = \"1MiB\"\ndurability = \"none\"\n";
/// Within the first segment, and within a chunk.
const LIMIT_BYTES: u64 = 484 << 10;

/// How large the process may make a file. The kernel writes up to the limit, also within what is allocated, and fails from there on.
fn limit(process: Pid, bytes: Option<u64>) -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Fsize);
    let current = bytes.or(maximum);
    prlimit(Some(process), Resource::Fsize, Rlimit { current, maximum })?;
    Ok(())
}

/// Those writes of a trace that took some of their bytes, as (asked for, taken).
fn cut_short(trace: &str) -> Vec<(u64, u64)> {
    // A call that another thread's interrupts in the trace is told on two lines.
    let mut asked = HashMap::new();
    let mut short = Vec::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else {
            continue;
        };
        if let Some((_, arguments)) = call.split_once("pwrite64(") {
            let end = arguments.rfind([')', '<']).unwrap_or(arguments.len());
            let bytes = arguments.get(..end).and_then(|all| all.rsplit(", ").nth(1));
            asked.insert(thread, bytes.and_then(|bytes| bytes.parse::<u64>().ok()));
        }
        let taken = call
            .rsplit_once(") = ")
            .map(|(_, taken)| taken.trim().parse());
        if let (Some(Some(asked)), Some(Ok(taken))) = (asked.get(thread), taken)
            && taken < *asked
        {
            short.push((*asked, taken));
        }
    }
    short
}

fn in_trouble(dir: &Path) -> Result<bool> {
    let status: serde_json::Value = serde_json::from_str(&Client::connect(dir)?.status()?)?;
    Ok(status
        .get("trouble")
        .is_some_and(|trouble| !trouble.is_null()))
}

// case Disk: short write
#[test]
fn a_write_that_is_cut_short_is_completed() -> Result<()> {
    if !machine::has("short writes", &["strace"])? {
        return Ok(());
    }
    let place = Place::new()?;
    let config = place.config(WHOLE_CHUNKS);
    let file = configuration(&place.dir, &config)?;
    let trace = place.dir.with_extension("trace");
    let options = ["-e", "trace=pwrite64"].map(str::to_owned);
    let daemon = Daemon::spawn(
        strace::run(&place.dir, &file, &options, &trace)?,
        &place.dir,
    )?;
    limit(daemon.pid(), Some(LIMIT_BYTES))?;
    let mut life = Life::from(0);
    thread::scope(|scope| -> Result<()> {
        let producer = scope.spawn(|| life.push(&place.dir, RECORDS));
        let cut = || Ok::<_, anyhow::Error>(cut_short(&std::fs::read_to_string(&trace)?));
        let felt = wait_until(|| Ok(producer.is_finished() || !cut()?.is_empty()))?;
        let waits = !producer.is_finished();
        limit(daemon.pid(), None)?;
        let pushed = producer.join();
        println!("short writes: {:?}", cut()?);
        ensure!(felt && waits, "no write was cut short");
        pushed.map_err(|_| anyhow::anyhow!("the producer panicked"))?
    })?;
    ensure!(life.acknowledged() == RECORDS, "{life:?}");
    ensure!(!in_trouble(&place.dir)?, "the trouble does not end");
    daemon.end(Signal::KILL)?;
    settle(&place.dir, &config, &life, 0)?;
    Ok(())
}
