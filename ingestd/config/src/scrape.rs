//! `[[scrape]]`: the targets from which a daemon fetches metrics.
//!
//! A target is `host:port` or an address with a path; its instance is `host:port`, as in Prometheus.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::table::table;
use super::units::{ByteSize, Span};

/// The limit of targets, because each has a thread.
pub const TARGETS_MAX: usize = 1000;
const EVERY_MIN: Duration = Duration::from_millis(100);
const EVERY_MAX: Duration = Duration::from_secs(3600);
/// The default time limit, unless `every` is shorter.
const TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const SERIES_MAX: usize = 100_000;
pub(super) const BODY_MAX: ByteSize = ByteSize(1 << 30);
/// The longest name of a job and of an instance, which are parts of source names.
const PART_BYTES_MAX: usize = 100;

/// One job: targets with the same settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScrapeDef {
    pub job: String,
    pub targets: Vec<Target>,
    pub every: Duration,
    pub timeout: Duration,
    /// Labels besides `job` and `instance`.
    pub labels: BTreeMap<String, String>,
    /// The file of a bearer token, read for each scrape.
    pub bearer_file: Option<PathBuf>,
    pub basic_auth: Option<BasicAuthDef>,
    /// Labels from the target replace those of the configuration.
    pub honor_labels: bool,
    /// Samples have the times from the target.
    pub honor_timestamps: bool,
    pub tls: Option<TlsDef>,
    /// The limit of a target's series in one scrape, and of its new series in a day.
    pub series_max: usize,
    /// The limit of an answer in bytes.
    pub body_bytes_max: u64,
}

/// One target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub url: String,
    pub instance: String,
}

/// The name and password of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicAuthDef {
    pub username: String,
    /// The file is read for each scrape, so that the configuration does not contain the password.
    pub password_file: PathBuf,
}

/// PEM files for TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TlsDef {
    /// The trusted authority; `None` for those of the machine.
    pub ca: Option<PathBuf>,
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    job: String,
    targets: Vec<String>,
    every: Option<Span>,
    timeout: Option<Span>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    bearer_file: Option<PathBuf>,
    basic_auth: Option<BasicAuthDef>,
    #[serde(default)]
    honor_labels: bool,
    honor_timestamps: Option<bool>,
    tls: Option<TlsDef>,
    series_max: Option<usize>,
    body_max: Option<ByteSize>,
}

impl<'de> Deserialize<'de> for ScrapeDef {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        table::<Written, _, _>(from)
    }
}

impl TryFrom<Written> for ScrapeDef {
    type Error = String;

