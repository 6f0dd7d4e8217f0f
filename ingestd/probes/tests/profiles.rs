//! The samples of a program name the functions in which it uses and leaves the processors, as often as the kernel counts.
//!
//! The program is C++ that a compiler makes, with a library, and without the symbols of its own file, which a debug link names.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use loom_probes::{Clock, HZ_MAX, Probe, Profile, Selection, Stacks};
use shared::{framed, opened, skip};

const HZ: u32 = 997;
const NAP: Duration = Duration::from_millis(2);

/// Uses the processor in `burn`, below some calls of `descend`, and leaves it in `rest`. It waits for its input, and prints the nanoseconds that it was on
/// the processors, and those of its rest.
const PROGRAM: &str = r#"
#include <cstdio>
#include <cstdlib>
#include <time.h>
long now(clockid_t clock) {
    timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}
extern "C" void library_burn(long until_ns);
namespace work {
struct Worker {
    long naps, nap_ns;
    __attribute__((noinline)) void burn(long until_ns) {
        library_burn(until_ns);
        asm volatile("");
    }
    __attribute__((noinline)) void descend(int calls, long until_ns) {
        if (calls)
            descend(calls - 1, until_ns);
        else
            burn(until_ns);
        asm volatile("");
    }
    __attribute__((noinline)) void nap() {
        timespec time = {0, nap_ns};
        nanosleep(&time, nullptr);
        asm volatile("");
    }
    __attribute__((noinline)) void rest() {
        for (int i = 0; i < naps; i++)
            nap();
    }
};
}
int main(int, char **argv) {
    getchar();
    work::Worker worker = {atol(argv[3]), atol(argv[4])};
    worker.descend(atoi(argv[1]), now(CLOCK_PROCESS_CPUTIME_ID) + atol(argv[2]));
    long began = now(CLOCK_MONOTONIC);
    worker.rest();
    long rested = now(CLOCK_MONOTONIC) - began;
    printf("%ld %ld\n", now(CLOCK_PROCESS_CPUTIME_ID), rested);
}
"#;

/// The compiler inlines `burn_until`, as the debug symbols say.
const LIBRARY: &str = r#"
#include <time.h>
static inline long burn_until(long until_ns) {
    volatile long sum = 0;
    timespec time;
    do {
        for (int i = 0; i < 200000; i++)
            sum += i;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    } while (time.tv_sec * 1000000000L + time.tv_nsec < until_ns);
    return sum;
}
extern "C" void library_burn(long until_ns) {
    burn_until(until_ns);
    asm volatile("");
}
"#;

const BURNING: &str = "work::Worker::burn(long);library_burn;burn_until";

/// Compiles the program; nothing where the compiler is missing, which is a failure where `CI` is set.
fn compiled() -> Option<tempfile::TempDir> {
    let folder = tempfile::tempdir().unwrap();
    let run = |program: &str, args: &str| {
        let mut command = Command::new(program);
        let done = command.args(args.split(' ')).current_dir(&folder).output();
        done.is_ok_and(|done| done.status.success())
    };
    if !run("clang", "--version") || !run("llvm-objcopy", "--version") {
        skip("clang or llvm-objcopy is missing");
        return None;
    }
    std::fs::write(folder.path().join("program.cc"), PROGRAM).unwrap();
    std::fs::write(folder.path().join("library.cc"), LIBRARY).unwrap();
    let flags = "-O1 -fno-omit-frame-pointer -mno-omit-leaf-frame-pointer";
    let link = "-x none liblibrary.so -Wl,-rpath,$ORIGIN";
    for (program, args) in [
        (
            "clang",
            format!("{flags} -g1 -shared -fPIC -x c++ library.cc -o liblibrary.so"),
        ),
        (
            "clang",
            format!("{flags} -fPIE -pie -x c++ program.cc {link} -o program"),
        ),
        (
            "llvm-objcopy",
            "--only-keep-debug program program.debug".to_owned(),
        ),
        (
            "llvm-objcopy",
            "--strip-all --add-gnu-debuglink=program.debug program".to_owned(),
        ),
    ] {
        assert!(run(program, &args), "{program} {args}");
    }
    Some(folder)
}

/// The work of the program.
struct Work {
    calls: u32,
    burn: Duration,
    naps: u64,
    nap: Duration,
}

const BURN: Work = Work {
    calls: 0,
    burn: Duration::from_secs(2),
    naps: 0,
    nap: NAP,
};

