//! Sources as tables: a catalog with a view for each source, in both DuckDB versions. It does not change the user's own databases.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use loom_tests::command::{declared, says};
use loom_tests::daemon::{Daemon, ingestd};
use loom_tests::duckdb::{Database, Session, Version};
use loom_tests::machine;
use tempfile::TempDir;

/// Loads one more source of `rows` records. Its field `n` counts from 0 and is indexed.
fn load(dir: &Path, source: &str, rows: usize) -> Result<()> {
    let csv = dir.with_extension("csv");
    let times = (0..rows).map(|n| {
        let (second, milli) = (n / 1000, n % 1000);
        format!(
            "{n},2026-01-01T00:{:02}:{:02}.{milli:03}Z\n",
            second / 60,
            second % 60
        )
    });
    std::fs::write(&csv, format!("n,t\n{}", times.collect::<String>()))?;
    let fields = declared(&csv, source, "n i64?");
    let options = [
        "--source", source, "--index", "n", "--ts", "t", "--fields", &fields,
    ];
    let arguments = ["load".as_ref(), dir.as_os_str()]
        .into_iter()
        .chain(options.map(AsRef::as_ref));
    ingestd(arguments.chain([csv.as_os_str()]))?;
    Ok(())
}

/// A directory, `NAME.loom`, with these sources.
fn directory(place: &TempDir, name: &str, sources: &[(&str, usize)]) -> Result<PathBuf> {
    let dir = place.path().join(format!("{name}.loom"));
    for (source, rows) in sources {
        load(&dir, source, *rows)?;
    }
    Ok(dir)
}

/// Stores a cut of the directories in a variable.
fn cut(session: &mut Session, dirs: &str) -> Result<()> {
    let row = format!("(SELECT list(row) FROM loom_snapshot({dirs}) AS row)");
    session.query(&format!("SET VARIABLE cut = {row}"))?;
    Ok(())
}

/// The message of an error that must have occurred.
fn told<T>(outcome: Result<T, loom_tests::duckdb::QueryError>) -> Result<String> {
    let error = outcome.err().context("it was not refused")?;
    Ok(error.to_string())
}

#[test]
fn a_source_is_a_view_whatever_its_name() -> Result<()> {
    let place = tempfile::tempdir()?;
    let words = ["select", "main", "two words", "Straße", "Case", "case"];
    let names = [&["a.b", "o'x\"y"], &words[..]].concat();
    let sources: Vec<_> = names.iter().zip(1..).map(|(name, n)| (*name, n)).collect();
    let dir = directory(&place, "a run's \"1\"", &sources)?;
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let quoted = PathBuf::from(dir.display().to_string().replace('\'', "''"));
        session.attach(&quoted, None)?;
        session.query("USE \"a run's \"\"1\"\"\"")?;
        let mut tables = session.cells("SHOW TABLES")?;
        tables.retain(|name| !name.contains("__"));
        tables.sort();
        // Names that differ only in case are one name to DuckDB.
        let mut expected = names.clone();
        expected[7] = "case_8";
        expected.sort();
        assert_eq!(tables, expected);
        for (name, rows) in &sources {
            let name = if *name == "case" { "case_8" } else { name };
            let table = name.replace('"', "\"\"");
            let sql = format!("SELECT count(*) FROM \"{table}\"");
            assert_eq!(session.value(&sql)?, rows.to_string(), "{name}");
        }
    }
    Ok(())
}

#[test]
fn two_directories_join_and_filters_reach_the_records() -> Result<()> {
    let place = tempfile::tempdir()?;
    let one = directory(&place, "one", &[("r", 30_000), ("other", 10)])?;
    let two = directory(&place, "two", &[("r", 20_000)])?;
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        session.attach(&one, None)?;
        session.attach(&two, Some("second"))?;
        let join =
            "SELECT count(*), sum(a.n - b.n) FROM one.r AS a JOIN second.r AS b USING (ts_ns)";
        assert_eq!(session.cells(join)?, ["20000", "0"]);
        let filters =
            "SELECT count(*) FROM one.r WHERE n >= 29_990 AND ts >= '2026-01-01 00:00:20+00'";
        assert_eq!(session.value(filters)?, "10");
        let read =
            "SELECT chunks_read, chunks_total FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1";
        let read = session.numbers(read)?;
        if version == Version::V2 {
            assert!(read[0] == 1 && read[1] > 10, "{read:?}");
            let plan = session.cells(&format!("EXPLAIN {filters}"))?.concat();
            assert!(plan.to_lowercase().contains("loom_scan"), "{plan}");
        }
        let plain = session.value("SELECT count(*) FROM one.main.other WHERE n < 5")?;
        assert_eq!(plain, "5");
    }
    Ok(())
}

