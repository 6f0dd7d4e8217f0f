//! The answers of SQL functions while a directory changes under them: indexes are added and closed, layouts grow, records are lost, other
//! directories appear. The test writes the directories itself, so that each step can be checked before the next.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use loom_engine::ingest::{Limits, Writer};
use loom_engine::schema::{
    FieldDef, FieldType, FieldValue, IndexDef, LossEncoder, LossReason, LossRecord, PayloadEncoder,
    SourceDef, TimeKind, losses_source, parse_sources,
};
use loom_engine::testkit::options;
use loom_engine::{Address, SourceId, Timestamp};
use loom_tests::command::says;
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{Row, Session, Version};
use tempfile::TempDir;

const SOURCES: &str = "
[[source]]
name = 'r'
field = [{ name = 'n', type = 'u64' }, { name = 'op', type = 'u8' }]

[[source]]
name = 'filler'
";

/// A directory of small chunks, and its writer.
struct World {
    writer: Writer,
    r: SourceId,
    filler: SourceId,
    pushed: u64,
}

impl World {
    fn new(root: &TempDir, name: &str) -> Result<World> {
        let mut options = options(256 << 10, 1 << 20);
        options.log.staging = Some(root.path().to_path_buf());
        options.accept_clock = true;
        let mut writer = Writer::open(&root.path().join(name), options)?;
        let &[r, filler] = writer.define_sources(&parse_sources(SOURCES)?)?.as_slice() else {
            bail!("two sources");
        };
        Ok(World {
            writer,
            r,
            filler,
            pushed: 0,
        })
    }

    /// Pushes and publishes records of `r`. `n` takes values that no two records share; `op` is 0, 1 or 2.
    fn push(&mut self, records: u64, more: &[u8]) -> Result<()> {
        for _ in 0..records {
            let mut payload = (self.pushed * 7919 % 10_007).to_le_bytes().to_vec();
            payload.push((self.pushed % 3) as u8);
            payload.extend_from_slice(more);
            self.writer.push(self.r, &payload)?;
            self.pushed += 1;
        }
        Ok(self.writer.publish()?)
    }

    /// Adds chunks without a record of `r`.
    fn fill(&mut self, chunks: usize) -> Result<()> {
        for _ in 0..chunks {
            self.writer.push(self.filler, &[7; 4000])?;
        }
        Ok(self.writer.publish()?)
    }
}

fn index(toml: &str) -> Result<IndexDef> {
    Ok(toml::from_str(toml)?)
}

fn place(root: &TempDir, name: &str) -> String {
    root.path().join(name).display().to_string()
}

fn rows(session: &mut Session, sql: &str) -> Result<Vec<Row>> {
    session.query(sql).with_context(|| sql.to_owned())
}

/// `loom_aggregate` of the index `n`, its histogram, and DuckDB's own aggregates over the rows that `filter` selects all agree.
fn expect_agreement(session: &mut Session, dir: &str, filter: &str) -> Result<()> {
    let ours = rows(
        session,
        &format!(
            "SELECT count, sum, min, max, p50, p99 FROM loom_aggregate('{dir}', 'r', 'n', quantiles := [0.5, 0.99])"
        ),
    )?;
    let theirs = rows(
        session,
        &format!(
            "SELECT count(n), sum(n), min(n), max(n), quantile_disc(n, 0.5), quantile_disc(n, 0.99)
             FROM loom_scan('{dir}', 'r') WHERE {filter}"
        ),
    )?;
    ensure!(ours == theirs, "{filter}: {ours:?} against {theirs:?}");
    let wrong = format!(
        "SELECT count(*) FROM loom_histogram('{dir}', 'r', 'n') h WHERE h.count <> (SELECT count(*) FROM loom_scan('{dir}', 'r')
         WHERE {filter} AND (h.lower IS NULL OR n >= h.lower) AND (h.upper IS NULL OR n < h.upper))"
    );
    ensure!(session.value(&wrong)? == "0", "{filter}: a bin is wrong");
    let total = format!(
        "SELECT sum(count) = (SELECT count(*) FROM loom_scan('{dir}', 'r') WHERE {filter}) FROM loom_histogram('{dir}', 'r', 'n')"
    );
    ensure!(
        session.value(&total)? == "true",
        "{filter}: a bin is missing"
    );
    Ok(())
}

