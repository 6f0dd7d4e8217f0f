//! Tests the help at the command line: the completions of shells, through the shells themselves, and the pages of the manual.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ingestd::config::key_tables;
use loom_tests::command::{Ended, ingestd, says, table};
use loom_tests::machine;
use tempfile::TempDir;

const SOURCES: &str = "[[source]]\nname = 'request'\n[[source.field]]\nname = 'latency_ns'\ntype = 'u64'\n\
                       [[source.index]]\nname = 'latency'\nvalue = 'latency_ns'\n[[source]]\nname = 'logs'\n";

/// Each shell, and a script that prints its completions of the words after the first argument, which is the folder of `generate`.
const SHELLS: [(&str, &[&str], &str); 3] = [
    (
        "bash",
        &["--norc", "-c"],
        r#"source "$0/bash-completion/completions/ingestd"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_clap_complete_ingestd ingestd "${COMP_WORDS[COMP_CWORD]}"
printf '%s\n' "${COMPREPLY[@]}""#,
    ),
    // The first completion of a session does the same: the file becomes a function.
    (
        "zsh",
        &["-f", "-c"],
        r#"fpath=("$0/zsh/vendor-completions" $fpath)
compdef() { : }
_describe() { print -rl -- "${(@P)3%%:*}" }
autoload -Uz _ingestd
words=("$@") CURRENT=$#
_ingestd"#,
    ),
    (
        "fish",
        &["--no-config", "-c"],
        r#"source $argv[1]/fish/vendor_completions.d/ingestd.fish
complete -C (string join ' ' -- $argv[2..])"#,
    ),
];

/// A folder with a Loom directory, and the output of `generate` in `share`.
fn place() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("sources.toml"), SOURCES).unwrap();
    // The refused row creates the source loom_losses.
    std::fs::write(place.path().join("rows.csv"), "a,b\n1,2\n3\n").unwrap();
    let rows = "[[source]]\nname = 'rows'\nfield = [{ name = 'a', type = 'i64' }, { name = 'b', type = 'i64' }]\n";
    std::fs::write(place.path().join("rows.toml"), rows).unwrap();
    for (words, code) in [
        ("source add web.loom --fields sources.toml", 0),
        ("load web.loom --source rows --fields rows.toml rows.csv", 1),
        ("generate share", 0),
    ] {
        Ended::of(ingestd(words.split(' ')).current_dir(&place)).ends(code);
    }
    place
}

