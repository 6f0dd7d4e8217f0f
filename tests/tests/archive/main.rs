//! `ingestd archive`: each record is in exactly one file of the archive, however the archiver ends, and the archive and its directory can
//! be read as one.

mod failures;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use loom_engine::ingest::{Limits, Writer};
use loom_engine::schema::parse_sources;
use loom_engine::testkit::options;
use loom_engine::{SourceId, Timestamp};
use loom_tests::command::{self, Ended, Running, file, piped, run, says, send, until, word};
use loom_tests::daemon::wait_until;
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use loom_tests::seed::Seed;
use loom_tests::strace::{Point, points};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

/// `early` uses arrival times; `late` has its own times, which are in no order.
const SOURCES: &str = "
[[source]]
name = 'early'
field = [{ name = 'n', type = 'u64' }]

[[source]]
name = 'late'
time = 'own'
field = [{ name = 'n', type = 'u64' }]
";

/// Names that would lead out of the archive or hide its own columns, and every type.
const STRANGE: &str = "
[[source]]
name = '../x'
time = 'own'
field = [
    { name = 'loom_date', type = 'u8' },
    { name = 'loom_ns_due', type = 'u16' },
    { name = 'due', type = 'timestamp_ns', nullable = true },
    { name = 'a b', type = 'u32' },
    { name = 'big', type = 'u64', nullable = true },
    { name = 'i8', type = 'i8' },
    { name = 'i64', type = 'i64' },
    { name = 'op', type = 'u8', labels = { 1 = 'GET', 2 = 'SET' } },
    { name = 'ok', type = 'bool' },
    { name = 'f', type = 'f32' },
    { name = 'note', type = 'utf8', nullable = true },
    { name = 'id', type = 'bytes[2]' },
    { name = 'four', type = 'char[4]' },
]
";

const ROWS: &str = "\
t,loom_date,loom_ns_due,due,a b,big,i8,i64,op,ok,f,note,id,four
2026-01-01T01:59:59.999999999Z,255,65535,2026-01-01T00:00:00.123456789Z,4294967295,18446744073709551615,-128,-9223372036854775808,GET,true,1.5,ä,xy,abc
2026-01-01T00:00:00Z,0,0,,0,,127,9223372036854775807,7,false,-0.0,,00,
1969-12-31T23:59:59.999999999Z,1,2,1677-09-21T00:12:44Z,3,4,5,6,SET,true,0.1,\"a,b\",zz,wxyz
2026-01-01T01:00:00Z,9,9,1970-01-01T00:00:00.000000001Z,9,9,9,9,SET,true,nan,x,yy,9
";

/// A directory with small chunks and segments, written without a daemon.
struct Place {
    root: TempDir,
    dir: PathBuf,
    archive: PathBuf,
}

impl Place {
    fn new() -> Result<Place> {
        let root = tempfile::tempdir()?;
        let (dir, archive) = (root.path().join("d.loom"), root.path().join("archive"));
        Ok(Place { root, dir, archive })
    }

    fn open(&self) -> Result<(Writer, Vec<SourceId>)> {
        let mut writer = Writer::open(&self.dir, options(64 << 10, 64 << 10))?;
        let mut ids = Vec::new();
        for source in parse_sources(SOURCES)? {
            ids.push(writer.define_source(&source)?);
        }
        Ok((writer, ids))
    }

    /// Pushes `records` more records of both sources.
    fn push(&self, records: u64) -> Result<()> {
        let (mut writer, ids) = self.open()?;
        push(&mut writer, &ids, records)?;
        Ok(writer.close()?)
    }

    fn archive(&self) -> Result<String> {
        archive(&self.dir, &self.archive, &[])
    }

    /// Runs the archiver, which must fail, and returns its error.
    fn refused(&self, dir: &Path, to: &Path, options: &[&str]) -> Result<String> {
        Ok(Ended::of(&mut archiver(dir, to, options)?).ends(1).err)
    }
}

