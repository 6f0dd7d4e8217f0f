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
    // On a busy machine, Linux 6.18 runs no program at some of ten thousand switches, and counts none of them; the host may take a processor away,
    // which the kernel subtracts; and a thread may be joined before it stops for the last time. So one exact recording of ten is enough.
    let mut wrong = String::new();
    for _ in 0..10 {
        let Some((_, runs, lines, counts)) = recorded(Duration::ZERO) else {
            return;
        };
        match is_exact(&runs, &lines) {
            Ok(()) => return,
            Err(why) => wrong += &format!("{why}; {counts:?}\n"),
        }
    }
    panic!("{wrong}");
}

fn is_exact(runs: &[Run], lines: &str) -> Result<(), String> {
    let holds = |holds: bool, what: &dyn std::fmt::Debug| match holds {
        true => Ok(()),
        false => Err(format!("{what:?}")),
    };
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
        let stops = ["sleeps", "blocked", "ended", "stopped", "idle"].map(count);
        let [sleeps, blocked, ended, stopped, idle] = stops;
        holds(sleeps + blocked == voluntary, &(stops, line))?;
        // A sleep may be over before the thread stops.
        holds(sleeps > SLEEPS as u64 / 2, &stops)?;
        holds(ended == 1 && stopped + idle == 0, &stops)?;
        holds(runs.len() as u64 >= begun, &(runs.len(), begun))?;
        holds(runs.last().unwrap().why == "ended", runs.last().unwrap())?;
        let sum = |of: fn(&Run) -> u64| runs.iter().map(|run| of(run)).sum::<u64>();
        let (ran, waited) = (sum(|run| run.ran_ns), sum(|run| run.wait_ns));
        // The kernel may begin a run where it is woken, as its clock of a processor stands still from there to the switch: then it counts the wait
        // as time on the processor, so the sums are compared.
        let near =
            (ran + waited).abs_diff(ran_ns + waited_ns) <= (ran_ns + waited_ns) / 10 + 2_000_000;
        holds(
            near && ran <= ran_ns + ran_ns / 10 + 2_000_000,
            &(ran, waited, line),
        )?;
        // Only the first run follows no sleep.
        let slept = runs.windows(2).filter(|two| two[0].why == "sleeps");
        for two in slept {
            let run = two[1];
            let is_timed = run.nulls == 0 && run.off_ns > 0 && run.wait_ns <= run.off_ns;
            holds(is_timed, run)?;
        }
        let preempted = runs.windows(2).filter(|two| two[0].why == "preempted");
        for two in preempted {
            let run = two[1];
            // Nobody wakes it.
            holds(run.nulls == 4 && run.off_ns == run.wait_ns, run)?;
        }
        // It was never off a processor before, and its creator woke it.
        let first = runs[0];
        let is_woken = of_thread.contains_key(&first.woken_by);
        holds(first.nulls == 1 && is_woken, first)?;
    }
    Ok(())
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
