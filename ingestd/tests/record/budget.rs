//! Tests the budget of a recording: what it leaves out is counted, and no slower event is.

use std::process::Command;

use loom_engine::query::Poll;
use loom_engine::testkit::payloads;
use loom_tests::command::{run, says};

use super::scene::{has_source, interrupt, may_record, recording, scene};

// G9
// case Recording: over its budget
#[test]
fn over_its_budget_a_recording_leaves_out_short_events_and_counts_each() {
    if !may_record() {
        return;
    }
    let scene = scene();
    // Other tests run programs that are called dd.
    let folder = tempfile::tempdir().unwrap();
    let writer = folder.path().join("dd-of-budget");
    std::fs::copy("/bin/dd", &writer).unwrap();
    // No recording takes so little.
    let budget = ["--budget", "0.0001%", "syscalls"];
    let writes = ["--comm", "dd-of-budget", "--syscall", "write"];
    let child = recording(scene.command(&[&budget[..], &writes].concat()));
    let losses = || scene.snapshot().losses(&Poll::never()).unwrap();
    let mut made = 0;
    // Everything is recorded in the first 5 seconds, and a record of the daemon is written after 10.
    while losses().is_empty() || !has_source(&scene.dir, "loom_metrics") {
        let mut dd = Command::new(&writer);
        dd.args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"]);
        assert!(dd.arg("count=5000").status().unwrap().success());
        made += 5000;
    }
    let output = interrupt(child).ends(0);
    says(
        &output.err,
        "and its budget is 0.0001 %; events below 1µs are left out",
    );
    let losses = losses();
    let is_choice = losses.iter().all(|loss| loss.reason == "sampled by choice");
    assert!(is_choice, "{losses:?}");
    let left_out: u64 = losses.iter().map(|loss| loss.records.unwrap()).sum();
    let stored = scene.payloads("syscall").len() as u64;
    assert_eq!(stored + left_out, made, "{losses:?}");
    says(&output.out, &format!("kernel_lost=0 sampled={left_out}"));
    assert!(!scene.is_complete("syscall"));
    // The daemon's records have the time of its process and of the programs; the null bits of both are 0.
    let metrics = payloads(&scene.dir, "loom_metrics");
    let of_daemon = metrics.iter().filter(|record| record[0] & 16 != 0);
    assert!(of_daemon.clone().count() > 0);
    assert!(
        of_daemon.clone().any(|record| record[0] & 0x60 == 0),
        "{metrics:?}"
    );
}

// case Recording: something that is missing
#[test]
fn a_budget_needs_a_capture_that_can_record_less() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let output = scene.record(&["--budget", "2%", "pagecache"]).ends(1);
    says(
        &output.err,
        "cannot apply --budget: no capture can record less; give one of syscalls, ",
    );
    assert!(!scene.dir.exists());
    let dir = scene.dir.to_str().unwrap();
    run(&["record", dir, "--budget", "2", "syscalls"])
        .ends(2)
        .says("'2' is not a share of a processor; give one such as 2%");
}
