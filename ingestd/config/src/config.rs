//! The tables of the configuration file, their defaults, and the checks of several keys together.
//!
//! `ingestd run` and `ingestd validate` parse it. A missing key has its default; an unknown key is an error with its line.

use std::fmt;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use loom_engine::PerLog;
use loom_engine::format::{SEGMENT_UNITS_MOST, UNIT_CHUNKS};
use loom_engine::log::{Durability, ENCODERS_MAX, LogOptions};
use loom_engine::schema::{SourceDef, validate_sources};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use super::otlp::OtlpDef;
use super::rule::{RuleDef, check_rules};
use super::scrape::{ScrapeDef, check_scrapes};
use super::units::{ByteSize, FreeSpace, Span};

/// A whole configuration.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub log: LogConfig,
    pub retention: RetentionConfig,
    pub archive: ArchiveConfig,
    pub access: AccessConfig,
    pub metrics: MetricsConfig,
    /// OTLP is received only if this table exists.
    pub otlp: Option<OtlpDef>,
    /// The sources, with those of `[otlp]`.
    #[serde(rename = "source")]
    pub sources: Vec<SourceDef>,
    #[serde(rename = "rule")]
    pub rules: Vec<RuleDef>,
    #[serde(rename = "scrape")]
    pub scrapes: Vec<ScrapeDef>,
}

/// `[log]`: staging, writing and durability of records.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// The unit of indexing; fixed when the directory is created.
    pub chunk: Spanned<ByteSize>,
    /// The unit of staging; two are in memory.
    pub block: Spanned<ByteSize>,
    /// The size of a file of the record log; fixed when the directory is created.
    pub segment: Spanned<ByteSize>,
    /// The folder of the staging file; if the file does not fit there, it is in the Loom directory.
    pub staging: Spanned<PathBuf>,
    pub durability: DurabilityConfig,
    /// The threads that encode records; all except the first run only while it is behind.
    pub encoders: Spanned<usize>,
}

/// `"none"`, `"batch"`, or the greatest delay of an fsync.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum DurabilityConfig {
    None,
    Interval(Duration),
    Batch,
}

/// `[retention]`: the limits of the log, and the reaction to a full disk.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionConfig {
    /// Unlimited unless given.
    pub max_bytes: Option<Spanned<ByteSize>>,
    /// Unlimited unless given.
    pub max_age: Option<Span>,
    /// The limit of all pins of rules, beside the log.
    pub pin_max_bytes: ByteSize,
    pub min_free: FreeSpace,
    pub on_full: OnFull,
}

/// `[archive]`: the relation of `ingestd archive` to retention.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArchiveConfig {
    /// The folder that `ingestd archive` writes.
    pub to: Option<PathBuf>,
    /// Retention removes only archived records.
    pub required: bool,
    /// The sources that must be archived; empty for all.
    pub sources: Vec<String>,
    /// Sources that need not be archived.
    pub except: Vec<String>,
}

/// The reaction when less than `min_free` of the disk is free.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFull {
    /// Remove the oldest segments.
    Evict,
    /// Refuse and count new records.
    Refuse,
}

/// `[access]`: permissions to read and push, apart from the owner's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AccessConfig {
    /// The group that may read and query the directory.
    pub group: Option<Spanned<String>>,
    pub socket: SocketAccess,
}

/// `[metrics]`: metrics about the daemon itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// The loopback address of `/metrics`, `/livez` and `/readyz`; `None` does not serve them.
    #[serde(deserialize_with = "loopback")]
    pub listen: Option<SocketAddr>,
    /// The interval of records in `loom_metrics`; zero means none.
    pub interval: Span,
}

/// The permission to push.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SocketAccess {
    #[default]
    Owner,
    /// The owner and the members of `group`.
    Group,
}

/// An error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The line, from 1; `None` for the whole file.
    pub line: Option<usize>,
    pub message: String,
}

const CHUNK_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 20;
/// The approximate share of a source in a chunk, and the number of sources for which the longest chunk suffices.
const SOURCE_CHUNK_BYTES: u32 = 1 << 10;
const CHUNK_SOURCES_MAX: usize = 1 << 10;
const _: () = assert!(SOURCE_CHUNK_BYTES as usize * CHUNK_SOURCES_MAX == 1 << 20);
const BLOCK_BYTES: RangeInclusive<u64> = 64 << 10..=1 << 30;
const SEGMENT_BYTES_MAX: u64 = 1 << 40;

