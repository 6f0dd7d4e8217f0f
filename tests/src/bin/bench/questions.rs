//! P4 to P7: questions to Loom, DuckDB and ClickHouse over the same rows. Their answers are compared first; then they are timed cold and
//! warm.

use anyhow::{Result, ensure};
use loom_engine::log::LogOptions;

use super::cache::drop_cached;
use super::dataset::{Dataset, Span, shared_columns};
use super::figures::rounded;
use super::ingest::LOGS;
use super::options::Sizes;
use super::payloads::{COLUMNS, INDEX, SOURCE};
use super::peer::{Answer, Peer, System};
use super::raw::read_raw;
use super::table::{Line, Times};

/// One record in this many passes the threshold of P6.
const ABOVE_ONE_IN: u64 = 20_000;
const SYSTEMS: [System; 3] = [System::Loom, System::DuckDb, System::ClickHouse];
const FIELDS: &str =
    "ts_ns, latency_ns, request, key_hash, client, bytes, thread, op, status, addr";

/// One question in each system's language.
pub struct Question {
    pub target: &'static str,
    pub measure: String,
    pub owed: &'static str,
    /// The statements for each of `SYSTEMS`. If there are several, the fastest counts.
    pub ways: [Vec<String>; 3],
    /// Asked beforehand if the question itself returns no rows to compare.
    pub proof: Option<[String; 3]>,
    /// The number of rows that it reads, if a rate is wanted.
    pub rows: Option<u64>,
}

/// All questions over a directory.
pub fn questions(data: &Dataset) -> Vec<Question> {
    let mut questions = vec![
        quantile(data, 9999, "P4", "≤ 15 ms warm, ≥ 20 × DuckDB"),
        quantile(data, 5000, "", ""),
    ];
    questions.extend([
        totals(data, "all of it", None),
        totals(data, "1 s", Some(data.second())),
        totals(data, "a third of it", Some(data.part(333, 667))),
        values_between(data),
        above(data),
        count(data),
        absent(data),
        dump(data),
        dump_read(data),
    ]);
    questions
}

fn loom(data: &Dataset, function: &str, arguments: &str) -> String {
    let index = if function == "loom_aggregate" {
        format!(", '{INDEX}'")
    } else {
        String::new()
    };
    let comma = if arguments.is_empty() { "" } else { ", " };
    format!(
        "{function}('{}', '{SOURCE}'{index}{comma}{arguments})",
        data.loom_dir().display()
    )
}

fn quantile(
    data: &Dataset,
    ten_thousandths: u64,
    target: &'static str,
    owed: &'static str,
) -> Question {
    let decimal = ten_thousandths as f64 / 10_000.0;
    let rank = (u128::from(data.records) * u128::from(ten_thousandths)).div_ceil(10_000) as u64;
    let sorted = |table: &str| {
        let behind = data.records - rank;
        format!("SELECT latency_ns FROM {table} ORDER BY latency_ns DESC LIMIT 1 OFFSET {behind}")
    };
    let disc = format!("SELECT quantile_disc(latency_ns, {decimal}) FROM t");
    let exact = format!("SELECT quantileExactLow({decimal})(latency_ns) FROM bench.t");
    // A sort up to the middle is a poor way to find it.
    let (duckdb, clickhouse) = if ten_thousandths > 9000 {
        (vec![sorted("t"), disc], vec![sorted("bench.t")])
    } else {
        (vec![disc], vec![exact])
    };
    Question {
        target,
        measure: format!("exact quantile {decimal} over all of it"),
        owed,
        ways: [
            vec![format!(
                "SELECT * EXCLUDE (count, sum, min, max, avg) FROM {}",
                loom(data, "loom_aggregate", &format!("quantiles := [{decimal}]"))
            )],
            duckdb,
            clickhouse,
        ],
        proof: None,
        rows: None,
    }
}

