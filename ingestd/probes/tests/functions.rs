//! Every call of a function is drained, whatever its threads, its depth and its end.
//!
//! The program is this test's own executable, started again with a number in the environment, or a C program that a compiler makes.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod shared;

use std::ffi::{CStr, c_char};
use std::hint::black_box;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use loom_probes::{
    Argument, Clock, Counts, Function, Probe, ProbeError, Selection, Target, ValueType,
};
use shared::{compiled, drained, opened, own_name, skip};

/// How many calls each of its threads makes; the program is only itself where this is set.
const CALLS: &str = "LOOM_PROBES_CALLS";
/// The greatest depth of a call; from 0 to that they take turns.
const DEPTH: &str = "LOOM_PROBES_DEPTH";
const THREADS: u64 = 4;

/// The calls that this process has made.
static MADE: AtomicU64 = AtomicU64::new(0);

/// The function that is recorded.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn loom_probes_called(
    depth: u32,
    negative: i16,
    text: *const c_char,
    is_even: bool,
    _fourth: u64,
    _fifth: u64,
    on_stack: u64,
    also_on_stack: i32,
) -> i64 {
    // An optimised function must not begin with this addition, which the kernel cannot probe.
    let depth = black_box(depth);
    MADE.fetch_add(1, Ordering::Relaxed);
    if depth == 0 {
        return -1;
    }
    // The optimizer shall not make a loop of it.
    let own: extern "C" fn(u32, i16, *const c_char, bool, u64, u64, u64, i32) -> i64 =
        black_box(loom_probes_called);
    let below = own(
        depth - 1,
        negative,
        text,
        !is_even,
        0,
        0,
        on_stack,
        also_on_stack,
    );
    black_box(below) - 1
}

/// Not a test: the program that is recorded. It waits for the end of its input, and prints how many calls it made.
#[test]
fn program() {
    let number = |name| std::env::var(name).ok()?.parse::<u32>().ok();
    let (Some(calls), Some(depth)) = (number(CALLS), number(DEPTH)) else {
        return;
    };
    std::io::read_to_string(std::io::stdin()).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for call in 0..calls {
                    let text = c"grüß dich";
                    loom_probes_called(
                        call % (depth + 1),
                        -7,
                        text.as_ptr(),
                        true,
                        4,
                        5,
                        1 << 40,
                        -6,
                    );
                }
            });
        }
    });
    println!("made={}", MADE.load(Ordering::Relaxed));
}

/// Starts the program, which waits until its input is dropped.
#[inline(never)]
fn start(calls: u32, depth: u32) -> (Child, ChildStdin) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "program", "--nocapture"])
        .env(CALLS, calls.to_string())
        .env(DEPTH, depth.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut program = command.spawn().unwrap();
    let begun = program.stdin.take().unwrap();
    (program, begun)
}

/// The number of calls that the program printed.
fn made(program: Child) -> u64 {
    let said = program.wait_with_output().unwrap().stdout;
    let said = String::from_utf8(said).unwrap();
    let made = said.lines().find_map(|line| line.split_once("made="));
    made.unwrap().1.parse().unwrap()
}

/// The function of this executable.
fn called() -> Function {
    let exe = std::env::current_exe().unwrap();
    function(&format!("{}:loom_probes_called", exe.display()))
}

fn function(text: &str) -> Function {
    Function {
        target: Target::find(text, &[]).unwrap(),
        selection: Selection::default(),
        latency_min: Duration::ZERO,
        args: Vec::new(),
        result: None,
    }
}

fn with_pid(pid: u32) -> Function {
    Function {
        selection: Selection {
            pids: vec![pid],
            ..Selection::default()
        },
        ..called()
    }
}

/// Programs of all these tests have one executable, so that a test records only while no other does.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A probe that records already.
fn armed(function: &Function) -> Option<Probe> {
    let mut probe = opened(function.open())?;
    probe.arm().unwrap();
    Some(probe)
}

/// A payload without its values.
#[derive(Debug)]
struct Call<'a> {
    returned_ns: i64,
    latency_ns: u64,
    cgroup: u64,
    function: u32,
    pid: u32,
    tid: u32,
    comm: &'a [u8],
    values: &'a [u8],
}

