//! The rows of `loom_why` about the other sources: their rates and quantiles in the window and before it.

use anyhow::{Result, ensure};
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{Session, Version};

/// Half of the calls match the filter of the only index of numbers, as those of `record syscalls` do.
const CALL: &str = "
[[source]]
name = 'call'
[[source.field]]
name = 'latency_ns'
type = 'u64'
[[source.field]]
name = 'number'
type = 'u32'
[source.field.labels]
7 = 'wait'
[[source.index]]
name = 'number'
value = 'number'
[[source.index]]
name = 'latency'
value = 'latency_ns'
where = 'number <> 7'
";

// case SQL: loom_why
#[test]
fn other_sources_are_compared_with_the_part_of_the_time_before_that_was_recorded() -> Result<()> {
    let place = tempfile::tempdir()?;
    let path = |name: &str| place.path().join(name).display().to_string();
    let dir = path("d.loom");
    let mut session = Session::open(Version::V2)?;
    // Ten calls and one request a second, for 100 s.
    session.query(&format!(
        "COPY (SELECT TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_milliseconds(i * 100) AS t, i AS latency_ns, i % 2 * 7 AS number
         FROM range(1000) AS made(i)) TO '{}' (FORMAT parquet)",
        path("calls.parquet")
    ))?;
    std::fs::write(path("call.toml"), CALL)?;
    ingestd([
        "load",
        &dir,
        "--source",
        "call",
        "--ts",
        "t",
        "--fields",
        &path("call.toml"),
        &path("calls.parquet"),
    ])?;
    session.query(&format!(
        "COPY (SELECT TIMESTAMPTZ '2026-01-01 00:00:00+00' + to_seconds(i) AS t, i AS id FROM range(100) AS made(i)) TO '{dir}'
         (FORMAT loom, SOURCE 'request', TS 't')"
    ))?;
    for mut session in Session::all()? {
        let mut about = |from: &str, to: &str| {
            session.cells(&format!(
                "SELECT concat_ws(' ', field, selected, coalesce(other::VARCHAR, 'unknown'), rate, coalesce(rate_before::VARCHAR, 'unknown'),
                    p99, coalesce(p99_before::VARCHAR, 'unknown'), score)
                 FROM loom_why('{dir}', 'request', NULL, TIMESTAMPTZ '2026-01-01 {from}+00', TIMESTAMPTZ '2026-01-01 {to}+00', NULL, NULL)
                 WHERE kind = 'source' AND source = 'call'"
            ))
        };
        let whole = about("00:01:00", "00:01:40")?;
        ensure!(
            whole == ["latency 400 400 10.0 10.0 994.0 594.0 0.0"],
            "{whole:?}"
        );
        // 30 s of the 70 before are there.
        let part = about("00:00:30", "00:01:40")?;
        ensure!(
            part == ["latency 700 300 10.0 10.0 992.0 296.0 0.0"],
            "{part:?}"
        );
        let nothing = about("00:00:00", "00:00:50")?;
        ensure!(
            nothing == ["latency 500 unknown 10.0 unknown 494.0 unknown 0.0"],
            "{nothing:?}"
        );
    }
    Ok(())
}
