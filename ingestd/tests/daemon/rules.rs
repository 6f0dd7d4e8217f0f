//! Rules of a running daemon: what fires and resolves, what is counted as a failure, and that a restart sees each record once.

use std::path::Path;

use ingestd::client::Client;
use ingestd::config::Config;
use ingestd::daemon::Daemon;
use ingestd::rules::RuleStatus;
use ingestd::wall_clock;
use loom_engine::query::{Directory, Poll, raw_scan};
use loom_engine::{TimeRange, Timestamp};
use loom_tests::command::{eventually, says, until};

use crate::support::{self, Here, NUMBERS, Place, kill, stop};

/// An alert as the directory has it.
#[derive(Clone, Debug)]
pub struct Alert {
    ts: i64,
    pub rule: String,
    pub state: u64,
    pub value: Option<f64>,
    pub from: i64,
    pub to: i64,
    position: u64,
    pub detail: String,
}

pub const FIRING: u64 = 1;
pub const RESOLVED: u64 = 2;
pub const FAILED: u64 = 3;
pub const ACTED: u64 = 4;
pub const ACTION_FAILED: u64 = 5;
pub const PINNED: u64 = 6;
pub const PIN_FAILED: u64 = 7;
pub const PINNING: u64 = 8;

/// The alerts of a directory, the oldest first.
pub fn alerts(dir: &Path) -> Vec<Alert> {
    let snapshot = Directory::open(dir).unwrap().snapshot().unwrap();
    let Ok(source) = snapshot.source("loom_alerts") else {
        return Vec::new();
    };
    let mut found = Vec::new();
    let all = TimeRange::ALL;
    raw_scan(&snapshot, source.id, all, &Poll::never(), |record| {
        let key = |field| record.layout.key(field, record.payload);
        let text = |field| {
            let bytes = record.layout.bytes(field, record.payload);
            String::from_utf8(bytes.unwrap_or_default().to_vec()).unwrap()
        };
        found.push(Alert {
            ts: record.ts.0,
            rule: text(0),
            state: key(1).unwrap().to_u64(),
            value: key(2).map(|key| key.to_f64()),
            from: key(4).unwrap().to_i64(),
            to: key(5).unwrap().to_i64(),
            position: key(6).unwrap().to_u64(),
            detail: text(7),
        });
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    found.reverse();
    found
}

pub fn states(dir: &Path) -> Vec<u64> {
    alerts(dir).iter().map(|alert| alert.state).collect()
}

/// The first alert, once there is one.
pub fn first_alert(dir: &Path) -> Alert {
    eventually(|| alerts(dir).first().cloned())
}

/// Waits until the alerts are of these states.
pub fn until_states(dir: &Path, wanted: &[u64]) {
    until(|| states(dir) == wanted);
}

/// The configuration of the source of numbers with a rule.
pub fn with(rule: &str) -> String {
    format!("{NUMBERS}{rule}")
}

pub fn rule(when: &str, over: &str, every: &str, more: &str) -> String {
    format!(
        "[[rule]]\nname = 'r'\nsource = 'numbers'\nindex = 'n'\nwhen = '{when}'\nover = '{over}'\nevery = '{every}'\n{more}\n"
    )
}

pub fn push(client: &Client, numbers: &[u64]) {
    let source = client.define_one(NUMBERS).unwrap();
    support::push(client, source, numbers.iter().copied());
}

/// Waits until the window with the records that arrived until this time was evaluated.
pub fn evaluated_past(client: &Client, time: Timestamp) {
    until(|| {
        let rules: Vec<RuleStatus> = serde_json::from_str(&client.rules().unwrap()).unwrap();
        let is_past = |rule: &RuleStatus| rule.evaluated_to_ns > time.0;
        rules.iter().all(is_past)
    });
}

// case Rules: a condition over a window
#[test]
fn a_rule_fires_with_the_value_that_broke_it_and_resolves_once_it_has_left_the_window() {
    let rule = rule("max > 100", "200ms", "10ms", "");
    let here = Here::start(&format!("{NUMBERS}{rule}"));
    let client = here.client();
    push(&client, &[1, 2, 100]);
    push(&client, &[7, 4711, 8]);
    let found = eventually(|| {
        let found = alerts(here.path());
        (found.len() == 2).then_some(found)
    });
    assert_eq!((found[0].state, found[1].state), (FIRING, RESOLVED));
    assert_eq!(found[0].value, Some(4711.0));
    let directory = Directory::open(here.path()).unwrap();
    let snapshot = directory.snapshot_at(found[0].position).unwrap();
    let source = snapshot.source("numbers").unwrap().id;
    let mut broke = None;
    let window = TimeRange::half_open(Timestamp(found[0].from), Timestamp(found[0].to));
    raw_scan(&snapshot, source, window, &Poll::never(), |record| {
        if record.payload == 4711u64.to_le_bytes() {
            broke = Some(record.ts.0);
        }
        std::ops::ControlFlow::Continue(())
    })
    .unwrap();
    let late = found[0].ts - broke.expect("the window and position hold the record");
    assert!(late > 0, "an alert follows its record");
    assert!(found[0].to - found[0].from <= 200_000_000);
}

// case Rules: a condition over a window
#[test]
fn a_percentile_is_decided_exactly_where_its_bin_holds_the_threshold() {
    // 1000 and 1001 share a bin, and the third quartile of the second batch is 1001.
    let rule = rule("p75 > 1000", "100ms", "100ms", "");
    let here = Here::start(&format!("{NUMBERS}{rule}"));
    let client = here.client();
    push(&client, &[1, 1000, 1000, 1001]);
    evaluated_past(&client, wall_clock());
    assert!(states(here.path()).is_empty());
    push(&client, &[1, 1000, 1001, 1001]);
    let fired = first_alert(here.path());
    assert_eq!((fired.state, fired.value), (FIRING, Some(1001.0)));
}

// case Rules: a condition over a window
#[test]
fn windows_go_by_arrival_also_where_records_bring_their_own_time() {
    let own = NUMBERS.replace("name = 'numbers'", "name = 'numbers'\ntime = 'own'");
    let rule = rule("count >= 3 AND p100 > 100", "50ms", "50ms", "");
    let here = Here::start(&format!("{own}{rule}"));
    let client = here.client();
    let source = client.define_one(&own).unwrap();
    // Own times in any order, long ago and far ahead.
    for (time, number) in [(i64::MAX, 1u64), (-5, 4711), (0, 2)] {
        let payload = [time.to_le_bytes(), number.to_le_bytes()].concat();
        client.push(source, &payload).unwrap();
    }
    client.sync().unwrap();
    let fired = first_alert(here.path());
    assert_eq!((fired.state, fired.value), (FIRING, Some(3.0)));
    until_states(here.path(), &[FIRING, RESOLVED]);
}

// case Rules: a condition over a window
#[test]
fn each_record_is_in_one_window_of_a_rule_whose_windows_do_not_overlap() {
    let rule = rule("count > 0", "50ms", "50ms", "");
    let here = Here::start(&format!("{NUMBERS}{rule}"));
    let client = here.client();
    for _ in 0..5 {
        push(&client, &[1; 400]);
        // A window without records lies between two bursts.
        let resolved = || {
            states(here.path())
                .iter()
                .filter(|it| **it == RESOLVED)
                .count()
        };
        let before = resolved();
        until(|| resolved() > before);
    }
    let dir = here.stop();
    let found = alerts(dir.path());
    let fired = found.iter().filter(|alert| alert.state == FIRING);
    assert!(fired.clone().all(|alert| alert.to % 50_000_000 == 0));
    assert!(fired.count() >= 5);
}

// case Rules: a restart, or a kill
#[test]
fn a_restart_goes_on_with_the_window_after_the_last_one() {
    let place = Place::new();
    let loom = &place.dir;
    let rule = rule("count >= 10", "1s", "1s", "");
    let start = || place.start(&with(&rule));
    let there = start();
    push(&there.client().unwrap(), &[1; 10]);
    // Killed before the window with these records has ended, or a moment after.
    kill(there);
    let there = start();
    until_states(loom, &[FIRING, RESOLVED]);
    kill(there);
    let there = start();
    let client = there.client().unwrap();
    push(&client, &[1; 9]);
    evaluated_past(&client, wall_clock());
    assert_eq!(states(loom), [FIRING, RESOLVED], "no alert comes twice");
    assert_eq!(alerts(loom)[0].value, Some(10.0));
    stop(there);
}

// case Rules: a source or an index that is missing or closed
#[test]
fn a_rule_whose_index_is_missing_or_closed_fails_once_and_the_daemon_goes_on() {
    let other = "[[rule]]\nname = 'lost'\nsource = 'nobody'\nindex = 'n'\nwhen = 'count > 0'\nover = '10ms'\n";
    let rule = rule("max > 100", "50ms", "10ms", "");
    let here = Here::start(&format!("{NUMBERS}{rule}{other}"));
    let failed = first_alert(here.path());
    assert_eq!((failed.state, failed.rule.as_str()), (FAILED, "lost"));
    says(&failed.detail, "unknown source 'nobody'");
    here.client().close_index("numbers", "n").unwrap();
    let failed = eventually(|| alerts(here.path()).get(1).cloned());
    assert_eq!((failed.state, failed.rule.as_str()), (FAILED, "r"));
    says(&failed.detail, "index 'n' of source 'numbers' is closed");
    until(|| {
        let rules = here.client().rules().unwrap();
        let rules: Vec<serde_json::Value> = serde_json::from_str(&rules).unwrap();
        let goes_on = |rule: &serde_json::Value| {
            rule["failures"].as_u64() > Some(3) && rule["state"] == "failing"
        };
        rules.iter().all(goes_on)
    });
    let count = alerts(here.path()).len();
    assert_eq!(count, 2, "a failure that goes on is one alert");
}

// case Rules: actions that fail, hang, fork or write without end
#[test]
fn an_action_runs_and_one_that_fails_is_an_alert_too() {
    for (script, wanted) in [("echo paged {value}", ACTED), ("exit 1", ACTION_FAILED)] {
        let run = format!("run = ['/bin/sh', '-c', '{script}']");
        let rule = rule("max > 100", "50ms", "10ms", &run);
        let here = Here::start(&format!("{NUMBERS}{rule}"));
        push(&here.client(), &[4711]);
        let is_action = |alert: &Alert| alert.state >= ACTED;
        let done = eventually(|| alerts(here.path()).into_iter().find(is_action));
        assert_eq!(done.state, wanted, "{done:?}");
        let has_paged = done.detail.contains("paged 4711");
        assert_eq!(has_paged, wanted == ACTED, "{done:?}");
    }
}

// case Rules: rules over the socket
#[test]
fn rules_are_added_and_closed_over_the_socket_and_outlive_the_daemon() {
    let here = Here::start(NUMBERS);
    let client = here.client();
    client
        .add_rules(&rule("max > 100", "50ms", "10ms", ""))
        .unwrap();
    let refused = |toml: &str, word: &str| {
        let error = client.add_rules(toml).unwrap_err().to_string();
        says(&error, word);
    };
    let of = |more: &str| rule("max > 1", "1s", "1s", more);
    refused(&of(""), "two rules have the name 'r'");
    let other = of("run = ['/bin/true']").replace("'r'", "'s'");
    refused(&other, "run and webhook");
    refused(&of("").replace("'n'", "'m'"), "'m'");
    let pinning = of("pin = '1s'").replace("'r'", "'s'");
    refused(&pinning, "put the rule there as [[rule]]");
    let named = |n: usize| of("").replace("'r'", &format!("'s{n}'"));
    let many: String = (0..64).map(named).collect();
    let limit = "there would be 65 rules that were added; the limit is 64";
    refused(&many, limit);
    let here = Here::again(here.stop(), NUMBERS);
    let client = here.client();
    push(&client, &[4711]);
    until(|| states(here.path()).first() == Some(&FIRING));
    client.close_rule("r").unwrap();
    assert_eq!(client.rules().unwrap(), "[]");
    let again = client.close_rule("r").unwrap_err();
    says(&again.to_string(), "rule 'r' was not added");
}

// case Rules: a condition over a window
#[test]
fn a_duration_is_compared_in_the_unit_of_the_field() {
    let micros = NUMBERS.replace("'n'", "'took_us'");
    let rule = rule("p99 > 5ms", "50ms", "50ms", "").replace("'n'", "'took_us'");
    let here = Here::start(&format!("{micros}{rule}"));
    let client = here.client();
    let source = client.define_one(&micros).unwrap();
    for took_us in [5_000u64, 5_001] {
        support::push(&client, source, [took_us]);
        evaluated_past(&client, wall_clock());
    }
    let fired = first_alert(here.path());
    assert_eq!((fired.state, fired.value), (FIRING, Some(5_001.0)));
}

// case Rules: a condition over a window
#[test]
fn a_duration_over_values_of_no_known_unit_is_refused_with_the_remedy() {
    let timed = rule("max > 5ms", "50ms", "10ms", "");
    let remedy = "add unit = \"us\"";
    let start = |config: &str| {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon::start(dir.path(), &Config::parse(config).unwrap(), false);
        daemon.map(|daemon| daemon.stop().unwrap())
    };
    let refused = start(&format!("{NUMBERS}{timed}")).unwrap_err().to_string();
    says(&refused, remedy);
    let here = Here::start(NUMBERS);
    let client = here.client();
    let refused = client.add_rules(&timed).unwrap_err().to_string();
    says(&refused, remedy);
    let refused = here.reload(&timed).unwrap_err().to_string();
    says(&refused, remedy);
    client.add_rules(&format!("{timed}unit = 'us'")).unwrap();
    push(&client, &[4_999]);
    evaluated_past(&client, wall_clock());
    assert!(states(here.path()).is_empty());
    push(&client, &[5_001]);
    until(|| states(here.path()).first() == Some(&FIRING));
}

// case Rules: rules over the socket
#[test]
fn rules_that_were_added_wait_beyond_their_budget_and_those_of_the_configuration_go_on() {
    let configured = rule("max > 100000", "200ms", "20ms", "");
    let here = Here::start(&format!("{NUMBERS}{configured}"));
    let client = here.client();
    // 1000 and 1001 share a bin, so that each evaluation reads the records.
    let added = (1..=64).map(|n| {
        let rule = rule(&format!("p{n} > 1000"), "1h", "10ms", "");
        rule.replace("'r'", &format!("'s{n}'"))
    });
    client.add_rules(&added.collect::<String>()).unwrap();
    push(&client, &[1000; 100_000]);
    let rules = || {
        push(&client, &[1000]);
        let rules: Vec<RuleStatus> = serde_json::from_str(&client.rules().unwrap()).unwrap();
        rules
    };
    let misses = |rule: &RuleStatus| rule.added && rule.missed > 0;
    until(|| rules().iter().any(misses));
    push(&client, &[100_001]);
    let fires = |alert: &Alert| alert.rule == "r" && alert.state == FIRING;
    until(|| alerts(here.path()).iter().any(fires));
    let rules = rules();
    let goes_on = |rule: &RuleStatus| rule.evaluations > 0 && rule.trouble.is_none();
    assert!(rules.iter().all(goes_on), "{rules:?}");
}

// case Rules: pins
#[test]
fn a_pin_holds_the_records_around_an_alert_and_one_that_cannot_be_written_is_an_alert() {
    let pin = "pin = '10s'\npin_after = '100ms'";
    let rule = rule("max > 100", "20ms", "10ms", pin);
    for (retention, wanted) in [
        ("", PINNED),
        ("[retention]\npin_max_bytes = '1B'\n", PIN_FAILED),
    ] {
        let here = Here::start(&format!("{retention}{NUMBERS}{rule}"));
        push(&here.client(), &[1, 2, 3]);
        push(&here.client(), &[4711]);
        let is_about = |alert: &Alert| [PINNED, PIN_FAILED].contains(&alert.state);
        let done = eventually(|| alerts(here.path()).into_iter().find(is_about));
        assert_eq!(done.state, wanted, "{done:?}");
        let pins = ingestd::output::pins::list(here.path()).unwrap();
        if wanted == PIN_FAILED {
            says(&done.detail, "pin_max_bytes");
            assert!(pins.is_empty());
            continue;
        }
        let pin = &pins[0].pin;
        assert_eq!((pin.rule.as_str(), pin.sources[0].records), ("r", 4));
        assert_eq!(pin.to_ns - pin.from_ns, 10_100_000_000);
        assert_eq!(done.detail, pins[0].path.display().to_string());
    }
}