fn push(writer: &mut Writer, ids: &[SourceId], records: u64) -> Result<()> {
    let &[early, late] = ids else {
        anyhow::bail!("two sources, not {}", ids.len())
    };
    for n in 0..records {
        writer.push(early, &n.to_le_bytes())?;
        // Within five hours from the first of January 2026.
        let time =
            Timestamp(1_767_225_600_000_000_000 + (n * 7919 % 18_000 * 1_000_000_000) as i64);
        let payload = [time.0.to_le_bytes(), n.to_le_bytes()].concat();
        writer.push(late, &payload)?;
    }
    Ok(())
}

fn archiver(dir: &Path, to: &Path, options: &[&str]) -> Result<Command> {
    let words = ["archive", word(dir), "--to", word(to)].into_iter();
    Ok(command::ingestd(words.chain(options.iter().copied())))
}

/// Runs the archiver and returns its output.
fn archive(dir: &Path, to: &Path, options: &[&str]) -> Result<String> {
    Ok(Ended::of(&mut archiver(dir, to, options)?).ends(0).out)
}

/// Fails unless the source's view over the archive and the directory has the types and the rows of `scan`, each as often.
fn same_rows(session: &mut Session, view: &str, scan: &str) -> Result<()> {
    let described = |session: &mut Session, from: &str| {
        session.query(&format!(
            "SELECT column_name, column_type FROM (DESCRIBE FROM {from})"
        ))
    };
    ensure!(described(session, view)? == described(session, scan)?);
    let differing = session.query(&format!(
        "SELECT 'only in the view', * FROM (FROM {view} EXCEPT ALL FROM {scan})
         UNION ALL SELECT 'only in the scan', * FROM (FROM {scan} EXCEPT ALL FROM {view}) LIMIT 5"
    ))?;
    ensure!(differing.is_empty(), "{view}: {differing:?}");
    Ok(())
}

/// Checks the same for every source, in both versions of DuckDB.
fn one_whole(dir: &Path, archive: &Path) -> Result<()> {
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        session.attach_with(dir, archive, "whole")?;
        let sources = session.query(&format!(
            "SELECT name FROM loom_sources('{}') WHERE records > 0 AND name NOT LIKE 'loom_%'",
            dir.display()
        ))?;
        ensure!(!sources.is_empty());
        for source in sources.into_iter().flatten().flatten() {
            let scan = format!("loom_scan('{}', '{source}')", dir.display());
            same_rows(&mut session, &format!("whole.\"{source}\""), &scan)?;
        }
    }
    Ok(())
}

/// Fails unless the files of the archive, by themselves, hold each record of both sources once.
fn complete(session: &mut Session, dir: &Path, archive: &Path) -> Result<()> {
    for source in ["early", "late"] {
        same_rows_by(session, dir, archive, source, "")?;
    }
    Ok(())
}

fn same_rows_by(
    session: &mut Session,
    dir: &Path,
    archive: &Path,
    source: &str,
    only: &str,
) -> Result<()> {
    let columns = "ts, ts_ns, n::UBIGINT AS n, addr::UBIGINT AS addr";
    let files = format!(
        "(SELECT {columns} FROM read_parquet('{}/source={source}/*/*/*.parquet'))",
        archive.display()
    );
    let scan = format!(
        "(SELECT {columns} FROM loom_scan('{}', '{source}') {only})",
        dir.display()
    );
    same_rows(session, &files, &scan)
}

/// The manifest and the position of the archive's sources, in the order in which they were first archived.
fn manifest(archive: &Path) -> Result<Vec<Archived>> {
    let text = fs::read_to_string(archive.join("_manifest.jsonl"))?;
    let position: Value = serde_json::from_slice(&fs::read(archive.join("_position.json"))?)?;
    let mut sources: Vec<Archived> = Vec::new();
    for line in text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
    {
        let line: Value = serde_json::from_str(line)?;
        let Some(name) = line.get("source").and_then(Value::as_str) else {
            continue;
        };
        let known = sources.iter().position(|source| source.name == name);
        let known = known.unwrap_or_else(|| {
            let number = |value: Option<&Value>| value.and_then(Value::as_u64);
            let apart = position.get("apart").and_then(|apart| apart.get(name));
            sources.push(Archived {
                name: name.to_owned(),
                position: number(apart).or(number(position.get("reached"))),
                files: Vec::new(),
                gaps: Vec::new(),
            });
            sources.len() - 1
        });
        let list = |key: &str| {
            let values = line.get(key).and_then(Value::as_array);
            values.cloned().unwrap_or_default()
        };
        if let Some(source) = sources.get_mut(known) {
            source.files.extend(list("files"));
            source.gaps.extend(list("gaps"));
        }
    }
    Ok(sources)
}

