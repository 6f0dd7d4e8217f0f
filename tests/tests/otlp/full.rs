//! Senders of a disk that is full to the last byte, and has room again later.

use anyhow::{Result, ensure};
use opentelemetry_proto::tonic::logs::v1::LogRecord;

use crate::sender::{Receiving, ask, gauge, logs, metrics, now_ns, text};
use crate::small_disk::Small;

const RECORDS: u64 = 1000;

/// Records that no other request has.
fn batch(nth: u64) -> Vec<u8> {
    let record = |row| LogRecord {
        time_unix_nano: now_ns(),
        body: text("", &format!("{} {}", nth * RECORDS + row, "x".repeat(100))).value,
        ..LogRecord::default()
    };
    logs((0..RECORDS).map(record).collect())
}

#[test]
fn what_a_full_disk_did_not_take_is_sent_again_and_stored_once() -> Result<()> {
    let Some(small) = Small::mount("36m") else {
        return Ok(());
    };
    let dir = small.path().join("o.loom");
    let receiving = Receiving::start(
        &dir,
        "[log]\nchunk = '4KiB'\nblock = '256KiB'\nsegment = '2MiB'\nstaging = '/dev/shm'\n[retention]\nmin_free = '0%'\non_full = 'refuse'",
    )?;
    let (mut refused, mut waits) = (0, 0);
    // Some 40 MB.
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
            ensure!(
                reply.why().contains("full") || reply.why().contains("space"),
                "{}",
                reply.why()
            );
            waits += 1;
            if waits == 3 {
                let points = metrics(vec![gauge("g", [(now_ns(), String::new(), 1.0)])]);
                ensure!(receiving.post("/v1/metrics", &points)?.status == 503);
                small.grow("400m");
            }
        }
    }
    ensure!(waits >= 3, "the disk never filled");
    // Only the request during which the disk filled is taken in part.
    ensure!(refused < RECORDS as i64, "{refused}");
    let stored = ask(
        &dir,
        "SELECT concat(count(*), ' ', count(DISTINCT split_part(body, ' ', 1))) FROM loom_scan(DIR, 'logs')",
    )?;
    let wanted = requests as i64 * RECORDS as i64 - refused;
    ensure!(
        stored == format!("{wanted} {wanted}"),
        "{stored}, not {wanted}"
    );
    let lost = ask(
        &dir,
        "SELECT coalesce(sum(records), 0) FROM loom_losses(DIR)",
    )?;
    ensure!(lost == refused.to_string(), "{lost}, not {refused}");
    receiving.daemon.stop()
}