#[test]
fn an_index_answers_for_all_records_open_closed_filtered_or_defined_again() -> Result<()> {
    let root = tempfile::tempdir()?;
    let mut world = World::new(&root, "loom")?;
    let dir = place(&root, "loom");
    let mut sessions = Session::all()?;
    let mut check = |filter| {
        sessions
            .iter_mut()
            .try_for_each(|session| expect_agreement(session, &dir, filter))
    };
    world.push(1500, &[])?;
    let id = world
        .writer
        .define_index(world.r, &index("name = 'n'\nvalue = 'n'")?)?;
    check("true")?;
    world.push(1500, &[])?;
    check("true")?;
    world.writer.close_index(id)?;
    world.push(1500, &[])?;
    check("true")?;
    let again =
        "name = 'n'\nvalue = 'n'\nwhere = 'op = 1'\nbins = { from = 100, step = 500, count = 10 }";
    world.writer.define_index(world.r, &index(again)?)?;
    check("op = 1")?;
    world.push(1500, &[])?;
    check("op = 1")
}

#[test]
fn the_latest_records_of_a_rare_source_cost_its_chunks_and_show_fields_as_they_were() -> Result<()>
{
    let root = tempfile::tempdir()?;
    let mut world = World::new(&root, "loom")?;
    let dir = place(&root, "loom");
    world.push(3, &[])?;
    world.fill(200)?;
    let mut def: SourceDef = parse_sources(SOURCES)?.swap_remove(0);
    def.fields
        .push(toml::from_str("name = 'more'\ntype = 'u32'")?);
    world.writer.define_source(&def)?;
    world.push(2, &77u32.to_le_bytes())?;
    world.fill(200)?;
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let latest = format!("SELECT n, more FROM loom_tail('{dir}', 'r', 4)");
        let expected: Vec<Row> = [(4, true), (3, true), (2, false), (1, false)]
            .map(|(at, grown): (u64, bool)| {
                let more = grown.then(|| "77".to_owned());
                vec![Some((at * 7919 % 10_007).to_string()), more]
            })
            .into();
        assert_eq!(rows(&mut session, &latest)?, expected);
        let cheap = "SELECT chunks_read <= 5 AND chunks_total >= 400 FROM loom_scan_stats() ORDER BY scan DESC LIMIT 1";
        assert_eq!(session.value(cheap)?, "true", "{}", version.name());
        world.writer.close_source(world.r)?;
        assert_eq!(rows(&mut session, &latest)?, expected);
        world.writer.define_source(&def)?;
    }
    Ok(())
}

#[test]
fn a_prepared_call_sees_records_and_directories_that_came_since() -> Result<()> {
    for version in Version::ALL {
        let root = tempfile::tempdir()?;
        let mut first = World::new(&root, "a.loom")?;
        first.push(1000, &[])?;
        let mut session = Session::open(version)?;
        let glob = place(&root, "*.loom");
        for (name, from) in [
            ("tail", format!("loom_tail('{glob}', 'r', 3)")),
            ("scan", format!("loom_scan('{glob}', 'r')")),
            ("chunks", format!("loom_chunks('{glob}', source := 'r')")),
        ] {
            let counted = if name == "chunks" {
                "sum(records)"
            } else {
                "count(*)"
            };
            session.query(&format!(
                "PREPARE {name} AS SELECT ({counted})::VARCHAR AS a FROM {from}"
            ))?;
        }
        let asked = "PREPARE latest AS SELECT n::VARCHAR AS n FROM loom_tail";
        session.query(&format!("{asked}('{glob}', 'r', 2)"))?;
        let mut execute = |name: &str| rows(&mut session, &format!("EXECUTE {name}"));
        let one = |value: u64| vec![vec![Some(value.to_string())]];
        let n = |at: u64| vec![Some((at * 7919 % 10_007).to_string())];
        assert_eq!(execute("tail")?, one(3));
        assert_eq!(execute("scan")?, one(1000));
        assert_eq!(execute("latest")?, [n(999), n(998)]);
        first.push(1, &[])?;
        assert_eq!(execute("scan")?, one(1001));
        assert_eq!(execute("latest")?, [n(1000), n(999)]);
        let mut second = World::new(&root, "b.loom")?;
        second.push(500, &[])?;
        first.push(1, &[])?;
        assert_eq!(execute("scan")?, one(1502));
        assert_eq!(execute("chunks")?, one(1502));
        // The latest rows go by arrival across both directories, according to each writer's own clock.
        let latest = execute("latest")?;
        let mut first_column = |sql: String| rows(&mut session, &sql);
        let tail = format!("loom_tail('{glob}', 'r', 2)");
        assert_eq!(
            latest,
            first_column(format!("SELECT n::VARCHAR FROM {tail}"))?
        );
        assert_eq!(
            first_column(format!("SELECT ts_ns::VARCHAR FROM {tail}"))?,
            first_column(format!(
                "SELECT ts_ns::VARCHAR FROM loom_scan('{glob}', 'r') ORDER BY ts_ns DESC LIMIT 2"
            ))?
        );
    }
    Ok(())
}