struct Archived {
    name: String,
    position: Option<u64>,
    files: Vec<Value>,
    gaps: Vec<Value>,
}

/// The source of that name.
fn archived(archive: &Path, name: &str) -> Result<Archived> {
    let mut sources = manifest(archive)?.into_iter();
    let found = sources.find(|source| source.name == name);
    found.with_context(|| format!("'{name}' is not archived"))
}

// case Archive: every type and name
#[test]
fn every_record_is_archived_once_and_later_only_what_came_since() -> Result<()> {
    let place = Place::new()?;
    place.push(3000)?;
    assert!(place.archive()?.starts_with("records=6000 "));
    one_whole(&place.dir, &place.archive)?;
    let mut session = Session::open(Version::V2)?;
    complete(&mut session, &place.dir, &place.archive)?;
    assert_eq!(place.archive()?, "records=0 files=0 bytes=0\n");
    let before = fs::read(place.archive.join("_manifest.jsonl"))?;
    place.push(500)?;
    // The view reads records that are not archived yet from the directory.
    one_whole(&place.dir, &place.archive)?;
    assert!(place.archive()?.starts_with("records=1000 "));
    // A commit appends to the manifest.
    let after = fs::read(place.archive.join("_manifest.jsonl"))?;
    ensure!(after.starts_with(&before) && after.len() < before.len() + 3000);
    complete(&mut session, &place.dir, &place.archive)?;
    let files = format!(
        "read_parquet('{}/*/*/*/*.parquet', filename = true)",
        place.archive.display()
    );
    let unsorted = session.query(&format!(
        "SELECT filename FROM (SELECT filename, ts_ns, lag(ts_ns) OVER (PARTITION BY filename ORDER BY file_row_number) AS before
         FROM {}) WHERE ts_ns < before",
        files.replace("filename = true", "filename = true, file_row_number = true")
    ))?;
    assert_eq!(unsorted, Vec::<Vec<Option<String>>>::new());
    let elsewhere = session.value(&format!(
        "SELECT count(*) FROM {files} WHERE loom_date <> ts::DATE OR loom_hour <> hour(ts)"
    ))?;
    assert_eq!(elsewhere, "0");
    Ok(())
}

// case Archive: every type and name
#[test]
fn every_type_and_every_name_comes_back_as_it_was() -> Result<()> {
    let place = Place::new()?;
    let fields = file(place.root.path(), "fields.toml", STRANGE);
    let rows = file(place.root.path(), "rows.csv", ROWS);
    let load = ["load", word(&place.dir), "--source", "../x", "--ts", "t"];
    run(&[&load[..], &["--fields", &fields, &rows]].concat()).ends(0);
    for unsigned in ["decimal", "native"] {
        let to = place.root.path().join(unsigned);
        assert!(
            archive(&place.dir, &to, &["--unsigned", unsigned])?.starts_with("records=4 files=3 ")
        );
        one_whole(&place.dir, &to)?;
    }
    // Hive's keys and the fields stay apart, and the name is the source's again.
    let mut session = Session::open(Version::V2)?;
    let row = session.query(&format!(
        "SELECT source, loom_date, loom_hour, field_loom_date, due, loom_ns_due % 1000, typeof(big), typeof(\"a b\")
         FROM read_parquet('{}/*/*/*/*.parquet', hive_partitioning = true) WHERE field_loom_date = 255",
        place.root.path().join("decimal").display()
    ))?;
    let texts = "../x|2026-01-01|1|255|2026-01-01 00:00:00.123456|789|DECIMAL(20,0)|BIGINT";
    let texts: Vec<_> = texts.split('|').map(|text| Some(text.to_owned())).collect();
    assert_eq!(row, [texts]);
    Ok(())
}

