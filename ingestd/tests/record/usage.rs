//! What is refused before anything is made, and what is printed to go on with.

use std::process::Command;

use ingestd::config::Config;
use ingestd::daemon::Daemon;

use super::scene::{may_record, scene, scene_named, stderr};

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
fn the_help_shows_the_options_of_the_whole_recording() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ingestd"));
    let output = command.args(["record", "--help"]).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    for option in ["--seconds", "--keep", "--patience"] {
        assert!(help.contains(option), "{help}");
    }
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
