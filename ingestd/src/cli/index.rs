//! `ingestd index add|close|list|rebuild`: through the running daemon, or directly if none runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{anyhow, bail};
use clap::Subcommand;
use loom_engine::query::Poll;
use loom_engine::schema::{BinsDef, SourceDef, nearest};
use serde::Serialize;

use super::catalog::{Editor, read_catalog};
use super::stdout::{say, show};
use super::table::Column::Text;
use super::table::Table;

/// Add, close, list and rebuild indexes, with or without a running daemon
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd index add /var/lib/loom --source redis_request --index slow \\
    --value latency_ns
  ingestd index close /var/lib/loom --source redis_request --index slow
  ingestd index list /var/lib/loom")]
pub struct Args {
    #[command(subcommand)]
    command: IndexCommand,
}

#[derive(Subcommand)]
enum IndexCommand {
    /// Add an index to a source
    ///
    /// The index covers the records that arrive from now on. Queries scan the earlier ones. With --lookup and --words, earlier records are looked up too.
    #[command(after_help = "\
Examples:
  ingestd index add /var/lib/loom --source redis_request --index slow_sets \\
    --value latency_ns --where \"op = 'SET'\" \\
    --bins \"{ from = 1000, factor = 2, count = 24 }\"
  ingestd index add /var/lib/loom --source redis_request --lookup id
  ingestd index add /var/lib/loom --source logs --words body")]
    Add {
        /// Loom directory
        dir: PathBuf,
        /// Source of the index
        #[arg(long, value_name = "NAME")]
        source: String,
        /// Name of the index
        #[arg(long, value_name = "NAME", required_unless_present_any = ["lookup", "words"])]
        index: Option<String>,
        /// Field to look up by its keys, such as an id: a question for one key then reads few chunks, also of earlier records
        #[arg(long, value_name = "FIELD", conflicts_with_all = ["index", "value", "filter", "bins"])]
        lookup: Option<String>,
        /// Field of type utf8 to look up by parts of its texts: a question for texts that contain a word then reads few chunks, also of earlier records
        #[arg(long, value_name = "FIELD", conflicts_with_all = ["index", "value", "filter", "bins"])]
        words: Option<String>,
        /// Field to summarise; if omitted, the index counts records
        #[arg(long, value_name = "FIELD")]
        value: Option<String>,
        /// Filter of the records to include [default: all]
        #[arg(long = "where", value_name = "FILTER")]
        filter: Option<String>,
        /// Bins as in the configuration: a table, a list of edges, or auto [default: auto]
        #[arg(long, value_name = "TOML")]
        bins: Option<String>,
    },
    /// Close an index
    ///
    /// Queries still use it for the records that it covers. New records are not added to it.
    #[command(
        after_help = "Example:\n  ingestd index close /var/lib/loom --source redis_request --index slow"
    )]
    Close {
        /// Loom directory
        dir: PathBuf,
        /// Source of the index
        #[arg(long, value_name = "NAME")]
        source: String,
        /// Name of the index
        #[arg(long, value_name = "NAME")]
        index: String,
    },
    /// Build the missing look-ups of a directory without a daemon
    ///
    /// A daemon builds them by itself, some seconds after their part of the log is written.
    #[command(after_help = "Example:\n  ingestd index rebuild /var/lib/loom")]
    Rebuild {
        /// Loom directory
        dir: PathBuf,
    },
    /// List the indexes of one source, or of all
    #[command(after_help = "Example:\n  ingestd index list /var/lib/loom --source redis_request")]
    List {
        /// Loom directory
        dir: PathBuf,
        /// Source [default: all]
        #[arg(long, value_name = "NAME")]
        source: Option<String>,
    },
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            IndexCommand::Add {
                dir,
                source,
                index,
                lookup,
                words,
                value,
                filter,
                bins,
            } => {
                if let Some(index) = index {
                    let toml = definition(index, value, filter, bins.as_deref())?;
                    Editor::open_existing(&dir)?.add_index(&source, &toml)?;
                } else {
                    look_up(&dir, &source, lookup.as_deref(), words.as_deref())?;
                }
            }
            IndexCommand::Rebuild { dir } => rebuild(&dir)?,
            IndexCommand::Close { dir, source, index } => {
                Editor::open_existing(&dir)?.close_index(&source, &index)?;
            }
            IndexCommand::List { dir, source } => show(list(&dir, source.as_deref())?)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Defines the source again, with the fields among those whose keys or words have look-ups.