    fn try_from(written: Written) -> Result<ScrapeDef, String> {
        let job = written.job;
        if !is_part(&job) {
            return Err(format!(
                "job '{}' is not a name of up to {PART_BYTES_MAX} bytes without '/' and control characters; use letters",
                job.escape_debug()
            ));
        }
        let of_job = |why: &str| format!("job '{job}': {why}");
        let wrong = |why: &str| Err(of_job(why));
        let every = written
            .every
            .map_or(Duration::from_secs(15), |every| every.0);
        let timeout = written
            .timeout
            .map_or(TIMEOUT.min(every), |timeout| timeout.0);
        if !(EVERY_MIN..=EVERY_MAX).contains(&every) {
            return wrong("every is not from 100ms to 1h; use 15s");
        }
        if timeout.is_zero() || timeout > every {
            return wrong("timeout is 0s or longer than every; use a shorter one");
        }
        if let Some(label) = written.labels.keys().find(|label| !is_free_label(label)) {
            return wrong(&format!(
                "'{}' cannot be a label; use letters, digits and _, and not job, instance or __ in front",
                label.escape_debug()
            ));
        }
        let series_max = written.series_max.unwrap_or(10_000);
        if !(1..=SERIES_MAX).contains(&series_max) {
            return wrong("series_max is not from 1 to 100000; use 10000");
        }
        let body_max = written.body_max.unwrap_or(ByteSize(16 << 20));
        if body_max.0 == 0 || body_max > BODY_MAX {
            return wrong("body_max is 0 or more than 1GiB; use 16MiB");
        }
        let tls = written.tls.as_ref();
        if tls.is_some_and(|tls| tls.cert.is_some() != tls.key.is_some()) {
            return wrong("tls has one of cert and key; give both");
        }
        if let Some(BasicAuthDef { username, .. }) = &written.basic_auth {
            if written.bearer_file.is_some() {
                return wrong("it has bearer_file and basic_auth; give one of them");
            }
            if username.is_empty() || username.contains(|c: char| c == ':' || c.is_control()) {
                return wrong(
                    "the username of basic_auth is empty or has a ':' or a control character; use another one",
                );
            }
        }
        if written.targets.is_empty() {
            return wrong("targets is empty; give host:port, or remove the job");
        }
        let scheme = if written.tls.is_some() {
            "https"
        } else {
            "http"
        };
        let targets = written.targets.iter().map(|target| {
            Target::parse(target, scheme).ok_or_else(|| {
                of_job(&format!(
                    "'{}' is not a target; use host:port, or http://host:port/path",
                    target.escape_debug()
                ))
            })
        });
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let in_clear = |target: &&Target| target.url.starts_with("http:");
        if written.tls.is_some()
            && let Some(target) = targets.iter().find(in_clear)
        {
            return wrong(&format!(
                "it has tls, and the target '{}' would be asked without; write https://, or give it a job of its own",
                target.url
            ));
        }
        Ok(ScrapeDef {
            targets,
            every,
            timeout,
            labels: written.labels,
            bearer_file: written.bearer_file,
            basic_auth: written.basic_auth,
            honor_labels: written.honor_labels,
            honor_timestamps: written.honor_timestamps.unwrap_or(true),
            tls: written.tls,
            series_max,
            body_bytes_max: body_max.0,
            job,
        })
    }
}

impl Target {
    /// Parses `host:port` or an address.
    fn parse(text: &str, scheme: &str) -> Option<Target> {
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
            Some(_) => return None,
            None => (scheme, text),
        };
        let (host, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/metrics"),
        };
        let bare = host.rsplit_once(']').map_or(host, |(_, port)| port);
        let instance = match (bare.contains(':'), scheme) {
            (true, _) => host.to_owned(),
            (false, "https") => format!("{host}:443"),
            (false, _) => format!("{host}:80"),
        };
        let (name, port) = instance.rsplit_once(':')?;
        let is_sound = !name.is_empty()
            && port.parse::<u16>().is_ok_and(|port| port > 0)
            && is_part(&instance)
            && !instance.contains(['@', '#', ' '])
            && !path.contains(|c: char| c.is_control() || c == ' ');
        is_sound.then(|| Target {
            url: format!("{scheme}://{instance}{path}"),
            instance,
        })
    }
}

/// Whether a text can be a part of a source's name, between slashes.
fn is_part(text: &str) -> bool {
    let is_short = (1..=PART_BYTES_MAX).contains(&text.len());
    is_short && !text.contains(|c: char| c == '/' || c.is_control())
}

fn is_free_label(label: &str) -> bool {
    let is_name = label
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let begins = label.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    is_name && begins && !label.starts_with("__") && !matches!(label, "job" | "instance")
}