impl Config {
    /// Reads and checks a configuration.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let mut config: Config = toml::from_str(text).map_err(|error| ConfigError {
            line: error.span().map(|span| line_at(text, span.start)),
            message: one_line(error.message()),
        })?;
        config.log.check(text)?;
        config.retention.check(text, &config.log)?;
        config.archive.check()?;
        config.access.check()?;
        if let Some(otlp) = &config.otlp {
            config.metrics.check(otlp)?;
            config.sources.extend(otlp.sources());
        }
        validate_sources(text, &config.sources).map_err(|error| ConfigError::numbered(&error))?;
        let mut rules = config.rules.iter();
        check_rules(rules.clone())
            .and_then(|()| rules.try_for_each(|rule| config.retention.keeps(rule)))
            .and_then(|()| check_scrapes(&config.scrapes))
            .map_err(ConfigError::of)?;
        Ok(config)
    }

    /// The options of the engine. Unless `chunk` is given, a new directory with many sources (each scrape target is one) has longer chunks, because
    /// each source in a chunk takes a place in its summary.
    pub fn log_options(&self) -> LogOptions {
        let mut options = self.log.options();
        let is_given = !self.log.chunk.span().is_empty();
        if !is_given {
            let targets: usize = self.scrapes.iter().map(|scrape| scrape.targets.len()).sum();
            let sources = (self.sources.len() + targets).min(CHUNK_SOURCES_MAX) as u32;
            let longest = options.block_bytes / UNIT_CHUNKS;
            let longest = u32::try_from(longest).unwrap_or(u32::MAX);
            let wanted = (sources * SOURCE_CHUNK_BYTES).next_power_of_two();
            options.chunk_bytes = options.chunk_bytes.max(wanted.min(longest));
        }
        options
    }

    /// Reads and checks a configuration file, including the existence of the group.
    pub fn load(path: &Path) -> Result<Config, ConfigError> {
        let unread = |error| ConfigError::of(format!("cannot read the configuration: {error}"));
        let text = std::fs::read_to_string(path).map_err(unread)?;
        let config = Config::parse(&text)?;
        if let Some(group) = &config.access.group {
            let found = config.access.group_id();
            found.map_err(|message| ConfigError::at(&text, group, message))?;
        }
        Ok(config)
    }
}

impl LogConfig {
    /// The options of the engine.
    pub fn options(&self) -> LogOptions {
        let PerLog { chunks, times, .. } = LogOptions::default().segment_bytes;
        let [chunk, block, segment] =
            [&self.chunk, &self.block, &self.segment].map(|size| size.get_ref().0);
        // The files of the index logs shrink with those of the record log, to whole blocks.
        let index_block_bytes_min = chunk.max(*BLOCK_BYTES.start());
        let share = |part: u64, most: u64| {
            let whole = (segment / part).next_multiple_of(index_block_bytes_min);
            whole.min(most)
        };
        LogOptions {
            chunk_bytes: u32::try_from(chunk).expect("a configuration has chunks of at most 1 MiB"),
            block_bytes: block,
            segment_bytes: [segment, share(8, chunks), share(64, times)].into(),
            staging: (self.staging.get_ref() != Path::new(SHARED_MEMORY))
                .then(|| self.staging.get_ref().clone()),
            durability: match self.durability {
                DurabilityConfig::None => Durability::None,
                DurabilityConfig::Interval(interval) => Durability::Interval(interval),
                DurabilityConfig::Batch => Durability::Batch,
            },
            encoders: *self.encoders.get_ref(),
            group: None,
        }
    }

