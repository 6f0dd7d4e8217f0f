//! Tests events of the kernel: exact counts, losses, and the end of a daemon.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::query::{Directory, Poll};
use loom_engine::{TimeRange, Timestamp};
use rustix::process::Signal;

use super::scene::{end, interrupt, may_record, now, own_time, scene, send, stderr, stdout};

// case Recording: something that is missing
#[test]
fn without_the_capabilities_one_sentence_names_them_and_nothing_is_made() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let mut command = Command::new("setpriv");
    command.args([
        "--bounding-set",
        "-bpf,-perfmon",
        "--inh-caps",
        "-bpf,-perfmon",
    ]);
    command.arg(env!("CARGO_BIN_EXE_ingestd")).arg("record");
    let output = command.arg(&scene.dir).arg("syscalls").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("CAP_BPF and CAP_PERFMON"),
        "{}",
        stderr(&output)
    );
    assert_eq!(stderr(&output).lines().count(), 1);
    assert!(!scene.dir.exists());
}

// case Recording: events of the kernel
#[test]
fn exactly_the_system_calls_of_a_process_are_recorded() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "while read line; do umask; done; i=0; while [ $i -lt 500 ]; do umask >/dev/null; i=$((i+1)); done",
    ]);
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let pid = shell.id().to_string();
    let child = scene.start(
        &["syscalls", "--pid", &pid, "--syscall", "umask"],
        "syscall",
    );
    // The programs are armed after the source is there.
    let mut asked = shell.stdin.take().unwrap();
    let mut masks = BufReader::new(shell.stdout.take().unwrap()).lines();
    while scene.payloads("syscall").is_empty() {
        asked.write_all(b"\n").unwrap();
        masks.next().unwrap().unwrap();
    }
    let mark = now();
    drop(asked);
    assert!(shell.wait().unwrap().success());
    // The process has ended, and so has the recording.
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("have ended"),
        "{}",
        stderr(&output)
    );
    // The shell's umask sets it and restores it.
    let payloads = scene.payloads("syscall");
    let marked = payloads.iter().filter(|payload| own_time(payload) >= mark);
    assert_eq!(marked.count(), 1000);
    assert!(scene.is_complete("syscall"));
}

#[test]
fn what_happens_after_the_line_that_says_recording_is_recorded() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let mut command = scene.command(&["syscalls", "--comm", "dd", "--syscall", "write"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.as_mut().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("recording into")));
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"]);
    assert!(dd.arg("count=1000").status().unwrap().success());
    let output = interrupt(child);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(scene.payloads("syscall").len(), 1000);
    let counts = "source=syscall received=1000 stored=1000 refused=0 dropped=0 kernel_lost=0";
    assert!(stdout(&output).contains(counts), "{}", stdout(&output));
}

// case Recording: a program or a daemon that ends
#[test]
fn a_daemon_that_stops_ends_the_recording_and_what_it_took_is_kept() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let daemon = Daemon::start(&scene.dir, &Config::default(), false).unwrap();
    let args = ["syscalls", "--syscall", "read", "--patience", "200ms"];
    let child = scene.start(&args, "syscall");
    let until = Instant::now() + Duration::from_secs(30);
    while scene.payloads("syscall").is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    daemon.stop().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("the daemon stopped"),
        "{}",
        stderr(&output)
    );
    assert!(!scene.payloads("syscall").is_empty());
}

