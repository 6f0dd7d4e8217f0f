//! The settings of C API v2: `loom_dir`, the directory of calls that name none; `loom_pushdown`, whether `WHERE` clauses prune;
//! `loom_directories`, which Loom may still read if access to files is disabled; and `loom_cache`, the memory for read data.

use duckdb_neo::connection::{Context, FFILink, SettingScope};
use duckdb_neo::custom_option::{CustomOptionBuilder, CustomOptionCallbacks};
use duckdb_neo::extension::Extension;
use duckdb_neo::types::List;
use duckdb_neo::value::Value;
use duckdb_neo::{DuckDBType, Error, ToValue};

use super::errors::{error, problem};
use super::value::datum;
use crate::error::{Callback, guard};
use crate::plan::access::Access;
use crate::plan::cache;
use crate::plan::datum::Datum;

/// With more threads, most of them wait for the disk or for memory.
const THREADS_MOST: i64 = 16;

/// A setting, and the function that checks a new value of it.
struct Setting(fn(&Context, Value) -> duckdb_neo::Result<Value>);

impl CustomOptionCallbacks for Setting {
    fn update(
        &self,
        context: &Context,
        value: Value,
        _: SettingScope,
        _: bool,
    ) -> duckdb_neo::Result<Value> {
        (self.0)(context, value)
    }
}

fn as_given(_: &Context, value: Value) -> duckdb_neo::Result<Value> {
    Ok(value)
}

/// Like DuckDB's own lists of directories, this one cannot grow once access is disabled.
fn until_disabled(context: &Context, value: Value) -> duckdb_neo::Result<Value> {
    if has_external_access(context) {
        return Ok(value);
    }
    Err(Error::invalid_input(
        "loom_directories cannot change once enable_external_access is false; set it before",
    ))
}

fn cache_size(context: &Context, value: Value) -> duckdb_neo::Result<Value> {
    guard(Callback::Setting, || {
        let size = value.get::<String>().map_err(problem)?.unwrap_or_default();
        let limit = text(context, "memory_limit");
        cache::check(&size, limit.as_deref())?;
        cache::allow(Some(&size), limit.as_deref());
        Ok(value)
    })
    .map_err(error)
}

pub fn register_all(extension: &Extension) -> duckdb_neo::Result<()> {
    let link: &dyn FFILink = extension;
    CustomOptionBuilder::new(
        "loom_dir",
        "The Loom directory that a call reads when it names none",
        String::logical_type(link)?,
        Setting(as_given),
    )
    // Clients open further connections, such as cursors in Python, which read the same directory.
    .default_scope(SettingScope::Global)
    .register(extension)?;
    CustomOptionBuilder::new(
        "loom_pushdown",
        "Whether WHERE clauses decide which chunks of a Loom directory are read",
        bool::logical_type(link)?,
        Setting(as_given),
    )
    .default_value(true.value(link)?)
    .register(extension)?;
    CustomOptionBuilder::new(
        "loom_directories",
        "Directories whose Loom directories can be read even if enable_external_access is false; DuckDB itself may not write there",
        List::<String>::logical_type(link)?,
        Setting(until_disabled),
    )
    .default_scope(SettingScope::Global)
    .register(extension)?;
    CustomOptionBuilder::new(
        cache::SETTING,
        "The memory for read data that Loom keeps for the next query, for all directories together, such as 64MB; at most a quarter of memory_limit",
        String::logical_type(link)?,
        Setting(cache_size),
    )
    .default_scope(SettingScope::Global)
    .register(extension)
}

pub fn loom_dir(context: &Context) -> Option<String> {
    text(context, "loom_dir")
}

/// Applies the current settings to the budget of the process.
pub fn allow_cache(context: &Context) {
    cache::allow(
        text(context, cache::SETTING).as_deref(),
        text(context, "memory_limit").as_deref(),
    );
}

pub fn pushdown(context: &Context) -> bool {
    setting(context, "loom_pushdown")
        .and_then(|value| value.get::<bool>().ok()?)
        .unwrap_or(true)
}

/// Whether years are those of the Gregorian calendar; without ICU there is no other.
pub fn has_gregorian_years(context: &Context) -> bool {
    text(context, "Calendar").is_none_or(|name| name.eq_ignore_ascii_case("gregorian"))
}

/// The number of threads that DuckDB has for a query. A function that computes all rows before it returns the first has these threads to
/// itself.
pub fn threads(context: &Context) -> usize {
    let threads = setting(context, "threads").and_then(|value| value.get::<i64>().ok()?);
    threads.map_or(1, |threads| threads.clamp(1, THREADS_MOST) as usize)
}

/// All directories; if external access is disabled, those in `loom_directories` and `allowed_directories`.
pub fn access(context: &Context) -> Access {
    if has_external_access(context) {
        return Access::All;
    }
    let folders = ["loom_directories", "allowed_directories"].map(|name| folders(context, name));
    Access::within(folders.iter().flatten().map(String::as_str))
}

/// A setting that cannot be read allows nothing.
fn has_external_access(context: &Context) -> bool {
    let external = setting(context, "enable_external_access");
    external.and_then(|value| value.get::<bool>().ok()?) == Some(true)
}

fn folders(context: &Context, name: &str) -> Vec<String> {
    let list = setting(context, name).and_then(|value| datum(&value, &|| false).ok());
    let Some(Datum::List(folders)) = list else {
        return Vec::new();
    };
    let texts = folders.into_iter().filter_map(|folder| match folder {
        Datum::Text(folder) => Some(folder.to_string()),
        _ => None,
    });
    texts.collect()
}

/// The text of a setting, unless it is empty.
fn text(context: &Context, name: &str) -> Option<String> {
    setting(context, name)?
        .get::<String>()
        .ok()?
        .filter(|text| !text.is_empty())
}

fn setting(context: &Context, name: &str) -> Option<Value> {
    let (value, _) = context.config().ok()?.try_get_value(name).ok()??;
    Some(value)
}
