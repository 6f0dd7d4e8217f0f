//! Tests events of the kernel: exact counts, losses, and the end of a daemon.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_engine::query::Poll;
use loom_engine::testkit::asked::{aggregated, whole};
use loom_engine::{TimeRange, Timestamp};
use loom_tests::command::{Ended, run, says, send};
use rustix::process::Signal;

use super::scene::{Scene, end, interrupt, may_record, now, own_time, recording, scene};

/// A lock for the tests that count the calls of every `dd` of this machine.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

// case Recording: something that is missing
#[test]
fn without_the_capabilities_one_sentence_names_them_and_nothing_is_made() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let record = scene.command(&["syscalls"]);
    let mut setpriv = Command::new("setpriv");
    setpriv.args("--bounding-set -bpf,-perfmon --inh-caps -bpf,-perfmon".split(' '));
    setpriv.arg(record.get_program()).args(record.get_args());
    let output = Ended::of(&mut setpriv).ends(1);
    says(&output.err, "CAP_BPF and CAP_PERFMON");
    assert_eq!(output.err.lines().count(), 1);
    assert!(!scene.dir.exists());
}

// case Recording: events of the kernel
#[test]
fn exactly_the_system_calls_and_the_calls_of_a_function_of_a_process_are_recorded() {
    if !may_record() {
        return;
    }
    let function = ["function", "libc.so.6:umask", "--arg=0:u32:mask"];
    for (capture, source) in [
        (&["syscalls", "--syscall", "umask"][..], "syscall"),
        (&function, "umask"),
    ] {
        let scene = scene();
        let mut shell = Command::new("sh");
        let calls = "i=0; while [ $i -lt 500 ]; do umask >/dev/null; i=$((i+1)); done";
        shell.args(["-c", &format!("while read line; do umask; done; {calls}")]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let pid = shell.id().to_string();
        let child = scene.start(&[capture, &["--pid", &pid]].concat(), source);
        // The programs are armed after the source is there.
        let mut asked = shell.stdin.take().unwrap();
        let mut masks = BufReader::new(shell.stdout.take().unwrap()).lines();
        while scene.payloads(source).is_empty() {
            asked.write_all(b"\n").unwrap();
            masks.next().unwrap().unwrap();
        }
        let mark = now();
        drop(asked);
        assert!(shell.wait().unwrap().success());
        // The process has ended, and so does the recording.
        let output = Ended::once(child).ends(0);
        says(&output.err, "have ended");
        // The shell's umask sets it, and sets it back.
        let payloads = scene.payloads(source);
        let marked = payloads.iter().filter(|payload| own_time(payload) >= mark);
        assert_eq!(marked.count(), 1000, "{source}");
        assert!(scene.is_complete(source));
    }
}

// case Recording: events of the kernel
#[test]
fn exactly_the_hits_of_a_static_probe_are_recorded() {
    if !may_record() {
        return;
    }
    let source = r#"
        int main(void) {
            for (int i = 0; i < 1000; i++)
                __asm__ volatile("990: nop\n"
                    ".pushsection .note.stapsdt,\"\",\"note\"\n.4byte 8, 992f-991f, 3\n.asciz \"stapsdt\"\n"
                    "991: .8byte 990b, 0, 0\n.asciz \"loom\"\n.asciz \"hit\"\n.asciz \"-4@%0\"\n"
                    "992: .balign 4\n.popsection" : : "r"(i));
            return 0;
        }"#;
    let folder = tempfile::tempdir().unwrap();
    let [program, text] = ["program", "program.c"].map(|name| folder.path().join(name));
    std::fs::write(&text, source).unwrap();
    let compiled = Command::new("cc")
        .arg("-o")
        .args([&program, &text])
        .status();
    assert!(compiled.unwrap().success());
    let scene = scene();
    let target = format!("{}:loom:hit", program.display());
    let child = recording(scene.command(&["function", &target]));
    assert!(Command::new(&program).status().unwrap().success());
    let output = interrupt(child).ends(0);
    let counts = "source=hit received=1000 stored=1000 refused=0 dropped=0 kernel_lost=0";
    says(&output.out, counts);
    // The last field is the argument.
    let arguments = scene
        .payloads("hit")
        .into_iter()
        .map(|payload| i32::from_le_bytes(*payload.last_chunk().unwrap()));
    assert!(arguments.eq(0..1000));
    assert!(scene.is_complete("hit"));
}

#[test]
fn a_recording_with_fewer_fields_than_the_one_before_is_stored() {
    if !may_record() {
        return;
    }
    let scene = scene();
    for arguments in [&["--arg=0:u32:mask"][..], &[]] {
        let mut shell = Command::new("sh");
        shell.args(["-c", "while read line; do umask; done"]);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let pid = shell.id().to_string();
        let begun = now();
        let command = [&["function", "libc.so.6:umask", "--pid", &pid], arguments].concat();
        let child = scene.start(&command, "umask");
        let mut asked = shell.stdin.take().unwrap();
        let mut masks = BufReader::new(shell.stdout.take().unwrap()).lines();
        let is_stored = || {
            let payloads = scene.payloads("umask");
            payloads.iter().any(|payload| own_time(payload) >= begun)
        };
        while !is_stored() {
            asked.write_all(b"\n").unwrap();
            masks.next().unwrap().unwrap();
        }
        drop(asked);
        assert!(shell.wait().unwrap().success());
        Ended::once(child).ends(0);
    }
}

#[test]
fn what_happens_after_the_line_that_says_recording_is_recorded() {
    if !may_record() {
        return;
    }
    let _alone = alone();
    let scene = scene();
    let writes = ["syscalls", "--comm", "dd", "--syscall", "write"];
    let child = recording(scene.command(&writes));
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"]);
    assert!(dd.arg("count=1000").status().unwrap().success());
    let output = interrupt(child).ends(0);
    assert_eq!(scene.payloads("syscall").len(), 1000);
    let counts = "source=syscall received=1000 stored=1000 refused=0 dropped=0 kernel_lost=0";
    says(&output.out, counts);
}

/// The records of an open index of `syscall`.
fn in_index(scene: &Scene, index: &str) -> usize {
    let snapshot = scene.snapshot();
    let source = snapshot.catalog().find("syscall").unwrap();
    let index = source.index(index).unwrap();
    let rows = aggregated(&snapshot, &whole(source.id, index.id, &[]));
    rows.iter().map(|row| row.count as usize).sum()
}

#[test]
fn calls_that_only_wait_are_in_an_index_of_their_own() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "read line; for i in 1 2 3; do umask; sleep 0.001; done",
    ]);
    shell.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut shell = shell.spawn().unwrap();
    let pid = shell.id().to_string();
    let calls = ["umask", "clock_nanosleep", "wait4"].map(|name| ["--syscall", name]);
    let follow = ["syscalls", "--follow", "--pid", &pid];
    let record = scene.command(&[&follow, calls.as_flattened()].concat());
    let child = recording(record);
    drop(shell.stdin.take());
    assert!(shell.wait().unwrap().success());
    Ended::once(child).ends(0);
    let waits = [230, 61_u16];
    let is_wait =
        |payload: &&Vec<u8>| waits.contains(&u16::from_le_bytes([payload[32], payload[33]]));
    let payloads = scene.payloads("syscall");
    let waiting = payloads.iter().filter(is_wait).count();
    assert!(
        waiting >= 6 && payloads.len() - waiting >= 6,
        "{payloads:?}"
    );
    assert_eq!(in_index(&scene, "wait"), waiting);
    assert_eq!(in_index(&scene, "latency"), payloads.len() - waiting);
}