// case Concurrency: restart under an open reader
#[test]
fn a_directory_that_is_created_again_at_the_same_path_is_read_as_what_it_is() -> Result<()> {
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let root = tempfile::tempdir()?;
        let dir = place(&root, "loom");
        let asked = format!("SELECT count(*) FROM loom_scan('{dir}', 'r')");
        for records in 100..140 {
            let mut world = World::new(&root, "loom")?;
            if records == 100 {
                session.query(&format!("PREPARE again AS {asked}"))?;
            }
            world.push(records, &[])?;
            let expected = vec![vec![Some(records.to_string())]];
            assert_eq!(rows(&mut session, &asked)?, expected, "live");
            world.writer.close()?;
            assert_eq!(rows(&mut session, &asked)?, expected, "stopped");
            assert_eq!(rows(&mut session, "EXECUTE again")?, expected, "prepared");
            std::fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

#[test]
fn a_prepared_call_goes_on_when_a_label_is_added_and_shows_it() -> Result<()> {
    for version in Version::ALL {
        let root = tempfile::tempdir()?;
        let dir = place(&root, "loom");
        let mut world = World::new(&root, "loom")?;
        let mut def: SourceDef = parse_sources(SOURCES)?.swap_remove(0);
        let mut label = |world: &mut World, number: i128, name: &str| -> Result<()> {
            let op = def.fields.last_mut().context("no field")?;
            op.labels.insert(number, name.to_owned());
            world.writer.define_source(&def)?;
            Ok(())
        };
        label(&mut world, 0, "GET")?;
        let index = index("name = 'n'\nvalue = 'n'")?;
        world.writer.define_index(world.r, &index)?;
        world.push(3, &[])?;
        let mut session = Session::open(version)?;
        for (name, columns, function) in [
            ("scan", "op::VARCHAR", "loom_scan('{dir}', 'r')"),
            ("tail", "op::VARCHAR", "loom_tail('{dir}', 'r', 3)"),
            (
                "aggregate",
                "count::VARCHAR",
                "loom_aggregate('{dir}', 'r', 'n')",
            ),
        ] {
            let function = function.replace("{dir}", &dir);
            session.query(&format!(
                "PREPARE {name} AS SELECT {columns} AS c FROM {function} ORDER BY c"
            ))?;
        }
        let column = |values: &[&str]| -> Vec<Row> {
            let row = |value: &&str| vec![Some((*value).to_owned())];
            values.iter().map(row).collect()
        };
        let mut execute = |name: &str| rows(&mut session, &format!("EXECUTE {name}"));
        assert_eq!(execute("scan")?, column(&["1", "2", "GET"]));
        label(&mut world, 1, "SET")?;
        for name in ["scan", "tail"] {
            assert_eq!(execute(name)?, column(&["2", "GET", "SET"]), "{name}");
        }
        assert_eq!(execute("aggregate")?, column(&["3"]));
    }
    Ok(())
}

/// Records a loss of three records of `source` in the ledger.
fn lose(world: &mut World, source: &str, from: Timestamp, to: Timestamp) -> Result<()> {
    let ledger = world.writer.define_builtin_source(&losses_source())?;
    let mut payload = Vec::new();
    let loss = LossRecord {
        from,
        to,
        source: Some(source),
        reason: LossReason::Overload,
        records: Some(3),
        bytes: Some(27),
        detail: None,
    };
    LossEncoder::new()?.encode(&loss, &mut payload)?;
    world.writer.push(ledger, &payload)?;
    Ok(world.writer.publish()?)
}

fn said(session: &mut Session, sql: &str) -> String {
    match session.query(sql) {
        Ok(rows) => format!("no error, but {rows:?}"),
        Err(error) => error.to_string(),
    }
}

// G9
#[test]
fn losses_are_listed_and_make_complete_queries_fail_in_their_window_alone() -> Result<()> {
    let root = tempfile::tempdir()?;
    let mut world = World::new(&root, "loom")?;
    let dir = place(&root, "loom");
    world
        .writer
        .define_index(world.r, &index("name = 'n'\nvalue = 'n'")?)?;
    world.push(100, &[])?;
    let now = world.writer.now();
    let hour = 3_600_000_000_000;
    let (from, to) = (Timestamp(now.0 - hour), Timestamp(now.0 - hour + 1_000_000));
    lose(&mut world, "r", from, to)?;
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let listed = format!(
            "SELECT dir = '{dir}', from_ts = make_timestamp({} // 1000)::TIMESTAMPTZ, to_ts = make_timestamp({} // 1000)::TIMESTAMPTZ,
             source, stage, reason, records, bytes FROM loom_losses('{dir}')",
            from.0, to.0
        );
        let expected = ["true", "true", "true", "r", "log", "overload", "3", "27"];
        let expected: Vec<Row> = vec![expected.map(|text| Some(text.to_owned())).into()];
        assert_eq!(rows(&mut session, &listed)?, expected);
        let count = |call: &str| {
            let call = call.replace('%', &format!("'{dir}'"));
            format!("SELECT count(*) FROM loom_{call}")
        };
        for call in [
            "scan(%, 'r', complete := true)",
            "scan(%, 'r', around := [now() - INTERVAL 1 HOUR], width := INTERVAL 30 MINUTE, complete := true)",
            "aggregate(%, 'r', 'n', complete := true)",
            "histogram(%, 'r', 'n', bucket := INTERVAL 1 SECOND, complete := true)",
            "heat(%, 'r', 'n', complete := true)",
            "rate(%, 'r', complete := true)",
            "top(%, 'r', 'n', 3, complete := true)",
            "scan([%], 'r', t_to := now(), complete := true)",
        ] {
            let told = said(&mut session, &count(call));
            for words in ["'r'", "3 records", "overload", "loom_losses", &dir] {
                says(&told, words);
            }
        }
        for call in [
            "scan(%, 'r')",
            "scan(%, 'r', complete := false)",
            "scan(%, 'r', t_from := now() - INTERVAL 30 MINUTE, complete := true)",
            "scan(%, 'r', last := INTERVAL 30 MINUTE, complete := true)",
        ] {
            assert_eq!(session.value(&count(call))?, "100", "{call}");
        }
        // A loss of one source does not concern another.
        let filler = format!("SELECT count(*) FROM loom_scan('{dir}', 'filler', complete := true)");
        assert_eq!(session.value(&filler)?, "0");
    }
    Ok(())
}

#[test]
fn a_record_of_the_future_does_not_hide_the_last_minutes() -> Result<()> {
    let root = tempfile::tempdir()?;
    let (dir, parquet) = (place(&root, "loom"), place(&root, "r.parquet"));
    // All are of the last minute, except the first, which is 9 hours ahead.
    let rows_of = "SELECT i AS n, (now() - INTERVAL 1 MINUTE + i * INTERVAL 100 MILLISECOND
        + CASE WHEN i = 0 THEN INTERVAL 9 HOUR ELSE INTERVAL 0 SECOND END)::TIMESTAMP AS t FROM range(500) AS numbers(i)";
    Session::plain(Version::V2)?.query(&format!("COPY ({rows_of}) TO '{parquet}'"))?;
    let options = ["--source", "r", "--index", "n", "--ts", "t"];
    let arguments = ["load", &dir].into_iter().chain(options);
    ingestd(arguments.chain([parquet.as_str()]))?;
    for version in Version::ALL {
        let mut session = Session::open(version)?.with_macros()?;
        for call in [
            "SELECT count(*) FROM loom_scan('%', 'r', LAST)",
            "SELECT sum(count) FROM loom_aggregate('%', 'r', 'n', bucket := INTERVAL 1 SECOND, LAST)",
            "SELECT sum(count) FROM loom_histogram('%', 'r', 'n', LAST)",
            "SELECT sum(count) FROM loom_heat('%', 'r', 'n', LAST)",
            "SELECT sum(count) FROM loom_rate('%', 'r', LAST)",
            "SELECT count(*) FROM loom_top('%', 'r', 'n', 1000, LAST)",
            "SELECT sum(count) FROM loom_heatmap('%', 'r', 'n', INTERVAL 1 MINUTE, LAST)",
        ] {
            let call = call.replace('%', &dir);
            let call = call.replace("LAST", "last := INTERVAL 1 HOUR");
            assert_eq!(session.value(&call)?, "499", "{call}");
        }
        let all = format!("SELECT count(*) FROM loom_scan('{dir}', 'r')");
        assert_eq!(session.value(&all)?, "500");
    }
    Ok(())
}