// case Archive: killed at any step
#[test]
fn an_archiver_that_is_killed_at_any_step_loses_nothing_and_repeats_nothing() -> Result<()> {
    if !machine::has("an archiver that is killed", &["strace"])? {
        return Ok(());
    }
    let mut seed = Seed::announced("archiver_killed");
    let place = Place::new()?;
    place.push(1500)?;
    place.archive()?;
    place.push(700)?;
    // Traces the steps of a run.
    let [begun, to, trace] = ["archive", "to", "trace"].map(|name| place.root.path().join(name));
    let traced = |options: &[String]| -> Result<Output> {
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-qq", "-y", "-o"])
            .arg(&trace)
            .args(options);
        let command = archiver(&place.dir, &to, &[])?;
        strace.arg(command.get_program()).args(command.get_args());
        Ok(strace.output()?)
    };
    let begin_again = || -> Result<()> {
        let _may_be_missing = fs::remove_dir_all(&to);
        let copied = Command::new("cp").arg("-r").args([&begun, &to]).status()?;
        ensure!(copied.success());
        Ok(())
    };
    begin_again()?;
    let calls = "trace=openat,write,fsync,rename,mkdir,unlink,unlinkat,rmdir";
    ensure!(
        traced(&["-e".to_owned(), calls.to_owned()])?
            .status
            .success()
    );
    let text = fs::read_to_string(&trace)?;
    let steps: Vec<Point> = points(&text, &to)
        .into_iter()
        .filter(|point| point.file.is_some())
        .collect();
    ensure!(steps.len() > 30, "{} steps: {text}", steps.len());
    let renames = steps.iter().filter(|step| step.call == "rename");
    let mut chosen: Vec<Point> = renames.cloned().collect();
    chosen.extend((0..16).map(|_| Point::draw(&steps, &mut seed)));
    chosen.sort();
    chosen.dedup();
    let mut session = Session::open(Version::V2)?;
    let mut killed = 0;
    for step in &chosen {
        begin_again()?;
        killed += u32::from(traced(&step.kill(&to))?.status.code().is_none());
        // A reader at this moment sees no record twice in the archive, and every record together with the directory.
        let twice = session.value(&format!(
            "SELECT count(*) - count(DISTINCT (source, addr)) FROM '{}/*/*/*/*.parquet'",
            to.display()
        ))?;
        assert_eq!(twice, "0", "{step:?}");
        session.attach_with(&place.dir, &to, "whole")?;
        for source in ["early", "late"] {
            let scan = format!("loom_scan('{}', '{source}')", place.dir.display());
            same_rows(&mut session, &format!("whole.{source}"), &scan)
                .with_context(|| format!("{step:?}"))?;
        }
        archive(&place.dir, &to, &[]).with_context(|| format!("{step:?}"))?;
        complete(&mut session, &place.dir, &to).with_context(|| format!("{step:?}"))?;
    }
    ensure!(killed > 10, "{killed} of {} runs were killed", chosen.len());
    Ok(())
}