impl Call<'_> {
    fn of(payload: &[u8], has_nulls: usize) -> Call<'_> {
        let fields = &payload[8 + has_nulls..];
        let long = |at: usize| u64::from_le_bytes(fields[at..at + 8].try_into().unwrap());
        let short = |at: usize| u32::from_le_bytes(fields[at..at + 4].try_into().unwrap());
        Call {
            returned_ns: i64::from_le_bytes(payload[..8].try_into().unwrap()),
            latency_ns: long(0),
            cgroup: long(8),
            function: short(16),
            pid: short(20),
            tid: short(24),
            comm: &fields[28..44],
            values: &fields[46..],
        }
    }
}

/// Records a program that waits.
fn record(function: &Function, calls: u32, depth: u32) -> Option<(Vec<Vec<u8>>, Counts)> {
    let (mut program, begun) = start(calls, depth);
    let probe = armed(function);
    drop(begun);
    let Some(mut probe) = probe else {
        program.wait().unwrap();
        return None;
    };
    let (bytes, counts) = drained(&mut probe, &mut program);
    assert_eq!(Function::under_way(&mut probe).unwrap(), 0);
    assert_eq!((counts.unpaired, counts.left), (0, 0), "{counts:?}");
    let counted = counts.emitted + counts.lost() + counts.filtered;
    assert_eq!(made(program), counted, "{counts:?}");
    let payloads = bytes.chunks(usize::from(function.payload_bytes()));
    Some((payloads.map(<[u8]>::to_vec).collect(), counts))
}

// case Recording: events of the kernel
#[test]
fn each_call_of_four_threads_is_drained_once_with_its_arguments_and_its_result() {
    let _alone = alone();
    let argument = |place, ty| Argument { place, ty };
    let filter = Function {
        args: vec![
            argument(0, ValueType::U32),
            argument(1, ValueType::I16),
            argument(2, ValueType::Text),
            argument(3, ValueType::Bool),
            argument(6, ValueType::U64),
            argument(7, ValueType::I32),
            argument(0, ValueType::Text),
        ],
        result: Some(ValueType::I64),
        ..called()
    };
    let before = Clock::take().wall_ns(0);
    let Some((payloads, counts)) = record(&filter, 3000, 3) else {
        return;
    };
    assert_eq!(payloads.len() as u64, THREADS * 3000 / 4 * (1 + 2 + 3 + 4));
    assert_eq!(counts.lost(), 0, "{counts:?}");
    let mut of_thread = std::collections::BTreeMap::new();
    for payload in &payloads {
        // Neither 0 nor a small number is the address of a text.
        assert_eq!(payload[8], 0b0100_0000);
        let call = Call::of(payload, 1);
        assert!(call.returned_ns > before);
        assert!(call.latency_ns < 10_000_000_000, "{call:?}");
        assert_eq!(call.function, filter.target.functions[0].number);
        assert_eq!(call.pid, Call::of(&payloads[0], 1).pid);
        assert!(call.comm.starts_with(b"program\0"), "the test's thread");
        let depth = u32::from_le_bytes(call.values[..4].try_into().unwrap());
        let (values, result) = call.values[4..].split_at(2 + 64 + 1 + 8 + 4 + 64);
        assert_eq!(values[..2], (-7_i16).to_le_bytes());
        let text = CStr::from_bytes_until_nul(&values[2..66]).unwrap();
        assert_eq!(text, c"grüß dich");
        assert!(values[66] < 2);
        assert_eq!(values[67..75], (1_u64 << 40).to_le_bytes());
        assert_eq!(values[75..79], (-6_i32).to_le_bytes());
        assert_eq!(result, (-1 - i64::from(depth)).to_le_bytes());
        of_thread
            .entry(call.tid)
            .or_insert_with(Vec::new)
            .push((depth, call.latency_ns));
    }
    assert_eq!(of_thread.len() as u64, THREADS);
    for calls in of_thread.into_values() {
        for two in calls.windows(2) {
            // A call returns directly after the one inside it, which took less time.
            assert!(two[1].0 != two[0].0 + 1 || two[1].1 >= two[0].1, "{two:?}");
        }
    }
}

// case Recording: filters in the kernel
#[test]
fn only_the_calls_of_a_process_are_recorded_and_those_of_all_without_one() {
    let _alone = alone();
    for by_pid in [true, false] {
        let (mut one, one_begun) = start(1000, 0);
        let (other, other_begun) = start(500, 0);
        let filter = if by_pid { with_pid(one.id()) } else { called() };
        let probe = armed(&filter);
        drop((one_begun, other_begun));
        assert_eq!(made(other), THREADS * 500);
        let Some(mut probe) = probe else {
            return;
        };
        let (bytes, counts) = drained(&mut probe, &mut one);
        let payloads = bytes.chunks(usize::from(filter.payload_bytes()));
        let pids = payloads.map(|payload| Call::of(payload, 0).pid);
        let of_one = pids.filter(|pid| *pid == one.id()).count() as u64;
        assert_eq!(of_one, THREADS * 1000, "{counts:?}");
        let all = THREADS * if by_pid { 1000 } else { 1500 };
        assert_eq!((counts.emitted, counts.lost()), (all, 0), "{counts:?}");
    }
}