fn look_up(
    dir: &Path,
    name: &str,
    lookup: Option<&str>,
    words: Option<&str>,
) -> anyhow::Result<()> {
    let editor = Editor::open_existing(dir)?;
    let catalog = read_catalog(dir)?;
    let Some(source) = catalog.find(name) else {
        return Err(catalog.unknown_source(name).into());
    };
    let mut def = SourceDef {
        time: source.time,
        on_overload: source.on_overload,
        fields: source.fields.clone(),
        ..SourceDef::new(name)
    };
    let position = |field: &str| {
        let names = source.fields.iter().map(|held| held.name.as_str());
        names.clone().position(|name| name == field).ok_or_else(|| {
            let near = nearest(field, names);
            let hint = near.first().map(|near| format!("; did you mean '{near}'?"));
            anyhow!(
                "source '{name}' has no field '{field}'{}",
                hint.unwrap_or_default()
            )
        })
    };
    let keyed = lookup.map(position).transpose()?;
    let worded = words.map(position).transpose()?;
    for (nth, field) in def.fields.iter_mut().enumerate() {
        field.lookup |= keyed == Some(nth);
        field.words |= worded == Some(nth);
    }
    def.validate()?;
    #[derive(Serialize)]
    struct Sources {
        source: [SourceDef; 1],
    }
    editor.define(&toml::to_string(&Sources { source: [def] })?)
}

fn rebuild(dir: &Path) -> anyhow::Result<()> {
    let Some(built) = loom_sink::build_lookups(dir, &Poll::never())? else {
        bail!(
            "a daemon records into '{}' and builds its look-ups by itself",
            dir.display()
        );
    };
    say(match built {
        0 => "no look-up is missing; the last MiB of the log, or less, has none and is searched"
            .to_owned(),
        built => format!("built {built} look-ups"),
    })
}

/// The definition of an index in TOML.
fn definition(
    name: String,
    value: Option<String>,
    filter: Option<String>,
    bins: Option<&str>,
) -> anyhow::Result<String> {
    let mut table = match bins {
        // `auto` is a string without its quotes.
        Some("auto") | None => toml::Table::new(),
        Some(bins) => format!("bins = {bins}")
            .parse()
            .map_err(|error: toml::de::Error| {
                let why = error.message();
                anyhow!("--bins '{bins}' is not a TOML value: {why}; use \"[0, 10, 100]\"")
            })?,
    };
    let texts = [("name", Some(name)), ("value", value), ("where", filter)];
    let given = texts.into_iter();
    table.extend(given.filter_map(|(key, text)| Some((key.to_owned(), text?.into()))));
    Ok(table.to_string())
}

fn list(dir: &Path, source: Option<&str>) -> anyhow::Result<String> {
    let catalog = read_catalog(dir)?;
    if let Some(name) = source
        && catalog.find(name).is_none()
    {
        return Err(catalog.unknown_source(name).into());
    }
    let none = || "-".to_owned();
    let mut table = Table::new(["source", "index", "value", "where", "bins", "state"].map(Text));
    let chosen = catalog
        .sources()
        .filter(|found| source.is_none_or(|name| found.name == name));
    for (source, index) in
        chosen.flat_map(|source| source.indexes.iter().map(move |index| (source, index)))
    {
        table.row([
            source.name.clone(),
            index.name.clone(),
            index.def.value.clone().unwrap_or_else(none),
            index.def.filter.clone().unwrap_or_else(none),
            bins(&index.def.bins)?,
            if index.until.is_none() {
                "open"
            } else {
                "closed"
            }
            .to_owned(),
        ]);
    }
    Ok(table.render())
}

/// The bins as in a configuration, `auto` without its quotes.
fn bins(bins: &BinsDef) -> anyhow::Result<String> {
    let mut text = String::new();
    bins.serialize(toml::ser::ValueSerializer::new(&mut text))?;
    Ok(text.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_says_what_the_flags_say() {
        let text = |bins| {
            definition(
                "slow".to_owned(),
                Some("n".to_owned()),
                Some("op = 'SET'".to_owned()),
                bins,
            )
            .unwrap()
        };
        let table: toml::Table = text(Some("{ from = 1, factor = 2, count = 8 }"))
            .parse()
            .unwrap();
        assert_eq!(table["name"].as_str(), Some("slow"));
        assert_eq!(table["where"].as_str(), Some("op = 'SET'"));
        assert_eq!(table["bins"]["count"].as_integer(), Some(8));
        assert!(!text(Some("auto")).contains("bins"));
        assert!(text(Some("[1, 2, 3]")).contains("[1, 2, 3]"));
    }

    #[test]
    fn bins_are_shown_as_they_are_defined() {
        for text in [
            "\"auto\"",
            "{ from = 1000, factor = 2, count = 24 }",
            "[0, 10, 100]",
        ] {
            let def: toml::Table = format!("bins = {text}").parse().unwrap();
            let def: BinsDef = def["bins"].clone().try_into().unwrap();
            assert_eq!(bins(&def).unwrap(), text.trim_matches('"'));
        }
    }

    #[test]
    fn bins_bring_no_other_keys_in() {
        let toml = definition("a".to_owned(), None, None, Some("[1]\nname = 'b'")).unwrap();
        let table: toml::Table = toml.parse().unwrap();
        assert_eq!(table["name"].as_str(), Some("a"));
    }
}
