//! Reads the source that a file of `--fields` declares, for `load` and `record command`.

use std::path::Path;

use anyhow::{Context, bail};
use loom_engine::schema::{SourceDef, parse_sources};

/// Finds the source of this name in a TOML file.
pub(super) fn declared(path: &Path, source: &str) -> anyhow::Result<SourceDef> {
    let name = path.display();
    let toml = std::fs::read_to_string(path).with_context(|| format!("cannot read '{name}'"))?;
    let sources =
        parse_sources(&toml).with_context(|| format!("cannot read the sources in '{name}'"))?;
    let names: Vec<String> = sources
        .iter()
        .map(|source| format!("'{}'", source.name))
        .collect();
    let Some(def) = sources.into_iter().find(|def| def.name == source) else {
        bail!(
            "'{name}' does not declare source '{source}'; its sources are: {}",
            names.join(", ")
        );
    };
    Ok(def)
}
