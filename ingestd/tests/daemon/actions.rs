//! Actions of rules that do not end well: each is over within its limit and recorded, and nothing else waits for it.

use std::io::{Read, Write};
use std::net::TcpListener;

use loom_tests::command::{eventually, says, until};

use crate::rules::{ACTED, ACTION_FAILED, Alert, FAILED, FIRING, alerts, first_alert, push, rule};
use crate::support::{Here, NUMBERS};

// case Rules: actions that fail, hang, fork or write without end
#[test]
fn actions_that_hang_or_write_or_fork_without_end_are_ended_and_other_rules_go_on() {
    // It accepts connections, for the kernel does, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let webhook = format!("webhook = 'http://{}/'", silent.local_addr().unwrap());
    let shell = |script: &str| format!("run = ['/bin/sh', '-c', '{script}']");
    let marker = tempfile::tempdir().unwrap();
    let pid = marker.path().join("pid");
    let forks = shell(&format!("sleep 1000 & echo $! > {}; wait", pid.display()));
    let ends = [
        ("hangs", shell("exec sleep 1000"), "was killed"),
        ("writes", shell("exec head -c 100G /dev/zero"), "was killed"),
        ("forks", forks, "was killed"),
        ("silent", webhook, "cannot post to"),
    ];
    let named = |name: &str, more: &str| {
        rule("max > 100", "50ms", "10ms", more).replace("'r'", &format!("'{name}'"))
    };
    let rules = ends.iter().map(|(name, action, _)| named(name, action));
    let rules: String = rules.collect();
    let here = Here::start(&format!("{NUMBERS}{rules}{}", named("quick", "")));
    let client = here.client();
    let fired = |name: &str| {
        let is_its = |alert: &&Alert| alert.rule == name && alert.state == FIRING;
        alerts(here.path()).iter().filter(is_its).count()
    };
    let failed = || {
        let mut failed = alerts(here.path());
        failed.retain(|alert| alert.state == ACTION_FAILED && !alert.detail.starts_with("skipped"));
        failed
    };
    push(&client, &[4711]);
    until(|| fired("quick") == 1);
    // While all of them run, the rule without an action fires again and again.
    for times in 2..12 {
        until(|| {
            push(&client, &[1]);
            let rules = alerts(here.path());
            let last = rules.iter().rfind(|alert| alert.rule == "quick");
            last.is_some_and(|alert| alert.state != FIRING)
        });
        push(&client, &[4711]);
        until(|| fired("quick") == times);
    }
    assert_eq!(failed().len(), 0, "no limit has passed yet");
    let failed = eventually(|| {
        let failed = failed();
        let has = |name: &str| failed.iter().any(|alert| alert.rule == name);
        let all = ends.iter().all(|(name, _, _)| has(name));
        all.then_some(failed)
    });
    for (name, _, why) in &ends {
        let alert = failed.iter().find(|alert| alert.rule == *name).unwrap();
        says(&alert.detail, why);
        assert!(alert.detail.len() < 4096, "{}", alert.detail);
    }
    let pid = std::fs::read_to_string(pid).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    until(|| std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
}

/// The body of the next request, which is answered.
fn told(receiver: &TcpListener) -> serde_json::Value {
    let (mut stream, _) = receiver.accept().unwrap();
    let mut request = Vec::new();
    let body = loop {
        let mut piece = [0; 4096];
        let bytes = stream.read(&mut piece).unwrap();
        assert!(bytes > 0, "the request ends early");
        request.extend_from_slice(&piece[..bytes]);
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            break body;
        }
    };
    let answer = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n";
    stream.write_all(answer).unwrap();
    body
}

#[test]
fn a_webhook_and_a_program_that_asks_learn_of_the_end_however_soon_it_comes() {
    let receiver = TcpListener::bind("127.0.0.1:0").unwrap();
    let webhook = format!("webhook = 'http://{}/'", receiver.local_addr().unwrap());
    let place = tempfile::tempdir().unwrap();
    let page = |name: &str, word: &str| {
        let file = place.path().join(name);
        let script = format!("echo \"$1\" >> {}", file.display());
        let run = format!("run = ['/bin/sh', '-c', '{script}', 'sh', '{word}']");
        rule("max > 100", "50ms", "10ms", &run).replace("'r'", &format!("'{name}'"))
    };
    let here = Here::start(&format!(
        "{NUMBERS}{}{}{}",
        rule("max > 100", "50ms", "10ms", &webhook),
        page("asks", "{rule} {state}"),
        page("pages", "{rule}")
    ));
    push(&here.client(), &[4711]);
    // The window is past long before a second action may begin.
    for state in ["firing", "resolved"] {
        let alert = told(&receiver);
        assert_eq!(
            (&alert["rule"], &alert["state"]),
            (&"r".into(), &state.into())
        );
    }
    let written = |name: &str| std::fs::read_to_string(place.path().join(name)).unwrap_or_default();
    until(|| written("asks") == "asks firing\nasks resolved\n");
    let acted = |name: &str| {
        let is_its = |alert: &&Alert| alert.rule == name && alert.state == ACTED;
        alerts(here.path()).iter().filter(is_its).count()
    };
    until(|| acted("r") == 2 && acted("asks") == 2);
    assert_eq!((acted("pages"), written("pages").as_str()), (1, "pages\n"));
}

// case Rules: a source or an index that is missing or closed
#[test]
fn a_rule_whose_source_is_closed_fails_until_it_is_open_again() {
    let rule = rule("max > 100", "50ms", "10ms", "");
    let here = Here::start(&format!("{NUMBERS}{rule}"));
    let client = here.client();
    push(&client, &[1]);
    client.close_source("numbers").unwrap();
    let failed = first_alert(here.path());
    assert_eq!(failed.state, FAILED);
    says(&failed.detail, "source 'numbers' is closed");
    push(&client, &[4711]);
    let fired = eventually(|| alerts(here.path()).get(1).cloned());
    assert_eq!((fired.state, fired.value), (FIRING, Some(4711.0)));
}