    fn check(&self, text: &str) -> Result<(), ConfigError> {
        let power = |what: &str, size: &Spanned<ByteSize>, range: RangeInclusive<u64>| {
            let bytes = size.get_ref().0;
            if bytes.is_power_of_two() && range.contains(&bytes) {
                return Ok(());
            }
            let (least, most) = (ByteSize(*range.start()), ByteSize(*range.end()));
            let given = size.get_ref();
            let message = format!("{what} is {given}; use a power of two from {least} to {most}");
            Err(ConfigError::at(text, size, message))
        };
        power("chunk", &self.chunk, CHUNK_BYTES)?;
        let chunk_bytes = self.chunk.get_ref().0;
        // A unit lies in one block.
        let block_bytes_min = (UNIT_CHUNKS * chunk_bytes).max(*BLOCK_BYTES.start());
        power("block", &self.block, block_bytes_min..=*BLOCK_BYTES.end())?;
        let (segment, block) = (self.segment.get_ref(), self.block.get_ref());
        let most = SEGMENT_BYTES_MAX.min(SEGMENT_UNITS_MOST * UNIT_CHUNKS * chunk_bytes);
        if segment.0 == 0 || !segment.0.is_multiple_of(block.0) || segment.0 > most {
            let most = ByteSize(most);
            let message =
                format!("segment is {segment}; use a multiple of the block, {block}, up to {most}");
            return Err(ConfigError::at(text, &self.segment, message));
        }
        if !self.staging.get_ref().is_absolute() {
            let message = "staging is a relative path; use the absolute path of a directory";
            return Err(ConfigError::at(text, &self.staging, message));
        }
        let encoders = *self.encoders.get_ref();
        if !(1..=ENCODERS_MAX).contains(&encoders) {
            let message = format!("encoders is {encoders}; use 1 to {ENCODERS_MAX}");
            return Err(ConfigError::at(text, &self.encoders, message));
        }
        Ok(())
    }
}

impl MetricsConfig {
    fn check(&self, otlp: &OtlpDef) -> Result<(), ConfigError> {
        match self.listen {
            Some(own) if own.port() != 0 && otlp.listen.contains(&own) => Err(ConfigError::of(
                format!("[otlp] listen and [metrics] listen are both {own}; change one"),
            )),
            _ => Ok(()),
        }
    }
}

impl RetentionConfig {
    fn check(&self, text: &str, log: &LogConfig) -> Result<(), ConfigError> {
        let least = log.options().bytes_min();
        let least = least.map_err(|error| ConfigError::of(error.to_string()))?;
        match (&self.max_bytes, self.too_little(least)) {
            (Some(given), Some(message)) => Err(ConfigError::at(text, given, message)),
            _ => Ok(()),
        }
    }

    /// Refuses a rule whose window would lose records to retention.
    ///
    /// # Errors
    /// A sentence that names the rule.
    pub fn keeps(&self, rule: &RuleDef) -> Result<(), String> {
        let pinned = rule
            .pin
            .map_or(Duration::ZERO, |pin| pin.before + pin.after);
        match self.max_age {
            Some(age) if age.0 < pinned => Err(format!(
                "rule '{}': pin and pin_after are longer than [retention] max_age; lower them, or raise max_age",
                rule.name
            )),
            Some(age) if age.0 < rule.over => Err(format!(
                "rule '{}': over is longer than [retention] max_age; lower over, or raise max_age",
                rule.name
            )),
            _ => Ok(()),
        }
    }

    /// Says why `max_bytes` is impossible, if the files take at least `least` bytes.
    pub fn too_little(&self, least: u64) -> Option<String> {
        let given = self.max_bytes.as_ref()?.get_ref();
        (given.0 < least).then(|| {
            format!(
                "max_bytes is {given}, but the files being written and allocated take {}; raise it to that, or lower segment and block",
                ByteSize(least)
            )
        })
    }
}

impl ArchiveConfig {
    fn check(&self) -> Result<(), ConfigError> {
        let message = match &self.to {
            None if self.required => {
                "[archive] required is true and to is missing; give to the folder that 'ingestd archive' writes"
            }
            Some(to) if !to.is_absolute() => {
                "[archive] to is a relative path; use the absolute path of the archive"
            }
            _ => return Ok(()),
        };
        Err(ConfigError::of(message))
    }

    /// Whether retention must wait until this source is archived.
    pub fn requires(&self, source: &str) -> bool {
        let is_in = |names: &[String]| names.iter().any(|name| name == source);
        (self.sources.is_empty() || is_in(&self.sources)) && !is_in(&self.except)
    }

    /// The archive that retention must wait for.
    pub fn awaited(&self) -> Option<&Path> {
        self.to.as_deref().filter(|_| self.required)
    }
}

impl AccessConfig {
    /// The id of the group that may read.
    pub fn group_id(&self) -> Result<Option<u32>, String> {
        let Some(name) = self.group.as_ref().map(Spanned::get_ref) else {
            return Ok(None);
        };
        if let Ok(id) = name.parse() {
            return Ok(Some(id));
        }
        match uzers::get_group_by_name(name) {
            Some(group) => Ok(Some(group.gid())),
            None => Err(format!(
                "group '{name}' does not exist; create it, or change [access] group"
            )),
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        if self.socket == SocketAccess::Group && self.group.is_none() {
            let message =
                "[access] socket is \"group\", but no group is given; add group = \"NAME\"";
            return Err(ConfigError::of(message));
        }
        Ok(())
    }
}

impl ConfigError {
    fn of(message: impl Into<String>) -> ConfigError {
        ConfigError {
            line: None,
            message: message.into(),
        }
    }

