//! Plain SQL: questions as a person types them, beside DuckDB's own table and Parquet files of the same rows.
//!
//! The rows are the demo's three sources, and `logs`: texts, ids and NULLs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::cache::drop_cached;
use super::columns::make_demo;
use super::figures::rounded;
use super::ingest::place_in;
use super::options::Sizes;
use super::peer::{Peer, System};
use super::table::{Line, Times};

const SOURCES: [&str; 4] = ["redis_request", "syscall", "packet", "logs"];
/// `{source}` stands for its rows, `{id}` for an id of the middle, `{trace}` and `{traces}` for one trace id and for twenty, `{when}` for a
/// time in the middle.
const QUESTIONS: [(&str, Option<&str>); 30] = [
    ("SELECT count(*) FROM {packet}", None),
    (
        "SELECT min(ts), max(ts) FROM {packet}",
        Some("SELECT first_ts, last_ts FROM loom_sources('DIR') WHERE name = 'packet'"),
    ),
    (
        "SELECT ts, id, src_addr, dst_addr, wire_bytes, ttl FROM {packet} WHERE id = {id}",
        None,
    ),
    (
        "SELECT count(*) FROM {packet} WHERE id IN ({id}, 7, 8)",
        None,
    ),
    ("SELECT count(*) FROM {packet} WHERE ttl = 99", None),
    (
        "SELECT count(*) FROM {packet} WHERE wire_bytes > 1400",
        None,
    ),
    ("SELECT sum(wire_bytes) FROM {packet}", None),
    ("SELECT DISTINCT number FROM {syscall} ORDER BY ALL", None),
    (
        "SELECT number, count(*) FROM {syscall} GROUP BY ALL ORDER BY ALL",
        None,
    ),
    (
        "SELECT number, sum(latency_ns), max(latency_ns) FROM {syscall} GROUP BY ALL ORDER BY ALL",
        None,
    ),
    (
        "SELECT count(*) FROM {syscall} WHERE number = 'futex' AND result > 1000",
        None,
    ),
    (
        "SELECT count(*) FROM {syscall} WHERE latency_ns / 1e6 > 5",
        None,
    ),
    ("SELECT count(*) FROM {syscall} WHERE comm = 'nobody'", None),
    (
        "SELECT count(*) FROM {syscall} WHERE comm LIKE 'redis%'",
        None,
    ),
    (
        "SELECT latency_ns FROM {syscall} ORDER BY latency_ns DESC LIMIT 10",
        Some("SELECT latency_ns FROM loom_top('DIR', 'syscall', 'latency', 10)"),
    ),
    (
        "SELECT id FROM {syscall} ORDER BY ts_ns DESC, id DESC LIMIT 10",
        Some("SELECT id FROM loom_tail('DIR', 'syscall', 10) ORDER BY id DESC"),
    ),
    ("SELECT id FROM {syscall} LIMIT 10", None),
    (
        "SELECT quantile_disc(latency_ns, 0.99) FROM {syscall}",
        Some("SELECT p99 FROM loom_aggregate('DIR', 'syscall', 'latency', quantiles := [0.99])"),
    ),
    (
        "SELECT count(*) FROM {syscall} WHERE ts BETWEEN '{when}' AND '{when}'::TIMESTAMPTZ + INTERVAL 100 MILLISECONDS",
        None,
    ),
    (
        "SELECT count(*) FROM {syscall} WHERE date_trunc('second', ts) = date_trunc('second', '{when}'::TIMESTAMPTZ)",
        None,
    ),
    (
        "SELECT time_bucket(INTERVAL 1 SECOND, ts) AS t, count(*), max(latency_ns) FROM {syscall} GROUP BY ALL ORDER BY ALL",
        None,
    ),
    ("SELECT count(*) FROM {redis_request} WHERE NOT hit", None),
    (
        "SELECT op, count(*) FILTER (NOT hit) FROM {redis_request} GROUP BY ALL ORDER BY ALL",
        None,
    ),
    (
        "SELECT max(COLUMNS('id|_ns|_bytes|port|op|hit|key')) FROM {redis_request}",
        None,
    ),
    ("SELECT line FROM {logs} WHERE trace_id = '{trace}'", None),
    (
        "SELECT count(*) FROM {logs} WHERE trace_id IN ({traces})",
        None,
    ),
    ("SELECT count(*) FROM {logs} WHERE user_name IS NULL", None),
    (
        "SELECT count(*) FROM {logs} WHERE user_name LIKE 'user77%'",
        None,
    ),
    (
        "SELECT count(*) FROM {logs} WHERE line ILIKE '%disk quota%'",
        None,
    ),
    (
        "SELECT service, count(*) FROM {logs} GROUP BY ALL ORDER BY ALL",
        None,
    ),
];
const THREADS: [usize; 2] = [1, 2];

