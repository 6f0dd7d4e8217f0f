//! Every system call that a program makes is drained, whatever its threads, children and neighbours do.
//!
//! The programs are this test's own executable, started again with a test's name and a number in the environment.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

mod shared;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use loom_probes::{Clock, Counts, NUMBER_UNKNOWN, Probe, Selection, Syscalls, number_of};
use shared::{drained, opened, own_name, skip};

/// How many calls the program makes; the program is only itself where this is set.
const CALLS: &str = "LOOM_PROBES_CALLS";
const THREADS: &str = "LOOM_PROBES_THREADS";
/// The number of the call; without it, that of getppid.
const NUMBER: &str = "LOOM_PROBES_NUMBER";

/// Not a test: the program that is recorded.
#[test]
fn program() {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let (Some(calls), Some(threads)) = (number(CALLS), number(THREADS)) else {
        return;
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let made = number(NUMBER).unwrap_or_else(|| number_of("getppid").unwrap().into());
                (0..calls / threads).for_each(|_| {
                    // SAFETY: getppid takes no argument, and the kernel refuses a number that does not name a call.
                    unsafe { libc::syscall(made as libc::c_long) };
                })
            });
        }
    });
}

fn program_of(calls: u64, threads: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "program"])
        .env(CALLS, calls.to_string())
        .env(THREADS, threads.to_string())
        .stdout(Stdio::null());
    command
}

fn start(calls: u64, threads: u64) -> Child {
    program_of(calls, threads).spawn().unwrap()
}

/// A shell that waits for its input to end, and then starts the program twice and becomes it.
fn shell(calls: u64) -> Child {
    let program = std::env::current_exe().unwrap();
    let run = format!("'{}' --exact program", program.display());
    let script = format!("read line; {run}; {run}; exec {run}");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).stdin(Stdio::piped());
    command
        .env(CALLS, calls.to_string())
        .env(THREADS, "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Programs of all these tests have one name, so that a test records only while no other does.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A probe that records already.
fn armed(filter: &Syscalls) -> Option<Probe> {
    let mut probe = opened(filter.open())?;
    probe.arm().unwrap();
    Some(probe)
}

/// Drains until the program has ended; the payloads, what the kernel counted, and how many calls were under way.
fn record(mut probe: Probe, mut program: Child) -> (Vec<Vec<u8>>, Counts, u64) {
    let (bytes, counts) = drained(&mut probe, &mut program);
    let under_way = Syscalls::under_way(&mut probe).unwrap();
    let payloads = bytes.chunks(usize::from(Syscalls::PAYLOAD_BYTES));
    (payloads.map(<[u8]>::to_vec).collect(), counts, under_way)
}

fn named(name: String) -> Selection {
    Selection {
        names: vec![name],
        ..Selection::default()
    }
}

fn getppid() -> Syscalls {
    Syscalls {
        numbers: vec![number_of("getppid").unwrap()],
        ..Syscalls::default()
    }
}

fn getppid_by_name() -> Syscalls {
    Syscalls {
        selection: named(own_name()),
        ..getppid()
    }
}

// case Recording: events of the kernel
#[test]
fn each_call_of_four_threads_is_drained_once() {
    let _alone = alone();
    let Some(probe) = armed(&getppid_by_name()) else {
        return;
    };
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

// case Recording: events of the kernel
#[test]
fn calls_beside_64_busy_threads_are_drained_once() {
    let _alone = alone();
    let Some(probe) = armed(&getppid_by_name()) else {
        return;
    };
    let is_over = AtomicBool::new(false);
    let (payloads, counts, _) = thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let recorded = record(probe, start(100_000, 4));
        is_over.store(true, Ordering::Relaxed);
        recorded
    });
    assert_eq!(payloads.len(), 100_000, "{counts:?}");
    assert_eq!(counts.lost(), 0);
}

