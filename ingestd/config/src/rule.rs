//! `[[rule]]`: a condition over a window that a daemon watches, and its action.
//!
//! A rule with a program or a webhook comes from a configuration file only; rules that clients add have neither.

use std::time::Duration;

use loom_engine::schema::{FieldDef, FieldType, check_name};
use serde::{Deserialize, Deserializer};

use super::scrape::TlsDef;
use super::table::table;
use super::units::{Span, Unit};
use super::when::When;

/// The limit of rules.
pub const RULES_MAX: usize = 1000;
/// The shortest interval of evaluations.
const EVERY_MIN: Duration = Duration::from_millis(10);
const OVER_MAX: Duration = Duration::from_secs(7 * 86_400);
const PIN_MAX: Duration = Duration::from_secs(3600);

/// One valid rule. The directory decides whether its source and index exist.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleDef {
    pub name: String,
    pub source: String,
    /// The index whose values are aggregated; its filter applies.
    pub index: String,
    pub when: When,
    /// The unit of the values; `None` uses the end of the field's name, if the condition has a duration.
    pub unit: Option<Unit>,
    /// The length of the window.
    pub over: Duration,
    /// The time from the end of a window to the end of the next.
    pub every: Duration,
    /// The time for which the condition must hold before the rule fires.
    pub hold: Duration,
    pub action: Option<Action>,
    pub pin: Option<PinSpan>,
}

/// The times before and after the end of the firing window for which records are kept.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct PinSpan {
    pub before: Duration,
    pub after: Duration,
}

/// The action when a rule begins to fire, and when it ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A program and its arguments.
    Run(Vec<String>),
    Webhook(Webhook),
}

/// An address that gets the alert as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub address: String,
    pub tls: Option<TlsDef>,
}

/// A rule as written in TOML.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    name: String,
    source: String,
    index: String,
    when: When,
    unit: Option<Unit>,
    over: Span,
    every: Option<Span>,
    hold: Option<Span>,
    run: Option<Vec<String>>,
    webhook: Option<String>,
    tls: Option<TlsDef>,
    pin: Option<Span>,
    pin_after: Option<Span>,
}

impl<'de> Deserialize<'de> for RuleDef {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        table::<Written, _, _>(from)
    }
}

impl TryFrom<Written> for RuleDef {
    type Error = String;

    fn try_from(written: Written) -> Result<RuleDef, String> {
        check_name("rule", &written.name).map_err(|error| error.to_string())?;
        let wrong = |why: &str| Err(format!("rule '{}': {why}", written.name));
        let over = written.over.0;
        let every = written.every.map(|every| every.0);
        let every = every.unwrap_or_else(|| (over / 10).max(EVERY_MIN));
        let hold = written.hold.map_or(Duration::ZERO, |hold| hold.0);
        if over < EVERY_MIN {
            return wrong("over, the length of the window, is less than 10ms; use 10s");
        }
        if every < EVERY_MIN {
            return wrong("every is less than 10ms; use 10ms or more");
        }
        if every > over {
            return wrong(
                "every is longer than over, so that records would be in no window; raise over, or lower every",
            );
        }
        if over > OVER_MAX || hold > OVER_MAX {
            return wrong("over or hold is longer than 7d; lower it");
        }
        let pin = match (written.pin, written.pin_after) {
            (None, Some(_)) => return wrong("pin_after has no pin; add pin = \"30s\""),
            (None, None) => None,
            (Some(before), after) => Some(PinSpan {
                before: before.0,
                after: after.map_or(Duration::ZERO, |after| after.0),
            }),
        };
        if pin.is_some_and(|pin| pin.before.is_zero() || pin.before.max(pin.after) > PIN_MAX) {
            return wrong("pin is 0s, or pin or pin_after longer than 1h; use 30s");
        }
        let has_tls = written
            .webhook
            .as_ref()
            .map(|url| url.starts_with("https://"));
        if written.tls.is_some() && has_tls != Some(true) {
            return wrong("tls has no webhook that begins with https://; add one, or remove tls");
        }
        let action = match (&written.run, &written.webhook) {
            (Some(_), Some(_)) => return wrong("it has both run and webhook; use two rules"),
            (Some(words), None) => {
                let is_absolute = words
                    .first()
                    .is_some_and(|program| program.starts_with('/'));
                if !is_absolute || words.iter().any(|word| word.contains('\0')) {
                    return wrong(
                        "run does not begin with the absolute path of a program; use [\"/usr/local/bin/page\", \"{rule}\"]",
                    );
                }
                Some(Action::Run(words.clone()))
            }
            (None, Some(address)) if has_tls == Some(false) && !address.starts_with("http://") => {
                return wrong(&format!(
                    "webhook '{address}' does not begin with http:// or https://; use http://127.0.0.1:8080/alert"
                ));
            }
            (None, Some(address)) => Some(Action::Webhook(Webhook {
                address: address.clone(),
                tls: written.tls,
            })),
            (None, None) => None,
        };
        Ok(RuleDef {
            over,
            every,
            hold,
            action,
            pin,
            name: written.name,
            source: written.source,
            index: written.index,
            when: written.when,
            unit: written.unit,
        })
    }
}