// case Archive: retention is faster
#[test]
fn what_retention_removed_first_is_reported_and_noted() -> Result<()> {
    let place = Place::new()?;
    let (mut writer, ids) = place.open()?;
    push(&mut writer, &ids, 4000)?;
    writer.publish()?;
    assert!(place.archive()?.starts_with("records=8000 "));
    let reached = archived(&place.archive, "early")?.position;
    push(&mut writer, &ids, 12_000)?;
    evict_beyond(&mut writer, &place, reached)?;
    // An archive that was attached now would miss rows without an error.
    let mut session = Session::open(Version::V2)?;
    let error = session
        .attach_with(&place.dir, &place.archive, "whole")
        .err();
    let error = error.context("it was attached")?.to_string();
    says(&error, "run ingestd archive, and attach the archive again");
    let said = Ended::of(&mut archiver(&place.dir, &place.archive, &[])?).err;
    let begin = oldest(&place.dir)?.context("nothing is left")?;
    for name in ["early", "late"] {
        let gaps = archived(&place.archive, name)?.gaps;
        let [gap] = &gaps[..] else {
            anyhow::bail!("{gaps:?}")
        };
        assert_eq!(gap["from"].as_u64(), reached, "{gap}");
        assert_eq!(gap["to"], begin, "{gap}");
        assert_eq!(gap["reason"], "retention", "{gap}");
        assert_eq!(
            gap["bytes"].as_u64(),
            reached.map(|from| begin - from),
            "{gap}"
        );
        assert!(gap["to_ts_ns"].as_i64() > Some(0), "{gap}");
    }
    ensure!(said.contains("source 'early', addresses"), "{said}");
    // The remaining records are archived, and those that were archived before still are.
    for source in ["early", "late"] {
        let view = format!(
            "(FROM '{}/source={source}/*/*/*.parquet' WHERE addr >= {begin})",
            place.archive.display()
        );
        let scan = format!("loom_scan('{}', '{source}')", place.dir.display());
        let count = |session: &mut Session, from: &str| {
            session.value(&format!("SELECT count(*) FROM {from}"))
        };
        assert_eq!(count(&mut session, &view)?, count(&mut session, &scan)?);
        let before = format!(
            "(FROM '{}/source={source}/*/*/*.parquet' WHERE addr < {begin})",
            place.archive.display()
        );
        assert_eq!(count(&mut session, &before)?, "4000");
    }
    session.attach_with(&place.dir, &place.archive, "whole")?;
    writer.close()?;
    Ok(())
}

/// The files are the only copy of records that retention has removed since, whatever the manifest says.
// case Archive: what stands for the records
#[test]
fn a_manifest_from_a_backup_costs_no_record_that_the_log_no_longer_has() -> Result<()> {
    let place = Place::new()?;
    let (mut writer, ids) = place.open()?;
    push(&mut writer, &ids, 100)?;
    writer.publish()?;
    place.archive()?;
    let manifest = place.archive.join("_manifest.jsonl");
    let backup = fs::read(&manifest)?;
    push(&mut writer, &ids, 4000)?;
    writer.publish()?;
    assert!(place.archive()?.starts_with("records=8000 "));
    let reached = archived(&place.archive, "early")?.position;
    push(&mut writer, &ids, 12_000)?;
    evict_beyond(&mut writer, &place, reached)?;
    fs::write(&manifest, backup)?;
    let mut session = Session::open(Version::V2)?;
    for is_first in [true, false] {
        let run = Ended::of(&mut archiver(&place.dir, &place.archive, &[])?).ends(0);
        let is_kept = run.err.contains("it is kept in '_left_over'");
        ensure!(is_kept == is_first, "{run:?}");
        for source in ["early", "late"] {
            let kept = format!(
                "SELECT count(DISTINCT addr) FROM '{}/_left_over/source={source}/*/*/*.parquet'",
                place.archive.display()
            );
            assert_eq!(session.value(&kept)?, "4000");
        }
    }
    writer.close()?;
    Ok(())
}

/// Makes retention remove the records that are archived, and more.
fn evict_beyond(writer: &mut Writer, place: &Place, reached: Option<u64>) -> Result<()> {
    let limits = Limits {
        bytes_max: Some(300 << 10),
        ..Limits::default()
    };
    let evicted = wait_until(|| {
        writer.publish()?;
        writer.evict(&limits)?;
        Ok(oldest(&place.dir)? > reached)
    })?;
    ensure!(evicted);
    Ok(())
}

/// The least address that remains.
fn oldest(dir: &Path) -> Result<Option<u64>> {
    let mut segments = fs::read_dir(dir.join("records"))?
        .map(|entry| {
            let name = entry?.file_name();
            let (address, _) = name
                .to_str()
                .and_then(|name| name.split_once('.'))
                .context("a segment's name")?;
            Ok(address.parse()?)
        })
        .collect::<Result<Vec<u64>>>()?;
    segments.sort_unstable();
    Ok(segments.first().copied())
}