// case Recording: filters in the kernel
#[test]
fn a_program_that_starts_later_is_recorded_by_its_name_and_in_its_cgroup() {
    let _alone = alone();
    let filter = Function {
        selection: Selection {
            names: vec![own_name()],
            ..Selection::default()
        },
        ..called()
    };
    let Some(mut probe) = armed(&filter) else {
        return;
    };
    let (mut program, begun) = start(1000, 1);
    drop(begun);
    let (bytes, counts) = drained(&mut probe, &mut program);
    assert_eq!(made(program), counts.emitted, "{counts:?}");
    let payload = bytes.chunks(usize::from(filter.payload_bytes())).next();
    assert!(Call::of(payload.unwrap(), 0).cgroup > 0);
}

// case Recording: filters in the kernel
#[test]
fn calls_that_are_shorter_than_asked_for_are_filtered_and_no_loss() {
    let _alone = alone();
    let filter = Function {
        latency_min: Duration::from_secs(3600),
        ..called()
    };
    let Some((payloads, counts)) = record(&filter, 1000, 1) else {
        return;
    };
    assert_eq!((payloads.len(), counts.lost()), (0, 0));
    assert_eq!(counts.filtered, THREADS * 1500);
}

// case Recording: events of the kernel
#[test]
fn a_ring_that_nobody_drains_counts_what_it_had_no_room_for() {
    let _alone = alone();
    let (mut program, begun) = start(300_000, 0);
    let Some(mut probe) = armed(&with_pid(program.id())) else {
        drop(begun);
        program.wait().unwrap();
        return;
    };
    drop(begun);
    program.wait().unwrap();
    let mut bytes = Vec::new();
    let counts = probe.disarm(Clock::take(), &mut bytes).unwrap();
    assert!(counts.failed > 0, "{counts:?}");
    assert_eq!(counts.lost(), counts.failed);
    assert_eq!(counts.emitted + counts.failed, made(program));
    let drained = bytes.len() / usize::from(called().payload_bytes());
    assert_eq!(counts.emitted, drained as u64);
}

// case Recording: events of the kernel
#[test]
fn calls_that_are_deeper_than_the_kernel_follows_are_counted_as_lost() {
    let _alone = alone();
    let Some((_, counts)) = record(&called(), 200, 99) else {
        return;
    };
    let [reported, deeper] = [
        |depth: u64| depth.min(64),
        |depth: u64| depth.saturating_sub(64),
    ]
    .map(|part| THREADS * 2 * (1..=100).map(part).sum::<u64>());
    assert_eq!((counts.emitted, counts.too_deep), (reported, deeper));
    assert_eq!(counts.lost(), deeper);
}

/// Records the functions of a C program that a pattern names.
fn record_compiled(path: &str, pattern: &str) -> Option<(Vec<String>, Counts)> {
    let filter = function(&format!("{path}:{pattern}"));
    let mut probe = armed(&filter)?;
    let mut program = Command::new(path).spawn().unwrap();
    let (bytes, counts) = drained(&mut probe, &mut program);
    assert!(program.wait().unwrap().success());
    assert_eq!(counts.lost(), 0, "{counts:?}");
    let name_of = |payload| {
        let number = Call::of(payload, 0).function;
        let mut functions = filter.target.functions.iter();
        let function = functions.find(|function| function.number == number);
        function.unwrap().name.clone()
    };
    let payloads = bytes.chunks(usize::from(filter.payload_bytes()));
    Some((payloads.map(name_of).collect(), counts))
}