/// The three forms of the same rows.
#[derive(Copy, Clone)]
enum Form {
    Loom,
    Table,
    Parquet,
}

const FORMS: [Form; 3] = [Form::Loom, Form::Table, Form::Parquet];

struct Data {
    folder: PathBuf,
    /// The words of a question that depend on the rows.
    words: Vec<(&'static str, String)>,
}

/// Runs the whole part.
pub fn questions(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    let place = place_in(folder)?;
    let data = Data::make(place.path(), sizes.plain_records)?;
    let mut peers = data.open_all()?;
    let mut lines = Vec::new();
    for (question, instead) in QUESTIONS {
        eprintln!("  {question}");
        lines.push(data.line(&mut peers, question, instead, sizes)?);
    }
    Ok(lines)
}

impl Data {
    fn make(folder: &Path, records: u64) -> Result<Data> {
        let mut data = Data {
            folder: folder.to_owned(),
            words: Vec::new(),
        };
        make_demo(&data.dir("packet"), records)?;
        let mut loom = Peer::start(System::Loom, &data.dir("packet"))?;
        let logs = data.dir("logs");
        // A log that a service writes: lines of words, one trace each few lines, an error now and then.
        loom.query(&format!(
            "COPY (SELECT make_timestamptz(1700000000000000 + i * 50) AS ts, md5((i // 4)::VARCHAR) AS trace_id,
                CASE WHEN i % 4096 > 0 THEN 'user' || (i // 1000 % 100000) END AS user_name,
                ['cart', 'checkout', 'search', 'login'][(1 + hash(i) % 4)::INTEGER] AS service, (hash(i, 1) % 90000)::UINTEGER AS took_us,
                CASE WHEN i % 1000003 = 5 THEN 'write failed: disk quota exceeded for volume ' || i % 77
                    ELSE 'GET /items/' || hash(i, 2) % 100000 || ' done, ' || hash(i, 3) % 900 || ' rows of ' || hash(i, 4) % 5 || ' tables' END AS line
                FROM range({}) AS rows(i)) TO '{}' (FORMAT loom, SOURCE 'logs', TS 'ts', INDEX 'took_us', LOOKUP 'trace_id', WORDS 'line')",
            records / 3,
            logs.display()
        ))?;
        data.share(&mut loom)?;
        Ok(data)
    }

    /// The Loom directory of a source.
    fn dir(&self, source: &str) -> PathBuf {
        self.folder.join(if source == "logs" {
            "logs.loom"
        } else {
            "demo.loom"
        })
    }

    fn table(&self) -> PathBuf {
        self.folder.join("rows.duckdb")
    }

    fn parquet(&self, source: &str) -> PathBuf {
        self.folder.join(format!("{source}.parquet"))
    }

    /// The rows of a source in a form, as a table expression.
    fn rows(&self, form: Form, source: &str) -> String {
        match form {
            Form::Loom => format!("loom_scan('{}', '{source}')", self.dir(source).display()),
            Form::Table => source.to_owned(),
            Form::Parquet => format!("'{}'", self.parquet(source).display()),
        }
    }

    /// Copies the rows into a table and into Parquet files, and chooses what questions name.
    fn share(&mut self, loom: &mut Peer) -> Result<()> {
        let mut table = Peer::start(System::DuckDb, &self.table())?;
        for source in SOURCES {
            let scan = self.rows(Form::Loom, source);
            table.query(&format!(
                "CREATE TABLE {source} AS SELECT * EXCLUDE (dir, source) FROM {scan}"
            ))?;
            let file = self.parquet(source);
            table.query(&format!(
                "COPY {source} TO '{}' (FORMAT parquet, COMPRESSION zstd)",
                file.display()
            ))?;
        }
        table.query("CHECKPOINT")?;
        let mut one = |sql: &str| -> Result<String> {
            let rows = table.query(sql)?.rows;
            let value = rows.into_iter().flatten().next();
            value.with_context(|| format!("{sql} has no answer"))
        };
        let trace =
            |nth: u64| format!("md5((({nth} * (SELECT count(*) FROM logs) // 84))::VARCHAR)");
        let traces: Vec<String> = (1..=20).map(trace).collect();
        self.words = vec![
            ("id", one("SELECT max(id) // 2 FROM packet")?),
            (
                "when",
                one("SELECT (min(ts) + (max(ts) - min(ts)) / 2)::VARCHAR FROM syscall")?,
            ),
            ("trace", one(&format!("SELECT {}", trace(10)))?),
            (
                "traces",
                one(&format!(
                    "SELECT string_agg('''' || trace || '''', ', ') FROM unnest([{}]) AS traces(trace)",
                    traces.join(", ")
                ))?,
            ),
        ];
        let logs = loom.query(&format!(
            "SELECT count(*) FROM {}",
            self.rows(Form::Loom, "logs")
        ))?;
        ensure!(logs.rows != [["0"]], "no logs");
        Ok(())
    }

