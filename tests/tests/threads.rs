//! A query over a few million records runs on several threads, in order, interruptibly, with progress, in bounded memory, and out to Arrow
//! and Parquet.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use tempfile::TempDir;

/// Rows of the directory, or `LOOM_ROWS` from the environment.
const ROWS: u64 = 2_000_000;

/// The definitions that each script can use: `connect()`, `SCAN`, `ROWS`, `BASE`, and `timed(sql, after)`, which prints how soon an
/// interrupt is noticed.
const PRELUDE: &str = "
import duckdb, os, sys, threading, time
EXTENSION, BASE, ROWS = sys.argv[1], sys.argv[2], int(sys.argv[3])
DIR = BASE + '/wide.loom'
SCAN = f\"loom_scan('{DIR}', 'wide')\"
def connect():
    connection = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
    connection.execute(f\"LOAD '{EXTENSION}'\")
    connection.execute('SET threads = 2')
    return connection
def one(sql):
    return connection.execute(sql).fetchall()[0]
connection = connect()
";

/// A directory with the source `wide`: an ascending number, two that are not, and a text.
fn directory() -> Result<(TempDir, u64)> {
    let rows = std::env::var("LOOM_ROWS").map_or(Ok(ROWS), |text| text.parse())?;
    let place = tempfile::tempdir()?;
    let parquet = place.path().join("wide.parquet").display().to_string();
    let dir = place.path().join("wide.loom").display().to_string();
    Session::plain(Version::V2)?.query(&format!(
        "COPY (SELECT 1_767_225_600_000_000_000 + i * 1000 AS t, i AS n, (hash(i) % 1_000_000)::INTEGER AS h,
            (hash(i, 1) % 1000003) / 16.0::DOUBLE AS f, 'a note of some length ' || (i % 50) AS note FROM range({rows}) AS r(i)) TO '{parquet}'"
    ))?;
    ingestd([
        "load", &dir, "--source", "wide", "--ts", "t", "--index", "n", "--index", "f", &parquet,
    ])?;
    std::fs::remove_file(&parquet)?;
    Ok((place, rows))
}

/// Runs the script and returns its output.
fn python(version: Version, base: &Path, rows: u64, script: &str) -> Result<String> {
    let output = Command::new(machine::python()?)
        .args(["-c", &format!("{PRELUDE}{WORKERS}{script}")])
        .arg(version.extension())
        .arg(base)
        .arg(rows.to_string())
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {told}", output.status);
    let said = String::from_utf8(output.stdout).context("not UTF-8")?;
    println!("{said}");
    Ok(said)
}

// G13
#[test]
fn a_large_source_runs_as_a_user_expects() -> Result<()> {
    let (place, rows) = directory()?;
    let v2 =
        [THREADS, ORDER, INTERRUPTS, PROGRESS, MEMORY, ARROW].map(|script| (Version::V2, script));
    // The extension for C API v1 keeps order by using one thread. It supports neither progress nor interrupts.
    let v1 = [TOTALS, ORDER, MEMORY, ARROW].map(|script| (Version::V1, script));
    for (version, script) in v2.into_iter().chain(v1) {
        let said = python(version, place.path(), rows, script)?;
        ensure!(
            said.trim_end().ends_with("good"),
            "{}: {said}",
            version.name()
        );
    }
    Ok(())
}

/// Finds the threads of the process that worked, by their times in /proc.
const WORKERS: &str = "
def times():
    found = {}
    for task in os.listdir('/proc/self/task'):
        fields = open(f'/proc/self/task/{task}/stat').read().rpartition(')')[2].split()
        found[task] = int(fields[11]) + int(fields[12])
    return found
def workers(sql, rounds):
    before = times()
    for _ in range(rounds):
        connection.execute('DROP TABLE IF EXISTS t')
        connection.execute(sql).fetchall()
    spent = [ticks - before.get(task, 0) for task, ticks in times().items()]
    busy = sum(ticks * 10 > sum(spent) for ticks in spent)
    print(f'{busy} threads: {sql}')
    return busy
";

