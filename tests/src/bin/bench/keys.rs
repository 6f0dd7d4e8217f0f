//! Look-ups: one key among many records (F7), and words in the lines of logs, beside DuckDB's own table, Parquet, ClickHouse's text index and
//! grep.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::cache::drop_cached;
use super::figures::rounded;
use super::ingest::place_in;
use super::options::Sizes;
use super::peer::{Answer, Peer, System};
use super::table::{Line, Times};

/// Random ids, and one trace id for four records. Zones prune neither.
const REQUESTS: &str = "SELECT make_timestamptz(1700000000000000 + i * 10) AS ts, hash(i) AS id, md5((i // 4)::VARCHAR) AS trace_id,
    (hash(i, 1) % 90000)::UINTEGER AS took_us FROM range({rows}) AS rows(i)";

/// Lines as sshd, HDFS, a web server, the kernel and systemd write them; one in a million is an error.
const LINES: &str = "SELECT make_timestamptz(1700000000000000 + i * 50) AS ts, CASE
    WHEN i % 1000003 = 5 THEN 'postgres[4242]: ERROR:  could not extend file base/16384/' || i || ': No space left on device'
    WHEN hash(i, 1) % 5 = 0 THEN 'sshd[' || hash(i, 2) % 32768 || ']: Failed password for invalid user ' ||
        ['admin', 'oracle', 'test', 'guest'][(1 + hash(i, 3) % 4)::INTEGER] || ' from 10.' || hash(i, 4) % 256 || '.' || hash(i, 5) % 256 || '.7 port ' || hash(i, 6) % 65536 || ' ssh2'
    WHEN hash(i, 1) % 5 = 1 THEN 'dfs.DataNode$PacketResponder: Received block blk_' || hash(i, 2) || ' of size ' || hash(i, 3) % 67108864 || ' from /10.251.' || hash(i, 4) % 256 || '.14'
    WHEN hash(i, 1) % 5 = 2 THEN 'GET /api/v1/users/' || hash(i, 2) % 100000 || '/orders HTTP/1.1 200 ' || hash(i, 3) % 9000 || ' Mozilla/5.0 (X11; Linux x86_64) Firefox/128.0'
    WHEN hash(i, 1) % 5 = 3 THEN 'kernel: [' || i // 20000 || '.' || hash(i, 2) % 1000000 || '] eth0: link up, 1000 Mbps, full duplex'
    ELSE 'systemd[1]: Started Session ' || hash(i, 2) % 99999 || ' of user deploy.' END AS line
    FROM range({rows}) AS rows(i)";

/// How a system is asked.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Form {
    Loom,
    Table,
    Parquet,
    ClickHouse,
    Grep,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Loom => "Loom",
            Form::Table => "DuckDB 2, its table",
            Form::Parquet => "DuckDB 2, Parquet",
            Form::ClickHouse => "ClickHouse (chdb), its text index",
            Form::Grep => "grep -c -F, the lines as a file",
        }
    }
}

/// The same rows in each form.
struct Data {
    folder: PathBuf,
    forms: &'static [Form],
}