#[test]
fn an_archiver_that_is_interrupted_fails_unless_it_goes_on_periodically() -> Result<()> {
    let place = Place::new()?;
    place.push(300_000)?;
    for (nth, (options, code)) in [(&[][..], 1), (&["--every", "1h"][..], 0)]
        .into_iter()
        .enumerate()
    {
        let archive = place.root.path().join(format!("archive-{nth}"));
        let (child, _stdin) = piped(&mut archiver(&place.dir, &archive, options)?);
        // It catches signals before it creates the lock.
        until(|| archive.join("_lock").exists());
        send(&child, Signal::TERM);
        let ended = Ended::once(child).ends(code).says("records=");
        assert_eq!(ended.err.contains("run the command again"), code == 1);
        complete(&mut Session::open(Version::V1)?, &place.dir, &archive).unwrap_err();
        self::archive(&place.dir, &archive, &[])?;
        one_whole(&place.dir, &archive)?;
    }
    Ok(())
}

#[test]
fn records_that_are_too_young_wait_for_a_later_pass() -> Result<()> {
    let place = Place::new()?;
    place.push(100)?;
    assert_eq!(
        archive(&place.dir, &place.archive, &["--keep-hot", "1h"])?,
        "records=0 files=0 bytes=0\n"
    );
    one_whole(&place.dir, &place.archive)?;
    assert!(
        archive(&place.dir, &place.archive, &["--source", "late"])?.starts_with("records=100 ")
    );
    assert!(
        archive(&place.dir, &place.archive, &["--keep-hot", "1ns"])?.starts_with("records=100 ")
    );
    one_whole(&place.dir, &place.archive)
}

// case Archive: read while both are written
#[test]
fn the_archive_and_the_directory_are_one_while_both_are_written() -> Result<()> {
    let place = Place::new()?;
    let demo = ["--seconds", "600", "--rate", "20000"];
    let demo = ["demo", word(&place.dir)].into_iter().chain(demo);
    let demo = Running::start(&mut command::ingestd(demo));
    let records = |session: &mut Session| {
        session.value(&format!(
            "SELECT records FROM loom_sources('{}') WHERE name = 'redis_request'",
            place.dir.display()
        ))
    };
    let mut session = Session::open(Version::V2)?;
    ensure!(wait_until(|| Ok(
        records(&mut session).is_ok_and(|records| records != "0")
    ))?);
    let mut archiving = archiver(&place.dir, &place.archive, &["--every", "50ms"])?;
    let archiving = Running::start(&mut archiving);
    ensure!(wait_until(|| Ok(
        manifest(&place.archive).is_ok_and(|all| all.len() > 2)
    ))?);
    // A second archiver is refused.
    let said = place.refused(&place.dir, &place.archive, &[])?;
    ensure!(said.contains("another process archives into"), "{said}");
    let position = || Ok::<_, anyhow::Error>(archived(&place.archive, "packet")?.position);
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        for _ in 0..4 {
            session.attach_with(&place.dir, &place.archive, "whole")?;
            let at = session.value(&format!(
                "SELECT position FROM loom_snapshot('{}')",
                place.dir.display()
            ))?;
            for source in ["redis_request", "syscall", "packet"] {
                let view = format!("(FROM whole.{source} WHERE addr < {at})");
                let scan = format!(
                    "loom_scan('{}', '{source}', at := {at})",
                    place.dir.display()
                );
                same_rows(&mut session, &view, &scan)?;
            }
            // The next comparison is with a later state of the archive.
            let before = position()?;
            ensure!(wait_until(|| Ok(position()? > before))?, "{before:?}");
        }
    }
    drop(archiving);
    drop(demo);
    // The daemon is gone, perhaps with its staging. The records that remain are archived.
    place.archive()?;
    one_whole(&place.dir, &place.archive)
}
