//! Tests arguments that are refused before anything is created, and the hints that are printed.

use std::process::Command;

use ingestd::config::Config;
use ingestd::daemon::Daemon;
use loom_tests::command::{Ended, run, says};

use super::scene::{may_record, scene, scene_named};

// case Recording: something that is missing
#[test]
fn a_source_with_another_layout_is_an_error_that_names_the_option() {
    let scene = scene();
    let lines = ["command", "--source", "x", "--", "echo", "x"];
    scene.record(&lines).ends(0);
    let json = ["command", "--format", "json", "--source", "x", "--"];
    let json = [&json[..], &["echo", "{\"n\": 1}"]].concat();
    scene.record(&json).ends(1).says("--source NAME");
}

#[test]
fn two_captures_of_one_source_are_refused_before_anything_is_made() {
    let scene = scene();
    if !may_record() {
        return;
    }
    let output = scene
        .record(&["syscalls", "--source", "x", "+", "packets", "--source", "x"])
        .ends(1);
    says(&output.err, "two captures cannot fill the source 'x'");
    assert!(!scene.dir.exists());
}

#[test]
fn the_query_of_a_directory_with_a_quote_is_valid_sql() {
    let scene = scene_named("it's");
    let output = scene
        .record(&["command", "--source", "log", "--", "true"])
        .ends(0);
    let said = &output.err;
    says(said, "/it''s', 'log', 20)");
    says(said, "is its daemon");
}

#[test]
fn usage_errors_name_what_is_missing_or_too_long() {
    let scene = scene();
    let dir = scene.dir.to_str().unwrap();
    let directory = "the Loom directory is missing";
    let around = "name one before it and one after it";
    let long = "a-name-of-20-bytes--";
    for (args, expected) in [
        (&["syscalls", "--comm", "x"][..], directory),
        (&["syscalls"], directory),
        (
            &[dir, "foo"],
            "'foo' is not a capture; give one of syscalls, sched, process, tcp, function, ",
        ),
        (&[dir], "no capture is given; give one of syscalls, "),
        (&[dir, "syscalls", "+"], around),
        (&[dir, "+", "syscalls"], around),
        (&[dir, "syscalls", "--comm", ""], "it is empty"),
        (&[dir, "syscalls", "--comm", long], "give 'a-name-of-20-by'"),
        (&[dir, "sched", "--min", "x"], "'--min <TIME>'"),
        (&[dir, "profile", "--hz", "0"], "0 is not in 1..=10000"),
        (&[dir, "profile", "--min", "1ms"], "--off-cpu"),
        (&[dir, "function"], "<BINARY:SYMBOL>"),
        (&[dir, "function", "a:b", "--arg", "x"], "as in '0:u64'"),
        (
            &[dir, "function", "a:b", "--result", "f64"],
            "'f64' is not a type; use one of i8, ",
        ),
    ] {
        run(&[&["record"], args].concat()).ends(2).says(expected);
        assert!(!scene.dir.exists());
    }
}

#[test]
fn the_help_shows_the_options_of_the_whole_recording_first() {
    let help = run(&["record", "--help"]).out;
    let (_, options) = help.split_once("\nOptions:\n").unwrap();
    let of_line = |line: &'_ str| {
        let mut words = line.split_whitespace();
        words.find(|word| word.starts_with("--")).map(str::to_owned)
    };
    let names = options.lines().filter_map(of_line);
    let first: Vec<String> = names.take(3).collect();
    assert_eq!(first, ["--seconds", "--keep", "--patience"], "{help}");
    for capture in [
        "syscalls",
        "sched",
        "process",
        "tcp",
        "function",
        "profile",
        "packets",
        "blockio",
        "pagecache",
        "command",
    ] {
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
    let captures = ["pagecache", "+", "command", "--source", "x", "--", "true"];
    let record = scene.command(&[&["--seconds=1"], &captures[..]].concat());
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$@\" 2>&1"]);
    let said = Ended::of(shell.arg(record.get_program()).args(record.get_args())).out;
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
    // The third query and the third counts are of the control groups.
    let begin = ["start", "query", "query", "query"];
    assert_eq!(kinds[first..first + 4], begin, "{said}");
    assert!(kinds[first + 4..].starts_with(&["note"]), "{said}");
    let end = ["note", "counts", "counts", "counts"];
    assert!(kinds.ends_with(&end), "{said}");
    says(&said, " of a processor in its process");
}

#[test]
fn a_size_for_a_daemon_that_runs_is_an_error() {
    let scene = scene();
    let daemon = Daemon::start(&scene.dir, &Config::default(), false).unwrap();
    let output = scene
        .record(&["command", "--keep", "9GiB", "--source", "x", "--", "true"])
        .ends(1);
    says(&output.err, "cannot apply --keep: a daemon runs on");
    daemon.stop().unwrap();
}

#[test]
fn what_does_not_exist_is_named_with_what_does() {
    if !may_record() {
        return;
    }
    let scene = scene();
    let device = "cannot record requests of '/dev/nosuch': no such file; give a disk in /dev, of ";
    let interface = "cannot record packets of interface 'nosuch': ";
    for (args, expected) in [
        (&["blockio", "--device", "/dev/nosuch"][..], device),
        (&["packets", "-i", "nosuch"], interface),
        (
            &["function", "libc.so.6:getppid_"],
            "no such function; did you mean getppid",
        ),
    ] {
        let output = scene.record(args).ends(1);
        let said = &output.err;
        says(said, expected);
        assert!(!args.contains(&"packets") || said.contains("; give one of "));
        assert!(!scene.dir.exists());
    }
}
