//! The dependencies that each crate may have, and their licences, checked against cargo's own resolution.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use loom_tests::machine::root;
use serde::Deserialize;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    source: Option<String>,
    license: Option<String>,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    src_path: PathBuf,
    test: bool,
    doctest: bool,
    kind: Vec<String>,
}

impl Target {
    /// The texts of its files. A folder is read if it holds no other target.
    fn texts(&self) -> Result<Vec<String>> {
        let is_alone = !self.src_path.ends_with("src/main.rs");
        let is_root = ["lib.rs", "main.rs"].map(|root| self.src_path.ends_with(root));
        let mut found = Vec::new();
        let mut open = match self.src_path.parent() {
            Some(folder) if is_alone && is_root.contains(&true) => vec![folder.to_owned()],
            _ => vec![self.src_path.clone()],
        };
        while let Some(path) = open.pop() {
            if path.is_dir() {
                let entries = std::fs::read_dir(&path)?;
                open.extend(entries.flatten().map(|entry| entry.path()));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(std::fs::read_to_string(&path)?);
            }
        }
        Ok(found)
    }
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// The kinds of dependencies of the first crate that are followed. Of those further down, only linked ones are.
#[derive(Copy, Clone, PartialEq)]
enum Follow {
    Linked,
    TestsToo,
}

impl Metadata {
    fn read() -> Result<Metadata> {
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let words = "metadata --format-version 1 --offline --locked --filter-platform";
        let words = words.split(' ').chain([triple.as_str()]);
        Ok(serde_json::from_str(&cargo(words)?)?)
    }

    /// The names of all crates that `crate_name` depends on, directly or not.
    fn beneath(&self, crate_name: &str, follow: Follow) -> Result<BTreeSet<&str>> {
        let names = self.packages.iter().map(|p| (&*p.id, &*p.name));
        let names: HashMap<&str, &str> = names.collect();
        let nodes = self.resolve.nodes.iter().map(|node| (&*node.id, node));
        let nodes: HashMap<&str, &Node> = nodes.collect();
        let mut packages = self.packages.iter();
        let first = packages.find(|package| package.name == crate_name);
        let first = first.context(crate_name.to_owned())?;
        let mut found = BTreeSet::new();
        let mut open = vec![first.id.as_str()];
        while let Some(id) = open.pop() {
            let node = nodes.get(id).context("a crate that was not resolved")?;
            for dependency in &node.deps {
                let mut kinds = dependency.dep_kinds.iter();
                let linked = kinds.any(|kind| kind.kind.as_deref() != Some("dev"));
                let followed = linked || (follow == Follow::TestsToo && id == first.id);
                let name = names.get(dependency.pkg.as_str());
                let name = name.context("a crate without a name")?;
                if followed && found.insert(*name) {
                    open.push(&dependency.pkg);
                }
            }
        }
        Ok(found)
    }
}

/// Fails if a crate below `crate_name` is one of `forbidden`, or belongs to its family `name-…`.
fn keeps_away(crate_name: &str, follow: Follow, forbidden: &str) -> Result<()> {
    let metadata = Metadata::read()?;
    for name in metadata.beneath(crate_name, follow)? {
        let family = name.split('-').next().unwrap_or(name);
        let mut forbidden = forbidden.split(' ');
        ensure!(
            forbidden.all(|other| ![name, family].contains(&other)),
            "{crate_name} depends on {name}"
        );
    }
    Ok(())
}

#[test]
fn the_engine_knows_no_database_no_arrow_and_no_daemon() -> Result<()> {
    let forbidden = "duckdb libduckdb-sys arrow parquet ingestd clap anyhow tokio tonic";
    keeps_away("loom-engine", Follow::TestsToo, forbidden)
}

#[test]
fn the_extension_knows_no_daemon() -> Result<()> {
    let forbidden = "ingestd parquet anyhow tokio tonic";
    keeps_away("loom-duckdb", Follow::TestsToo, forbidden)
}

#[test]
fn the_daemon_knows_no_database() -> Result<()> {
    let forbidden = "duckdb libduckdb-sys loom-duckdb";
    keeps_away("ingestd", Follow::Linked, forbidden)
}

#[test]
fn what_producers_link_knows_no_arrow_no_command_line_and_no_configuration() -> Result<()> {
    let forbidden =
        "arrow parquet ingestd clap anyhow duckdb tokio tonic aya loom-config loom-probes";
    for library in ["loom-client", "loom-client-c"] {
        keeps_away(library, Follow::TestsToo, forbidden)?;
    }
    Ok(())
}

#[test]
fn what_receives_otlp_knows_nothing_of_loom() -> Result<()> {
    let forbidden = "loom ingestd duckdb arrow parquet aws";
    keeps_away("loom-otlp", Follow::TestsToo, forbidden)
}

#[test]
fn the_fuzzer_knows_no_tokio() -> Result<()> {
    let lock = std::fs::read_to_string(root().join("engine/fuzz/Cargo.lock"))?;
    for name in ["tokio", "tonic", "hyper", "loom-otlp"] {
        let entry = format!("name = \"{name}\"\n");
        ensure!(!lock.contains(&entry), "the fuzzer builds {name}");
    }
    Ok(())
}

/// The output of cargo.
fn cargo<'a>(words: impl Iterator<Item = &'a str>) -> Result<String> {
    let mut cargo = Command::new(env!("CARGO"));
    let output = cargo.args(words).current_dir(root()).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{cargo:?}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}

