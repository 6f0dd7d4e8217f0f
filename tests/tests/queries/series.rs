//! `loom_series` and `loom_series_aggregate` agree with a scan of each group, over several directories, windows and threads.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use loom_engine::Timestamp;
use loom_engine::ingest::Writer;
use loom_engine::schema::{FieldDef, FieldType, FieldValue, PayloadEncoder, SourceDef, TimeKind};
use loom_engine::testkit::options;
use loom_tests::command::{says, table};
use loom_tests::duckdb::{Row, Session, Version};
use loom_tests::seed::Seed;

const GROUPS: usize = 3;
const FIELDS: usize = 3;
const ROUNDS: i64 = 6000;
/// 2025-12-30, so that a month ends in the data.
const FIRST_MS: i64 = 1_767_052_800_000;
const STEP_MS: i64 = 60_000;

/// Arguments of `loom_series_aggregate`, and the reasons why they are refused.
const REFUSED: &str = "
bucket := INTERVAL 0 SECOND                      | bucket takes a positive INTERVAL
labels := MAP {'host': 'a(b'}                    | is not a regular expression
labels := MAP {'host': NULL}                     | labels holds a NULL
labels := {'host': ['host-1', 'host-2']}         | labels takes one text for each name, not a list
labels := MAP {'host': ['host-1', 'host-2']}     | labels takes one text for each name, not a list
labels := {'host': {'name': 'host-1'}}           | not STRUCT
bucket := INTERVAL '106752 days'                 | bucket takes at most 106751 days
by := ['host', NULL]                             | by holds a NULL
by := ['host', '']                               | by contains an empty text
by := 'host'                                     | by takes a list of labels, such as ['job'] or [], not VARCHAR
by := [1]                                        | by takes VARCHAR[], not an integer
";

/// A number whose sums are exact, or a special one.
fn value(seed: &mut Seed) -> FieldValue<'static> {
    match seed.between(0, 400) {
        0 => FieldValue::F64(f64::NAN),
        1 => FieldValue::F64(f64::INFINITY),
        2 => FieldValue::F64(-0.0),
        3..60 => FieldValue::Null,
        _ => FieldValue::F64(seed.between(-1000, 1000) as f64),
    }
}

/// Writes groups into one directory, with two writers one after the other.
fn record(dir: &Path, seed: &mut Seed) -> Result<()> {
    for half in 0..2 {
        let mut options = options(256 << 10, 1 << 20);
        options.log.staging = dir.parent().map(Path::to_path_buf);
        let mut writer = Writer::open(dir, options)?;
        let mut groups = Vec::new();
        for group in 0..GROUPS {
            let mut def = SourceDef::new(format!("g{group}"));
            def.time = TimeKind::Own;
            def.fields = (0..FIELDS).map(|field| series(group, field)).collect();
            let encoder = PayloadEncoder::new(def.time, &def.fields)?;
            groups.push((writer.define_source(&def)?, encoder));
        }
        let mut payload = Vec::new();
        for round in half * ROUNDS / 2..(half + 1) * ROUNDS / 2 {
            for (source, encoder) in &mut groups {
                // Times go back now and then, and repeat.
                let late = seed.between(0, 20) / 18 * seed.between(0, 3);
                let ms = FIRST_MS + (round - late) * STEP_MS;
                let values: Vec<FieldValue> = (0..FIELDS).map(|_| value(seed)).collect();
                payload.clear();
                encoder.encode(Some(Timestamp(ms * 1_000_000)), &values, &mut payload)?;
                writer.push(*source, &payload)?;
            }
            writer.tick()?;
        }
        writer.close()?;
    }
    Ok(())
}

fn series(group: usize, field: usize) -> FieldDef {
    let mut def = FieldDef::nullable(format!("f{field}"), FieldType::F64);
    let labels = [
        ("__name__", format!("m{field}")),
        ("host", format!("host-{group}")),
        ("a label with a long name", "x".repeat(10 * group)),
        // The label is empty in one group, or missing.
        ("zone", if group == 1 { "" } else { "z" }.to_owned()),
    ];
    let is_kept = |name: &str, value: &str| !value.is_empty() || name == "zone" && field < 2;
    let labels = labels
        .into_iter()
        .filter(|(name, value)| is_kept(name, value));
    def.series = labels
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
    def
}