// case Recording: something that is missing
#[test]
fn an_older_index_of_all_calls_is_refused_until_it_is_closed() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let before = tempfile::NamedTempFile::new().unwrap();
    let fields = [
        ("latency_ns", "u64"),
        ("result", "i64"),
        ("arg0", "u64"),
        ("number", "u16"),
        ("cpu", "u16"),
        ("pid", "u32"),
        ("tid", "u32"),
        ("comm", "char[16]"),
    ];
    let fields = fields.map(|(name, ty)| format!("{{ name = '{name}', type = '{ty}' }}"));
    let index = "index = [{ name = 'latency', value = 'latency_ns' }]";
    let source = format!(
        "[[source]]\nname = 'syscall'\ntime = 'own'\nfield = [{}]\n{index}\n",
        fields.join(", ")
    );
    std::fs::write(&before, source).unwrap();
    let [dir, before] = [scene.dir.as_path(), before.path()].map(|path| path.to_str().unwrap());
    run(&["source", "add", dir, "--fields", before]).ends(0);
    let record = ["syscalls", "--syscall", "umask", "--seconds", "1"];
    scene.record(&record).ends(1).says(
        "has an index 'latency' with another definition; close it first with 'ingestd index close'; or record into another source with --source NAME",
    );
    run(&[
        "index", "close", dir, "--source", "syscall", "--index", "latency",
    ])
    .ends(0);
    scene.record(&record).ends(0);
    assert_eq!(in_index(&scene, "wait"), 0);
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
    scene.wait_for(1, "syscall");
    daemon.stop().unwrap();
    let output = Ended::once(child).ends(1);
    says(&output.err, "the daemon stopped");
    assert!(!scene.payloads("syscall").is_empty());
}

#[test]
fn what_the_kernel_lost_leaves_the_windows_before_and_after_it_complete() {
    const WRITES: u64 = 1_300_000;
    if !may_record() {
        return;
    }
    let _alone = alone();
    let scene = scene();
    let write = |writes: u64| {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "of=/dev/null", "bs=1", "status=none"]);
        let done = dd.arg(format!("count={writes}")).status().unwrap();
        assert!(done.success());
    };
    let writes = ["syscalls", "--comm", "dd", "--syscall", "write"];
    let child = scene.start(&writes, "syscall");
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
    interrupt(child).ends(0);
    let snapshot = scene.snapshot();
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
    let record = [&["command", "--source", "log"], &program[..]].concat();
    let child = scene.start(&record, "log");
    scene.wait_for(1, "log");
    let output = end(child, Signal::HUP).ends(0);
    says(&output.out, "source=log received=2 stored=2");
}

#[test]
fn disks_have_their_names_in_a_recording_and_in_the_next() {
    if !may_record() {
        return;
    }
    let scene = scene();
    for _ in 0..2 {
        scene.record(&["blockio", "--seconds", "1"]).ends(0);
    }
    let snapshot = scene.snapshot();
    let source = snapshot.catalog().find("blockio").unwrap();
    let device = source.fields.iter().find(|field| field.name == "device");
    let labels = &device.unwrap().labels;
    let mut disks = 0;
    for disk in std::fs::read_dir("/sys/block").unwrap() {
        let disk = disk.unwrap();
        let numbers = std::fs::read_to_string(disk.path().join("dev")).unwrap();
        let (major, minor) = numbers.trim().split_once(':').unwrap();
        let number = major.parse::<i128>().unwrap() << 20 | minor.parse::<i128>().unwrap();
        let name = disk.file_name().to_string_lossy().into_owned();
        assert_eq!(labels.get(&number), Some(&name));
        disks += 1;
    }
    assert!(disks > 0 && labels.len() >= disks, "{labels:?}");
}
