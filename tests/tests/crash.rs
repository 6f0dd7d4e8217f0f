//! The daemon is killed at full rate, again and again: what a sync acknowledged is there afterwards, before the restart and
//! after it, and what else is there is whole, in order and without a gap.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use ingestd::client::{Client, ClientError};
use ingestd::protocol::Shape;
use loom_tests::daemon::{Daemon, ingestd};
use loom_tests::duckdb::{Session, Version};
use loom_tests::probe;
use loom_tests::seed::Seed;

const ROUNDS: u32 = 8;
const BATCH_RECORDS: u64 = 500;
const CONFIG: &str = "[log]\nblock = \"2MiB\"\n";

// G1
#[test]
fn every_acknowledged_record_survives_kill_9() -> Result<()> {
    let mut seed = Seed::announced("crash");
    let place = tempfile::tempdir()?;
    let dir = place.path().join("crash.loom");
    let from = probe::scan(&dir.display().to_string(), "");
    let mut readers = Version::ALL
        .into_iter()
        .map(Session::open)
        .collect::<Result<Vec<_>>>()?;
    let mut there = 0;
    for round in 0..ROUNDS {
        let daemon = Daemon::start(&dir, CONFIG)?;
        if round > 0 {
            let recovered = agreed(&mut readers, &from)?;
            ensure!(
                recovered == there,
                "round {round}: {there} records before the restart, {recovered} after it"
            );
        }
        let life = Duration::from_millis(seed.between(30, 600).unsigned_abs());
        let client = Client::connect(&dir)?;
        let acknowledged = thread::scope(|scope| {
            let producer = scope.spawn(|| produce(&client, there));
            thread::sleep(life);
            daemon.kill()?;
            producer
                .join()
                .map_err(|_| anyhow::anyhow!("the producer panicked"))?
        })?;
        there = agreed(&mut readers, &from)
            .with_context(|| format!("round {round}, after {life:?}"))?;
        ensure!(
            there >= acknowledged,
            "round {round}: {acknowledged} records were acknowledged, {there} are there"
        );
        println!("crash: killed after {life:?}, {acknowledged} acknowledged, {there} there");
    }
    Daemon::start(&dir, CONFIG)?.stop()?;
    ensure!(
        agreed(&mut readers, &from)? == there,
        "the last restart changed what is there"
    );
    ingestd(["check".as_ref(), dir.as_os_str()])?;
    Ok(())
}

/// What every reader sees; each must see sound records, and as many as the others.
fn agreed(readers: &mut [Session], from: &str) -> Result<u64> {
    let counts = readers
        .iter_mut()
        .map(|reader| probe::count_sound(reader, from))
        .collect::<Result<Vec<_>>>()?;
    match counts.as_slice() {
        [first, others @ ..] if others.iter().all(|count| count == first) => Ok(*first),
        _ => bail!("the readers see {counts:?} records"),
    }
}

/// Pushes from record `first` on until the daemon is gone. Gives how many records are acknowledged by then.
fn produce(client: &Client, first: u64) -> Result<u64> {
    let mut acknowledged = first;
    match push_on(client, first, &mut acknowledged) {
        Ok(never) => match never {},
        Err(ClientError::Io(_)) => Ok(acknowledged),
        Err(other) => Err(other.into()),
    }
}

fn push_on(
    client: &Client,
    first: u64,
    acknowledged: &mut u64,
) -> Result<std::convert::Infallible, ClientError> {
    let source = client.define_one(&probe::definition())?;
    let shape = Shape::Fixed {
        record_bytes: probe::PAYLOAD_BYTES as u16,
    };
    let mut payloads = Vec::new();
    let mut number = first;
    loop {
        for _ in 0..7 {
            payloads.clear();
            (number..number + BATCH_RECORDS)
                .for_each(|number| probe::append(number, &mut payloads));
            number += BATCH_RECORDS;
            client.push_batch(source, shape, &payloads)?;
        }
        *acknowledged = first + client.sync()?.counts.stored;
    }
}