fn totals(data: &Dataset, what: &str, span: Option<Span>) -> Question {
    let condition = span.map_or_else(|| "true".to_owned(), Span::condition);
    let arguments = span.map_or_else(String::new, Span::parameters);
    let select =
        "SELECT count(*), sum(latency_ns), min(latency_ns), max(latency_ns), avg(latency_ns)";
    Question {
        target: "P5",
        measure: format!("count, sum, min, max, avg over {what}"),
        owed: "≤ 3 ms warm, all of it ≤ 1.3 × 1 s",
        ways: [
            vec![format!(
                "SELECT count, sum, min, max, avg FROM {}",
                loom(data, "loom_aggregate", &arguments)
            )],
            vec![format!("{select} FROM t WHERE {condition}")],
            vec![format!("{select} FROM bench.t WHERE {condition}")],
        ],
        proof: None,
        rows: None,
    }
}

fn values_between(data: &Dataset) -> Question {
    let [low, high] = [9000, 9900].map(|quantile| data.expected.quantile(quantile));
    let condition = format!("latency_ns BETWEEN {low} AND {high}");
    let select = "SELECT count(*), sum(latency_ns), min(latency_ns), max(latency_ns)";
    Question {
        target: "",
        measure:
            "count, sum, min, max of values between the quantiles 0.9 and 0.99, over all of it"
                .to_owned(),
        owed: "",
        ways: [
            vec![format!(
                "SELECT count, sum, min, max FROM {}",
                loom(
                    data,
                    "loom_aggregate",
                    &format!("v_min := {low}, v_max := {high}")
                )
            )],
            vec![format!("{select} FROM t WHERE {condition}")],
            vec![format!("{select} FROM bench.t WHERE {condition}")],
        ],
        proof: None,
        rows: None,
    }
}

fn above(data: &Dataset) -> Question {
    let least = data.expected.exceeded_by_one_in(ABOVE_ONE_IN);
    let condition = format!("latency_ns > {least}");
    Question {
        target: "P6",
        measure: "rows above a threshold that 1 in 20,000 passes, ten columns".to_owned(),
        owed: "≤ 10 ms warm",
        ways: [
            vec![format!(
                "SELECT {FIELDS} FROM {} WHERE {condition}",
                loom(data, "loom_scan", "")
            )],
            vec![format!("SELECT {FIELDS} FROM t WHERE {condition}")],
            vec![format!("SELECT {FIELDS} FROM bench.t WHERE {condition}")],
        ],
        proof: None,
        rows: None,
    }
}

fn count(data: &Dataset) -> Question {
    let span = data.part(100, 900);
    let condition = span.condition();
    Question {
        target: "",
        measure: "count(*) over four fifths of it".to_owned(),
        owed: "",
        ways: [
            vec![format!(
                "SELECT count(*) FROM {}",
                loom(data, "loom_scan", &span.parameters())
            )],
            vec![format!("SELECT count(*) FROM t WHERE {condition}")],
            vec![format!("SELECT count(*) FROM bench.t WHERE {condition}")],
        ],
        proof: None,
        rows: None,
    }
}

/// A value of a field without an index that no row has, which the zones of all units exclude.
fn absent(data: &Dataset) -> Question {
    let ask = |rows: &str| vec![format!("SELECT count(*) FROM {rows} WHERE client = 7")];
    Question {
        target: "F6",
        measure: "count(*) where an unindexed field has a value that no row has".to_owned(),
        owed: "≤ 3 ms warm",
        ways: [ask(&loom(data, "loom_scan", "")), ask("t"), ask("bench.t")],
        proof: None,
        rows: None,
    }
}

