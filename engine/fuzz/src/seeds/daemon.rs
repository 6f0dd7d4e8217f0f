//! What the daemon alone reads: its configuration, and losses that are not records yet.

use std::fmt::Write;

use super::{Seeds, seed};

pub fn all() -> Vec<(&'static str, Seeds)> {
    let configurations = [configurations(), scrapes()].concat();
    vec![("configuration", configurations)]
}

const SOUND: &str = r#"[log]
chunk = "64KiB"
block = "1MiB"
segment = "16 MiB"
staging = "/dev/shm"
durability = "1.5s"
[retention]
max_bytes = "50GB"
max_age = "7d"
min_free = "2.5%"
on_full = "refuse"
[access]
group = "telemetry"
socket = "group"
[metrics]
listen = "[::1]:9464"
interval = "500ms"
[[source]]
name = "s"
[[rule]]
name = "r"
source = "s"
index = "i"
when = "p99_99 > 5ms AND count >= 10 OR avg <> 1.5"
over = "10s"
hold = "1s"
run = ["/bin/true", "{rule}"]
[[scrape]]
job = "node"
targets = ["127.0.0.1:9100", "https://[::1]/metrics?a=b"]
every = "1s"
labels = { env = "test" }
tls = { ca = "/ca", cert = "/cert", key = "/key" }
"#;

/// A rule, less its condition and window.
const RULE: &str = "[[rule]]\nname = 'r'\nsource = 's'\nindex = 'i'\n";

fn configurations() -> Seeds {
    [
        ("sound", SOUND),
        ("empty", ""),
        (
            "plain",
            "log.durability = 'none'\nretention.min_free = '10GiB'",
        ),
        ("batch", "log.durability = 'batch'"),
        (
            "sizes",
            "64KiB 1.5TiB 10kB 0 1.1B 18446744073709551615B 9ns",
        ),
        ("unknown_key", "log.colour = 'red'"),
        ("chunk", "log.chunk = '60KiB'"),
        ("block", "log.block = '2GiB'"),
        ("segment", "log.segment = '65MiB'"),
        ("staging", "log.staging = 'here'"),
        ("durability", "log.durability = '0s'"),
        ("max_bytes", "retention.max_bytes = '1MiB'"),
        ("size", "log.chunk = 'much'"),
        ("span", "retention.max_age = '1.5 fortnights'"),
        ("share", "retention.min_free = '100%'"),
        ("free", "retention.min_free = 'some'"),
        ("on_full", "retention.on_full = 'stop'"),
        ("archive_required", "archive.required = true"),
        ("archive_relative", "archive.to = 'archive'"),
        ("no_group", "access.socket = 'group'"),
        ("listen", "metrics.listen = '10.0.0.1:80'"),
        (
            "two_sources",
            "[[source]]\nname = 's'\n[[source]]\nname = 's'",
        ),
    ]
    .iter()
    .map(|(name, text)| seed(name, &[text.as_bytes()]))
    .chain([seed("not_utf8", &[&[0xFF]])])
    .chain(rules())
    .collect()
}

fn rules() -> Seeds {
    let long = format!("when = 'max > 1{}'\nover = '1s'", " ".repeat(4096));
    [
        ("often", "when = 'max > 1'\nover = '1s'\nevery = '1ms'"),
        ("seldom", "when = 'max > 1'\nover = '1s'\nevery = '2s'"),
        ("wide", "when = 'max > 1'\nover = '8d'"),
        (
            "two_actions",
            "when = 'max > 1'\nover = '1s'\nrun = ['/a']\nwebhook = 'http://a'",
        ),
        ("program", "when = 'max > 1'\nover = '1s'\nrun = ['a']"),
        (
            "webhook",
            "when = 'max > 1'\nover = '1s'\nwebhook = 'ftp://a'",
        ),
        (
            "tls",
            "when = 'max > 1'\nover = '1s'\nwebhook = 'http://a'\ntls = { ca = '/a' }",
        ),
        ("pin_after", "when = 'max > 1'\nover = '1s'\npin_after = '1s'"),
        ("pin", "when = 'max > 1'\nover = '1s'\npin = '2h'"),
        (
            "short_pin",
            "when = 'max > 1'\nover = '1s'\npin = '1h'\n[retention]\nmax_age = '1m'",
        ),
        ("term", "when = 'p101 > 1'\nover = '1s'"),
        ("word", "when = 'latency > 1'\nover = '1s'"),
        ("unit", "when = 'max > 1 ms'\nover = '1s'"),
        ("count_unit", "when = 'count > 1ms'\nover = '1s'"),
        ("parentheses", "when = '(max > 1)'\nover = '1s'"),
        ("no_window", "when = 'max > 1'\nover = '0s'"),
        ("operator", "when = 'max => 1'\nover = '1s'"),
        ("number", "when = 'max > soon'\nover = '1s'"),
        ("end", "when = 'max > 1 2'\nover = '1s'"),
        ("long", &long),
        (
            "short_memory",
            "when = 'max > 1'\nover = '1h'\n[retention]\nmax_age = '1m'",
        ),
        (
            "twice",
            "when = 'max > 1'\nover = '1s'\n[[rule]]\nname = 'r'\nsource = 's'\nindex = 'i'\nwhen = 'rate > 1'\nover = '1s'",
        ),
    ]
    .iter()
    .map(|(name, rest)| seed(&format!("rule_{name}"), &[RULE.as_bytes(), rest.as_bytes()]))
    .collect()
}

/// Jobs that are refused, one for each reason.
fn scrapes() -> Seeds {
    let mut many = String::from("job = 'a'\ntargets = [");
    for n in 0..=1000 {
        write!(many, "'a{n}',").expect("a text takes all");
    }
    many.push(']');
    [
        ("job", "job = 'a/b'\ntargets = []"),
        ("target", "job = 'a'\ntargets = ['a b:1']"),
        ("twice", "job = 'a'\ntargets = ['a:1', 'a:1']"),
        ("every", "job = 'a'\ntargets = []\nevery = '1ms'"),
        ("timeout", "job = 'a'\ntargets = []\ntimeout = '1m'"),
        ("label", "job = 'a'\ntargets = []\nlabels = { job = 'b' }"),
        ("series_max", "job = 'a'\ntargets = []\nseries_max = 0"),
        ("body_max", "job = 'a'\ntargets = []\nbody_max = '0B'"),
        ("tls", "job = 'a'\ntargets = []\ntls = { key = '/a' }"),
        ("clear", "job = 'a'\ntargets = ['http://a:1']\ntls = {}"),
        (
            "two_ways_in",
            "job = 'a'\ntargets = ['a:1']\nbearer_file = '/a'\nbasic_auth = { username = 'a', password_file = '/b' }",
        ),
        (
            "username",
            "job = 'a'\ntargets = ['a:1']\nbasic_auth = { username = ':', password_file = '/b' }",
        ),
        ("no_target", "job = 'a'\ntargets = []"),
        ("many", &many),
    ]
    .iter()
    .map(|(name, rest)| {
        seed(
            &format!("scrape_{name}"),
            &[b"[[scrape]]\n", rest.as_bytes()],
        )
    })
    .collect()
}
