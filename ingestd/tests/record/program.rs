//! Tests the lines and rows of a program, and its end and that of its recording.

use std::time::{Duration, Instant};

use loom_tests::command::{declared, says, send, until};
use rustix::process::Signal;

use super::scene::{end, program_of, scene};

// case Recording: a program or a daemon that ends
#[test]
fn the_lines_of_a_program_and_its_exit_are_records() {
    let scene = scene();
    let script = "echo one; echo two >&2; printf three; exit 7";
    let output = scene
        .record(&["command", "--source", "log", "--", "sh", "-c", script])
        .ends(0);
    says(
        &output.out,
        "source=log received=4 stored=4 refused=0 dropped=0",
    );
    says(&output.err, "the program ended with exit status: 7");
    let payloads = scene.payloads("log");
    // Own time, stream, length, text.
    let line = |payload: &'_ Vec<u8>| {
        (
            payload[8],
            String::from_utf8_lossy(&payload[11..]).into_owned(),
        )
    };
    let mut lines: Vec<(u8, String)> = payloads.iter().map(line).collect();
    lines.sort();
    let expected = [(1, "one"), (1, "three"), (2, "two"), (3, "exit status: 7")];
    assert_eq!(
        lines,
        expected.map(|(stream, line)| (stream, line.to_owned()))
    );
}

#[test]
fn the_json_of_a_program_fills_declared_fields() {
    let scene = scene();
    let script = "for n in 1 2 3; do echo \"{\\\"n\\\": $n}\"; done";
    let fields = declared(&scene.dir, "j", "n i64?");
    let json = ["command", "--format", "json", "--source", "j"];
    let program = ["--fields", &fields, "--", "sh", "-c", script];
    scene.record(&[&json[..], &program].concat()).ends(0);
    assert_eq!(scene.payloads("j").len(), 3);
}

#[test]
fn json_continues_into_its_source_by_the_names_of_its_fields() {
    let scene = scene();
    let fields = declared(&scene.dir, "j", "n i64?, s utf8?");
    let first = ["--fields", &fields];
    let record = |json: &str, code| {
        let script = format!("echo '{json}'");
        let command = ["command", "--format", "json", "--source", "j"];
        let known: &[&str] = if scene.dir.exists() { &[] } else { &first };
        let program = ["--", "sh", "-c", &script];
        let output = scene
            .record(&[&command[..], known, &program].concat())
            .ends(code);
        (output.out, output.err)
    };
    record("{\"n\":1,\"s\":\"a\"}", 0);
    let (counts, _) = record("{\"s\":\"b\",\"n\":2}\n{\"n\":3}", 0);
    says(&counts, "received=2 stored=2 refused=0");
    let (counts, said) = record(
        "{\"n\":4.5}\n{\"n\":5,\"x\":true}\nnonsense\n{\"n\":\"6\"}",
        1,
    );
    says(&counts, "received=4 stored=1 refused=3");
    for words in [
        "row 1 of 'sh' is refused: '4.5' does not fit field 'n' of type i64",
        "row 3 of 'sh' is refused: it is not a JSON object",
        "row 4 of 'sh' is refused: '\"6\"' does not fit field 'n' of type i64; a field of type utf8 keeps it",
        "key 'x' is left out: the source has no such field",
    ] {
        says(&said, words);
    }
    let numbers: Vec<u8> = scene.payloads("j").iter().map(|row| row[1]).collect();
    assert_eq!(numbers, [1, 2, 3, 5]);
}

#[test]
fn json_into_a_source_of_lines_is_refused_with_the_option_that_names_another() {
    let scene = scene();
    let lines = ["command", "--source", "log", "--", "echo", "x"];
    scene.record(&lines).ends(0);
    let json = "command --format json --source log -- echo {}".split(' ');
    let words = "its records carry their own time; record into another source with --source NAME";
    scene.record(&json.collect::<Vec<_>>()).ends(1).says(words);
}

#[test]
fn a_source_that_is_built_in_is_refused_in_one_sentence() {
    let scene = scene();
    let output = scene
        .record(&["command", "--source", "loom_x", "--", "true"])
        .ends(1);
    let why = "names that start with loom_ are built in; use another name";
    let said = format!("ingestd: a source may not be called 'loom_x': {why}\n");
    assert_eq!(output.err, said);
    assert!(!scene.dir.exists());
}

