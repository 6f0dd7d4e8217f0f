//! Tests a recorded profile: its samples and its stacks.

use std::collections::BTreeSet;
use std::process::Command;

use loom_tests::command::{Running, says};

use super::scene::{interrupt, may_record, scene};

// case Recording: events of the kernel
#[test]
fn the_stacks_of_a_profile_are_stored_once_and_no_sample_is_without_its_stack() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let mut shell = Command::new("sh");
    let shell = Running::start(shell.args(["-c", "while :; do :; done"]));
    let pid = shell.0.id().to_string();
    let hz = ["profile", "--hz", "499", "--pid", &pid, "--off-cpu"];
    let child = scene.start(&hz, "stack");
    let numbers = |source: &str| {
        let payloads = scene.payloads(source);
        let number = |payload: &Vec<u8>| u64::from_le_bytes(payload[9..17].try_into().unwrap());
        payloads.iter().map(number).collect::<Vec<_>>()
    };
    loop {
        // A stack is visible before its first sample.
        let sampled = numbers("profile");
        let stacks = BTreeSet::from_iter(numbers("stack"));
        assert!(sampled.iter().all(|number| stacks.contains(number)));
        if sampled.len() >= 300 {
            break;
        }
    }
    let output = interrupt(child).ends(0);
    drop(shell);
    let [samples, stacks] = ["profile", "stack"].map(numbers);
    let distinct = BTreeSet::from_iter(&stacks).len();
    assert_eq!(stacks.len(), distinct, "a stack is stored once a minute");
    assert!(distinct < samples.len());
    for (source, records) in [("profile", samples.len()), ("stack", distinct)] {
        let counts = "refused=0 dropped=0 kernel_lost=0";
        says(
            &output.out,
            &format!("source={source} received={records} stored={records} {counts}"),
        );
        assert!(scene.is_complete(source));
    }
}

// case Recording: something that is missing
#[test]
fn two_profiles_need_two_sources_of_stacks() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let two = ["profile", "+", "profile", "--source", "x"];
    let output = scene.record(&two).ends(1);
    says(
        &output.err,
        "two captures cannot fill the source 'stack'; name another one with --source, or with --stacks",
    );
    assert!(!scene.dir.exists());
}
