//! The daemon's configuration in TOML. Every key has a default unless it is required, and an unknown key is an error with its line.
//!
//! `ingestd` and the fuzzer read it; producers do not link it.

mod config;
mod keys;
mod otlp;
mod rule;
mod scrape;
mod table;
mod units;
mod when;

pub use config::{
    AccessConfig, ArchiveConfig, Config, ConfigError, DurabilityConfig, LogConfig, MetricsConfig,
    OnFull, RetentionConfig, SocketAccess,
};
pub use keys::{Key, KeyDefault, KeyTable, key_tables};
pub use otlp::{LOGS_SOURCE, OtlpDef, Promote, SEVERITIES, SPANS_SOURCE, own_fields};
pub use rule::{Action, PinSpan, RULES_MAX, RuleDef, Webhook, check_rules};
pub use scrape::{BasicAuthDef, ScrapeDef, TARGETS_MAX, Target, TlsDef, check_scrapes};
pub use units::{ByteSize, FreeSpace, Span, Unit};
pub use when::{Shown, When, Window};

/// A configuration with every key, described in comments. The values are the defaults if there are any, and examples otherwise.
pub const EXAMPLE: &str = include_str!("example.toml");
