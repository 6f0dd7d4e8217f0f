//! The chunks that a dashboard's queries read in a directory far longer than the window that they show.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use loom_engine::ingest::Writer;
use loom_engine::schema::parse_sources;
use loom_engine::testkit::options;
use loom_engine::testkit::scene::CHUNK;
use loom_tests::duckdb::{Session, Version};

const CHUNKS: u64 = 100_000;
/// A chart with this many points reads the chunks that the edges of its buckets cut.
const POINTS: i64 = 300;
const CHUNKS_READ_MAX: u64 = 400;

/// 2026-01-01, in seconds.
const BEGIN_S: i64 = 1_767_225_600;
const RECORDS_PER_SECOND: i64 = 400;
/// With its header, its own time and its value, a record takes 100 bytes. More than 32 fit into a chunk, so that it keeps its bins.
const PADDING: [u8; 72] = [7; 72];

/// Writes more than `CHUNKS` chunks of the smallest size, and returns the last whole second in it.
fn write(dir: &Path) -> Result<i64> {
    let source = "
        [[source]]
        name = 'request'
        time = 'own'
        field = [{ name = 'latency', type = 'u64' }, { name = 'padding', type = 'char[72]' }]
        index = [{ name = 'latency', value = 'latency' }]";
    let mut writer = Writer::open(dir, options(4 << 20, 64 << 20))?;
    let [source] = parse_sources(source)?
        .try_into()
        .ok()
        .context("one source")?;
    let request = writer.define_source(&source)?;
    let mut records = 0;
    while writer.position().0 < CHUNKS * CHUNK {
        let ns = BEGIN_S * 1_000_000_000 + records * 1_000_000_000 / RECORDS_PER_SECOND;
        let latency = 1000 + records.unsigned_abs().wrapping_mul(7919) % 100_003;
        let payload = [&ns.to_le_bytes()[..], &latency.to_le_bytes(), &PADDING].concat();
        writer.push(request, &payload)?;
        records += 1;
        if records % 10_000 == 0 {
            writer.publish()?;
        }
    }
    writer.close()?;
    Ok(BEGIN_S + records / RECORDS_PER_SECOND)
}

// case SQL: the views of sources and indexes
#[test]
fn five_minutes_of_points_read_few_of_a_hundred_thousand_chunks() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("host.loom");
    let end_s = write(&dir)?;
    let from_s = end_s - end_s % 60 - 1000;
    let to_s = from_s + POINTS;
    let window = format!(
        "t_from := to_timestamp({from_s}), t_to := to_timestamp({to_s}), points := {POINTS}"
    );
    let source = format!("'{}', 'request'", dir.display());
    let within =
        |time: &str| format!("{time} >= to_timestamp({from_s}) AND {time} < to_timestamp({to_s})");
    let by_name = [
        format!(
            "SELECT count(*), sum(count), max(max) FROM loom_aggregate({source}, 'latency', {window})"
        ),
        format!("SELECT count(*), sum(count), max(per_second) FROM loom_rate({source}, {window})"),
        format!(
            "SELECT count(*), sum(count), max(p99) FROM loom_aggregate({source}, 'latency', {window}, quantiles := [0.99], approx := true)"
        ),
        format!(
            "SELECT count(DISTINCT t1), sum(count), max(upper) FROM loom_heat({source}, 'latency', {window})"
        ),
    ];
    // BI tools write it in this way: a filter, and seconds of their own.
    let bucket = "bucket := INTERVAL 1 SECOND";
    let grouped = |relation: &str, time: &str| {
        let filter = within(time);
        format!(
            "SELECT count(*), sum(n), 0 FROM (SELECT date_trunc('second', {time}), sum(count) AS n FROM {relation} WHERE {filter} GROUP BY 1)"
        )
    };
    let by_filter = [
        grouped(
            &format!("loom_aggregate({source}, 'latency', {bucket})"),
            "bucket",
        ),
        grouped("host.request__latency", "bucket"),
        grouped("host.request__latency__heat", "t1"),
    ];
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        session.attach(&dir, None)?;
        let prunes_where = version == Version::V2;
        for query in by_name
            .iter()
            .chain(by_filter.iter().filter(|_| prunes_where))
        {
            let rows = session.query(query).with_context(|| query.clone())?;
            let expected = [POINTS, POINTS * RECORDS_PER_SECOND].map(|n| Some(n.to_string()));
            let counted = rows.first().and_then(|row| row.get(..2));
            ensure!(counted == Some(&expected[..]), "{query}: {rows:?}");
            let stats = session.numbers(
                "SELECT chunks_read, chunks_total FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1",
            )?;
            let (read, total) = (stats[0], stats[1]);
            ensure!(total >= CHUNKS, "{total} chunks are too few for this test");
            ensure!(read <= CHUNKS_READ_MAX, "{query}: {read} of {total} chunks");
        }
    }
    Ok(())
}