/// The samples as scans return them, with the condition of a `WHERE`.
fn scanned(dirs: &[PathBuf], window: &str) -> String {
    let mut parts: Vec<String> = Vec::new();
    for dir in dirs {
        for group in 0..GROUPS {
            for field in 0..FIELDS {
                let labels = series(group, field).series;
                let entries: Vec<String> = labels
                    .iter()
                    .map(|(name, value)| format!("'{name}': '{value}'"))
                    .collect();
                let (dir, nth) = (dir.display(), parts.len());
                parts.push(format!(
                    "SELECT ts, ts_ns, {nth} AS nth, addr, f{field} AS value, MAP {{{}}} AS labels, '{dir}' AS dir \
                     FROM loom_scan('{dir}', 'g{group}'{window}) WHERE f{field} IS NOT NULL",
                    entries.join(", ")
                ));
            }
        }
    }
    parts.join(" UNION ALL ")
}

fn same(session: &mut Session, one: &str, other: &str) -> Result<usize> {
    let ordered = |sql: &str| format!("SELECT COLUMNS(*)::VARCHAR FROM ({sql}) ORDER BY ALL");
    let (one, other): (Vec<Row>, Vec<Row>) = (
        session.query(&ordered(one))?,
        session.query(&ordered(other))?,
    );
    if let Some((one, other)) = one.iter().zip(&other).find(|(one, other)| one != other) {
        anyhow::bail!("{one:?} is {other:?} in a scan");
    }
    ensure!(
        one.len() == other.len(),
        "{} rows, not {}",
        one.len(),
        other.len()
    );
    Ok(one.len())
}

/// Groups by some labels agree with a `GROUP BY` over all samples.
fn same_groups(
    session: &mut Session,
    all: &str,
    window: &str,
    bucket: &str,
    seed: &mut Seed,
) -> Result<()> {
    let names = "__name__, host, zone, a label with a long name, missing, host".split(", ");
    let some = names.filter(|_| seed.between(0, 3) == 0);
    let by: Vec<String> = some.map(|name| format!("'{name}'")).collect();
    let by = by.join(", ");
    let (shown, asked, key) = match bucket {
        "" => ("", String::new(), "NULL".to_owned()),
        bucket => (
            "bucket, ",
            format!(", bucket := INTERVAL {bucket}"),
            format!("time_bucket(INTERVAL {bucket}, ts AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'"),
        ),
    };
    let found = format!(
        "SELECT {shown}labels, count, sum, min, max, avg, last FROM loom_series_aggregate({all}, NULL, by := [{by}]{asked}{window})"
    );
    let wanted = format!(
        "SELECT {shown}map_from_entries(kept) AS labels, count(*), sum(value), min(value) + 0.0, max(value) + 0.0, avg(value), \
         list(value ORDER BY ts_ns, nth, addr)[-1] FROM (SELECT *, {key} AS bucket, list_filter(map_entries(labels), \
         lambda entry: entry.key IN ({by}{none}'') AND entry.value != '') AS kept FROM scanned) GROUP BY bucket, kept",
        none = if by.is_empty() { "" } else { ", " },
    );
    let rows = same(session, &found, &wanted);
    ensure!(rows.with_context(|| found)? > 0);
    Ok(())
}

