//! Rings: the cost of a push for an application, the speed at which the daemon takes records out, and the cost of each record for its
//! threads.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ingestd::client::RingClient;
use loom_client::ring::layout::CAPACITY_BYTES_MAX;
use loom_client::ring::{Calibration, Consumer, Producer, PushError, Stamps, WhenFull};
use loom_engine::SourceId;
use loom_tests::daemon::Daemon;

use super::clock::Stopwatch;
use super::figures::Figures;
use super::ingest::place_in;
use super::options::Sizes;
use super::payloads::{Payloads, RECORD_BYTES, SOURCE, sources_toml};
use super::table::Line;

/// Records of one burst, as an application pushes them between two visits of the daemon. A push never waits.
const BURST_RECORDS: usize = 1 << 13;
const BURSTS: usize = 100;
/// A record with its stamp and the word before it.
const SLOT_BYTES: usize = RECORD_BYTES + 16;

pub fn through_rings(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let payloads = Payloads::draw(RECORD_BYTES, BURST_RECORDS);
    let place = place_in(folder)?;
    let daemon = Daemon::start(&place.path().join("bench.loom"), "")?;
    let mut lines = pushes(&daemon, &payloads, sizes)?;
    lines.push(taken_out(&payloads, sizes)?);
    lines.push(into_the_log(&daemon, &payloads, sizes)?);
    daemon.stop()?;
    Ok(lines)
}

/// A push in bursts that fit a ring, with and without a stamp, in turn with a plain copy of the payload.
fn pushes(daemon: &Daemon, payloads: &Payloads, sizes: &Sizes) -> Result<Vec<Line>> {
    let mut client = RingClient::connect(daemon.dir())?;
    let plain = client.define_one(&toml("plain", ""))?;
    let stamped = client.define_one(&toml("stamped", "time = \"own\"\n"))?;
    let mut copied = vec![0u8; BURST_RECORDS * SLOT_BYTES];
    let mut ways: [Figures; 3] = Default::default();
    for _ in 0..sizes.runs {
        for (way, figures) in ways.iter_mut().enumerate() {
            for _ in 0..BURSTS {
                let watch = Stopwatch::start();
                match way {
                    0 => copy(payloads, &mut copied),
                    1 => push_all(&mut client, plain, payloads)?,
                    _ => push_all(&mut client, stamped, payloads)?,
                }
                let spent = watch.cost().wall;
                figures.push(spent.as_nanos() as f64 / BURST_RECORDS as f64);
                client.sync()?;
            }
        }
    }
    let synced = client.close()?;
    let pushed = (2 * sizes.runs * BURSTS * BURST_RECORDS) as u64;
    ensure!(synced.counts.stored == pushed, "{synced:?} of {pushed}");
    let [memcpy, plain, stamped] = ways;
    let line = |what: &str, figures: &Figures, owed: &str| Line {
        measure: format!("push of 48 B into a ring, {what}, wall"),
        loom: format!("{figures} ns"),
        peer: "the same bytes copied into as large a buffer".to_owned(),
        peer_figure: format!("{memcpy} ns"),
        owed: owed.to_owned(),
        how: format!(
            "{} bursts of {BURST_RECORDS} records into a ring of 8 MiB, which the daemon takes meanwhile; a sync after each, not counted",
            sizes.runs * BURSTS
        ),
        ..Line::default()
    };
    Ok(vec![
        line("a timestamp each", &stamped, "≤ 20 ns"),
        line("without a timestamp", &plain, "≤ 8 ns"),
    ])
}

fn push_all(client: &mut RingClient, source: SourceId, payloads: &Payloads) -> Result<()> {
    for payload in payloads.bytes.chunks_exact(RECORD_BYTES) {
        client.push(source, payload)?;
    }
    Ok(())
}

fn copy(payloads: &Payloads, copied: &mut [u8]) {
    let slots = copied.chunks_exact_mut(SLOT_BYTES);
    for (payload, slot) in payloads.bytes.chunks_exact(RECORD_BYTES).zip(slots) {
        if let Some(place) = slot.get_mut(16..) {
            place.copy_from_slice(black_box(payload));
        }
    }
    black_box(copied);
}