// case Recording: something that is missing
#[test]
fn a_program_that_is_missing_is_named_and_nothing_is_made() {
    let scene = scene();
    let output = scene
        .record(&["command", "--source", "x", "--", "/no/such/program"])
        .ends(1);
    says(&output.err, "cannot run '/no/such/program'");
    assert!(!scene.dir.exists());
}

#[test]
fn a_line_that_is_no_text_comes_in_pieces_that_records_hold() {
    let scene = scene();
    let script = "head -c 30000 /dev/zero | tr '\\0' '\\377'; echo; echo after";
    let record = ["command", "--source", "log", "--", "sh", "-c", script];
    scene.record(&record).ends(0);
    let payloads = scene.payloads("log");
    let text: usize = payloads.iter().map(|payload| payload.len() - 11).sum();
    assert_eq!(text, 3 * 30_000 + "after".len() + "exit status: 0".len());
}

#[test]
fn a_program_that_does_not_end_when_asked_is_killed_when_the_time_is_over() {
    let scene = scene();
    let script = "trap '' TERM INT; echo begun; while :; do sleep 1; done";
    let begun = Instant::now();
    let record = ["command", "--seconds", "1", "--source", "log", "--"];
    let output = scene.record(&[&record[..], &["sh", "-c", script]].concat());
    assert!(begun.elapsed() < Duration::from_secs(20));
    output.ends(0);
    let last = scene.payloads("log").pop().unwrap();
    let last = String::from_utf8_lossy(&last[11..]).into_owned();
    assert!(last.contains("SIGKILL"), "{last}");
}

#[test]
fn a_second_signal_ends_the_recording_at_once() {
    let scene = scene();
    let script = "trap 'echo asked' TERM; echo begun; while :; do sleep 0.1; done";
    let record = ["command", "--source", "log", "--", "sh", "-c", script];
    let child = scene.start(&record, "log");
    scene.wait_for(1, "log");
    send(&child, Signal::TERM);
    // The recording waits for its program now.
    scene.wait_for(2, "log");
    // One that waits for the end of its program, or kills it, has another code.
    end(child, Signal::TERM).ends(128 + 15);
}

#[test]
fn the_time_is_over_before_the_first_row_too() {
    let scene = scene();
    let begun = Instant::now();
    let fields = declared(&scene.dir, "j", "n i64?");
    let json = ["command", "--format", "json", "--source", "j"];
    let rest = ["--fields", &fields, "--seconds", "1", "--", "sleep", "60"];
    let output = scene.record(&[&json[..], &rest].concat());
    assert!(begun.elapsed() < Duration::from_secs(20));
    let output = output.ends(0);
    says(&output.out, "source=j received=0 stored=0 refused=0");
}

#[test]
fn json_without_declared_fields_is_refused_with_the_option_that_declares_them() {
    let scene = scene();
    let json = ["command", "--format", "json", "--source", "j", "--", "true"];
    let output = scene.record(&json).ends(1);
    let said = &output.err;
    says(said, "declare them with --fields");
    assert!(!scene.dir.exists());
    let fields = declared(&scene.dir, "l", "n i64?");
    let output = scene
        .record(&[
            "command", "--source", "l", "--fields", &fields, "--", "true",
        ])
        .ends(1);
    let words = "lines have fields of their own; omit --fields, or use --format json";
    says(&output.err, words);
}

#[test]
fn a_program_does_not_outlive_a_recording_that_is_killed() {
    let scene = scene();
    let child = scene.start(&["command", "--source", "log", "--", "sleep", "600"], "log");
    let program = program_of(&child).as_raw_nonzero();
    end(child, Signal::KILL);
    // One that nobody waits for stays as a zombie.
    let lives = || {
        let status = std::fs::read_to_string(format!("/proc/{program}/status"));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    };
    until(|| !lives());
}

#[test]
fn a_program_that_ends_well_is_noted_and_no_warning() {
    let scene = scene();
    let output = scene.record(&["command", "--source", "log", "--", "true"]);
    let said = &output.err;
    says(said, "the program ended with exit status: 0");
    assert!(!said.contains("WARN"), "{said}");
}
