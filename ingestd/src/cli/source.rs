//! `ingestd source add|close|list`: through the running daemon, or directly if none runs.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use ingestd::daemon::catalog_json::CatalogView;
use loom_engine::schema::{Source, parse_sources};

use super::catalog::{Editor, read_catalog};
use super::form::Form;
use super::table::Column::{Number, Text};
use super::table::Table;

/// Add, close and list sources, with or without a running daemon
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  ingestd source add /var/lib/loom --fields sources.toml
  ingestd source close /var/lib/loom --source redis_request
  ingestd source list /var/lib/loom")]
pub struct Args {
    #[command(subcommand)]
    command: SourceCommand,
}

#[derive(Subcommand)]
enum SourceCommand {
    /// Add the sources of a TOML file
    ///
    /// Existing sources get the new fields and indexes. Closed sources are opened again.
    #[command(after_help = "Example:\n  ingestd source add /var/lib/loom --fields sources.toml")]
    Add {
        /// Loom directory; created if it does not exist
        dir: PathBuf,
        /// TOML file with [[source]] tables, as in the configuration
        #[arg(long, value_name = "FILE")]
        fields: PathBuf,
    },
    /// Close a source
    ///
    /// New records of the source are refused and counted. Queries still read its records. 'ingestd source add' opens it again.
    #[command(after_help = "Example:\n  ingestd source close /var/lib/loom --source redis_request")]
    Close {
        /// Loom directory
        dir: PathBuf,
        /// Source to close
        #[arg(long, value_name = "NAME")]
        source: String,
    },
    /// List the sources and their fields
    #[command(after_help = "Example:\n  ingestd source list /var/lib/loom")]
    List {
        /// Loom directory
        dir: PathBuf,
        /// List all fields, also of sources with more than 16
        #[arg(long)]
        all_fields: bool,
        #[command(flatten)]
        form: Form,
    },
}

/// The number of listed fields of a source, unless all are requested.
const FIELDS_SHOWN: usize = 16;

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            SourceCommand::Add { dir, fields } => {
                let toml = std::fs::read_to_string(&fields)
                    .with_context(|| format!("cannot read {}", fields.display()))?;
                // The file is parsed here too, so that a mistake is reported with its name.
                parse_sources(&toml).with_context(|| fields.display().to_string())?;
                Editor::open(&dir)?.define(&toml)?;
            }
            SourceCommand::Close { dir, source } => {
                Editor::open_existing(&dir)?.close_source(&source)?
            }
            SourceCommand::List {
                dir,
                all_fields,
                form,
            } => {
                let catalog = read_catalog(&dir)?;
                let shown = if all_fields { usize::MAX } else { FIELDS_SHOWN };
                let mut table = Table::new([
                    Text("source"),
                    Number("id"),
                    Text("time"),
                    Text("state"),
                    Text("fields"),
                ]);
                for source in catalog.sources() {
                    table.row(row(source, shown));
                }
                form.answer(|| CatalogView::of(&catalog), || table.render())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn row(source: &Source, shown: usize) -> [String; 5] {
    let mut fields: Vec<String> = source
        .fields
        .iter()
        .take(shown)
        .map(|field| format!("{} {}", field.name, field.ty))
        .collect();
    let others = source.fields.len() - fields.len();
    if others > 0 {
        fields.push(format!("… and {others} more (--all-fields)"));
    }
    [
        source.name.clone(),
        source.id.to_string(),
        format!("{:?}", source.time).to_lowercase(),
        if source.is_open() { "open" } else { "closed" }.to_owned(),
        if fields.is_empty() {
            "raw".to_owned()
        } else {
            fields.join(", ")
        },
    ]
}
