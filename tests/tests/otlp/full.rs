//! Senders while the disk is full to the last byte, and later has room again.

use anyhow::{Result, ensure};
use loom_tests::disk::MemoryDisk;
use loom_tests::seed::Seed;
use opentelemetry_proto::tonic::logs::v1::LogRecord;

use crate::sender::{Receiving, gauge, logs, metrics, now_ns, text};

const RECORDS: u64 = 1000;

/// A request whose records are in no other request, and which columns make hardly smaller.
fn batch(nth: u64) -> Vec<u8> {
    let mut seed = Seed::of(nth);
    let record = |row| {
        let noise: String = (0..200)
            .map(|_| char::from(b'!' + (seed.draw() % 94) as u8))
            .collect();
        LogRecord {
            time_unix_nano: now_ns(),
            body: text("", &format!("{} {noise}", nth * RECORDS + row)).value,
            ..LogRecord::default()
        }
    };
    logs((0..RECORDS).map(record).collect())
}

#[test]
fn what_a_full_disk_did_not_take_is_sent_again_and_stored_once() -> Result<()> {
    let Some(disk) = MemoryDisk::mount("otlp", "36m")? else {
        return Ok(());
    };
    let log = "[log]\nchunk = '4KiB'\nblock = '256KiB'\nsegment = '2MiB'\nstaging = '/dev/shm'\n";
    let config = format!("{log}[retention]\nmin_free = '0%'\non_full = 'refuse'");
    let receiving = Receiving::start(&disk.at().join("o.loom"), &config)?;
    let (mut refused, mut waits) = (0, 0);
    // Some 60 MB.
    let requests = 300;
    for nth in 0..requests {
        let body = batch(nth);
        loop {
            let reply = receiving.post("/v1/logs", &body)?;
            if reply.status == 200 {
                refused += reply.refused()?.0;
                break;
            }
            ensure!(reply.status == 503, "{reply:?} {}", reply.why());
            ensure!(reply.head.contains("retry-after: 1"), "{reply:?}");
            let why = reply.why();
            ensure!(why.contains("full") || why.contains("space"), "{why}");
            waits += 1;
            if waits == 3 {
                let points = metrics(vec![gauge("g", [(now_ns(), String::new(), 1.0)])]);
                ensure!(receiving.post("/v1/metrics", &points)?.status == 503);
                disk.grow("400m")?;
            }
        }
    }
    ensure!(waits >= 3, "the disk never filled");
    // Only the request during which the disk filled up is stored in part, or not at all.
    ensure!(refused <= RECORDS as i64, "{refused}");
    let stored = receiving.ask("SELECT concat(count(*), ' ', count(DISTINCT split_part(body, ' ', 1))) FROM loom_scan(DIR, 'logs')",
    )?;
    let wanted = requests as i64 * RECORDS as i64 - refused;
    ensure!(
        stored == format!("{wanted} {wanted}"),
        "{stored}, not {wanted}"
    );
    receiving.asks(
        "SELECT coalesce(sum(records), 0) FROM loom_losses(DIR)",
        refused.to_string(),
    )?;
    receiving.stop()
}