impl RuleDef {
    /// The unit of a field's values, if the condition has a duration.
    ///
    /// # Errors
    /// The condition has a duration, and the unit is unknown.
    pub fn unit_of(&self, field: Option<&FieldDef>) -> Result<Option<Unit>, String> {
        let Some(duration) = self.when.duration() else {
            return Ok(None);
        };
        let of_name = field.and_then(|field| Unit::of_field(&field.name));
        let is_time = field.is_some_and(|field| field.ty == FieldType::TimestampNs);
        if let Some(unit) = self.unit.or(of_name)
            && !is_time
        {
            return Ok(Some(unit));
        }
        let RuleDef { name, index, .. } = self;
        let duration = humantime::format_duration(duration);
        let of = field.map_or(String::new(), |field| format!(" ({})", field.name));
        Err(match is_time {
            true => format!(
                "rule '{name}': {duration} is a duration, and the values of index '{index}'{of} are times; compare them with a plain number of nanoseconds"
            ),
            false => format!(
                "rule '{name}': {duration} is a duration, and the unit of the values of index '{index}'{of} is not known; add unit = \"us\" (or ns, ms, s) to the rule, or compare with a plain number"
            ),
        })
    }

    /// The definition in a form that is equal if and only if the same records cause the same alerts.
    pub fn definition(&self) -> String {
        let RuleDef {
            source,
            index,
            when,
            ..
        } = self;
        let [over, every, hold] =
            [self.over, self.every, self.hold].map(humantime::format_duration);
        let unit = self
            .unit
            .map_or(String::new(), |unit| format!(" in {unit}"));
        format!("{source}.{index}: {when}{unit} over {over} every {every} hold {hold}")
    }
}