/// The crates that a build or a test run compiles, with their features.
fn features(edges: &str) -> Result<BTreeSet<String>> {
    let words = "tree --offline --locked --workspace --prefix none --edges".split(' ');
    let text = cargo(words.chain([edges, "--format", "{p} {f}"]))?;
    // A star marks a crate whose dependencies were listed above.
    let crates = text.lines().map(|line| line.trim_end_matches(" (*)"));
    Ok(crates.map(str::to_owned).collect())
}

#[test]
fn tests_turn_on_no_feature_that_a_build_does_not_have() -> Result<()> {
    let tested = features("normal,build,dev")?;
    for built in features("no-dev")? {
        ensure!(
            tested.contains(&built),
            "tests compile another form of '{built}': add what turns on its features to the dependencies of loom-tests"
        );
    }
    Ok(())
}

#[test]
fn where_cargo_looks_for_no_tests_there_are_none() -> Result<()> {
    for package in Metadata::read()?.packages {
        if package.source.is_some() {
            continue;
        }
        for target in package.targets {
            let is_program = target.kind.iter().any(|kind| kind == "bin");
            let is_library = target.kind.iter().any(|kind| kind.ends_with("lib"));
            let mut unseen = Vec::new();
            if (is_program || is_library) && !target.test {
                unseen.extend(["#[test]", "proptest!"]);
            }
            if is_library && !target.doctest {
                unseen.extend(["/// ```", "//! ```"]);
            }
            for text in target.texts()? {
                let lines = text.lines().map(str::trim_start);
                let found = lines.filter(|line| unseen.iter().any(|mark| line.starts_with(mark)));
                ensure!(
                    found.count() == 0,
                    "{} has {unseen:?}, and its Cargo.toml says that it has none",
                    target.name
                );
            }
        }
    }
    Ok(())
}

#[test]
fn every_crate_comes_from_the_registry() -> Result<()> {
    for package in Metadata::read()?.packages {
        let known = package
            .source
            .as_deref()
            .is_none_or(|source| source.starts_with("registry+"));
        ensure!(known, "{} comes from {:?}", package.name, package.source);
    }
    Ok(())
}

#[test]
fn every_licence_is_one_that_deny_toml_allows() -> Result<()> {
    let rules: toml::Table = std::fs::read_to_string(root().join("deny.toml"))?.parse()?;
    let allowed = rules
        .get("licenses")
        .and_then(|table| table.get("allow"))
        .and_then(toml::Value::as_array);
    let allowed: Vec<&str> = allowed
        .context("deny.toml allows no licence")?
        .iter()
        .filter_map(toml::Value::as_str)
        .collect();
    for package in Metadata::read()?.packages {
        let licence = package
            .license
            .with_context(|| format!("{} names no licence", package.name))?;
        ensure!(
            permits(&licence, &allowed)?,
            "{} is under {licence}",
            package.name
        );
    }
    Ok(())
}

/// True if `allowed` alone meets the SPDX expression. Old manifests write `/` for OR.
fn permits(expression: &str, allowed: &[&str]) -> Result<bool> {
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace(" WITH ", "-WITH-");
    let mut words = spaced.split_whitespace().peekable();
    let met = either(&mut words, allowed)?;
    ensure!(
        words.peek().is_none(),
        "not an SPDX expression: {expression}"
    );
    Ok(met)
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn either(words: &mut Words, allowed: &[&str]) -> Result<bool> {
    let mut met = both(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        met |= both(words, allowed)?;
    }
    Ok(met)
}

fn both(words: &mut Words, allowed: &[&str]) -> Result<bool> {
    let mut met = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        met &= one(words, allowed)?;
    }
    Ok(met)
}

fn one(words: &mut Words, allowed: &[&str]) -> Result<bool> {
    match words.next() {
        Some("(") => {
            let met = either(words, allowed)?;
            ensure!(words.next() == Some(")"), "a parenthesis stays open");
            Ok(met)
        }
        Some(licence) => Ok(allowed.contains(&licence)),
        None => bail!("an SPDX expression ends early"),
    }
}

#[test]
fn a_licence_expression_is_read_as_spdx_says() -> Result<()> {
    let allowed = ["MIT", "Zlib"];
    for (expression, met) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0/MIT", true),
        ("MIT AND GPL-3.0", false),
        ("(GPL-3.0 OR Zlib) AND MIT", true),
        ("GPL-3.0 WITH exception OR MIT AND Zlib", true),
    ] {
        assert_eq!(permits(expression, &allowed)?, met, "{expression}");
    }
    Ok(())
}