#[test]
fn a_directory_that_is_gone_is_told_by_its_path() -> Result<()> {
    let gone = "/nonexistent/telemetry.loom";
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let calls = "tail(%, 'r', 1); histogram(%, 'r', 'n'); heat(%, 'r', 'n'); rate(%, 'r'); top(%, 'r', 'n', 1); \
                     estimate(%, 'r'); chunks(%); samples(%, 'up'); series(%, NULL); series_aggregate(%, 'up'); \
                     labels(%, NULL); losses([%])";
        for call in calls.split("; ") {
            let call = call.replace('%', &format!("'{gone}'"));
            let told = said(&mut session, &format!("FROM loom_{call}"));
            says(&told, gone);
            says(&told, "No such file");
        }
    }
    Ok(())
}

/// A directory with the values 0, 1, … of a series `m`, a millisecond apart. Retention has removed the oldest.
fn series(dir: &Path, records: i64, begin: Address) -> Result<()> {
    let mut options = options(256 << 10, 1 << 20);
    options.log.staging = dir.parent().map(Path::to_path_buf);
    let mut writer = Writer::open(dir, options)?;
    let mut def = SourceDef::new("metrics/j/i");
    def.time = TimeKind::Own;
    let mut field = FieldDef::nullable("m", FieldType::F64);
    field.series = [("__name__".to_owned(), "m".to_owned())].into();
    def.fields = vec![field];
    let mut encoder = PayloadEncoder::new(def.time, &def.fields)?;
    let source = writer.define_source(&def)?;
    let mut payload = Vec::new();
    for n in 0..records {
        payload.clear();
        let time = Timestamp((1_767_225_600_000 + n) * 1_000_000);
        encoder.encode(Some(time), &[FieldValue::F64(n as f64)], &mut payload)?;
        writer.push(source, &payload)?;
    }
    writer.sync_durable()?;
    let limits = Limits {
        bytes_max: Some(0),
        kept_from: Some(begin),
        ..Limits::default()
    };
    writer.evict(&limits)?;
    Ok(writer.close()?)
}

#[test]
fn samples_keep_their_order_also_behind_what_retention_took() -> Result<()> {
    let place = tempfile::tempdir()?;
    let [old, new] = ["old", "new"].map(|name| place.path().join(format!("{name}.loom")));
    series(&old, 300_000, Address(8 << 20))?;
    series(&new, 100_000, Address::ZERO)?;
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        let samples = format!(
            "CREATE TABLE t AS SELECT series, ts_ns, value FROM loom_samples(['{}', '{}'], 'm')",
            old.display(),
            new.display()
        );
        session.query(&samples)?;
        let counts = session.numbers("SELECT count(*) FROM t GROUP BY series ORDER BY series")?;
        let is_right = (1..100_000).contains(&counts[0]) && counts[1..] == [100_000];
        ensure!(is_right, "{counts:?}");
        let back = "SELECT count(*) FROM (SELECT (series, ts_ns) < lag((series, ts_ns)) OVER (ORDER BY rowid) AS back FROM t) WHERE back";
        let back = session.value(back)?;
        ensure!(back == "0", "{version:?}: {back} are out of order");
    }
    Ok(())
}