    fn open(&self, form: Form, threads: usize) -> Result<Peer> {
        let mut peer = match form {
            Form::Loom => Peer::start(System::Loom, &self.dir("packet"))?,
            Form::Table | Form::Parquet => Peer::start(System::DuckDb, &self.table())?,
        };
        peer.query(&format!("SET threads = {threads}"))?;
        Ok(peer)
    }

    fn open_all(&self) -> Result<Vec<[Peer; 3]>> {
        let open = |threads: &usize| -> Result<[Peer; 3]> {
            let [loom, table, parquet] = FORMS.map(|form| self.open(form, *threads));
            Ok([loom?, table?, parquet?])
        };
        THREADS.iter().map(open).collect()
    }

    fn sql(&self, form: Form, question: &str) -> String {
        let rows = SOURCES
            .iter()
            .map(|source| (*source, self.rows(form, source)));
        let words = rows.chain(self.words.iter().cloned());
        words.fold(question.to_owned(), |sql, (word, value)| {
            sql.replace(&format!("{{{word}}}"), &value)
        })
    }

    /// One question, warm with each number of threads, and cold.
    fn line(
        &self,
        peers: &mut [[Peer; 3]],
        question: &str,
        instead: Option<&str>,
        sizes: &Sizes,
    ) -> Result<Line> {
        let asked = FORMS.map(|form| self.sql(form, question));
        let instead =
            instead.map(|sql| sql.replace("DIR", &self.dir("packet").display().to_string()));
        let mut warm: Vec<[Times; 4]> = Vec::new();
        for peers in peers {
            let mut times: [Times; 4] = Default::default();
            let mut expected = None;
            for _ in 0..=sizes.runs {
                let is_first = expected.is_none();
                for ((peer, sql), times) in peers.iter_mut().zip(&asked).zip(&mut times) {
                    let answer = peer.query(sql)?;
                    let expected = expected.get_or_insert_with(|| answer.rows.clone());
                    ensure!(
                        answer.rows == *expected,
                        "{sql}: {:?}, not {expected:?}",
                        answer.rows
                    );
                    // The first run fills the caches.
                    if !is_first {
                        times.push(&answer);
                    }
                }
                let [loom, ..] = peers;
                let [.., times] = &mut times;
                if let (Some(sql), false) = (&instead, is_first) {
                    times.push(&loom.query(sql)?);
                }
            }
            warm.push(times);
        }
        let mut cold: [Times; 3] = Default::default();
        for _ in 0..sizes.cold_runs {
            for ((form, sql), times) in FORMS.into_iter().zip(&asked).zip(&mut cold) {
                drop_cached(&self.folder)?;
                times.push(&self.open(form, THREADS.len())?.query(sql)?);
            }
        }
        let medians = |times: &[Times]| {
            times
                .iter()
                .map(|times| rounded(times.wall_ms.median()))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let (one, more) = warm.split_first().context("no numbers of threads")?;
        let [loom, table, parquet, function] = one;
        let mut how = format!("1 thread; Parquet {} ms", rounded(parquet.wall_ms.median()));
        for times in more {
            how += &format!(
                "; 2 threads: {} ms",
                medians(times.get(..3).unwrap_or_default())
            );
        }
        how += &format!("; cold, 2 threads: {} ms", medians(&cold));
        if let Some(sql) = instead {
            how += &format!(
                "; `{}`: {} ms",
                sql.replace(&self.folder.display().to_string(), ""),
                rounded(function.wall_ms.median())
            );
        }
        let line = Line {
            target: "Plain SQL",
            measure: format!("`{}`", question.replace(['{', '}'], "")),
            owed: "≥ 0.67".to_owned(),
            how,
            ..Line::default()
        };
        Ok(line.with_times(loom, Some(("DuckDB 2, its table", table))))
    }
}
