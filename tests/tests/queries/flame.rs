//! Flame graphs: the folded stacks of a profile, in both DuckDB versions.

use std::path::Path;

use anyhow::Result;
use loom_tests::command::declared;
use loom_tests::daemon::ingestd;
use loom_tests::duckdb::{Session, Version};

/// Loads a source with these fields. A row begins with its minute and second.
pub(super) fn load(dir: &Path, source: &str, fields: &str, rows: &str) -> Result<()> {
    let csv = dir.with_extension("csv");
    let names = fields
        .split(", ")
        .filter_map(|field| field.split(' ').next());
    let header = names.collect::<Vec<_>>().join(",");
    let rows = rows.lines().filter_map(|row| {
        let (time, rest) = row.trim().split_once(',')?;
        Some(format!("{rest},2026-01-01T00:0{time}Z\n"))
    });
    std::fs::write(&csv, format!("{header},t\n{}", rows.collect::<String>()))?;
    let fields = declared(&csv, source, fields);
    let options = ["--source", source, "--ts", "t", "--fields", &fields];
    let arguments = ["load".as_ref(), dir.as_os_str()]
        .into_iter()
        .chain(options.map(AsRef::as_ref));
    ingestd(arguments.chain([csv.as_os_str()]))?;
    Ok(())
}

#[test]
fn folded_stacks_count_each_sample_of_the_window_once() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("p.loom");
    // The first stack is stored twice, and the ninth was removed.
    load(
        &dir,
        "stack",
        "stack u64, program utf8?, kernel utf8?",
        "0:00.000,1,main;work,
         0:00.000,2,main;work,entry;read
         0:00.000,3,,kthread;run
         1:00.000,1,main;work,",
    )?;
    load(
        &dir,
        "profile",
        "stack u64, off_ns u64?, comm utf8",
        "0:00.000,1,,server
         0:59.999,1,,server
         0:59.999,2,,server
         1:00.500,1,,a;b
         1:00.600,2,2500,server
         1:00.700,2,3499,server
         1:00.800,3,1000,kworker
         1:00.900,9,,server",
    )?;
    for version in Version::ALL {
        let mut session = Session::open(version)?.with_macros()?;
        let mut flame = |options: &str| {
            let call = format!("loom_flame('{}'{options})", dir.display());
            session.cells(&format!(
                "SELECT stack || ' ' || count FROM {call} ORDER BY 1"
            ))
        };
        assert_eq!(
            flame("")?,
            [
                "a:b;main;work 1",
                "server;[removed] 1",
                "server;main;work 2",
                "server;main;work;entry_[k];read_[k] 1",
            ]
        );
        assert_eq!(
            flame(", off_cpu := true")?,
            [
                "kworker;kthread_[k];run_[k] 1",
                "server;main;work;entry_[k];read_[k] 5",
            ]
        );
        // The stack of a sample is at most a minute older, and may be outside the window.
        assert_eq!(
            flame(", t_from := '2026-01-01 00:00:59+00', t_to := '2026-01-01 00:01:00+00'")?,
            [
                "server;main;work 1",
                "server;main;work;entry_[k];read_[k] 1",
            ]
        );
        assert_eq!(flame(", filter := 'comm = ''a;b'''")?, ["a:b;main;work 1"]);
        let none = ", source := 'profile', stacks := 'stack', t_from := '2027-01-01 00:00:00+00'";
        assert!(flame(none)?.is_empty());
    }
    Ok(())
}