/// One thread empties a full ring into a buffer that stays in the cache, and converts the ticks.
fn taken_out(payloads: &Payloads, sizes: &Sizes) -> Result<Line> {
    let calibration = Calibration {
        ticks: 0,
        time_ns: 0,
        rate: 1 << 31,
    };
    let mut rates = Figures::default();
    for _ in 0..sizes.runs {
        let stamps = Stamps::Ticks(calibration);
        let (mut consumer, memory) = Consumer::create(CAPACITY_BYTES_MAX, stamps, WhenFull::Wait)?;
        let mut producer = Producer::open(memory)?;
        let mut all = payloads.bytes.chunks_exact(RECORD_BYTES).cycle();
        let full = all.find_map(|payload| producer.push(payload).err());
        ensure!(full == Some(PushError::Full), "{full:?}");
        let mut buffer = vec![0; 256 << 10];
        let watch = Stopwatch::start();
        consumer.look()?;
        let (mut filled, mut taken) = (0, 0u64);
        while let Some(head) = consumer.next()? {
            let bytes = usize::from(head.bytes);
            if filled + bytes > buffer.len() {
                filled = 0;
                consumer.batch().stored();
            }
            let room = buffer.get_mut(filled..filled + bytes);
            consumer.take(head, room.context("a record fits into the buffer")?);
            filled += bytes;
            taken += 1;
        }
        rates.push(taken as f64 / 1e6 / watch.cost().wall.as_secs_f64());
        ensure!(taken == producer.pushed(), "{taken} records were taken");
    }
    Ok(Line {
        measure: "a full ring of 48 B records with timestamps, taken out by one thread".to_owned(),
        loom: format!("{rates} M/s"),
        owed: "≥ 20 M/s".to_owned(),
        how: "64 MiB, more than the caches hold; ticks converted".to_owned(),
        ..Line::default()
    })
}

/// One producer pushes as fast as the log takes it; measures the cost of a record for the daemon's threads.
fn into_the_log(daemon: &Daemon, payloads: &Payloads, sizes: &Sizes) -> Result<Line> {
    let mut client = RingClient::connect(daemon.dir())?;
    let source = client.define_one(&toml("whole", "time = \"own\"\n"))?;
    let records = payloads.whole_turns(sizes.ingest_records);
    let mut rates = Figures::default();
    let mut paid: [Figures; 2] = Default::default();
    for _ in 0..sizes.runs {
        let before = [
            cpu(daemon.id(), "loom-writer")?,
            cpu(daemon.id(), "loom-rings")?,
        ];
        let watch = Stopwatch::start();
        for _ in 0..records / payloads.len() {
            push_all(&mut client, source, payloads)?;
        }
        client.sync()?;
        rates.push(records as f64 / 1e6 / watch.cost().wall.as_secs_f64());
        let after = [
            cpu(daemon.id(), "loom-writer")?,
            cpu(daemon.id(), "loom-rings")?,
        ];
        for ((figures, before), after) in paid.iter_mut().zip(before).zip(after) {
            figures.push(after.saturating_sub(before).as_nanos() as f64 / records as f64);
        }
    }
    let counts = client.close()?.counts;
    ensure!(counts.stored == records * sizes.runs as u64, "{counts:?}");
    let [writer, drainer] = paid;
    Ok(Line {
        measure: "ring to log, one producer, a timestamp each, one `auto` index, wall".to_owned(),
        loom: format!("{rates} M/s"),
        loom_cpu: format!("{writer} ns of the writer thread, {drainer} ns of the drainer a record"),
        owed: "≥ 10 M/s".to_owned(),
        how: format!(
            "{records} records of 48 B; visible to queries at the end, durable within 500 ms"
        ),
        ..Line::default()
    })
}

fn toml(name: &str, more: &str) -> String {
    let named = format!("name = \"{SOURCE}\"\n");
    sources_toml(1, 1, RECORD_BYTES).replacen(&named, &format!("name = \"{name}\"\n{more}"), 1)
}

/// The CPU time of the threads of a process that have this name.
fn cpu(process: u32, name: &str) -> Result<Duration> {
    let mut spent = Duration::ZERO;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?.path();
        if fs::read_to_string(task.join("comm"))?.trim() == name {
            let text = fs::read_to_string(task.join("schedstat"))?;
            let ns = text
                .split_whitespace()
                .next()
                .context("an empty schedstat")?;
            spent += Duration::from_nanos(ns.parse()?);
        }
    }
    Ok(spent)
}