fn dump(data: &Dataset) -> Question {
    let span = data.part(200, 700);
    let condition = span.condition();
    let scan = shared_columns(&loom(data, "loom_scan", &span.parameters()));
    let proof = |table: &str| {
        let filter = if table == scan { "true" } else { &condition };
        format!(
            "SELECT count(*), sum(latency_ns), sum(request), min(ts_ns), max(ts_ns), sum(ts_ns % 1000), sum(key_hash % 1000), sum(client), sum(bytes), sum(thread), sum(op), sum(status), min(addr), max(addr), sum(addr % 1000) FROM {table} WHERE {filter}"
        )
    };
    Question {
        target: "P7",
        measure: format!(
            "dump of half of it, all {COLUMNS} columns, rows discarded (EXPLAIN ANALYZE; ClickHouse: FORMAT Null)"
        ),
        owed: "≥ 60 M rows/s warm with 2 threads, ahead of DuckDB",
        ways: [
            vec![format!("EXPLAIN ANALYZE SELECT * FROM {scan}")],
            vec![format!("EXPLAIN ANALYZE SELECT * FROM t WHERE {condition}")],
            vec![format!(
                "SELECT * FROM bench.t WHERE {condition} FORMAT Null"
            )],
        ],
        proof: Some([proof(&scan), proof("t"), proof("bench.t")]),
        rows: Some(data.records / 2),
    }
}

/// The same rows, with each value read, because values that are discarded unread may cost nothing.
fn dump_read(data: &Dataset) -> Question {
    let span = data.part(200, 700);
    let condition = span.condition();
    let scan = shared_columns(&loom(data, "loom_scan", &span.parameters()));
    // The peers' rows have no `ts` if the peer has no such type.
    let proof = "SELECT max(COLUMNS(* EXCLUDE (ts)))";
    let clickhouse = format!("SELECT * APPLY(max) FROM bench.t WHERE {condition}");
    Question {
        target: "P7",
        measure: format!("max of all {COLUMNS} columns over half of it, each value read"),
        owed: "",
        ways: [
            vec![format!("SELECT max(COLUMNS(*)) FROM {scan}")],
            vec![format!("SELECT max(COLUMNS(*)) FROM t WHERE {condition}")],
            vec![clickhouse.clone()],
        ],
        proof: Some([
            format!("{proof} FROM {scan}"),
            format!("{proof} FROM t WHERE {condition}"),
            clickhouse,
        ]),
        rows: Some(data.records / 2),
    }
}

/// Asks every system every question, first with a warm cache, then with a cold one in new processes.
pub fn ask_all(data: &Dataset, sizes: &Sizes) -> Result<Vec<Line>> {
    let questions = questions(data);
    let mut peers = Vec::new();
    for system in SYSTEMS {
        peers.push(data.open(system)?);
    }
    let mut warm = Vec::new();
    for question in &questions {
        eprintln!("  {}", question.measure);
        compare(question, &mut peers)?;
        warm.push(ask_warm(sizes, question, &mut peers)?);
    }
    drop(peers);
    let mut lines = Vec::new();
    for (question, warm) in questions.iter().zip(warm) {
        let ways = warm.each_ref().map(|(way, _)| *way);
        let times = warm.map(|(_, times)| times);
        lines.extend(lines_of(data, question, &times, "warm"));
        if sizes.cold_runs > 0 {
            eprintln!("  {}, cold", question.measure);
            let times = ask_cold(data, sizes, question, ways)?;
            lines.extend(lines_of(data, question, &times, "cold"));
            if question.target == "P6" {
                lines.push(beside_reads(data, sizes, &times)?);
            }
        }
    }
    Ok(lines)
}

/// A cold question whose rows are in as many chunks, beside reads of as many chunks anywhere.
fn beside_reads(data: &Dataset, sizes: &Sizes, [loom, ..]: &[Times; 3]) -> Result<Line> {
    let records = data.loom_dir().join(LOGS[0]);
    let chunk_bytes = LogOptions::default().chunk_bytes as usize;
    let reads = (data.records / ABOVE_ONE_IN) as usize;
    let mut times = Times::default();
    for _ in 0..sizes.cold_runs {
        drop_cached(&records)?;
        let cost = read_raw(&records, reads, chunk_bytes)?;
        times.wall_ms.push(cost.wall.as_secs_f64() * 1e3);
        times.cpu_ms.push(cost.process_cpu.as_secs_f64() * 1e3);
    }
    let line = Line {
        target: "P6",
        measure: format!("rows above a threshold that 1 in {ABOVE_ONE_IN} passes, cold"),
        owed: "≥ 0.67".to_owned(),
        how: format!("{reads} reads of {} KiB anywhere", chunk_bytes >> 10),
        ..Line::default()
    };
    Ok(line.with_times(
        loom,
        Some(("as many random reads with `O_DIRECT`, 2 threads", &times)),
    ))
}