const THREADS: &str = "
assert workers(f'CREATE TABLE t AS FROM {SCAN}', 3) == 2
assert workers(f\"COPY (FROM {SCAN}) TO '{BASE}/t.parquet'\", 2) == 2
assert workers(f'SELECT sum(hash(note)), max(f) FROM {SCAN}', 6) == 2
assert workers(f\"SELECT max(n) FROM {SCAN} WHERE h < 500000 AND note > 'a'\", 6) == 2
print('good')
";

const TOTALS: &str = "
assert workers(f'SELECT sum(hash(note)), max(f) FROM {SCAN}', 6) == 2
assert workers(f'SELECT h % 10, count(*), max(note) FROM {SCAN} GROUP BY 1', 6) == 2
print('good')
";

const ORDER: &str = "
def out_of_order(source, by):
    return one(f'SELECT count(*) FROM (SELECT addr, n, lag(addr) OVER (ORDER BY {by}) AS a, lag(n) OVER (ORDER BY {by}) AS m FROM {source}) WHERE addr <= a OR n <= m')[0]
for condition in ['true', 'h % 3 = 0', 'n BETWEEN 1000 AND 900000']:
    connection.execute(f'CREATE OR REPLACE TABLE t AS FROM {SCAN} WHERE {condition}')
    connection.execute(f\"COPY (FROM {SCAN} WHERE {condition}) TO '{BASE}/o.parquet'\")
    expected = one(f'SELECT count(*) FROM {SCAN} WHERE {condition}')[0]
    assert one('SELECT count(*) FROM t')[0] == expected > 0
    assert out_of_order('t', 'rowid') == 0
    file = f\"read_parquet('{BASE}/o.parquet', file_row_number = true)\"
    assert one(f'SELECT count(*) FROM {file}')[0] == expected
    assert out_of_order(file, 'file_row_number') == 0
    rows = [n for (n,) in connection.execute(f'SELECT n FROM {SCAN} WHERE {condition} LIMIT 70000').fetchall()]
    assert rows == sorted(rows) and len(rows) == min(70000, expected)
print('good')
";

/// An interrupt ends a query at once, wherever it is. The bound is generous; the measured times are printed.
const INTERRUPTS: &str = "
def timed(what, sql, after):
    running, told = connect(), {}
    def run():
        try:
            while True:
                running.execute(sql).fetchall()
        except duckdb.InterruptException:
            told['at'] = time.monotonic()
    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(after)
    asked = time.monotonic()
    # DuckDB forgets an interrupt that comes between two of its steps.
    while thread.is_alive():
        running.interrupt()
        thread.join(0.1)
    answered = told['at'] - asked
    print(f'{what}: {answered * 1000:.1f} ms')
    assert answered < 2
windows = f'around := [make_timestamptz(1767225600000000 + n * 3) FOR n IN range(300000)], width := INTERVAL 1 MICROSECOND'
constants = ', '.join(str(n * 13) for n in range(1400))
timed('scan', f'SELECT sum(hash(note)), max(f) FROM {SCAN}', 0.2)
timed('scan of rows that no condition keeps', f\"SELECT count(*) FROM {SCAN} WHERE note = 'x' AND h % 7 = 9\", 0.2)
timed('scan with everything pruned', f'SELECT count(note) FROM {SCAN} WHERE n < 0 AND f > 1e9', 0.2)
timed('bind of a list of constants', f'SELECT count(note) FROM {SCAN} WHERE n IN ({constants})', 0.3)
timed('bind of many windows', f\"SELECT count(note) FROM loom_scan('{DIR}', 'wide', {windows})\", 1.0)
timed('init with a count over many windows', f\"SELECT count(*) FROM loom_scan('{DIR}', 'wide', {windows})\", 1.0)
timed('aggregate with quantiles', f\"FROM loom_aggregate('{DIR}', 'wide', 'f', quantiles := [0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 0.999])\", 0.2)
timed('aggregate with buckets', f\"FROM loom_aggregate('{DIR}', 'wide', 'f', bucket := INTERVAL 10 MICROSECOND, quantiles := [0.5])\", 0.3)
timed('table', f'CREATE OR REPLACE TABLE t AS FROM {SCAN}', 0.3)
# An interrupted COPY is not tried: DuckDB 2.0.0 may wait for its own Parquet writer for ever.
assert one(f'SELECT count(*) FROM {SCAN}')[0] == ROWS
print('good')
";

const PROGRESS: &str = "
for setting in ['enable_progress_bar = true', 'enable_progress_bar_print = false', 'progress_bar_time = 0']:
    connection.execute(f'SET {setting}')
seen = []
thread = threading.Thread(target=lambda: [connection.execute(f'SELECT sum(hash(note, f, h)) FROM {SCAN}').fetchall() for _ in range(3)])
thread.start()
while thread.is_alive():
    seen.append(connection.query_progress())
    time.sleep(0.002)
between = {share for share in seen if 0 < share < 100}
print(f'{len(between)} values of progress, from {min(between):.1f} to {max(between):.1f}')
assert len(between) >= 3 and max(between) - min(between) > 10
print('good')
";

/// The memory that a copy of everything takes besides the process's own: it is bounded for any number of rows.
const MEMORY: &str = "
def peak_mib():
    return int(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1]) // 1024
connection.execute(f\"COPY (FROM {SCAN} LIMIT 1000) TO '{BASE}/m.parquet'\")
before = peak_mib()
connection.execute(f\"COPY (FROM {SCAN}) TO '{BASE}/m.parquet'\")
took = peak_mib() - before
print(f'copy of {ROWS} rows: {took} MiB more than before')
assert took < 700
assert one(f\"SELECT count(*) FROM read_parquet('{BASE}/m.parquet')\")[0] == ROWS
assert one(f\"SELECT count(*) FROM ((SELECT n, h, f, note FROM read_parquet('{BASE}/m.parquet') WHERE n % 1000 = 7) EXCEPT (SELECT n, h, f, note FROM {SCAN} WHERE n % 1000 = 7))\")[0] == 0
print('good')
";

const ARROW: &str = "
arrow = connection.sql(f'SELECT source, ts, ts_ns, n, f, note FROM {SCAN} WHERE n < 500000').to_arrow_table()
assert arrow.num_rows == 500000 and arrow.column('n').to_pylist()[:3] == [0, 1, 2]
print(', '.join(f'{field.name} {field.type}' for field in arrow.schema))
rows = sum(batch.num_rows for batch in connection.sql(f'SELECT n, note FROM {SCAN}').to_arrow_reader(100000))
assert rows == ROWS
again = connection.sql('SELECT sum(n), max(ts_ns) - min(ts_ns) FROM arrow').fetchall()
assert again == [(500000 * 499999 // 2, 499999000)], again
print('good')
";
