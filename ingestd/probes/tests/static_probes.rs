//! Every hit of a static probe is drained with its arguments, wherever the compiler put them.
//!
//! The programs have probes as `<sys/sdt.h>` makes them.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

mod shared;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use loom_probes::{Argument, Clock, Function, ProbeError, Selection, Target, ValueType};
use shared::{compiled, drained, opened};

/// `PROBE(name, counter, arguments, operands)` is a static probe of the provider `loom`. In the file, `moved` is 16 bytes before its place, as if the
/// addresses had been moved since.
const HEADER: &str = r#"
    #include <stdio.h>
    #include <string.h>
    #define PLACED(name, by, counter, arguments, ...) \
        __asm__ volatile("990: nop\n" \
            ".pushsection .note.stapsdt,\"\",\"note\"\n.balign 4\n.4byte 992f-991f, 994f-993f, 3\n" \
            "991: .asciz \"stapsdt\"\n992: .balign 4\n" \
            "993: .8byte 990b-" #by ", _.stapsdt.base-" #by ", " #counter "\n" \
            ".asciz \"loom\"\n.asciz \"" #name "\"\n.asciz \"" arguments "\"\n994: .balign 4\n.popsection\n" \
            ".ifndef _.stapsdt.base\n.pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
            ".weak _.stapsdt.base\n.hidden _.stapsdt.base\n_.stapsdt.base: .space 1\n.size _.stapsdt.base, 1\n.popsection\n.endif" \
            : : __VA_ARGS__)
    #define PROBE(name, counter, arguments, ...) PLACED(name, 0, counter, arguments, __VA_ARGS__)
"#;

fn function(text: &str) -> Function {
    let target = Target::find(text, &[]).unwrap();
    Function {
        args: Function::declared(&target),
        target,
        selection: Selection::default(),
        latency_min: Duration::ZERO,
        result: None,
    }
}

/// A program that waits for lines, and answers each.
fn started(path: &str) -> Child {
    let mut command = Command::new(path);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// The null bits of a payload, its number of the probe, its process and its values.
fn parts(payload: &[u8]) -> (u8, u32, u32, &[u8]) {
    let word = |at: usize| u32::from_le_bytes(payload[at..at + 4].try_into().unwrap());
    (payload[8], word(17), word(21), &payload[47..])
}

// case Recording: events of the kernel
#[test]
fn each_hit_is_drained_once_with_the_arguments_that_each_place_declares() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        int main(void) {
            static volatile long table[4] = {10, 11, 12, -13};
            static const char *volatile text = "grüß dich";
            getchar();
            // The programs read only what is in memory.
            printf("%s %ld\n", text, table[0]);
            for (int i = 0; i < 1000; i++) {
                long big = (1L << 40) + i;
                PROBE(hit, 0, "-4@%0 8@%1 8@%2 2@%3 -8@(%4,%5,8)", "r"(-i), "m"(big), "r"(text), "i"(5), "r"(table), "r"(i % 4L));
                if (i % 2)
                    PROBE(hit, 0, "-2@%0", "r"((short)(i - 500)));
                PLACED(moved, 16, 0, "", "i"(0));
            }
            return 0;
        }"#;
    let Some(path) = compiled(folder.path(), &format!("{HEADER}{source}")) else {
        return;
    };
    let mut hits = function(&format!("{path}:loom:hit"));
    assert!(hits.target.is_static);
    assert_eq!(
        (hits.target.symbol(), hits.target.functions.len()),
        ("hit", 2)
    );
    let all = Target::find(&format!("{path}:loom:*"), &[]).unwrap();
    assert_eq!((all.symbol(), all.functions.len()), ("loom", 3));
    let types = [
        ValueType::I32,
        ValueType::U64,
        ValueType::U64,
        ValueType::U16,
        ValueType::I64,
    ];
    let declared = (0..).zip(types).map(|(place, ty)| Argument { place, ty });
    assert_eq!(hits.args, declared.collect::<Vec<_>>());
    hits.args[2].ty = ValueType::Text;
    let moved = function(&format!("{path}:loom:m?v*"));
    for filter in [hits, moved] {
        let mut program = started(&path);
        let pid = program.id();
        let probe = opened(filter.open());
        let Some(mut probe) = probe else {
            program.wait().unwrap();
            return;
        };
        probe.arm().unwrap();
        drop(program.stdin.take());
        let (bytes, counts) = drained(&mut probe, &mut program);
        assert_eq!(counts.lost(), 0, "{counts:?}");
        let payloads: Vec<_> = bytes.chunks(usize::from(filter.payload_bytes())).collect();
        if filter.args.is_empty() {
            assert_eq!(payloads.len(), 1000);
            continue;
        }
        assert_eq!(payloads.len(), 1500);
        let mut payloads = payloads.into_iter().map(parts);
        for i in 0..1000_i32 {
            let (nulls, number, of, values) = payloads.next().unwrap();
            assert_eq!((nulls, of), (0, pid));
            assert_eq!(number, filter.target.functions[0].number);
            assert_eq!(values[..4], (-i).to_le_bytes());
            assert_eq!(values[4..12], ((1_i64 << 40) + i64::from(i)).to_le_bytes());
            assert!(values[12..76].starts_with("grüß dich\0".as_bytes()));
            assert_eq!(values[76..78], 5_u16.to_le_bytes());
            let table = [10_i64, 11, 12, -13][i as usize % 4];
            assert_eq!(values[78..86], table.to_le_bytes());
            if i % 2 == 1 {
                let (nulls, _, _, values) = payloads.next().unwrap();
                assert_eq!(nulls, 0b1_1110, "this place has one argument");
                assert_eq!(values[..4], (i - 500).to_le_bytes());
            }
        }
    }
}

