//! `ingestd record` as a user runs it: what it records, what it prints, and how it ends.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::format::RecordIter;
use loom_engine::log::LogReader;
use loom_engine::query::{Directory, Poll};
use loom_engine::schema::decode_catalog;
use loom_engine::{Address, LogKind, TimeRange, Timestamp};
use rustix::process::{Pid, Signal, kill_process};

struct Scene {
    _home: tempfile::TempDir,
    dir: PathBuf,
}

fn scene() -> Scene {
    scene_named("loom")
}

fn scene_named(name: &str) -> Scene {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(name);
    Scene { _home: home, dir }
}

impl Scene {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
        command.arg("record").arg(&self.dir).args(args);
        command.stdin(Stdio::null());
        command
    }

    fn record(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Starts a recording, and returns when its sources are there and it records.
    fn start(&self, args: &[&str], source: &str) -> Child {
        self.started(self.command(args), source)
    }

    fn started(&self, mut command: Command, source: &str) -> Child {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while !(self.dir.exists() && has_source(&self.dir, source)) {
            if child.try_wait().unwrap().is_some() || Instant::now() > until {
                panic!("{:?}", child.wait_with_output());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        child
    }

    /// The payloads of every visible record of a source.
    fn payloads(&self, name: &str) -> Vec<Vec<u8>> {
        let reader = LogReader::open(&self.dir).unwrap();
        let (catalog, _, _) =
            decode_catalog(&reader.meta().uuid, &reader.catalog_bytes().unwrap()).unwrap();
        let source = catalog.find(name).unwrap();
        let chunk_bytes = reader.meta().chunk_bytes;
        let end = reader.tails().unwrap().tail.records;
        let mut payloads = Vec::new();
        let mut at = Address(0);
        while at < end {
            let mut chunk = vec![0; (end.0 - at.0).min(u64::from(chunk_bytes)) as usize];
            reader.read(LogKind::Records, at, &mut chunk).unwrap();
            for record in RecordIter::new(&chunk, chunk_bytes).map(Result::unwrap) {
                if record.source == source.id {
                    payloads.push(record.payload.to_vec());
                }
            }
            at += u64::from(chunk_bytes);
        }
        payloads
    }

    /// Whether a query that asks for a complete source is answered.
    fn is_complete(&self, name: &str) -> bool {
        self.is_complete_in(name, TimeRange::ALL)
    }

    fn is_complete_in(&self, name: &str, range: TimeRange) -> bool {
        let snapshot = Directory::open(&self.dir).unwrap().snapshot().unwrap();
        let id = snapshot.catalog().find(name).unwrap().id;
        let asked = snapshot.require_complete(id, range, &Poll::never());
        asked.is_ok()
    }

    /// Waits until a source has so many records.
    fn wait_for(&self, records: usize, name: &str) {
        let until = Instant::now() + Duration::from_secs(60);
        while self.payloads(name).len() < records {
            assert!(
                Instant::now() < until,
                "{records} records of {name} in vain"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn has_source(dir: &Path, name: &str) -> bool {
    let Ok(snapshot) = Directory::open(dir).and_then(|dir| dir.snapshot()) else {
        return false;
    };
    snapshot.catalog().find(name).is_some()
}

fn now() -> Timestamp {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    Timestamp(i64::try_from(since.as_nanos()).unwrap())
}

/// The own time of a payload.
fn own_time(payload: &[u8]) -> Timestamp {
    Timestamp(i64::from_le_bytes(*payload.first_chunk().unwrap()))
}

/// Ends a recording as Ctrl-C does.
fn interrupt(child: Child) -> Output {
    end(child, Signal::INT)
}

fn end(child: Child, signal: Signal) -> Output {
    send(&child, signal);
    child.wait_with_output().unwrap()
}

fn send(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// The program that a recording runs.
fn program_of(child: &Child) -> Pid {
    let children = format!("/proc/{0}/task/{0}/children", child.id());
    let program = std::fs::read_to_string(children).unwrap();
    Pid::from_raw(program.trim().parse().unwrap()).unwrap()
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Whether this user can record from the kernel and the network: one who cannot skips, except where `CI` is set.
fn may_record() -> bool {
    let may = rustix::process::geteuid().is_root();
    assert!(may || std::env::var_os("CI").is_none(), "CI skips nothing");
    if !may {
        println!("skipped: recording needs root");
    }
    may
}

#[test]
fn the_lines_of_a_program_and_its_exit_are_records() {
    let scene = scene();
    let script = "echo one; echo two >&2; printf three; exit 7";
    let output = scene.record(&["command", "--source", "log", "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("source=log received=4 stored=4 refused=0 dropped=0"));
    assert!(stderr(&output).contains("the program ended with exit status: 7"));
    let mut lines: Vec<_> = scene
        .payloads("log")
        .iter()
        .map(|payload| {
            // Own time, stream, length, text.
            (
                payload[8],
                String::from_utf8(payload[11..].to_vec()).unwrap(),
            )
        })
        .collect();
    lines.sort();
    let expected = [(1, "one"), (1, "three"), (2, "two"), (3, "exit status: 7")];
    assert_eq!(
        lines,
        expected.map(|(stream, line)| (stream, line.to_owned()))
    );
}

#[test]
fn the_json_of_a_program_becomes_fields() {
    let scene = scene();
    let script = "for n in 1 2 3; do echo \"{\\\"n\\\": $n}\"; done";
    let output = scene.record(&[
        "command", "--format", "json", "--source", "j", "--", "sh", "-c", script,
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(scene.payloads("j").len(), 3);
}

#[test]
fn a_program_that_is_missing_is_named_and_nothing_is_made() {
    let scene = scene();
    let output = scene.record(&["command", "--source", "x", "--", "/no/such/program"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("cannot run '/no/such/program'"),
        "{}",
        stderr(&output)
    );
    assert!(!scene.dir.exists());
}

#[test]
fn a_source_with_another_layout_is_an_error_that_names_the_option() {
    let scene = scene();
    let program = ["--", "echo", "x"];
    let lines = scene.record(&[&["command", "--source", "x"], &program[..]].concat());
    assert!(lines.status.success(), "{}", stderr(&lines));
    let json = ["--", "echo", "{\"n\": 1}"];
    let output =
        scene.record(&[&["command", "--format", "json", "--source", "x"], &json[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("--source NAME"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn two_captures_of_one_source_are_refused_before_anything_is_made() {
    let scene = scene();
    if !may_record() {
        return;
    }
    let output = scene.record(&["syscalls", "--source", "x", "+", "packets", "--source", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("two captures cannot fill the source 'x'"));
    assert!(!scene.dir.exists());
}

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

#[test]
fn a_filter_that_tcpdump_refuses_is_an_error_and_nothing_is_made() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let output = scene.record(&["packets", "-i", "lo", "no", "such", "filter"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("tcpdump cannot capture: "),
        "{}",
        stderr(&output)
    );
    assert!(!scene.dir.exists());
}

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
    // The process has ended, and so does the recording.
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("have ended"),
        "{}",
        stderr(&output)
    );
    // The shell's umask sets it, and sets it back.
    let payloads = scene.payloads("syscall");
    let marked = payloads.iter().filter(|payload| own_time(payload) >= mark);
    assert_eq!(marked.count(), 1000);
    assert!(scene.is_complete("syscall"));
}

#[test]
fn exactly_the_packets_that_were_sent_are_recorded_into_a_daemon_that_runs() {
    if may_record() {
        check_exactly("lo");
        check_exactly("any");
    }
}

fn check_exactly(interface: &str) {
    let scene = scene();
    let daemon = Daemon::start(&scene.dir, &Config::default(), false).unwrap();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = receiver.local_addr().unwrap();
    let port = to.port().to_string();
    let child = scene.start(
        &["packets", "-i", interface, "udp", "port", &port],
        "packet",
    );
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..5000_u32 {
        sender.send_to(&number.to_le_bytes(), to).unwrap();
    }
    let until = Instant::now() + Duration::from_secs(30);
    while scene.payloads("packet").len() < 5000 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = interrupt(child);
    assert!(output.status.success(), "{}", stderr(&output));
    daemon.stop().unwrap();
    let mut numbers: Vec<_> = scene
        .payloads("packet")
        .iter()
        .map(|payload| u32::from_le_bytes(*payload.last_chunk().unwrap()))
        .collect();
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..5000), "{}", stderr(&output));
    assert!(scene.is_complete("packet"));
}

#[test]
fn packets_that_found_the_buffer_full_are_counted_and_the_source_is_not_complete() {
    if may_record() {
        check_full_buffer("lo");
    }
}

#[test]
fn packets_of_any_interface_that_found_the_buffer_full_are_counted_once() {
    if may_record() {
        check_full_buffer("any");
    }
}

fn check_full_buffer(interface: &str) {
    const SENT: u32 = 3000;
    let scene = scene();
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    let to = receiver.local_addr().unwrap();
    let port = to.port().to_string();
    let child = scene.start(
        &["packets", "-i", interface, "udp", "port", &port],
        "packet",
    );
    // A tcpdump that stands still takes nothing from the buffer of 64 MiB.
    let tcpdump = program_of(&child);
    kill_process(tcpdump, Signal::STOP).unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    for _ in 0..SENT {
        sender.send_to(&[7; 50_000], to).unwrap();
    }
    kill_process(tcpdump, Signal::CONT).unwrap();
    let output = interrupt(child);
    assert!(output.status.success(), "{}", stderr(&output));
    let snapshot = Directory::open(&scene.dir).unwrap().snapshot().unwrap();
    let losses = snapshot.losses(&Poll::never()).unwrap();
    assert!(
        losses.iter().all(|loss| loss.stage == "kernel"),
        "{losses:?}"
    );
    let lost: u64 = losses.iter().map(|loss| loss.records.unwrap()).sum();
    let stored = scene.payloads("packet").len() as u64;
    assert!(lost > 0 && stored > 0, "{lost} lost, {stored} stored");
    assert_eq!(lost + stored, u64::from(SENT), "{}", stdout(&output));
    assert!(!scene.is_complete("packet"));
}

#[test]
fn an_interface_that_disappears_is_named() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let script =
        "ip link add loom0 type veth peer name loom1 && ip link set loom0 up && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args([
        "-n",
        "sh",
        "-c",
        script,
        "sh",
        env!("CARGO_BIN_EXE_ingestd"),
        "record",
    ]);
    command.arg(&scene.dir).args(["packets", "-i", "loom0"]);
    let child = scene.started(command, "packet");
    let removed = Command::new("nsenter")
        .args([
            "-n",
            "-t",
            &child.id().to_string(),
            "ip",
            "link",
            "del",
            "loom0",
        ])
        .status();
    assert!(removed.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("tcpdump ended by itself"), "{said}");
    assert!(said.contains("The interface disappeared"), "{said}");
    assert!(stdout(&output).starts_with("source=packet received="));
}

#[test]
fn a_daemon_that_stops_ends_the_recording_and_what_it_took_is_kept() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let daemon = Daemon::start(&scene.dir, &Config::default(), false).unwrap();
    let child = scene.start(&["syscalls", "--syscall", "read"], "syscall");
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
fn a_line_that_is_no_text_comes_in_pieces_that_records_hold() {
    let scene = scene();
    let script = "head -c 30000 /dev/zero | tr '\\0' '\\377'; echo; echo after";
    let output = scene.record(&["command", "--source", "log", "--", "sh", "-c", script]);
    assert!(output.status.success(), "{}", stderr(&output));
    let payloads = scene.payloads("log");
    let text: usize = payloads.iter().map(|payload| payload.len() - 11).sum();
    assert_eq!(text, 3 * 30_000 + "after".len() + "exit status: 0".len());
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
    // A recorder that stands still takes nothing from the ring of 64 MiB.
    send(&child, Signal::STOP);
    write(WRITES);
    made += WRITES;
    let full = now();
    send(&child, Signal::CONT);
    // The ring has room again, and what comes now is recorded.
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
fn a_program_that_does_not_end_when_asked_is_killed_when_the_time_is_over() {
    let scene = scene();
    let script = "trap '' TERM INT; echo begun; while :; do sleep 1; done";
    let begun = Instant::now();
    let output = scene.record(&[
        "command",
        "--seconds",
        "1",
        "--source",
        "log",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(output.status.success(), "{}", stderr(&output));
    let last = scene.payloads("log").pop().unwrap();
    let last = String::from_utf8_lossy(&last[11..]).into_owned();
    assert!(last.contains("SIGKILL"), "{last}");
}

#[test]
fn the_time_is_over_before_the_first_row_too() {
    let scene = scene();
    let begun = Instant::now();
    let output = scene.record(&[
        "command",
        "--format",
        "json",
        "--seconds",
        "1",
        "--source",
        "j",
        "--",
        "sleep",
        "60",
    ]);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("'sleep': it wrote no row"),
        "{}",
        stderr(&output)
    );
    assert!(!scene.dir.exists());
}

#[test]
fn json_without_rows_names_the_program_and_no_option_that_record_does_not_have() {
    for (script, expected) in [
        ("true", "'sh' wrote no rows"),
        (
            "echo nonsense",
            "cannot infer fields from 'sh': none of its first values",
        ),
    ] {
        let scene = scene();
        let output = scene.record(&[
            "command", "--format", "json", "--source", "j", "--", "sh", "-c", script,
        ]);
        assert_eq!(output.status.code(), Some(1));
        let said = stderr(&output);
        assert!(said.contains(expected), "{said}");
        assert!(
            !said.contains("--fields") && !said.contains("/proc/"),
            "{said}"
        );
    }
}

#[test]
fn a_terminal_that_closes_ends_a_recording_as_ctrl_c_does() {
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
fn a_program_does_not_outlive_a_recording_that_is_killed() {
    let scene = scene();
    let child = scene.start(&["command", "--source", "log", "--", "sleep", "600"], "log");
    let program = program_of(&child).as_raw_nonzero();
    end(child, Signal::KILL);
    let until = Instant::now() + Duration::from_secs(30);
    // One that nobody waits for stays as a zombie.
    let lives = || {
        let status = std::fs::read_to_string(format!("/proc/{program}/status"));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    };
    while lives() {
        assert!(Instant::now() < until, "process {program} lives");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_query_of_a_directory_with_a_quote_is_valid_sql() {
    let scene = scene_named("it's");
    let output = scene.record(&["command", "--source", "log", "--", "true"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("/it''s', 'log', 20)"), "{said}");
    assert!(said.contains("is its daemon"), "{said}");
}

#[test]
fn a_program_that_ends_well_is_noted_and_no_warning() {
    let scene = scene();
    let output = scene.record(&["command", "--source", "log", "--", "true"]);
    let said = stderr(&output);
    assert!(
        said.contains("the program ended with exit status: 0"),
        "{said}"
    );
    assert!(!said.contains("WARN"), "{said}");
}

#[test]
fn a_tcpdump_that_is_killed_is_reported_without_an_empty_reason() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let child = scene.start(&["packets", "-i", "lo", "port", "1"], "packet");
    kill_process(program_of(&child), Signal::KILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(
        said.contains("(signal: 9 (SIGKILL)); what was recorded"),
        "{said}"
    );
}

#[test]
fn without_an_interface_the_one_that_tcpdump_took_is_named() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let output = scene.record(&["packets", "--seconds", "1", "port", "1"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("it has the packets of interface '"), "{said}");
}

#[test]
fn an_interface_that_is_down_and_up_again_is_named_both_times() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let script = "mount -t sysfs sysfs /sys && ip link add loom0 type veth peer name loom1 && ip link set loom0 up && exec \"$@\"";
    let mut command = Command::new("unshare");
    let ingestd = env!("CARGO_BIN_EXE_ingestd");
    command.args(["-n", "-m", "sh", "-c", script, "sh", ingestd, "record"]);
    command
        .arg(&scene.dir)
        .args(["packets", "--seconds", "30", "-i", "loom0"]);
    let mut child = scene.started(command, "packet");
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    for (state, expected) in [("down", "'loom0' is down"), ("up", "'loom0' is up again")] {
        let set = Command::new("nsenter")
            .args(["-n", "-t", &child.id().to_string()])
            .args(["ip", "link", "set", "loom0", state])
            .status();
        assert!(set.unwrap().success());
        assert!(
            said.any(|line| line.unwrap().contains(expected)),
            "{expected}"
        );
    }
    interrupt(child);
}

#[test]
fn usage_errors_name_what_is_missing_or_too_long() {
    let scene = scene();
    let dir = scene.dir.to_str().unwrap();
    for (args, expected) in [
        (
            &["syscalls", "--comm", "x"][..],
            "the Loom directory is missing",
        ),
        (&["syscalls"], "the Loom directory is missing"),
        (&[dir], "no capture is given; give one of syscalls, packets"),
        (
            &[dir, "syscalls", "+"],
            "name one before it and one after it",
        ),
        (
            &[dir, "+", "syscalls"],
            "name one before it and one after it",
        ),
        (&[dir, "syscalls", "--comm", ""], "it is empty"),
        (
            &[dir, "syscalls", "--comm", "a-name-of-20-bytes--"],
            "give 'a-name-of-20-by'",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
        let output = command.arg("record").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert!(!scene.dir.exists());
    }
}

#[test]
fn a_size_for_a_daemon_that_runs_is_an_error() {
    let scene = scene();
    let daemon = Daemon::start(&scene.dir, &Config::default(), false).unwrap();
    let output = scene.record(&["command", "--keep", "9GiB", "--source", "x", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot apply --keep: a daemon runs on"));
    daemon.stop().unwrap();
}