#[test]
fn attaching_again_shows_what_came_and_drops_what_went() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = directory(&place, "run", &[("old", 1), ("kept", 2)])?;
    let mut session = Session::open(Version::V2)?;
    let tables = "SELECT view_name FROM duckdb_views() WHERE database_name = 'run' AND schema_name = 'main' AND view_name NOT LIKE '%heat' ORDER BY ALL";
    session.attach(&dir, None)?;
    session.query("CREATE VIEW run.mine AS SELECT 1")?;
    assert_eq!(
        session.cells(tables)?,
        ["kept", "kept__n", "mine", "old", "old__n"]
    );
    load(&dir, "new", 3)?;
    session.query("USE run")?;
    let rows = session.attach(&dir, None)?;
    let named: Vec<_> = rows.into_iter().filter_map(|row| row[1].clone()).collect();
    assert_eq!(named[..4], ["old", "kept", "new", "old__n"]);
    assert_eq!(
        session.cells(tables)?,
        ["kept", "kept__n", "mine", "new", "new__n", "old", "old__n"]
    );
    // Another directory takes the path.
    std::fs::remove_dir_all(&dir)?;
    directory(&place, "run", &[("kept", 4)])?;
    session.attach(&dir, None)?;
    assert_eq!(session.cells(tables)?, ["kept", "kept__n", "mine"]);
    assert_eq!(session.value("SELECT count(*) FROM kept")?, "4");
    Ok(())
}

// case SQL: the views of sources and indexes
#[test]
fn an_index_is_a_view_by_second_that_adds_up_and_reads_what_is_asked_for() -> Result<()> {
    let place = tempfile::tempdir()?;
    // A source has the name of a view of another source's index.
    let dir = directory(&place, "run", &[("r", 60_000), ("r__n", 10)])?;
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        session.attach(&dir, None)?;
        assert_eq!(session.value("SELECT count(*) FROM run.r__n")?, "10");
        let by_second = "SELECT count(*), sum(count), sum(sum) = (SELECT sum(n) FROM run.r), max(max) FROM run.r__n_1";
        assert_eq!(session.cells(by_second)?, ["60", "60000", "true", "59999"]);
        let window = "bucket >= '2026-01-01 00:00:10+00' AND bucket < '2026-01-01 00:00:12+00'";
        let some = format!("SELECT count(*), sum(count), min(min) FROM run.r__n_1 WHERE {window}");
        assert_eq!(session.cells(&some)?, ["2", "2000", "10000"]);
        if version == Version::V2 {
            let read = "SELECT 4 * chunks_read <= chunks_total AND chunks_total > 20 FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1";
            assert_eq!(session.value(read)?, "true");
        }
        let heat = "SELECT sum(count), count(DISTINCT t1) FROM run.r__n__heat";
        assert_eq!(session.cells(heat)?, ["60000", "60"]);
    }
    Ok(())
}