    fn at<T>(text: &str, value: &Spanned<T>, message: impl Into<String>) -> ConfigError {
        ConfigError {
            line: Some(line_at(text, value.span().start)),
            message: message.into(),
        }
    }

    /// Splits a leading `line N: ` from the engine's message.
    fn numbered(error: &loom_engine::Error) -> ConfigError {
        let message = error.to_string();
        let split = message
            .strip_prefix("line ")
            .and_then(|rest| rest.split_once(": "));
        let split = split.and_then(|(line, rest)| Some((line.parse().ok()?, rest)));
        ConfigError {
            line: split.map(|(line, _)| line),
            message: one_line(split.map_or(&*message, |(_, rest)| rest)),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for ConfigError {}

/// The default folder of staging.
const SHARED_MEMORY: &str = "/dev/shm";

impl Default for LogConfig {
    fn default() -> Self {
        let unwritten = |bytes| Spanned::new(0..0, ByteSize(bytes));
        LogConfig {
            chunk: unwritten(64 << 10),
            block: unwritten(64 << 20),
            segment: unwritten(256 << 20),
            staging: Spanned::new(0..0, PathBuf::from(SHARED_MEMORY)),
            durability: DurabilityConfig::default(),
            encoders: Spanned::new(0..0, 1),
        }
    }
}

impl Default for DurabilityConfig {
    fn default() -> Self {
        DurabilityConfig::Interval(Duration::from_millis(500))
    }
}

impl Default for RetentionConfig {
    fn default() -> Self {
        RetentionConfig {
            max_bytes: None,
            max_age: None,
            pin_max_bytes: ByteSize(1 << 30),
            min_free: FreeSpace::Percent(5.0),
            on_full: OnFull::Evict,
        }
    }
}

impl Default for MetricsConfig {
    fn default() -> Self {
        MetricsConfig {
            listen: None,
            interval: Span(Duration::from_secs(10)),
        }
    }
}

/// Parses an address that only this machine can reach.
fn loopback<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(from)?;
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(Some(address)),
        _ => Err(de::Error::custom(format!(
            "'{text}' is not a loopback address with a port; use 127.0.0.1:9464"
        ))),
    }
}

impl<'de> Deserialize<'de> for DurabilityConfig {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        match text.as_str() {
            "none" => Ok(DurabilityConfig::None),
            "batch" => Ok(DurabilityConfig::Batch),
            interval => match interval.parse() {
                Ok(Span(interval)) if !interval.is_zero() => {
                    Ok(DurabilityConfig::Interval(interval))
                }
                _ => Err(de::Error::custom(format!(
                    "'{text}' is not a durability; use a duration such as 500ms, \"none\" or \"batch\""
                ))),
            },
        }
    }
}

/// The line, from 1, of a position in the text.
fn line_at(text: &str, offset: usize) -> usize {
    1 + text
        .bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
}

fn one_line(message: &str) -> String {
    message.trim_end().replace('\n', "; ")
}

#[cfg(test)]
mod tests {
    use super::super::EXAMPLE;
    use super::*;

    fn refused(from: &str, to: &str) -> ConfigError {
        assert!(EXAMPLE.contains(from), "{from}");
        Config::parse(&EXAMPLE.replace(from, to)).unwrap_err()
    }

    #[test]
    fn what_is_not_given_has_the_documented_default() {
        let written = Config::parse(EXAMPLE).unwrap();
        let empty = Config::parse("").unwrap();
        assert_eq!(written.log.options(), empty.log.options());
        assert_eq!(empty.log.options(), LogOptions::default());
        assert_eq!(empty.retention.max_bytes, None);
        assert_eq!(empty.retention.max_age, None);
        let max_bytes = written.retention.max_bytes.unwrap();
        assert_eq!(max_bytes.into_inner(), ByteSize(50 << 30));
        assert_eq!(empty.metrics.listen, None);
        assert_eq!(written.retention.min_free, empty.retention.min_free);
        assert_eq!(written.retention.on_full, OnFull::Evict);
        assert_eq!(empty.access, AccessConfig::default());
        let names: Vec<&str> = written.sources.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["redis_request", "logs", "spans"]);
    }

