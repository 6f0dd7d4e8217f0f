//! Rules and pins across stops and kills: what was added, closed or begun before a start.

use std::path::Path;

use ingestd::client::Client;
use ingestd::output::pins::list;
use ingestd::rules::file::RuleFile;
use ingestd::wall_clock;
use loom_tests::command::{eventually, until};

use crate::rules::{
    Alert, FIRING, PIN_FAILED, PINNED, PINNING, RESOLVED, alerts, evaluated_past, first_alert,
    push, rule, states, until_states, with,
};
use crate::support::{Here, NUMBERS, Place, There, daemon, kill, stop};

/// Adds records to a daemon, and waits until its rules have seen them.
fn show(dir: &Path, numbers: &[u64]) {
    let client = Client::connect(dir).unwrap();
    push(&client, numbers);
    evaluated_past(&client, wall_clock());
}

#[test]
fn a_rule_that_is_added_at_rest_looks_at_no_record_from_before() {
    let here = Here::start(NUMBERS);
    push(&here.client(), &[4711]);
    let dir = here.stop();
    let added = rule("max > 100", "1h", "10ms", "");
    let mut rules = RuleFile::open(dir.path()).unwrap();
    rules.add(&added, &[]).unwrap();
    // The second start does not know it from the file alone.
    for _ in 0..2 {
        let running = daemon(dir.path(), NUMBERS);
        show(dir.path(), &[1]);
        running.stop().unwrap();
        assert!(states(dir.path()).is_empty(), "{:?}", alerts(dir.path()));
    }
    let running = daemon(dir.path(), NUMBERS);
    show(dir.path(), &[4712]);
    let fired = first_alert(dir.path());
    assert_eq!((fired.state, fired.value), (FIRING, Some(4712.0)));
    running.stop().unwrap();
}

#[test]
fn a_small_count_is_silence_only_once_the_rule_has_watched_for_a_whole_window() {
    let here = Here::start(&format!("{NUMBERS}{}", rule("count < 1", "1s", "10ms", "")));
    let fired = first_alert(here.path());
    assert_eq!(
        (fired.state, fired.to - fired.from),
        (FIRING, 1_000_000_000)
    );
}

#[test]
fn a_rule_that_goes_while_it_fires_is_resolved_at_the_next_start_and_begins_anew_later() {
    let here = Here::start(NUMBERS);
    let added = rule("max > 100", "1h", "10ms", "");
    here.client().add_rules(&added).unwrap();
    push(&here.client(), &[4711]);
    until_states(here.path(), &[FIRING]);
    let dir = here.stop();
    assert!(RuleFile::open(dir.path()).unwrap().remove("r").unwrap());
    for _ in 0..2 {
        daemon(dir.path(), NUMBERS).stop().unwrap();
        assert_eq!(states(dir.path()), [FIRING, RESOLVED]);
        assert!(alerts(dir.path())[1].detail.contains("was closed"));
    }
    let mut rules = RuleFile::open(dir.path()).unwrap();
    rules.add(&added, &[]).unwrap();
    let running = daemon(dir.path(), NUMBERS);
    show(dir.path(), &[1]);
    assert_eq!(states(dir.path()), [FIRING, RESOLVED]);
    running.stop().unwrap();
}

#[test]
fn a_rule_that_changes_while_it_fires_is_resolved_at_the_next_start() {
    let of = |when: &str| format!("{NUMBERS}{}", rule(when, "1h", "10ms", ""));
    let here = Here::start(&of("max > 100"));
    push(&here.client(), &[4711]);
    until_states(here.path(), &[FIRING]);
    let dir = here.stop();
    let running = daemon(dir.path(), &of("max > 200"));
    show(dir.path(), &[1]);
    assert_eq!(states(dir.path()), [FIRING, RESOLVED]);
    running.stop().unwrap();
}

/// The alerts whose pins were written or have failed, once there is one.
fn settled(dir: &Path) -> Vec<Alert> {
    eventually(|| {
        let is_settled = |alert: &Alert| [PINNED, PIN_FAILED].contains(&alert.state);
        let found: Vec<Alert> = alerts(dir).into_iter().filter(is_settled).collect();
        (!found.is_empty()).then_some(found)
    })
}

#[test]
fn a_pin_that_waits_when_the_daemon_ends_is_written_or_recorded_as_failed_later() {
    let pins = [("pin = '10s'\npin_after = '2s'", PINNED), ("", PIN_FAILED)];
    let ends: [fn(There); 2] = [kill, stop];
    for ((pin, wanted), end) in pins.into_iter().flat_map(|pin| ends.map(|end| (pin, end))) {
        let place = Place::new();
        let dir = &place.dir;
        let start = |pin: &str| place.start(&with(&rule("max > 100", "20ms", "10ms", pin)));
        let there = start("pin = '10s'\npin_after = '2s'");
        push(&there.client().unwrap(), &[1, 2, 4711]);
        until(|| states(dir).contains(&PINNING));
        end(there);
        assert!(list(dir).unwrap().is_empty(), "the end came too late");
        assert!(!states(dir).contains(&PIN_FAILED));
        for _ in 0..2 {
            let there = start(pin);
            let settled = settled(dir);
            let outcome = (settled.len(), settled[0].state);
            assert_eq!(outcome, (1, wanted), "{settled:?}");
            stop(there);
        }
        let pins = list(dir).unwrap().into_iter();
        let records: Vec<u64> = pins.map(|pinned| pinned.pin.sources[0].records).collect();
        assert_eq!(records, if wanted == PINNED { vec![3] } else { vec![] });
    }
}

#[test]
fn a_smaller_budget_of_pins_holds_from_the_next_reload_or_start_on() {
    let pinning = rule("max > 100", "20ms", "10ms", "pin = '10s'");
    let of = |budget: &str| format!("[retention]\npin_max_bytes = '{budget}'\n{NUMBERS}{pinning}");
    let here = Here::start(&of("1MiB"));
    push(&here.client(), &[4711]);
    assert_eq!(settled(here.path())[0].state, PINNED);
    here.reload(&of("1B")).unwrap();
    assert!(list(here.path()).unwrap().is_empty());
    here.reload(&of("1MiB")).unwrap();
    let fired = |dir: &Path| states(dir).iter().filter(|state| **state == PINNED).count();
    until(|| states(here.path()).contains(&RESOLVED));
    push(&here.client(), &[4711]);
    until(|| fired(here.path()) == 2);
    let dir = here.stop();
    assert_eq!(list(dir.path()).unwrap().len(), 1);
    daemon(dir.path(), &of("1B")).stop().unwrap();
    assert!(list(dir.path()).unwrap().is_empty());
}