#[test]
fn a_condition_prunes_through_views_subqueries_and_ctes_as_in_the_function_itself() -> Result<()> {
    const TYPES: &str = "UBIGINT UINTEGER BIGINT INTEGER DOUBLE FLOAT";
    const CONSTANTS: &str = "190000.5; 190000; 190000::HUGEINT; 190000::UHUGEINT; 190000::DECIMAL(30, 3); \
                             190000.123456789012345678; 1.9e5; '190000'";
    const FORMS: &str = "{f} > {c}; {c} < {f}; {f} BETWEEN {c} AND 190010.5; {f} = {c}; {f} IN ({c}, 5); \
                         NOT ({f} <= {c}); {f} >= {c} AND {f} <> 7";
    let place = tempfile::tempdir()?;
    let dir = place.path().join("v.loom").display().to_string();
    let mut session = Session::open(Version::V2)?;
    let types: Vec<&str> = TYPES.split(' ').collect();
    let fields = types.iter().map(|ty| format!("n::{ty} AS \"f {ty}\""));
    let fields: Vec<String> = fields.collect();
    let indexes: Vec<String> = types.iter().map(|ty| format!("'f {ty}'")).collect();
    session.query(&format!(
        "COPY (SELECT {} FROM range(200000) AS made(n)) TO '{dir}' (FORMAT loom, SOURCE 's', INDEX ({}))",
        fields.join(", "),
        indexes.join(", ")
    ))?;
    session.attach(Path::new(&dir), Some("live"))?;
    session.query("CREATE VIEW over AS SELECT * FROM live.s")?;
    let from = [
        format!("FROM loom_scan('{dir}', 's')"),
        "FROM live.s".to_owned(),
        "FROM over".to_owned(),
        format!("FROM (SELECT * FROM loom_scan('{dir}', 's'))"),
        "FROM cte".to_owned(),
    ];
    let mut wrong = Vec::new();
    let each = |ty| CONSTANTS.split("; ").map(move |constant| (ty, constant));
    for (ty, constant) in types.iter().flat_map(each) {
        for form in FORMS.split("; ") {
            let clause = form
                .replace("{f}", &format!("\"f {ty}\""))
                .replace("{c}", constant);
            let mut asked = |from: &str| -> Result<(String, u64)> {
                let rows = session.value(&format!(
                    "WITH cte AS (SELECT * FROM loom_scan('{dir}', 's')) SELECT count(*) {from} WHERE {clause}"
                ))?;
                let chunks = session.value(
                    "SELECT chunks_read FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1",
                )?;
                Ok((rows, chunks.parse()?))
            };
            let told: Vec<_> = from.iter().map(|from| asked(from)).collect::<Result<_>>()?;
            // At most a twentieth of the rows match, in chunks side by side.
            let is_pruned = told.iter().all(|(_, chunks)| *chunks < 20);
            if !is_pruned || told.windows(2).any(|pair| pair.first() != pair.last()) {
                wrong.push(format!("{clause}: {told:?}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn the_setting_loom_dir_holds_for_all_connections() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = directory(&place, "run", &[("r", 7)])?;
    let script = "
import duckdb, sys
db = duckdb.connect(config={'allow_unsigned_extensions': 'true'})
db.execute(f\"LOAD '{sys.argv[1]}'\")
db.execute(f\"SET loom_dir = '{sys.argv[2]}'\")
print(db.cursor().execute(\"SELECT count(*) FROM loom_scan('r')\").fetchall())";
    let output = Command::new(machine::python()?)
        .args(["-c", script])
        .args([Version::V2.extension(), dir])
        .output()?;
    let answer = String::from_utf8(output.stdout)?;
    assert_eq!(answer.trim(), "[(7,)]", "{:?}", output.stderr);
    Ok(())
}

#[test]
fn several_directories_make_one_catalog() -> Result<()> {
    let place = tempfile::tempdir()?;
    directory(&place, "one", &[("both", 3), ("mine", 4)])?;
    directory(&place, "two", &[("both", 5)])?;
    for version in Version::ALL {
        let mut session = Session::open_in(version, place.path(), Database::Memory)?;
        let error = told(session.attach(Path::new("*.loom"), None))?;
        says(&error, "give name, the name of the catalog");
        session.attach(Path::new("*.loom"), Some("all"))?;
        let counts =
            "SELECT (SELECT count(*) FROM \"all\".both), (SELECT count(*) FROM \"all\".mine)";
        assert_eq!(session.cells(counts)?, ["8", "4"]);
        // A given pattern is matched again by each query.
        let later = directory(&place, "zone", &[("both", 1), ("mine", 1)])?;
        let again = "SELECT count(*) FROM \"all\".both";
        assert_eq!(session.value(again)?, "9");
        std::fs::remove_dir_all(later)?;
    }
    Ok(())
}

#[test]
fn a_transaction_that_has_written_elsewhere_is_told_so() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = directory(&place, "run", &[("r", 5)])?;
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        session.query("BEGIN")?;
        session.query("CREATE TABLE t (a INTEGER)")?;
        let error = told(session.attach(&dir, None))?;
        says(
            &error,
            "a single transaction can only write to a single attached database",
        );
        session.query("ROLLBACK")?;
        session.query("BEGIN")?;
        session.attach(&dir, None)?;
        session.query("COMMIT")?;
        assert_eq!(session.value("SELECT count(*) FROM run.r")?, "5");
    }
    Ok(())
}

#[test]
fn the_users_own_database_is_never_written_to() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = directory(&place, "run", &[("r", 5)])?;
    for version in Version::ALL {
        // Neither version reads the file that the other wrote.
        let folder = place.path().join(version.name());
        std::fs::create_dir(&folder)?;
        let file = folder.join("run.db");
        Session::plain(version)?.script(&format!(
            "ATTACH '{0}' AS user_db; CREATE OR REPLACE TABLE user_db.t AS FROM range(10); CHECKPOINT user_db; DETACH user_db",
            file.display()
        ))?;
        let before = std::fs::read(&file)?;
        for database in [Database::File(&file), Database::ReadOnly(&file)] {
            let mut session = Session::open_in(version, place.path(), database)?.with_macros()?;
            // The file's catalog has the directory's name.
            let error = told(session.attach(&dir, None))?;
            ensure!(error.contains("give another name"), "{error}");
            session.attach(Path::new("run.loom"), Some("telemetry"))?;
            let both = "SELECT (SELECT count(*) FROM telemetry.r) + (SELECT count(*) FROM run.t)";
            assert_eq!(session.value(both)?, "15");
            let macros = "SELECT loom_quantile('run.loom', 'r', 'n', 1)";
            assert_eq!(session.value(macros)?, "4");
            let named =
                "SELECT count(*) FROM duckdb_views() WHERE database_name = 'run' AND NOT internal";
            assert_eq!(session.value(named)?, "0");
            drop(session);
            ensure!(std::fs::read(&file)? == before, "the file has changed");
            let log = file.with_extension("db.wal");
            ensure!(!log.exists(), "{} was written", log.display());
        }
    }
    Ok(())
}

#[test]
fn alerts_and_pins_are_views_of_every_directory_with_the_columns_of_one_that_has_some() -> Result<()>
{
    let place = tempfile::tempdir()?;
    let quiet = directory(&place, "quiet", &[("r", 3)])?;
    let ruled = directory(&place, "ruled", &[("r", 3)])?;
    let rule =
        "[[rule]]\nname = 'any'\nsource = 'r'\nindex = 'n'\nwhen = 'count > 0'\nover = '1s'\n";
    Daemon::start(&ruled, rule)?.stop()?;
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        for dir in [&quiet, &ruled] {
            session.attach(dir, None)?;
        }
        for view in ["loom_alerts", "loom_pins"] {
            let mut shape = |catalog: &str| {
                let described = format!("DESCRIBE SELECT * FROM {catalog}.loom.{view}");
                session.query(&described).with_context(|| described)
            };
            assert_eq!(shape("quiet")?, shape("ruled")?, "{version:?} {view}");
            let count = format!("SELECT count(*) FROM quiet.loom.{view}");
            assert_eq!(session.value(&count)?, "0");
        }
    }
    Ok(())
}

#[test]
fn a_pin_that_cannot_be_read_is_a_row_that_says_so_beside_the_others() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = directory(&place, "pinned", &[("r", 1)])?;
    let sound =
        r#"{"rule":"a","from_ns":1000,"to_ns":2000,"sources":[{"records":3}],"missing":null}"#;
    let id = |name: &str| format!("20261123T040500.00000000{}Z-{}", &name[..1], &name[2..]);
    for (name, about) in [("1-b", Some("{")), ("2-a", Some(sound)), ("3-c", None)] {
        let pin = dir.join("pins").join(id(name));
        std::fs::create_dir_all(&pin)?;
        if let Some(about) = about {
            std::fs::write(pin.join("pin.json"), about)?;
        }
    }
    std::fs::write(dir.join("pins/notes.txt"), "not a pin")?;
    std::fs::create_dir(dir.join("pins/mine"))?;
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let pins = format!("FROM loom_pins('{}')", dir.display());
        let rows = format!("SELECT concat_ws(' ', id, rule, records, missing[:20]) {pins}");
        let found = session.cells(&rows)?;
        let why = "cannot read pin.json";
        assert_eq!(
            found,
            [
                format!("{} {why}", id("1-b")),
                format!("{} a 3", id("2-a")),
                format!("{} {why}", id("3-c"))
            ]
        );
    }
    Ok(())
}

#[test]
fn a_cut_with_a_directory_that_is_gone_is_refused_with_its_name() -> Result<()> {
    let place = tempfile::tempdir()?;
    for name in ["a", "b"] {
        directory(&place, name, &[("r", 3)])?;
    }
    let glob = format!("'{}/*.loom'", place.path().display());
    let mut sessions = Vec::new();
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        cut(&mut session, &glob)?;
        let count =
            format!("SELECT count(*) FROM loom_scan({glob}, 'r', at := getvariable('cut'))");
        assert_eq!(session.value(&count)?, "6");
        sessions.push((session, count));
    }
    std::fs::remove_dir_all(place.path().join("b.loom"))?;
    for (mut session, count) in sessions {
        let error = told(session.query(&count))?;
        says(&error, "b.loom' is in the cut but no longer exists");
    }
    Ok(())
}

#[test]
fn a_directory_of_several_without_the_source_is_skipped_and_noted_unless_none_has_it() -> Result<()>
{
    const CALLS: [&str; 10] = [
        "SELECT count(*) FROM loom_scan(%, 'mine')",
        "SELECT sum(count) FROM loom_aggregate(%, 'mine', 'n')",
        "SELECT sum(count) FROM loom_histogram(%, 'mine', 'n')",
        "SELECT sum(count) FROM loom_heat(%, 'mine', 'n', bucket := INTERVAL 1 SECOND)",
        "SELECT sum(count) FROM loom_rate(%, 'mine')",
        "SELECT sum(n) FROM loom_top(%, 'mine', 'n', 2)",
        "SELECT count(*) FROM loom_tail(%, 'mine', 50)",
        "SELECT sum(chunks) FROM loom_estimate(%, 'mine', index := 'n')",
        "SELECT sum(records) FROM loom_chunks(%, source := 'mine')",
        "SELECT count(*) FROM loom_scan(%, 'mine', at := getvariable('cut'), complete := true)",
    ];
    let place = tempfile::tempdir()?;
    let one = directory(&place, "one", &[("both", 3), ("mine", 4)])?;
    let two = directory(&place, "two", &[("both", 5)])?;
    let path = |dir: &Path| format!("'{}'", dir.display());
    let glob = path(&place.path().join("*.loom"));
    let list = format!("[{}, {}]", path(&one), path(&two));
    let reversed = format!("[{}, {}]", path(&two), path(&one));
    let mut sessions = Vec::new();
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        for dirs in [&glob, &list, &reversed] {
            cut(&mut session, dirs)?;
            for call in CALLS {
                let skipped = format!(
                    "SELECT count(*) FROM loom_scan_stats() WHERE source = 'mine' AND dir = {} \
                     AND note = 'skipped: the directory does not have the source' AND chunks_total = 0",
                    path(&two)
                );
                let before: u64 = session.value(&skipped)?.parse()?;
                let alone = session.value(&call.replace('%', &path(&one)))?;
                assert_eq!(session.value(&skipped)?, before.to_string(), "{call}");
                assert_eq!(session.value(&call.replace('%', dirs))?, alone, "{call}");
                assert_eq!(session.value(&skipped)?, (before + 1).to_string(), "{call}");
            }
        }
        for call in &CALLS[..9] {
            let call = call.replace("'mine'", "'other'").replace('%', &glob);
            let error = told(session.query(&call))?;
            let named = format!(
                "unknown source 'other'; the sources are: 'both', 'mine'; loom_sources({glob}) lists the sources"
            );
            ensure!(error.contains(&named), "{call}: {error}");
        }
        let error = told(session.query(&format!("FROM loom_scan({list}, 'mime')")))?;
        let named = format!("did you mean 'mine'? loom_sources({list}) lists the sources");
        ensure!(error.contains(&named), "{error}");
        session.query(&format!(
            "PREPARE again AS SELECT count(*) FROM loom_scan({glob}, 'mine')"
        ))?;
        assert_eq!(session.value("EXECUTE again")?, "4");
        sessions.push(session);
    }
    load(&two, "mine", 6)?;
    for session in &mut sessions {
        assert_eq!(session.value("EXECUTE again")?, "10");
    }
    Ok(())
}

#[test]
fn a_directory_that_is_given_twice_is_read_once_and_a_copy_is_refused() -> Result<()> {
    const CALLS: [&str; 7] = [
        "count(*) FROM loom_scan(%, 'r')",
        "count(*) FROM loom_scan(%, 'r', at := getvariable('cut'))",
        "sum(count) FROM loom_aggregate(%, 'r', 'n')",
        "sum(count) FROM loom_rate(%, 'r')",
        "count(*) FROM loom_tail(%, 'r', 50)",
        "sum(records) FROM loom_chunks(%) WHERE source = 'r'",
        "sum(records) FROM loom_sources(%) WHERE name = 'r'",
    ];
    let place = tempfile::tempdir()?;
    let one = directory(&place, "one", &[("r", 30)])?;
    let two = directory(&place, "two", &[("r", 4)])?;
    std::os::unix::fs::symlink(&one, place.path().join("link.loom"))?;
    let path = |name: &str| format!("'{}'", place.path().join(name).display());
    let (one, link, glob) = (path("one.loom"), path("link.loom"), path("*.loom"));
    let dirs = [
        (format!("[{one}, {one}]"), 30, 1),
        (format!("[{one}, {link}, {one}]"), 30, 1),
        (format!("[{link}, {glob}]"), 34, 2),
        (glob.clone(), 34, 2),
    ];
    let mut sessions = Vec::new();
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        for (dirs, records, directories) in &dirs {
            cut(&mut session, dirs)?;
            for call in CALLS {
                let call = format!("SELECT {}", call.replace('%', dirs));
                assert_eq!(session.value(&call)?, records.to_string(), "{call}");
            }
            let each = format!("SELECT count(*) FROM loom_snapshot({dirs})");
            assert_eq!(session.value(&each)?, directories.to_string(), "{dirs}");
        }
        sessions.push(session);
    }
    let copy = place.path().join("copy.loom");
    let mut command = std::process::Command::new("cp");
    let copied = command.arg("-r").args([&two, &copy]).status()?;
    ensure!(copied.success(), "{copied}");
    for session in &mut sessions {
        for call in ["loom_scan(%, 'r')", "loom_sources(%)", "loom_snapshot(%)"] {
            let call = format!("FROM {}", call.replace('%', &glob));
            let error = told(session.query(&call))?;
            ensure!(
                error.contains("copy.loom' and '") && error.contains("two.loom' together"),
                "{error}"
            );
        }
        let alone = format!("SELECT count(*) FROM loom_scan({}, 'r')", path("copy.loom"));
        assert_eq!(session.value(&alone)?, "4");
    }
    Ok(())
}

#[test]
fn a_macro_of_the_users_goes_before_ours() -> Result<()> {
    let place = tempfile::tempdir()?;
    let file = place.path().join("user.db");
    let mut session = Session::open_in(Version::V2, place.path(), Database::File(&file))?;
    session.query("CREATE MACRO loom_position(dir) AS 'mine'")?;
    drop(session);
    for database in [Database::File(&file), Database::ReadOnly(&file)] {
        let mut session = Session::open_in(Version::V2, place.path(), database)?;
        assert_eq!(session.value("SELECT loom_position('x')")?, "mine");
        let ours = "SELECT count(DISTINCT function_name) FROM duckdb_functions() WHERE function_type LIKE '%macro' AND function_name LIKE 'loom%'";
        let text = include_str!("../../../sql/macros.sql");
        let defined = text.matches("TEMP MACRO loom_").count();
        assert_eq!(session.value(ours)?, defined.to_string());
    }
    Ok(())
}