    #[test]
    fn many_sources_have_longer_chunks_unless_a_chunk_is_given() {
        let chunk_bytes = |log: &str, sources: usize| {
            let sources = (0..sources).map(|n| format!("[[source]]\nname = 's{n}'\n"));
            let text = format!("[log]\n{log}\n{}", sources.collect::<String>());
            Config::parse(&text).unwrap().log_options().chunk_bytes
        };
        let found = [0, 64, 65, 1000, 5000].map(|sources| chunk_bytes("", sources) >> 10);
        assert_eq!(found, [64, 64, 128, 1024, 1024]);
        assert_eq!(chunk_bytes("chunk = '64KiB'", 1000), 64 << 10);
        assert_eq!(chunk_bytes("block = '2MiB'", 1000), 128 << 10);
        let targets = |count: usize| {
            let targets: Vec<String> = (0..count).map(|n| format!("'h{n}:9100'")).collect();
            let targets = targets.join(", ");
            chunk_bytes(&format!("[[scrape]]\njob = 'a'\ntargets = [{targets}]"), 10)
        };
        assert_eq!([54, 55, 1000].map(targets), [64 << 10, 128 << 10, 1 << 20]);
    }

    #[test]
    fn other_values_are_taken_over() {
        let text = "[log]\nchunk = '16KiB'\nblock = '1MiB'\nsegment = '256MiB'\nstaging = '/tmp'\ndurability = 'batch'\nencoders = 2\n\
                    [retention]\nmin_free = '10GiB'\non_full = 'refuse'\n[access]\ngroup = 'staff'\nsocket = 'group'";
        let config = Config::parse(text).unwrap();
        let options = config.log.options();
        assert_eq!(
            (options.chunk_bytes, options.block_bytes),
            (16 << 10, 1 << 20)
        );
        assert_eq!(options.segment_bytes.records, 256 << 20);
        assert_eq!(options.staging.as_deref(), Some(Path::new("/tmp")));
        assert_eq!(
            (options.durability, options.encoders),
            (Durability::Batch, 2)
        );
        assert_eq!(config.retention.min_free, FreeSpace::Bytes(10 << 30));
        assert_eq!(config.retention.on_full, OnFull::Refuse);
        assert_eq!(config.access.group.unwrap().get_ref(), "staff");
        assert_eq!(config.access.socket, SocketAccess::Group);
    }

    #[test]
    fn each_mistake_is_named_with_its_line() {
        for (from, to, word) in [
            ("chunk = \"64KiB\"", "chnk = 1", "chnk"),
            ("[retention]", "[retain]", "retain"),
            ("chunk = \"64KiB\"", "chunk = \"64 kilo\"", "not a size"),
            ("chunk = \"64KiB\"", "chunk = \"60KiB\"", "power of two"),
            ("chunk = \"64KiB\"", "chunk = 64", "string"),
            ("block = \"64MiB\"", "block = \"4KiB\"", "power of two"),
            ("staging = \"/dev/shm\"", "staging = \"shm\"", "absolute"),
            (
                "durability = \"500ms\"",
                "durability = \"soon\"",
                "not a durability",
            ),
            (
                "durability = \"500ms\"",
                "durability = \"0ms\"",
                "not a durability",
            ),
            ("encoders = 1", "encoders = 0", "use 1 to 4"),
            ("encoders = 1", "encoders = 5", "use 1 to 4"),
            (
                "max_bytes = \"50GiB\"",
                "max_bytes = \"50\u{20ac}\"",
                "not a size",
            ),
            ("max_bytes = \"50GiB\"", "max_bytes = \"1\"", "raise it to"),
            ("max_bytes = \"50GiB\"", "max_bytes = \"583MiB\"", "584MiB"),
            (
                "max_age = \"24h\"",
                "max_age = \"1 fortnight\"",
                "not a duration",
            ),
            ("min_free = \"5%\"", "min_free = \"500%\"", "0%"),
            ("on_full = \"evict\"", "on_full = \"erase\"", "erase"),
            ("time = \"arrival\"", "time = \"departure\"", "departure"),
            ("on_full = \"evict\"", "on_full = ", ""),
        ] {
            named_in_line_of(from, from, to, word);
        }
        // An error in a source has the line of its table.
        for (place, from, to, word) in [
            (
                "[[source]]",
                "name = \"redis_request\"",
                "name = \"loom_x\"",
                "built in",
            ),
            ("[[source.index]]", "op = 'SET'", "op = 'DEL'", "DEL"),
        ] {
            named_in_line_of(place, from, to, word);
        }
    }