// case Recording: events of the kernel
#[test]
fn calls_that_are_left_by_a_jump_count_and_hide_no_later_call() {
    let folder = tempfile::tempdir().unwrap();
    let source = r"
        #include <setjmp.h>
        static jmp_buf begin;
        static volatile int calls;
        __attribute__((noinline)) int inner(int jumps) { calls++; if (jumps) longjmp(begin, 1); return calls; }
        __attribute__((noinline)) int outer(int jumps) { return inner(jumps) + calls; }
        int main(void) {
            for (volatile int i = 0; i < 1000; i++)
                if (!setjmp(begin))
                    outer(i % 2);
            return 0;
        }";
    let Some(path) = compiled(folder.path(), source) else {
        return;
    };
    let Some((names, counts)) = record_compiled(&path, "*er") else {
        return;
    };
    let count = |name: &str| names.iter().filter(|other| *other == name).count();
    assert_eq!((count("inner"), count("outer")), (500, 500), "{counts:?}");
    assert_eq!((counts.left, counts.unpaired), (1000, 0), "{counts:?}");
}

// case Recording: events of the kernel
#[test]
fn functions_that_others_call_last_have_records_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        static volatile int calls;
        __attribute__((noinline)) int last(int x) __asm__("_ZN5space4lastEi");
        int last(int x) { calls++; return x + calls; }
        __attribute__((noinline)) int first(int x) { calls++; return last(x + 1); }
        int main(void) {
            for (int i = 0; i < 1000; i++)
                calls += first(i) & 1;
            return 0;
        }"#;
    let Some(path) = compiled(folder.path(), source) else {
        return;
    };
    for pattern in [
        "*st*",
        "[f]irst",
        "space::last",
        "space::last(int)",
        "_ZN5space4lastEi",
    ] {
        if pattern == "[f]irst" {
            let said = Target::find(&format!("{path}:{pattern}"), &[]).unwrap_err();
            let said = said.to_string();
            assert!(
                said.contains("no such function; did you mean first"),
                "{said}"
            );
            continue;
        }
        let Some((names, counts)) = record_compiled(&path, pattern) else {
            return;
        };
        assert_eq!((counts.left, counts.unpaired), (0, 0), "{counts:?}");
        let count = |name: &str| names.iter().filter(|other| *other == name).count();
        let firsts = if pattern == "*st*" { 1000 } else { 0 };
        assert_eq!((count("first"), count("space::last(int)")), (firsts, 1000));
    }
}

#[test]
fn a_function_of_rust_is_found_by_its_readable_name_and_what_is_missing_is_named() {
    let exe = std::env::current_exe().unwrap();
    let exe = exe.display();
    let found = Target::find(&format!("{exe}:functions::start"), &[]).unwrap();
    assert_eq!(found.functions[0].name, "functions::start");
    let said = |text: &str| match Target::find(text, &[]) {
        Err(error @ ProbeError::Function { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    let near = said(&format!("{exe}:loom_probes_caled"));
    assert!(near.contains("did you mean loom_probes_called"), "{near}");
    for (text, expected) in [
        ("/no/such:f", "no such program or library"),
        ("no-such-library:f", "no such program or library"),
        ("libc.so.6", "it is not a file and a function"),
        ("/etc/passwd:f", "the file is not a program or library"),
        (
            "libc.so.6:strlen",
            "a program chooses this function when it starts",
        ),
        ("libc.so.6:vfork", "it does not return as functions do"),
        ("libc.so.6:__vfork", "it does not return as functions do"),
        #[cfg(target_arch = "x86_64")]
        (
            "libc.so.6:pthread_spin_lock",
            "cannot probe its first instruction",
        ),
        ("libc:*", "functions match; at most 64"),
    ] {
        let said = said(text);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn the_symbols_of_a_stripped_program_are_found_in_the_file_that_it_names() {
    let folder = tempfile::tempdir().unwrap();
    let [stripped, debug] = ["program", "program.debug"].map(|name| folder.path().join(name));
    let exe = std::env::current_exe().unwrap();
    let copied = |option: &str, from: &Path, to: &Path| {
        let copied = Command::new("llvm-objcopy")
            .arg(option)
            .args([from, to])
            .status();
        copied.is_ok_and(|status| status.success())
    };
    if !copied("--strip-all", &exe, &stripped) {
        return skip("llvm-objcopy is missing");
    }
    let text = format!("{}:loom_probes_called", stripped.display());
    let said = Target::find(&text, &[]).unwrap_err().to_string();
    assert!(
        said.contains("symbols") || said.contains("no such function"),
        "{said}"
    );
    assert!(copied("--only-keep-debug", &exe, &debug));
    let link = format!("--add-gnu-debuglink={}", debug.display());
    assert!(copied(&link, &stripped, &stripped));
    let found = Target::find(&text, &[]).unwrap();
    let kept = called().target;
    assert_eq!(found.functions[0].name, kept.functions[0].name);
    assert_eq!(found.functions[0].number, kept.functions[0].number);
}