#[test]
fn series_and_their_statistics_are_what_scans_say() -> Result<()> {
    let mut seed = Seed::announced("series");
    let place = tempfile::tempdir()?;
    let dirs: Vec<PathBuf> = ["a.loom", "b.loom"]
        .map(|name| place.path().join(name))
        .into();
    for dir in &dirs {
        record(dir, &mut seed)?;
    }
    let all = format!("['{}', '{}']", dirs[0].display(), dirs[1].display());
    let from_ms = FIRST_MS + seed.between(0, ROUNDS) * STEP_MS / 2;
    let rounds = seed.between(1, ROUNDS);
    let window = format!(
        ", t_from := make_timestamptz({from_ms}000), t_to := make_timestamptz({}000)",
        from_ms + rounds * STEP_MS
    );
    for version in Version::ALL {
        let mut session = Session::open(version)?;
        for (threads, window) in [(1, ""), (4, ""), (4, window.as_str())] {
            session.query(&format!("SET threads = {threads}"))?;
            session.query(&format!(
                "CREATE OR REPLACE TABLE scanned AS {}",
                scanned(&dirs, window)
            ))?;
            let found = format!(
                "SELECT ts, labels, value, ts_ns, dir FROM loom_series({all}, NULL{window})"
            );
            let rows = same(
                &mut session,
                &found,
                "SELECT ts, labels, value, ts_ns, dir FROM scanned",
            )?;
            ensure!(rows > 0, "no samples in{window}");
            let one = format!(
                "SELECT value FROM loom_series({all}, 'm1', labels := MAP {{'host': 'host-[12]', 'a label with a long name': 'x{{10}}'}}{window})"
            );
            let wanted = "SELECT value FROM scanned WHERE labels['__name__'] = 'm1' AND labels['host'] = 'host-1'";
            same(&mut session, &one, wanted)?;
            let shown = "labels, count(*), sum(value), min(value) + 0.0, max(value) + 0.0, avg(value), list(value ORDER BY ts_ns, addr)[-1], dir";
            let columns = "labels, count, sum, min, max, avg, last, dir";
            for bucket in ["5 MINUTE", "1 HOUR", "1 DAY", "1 MONTH"] {
                let found = format!(
                    "SELECT bucket, {columns} FROM loom_series_aggregate({all}, NULL, bucket := INTERVAL {bucket}{window})"
                );
                let wanted = format!(
                    "SELECT time_bucket(INTERVAL {bucket}, ts AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' AS bucket, {shown} FROM scanned GROUP BY bucket, labels, dir"
                );
                same(&mut session, &found, &wanted)?;
            }
            let found = format!("SELECT {columns} FROM loom_series_aggregate({all}, NULL{window})");
            let wanted = format!("SELECT {shown} FROM scanned GROUP BY labels, dir");
            let series = same(&mut session, &found, &wanted)?;
            // In a short window a series may have no sample.
            let may_miss = !window.is_empty() && rounds < 20;
            ensure!(series == 2 * GROUPS * FIELDS || may_miss, "{series} series");
            for bucket in ["", "7 MINUTE", "6 HOUR", "1 MONTH"] {
                same_groups(&mut session, &all, window, bucket, &mut seed)?;
            }
            let one = format!(
                "SELECT labels, count FROM loom_series_aggregate({all}, NULL, by := []{window})"
            );
            let wanted = "SELECT MAP([]::VARCHAR[], []::VARCHAR[]), count(*) FROM scanned";
            ensure!(same(&mut session, &one, wanted)? == 1);
        }
        let latest = format!("FROM loom_series_aggregate({all}, 'm0', last := INTERVAL 10 MINUTE)");
        let count = session.value(&format!("SELECT sum(count) {latest}"))?;
        let wanted =
            format!("SELECT count(*) FROM loom_series({all}, 'm0', last := INTERVAL 10 MINUTE)");
        ensure!(
            count == session.value(&wanted)?,
            "{count} samples are the latest"
        );
        for [arguments, message] in table::<2>(REFUSED) {
            let asked = format!("FROM loom_series_aggregate({all}, NULL, {arguments})");
            let refused = session.query(&asked).err().context(arguments)?;
            says(&refused.to_string(), message);
        }
        for by in ["", ", by := []"] {
            let none = format!("SELECT count(*) FROM loom_series_aggregate({all}, 'missing'{by})");
            ensure!(session.value(&none)? == "0");
        }
        same(
            &mut session,
            &format!("SELECT * FROM loom_series_aggregate({all}, NULL, by := NULL)"),
            &format!("SELECT * FROM loom_series_aggregate({all}, NULL)"),
        )?;
        // Labels may be a STRUCT, and their values may have any type.
        let of = |labels: &str| {
            format!("SELECT value FROM loom_series({all}, 'm1', labels := {labels})")
        };
        let found = same(
            &mut session,
            &of("{'host': 'host-1', 'zone': ''}"),
            &of("MAP {'host': 'host-1'}"),
        )?;
        ensure!(found > 0);
        // A list of alternatives means the same as the regular expression.
        for (values, pattern) in [
            ("host-1|host-2", "host-[12]"),
            ("host-2|host-1|host-2|missing", "host-(1|2)"),
            ("|host-1", "(host-1)?"),
        ] {
            let found = same(
                &mut session,
                &of(&format!("{{'host': '{values}'}}")),
                &of(&format!("{{'host': '{pattern}'}}")),
            )?;
            ensure!(found > 0);
        }
        for none in ["{'host': 1.5}", "MAP {'host': 1.5}"] {
            ensure!(same(&mut session, &of(none), &of("MAP {'host': '1.5'}"))? == 0);
        }
    }
    Ok(())
}