    /// Checks that a mistake is reported with the line of `place` and with a word.
    fn named_in_line_of(place: &str, from: &str, to: &str, word: &str) {
        let line = line_at(EXAMPLE, EXAMPLE.find(&format!("\n{place}")).unwrap() + 1);
        let error = refused(from, to);
        assert_eq!(error.line, Some(line), "{from} -> {to}: {error}");
        assert!(error.message.contains(word), "{from} -> {to}: {error}");
        assert!(!error.message.contains('\n'), "{error}");
    }

    // G13
    #[test]
    fn the_least_that_can_be_retained_shrinks_with_the_segments() {
        let config = |segment: &str, max_bytes: &str| {
            Config::parse(&format!(
                "[log]\nchunk = '4KiB'\nblock = '64KiB'\nsegment = '{segment}'\n[retention]\nmax_bytes = '{max_bytes}'\n"
            ))
        };
        // This is two segments of the record log, two of 128 KiB of the chunk index, and one with two blocks of the timestamp index.
        let least = 2048 + 256 + 192;
        assert!(config("1MiB", &format!("{least}KiB")).is_ok());
        let error = config("1MiB", &format!("{}KiB", least - 1)).unwrap_err();
        assert!(error.message.contains(&format!("{least}KiB")), "{error}");
        assert!(config("64KiB", "1MiB").is_ok());
        let of = |segment| config(segment, "1TiB").unwrap().log.options().segment_bytes;
        assert_eq!(of("4GiB"), [4 << 30, 32 << 20, 4 << 20].into());
        assert_eq!(of("192KiB"), [192 << 10, 64 << 10, 64 << 10].into());
    }

    #[test]
    fn an_archive_that_is_required_has_a_place() {
        let parse = |text: &str| Config::parse(&format!("[archive]\n{text}\n"));
        let awaited = |text: &str| parse(text).unwrap().archive.awaited().map(Path::to_owned);
        assert_eq!(awaited("to = '/a'\nrequired = true"), Some("/a".into()));
        assert_eq!(awaited("to = '/a'"), None);
        let requires = |text: &str| {
            let archive = parse(text).unwrap().archive;
            ["a", "b", "loom_x"].map(|name| archive.requires(name))
        };
        assert_eq!(requires(""), [true, true, true]);
        assert_eq!(requires("except = ['a', 'loom_x']"), [false, true, false]);
        assert_eq!(requires("sources = ['a', 'b']"), [true, true, false]);
        assert_eq!(
            requires("sources = ['a', 'b']\nexcept = ['a']"),
            [false, true, false]
        );
        for (text, word) in [
            ("required = true", "to is missing"),
            ("to = 'a'", "relative path"),
            ("until = 1", "until"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.message.contains(word), "{error}");
        }
    }

    #[test]
    fn segments_are_whole_blocks() {
        let error = Config::parse("[log]\nsegment = '100MiB'\n").unwrap_err();
        assert_eq!(error.line, Some(2));
        assert!(error.message.contains("multiple of the block"), "{error}");
        let of = |chunk| {
            Config::parse(&format!(
                "[log]\nchunk = '{chunk}'\nsegment = '128GiB'\n[retention]\nmax_bytes = '1TiB'\n"
            ))
        };
        assert!(of("8KiB").is_ok());
        let error = of("4KiB").unwrap_err();
        assert!(error.message.contains("up to 64GiB"), "{error}");
    }

    #[test]
    fn metrics_are_served_on_loopback_alone() {
        let config =
            Config::parse("[metrics]\nlisten = '127.0.0.1:9464'\ninterval = '0s'\n").unwrap();
        assert_eq!(config.metrics.listen.unwrap().port(), 9464);
        assert!(config.metrics.interval.0.is_zero());
        for wrong in ["0.0.0.0:9464", "127.0.0.1", "localhost:80"] {
            let error = Config::parse(&format!("\n[metrics]\nlisten = '{wrong}'\n")).unwrap_err();
            assert_eq!(error.line, Some(3), "{error}");
            assert!(error.message.contains("loopback"), "{error}");
        }
    }

    #[test]
    fn a_socket_for_the_group_needs_one() {
        assert!(Config::parse("[access]\nsocket = 'group'").is_err());
    }
}