// case Recording: events of the kernel
#[test]
fn a_program_that_asks_its_counter_is_recorded_while_the_probe_is_and_not_after() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        unsigned short loom_counter __attribute__((section(".probes"), used));
        int main(void) {
            char line[16];
            for (int i = 1; fgets(line, sizeof line, stdin); i++) {
                int counter = *(volatile unsigned short *)&loom_counter;
                if (counter)
                    PROBE(counted, loom_counter, "-4@%0", "r"(i));
                printf("%d\n", counter);
                fflush(stdout);
            }
            return 0;
        }"#;
    let Some(path) = compiled(folder.path(), &format!("{HEADER}{source}")) else {
        return;
    };
    let filter = function(&format!("{path}:loom:counted"));
    for by_pid in [false, true] {
        let (mut program, mut other) = (started(&path), started(&path));
        let asked = |program: &mut Child| {
            program.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
            let mut said = String::new();
            let mut output = BufReader::with_capacity(1, program.stdout.as_mut().unwrap());
            output.read_line(&mut said).unwrap();
            said.trim().parse::<u32>().unwrap()
        };
        assert_eq!((asked(&mut program), asked(&mut other)), (0, 0));
        let mut filter = filter.clone();
        if by_pid {
            filter.selection.pids = vec![program.id()];
        }
        let Some(mut probe) = opened(filter.open()) else {
            program.wait().unwrap();
            other.wait().unwrap();
            return;
        };
        probe.arm().unwrap();
        assert_eq!(asked(&mut program), 1);
        assert_eq!(asked(&mut other), u32::from(!by_pid));
        assert_eq!(asked(&mut program), 1);
        let mut bytes = Vec::new();
        let counts = probe.disarm(Clock::take(), &mut bytes).unwrap();
        assert_eq!((asked(&mut program), asked(&mut other)), (0, 0));
        for mut ended in [program, other] {
            drop(ended.stdin.take());
            assert!(ended.wait().unwrap().success());
        }
        assert_eq!(counts.lost(), 0, "{counts:?}");
        let payloads = bytes.chunks(usize::from(filter.payload_bytes()));
        let values = payloads.map(|payload| payload[47]);
        let expected: &[u8] = if by_pid { &[2, 3] } else { &[2, 2, 3] };
        assert_eq!(values.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn what_a_file_lacks_and_what_cannot_be_read_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let source = r#"
        int main(void) {
            PROBE(hit, 0, "8@%0", "r"(1L));
            PROBE(floating, 0, "4@%0 8f@%%xmm0", "r"(1));
            return 0;
        }"#;
    let Some(path) = compiled(folder.path(), &format!("{HEADER}{source}")) else {
        return;
    };
    for (text, expected) in [
        (
            format!("{path}:loom:hitt"),
            "no such probe; it has loom:hit",
        ),
        ("/bin/true:loom:hit".to_owned(), "no static probes"),
        (format!("{path}:"), "it is not a file and a function"),
    ] {
        let said = Target::find(&text, &[]).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
    let refused = |filter: &Function, expected: &str| match filter.open() {
        Err(error @ ProbeError::Function { .. }) => {
            assert!(error.to_string().contains(expected), "{error}");
        }
        other => panic!("{:?}", other.err()),
    };
    let floating = function(&format!("{path}:loom:floating"));
    refused(
        &floating,
        "its argument 1 '8f@%xmm0' is a floating-point number",
    );
    let mut hit = function(&format!("{path}:loom:hit"));
    hit.latency_min = Duration::from_millis(1);
    refused(&hit, "a static probe is a point in a program");
    hit.latency_min = Duration::ZERO;
    hit.args[0].place = 1;
    refused(&hit, "it has no argument 1, but 1, from 0");
}