#[test]
fn what_the_kernel_lost_leaves_the_windows_before_and_after_it_complete() {
    const WRITES: u64 = 1_300_000;
    if !may_record() {
        return;
    }
    let scene = scene();
    let write = |writes: u64| {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"]);
        let done = dd.arg(format!("count={writes}")).status().unwrap();
        assert!(done.success());
    };
    let child = scene.start(
        &["syscalls", "--comm", "dd", "--syscall", "write"],
        "syscall",
    );
    let has_since = |time: Timestamp| {
        let payloads = scene.payloads("syscall");
        payloads.iter().any(|payload| own_time(payload) >= time)
    };
    let until = Instant::now() + Duration::from_secs(60);
    // The programs are armed after the source is there.
    while !has_since(Timestamp::MIN) {
        write(1);
    }
    let marked = now();
    write(1);
    while !has_since(marked) {
        assert!(Instant::now() < until);
    }
    let mut made = scene.payloads("syscall").len() as u64;
    let begun = now();
    // A stopped recorder takes nothing from the ring of 64 MiB.
    send(&child, Signal::STOP);
    write(WRITES);
    made += WRITES;
    let full = now();
    send(&child, Signal::CONT);
    // The ring has space again, and new events are recorded.
    let well_after = Timestamp(full.0 + 3_000_000_000);
    while !has_since(well_after) {
        assert!(Instant::now() < until);
        write(1);
        made += 1;
        std::thread::sleep(Duration::from_millis(200));
    }
    let output = interrupt(child);
    assert!(output.status.success(), "{}", stderr(&output));
    let snapshot = Directory::open(&scene.dir).unwrap().snapshot().unwrap();
    let losses = snapshot.losses(&Poll::never()).unwrap();
    let lost: u64 = losses.iter().map(|loss| loss.records.unwrap()).sum();
    let stored = scene.payloads("syscall").len() as u64;
    assert!(lost > 0, "{losses:?}");
    assert_eq!(stored + lost, made, "{losses:?}");
    let (from, to) = losses.iter().fold((full, begun), |(from, to), loss| {
        (from.min(loss.from), to.max(loss.to))
    });
    let second = 1_000_000_000;
    assert!(from <= begun && from.0 > begun.0 - 3 * second, "{losses:?}");
    assert!(to >= full && to.0 < full.0 + 3 * second, "{losses:?}");
    let is_complete = |first, last| scene.is_complete_in("syscall", TimeRange { first, last });
    assert!(is_complete(Timestamp::MIN, Timestamp(from.0 - 1)));
    assert!(is_complete(Timestamp(to.0 + 1), Timestamp::MAX));
    assert!(!is_complete(begun, begun) && !is_complete(full, full));
    assert!(!scene.is_complete("syscall"));
}

#[test]
fn a_terminal_that_closes_ends_a_recording_as_ctrl_c_does() {
    // A child ignores the signals that its parent ignores, as under nohup, but not those that its parent catches.
    signal_hook::flag::register(signal_hook::consts::SIGHUP, Arc::default()).unwrap();
    let scene = scene();
    let program = ["--", "sh", "-c", "echo begun; sleep 600"];
    let child = scene.start(
        &[&["command", "--source", "log"], &program[..]].concat(),
        "log",
    );
    scene.wait_for(1, "log");
    let output = end(child, Signal::HUP);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("source=log received=2 stored=2"));
}

#[test]
fn disks_have_their_names_in_a_recording_and_in_the_next() {
    if !may_record() {
        return;
    }
    let scene = scene();
    for _ in 0..2 {
        let output = scene.record(&["blockio", "--seconds", "1"]);
        assert!(output.status.success(), "{}", stderr(&output));
    }
    let snapshot = Directory::open(&scene.dir).unwrap().snapshot().unwrap();
    let source = snapshot.catalog().find("blockio").unwrap();
    let device = source.fields.iter().find(|field| field.name == "device");
    let labels = &device.unwrap().labels;
    let mut disks = 0;
    for disk in std::fs::read_dir("/sys/block").unwrap() {
        let disk = disk.unwrap();
        let numbers = std::fs::read_to_string(disk.path().join("dev")).unwrap();
        let (major, minor) = numbers.trim().split_once(':').unwrap();
        let number = major.parse::<i128>().unwrap() << 20 | minor.parse::<i128>().unwrap();
        assert_eq!(
            labels.get(&number).unwrap(),
            &*disk.file_name().to_string_lossy()
        );
        disks += 1;
    }
    assert!(disks > 0 && labels.len() >= disks, "{labels:?}");
}