/// Checks the jobs together.
///
/// # Errors
/// A sentence that names the job.
pub fn check_scrapes(scrapes: &[ScrapeDef]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    for scrape in scrapes {
        for target in &scrape.targets {
            if !seen.insert((&scrape.job, &target.instance)) {
                return Err(format!(
                    "job '{}' has the target {} twice; remove one, or give it a job of its own",
                    scrape.job, target.instance
                ));
            }
        }
    }
    if seen.len() > TARGETS_MAX {
        return Err(format!(
            "there are {} targets; the limit is {TARGETS_MAX}",
            seen.len()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn parse(text: &str) -> Result<Vec<ScrapeDef>, String> {
        let parsed = Config::parse(&format!("[[scrape]]\n{text}\n"));
        parsed
            .map(|config| config.scrapes)
            .map_err(|error| error.message)
    }

    // case Metrics: the configuration
    #[test]
    fn a_target_is_a_host_or_an_address() {
        let of = |text: &str| {
            let target = Target::parse(text, "http")?;
            Some(format!("{} {}", target.url, target.instance))
        };
        for (text, wanted) in [
            (
                "127.0.0.1:9100",
                "http://127.0.0.1:9100/metrics 127.0.0.1:9100",
            ),
            ("web-1", "http://web-1:80/metrics web-1:80"),
            ("[::1]:9100", "http://[::1]:9100/metrics [::1]:9100"),
            ("[::1]", "http://[::1]:80/metrics [::1]:80"),
            ("https://a/b?c=d", "https://a:443/b?c=d a:443"),
            ("http://a:1?c", "http://a:1?c a:1"),
        ] {
            assert_eq!(of(text).as_deref(), Some(wanted), "{text}");
        }
        for wrong in [
            "",
            ":9100",
            "a:0",
            "a:x",
            "a:70000",
            "ftp://a",
            "u:p@a:1",
            "a b:1",
            "http:///x",
        ] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_not_given_has_the_documented_default() {
        let [scrape] = parse("job = 'node'\ntargets = ['a:1']")
            .unwrap()
            .try_into()
            .unwrap();
        let ScrapeDef {
            every,
            timeout,
            series_max,
            body_bytes_max,
            ..
        } = scrape;
        assert_eq!((every.as_secs(), timeout.as_secs()), (15, 10));
        assert_eq!((series_max, body_bytes_max), (10_000, 16 << 20));
        let short = parse("job = 'node'\ntargets = ['b:1']\nevery = '1s'").unwrap();
        assert_eq!(short[0].timeout.as_secs(), 1);
        let tls = parse("job = 'n'\ntargets = ['a:1']\ntls = {}").unwrap();
        assert_eq!(tls[0].targets[0].url, "https://a:1/metrics");
    }

    // case Metrics: the configuration
    #[test]
    fn each_mistake_is_named() {
        for (text, word) in [
            ("job = 'a/b'\ntargets = ['b:1']", "not a name"),
            ("job = 'a'\ntargets = []", "targets is empty"),
            (
                "job = 'a'\ntargets = ['b:1']\nbearer_file = '/t'\nbasic_auth = { username = 'u', password_file = '/p' }",
                "give one of them",
            ),
            (
                "job = 'a'\ntargets = ['b:1']\nbasic_auth = { username = 'u:v', password_file = '/p' }",
                "the username of basic_auth",
            ),
            ("job = 'a'\ntargets = ['x:y']", "'x:y' is not a target"),
            ("job = 'a'\ntargets = ['a:1', 'http://a:1/x']", "a:1 twice"),
            (
                "job = 'a'\ntargets = ['b:1']\nevery = '10ms'",
                "every is not",
            ),
            (
                "job = 'a'\ntargets = ['b:1']\ntimeout = '16s'",
                "longer than every",
            ),
            (
                "job = 'a'\ntargets = ['b:1']\nlabels = { job = 'x' }",
                "cannot be a label",
            ),
            (
                "job = 'a'\ntargets = ['b:1']\nlabels = { 'a-b' = 'x' }",
                "cannot be a label",
            ),
            ("job = 'a'\ntargets = ['b:1']\nseries_max = 0", "series_max"),
            (
                "job = 'a'\ntargets = ['b:1']\nbody_max = '2GiB'",
                "body_max",
            ),
            (
                "job = 'a'\ntargets = ['b:1']\ntls = { cert = '/x' }",
                "give both",
            ),
            (
                "job = 'a'\ntargets = ['a:1', 'http://b:1']\ntls = {}",
                "'http://b:1/metrics' would be asked without",
            ),
            ("job = 'a'\ntargets = ['b:1']\ntimeouts = '1s'", "timeouts"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        let many: Vec<String> = (0..=TARGETS_MAX).map(|n| format!("'a{n}:1'")).collect();
        let many = format!("job = 'a'\ntargets = [{}]", many.join(","));
        assert!(parse(&many).unwrap_err().contains("the limit is 1000"));
    }
}
