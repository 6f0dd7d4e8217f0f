//! The effects of the extension on the process that loads it do not last: a panic in it ends a query, an interrupt is noticed, and none of
//! its own connections holds the user's database.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use loom_tests::command::{declared, run, word};
use loom_tests::duckdb::Version;
use loom_tests::machine;
use tempfile::TempDir;

/// Rows of the directory that the tests read.
const ROWS: usize = 20_000;

/// A Loom directory with one source, `r`, of one field, `n`.
fn directory() -> Result<TempDir> {
    directory_of(ROWS, "n i64?", |n| n.to_string())
}

/// As `directory`, with other fields, one of which is `n`, and `rows` rows.
fn directory_of(rows: usize, fields: &str, row: impl Fn(usize) -> String) -> Result<TempDir> {
    let dir = tempfile::tempdir()?;
    let rows = (0..rows).map(|n| row(n) + "\n");
    let csv = dir.path().join("r.csv");
    let words = fields.split(", ").map(|field| field.split(' ').next());
    let names: Vec<&str> = words.flatten().collect();
    let names = names.join(",");
    std::fs::write(&csv, format!("{names}\n{}", rows.collect::<String>()))?;
    let (loom, fields) = (dir.path().join("loom"), declared(&csv, "r", fields));
    let load = ["load", word(&loom), "--source", "r", "--index", "n"];
    run(&[&load[..], &["--fields", &fields, word(&csv)]].concat()).ends(0);
    Ok(dir)
}

/// Rows of the directory that is larger than the available memory.
const WIDE_ROWS: usize = 200_000;

/// A directory with texts beside `n`.
fn wide_directory() -> Result<TempDir> {
    directory_of(WIDE_ROWS, "n i64?, name utf8?, text utf8?", |n| {
        let text = n.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        format!("{n},user{n:06},x{text}{}", text.wrapping_mul(text))
    })
}

/// Runs Python with `duckdb` imported, `EXTENSION`, `DIR` and `BASE` set, and `connect(path)` to load the extension.
fn python(
    version: Version,
    base: &Path,
    variable: Option<(&str, &str)>,
    script: &str,
) -> Result<Output> {
    let prelude = "import duckdb, os, subprocess, sys, threading, time\n\
        EXTENSION, BASE = sys.argv[1:3]\n\
        DIR = BASE + '/loom'\n\
        def connect(path=':memory:'):\n    \
            connection = duckdb.connect(path, config={'allow_unsigned_extensions': 'true'})\n    \
            connection.execute(f\"LOAD '{EXTENSION}'\")\n    \
            return connection\n";
    let mut command = Command::new(machine::python()?);
    command.args(["-c", &format!("{prelude}{script}")]);
    command.arg(version.extension()).arg(base);
    command.env_remove("LOOM_TEST_PANIC").envs(variable);
    Ok(command.output()?)
}

fn said(output: &Output) -> Result<&str> {
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {told}", output.status);
    let said = std::str::from_utf8(&output.stdout);
    Ok(said.context("not UTF-8")?.trim())
}

/// Checks that a script prints this in each version.
fn prints(base: &Path, variable: Option<(&str, &str)>, script: &str, wanted: &str) -> Result<()> {
    for version in Version::ALL {
        let output = python(version, base, variable, script)?;
        assert_eq!(said(&output)?, wanted, "{} {variable:?}", version.name());
    }
    Ok(())
}