// case Recording: events of the kernel
#[test]
fn a_ring_that_nobody_drains_counts_what_it_had_no_room_for() {
    let _alone = alone();
    const MADE: u64 = 1_200_000;
    let Some(mut probe) = armed(&getppid_by_name()) else {
        return;
    };
    let status = start(MADE, 2).wait().unwrap();
    assert!(status.success());
    let mut bytes = Vec::new();
    let counts = probe.disarm(Clock::take(), &mut bytes).unwrap();
    let drained = (bytes.len() / usize::from(Syscalls::PAYLOAD_BYTES)) as u64;
    assert_eq!(counts.emitted, drained);
    assert!(counts.failed > 0, "{counts:?}");
    assert_eq!(counts.emitted + counts.failed, MADE, "{counts:?}");
    assert_eq!(counts.lost(), counts.failed);
}

/// How many calls of a shell and of the programs that it starts are recorded, by the shell's id.
fn calls_of_a_shell(follow: bool, calls: u64) -> Option<u64> {
    let mut shell = shell(calls);
    let filter = Syscalls {
        selection: Selection {
            pids: vec![shell.id()],
            follow,
            ..Selection::default()
        },
        ..getppid()
    };
    let probe = opened(filter.open());
    let begun = shell.stdin.take();
    let Some(mut probe) = probe else {
        drop(begun);
        shell.wait().unwrap();
        return None;
    };
    probe.arm().unwrap();
    drop(begun);
    let (payloads, counts, _) = record(probe, shell);
    assert_eq!(counts.lost(), 0, "{counts:?}");
    // The shell itself asks for its parent's id too, before and after.
    Some(payloads.len() as u64 / 100 * 100)
}

// case Recording: filters in the kernel
#[test]
fn a_process_is_followed_across_fork_and_exec_where_asked() {
    let _alone = alone();
    if let Some(calls) = calls_of_a_shell(true, 10_000) {
        assert_eq!(calls, 30_000);
    }
}

// case Recording: filters in the kernel
#[test]
fn without_follow_only_the_process_itself_is_recorded() {
    let _alone = alone();
    if let Some(calls) = calls_of_a_shell(false, 10_000) {
        assert_eq!(calls, 10_000, "the program that the shell becomes");
    }
}

// case Recording: filters in the kernel
#[test]
fn a_process_that_executes_another_program_is_no_longer_recorded_by_its_name() {
    let _alone = alone();
    let filter = Syscalls {
        selection: named("sh".to_owned()),
        ..getppid()
    };
    let Some(mut probe) = opened(filter.open()) else {
        return;
    };
    let mut shell = shell(10_000);
    probe.arm().unwrap();
    drop(shell.stdin.take());
    let (payloads, _, _) = record(probe, shell);
    // Other shells of this machine may ask for their parents.
    assert!(payloads.len() < 1000, "{} calls", payloads.len());
}

// case Recording: filters in the kernel
#[test]
fn calls_that_are_shorter_than_asked_for_are_filtered_and_no_loss() {
    let _alone = alone();
    let filter = Syscalls {
        latency_min: std::time::Duration::from_secs(3600),
        ..getppid_by_name()
    };
    let Some(probe) = armed(&filter) else {
        return;
    };
    let (payloads, counts, _) = record(probe, start(1000, 1));
    assert_eq!((payloads.len(), counts.lost()), (0, 0));
    assert_eq!(counts.filtered, 1000);
}

#[test]
fn the_id_of_a_thread_is_refused_with_that_of_its_process() {
    if opened(getppid().open()).is_none() {
        return;
    }
    let (process, own) = (std::process::id(), rustix::thread::gettid());
    let tid = own.as_raw_nonzero().get() as u32;
    // A test runs on a thread of its own.
    assert_ne!(tid, process);
    let filter = Syscalls {
        selection: Selection {
            pids: vec![tid],
            ..Selection::default()
        },
        ..getppid()
    };
    let said = filter.open().err().unwrap().to_string();
    let expected = format!("a thread of process {process}; give --pid {process}");
    assert!(said.contains(&expected), "{said}");
}