/// Refuses rules with equal names, and too many rules.
///
/// # Errors
/// A sentence that names the rule.
pub fn check_rules<'a>(rules: impl Iterator<Item = &'a RuleDef> + Clone) -> Result<(), String> {
    let mut names: Vec<&str> = rules.map(|rule| rule.name.as_str()).collect();
    names.sort_unstable();
    if names.len() > RULES_MAX {
        return Err(format!(
            "there are {} rules; the limit is {RULES_MAX}",
            names.len()
        ));
    }
    let mut pairs = names.iter().zip(names.iter().skip(1));
    match pairs.find(|(one, next)| one == next) {
        Some((name, _)) => Err(format!("two rules have the name '{name}'; rename one")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const SLOW: &str =
        "name = 'slow'\nsource = 'redis'\nindex = 'latency'\nwhen = 'p99_99 > 5ms'\nover = '10s'\n";

    fn parse(more: &str) -> Result<super::RuleDef, String> {
        let parsed = Config::parse(&format!("\n[[rule]]\n{SLOW}{more}\n"));
        let mut config = parsed.map_err(|error| error.to_string())?;
        Ok(config.rules.remove(0))
    }

    #[test]
    fn a_rule_is_evaluated_ten_times_a_window_unless_it_says_otherwise() {
        let rule = parse("").unwrap();
        assert_eq!((rule.every.as_millis(), rule.hold.as_nanos()), (1000, 0));
        assert_eq!(parse("every = '50ms'").unwrap().every.as_millis(), 50);
        assert_eq!(
            rule.definition(),
            "redis.latency: p99_99 > 5ms over 10s every 1s hold 0s"
        );
    }

    #[test]
    fn each_mistake_is_named_with_its_line() {
        for (more, word) in [
            ("every = '1ms'", "every is less than 10ms"),
            ("every = '11s'", "longer than over"),
            ("hold = '8d'", "longer than 7d"),
            ("pin_after = '1s'", "pin_after has no pin"),
            ("pin = '2h'", "longer than 1h"),
            ("run = []", "absolute path"),
            ("run = ['page']", "absolute path"),
            ("webhook = 'ftp://x'", "http:// or https://"),
            ("webhook = 'http://x'\ntls = {}", "begins with https://"),
            ("tls = { ca = '/ca' }", "begins with https://"),
            (
                "run = ['/bin/true']\nwebhook = 'http://x'",
                "both run and webhook",
            ),
            ("unit = 'min'", "unknown variant"),
            ("hue = 1", "unknown field"),
        ] {
            let error = parse(more).unwrap_err();
            assert!(
                error.starts_with("line ") && error.contains(word),
                "{more}: {error}"
            );
        }
        let when = Config::parse("[[rule]]\nname = 'x'\nwhen = 'p99 is high'\n").unwrap_err();
        assert_eq!(when.line, Some(3), "{when}");
        let short = SLOW.replace("'10s'", "'0s'");
        let error = Config::parse(&format!("[[rule]]\n{SLOW}\n[[rule]]\n{short}")).unwrap_err();
        assert_eq!(error.line, Some(8), "the second rule is meant: {error}");
        assert!(error.message.contains("over, the length"), "{error}");
    }

    #[test]
    fn a_duration_has_the_unit_of_the_field_or_of_the_rule() {
        let unit = |more: &str, name: &str, ty| {
            let field = FieldDef::new(name, ty);
            parse(more).unwrap().unit_of(Some(&field))
        };
        assert_eq!(unit("", "took_us", FieldType::U64), Ok(Some(Unit::Us)));
        assert_eq!(
            unit("unit = 's'", "took", FieldType::F64),
            Ok(Some(Unit::S))
        );
        assert_eq!(
            unit("unit = 'ms'", "bytes_s", FieldType::U64),
            Ok(Some(Unit::Ms))
        );
        for (name, ty, words) in [
            (
                "took",
                FieldType::U64,
                ["5ms is a duration", "unit = \"us\""],
            ),
            (
                "end_ns",
                FieldType::TimestampNs,
                ["5ms is a duration", "are times"],
            ),
        ] {
            let error = unit("", name, ty).unwrap_err();
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
        let named = parse("unit = 'us'").unwrap().definition();
        assert!(named.contains("p99_99 > 5ms in us over"), "{named}");
    }

    #[test]
    fn two_rules_have_two_names_and_a_window_fits_the_retention() {
        let twice = format!("[[rule]]\n{SLOW}[[rule]]\n{SLOW}");
        let error = Config::parse(&twice).unwrap_err().to_string();
        assert!(error.contains("two rules have the name 'slow'"), "{error}");
        let short = format!("[retention]\nmax_age = '5s'\n[[rule]]\n{SLOW}");
        let error = Config::parse(&short).unwrap_err().to_string();
        assert!(error.contains("longer than [retention] max_age"), "{error}");
    }
}
