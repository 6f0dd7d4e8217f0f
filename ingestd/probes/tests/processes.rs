//! Every process that a shell starts is drained when it begins, executes a program and ends.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod shared;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use loom_probes::{Clock, EVENTS, Processes, Selection};
use shared::{framed, opened};

const STARTED: usize = 200;

/// A payload of the source `process`.
#[derive(Debug)]
struct Event {
    nulls: u8,
    event: &'static str,
    pid: u32,
    ppid: u32,
    lived_ns: u64,
    exit_code: u8,
    signal: u8,
    path: String,
    args: String,
}

impl Event {
    fn of(payload: &[u8]) -> Event {
        let short = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
        let length = |at: usize| usize::from(u16::from_le_bytes([payload[at], payload[at + 1]]));
        let (path, args) = payload[56..].split_at(length(52));
        assert_eq!(args.len(), length(54));
        Event {
            nulls: payload[8],
            event: EVENTS[usize::from(payload[9])].1,
            pid: short(10),
            ppid: short(14),
            lived_ns: u64::from_le_bytes(payload[42..50].try_into().unwrap()),
            exit_code: payload[50],
            signal: payload[51],
            path: String::from_utf8(path.to_vec()).unwrap(),
            args: String::from_utf8(args.to_vec()).unwrap(),
        }
    }
}

/// The events of a shell that runs this script, and of the processes that it starts; nothing where this machine lets nobody record.
fn recorded(script: &str) -> Option<(u32, Vec<Event>)> {
    let mut shell = Command::new("sh")
        .args(["-c", &format!("read line; {script}")])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = shell.stdin.take();
    let filter = Processes {
        selection: Selection {
            pids: vec![shell.id()],
            follow: true,
            ..Selection::default()
        },
    };
    let Some(mut probe) = opened(filter.open()) else {
        drop(begun);
        shell.wait().unwrap();
        return None;
    };
    probe.arm().unwrap();
    drop(begun);
    shell.wait().unwrap();
    let mut bytes = Vec::new();
    let counts = probe.disarm(Clock::take(), &mut bytes).unwrap();
    assert_eq!(counts.lost(), 0, "{counts:?}");
    let events: Vec<_> = framed(&bytes).into_iter().map(Event::of).collect();
    assert_eq!(events.len() as u64, counts.emitted);
    Some((shell.id(), events))
}

// case Recording: events of the kernel
#[test]
fn each_process_of_a_shell_begins_executes_and_ends_once() {
    let script = format!("for i in $(seq {STARTED}); do env true \"$i\" '--ü'; done; exit 7");
    let Some((shell, events)) = recorded(&script) else {
        return;
    };
    let mut of_process: BTreeMap<u32, Vec<&Event>> = BTreeMap::new();
    for event in &events {
        of_process.entry(event.pid).or_default().push(event);
    }
    let own = of_process.remove(&shell).unwrap();
    let [exit] = own[..] else { panic!("{own:?}") };
    assert_eq!(
        (exit.event, exit.exit_code, exit.nulls),
        ("exit", 7, 0b1_1100)
    );
    assert_eq!(exit.ppid, std::process::id());
    // `seq` is one more, perhaps with a shell around it.
    let mut numbers = Vec::new();
    for events in of_process.values() {
        assert_eq!(
            (events[0].event, events[0].nulls),
            ("fork", 0b1_1111),
            "{events:?}"
        );
        let last = events.last().unwrap();
        assert_eq!(
            (last.event, last.exit_code, last.nulls),
            ("exit", 0, 0b1_1100)
        );
        assert!((1..60_000_000_000).contains(&last.lived_ns), "{last:?}");
        if let [_, env, program, _] = events[..]
            && program.path.ends_with("/true")
        {
            assert_eq!(
                (env.event, program.event, program.nulls),
                ("exec", "exec", 0b0111)
            );
            assert!(env.path.ends_with("/env"), "{env:?}");
            assert_eq!(program.ppid, shell);
            let args: Vec<&str> = program.args.split(' ').collect();
            let ["true", number, "--ü"] = args[..] else {
                panic!("{program:?}")
            };
            numbers.push(number.parse::<usize>().unwrap());
        }
    }
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(1..=STARTED), "{events:?}");
}

// case Recording: events of the kernel
#[test]
fn a_process_that_is_killed_has_a_signal_and_no_exit_code() {
    let Some((_, events)) = recorded("sh -c 'kill -9 $$' 2> /dev/null; true") else {
        return;
    };
    let killed: Vec<&Event> = events.iter().filter(|event| event.signal == 9).collect();
    let [killed] = killed[..] else {
        panic!("{events:?}")
    };
    assert_eq!((killed.event, killed.nulls), ("exit", 0b1_1010));
}

// case Recording: events of the kernel
#[test]
fn long_arguments_and_arguments_that_are_no_text_are_cut_and_replaced() {
    let script = "env true $(printf 'a\\377') $(head -c 5000 /dev/zero | tr '\\0' x)";
    let Some((_, events)) = recorded(script) else {
        return;
    };
    let program = events.iter().find(|event| event.path.ends_with("/true"));
    let args = &program.unwrap().args;
    let rest = args.strip_prefix("true a\u{fffd} ").unwrap();
    assert!(rest.bytes().all(|byte| byte == b'x'), "{args}");
    assert_eq!(rest.len(), 1024 - "true a? ".len());
}
