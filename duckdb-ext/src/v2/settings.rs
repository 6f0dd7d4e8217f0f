//! The settings of C API v2: `loom_dir`, the directory where a call names none, and `loom_pushdown`, which `WHERE` clauses prune by.

use duckdb_neo::connection::{Context, FFILink, SettingScope};
use duckdb_neo::custom_option::{CustomOptionBuilder, CustomOptionCallbacks};
use duckdb_neo::extension::Extension;
use duckdb_neo::value::Value;
use duckdb_neo::{DuckDBType, ToValue};

use super::value::datum;
use crate::plan::access::Access;
use crate::plan::datum::Datum;

/// More threads than this wait for the disk or for memory rather than work.
const THREADS_MOST: i64 = 16;

struct AsGiven;

impl CustomOptionCallbacks for AsGiven {
    fn update(
        &self,
        _: &Context,
        value: Value,
        _: SettingScope,
        _: bool,
    ) -> duckdb_neo::Result<Value> {
        Ok(value)
    }
}

pub fn register_all(extension: &Extension) -> duckdb_neo::Result<()> {
    let link: &dyn FFILink = extension;
    CustomOptionBuilder::new(
        "loom_dir",
        "The Loom directory that a call reads when it names none",
        String::logical_type(link)?,
        AsGiven,
    )
    // Clients open further connections, a cursor of Python's for one: they read the same directory.
    .default_scope(SettingScope::Global)
    .register(extension)?;
    CustomOptionBuilder::new(
        "loom_pushdown",
        "Whether WHERE clauses decide which chunks of a Loom directory are read",
        bool::logical_type(link)?,
        AsGiven,
    )
    .default_value(true.value(link)?)
    .register(extension)
}

pub fn loom_dir(context: &Context) -> Option<String> {
    setting(context, "loom_dir")?
        .get::<String>()
        .ok()?
        .filter(|dir| !dir.is_empty())
}

pub fn pushdown(context: &Context) -> bool {
    setting(context, "loom_pushdown")
        .and_then(|value| value.get::<bool>().ok()?)
        .unwrap_or(true)
}

/// As many as DuckDB has for a query; a function that makes its rows before the first is given has them to itself.
pub fn threads(context: &Context) -> usize {
    let threads = setting(context, "threads").and_then(|value| value.get::<i64>().ok()?);
    threads.map_or(1, |threads| threads.clamp(1, THREADS_MOST) as usize)
}

/// All directories, or where external access is disabled those in `allowed_directories`.
pub fn access(context: &Context) -> Access {
    let external =
        setting(context, "enable_external_access").and_then(|value| value.get::<bool>().ok()?);
    // A setting that cannot be read opens nothing.
    if external == Some(true) {
        return Access::All;
    }
    let allowed = setting(context, "allowed_directories");
    let allowed = allowed.and_then(|value| datum(&value, &|| false).ok());
    let folders = match &allowed {
        Some(Datum::List(folders)) => folders.as_slice(),
        _ => &[],
    };
    Access::within(folders.iter().filter_map(|folder| match folder {
        Datum::Text(folder) => Some(folder.as_str()),
        _ => None,
    }))
}

fn setting(context: &Context, name: &str) -> Option<Value> {
    let (value, _) = context.config().ok()?.try_get_value(name).ok()??;
    Some(value)
}
