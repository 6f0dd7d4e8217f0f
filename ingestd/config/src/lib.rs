//! The daemon's configuration: TOML in which every key has a default and an unknown key is an error with its line.
//!
//! `ingestd` starts with it and validates it, and the fuzzer reads anything as one; producers do not link it.

mod config;
mod keys;
mod otlp;
mod rule;
mod scrape;
mod table;
mod units;
mod when;

pub use config::{
    AccessConfig, ArchiveConfig, Compact, Config, ConfigError, DurabilityConfig, LogConfig,
    MetricsConfig, OnFull, RetentionConfig, SocketAccess,
};
pub use keys::{Key, KeyDefault, KeyTable, key_tables};
pub use otlp::{LOGS_SOURCE, OtlpDef, Promote, SEVERITIES, SPANS_SOURCE};
pub use rule::{Action, PinSpan, RULES_MAX, RuleDef, Webhook, check_rules};
pub use scrape::{BasicAuthDef, ScrapeDef, TARGETS_MAX, Target, TlsDef, check_scrapes};
pub use units::{ByteSize, FreeSpace, Span, Unit};
pub use when::{Shown, When, Window};

/// A configuration with every key, described in comments. The values are the defaults where there are any, and examples elsewhere.
pub const EXAMPLE: &str = include_str!("example.toml");