/// The fastest way of each system, and its times.
fn ask_warm(sizes: &Sizes, question: &Question, peers: &mut [Peer]) -> Result<[(usize, Times); 3]> {
    let mut warm: [Vec<Times>; 3] = question
        .ways
        .each_ref()
        .map(|ways| ways.iter().map(|_| Times::default()).collect());
    for _ in 0..sizes.runs {
        for ((peer, ways), times) in peers.iter_mut().zip(&question.ways).zip(&mut warm) {
            for (sql, times) in ways.iter().zip(times) {
                times.push(&peer.query(sql)?);
            }
        }
    }
    Ok(warm.map(fastest))
}

fn ask_cold(
    data: &Dataset,
    sizes: &Sizes,
    question: &Question,
    chosen: [usize; 3],
) -> Result<[Times; 3]> {
    let mut cold: [Times; 3] = Default::default();
    for _ in 0..sizes.cold_runs {
        for (((system, ways), way), times) in SYSTEMS
            .iter()
            .zip(&question.ways)
            .zip(chosen)
            .zip(&mut cold)
        {
            drop_cached(&data.path(*system))?;
            let mut peer = data.open(*system)?;
            if let Some(sql) = ways.get(way) {
                times.push(&peer.query(sql)?);
            }
        }
    }
    Ok(cold)
}

/// The way with the least median, and its times.
fn fastest(times: Vec<Times>) -> (usize, Times) {
    times
        .into_iter()
        .enumerate()
        .min_by(|(_, a), (_, b)| a.wall_ms.median().total_cmp(&b.wall_ms.median()))
        .unwrap_or_default()
}

/// Fails unless all systems give the same answer in all of their ways.
fn compare(question: &Question, peers: &mut [Peer]) -> Result<()> {
    let mut answers: Vec<(System, Vec<Vec<String>>)> = Vec::new();
    for (number, peer) in peers.iter_mut().enumerate() {
        let proof = question.proof.as_ref().and_then(|proof| proof.get(number));
        let proofs = proof.map(std::slice::from_ref);
        let ways = question.ways.get(number).map(Vec::as_slice);
        for sql in proofs.or(ways).unwrap_or_default() {
            let Answer { rows, .. } = peer.query(sql)?;
            if let Some((first, expected)) = answers.first() {
                ensure!(
                    &rows == expected,
                    "{}: {} answers {rows:?}, {} {expected:?}",
                    question.measure,
                    peer.system().name(),
                    first.name()
                );
            }
            answers.push((peer.system(), rows));
        }
    }
    Ok(())
}

fn lines_of(data: &Dataset, question: &Question, times: &[Times; 3], cache: &str) -> Vec<Line> {
    let [loom, others @ ..] = times;
    let names = [System::DuckDb, System::ClickHouse].map(System::name);
    names
        .iter()
        .zip(others)
        .map(|(name, other)| {
            let line = Line {
                target: question.target,
                measure: question.measure.clone(),
                owed: question.owed.to_owned(),
                how: format!(
                    "{} records in {} s; {cache}; all threads",
                    data.records,
                    rounded((data.last_ns - data.first_ns) as f64 / 1e9)
                ),
                ..Line::default()
            };
            let mut line = line.with_times(loom, Some((name, other)));
            if let Some(rows) = question.rows {
                let rate = |times: &Times| rounded(rows as f64 / 1e3 / times.wall_ms.median());
                line.loom = format!("{}, {} M rows/s", line.loom, rate(loom));
                line.peer_figure = format!("{}, {} M rows/s", line.peer_figure, rate(other));
            }
            line
        })
        .collect()
}