impl Data {
    /// `options` are those of Loom's COPY.
    fn make(
        folder: &Path,
        rows: &str,
        options: &str,
        forms: &'static [Form],
    ) -> Result<(Data, Peer)> {
        let data = Data {
            folder: folder.to_owned(),
            forms,
        };
        let mut loom = Peer::start(System::Loom, folder)?;
        loom.query(&format!(
            "COPY ({rows}) TO '{}' (FORMAT loom, SOURCE 'rows', TS 'ts', {options})",
            data.at("rows.loom")
        ))?;
        let mut table = Peer::start(System::DuckDb, &data.path("rows.duckdb"))?;
        table.query(&format!("CREATE TABLE rows AS {rows}"))?;
        table.query("CHECKPOINT")?;
        table.query(&format!(
            "COPY rows TO '{}' (FORMAT parquet, COMPRESSION zstd)",
            data.at("rows.parquet")
        ))?;
        if forms.contains(&Form::Grep) {
            table.query(&format!(
                "COPY (SELECT line FROM rows) TO '{}' (FORMAT csv, HEADER false, DELIMITER '\t', QUOTE '', ESCAPE '')",
                data.at("rows.log")
            ))?;
        }
        if forms.contains(&Form::ClickHouse) {
            let mut peer = data.open(Form::ClickHouse)?;
            for sql in [
                "CREATE TABLE bench.rows (ts DateTime64(6), line String, INDEX words line TYPE text(tokenizer = 'splitByNonAlpha')) ENGINE = MergeTree ORDER BY ts",
                &format!(
                    "INSERT INTO bench.rows SELECT ts, line FROM file('{}')",
                    data.at("rows.parquet")
                ),
                "OPTIMIZE TABLE bench.rows FINAL",
            ] {
                peer.query(sql)?;
            }
        }
        Ok((data, table))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn open(&self, form: Form) -> Result<Peer> {
        match form {
            Form::Loom => Peer::start(System::Loom, &self.folder),
            Form::Table | Form::Parquet => Peer::start(System::DuckDb, &self.path("rows.duckdb")),
            Form::ClickHouse => Peer::start(System::ClickHouse, &self.path("clickhouse")),
            Form::Grep => Peer::start(System::Grep, &self.path("rows.log")),
        }
    }

    fn bytes(&self, name: &str) -> Result<u64> {
        let path = self.path(name);
        let metadata = path
            .metadata()
            .with_context(|| path.display().to_string())?;
        if metadata.is_file() {
            return Ok(metadata.len());
        }
        let mut bytes = 0;
        for entry in path.read_dir()? {
            let name = Path::new(name).join(entry?.file_name());
            bytes += self.bytes(&name.display().to_string())?;
        }
        Ok(bytes)
    }

    /// Asks all systems in turn, warm and cold. `{rows}` stands for the rows, and `part` is what grep looks for.
    fn lines(
        &self,
        (target, measure, owed): (&'static str, String, &str),
        (question, part): (&str, &str),
        sizes: &Sizes,
    ) -> Result<Vec<Line>> {
        eprintln!("  {measure}");
        let ask = |form: Form, peer: &mut Peer| -> Result<Answer> {
            peer.query(&match form {
                Form::Loom => question.replace(
                    "{rows}",
                    &format!("loom_scan('{}', 'rows')", self.at("rows.loom")),
                ),
                Form::Table => question.replace("{rows}", "rows"),
                Form::Parquet => {
                    question.replace("{rows}", &format!("'{}'", self.at("rows.parquet")))
                }
                Form::ClickHouse => question.replace("{rows}", "bench.rows"),
                Form::Grep => part.to_owned(),
            })
        };
        let mut times: Vec<(Times, Times)> =
            self.forms.iter().map(|_| Default::default()).collect();
        let mut expected: Option<Vec<Vec<String>>> = None;
        let mut is_right = |answer: &Answer| -> Result<()> {
            let expected = expected.get_or_insert_with(|| answer.rows.clone());
            ensure!(
                answer.rows == *expected,
                "{question}: {:?}, not {expected:?}",
                answer.rows
            );
            Ok(())
        };
        for _ in 0..sizes.cold_runs {
            for (form, (_, cold)) in self.forms.iter().zip(&mut times) {
                drop_cached(&self.folder)?;
                let answer = ask(*form, &mut self.open(*form)?)?;
                is_right(&answer)?;
                cold.push(&answer);
            }
        }
        let peers = self.forms.iter().map(|form| self.open(*form));
        let mut peers = peers.collect::<Result<Vec<_>>>()?;
        for run in 0..=sizes.runs {
            for ((form, peer), (warm, _)) in self.forms.iter().zip(&mut peers).zip(&mut times) {
                let answer = ask(*form, peer)?;
                is_right(&answer)?;
                // The first run fills the caches.
                if run > 0 {
                    warm.push(&answer);
                }
            }
        }
        let cold = |times: &Times| rounded(times.wall_ms.median());
        let (loom, others) = times.split_first().context("no systems")?;
        let names = self.forms.iter().skip(1).map(|form| form.name());
        Ok(names
            .zip(others)
            .map(|(name, peer)| {
                let line = Line {
                    target,
                    measure: measure.clone(),
                    owed: owed.to_owned(),
                    how: format!(
                        "cold: {} ms, the peer {} ms; all threads",
                        cold(&loom.1),
                        cold(&peer.1)
                    ),
                    ..Line::default()
                };
                line.with_times(&loom.0, Some((name, &peer.0)))
            })
            .collect())
    }
}

/// F7: a key that one or four records have.
pub fn one_key(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    const FORMS: &[Form] = &[Form::Loom, Form::Table, Form::Parquet];
    let place = place_in(folder)?;
    let rows = sizes.key_records;
    let made = REQUESTS.replace("{rows}", &rows.to_string());
    let options = "INDEX 'took_us', LOOKUP ('id', 'trace_id')";
    let (data, table) = Data::make(place.path(), &made, options, FORMS)?;
    drop(table);
    let middle = rows / 2;
    let mut lines = Vec::new();
    for key in [
        format!("id = hash({middle}::BIGINT)"),
        format!("trace_id = md5(({middle} // 4)::VARCHAR)"),
    ] {
        let question = format!("SELECT took_us FROM {{rows}} WHERE {key} ORDER BY ALL");
        let measure = format!("`WHERE {key}` among {rows} records");
        lines.extend(data.lines(
            ("F7", measure, "≤ 8 ms, cold ≤ 60 ms"),
            (&question, ""),
            sizes,
        )?);
    }
    Ok(lines)
}

/// Words in the lines of logs.
pub fn words(folder: &Path, sizes: &Sizes) -> Result<Vec<Line>> {
    const FORMS: &[Form] = &[
        Form::Loom,
        Form::Table,
        Form::Parquet,
        Form::ClickHouse,
        Form::Grep,
    ];
    let place = place_in(folder)?;
    let rows = sizes.word_lines;
    let made = LINES.replace("{rows}", &rows.to_string());
    let (data, mut table) = Data::make(place.path(), &made, "WORDS 'line'", FORMS)?;
    let one = table.query(
        "SELECT regexp_extract(min(line) FILTER (contains(line, 'blk_')), 'block (blk_\\d+)', 1) FROM rows",
    )?;
    let one = one.rows.into_iter().flatten().next().context("no block")?;
    drop(table);
    let mut lines = Vec::new();
    for part in [
        one.as_str(),
        "No space left on device",
        "Failed password",
        "segfault at",
    ] {
        let question = format!("SELECT count(*) FROM {{rows}} WHERE line LIKE '%{part}%'");
        let measure = format!("count of `LIKE '%{part}%'` among {rows} lines");
        lines.extend(data.lines(("words", measure, ""), (&question, part), sizes)?);
    }
    let mib = |name: &str| data.bytes(name).map(|bytes| bytes >> 20);
    let held = format!(
        "; the lines are {} MiB, Loom's directory {} with {} of look-ups, DuckDB's table {}, Parquet {}, ClickHouse {}",
        mib("rows.log")?,
        mib("rows.loom")?,
        mib("rows.loom/lookups")?,
        mib("rows.duckdb")?,
        mib("rows.parquet")?,
        mib("clickhouse")?
    );
    if let Some(first) = lines.first_mut() {
        first.how += &held;
    }
    Ok(lines)
}