// G8
#[test]
fn a_panic_in_any_callback_ends_the_query_and_no_more() -> Result<()> {
    // The scans are in order, in parallel and pruned, so that every callback is called.
    let script = "
connection = connect()
other = connection.cursor()
try:
    connection.execute(f\"CREATE TABLE t AS SELECT n FROM loom_scan('{DIR}', 'r') WHERE n > 5\")
    print('no error', end=' ')
except Exception as error:
    print(type(error).__name__, 'planted' in str(error), end=' ')
print(other.execute('SELECT 42').fetchall(), connection.execute('SELECT 43').fetchall())
";
    let dir = directory()?;
    let v2 = "Bind Pushdown Init InitLocal Execute Partition".split(' ');
    let v2 = v2.map(|callback| (Version::V2, callback));
    let v1 = ["Bind", "Init", "Execute"].map(|callback| (Version::V1, callback));
    for (version, callback) in v2.chain(v1) {
        let planted = ("LOOM_TEST_PANIC", callback);
        let output = python(version, dir.path(), Some(planted), script)?;
        let kind = match (version, callback) {
            (Version::V1, "Bind") => "BinderException",
            _ => "InvalidInputException",
        };
        let expected = format!("{kind} True [(42,)] [(43,)]");
        assert_eq!(said(&output)?, expected, "{} {callback}", version.name());
    }
    Ok(())
}

#[test]
fn a_panic_on_the_way_to_a_table_ends_the_statement_and_no_more() -> Result<()> {
    let script = |statement: &str| {
        format!(
            "
connection = connect()
try:
    connection.execute(f\"{statement}\")
    print('no error', end=' ')
except Exception as error:
    print('planted' in str(error), end=' ')
print(connection.cursor().execute('SELECT 42').fetchall(), connection.execute('SELECT 43').fetchall())
"
        )
    };
    let dir = directory()?;
    let replaced = "FROM '{DIR}.loom/r'";
    for (version, callback, statement) in [
        (Version::V2, "Replace", replaced),
        (Version::V1, "Replace", replaced),
        (Version::V2, "Attach", "PRAGMA loom_attach('{DIR}')"),
    ] {
        let planted = ("LOOM_TEST_PANIC", callback);
        let output = python(version, dir.path(), Some(planted), &script(statement))?;
        let expected = "True [(42,)] [(43,)]";
        assert_eq!(said(&output)?, expected, "{} {callback}", version.name());
    }
    Ok(())
}

// G8
#[test]
fn a_panic_in_any_callback_of_an_aggregate_or_a_scalar_function_ends_the_query_and_no_more()
-> Result<()> {
    // Several threads fill several groups, so that states are combined too.
    let script = "
connection = connect()
connection.execute('SET threads = 4')
connection.execute('SET enable_progress_bar = false')
try:
    connection.execute('SELECT sum(loom_bins_count(b)) FROM (SELECT loom_bins(i) AS b FROM range(1_000_000) AS numbers(i) GROUP BY i % 7)').fetchall()
    print('no error', end=' ')
except Exception as error:
    print(type(error).__name__, 'planted' in str(error), end=' ')
print(connection.cursor().execute('SELECT 42').fetchall(), connection.execute('SELECT 43').fetchall())
";
    let dir = directory()?;
    for callback in ["Update", "Combine", "Finalize", "Evaluate"] {
        let planted = Some(("LOOM_TEST_PANIC", callback));
        let wanted = "InvalidInputException True [(42,)] [(43,)]";
        prints(dir.path(), planted, script, wanted)?;
    }
    Ok(())
}

#[test]
fn a_closed_database_is_free_for_another_process() -> Result<()> {
    let script = "
connection = connect(BASE + '/user.db')
connection.execute(f\"CREATE OR REPLACE TABLE t AS SELECT count(*) AS n FROM loom_scan('{DIR}', 'r')\")
connection.close()
open_it = 'import duckdb, sys; print(duckdb.connect(sys.argv[1]).execute(\"FROM t\").fetchall())'
print(subprocess.run([sys.executable, '-c', open_it, BASE + '/user.db'], capture_output=True, text=True, check=True).stdout.strip())
";
    let dir = directory()?;
    prints(dir.path(), None, script, &format!("[({ROWS},)]"))
}

#[test]
fn an_interrupt_ends_a_query_over_loom() -> Result<()> {
    let script = "
connection = connect()
stop = threading.Event()
def interrupt():
    while not stop.wait(0.05):
        connection.interrupt()
thread = threading.Thread(target=interrupt)
thread.start()
try:
    connection.execute(f\"SELECT sum(a.n * b.n) FROM loom_scan('{DIR}', 'r') a, loom_scan('{DIR}', 'r') b, range(1000)\").fetchall()
    print('ran to its end')
except duckdb.InterruptException:
    print('interrupted')
finally:
    stop.set()
    thread.join()
print(connection.execute(f\"SELECT count(*) FROM loom_scan('{DIR}', 'r')\").fetchall())
";
    let dir = directory()?;
    let wanted = format!("interrupted\n[({ROWS},)]");
    prints(dir.path(), None, script, &wanted)
}

#[test]
fn a_prepared_statement_sees_what_stands_at_its_path_now() -> Result<()> {
    let script = "
connection = connect()
connection.execute(f\"PREPARE p AS SELECT count(*), max(n) FROM loom_scan('{DIR}', 'r') WHERE n >= $1\")
print(connection.execute('EXECUTE p(19990)').fetchall())
os.rename(DIR, DIR + '.gone')
try:
    print(connection.execute('EXECUTE p(19990)').fetchall())
except Exception as error:
    print(DIR in str(error))
os.rename(DIR + '.gone', DIR)
print(connection.execute('EXECUTE p(19999)').fetchall())
";
    let dir = directory()?;
    let wanted = "[(10, 19999)]\nTrue\n[(1, 19999)]";
    prints(dir.path(), None, script, wanted)
}

#[test]
fn a_process_that_serves_a_directory_reads_no_other_by_any_function_path_or_setting() -> Result<()>
{
    // Everything that DuckDB itself could refuse is open. `%` stands for a path in quotes.
    let script = r#"
connection = connect()
is_v2 = EXTENSION.split(os.sep)[-2] != 'duckdb-v1'
calls = {
    'scan': "%, 'r'", 'aggregate': "%, 'r', 'n'", 'histogram': "%, 'r', 'n'", 'heat': "%, 'r', 'n'", 'rate': "%, 'r'",
    'top': "%, 'r', 'n', 1", 'tail': "%, 'r', 1", 'series': "%, 'm'", 'series_aggregate': "%, 'm'", 'samples': "%, 'm'",
    'labels': "%, 'm'", 'estimate': "%, 'r'", 'sources': '%', 'indexes': '%', 'chunks': '%', 'snapshot': '%', 'losses': '%',
    'pins': '%', 'status': '%', 'attach': '%', 'why': "%, 'r', 'n', NULL, NULL, 1, NULL",
}
known = "SELECT DISTINCT function_name[6:] FROM duckdb_functions() WHERE function_name LIKE 'loom_%' AND function_type = 'table'"
found = {name for name, in connection.execute(known).fetchall()}
assert found == {*calls, 'scan_stats'}, found
os.environ['LOOM_SERVED'] = BASE
if is_v2:
    connection.execute(f"SET loom_directories = ['{BASE}']")
for own in (DIR, f'{BASE}/other.loom/../loom', f'{BASE}/own.loom'):
    assert connection.execute(f"SELECT count(*) FROM loom_scan('{own}', 'r')").fetchall() == [(20_000,)]
asked = []
for path in ('other.loom', 'link.loom', 'loom/../other.loom', 'none.loom'):
    path = f'{BASE}/{path}'
    for given in (f"'{path}'", f"['{DIR}', '{path}']"):
        asked += [f"FROM loom_{name}({call.replace('%', given)})" for name, call in calls.items()]
    asked += [f"FROM '{path}/r'", f"FROM loom_attach('{DIR}', archive := '{path}')", f"FROM query_table('{path}/r')"]
    asked += [f"""FROM histogram('"{path}/r"', n, technique := 'sample')"""]
    if is_v2:
        asked += [f"PRAGMA loom_attach('{path}')", f"PRAGMA loom_attach('{DIR}', 'a', '{path}')"]
        asked += [f"SET loom_dir = '{path}'; FROM loom_sources()"]
asked += [f"FROM loom_scan('{BASE}/*', 'r')", f"FROM loom_sources('{BASE}/*.loom')", f"FROM '{BASE}/*.loom/r'"]
for question in asked:
    try:
        print('ANSWERED', question, connection.execute(question).fetchall()[:1])
    except Exception as error:
        if 'this process serves other directories only' not in str(error):
            print('OTHERWISE', question, error)
# Neither a hint nor the name of a table says what is elsewhere.
for path in ('other.loom', 'none.loom'):
    for question in (f"FROM loom_scan('{DIR}', '{BASE}/{path}')", f"FROM '{BASE}/{path}'"):
        try:
            print('ANSWERED', question, connection.execute(question).fetchall()[:1])
        except Exception as error:
            if 'comes first' in str(error) or 'this process' in str(error):
                print('HINTED', question, error)
"#;
    let dir = directory()?;
    let other = directory()?;
    let base = dir.path();
    std::fs::rename(other.path().join("loom"), base.join("other.loom"))?;
    symlink(base.join("other.loom"), base.join("link.loom"))?;
    symlink(base.join("loom"), base.join("own.loom"))?;
    let served = base.join("loom").display().to_string();
    prints(base, Some(("LOOM_SERVED", served.as_str())), script, "")
}

#[test]
fn a_process_that_shall_serve_what_is_not_there_has_no_loom() -> Result<()> {
    let dir = directory()?;
    let script = "
try:
    connect()
except Exception as error:
    print('cannot confine Loom to' in str(error))
";
    for served in ["", "/no/such/directory"] {
        prints(dir.path(), Some(("LOOM_SERVED", served)), script, "True")?;
    }
    Ok(())
}

// G8
#[test]
fn memory_that_the_system_refuses_ends_the_query_and_no_more() -> Result<()> {
    // Memory grows until it is enough for the whole answer.
    let script = "
import resource
def data():
    return next(int(line.split()[1]) * 1024 for line in open('/proc/self/status') if line.startswith('VmData'))
connection = connect()
connection.execute('SET threads = 1')
question = f\"SELECT count(*), sum(n), max(name), max(length(text)) FROM loom_scan('{DIR}', 'r')\"
connection.execute(f\"SELECT count(*) FROM loom_sources('{DIR}')\").fetchall()
limits = resource.getrlimit(resource.RLIMIT_DATA)
refused, room, answer = 0, 256 << 10, None
while answer is None and room < 1 << 30:
    resource.setrlimit(resource.RLIMIT_DATA, (data() + room, limits[1]))
    try:
        answer = connection.execute(question).fetchall()
    except (Exception, MemoryError) as error:
        refused += ' bytes of memory are needed to read it' in str(error) and f'{DIR}/records/' in str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    room *= 2
print(refused > 0, answer)
print(answer == connection.execute(question).fetchall())
";
    let rows = WIDE_ROWS;
    let dir = wide_directory()?;
    for version in Version::ALL {
        let output = python(version, dir.path(), None, script)?;
        let told = said(&output).with_context(|| version.name())?;
        let expected = format!(
            "True [({rows}, {}, 'user{:06}', ",
            rows * (rows - 1) / 2,
            rows - 1
        );
        assert!(
            told.starts_with(&expected) && told.ends_with("\nTrue"),
            "{}: {told}",
            version.name()
        );
    }
    Ok(())
}

// G13
#[test]
fn what_is_kept_between_questions_stays_within_what_is_set_and_the_memory_limit() -> Result<()> {
    // The same question twice: the bytes that it reads again were not cached.
    let script = "
limit, setting = os.environ.get('LIMIT'), os.environ.get('CACHE')
connection = duckdb.connect(config={'allow_unsigned_extensions': 'true', **({'memory_limit': limit} if limit else {})})
connection.execute(f\"LOAD '{EXTENSION}'\")
if setting:
    connection.execute(f\"SET loom_cache = '{setting}'\")
def read():
    return next(int(line.split()[1]) for line in open('/proc/self/io') if line.startswith('rchar'))
def ask():
    before = read()
    question = f\"SELECT count(*), sum(n), max(name), max(length(text)) FROM loom_scan('{DIR}', 'r')\"
    answer = connection.execute(question).fetchall()
    return answer, read() - before
first, of_first = ask()
second, of_second = ask()
print('kept' if of_second < of_first / 2 else 'read again', first == second, first[0][:2])
";
    let rows = WIDE_ROWS;
    let dir = wide_directory()?;
    let answer = format!("True ({rows}, {})", rows * (rows - 1) / 2);
    type Case = (
        &'static [Version],
        Option<(&'static str, &'static str)>,
        &'static str,
    );
    let cases: [Case; 6] = [
        (&Version::ALL, None, "kept"),
        (&Version::ALL, Some(("LIMIT", "100MB")), "kept"),
        (&Version::ALL, Some(("LIMIT", "8MB")), "read again"),
        (&Version::ALL, Some(("LOOM_CACHE", "100KB")), "read again"),
        (&[Version::V2], Some(("CACHE", "0MB")), "read again"),
        (&[Version::V2], Some(("CACHE", "100MB")), "kept"),
    ];
    for (versions, variable, expected) in cases {
        for version in versions {
            let output = python(*version, dir.path(), variable, script)?;
            let told = said(&output).with_context(|| format!("{} {variable:?}", version.name()))?;
            assert_eq!(
                told,
                format!("{expected} {answer}"),
                "{} {variable:?}",
                version.name()
            );
        }
    }
    Ok(())
}

#[test]
fn a_size_that_is_none_or_more_than_allowed_is_refused_by_name() -> Result<()> {
    let script = "
def refused(statement):
    try:
        connection.execute(statement)
        return 'taken'
    except Exception as error:
        return str(error)
connection = connect()
connection.execute(\"SET memory_limit = '100MB'\")
print('a quarter of memory_limit' in refused(\"SET loom_cache = '26MB'\"), \"use '64MB' or '64MiB'\" in refused(\"SET loom_cache = 'much'\"))
print(refused(\"SET loom_cache = '20MB'\"), refused('RESET loom_cache'), connection.execute('SELECT 42').fetchall())
";
    let dir = directory()?;
    let output = python(Version::V2, dir.path(), None, script)?;
    assert_eq!(said(&output)?, "True True\ntaken taken [(42,)]");
    let script = "
try:
    connect()
except Exception as error:
    print(\"LOOM_CACHE = 'much' is not a size; use '64MB' or '64MiB'\" in str(error))
";
    prints(dir.path(), Some(("LOOM_CACHE", "much")), script, "True")
}
