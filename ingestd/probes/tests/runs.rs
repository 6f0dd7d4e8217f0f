//! Every run of a thread is drained, with the times that the kernel itself counts.
//!
//! The program is this test's own executable, started again with a path in the environment.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod shared;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use loom_probes::{Counts, REASONS, Sched, Selection};
use shared::{drained, opened, own_name};

/// The file to which the program writes what the kernel counted; the program is only itself where this is set.
const OUT: &str = "LOOM_PROBES_OUT";
const THREADS: usize = 4;
const SLEEPS: usize = 1000;

/// Not a test: the program that is recorded. Each thread sleeps and computes in turns, and then writes its id and its counts.
#[test]
fn program() {
    let Some(out) = std::env::var_os(OUT) else {
        return;
    };
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(sleep_and_count)).collect();
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.collect::<String>()
    });
    std::fs::write(out, counts).unwrap();
}

fn sleep_and_count() -> String {
    for _ in 0..SLEEPS {
        std::thread::sleep(Duration::from_micros(20));
        let began = Instant::now();
        while began.elapsed() < Duration::from_micros(20) {
            std::hint::spin_loop();
        }
    }
    let own = Path::new("/proc/thread-self");
    let tid = std::fs::read_link(own).unwrap();
    let status = std::fs::read_to_string(own.join("status")).unwrap();
    let switches = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    let stat = std::fs::read_to_string(own.join("schedstat")).unwrap();
    let tid = tid.file_name().unwrap().to_str().unwrap();
    format!("{tid} {} {stat}", switches.unwrap().trim())
}

/// A record, as `bpf/sched.bpf.c` writes it.
#[derive(Debug)]
struct Run {
    nulls: u8,
    why: &'static str,
    pid: u32,
    ran_ns: u64,
    off_ns: u64,
    wait_ns: u64,
    tid: u32,
    woken_by: u32,
}

impl Run {
    fn of(payload: &[u8]) -> Run {
        let long = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap());
        let short = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
        Run {
            nulls: payload[8],
            why: REASONS[usize::from(payload[9])].1,
            pid: short(12),
            ran_ns: long(16),
            off_ns: long(24),
            wait_ns: long(32),
            tid: short(40),
            woken_by: short(44),
        }
    }
}

/// The runs of the program, and the lines that it wrote; nothing where this machine lets nobody record, which is a failure where `CI` is set.
fn recorded(off_min: Duration) -> Option<(u32, Vec<Run>, String, Counts)> {
    let filter = Sched {
        selection: Selection {
            names: vec![own_name()],
            ..Selection::default()
        },
        off_min,
    };
    let mut probe = opened(filter.open())?;
    let out = tempfile::NamedTempFile::new().unwrap();
    probe.arm().unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program"])
        .env(OUT, out.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = program.id();
    let (bytes, counts) = drained(&mut probe, &mut program);
    assert_eq!(counts.lost(), 0, "{counts:?}");
    let runs = bytes.chunks(usize::from(Sched::PAYLOAD_BYTES)).map(Run::of);
    let runs = runs.filter(|run| run.pid == pid).collect();
    let lines = std::fs::read_to_string(out.path()).unwrap();
    Some((pid, runs, lines, counts))
}

// case Recording: events of the kernel
#[test]
fn each_run_is_drained_once_with_the_times_that_the_kernel_counts() {
    // The host may take the processor away from a virtual one, which the kernel subtracts: a recording that is spoiled so is repeated.
    let mut times = String::new();
    for _ in 0..10 {
        let Some((_, runs, lines, counts)) = recorded(Duration::ZERO) else {
            return;
        };
        if times_are_near(&runs, &lines, &counts, &mut times) {
            return;
        }
    }
    panic!("ours and the kernel's times:\n{times}");
}

/// Whether all times are near to what the kernel counted; they are added to `times`. Everything else is the same in each recording.
fn times_are_near(runs: &[Run], lines: &str, counts: &Counts, times: &mut String) -> bool {
    let mut near = true;
    let mut of_thread: BTreeMap<u32, Vec<&Run>> = BTreeMap::new();
    for run in runs {
        of_thread.entry(run.tid).or_default().push(run);
    }
    assert_eq!(lines.lines().count(), THREADS);
    for line in lines.lines() {
        let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [tid, voluntary, ran_ns, waited_ns, begun] = numbers[..] else {
            panic!("{line}");
        };
        let runs = &of_thread[&(tid as u32)];
        let count = |why: &str| runs.iter().filter(|run| run.why == why).count() as u64;
        // Its last run began before it read the counts, and ended after.
        assert_eq!(count("sleeps") + count("blocked"), voluntary, "{counts:?}");
        // A sleep may be over before the thread stops.
        assert!(count("sleeps") > SLEEPS as u64 / 2);
        assert_eq!(count("ended"), 1);
        assert_eq!(count("stopped") + count("idle"), 0);
        assert!(runs.len() as u64 >= begun, "{} runs of {begun}", runs.len());
        assert_eq!(runs.last().unwrap().why, "ended");
        let sum = |of: fn(&Run) -> u64| runs.iter().map(|run| of(run)).sum::<u64>();
        // The kernel may begin a run where it is woken, as its clock of a processor stands still from there to the switch: then it counts the wait
        // as time on the processor, so the sums are compared.
        let ours = sum(|run| run.ran_ns) + sum(|run| run.wait_ns);
        let theirs = ran_ns + waited_ns;
        near &= ours.abs_diff(theirs) <= theirs / 10 + 2_000_000;
        near &= sum(|run| run.ran_ns) <= ran_ns + ran_ns / 10 + 2_000_000;
        let _ = writeln!(times, "{ours} and {theirs} ns");
        // Only the first run follows no sleep.
        let slept = runs.windows(2).filter(|two| two[0].why == "sleeps");
        for two in slept {
            let run = two[1];
            assert_eq!(run.nulls, 0, "{run:?}");
            assert!(run.off_ns > 0 && run.wait_ns <= run.off_ns, "{run:?}");
        }
        let preempted = runs.windows(2).filter(|two| two[0].why == "preempted");
        for two in preempted {
            let run = two[1];
            assert_eq!(run.nulls, 4, "nobody wakes it: {run:?}");
            assert_eq!(run.off_ns, run.wait_ns, "{run:?}");
        }
        let first = runs[0];
        assert_eq!(first.nulls, 1, "it was never off a processor: {first:?}");
        assert!(
            of_thread.contains_key(&first.woken_by),
            "its creator: {first:?}"
        );
    }
    near
}

// case Recording: filters in the kernel
#[test]
fn runs_after_less_time_off_the_processors_than_asked_for_are_filtered() {
    let Some((_, runs, _, counts)) = recorded(Duration::from_secs(3600)) else {
        return;
    };
    assert_eq!(runs.len(), 0, "{runs:?}");
    assert!(
        counts.filtered > (THREADS * SLEEPS) as u64 / 2,
        "{counts:?}"
    );
}