impl Work {
    /// Starts the program, which is recorded; nothing where this machine lets nobody record, which is a failure where `CI` is set.
    fn recorded(
        &self,
        folder: &Path,
        hz: u32,
        off_min: Option<Duration>,
    ) -> Option<(Child, Profile, Probe)> {
        let [burn_ns, nap_ns] = [self.burn, self.nap].map(|time| time.as_nanos() as u64);
        let numbers = [self.calls.into(), burn_ns, self.naps, nap_ns];
        let mut command = Command::new(folder.join("program"));
        command.args(numbers.map(|number| number.to_string()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap();
        let filter = Profile {
            selection: Selection {
                pids: vec![program.id()],
                ..Selection::default()
            },
            hz,
            off_min,
        };
        let Some(mut probe) = opened(filter.open()) else {
            program.kill().unwrap();
            program.wait().unwrap();
            return None;
        };
        probe.arm().unwrap();
        drop(program.stdin.take());
        Some((program, filter, probe))
    }
}

/// A sample, as `Stacks` writes it, with the functions of its stack.
#[derive(Clone, Debug)]
struct Sample {
    off_ns: Option<u64>,
    program: String,
    kernel: String,
}

/// Reads samples and stacks.
#[derive(Default)]
struct Reader {
    stacks: Stacks,
    texts: BTreeMap<u64, (String, String)>,
    samples: Vec<Sample>,
}

impl Reader {
    fn take(&mut self, batch: &[u8]) {
        let payloads = self.stacks.payloads(batch);
        for payload in framed(&payloads.stacks) {
            let (number, program, kernel) = texts_of(payload);
            let known = self.texts.insert(number, (program, kernel));
            assert_eq!(known, None, "a stack is written once");
        }
        for payload in payloads.samples.chunks(usize::from(Stacks::SAMPLE_BYTES)) {
            let long = |at: usize| u64::from_le_bytes(payload[at..at + 8].try_into().unwrap());
            let (program, kernel) = self.texts[&long(9)].clone();
            self.samples.push(Sample {
                off_ns: (payload[8] == 0).then(|| long(17)),
                program,
                kernel,
            });
        }
    }

    /// Drains until the program has ended. Returns the numbers that it printed.
    fn drain(&mut self, probe: &mut Probe, program: &mut Child) -> [u64; 2] {
        while program.try_wait().unwrap().is_none() {
            let mut batch = Vec::new();
            if probe.drain(Clock::take(), &mut batch) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.take(&batch);
        }
        let printed = std::io::read_to_string(program.stdout.take().unwrap()).unwrap();
        let numbers = printed.split_whitespace().map(|word| word.parse().unwrap());
        numbers.collect::<Vec<_>>().try_into().unwrap()
    }

    /// Takes the rest; every record of the kernel is a sample.
    fn end(&mut self, probe: &mut Probe) {
        let mut rest = Vec::new();
        let counts = probe.disarm(Clock::take(), &mut rest).unwrap();
        self.take(&rest);
        assert_eq!(counts.emitted, self.samples.len() as u64, "{counts:?}");
    }

    /// The samples with this text among the functions of their program, and the other texts.
    fn with(&self, text: &str) -> (Vec<&Sample>, BTreeSet<&str>) {
        let (with, without): (Vec<_>, Vec<_>) =
            (self.samples.iter()).partition(|sample| sample.program.contains(text));
        (
            with,
            without
                .into_iter()
                .map(|sample| sample.program.as_str())
                .collect(),
        )
    }
}

/// The number of a stack, and its functions in the program and in the kernel.
fn texts_of(payload: &[u8]) -> (u64, String, String) {
    let number = u64::from_le_bytes(payload[9..17].try_into().unwrap());
    let bytes = |at: usize| usize::from(u16::from_le_bytes([payload[at], payload[at + 1]]));
    let (program, kernel) = payload[21..].split_at(bytes(17));
    assert_eq!(kernel.len(), bytes(19));
    let [program, kernel] = [program, kernel].map(|text| String::from_utf8(text.to_vec()).unwrap());
    (number, program, kernel)
}

// case Recording: events of the kernel
#[test]
fn samples_name_the_function_that_uses_the_processor_as_often_as_it_does() {
    let Some(folder) = compiled() else { return };
    let Some((mut program, filter, mut probe)) = BURN.recorded(folder.path(), HZ, None) else {
        return;
    };
    let mut reader = Reader::default();
    let [cpu_ns, _] = reader.drain(&mut probe, &mut program);
    reader.end(&mut probe);
    let counts = probe.counts().unwrap();
    assert_eq!(counts.lost(), 0, "{counts:?}");
    let samples = reader.samples.len() as u64;
    let (burning, others) =
        reader.with(&format!("main;work::Worker::descend(int, long);{BURNING}"));
    let named = burning.len() as u64;
    assert!(
        named * 100 >= samples * 97,
        "{named} of {samples}: {others:?}"
    );
    // A tick may find another program or come late, so that the number of samples varies around the time of this one.
    let late = filter.late(&probe).unwrap();
    let due = cpu_ns * u64::from(HZ) / 1_000_000_000;
    let near = due.saturating_sub(due / 4 + late)..=due + due / 4;
    assert!(near.contains(&samples), "{samples} of {due}, {late} late");
    assert!(reader.samples.iter().all(|sample| sample.off_ns.is_none()));
}

// case Recording: events of the kernel
#[test]
fn times_off_the_processors_are_as_long_as_the_naps_that_name_them() {
    let Some(folder) = compiled() else { return };
    let work = Work {
        burn: Duration::ZERO,
        naps: 200,
        ..BURN
    };
    // On a busy machine, Linux 6.18 runs no program at some of ten thousand switches, and counts none of them. So one exact recording of ten is enough.
    let mut wrong = String::new();
    for _ in 0..10 {
        let all = Some(Duration::ZERO);
        let Some((mut program, _, mut probe)) = work.recorded(folder.path(), HZ, all) else {
            return;
        };
        let mut reader = Reader::default();
        let [_, rested_ns] = reader.drain(&mut probe, &mut program);
        reader.end(&mut probe);
        let (naps, _) = reader.with("main;work::Worker::rest()");
        let is_nap = |nap: &&Sample| nap.off_ns.is_some() && nap.kernel.contains("nanosleep");
        let naps: Vec<_> = naps.into_iter().filter(is_nap).collect();
        let off_ns = naps.iter().filter_map(|nap| nap.off_ns).sum::<u64>();
        // The kernel's timer starts just before the thread stops.
        let least_ns = (NAP * 200).as_nanos() as u64 * 9 / 10;
        let ends = naps.iter().all(|nap| nap.kernel.ends_with(";__schedule"));
        assert!(ends, "{naps:?}");
        if naps.len() >= 200 && (least_ns..=rested_ns).contains(&off_ns) {
            return;
        }
        wrong += &format!("{} naps, {off_ns} of {rested_ns} ns; ", naps.len());
    }
    panic!("{wrong}");
}

// case Recording: filters in the kernel
#[test]
fn shorter_times_off_the_processors_than_asked_for_are_filtered() {
    let Some(folder) = compiled() else { return };
    let work = Work {
        burn: Duration::ZERO,
        naps: 200,
        ..BURN
    };
    let none = Some(Duration::from_secs(3600));
    let Some((mut program, _, mut probe)) = work.recorded(folder.path(), HZ, none) else {
        return;
    };
    let mut reader = Reader::default();
    reader.drain(&mut probe, &mut program);
    reader.end(&mut probe);
    assert!(reader.samples.iter().all(|sample| sample.off_ns.is_none()));
    let counts = probe.counts().unwrap();
    assert!(counts.filtered > 100, "{counts:?}");
}

// case Recording: a program or a daemon that ends
#[test]
fn a_program_that_ended_has_names_if_it_was_seen_before_and_else_is_unknown() {
    let Some(folder) = compiled() else { return };
    for is_seen in [true, false] {
        let Some((mut program, _, mut probe)) = BURN.recorded(folder.path(), HZ, None) else {
            return;
        };
        let mut reader = Reader::default();
        while is_seen && reader.samples.is_empty() {
            let mut batch = Vec::new();
            probe.drain(Clock::take(), &mut batch);
            reader.take(&batch);
        }
        let early = reader.samples.len();
        program.wait().unwrap();
        reader.end(&mut probe);
        let late = reader.samples.len() - early;
        let (burning, others) = reader.with(BURNING);
        assert!(late > 100, "{early} early, {late} late");
        if is_seen {
            assert!(burning.len() * 100 > late * 95, "{others:?}");
        } else {
            let is_unknown = |text: &&str| text.split(';').all(|name| name == "[unknown]");
            assert!(others.iter().all(is_unknown), "{others:?}");
        }
    }
}

// case Recording: losses in the kernel
#[test]
fn stacks_that_do_not_fit_are_cut_and_samples_that_find_the_ring_full_are_counted() {
    let Some(folder) = compiled() else { return };
    let work = Work {
        calls: 200,
        burn: Duration::from_secs(3600),
        ..BURN
    };
    let Some((mut program, _, mut probe)) = work.recorded(folder.path(), HZ_MAX, None) else {
        return;
    };
    // Nobody empties the ring.
    while probe.counts().unwrap().failed == 0 {
        assert!(program.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut reader = Reader::default();
    let mut batch = Vec::new();
    probe.drain(Clock::take(), &mut batch);
    reader.take(&batch);
    let (cut, _) = reader.with("[cut];work::Worker::descend(int, long);");
    let (burning, _) = reader.with(BURNING);
    assert!(cut.len() * 100 > reader.samples.len() * 95);
    assert!(burning.len() * 100 > reader.samples.len() * 95);
    assert_eq!(reader.stacks.cut(), cut.len() as u64);
    program.kill().unwrap();
    program.wait().unwrap();
    reader.end(&mut probe);
    let counts = probe.counts().unwrap();
    assert_eq!(counts.lost(), counts.failed, "{counts:?}");
}