#[test]
fn a_number_that_two_bytes_do_not_hold_bears_the_name_of_no_call() {
    let _alone = alone();
    let getppid_of_x32 = 0x4000_0000 + u32::from(number_of("getppid").unwrap());
    let run = |filter: &Syscalls| {
        let probe = armed(filter)?;
        let mut program = program_of(1000, 1);
        program.env(NUMBER, getppid_of_x32.to_string());
        let (payloads, counts, _) = record(probe, program.spawn().unwrap());
        assert_eq!(counts.lost(), 0);
        let numbers = payloads
            .iter()
            .map(|payload| u16::from_le_bytes([payload[32], payload[33]]));
        Some(numbers.collect::<Vec<_>>())
    };
    let of_name = Syscalls {
        selection: named(own_name()),
        ..Syscalls::default()
    };
    let Some(all) = run(&of_name) else {
        return;
    };
    let is_getppid = |number: &&u16| Some(**number) == number_of("getppid");
    assert_eq!(all.iter().filter(is_getppid).count(), 0);
    let unknown = all.iter().filter(|number| **number == NUMBER_UNKNOWN);
    assert_eq!(unknown.count(), 1000);
    assert_eq!(run(&getppid_by_name()).unwrap(), []);
}

/// Set where this executable runs in a PID namespace of its own.
const INSIDE: &str = "LOOM_PROBES_INSIDE";

/// Not a test: records by an id of its namespace, and everything, and reports what it found.
#[test]
fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    assert!(std::process::id() < 1000, "a new namespace counts from 1");
    assert_eq!(calls_of_a_shell(true, 1000), Some(3000));
    assert_eq!(calls_of_a_shell(false, 1000), Some(1000));
    let mut probe = getppid().open().unwrap();
    probe.arm().unwrap();
    let child = start(5000, 1);
    let pid = child.id();
    for _ in 0..100 {
        let _ = rustix::process::getppid();
    }
    let (payloads, _, _) = record(probe, child);
    let of = |pid: u32| {
        payloads
            .iter()
            .filter(|payload| payload[36..40] == pid.to_le_bytes())
            .count()
    };
    assert_eq!((of(pid), of(std::process::id())), (5000, 0));
    assert_eq!(of(0), 0, "processes of other namespaces are not recorded");
    println!("it recorded");
}

#[test]
fn in_a_pid_namespace_processes_are_recorded_by_the_ids_that_they_have_there() {
    let _alone = alone();
    if opened(getppid().open()).is_none() {
        return;
    }
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "inside", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("it recorded"),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// The calls by number, as `strace -c` counted them in this table.
fn counted_by_strace(table: &str) -> Vec<(u16, u64)> {
    let rows = table.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (calls, name) = (words.get(3)?.parse().ok()?, *words.last()?);
        Some((number_of(name)?, calls))
    });
    rows.collect()
}

// case Recording: events of the kernel
#[test]
fn all_calls_of_a_program_are_those_that_strace_counts() {
    let _alone = alone();
    let has_strace = Command::new("strace").arg("--version").output().is_ok();
    if !has_strace {
        skip("strace is missing");
        return;
    }
    let filter = Syscalls {
        selection: named(own_name()),
        ..Syscalls::default()
    };
    let Some(probe) = armed(&filter) else {
        return;
    };
    let table = tempfile::NamedTempFile::new().unwrap();
    let mut strace = Command::new("strace");
    strace.args(["-c", "-f", "-o"]).arg(table.path());
    strace.arg(std::env::current_exe().unwrap());
    strace.args(["--exact", "program"]).stdout(Stdio::null());
    strace.env(CALLS, "2000").env(THREADS, "4");
    let (payloads, counts, _) = record(probe, strace.spawn().unwrap());
    assert_eq!(counts.lost(), 0);
    let mut ours = std::collections::BTreeMap::new();
    for payload in &payloads {
        *ours
            .entry(u16::from_le_bytes([payload[32], payload[33]]))
            .or_insert(0_u64) += 1;
    }
    let theirs = counted_by_strace(&std::fs::read_to_string(table.path()).unwrap());
    assert!(
        theirs.contains(&(number_of("getppid").unwrap(), 2000)),
        "{theirs:?}"
    );
    for (number, calls) in theirs {
        // The program has its name once execve has returned, and the others do not return.
        let ends = ["execve", "exit", "exit_group"].map(|name| number_of(name).unwrap());
        if !ends.contains(&number) {
            assert_eq!(ours.get(&number), Some(&calls), "system call {number}");
        }
    }
}
