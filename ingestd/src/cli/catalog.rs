//! Changes a directory's catalog and rules from the command line: through its daemon, or with a writer in this process if none runs.

use std::path::Path;

use anyhow::{Context, bail};
use ingestd::client::{Client, ClientError};
use ingestd::daemon::definitions;
use ingestd::rules::file::{self, RuleFile};
use ingestd::rules::judge;
use loom_engine::Error;
use loom_engine::ingest::{Writer, WriterOptions};
use loom_engine::log::{LogOptions, LogReader};
use loom_engine::query;
use loom_engine::schema::{Catalog, IndexDef, parse_sources};

/// A way to change the catalog and the rules.
pub(super) enum Editor {
    Daemon(Client),
    Direct(Box<Writer>),
}

impl Editor {
    /// Connects to the daemon of a directory, or opens a writer, which creates the directory if it does not exist.
    pub(super) fn open(dir: &Path) -> anyhow::Result<Editor> {
        match Client::connect(dir) {
            Ok(client) => Ok(Editor::Daemon(client)),
            Err(ClientError::NotRunning(_)) => {
                let log = LogOptions {
                    block_bytes: 1 << 20,
                    ..LogOptions::default()
                };
                let writer = Writer::open(
                    dir,
                    WriterOptions {
                        log,
                        ..WriterOptions::default()
                    },
                )?;
                Ok(Editor::Direct(Box::new(writer)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Does the same, but fails if the directory does not exist.
    pub(super) fn open_existing(dir: &Path) -> anyhow::Result<Editor> {
        match LogReader::open(dir) {
            Err(error @ Error::NotLoom { .. }) => {
                bail!("{error}; create one with 'ingestd run {}'", dir.display())
            }
            // The writer or the daemon reports other errors.
            _ => Editor::open(dir),
        }
    }

    pub(super) fn define(self, toml: &str) -> anyhow::Result<()> {
        match self {
            Editor::Daemon(client) => client.define(toml).map(drop).map_err(Into::into),
            Editor::Direct(writer) => change(*writer, |writer| {
                definitions::define(writer, &parse_sources(toml)?)?;
                Ok(())
            }),
        }
    }

    pub(super) fn close_source(self, name: &str) -> anyhow::Result<()> {
        match self {
            Editor::Daemon(client) => Ok(client.close_source(name)?),
            Editor::Direct(writer) => change(*writer, |writer| {
                Ok(definitions::close_source(writer, name)?)
            }),
        }
    }

    pub(super) fn add_index(self, source: &str, toml: &str) -> anyhow::Result<()> {
        match self {
            Editor::Daemon(client) => client.add_index(source, toml).map(drop).map_err(Into::into),
            Editor::Direct(writer) => change(*writer, |writer| {
                let def: IndexDef =
                    toml::from_str(toml).context("cannot read the definition of the index")?;
                definitions::add_index(writer, source, &def)?;
                Ok(())
            }),
        }
    }

    pub(super) fn add_rules(self, toml: &str) -> anyhow::Result<()> {
        match self {
            Editor::Daemon(client) => Ok(client.add_rules(toml)?),
            Editor::Direct(writer) => change(*writer, |writer| {
                for (def, _) in file::parse(toml)? {
                    judge::subject(writer.catalog(), &def)?;
                }
                RuleFile::open(writer.dir())?.add(toml, &[])
            }),
        }
    }

    pub(super) fn close_rule(self, name: &str) -> anyhow::Result<()> {
        match self {
            Editor::Daemon(client) => Ok(client.close_rule(name)?),
            Editor::Direct(writer) => change(*writer, |writer| {
                if RuleFile::open(writer.dir())?.remove(name)? {
                    return Ok(());
                }
                bail!("rule '{name}' was not added; 'ingestd rule list' shows those that were")
            }),
        }
    }

    pub(super) fn close_index(self, source: &str, index: &str) -> anyhow::Result<()> {
        match self {
            Editor::Daemon(client) => Ok(client.close_index(source, index)?),
            Editor::Direct(writer) => change(*writer, |writer| {
                Ok(definitions::close_index(writer, source, index)?)
            }),
        }
    }
}

/// Makes a change and closes the directory even if the change is refused, so that no recovery is needed.
fn change(
    mut writer: Writer,
    make: impl FnOnce(&mut Writer) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let made = make(&mut writer);
    let closed = writer.close();
    made?;
    Ok(closed?)
}

/// Reads the current catalog from the directory's files.
pub(super) fn read_catalog(dir: &Path) -> anyhow::Result<Catalog> {
    Ok(query::read_catalog(&LogReader::open(dir)?)?)
}
