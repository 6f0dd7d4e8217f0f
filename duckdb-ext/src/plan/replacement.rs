//! `FROM 'run.loom/requests'`: the function call for a name that no table has. The name of a directory ends in `.loom`, and the source
//! follows it. Files that DuckDB itself reads are left to DuckDB.

use super::access::may_look;
use super::paths::at_home;

/// The ending of a directory that can stand in place of a table.
const SUFFIX: &str = ".loom";
const WITHIN: &str = ".loom/";

/// The endings of files that DuckDB or one of its extensions reads, and of compressed ones.
const READ_BY_DUCKDB: [&str; 12] = [
    ".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".xlsx", ".avro", ".arrow",
    ".arrows", ".vortex", ".db",
];
const COMPRESSIONS: [&str; 2] = [".gz", ".zst"];

/// The function call that stands for the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replacement {
    pub function: &'static str,
    pub arguments: Vec<String>,
    /// The name that qualifies the columns.
    pub alias: String,
}

/// Returns `None` if Loom does not know the name.
pub fn of(name: &str) -> Option<Replacement> {
    if is_read_by_duckdb(name) {
        return None;
    }
    let bare = name.trim_end_matches('/');
    if bare.ends_with(SUFFIX) && is_directory(bare) {
        return Some(Replacement {
            function: "loom_sources",
            arguments: vec![bare.to_owned()],
            alias: "loom_sources".to_owned(),
        });
    }
    let (dir, source) = split(name)?;
    Some(Replacement {
        function: "loom_scan",
        arguments: vec![dir.to_owned(), source.to_owned()],
        alias: source.to_owned(),
    })
}

/// Splits a name into directory and source. Both may contain `.loom/`: the directory that exists decides, otherwise the last `.loom/`.
fn split(name: &str) -> Option<(&str, &str)> {
    let parts = || {
        name.match_indices(WITHIN).filter_map(|(at, _)| {
            let dir = name.get(..at + SUFFIX.len())?;
            let source = name.get(at + WITHIN.len()..)?;
            (!source.is_empty()).then_some((dir, source))
        })
    };
    parts()
        .find(|(dir, _)| is_directory(dir))
        .or_else(|| parts().last())
}

fn is_directory(dir: &str) -> bool {
    let dir = at_home(dir);
    may_look(&dir) && dir.join("loom.json").is_file()
}

fn is_read_by_duckdb(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let bare = COMPRESSIONS
        .iter()
        .find_map(|ending| lower.strip_suffix(ending))
        .unwrap_or(&lower);
    READ_BY_DUCKDB.iter().any(|ending| bare.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(name: &str) -> Option<(String, String)> {
        let found = of(name)?;
        assert_eq!(found.function, "loom_scan");
        assert_eq!(found.alias, found.arguments[1]);
        Some((found.arguments[0].clone(), found.arguments[1].clone()))
    }

    #[test]
    fn a_source_stands_behind_a_directory_that_is_called_loom() {
        let pair = |dir: &str, source: &str| Some((dir.to_owned(), source.to_owned()));
        assert_eq!(scan("run.loom/requests"), pair("run.loom", "requests"));
        assert_eq!(scan("/a b/ü.loom/x'y\"z"), pair("/a b/ü.loom", "x'y\"z"));
        assert_eq!(
            scan("runs/*.loom/requests"),
            pair("runs/*.loom", "requests")
        );
        assert_eq!(scan("a.loom/b.loom/c"), pair("a.loom/b.loom", "c"));
        assert_eq!(scan("a.loom/b.loom"), pair("a.loom", "b.loom"));
        assert_eq!(scan(".loom/x"), pair(".loom", "x"));
    }

    #[test]
    fn other_names_are_not_ours() {
        for name in [
            "requests",
            "run.loom",
            "run.loom/",
            "run.looms/requests",
            "run/requests",
            "loom/requests",
            "",
            "run.loom/x.parquet",
            "run.loom/x.CSV.gz",
            "run.loom/x.json",
        ] {
            assert_eq!(of(name), None, "{name}");
        }
    }

    #[test]
    fn what_exists_decides_where_the_directory_ends() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("a.loom");
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("loom.json"), "{}").unwrap();
        let dir = dir.display().to_string();
        assert_eq!(
            scan(&format!("{dir}/b.loom/c")),
            Some((dir.clone(), "b.loom/c".to_owned()))
        );
        let sources = of(&dir).unwrap();
        assert_eq!(sources.function, "loom_sources");
        assert_eq!(sources.arguments, std::slice::from_ref(&dir));
        assert_eq!(of(&format!("{dir}/")), Some(sources));
    }
}
