//! Tests arguments that are refused before anything is created, and the hints that are printed.

use std::process::Command;

use ingestd::config::Config;
use ingestd::daemon::Daemon;

use super::scene::{may_record, scene, scene_named, stderr};

// case Recording: something that is missing
#[test]
fn a_source_with_another_layout_is_an_error_that_names_the_option() {
    let scene = scene();
    let program = ["--", "echo", "x"];
    let lines = scene.record(&[&["command", "--source", "x"], &program[..]].concat());
    assert!(lines.status.success(), "{}", stderr(&lines));
    let json = ["--", "echo", "{\"n\": 1}"];
    let output =
        scene.record(&[&["command", "--format", "json", "--source", "x"], &json[..]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("--source NAME"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn two_captures_of_one_source_are_refused_before_anything_is_made() {
    let scene = scene();
    if !may_record() {
        return;
    }
    let output = scene.record(&["syscalls", "--source", "x", "+", "packets", "--source", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("two captures cannot fill the source 'x'"));
    assert!(!scene.dir.exists());
}

#[test]
fn the_query_of_a_directory_with_a_quote_is_valid_sql() {
    let scene = scene_named("it's");
    let output = scene.record(&["command", "--source", "log", "--", "true"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    assert!(said.contains("/it''s', 'log', 20)"), "{said}");
    assert!(said.contains("is its daemon"), "{said}");
}

#[test]
fn usage_errors_name_what_is_missing_or_too_long() {
    let scene = scene();
    let dir = scene.dir.to_str().unwrap();
    for (args, expected) in [
        (
            &["syscalls", "--comm", "x"][..],
            "the Loom directory is missing",
        ),
        (&["syscalls"], "the Loom directory is missing"),
        (
            &[dir, "foo"],
            "'foo' is not a capture; give one of syscalls, packets, ",
        ),
        (&[dir], "no capture is given; give one of syscalls, "),
        (
            &[dir, "syscalls", "+"],
            "name one before it and one after it",
        ),
        (
            &[dir, "+", "syscalls"],
            "name one before it and one after it",
        ),
        (&[dir, "syscalls", "--comm", ""], "it is empty"),
        (
            &[dir, "syscalls", "--comm", "a-name-of-20-bytes--"],
            "give 'a-name-of-20-by'",
        ),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
        let output = command.arg("record").args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        assert!(!scene.dir.exists());
    }
}

#[test]
fn the_help_shows_the_options_of_the_whole_recording_first() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
    let output = command.args(["record", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    let (_, options) = help.split_once("\nOptions:\n").unwrap();
    let of_line = |line: &'_ str| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with("--")).map(str::to_owned)
    };
    let names = options.lines().filter_map(of_line);
    let first: Vec<String> = names.take(3).collect();
    assert_eq!(first, ["--seconds", "--keep", "--patience"], "{help}");
    for capture in ["syscalls", "packets", "blockio", "pagecache", "command"] {
        assert!(help.contains(&format!("\n  {capture}")), "{help}");
    }
}

#[test]
fn the_queries_are_the_last_lines_of_a_start_and_the_counts_those_of_the_end() {
    if !may_record() {
        return;
    }
    let scene = scene();
    // One pipe for both outputs, as a terminal shows them.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" record \"$@\" 2>&1"]);
    command.arg(env!("CARGO_BIN_EXE_ingestd")).arg(&scene.dir);
    let captures = ["pagecache", "+", "command", "--source", "x", "--", "true"];
    let output = command.arg("--seconds=1").args(captures).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let kinds: Vec<&str> = said
        .lines()
        .map(|line| match line.split([' ', '=']).next() {
            Some("") => "query",
            Some("source") => "counts",
            _ if line.contains("recording into") => "start",
            _ => "note",
        })
        .collect();
    let first = kinds.iter().position(|kind| *kind == "start").unwrap();
    assert_eq!(
        kinds[first..first + 3],
        ["start", "query", "query"],
        "{said}"
    );
    assert!(kinds[first + 3..].starts_with(&["note"]), "{said}");
    assert!(kinds.ends_with(&["note", "counts", "counts"]), "{said}");
}

#[test]
fn a_size_for_a_daemon_that_runs_is_an_error() {
    let scene = scene();
    let daemon = Daemon::start(&scene.dir, &Config::default(), false).unwrap();
    let output = scene.record(&["command", "--keep", "9GiB", "--source", "x", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot apply --keep: a daemon runs on"));
    daemon.stop().unwrap();
}

#[test]
fn a_device_or_an_interface_that_does_not_exist_is_named_with_those_that_do() {
    if !may_record() {
        return;
    }
    let scene = scene();
    for (args, expected) in [
        (
            &["blockio", "--device", "/dev/nosuch"][..],
            "cannot record requests of '/dev/nosuch': no such file; give a disk in /dev, of ",
        ),
        (
            &["packets", "-i", "nosuch"],
            "cannot record packets of interface 'nosuch': ",
        ),
    ] {
        let output = scene.record(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = stderr(&output);
        assert!(said.contains(expected), "{said}");
        assert!(
            !args.contains(&"packets") || said.contains("; give one of "),
            "{said}"
        );
        assert!(!scene.dir.exists());
    }
}