/// The installed shells; CI has all.
fn shells() -> impl Iterator<Item = (&'static str, &'static [&'static str], &'static str)> {
    SHELLS.into_iter().filter(|(shell, ..)| {
        let is_here = Command::new(shell).arg("--version").output().is_ok();
        assert!(
            is_here || std::env::var_os("CI").is_none(),
            "CI needs {shell}"
        );
        if !is_here {
            println!("skipped because `{shell}` is missing");
        }
        is_here
    })
}

/// The completions of the last of the words that follow `ingestd`; folders without their slash.
fn offered(
    (shell, options, script): (&str, &[&str], &str),
    place: &Path,
    words: &[&str],
) -> BTreeSet<String> {
    let program = machine::ingestd().unwrap();
    let folder = program.parent().unwrap().display();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new(shell);
    command.args(options).arg(script).arg(place.join("share"));
    command.arg("ingestd").args(words).current_dir(place);
    let offered = Ended::of(command.env("PATH", path).env("HOME", place));
    assert_eq!(offered.err, "", "{shell}: {words:?}");
    let values = offered
        .out
        .lines()
        .map(|line| line.split('\t').next().unwrap_or(line))
        .map(|value| value.trim_end_matches('/').to_owned());
    values.filter(|value| !value.is_empty()).collect()
}

// case Help: a word to complete
#[test]
fn a_shell_offers_captures_sources_and_indexes_and_nothing_else_in_their_places() {
    let place = place();
    for shell in shells() {
        // The words, of which the last may be empty, and what is offered for it.
        for [words, expected] in table(
            "
            va                                          | validate
            source c                                    | close
            record w                                    | web.loom
            record web.loom sys                         | syscalls
            record web.loom --seconds 5 sys             | syscalls
            record web.loom syscalls --com              | --comm
            record web.loom syscalls --comm x + p       | packets pagecache process profile
            record web.loom syscalls + packets + b      | blockio
            record web.loom blockio --source r          | request rows
            load web.loom rows.csv --source ''          | logs request rows
            source close web.loom --source l            | logs
            pin web.loom --last 5m --source l           | logs
            pin web.loom --l                            | --last
            export web.loom --source loom_l             | loom_losses
            export web.loom --source request --index '' | latency
            export web.loom --source logs --index ''    |
            export nowhere --source ''                  |
            status r                                    |
            ",
        ) {
            let words = words.split(' ').map(|word| word.trim_matches('\''));
            let words: Vec<&str> = words.collect();
            let expected = expected.split_whitespace().map(str::to_owned);
            let found = offered(shell, place.path(), &words);
            let expected: BTreeSet<String> = expected.collect();
            assert_eq!(found, expected, "{}: {words:?}", shell.0);
        }
    }
}

// case Help: a word to complete
#[test]
fn captures_are_offered_behind_the_directory_and_a_plus_behind_a_capture() {
    let place = place();
    for shell in shells() {
        let captures = [
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
        ];
        let of = |words: &[&str]| offered(shell, place.path(), words);
        let first = of(&["record", ""]);
        assert!(first.contains("web.loom"), "{}: {first:?}", shell.0);
        assert!(!captures.iter().any(|&capture| first.contains(capture)));
        for words in [
            &["record", "web.loom", ""][..],
            &["record", "web.loom", "packets", "port", "80", "+", ""],
        ] {
            let found = of(words);
            assert!(
                captures.iter().all(|&capture| found.contains(capture)) && !found.contains("help"),
                "{}: {found:?}",
                shell.0
            );
        }
        for words in [
            &["record", "web.loom", "syscalls", ""][..],
            &["record", "web.loom", "function", "libc.so.6:write", ""],
        ] {
            let behind = of(words);
            assert!(behind.contains("+"), "{}: {behind:?}", shell.0);
            assert!(!behind.contains("packets"), "{}: {behind:?}", shell.0);
        }
    }
}

// case Help: a page of the manual
#[test]
fn each_command_and_capture_has_a_page_and_the_configuration_has_all_its_keys() {
    let place = place();
    let page = |path: &str| std::fs::read_to_string(place.path().join("share/man").join(path));
    for [name, part] in table(
        r"
        ingestd                  | ingestd\-record(1)
        ingestd-load             | \-\-patience
        ingestd-rule-test        | \-\-last
        ingestd-pin              | \-\-last
        ingestd-status           | \-\-json
        ingestd-record           | ingestd\-record\-pagecache(1)
        ingestd-record-syscalls  | \-\-min\-latency
        ingestd-record-sched     | \-\-cgroup
        ingestd-record-process   | \-\-comm
        ingestd-record-tcp       | \-\-port
        ingestd-record-function  | \-\-arg
        ingestd-record-profile   | \-\-off\-cpu
        ingestd-record-packets   | \-\-interface
        ingestd-record-blockio   | \-\-device
        ingestd-record-pagecache | \-\-source
        ingestd-record-command   | \-\-format
        ",
    ) {
        says(&page(&format!("man1/{name}.1")).unwrap(), part);
    }
    assert!(page("man1/ingestd-generate.1").is_err(), "it is hidden");
    let text = page("man5/loom.toml.5").unwrap().replace("\\-", "-");
    for table in key_tables() {
        let (_, section) = text
            .split_once(&format!("\n.SH {}\n", table.heading))
            .unwrap();
        let section = section.split("\n.SH ").next().unwrap();
        for key in table.keys {
            says(section, &format!("\\fB{}\\fR = ", key.name));
        }
    }
}
