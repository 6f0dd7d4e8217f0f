//! Every system call that a program makes is drained, whatever its threads, children and neighbours do.
//!
//! The programs are this test's own executable, started again with a test's name and a number in the environment.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use std::process::{Child, Command, Stdio};
use std::thread;

use loom_probes::{Clock, Counts, Probe, ProbeError, Syscalls, number_of};

/// How many calls the program makes; the program is only itself where this is set.
const CALLS: &str = "LOOM_PROBES_CALLS";
const THREADS: &str = "LOOM_PROBES_THREADS";

/// Not a test: the program that is recorded.
#[test]
fn program() {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let (Some(calls), Some(threads)) = (number(CALLS), number(THREADS)) else {
        return;
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| (0..calls / threads).for_each(|_| drop(rustix::process::getppid())));
        }
    });
}

fn start(calls: u64, threads: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program"])
        .env(CALLS, calls.to_string())
        .env(THREADS, threads.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// A probe, or nothing where this machine lets nobody record: a failure where `CI` is set.
fn open(filter: &Syscalls) -> Option<Probe> {
    match filter.open() {
        Ok(probe) => Some(probe),
        Err(error @ ProbeError::Capability { .. }) => {
            assert!(
                std::env::var_os("CI").is_none(),
                "CI skips nothing: {error}"
            );
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Drains until the program has ended; the payloads, and what the kernel counted.
fn record(mut probe: Probe, mut program: Child) -> (Vec<Vec<u8>>, Counts, u64) {
    let clock = Clock::take();
    let mut bytes = Vec::new();
    while program.try_wait().unwrap().is_none() {
        if probe.drain(clock, &mut bytes, usize::MAX) == 0 {
            thread::yield_now();
        }
    }
    let counts = probe.disarm(clock, &mut bytes).unwrap();
    let under_way = Syscalls::under_way(&mut probe).unwrap();
    let payloads = bytes.chunks(usize::from(Syscalls::PAYLOAD_BYTES));
    (payloads.map(<[u8]>::to_vec).collect(), counts, under_way)
}

fn getppid() -> Syscalls {
    Syscalls {
        numbers: vec![number_of("getppid").unwrap()],
        ..Syscalls::default()
    }
}

/// Of the program's name, as the kernel keeps it.
fn own_name() -> String {
    let exe = std::env::current_exe().unwrap();
    exe.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn each_call_of_four_threads_is_drained_once() {
    let filter = Syscalls {
        names: vec![own_name()],
        ..getppid()
    };
    let Some(mut probe) = open(&filter) else {
        return;
    };
    probe.arm().unwrap();
    let before = Clock::take().wall_ns(0);
    let child = start(400_000, 4);
    let pid = child.id();
    let (payloads, counts, under_way) = record(probe, child);
    assert_eq!(counts.lost(), 0, "{counts:?}");
    assert_eq!(payloads.len(), 400_000, "{counts:?}");
    assert_eq!(
        (counts.emitted, counts.unpaired, under_way),
        (400_000, 0, 0)
    );
    let getppid = number_of("getppid").unwrap();
    for payload in &payloads {
        let word = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap());
        assert!(word(0) > before as u64);
        assert!(word(8) < 10_000_000_000, "latency {}", word(8));
        assert_eq!(word(16), u64::from(std::process::id()), "the parent's id");
        assert_eq!(payload[32..34], getppid.to_le_bytes());
        assert_eq!(payload[36..40], pid.to_le_bytes());
    }
}
