//! The command line around the daemon: catalog, status, validation.

use std::path::Path;
use std::process::Output;

use super::support::{Here, NUMBERS, SMALL, There, ingestd, numbers};

fn run(arguments: &[&str]) -> Output {
    ingestd().args(arguments).output().unwrap()
}

fn stdout(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn stderr_of_failure(arguments: &[&str], code: i32) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// Adds, lists and closes; the same with a daemon and without.
fn change_the_catalog(dir: &Path, fields: &str) {
    let dir = dir.to_str().unwrap();
    stdout(&["source", "add", dir, "--fields", fields]);
    stdout(&["source", "add", dir, "--fields", fields]);
    let add = [
        "index", "add", dir, "--source", "numbers", "--index", "small",
    ];
    let flags = [
        "--value",
        "n",
        "--where",
        "n < 100",
        "--bins",
        "[0, 10, 100]",
    ];
    stdout(&[&add[..], &flags].concat());
    let sources = stdout(&["source", "list", dir]);
    assert!(
        sources.contains("numbers") && sources.contains("n u64") && sources.contains("open"),
        "{sources}"
    );
    let indexes = stdout(&["index", "list", dir, "--source", "numbers"]);
    let words = |line: &str| {
        line.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let indexes: Vec<_> = indexes.lines().map(words).collect();
    let defined = |line: &str| indexes.contains(&words(line));
    assert!(defined("numbers n n - auto open"), "{indexes:?}");
    assert!(
        defined("numbers small n n < 100 [0, 10, 100] open"),
        "{indexes:?}"
    );
    stdout(&[
        "index", "close", dir, "--source", "numbers", "--index", "small",
    ]);
    assert!(stdout(&["index", "list", dir]).contains("closed"));
    stdout(&["source", "close", dir, "--source", "numbers"]);
    assert!(stdout(&["source", "list", dir]).contains("closed"));

    let unknown = stderr_of_failure(&["source", "close", dir, "--source", "nmbers"], 1);
    assert!(unknown.contains("did you mean 'numbers'"), "{unknown}");
    assert_eq!(unknown.lines().count(), 1, "{unknown}");
}

#[test]
fn the_catalog_is_changed_through_the_daemon_or_directly() {
    let root = tempfile::tempdir().unwrap();
    let fields = root.path().join("fields.toml");
    std::fs::write(&fields, NUMBERS).unwrap();
    let fields = fields.to_str().unwrap();
    let with_daemon = root.path().join("with");
    let there = There::start(&with_daemon, &[]);
    change_the_catalog(&with_daemon, fields);
    let client = there.client();
    let source = client.define_one(NUMBERS).unwrap();
    client.push(source, &5u64.to_le_bytes()).unwrap();
    client.sync().unwrap();
    let status = stdout(&["status", with_daemon.to_str().unwrap()]);
    assert!(status.contains("running as process"), "{status}");
    assert!(
        status
            .lines()
            .any(|line| line.starts_with("numbers") && line.contains('1')),
        "{status}"
    );
    there.signal("-TERM");
    assert!(there.wait());
    let status = stdout(&["status", with_daemon.to_str().unwrap()]);
    assert!(status.contains("not running"), "{status}");
    assert_eq!(numbers(&with_daemon), [5]);

    let without = root.path().join("without");
    change_the_catalog(&without, fields);
    assert!(
        !without.join("staging").exists(),
        "a refused change leaves nothing to recover"
    );
}

#[test]
fn a_configuration_is_validated_with_the_line_that_is_wrong() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("loom.toml");
    let file = path.to_str().unwrap();
    let dir = root.path().to_str().unwrap();
    std::fs::write(&path, format!("{SMALL}{NUMBERS}")).unwrap();
    assert!(stdout(&["validate", "--config", file]).contains("1 source\n"));
    std::fs::write(&path, format!("{SMALL}on_fire = true\n")).unwrap();
    let wrong = stderr_of_failure(&["validate", "--config", file], 78);
    assert!(
        wrong.contains(&format!("{file}:5: unknown field `on_fire`")),
        "{wrong}"
    );
    assert_eq!(wrong.lines().count(), 1);
    let missing = stderr_of_failure(&["validate", "--config", "/nowhere/loom.toml"], 78);
    assert_eq!(missing.matches("/nowhere").count(), 1, "{missing}");
    let missing = stderr_of_failure(&["run", dir, "--config", "/nowhere/loom.toml"], 1);
    assert_eq!(missing.matches("/nowhere").count(), 1, "{missing}");
    std::fs::write(&path, format!("{SMALL}[retention]\nmax_bytes = '1MiB'\n")).unwrap();
    let small = stderr_of_failure(&["validate", "--config", file], 78);
    assert!(
        small.contains(&format!("{file}:6: max_bytes is 1MiB")),
        "{small}"
    );
    assert!(small.contains("raise it to"), "{small}");
    std::fs::write(&path, "[access]\ngroup = 'no_such_group'\n").unwrap();
    let nobody = stderr_of_failure(&["validate", "--config", file], 78);
    assert!(
        nobody.contains(&format!("{file}:2: group 'no_such_group' does not exist")),
        "{nobody}"
    );
    let nobody = stderr_of_failure(&["run", dir, "--config", file], 1);
    assert!(
        nobody.contains("line 2: group 'no_such_group' does not exist"),
        "{nobody}"
    );
    std::fs::write(&path, format!("{SMALL}on_fire = true\n")).unwrap();
    let refused = stderr_of_failure(&["run", dir, "--config", file], 1);
    assert!(refused.contains("line 5"), "{refused}");
}

/// What a start refuses `validate` refuses too, in the same words, with or without the directory.
// case Network and input: a configuration that the next start would refuse
#[test]
fn a_configuration_that_cannot_be_used_exits_78() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("loom.toml");
    let file = path.to_str().unwrap();
    let empty = root.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let empty = empty.display();
    let loom = root.path().join("loom");
    let dir = loom.to_str().unwrap();
    let rule = "[[rule]]\nname = 'r'\nsource = 'numbers'\nindex = 'n'\nover = '1s'\n";
    let otlp = "[otlp]\nlisten = ['127.0.0.1:0']\n";
    let tls = |file: &str| format!("{otlp}tls = {{ cert = '{file}', key = '{file}' }}\n");
    for (text, why) in [
        ("[log".to_owned(), "loom.toml"),
        ("[log]\nchunk = '5KiB'\n".to_owned(), "chunk is 5KiB"),
        (
            "[log]\nsegment = '1152921504606846976B'\n".to_owned(),
            "segment is",
        ),
        (
            "[log]\nstaging = 'here'\n".to_owned(),
            "staging is a relative path",
        ),
        (
            "[metrics]\nlisten = '0.0.0.0:9464'\n".to_owned(),
            "loopback",
        ),
        ("[archive]\nrequired = true\n".to_owned(), "to is missing"),
        ("[access]\nsocket = 'group'\n".to_owned(), "group"),
        (format!("{NUMBERS}{NUMBERS}"), "numbers"),
        (
            format!("{NUMBERS}{rule}when = 'p99 > 5ms'\n"),
            "is not known",
        ),
        (
            "[otlp]\nlisten = ['0.0.0.0:4317']\n".to_owned(),
            "add tls with cert and key",
        ),
        (tls("/no/such.pem"), "cannot use /no/such.pem for TLS"),
        (tls(file), "for TLS"),
        (
            format!("{otlp}bearer_file = '/no/such/token'\n"),
            "cannot read [otlp] bearer_file /no/such/token",
        ),
        (format!("{otlp}bearer_file = '{empty}'\n"), "holds no token"),
    ] {
        std::fs::write(&path, &text).unwrap();
        for arguments in [
            &["validate", "--config", file][..],
            &["validate", dir, "--config", file],
        ] {
            let refused = stderr_of_failure(arguments, 78);
            assert!(refused.contains(why), "{text}: {refused}");
        }
        let by_daemon = stderr_of_failure(&["run", dir, "--config", file], 1);
        assert!(by_daemon.contains(why), "{text}: {by_daemon}");
    }
}

#[test]
fn what_a_daemon_would_start_with_and_could_not_do_is_noted() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("loom.toml");
    let file = path.to_str().unwrap();
    let rule = |name: &str, source: &str, run: &str| {
        format!(
            "[[rule]]\nname = '{name}'\nsource = '{source}'\nindex = 'n'\nwhen = 'count > 0'\nover = '1s'\nrun = {run}\n"
        )
    };
    let rules = [
        rule("well", "numbers", "['/bin/sh', '{rule}']"),
        rule("astray", "nmbers", "['/bin/sh']"),
        rule("absent", "numbers", "['/no/such/page', '{rle}']"),
    ];
    let job = |name: &str, more: &str| {
        format!("[[scrape]]\njob = '{name}'\ntargets = ['127.0.0.1:1']\nevery = '1h'\n{more}\n")
    };
    let jobs = [
        job("token", "bearer_file = '/no/such/token'"),
        job("tls", "tls = { ca = '/no/such/ca.pem' }"),
    ];
    let archive = "[archive]\nsources = ['numbers', 'nmbers']\nexcept = ['loom_metrics']\n";
    let text = format!("{archive}{NUMBERS}{}{}", rules.concat(), jobs.concat());
    std::fs::write(&path, text).unwrap();
    let wanted = [
        "rule 'astray' cannot be evaluated yet: unknown source 'nmbers'; did you mean 'numbers'?",
        "rule 'absent': cannot run '/no/such/page': No such file",
        "rule 'absent': run has the unknown placeholder {rle}, which is not replaced; did you mean {rule}?",
        "job 'token' cannot be scraped yet: cannot read bearer_file /no/such/token: No such file",
        "job 'tls' cannot be scraped yet: cannot read /no/such/ca.pem: No such file",
        "[archive] sources counts for 'nmbers' once it is defined: unknown source 'nmbers'; did you mean 'numbers'?",
    ];
    let dir = root.path().join("loom");
    let dir = dir.to_str().unwrap();
    for arguments in [
        &["validate", "--config", file][..],
        &["validate", dir, "--config", file],
    ] {
        let said = stdout(arguments);
        for note in wanted {
            assert!(said.contains(&format!("note: {note}")), "{note}: {said}");
        }
        assert!(!said.contains("'well'"), "{said}");
    }
}

// case Network and input: a configuration that the next start would refuse
#[test]
fn a_configuration_is_validated_against_the_catalog_of_a_directory() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("loom.toml");
    let file = path.to_str().unwrap();
    let loom = root.path().join("loom");
    let dir = loom.to_str().unwrap();
    std::fs::write(&path, format!("{SMALL}{NUMBERS}")).unwrap();
    let new = stdout(&["validate", dir, "--config", file]);
    assert!(new.contains("not a Loom directory yet"), "{new}");
    assert!(!loom.exists(), "nothing is created");
    let there = There::start(&loom, &["--config", file]);
    let same = stdout(&["validate", dir, "--config", file]);
    assert!(same.contains("1 source\n"), "{same}");
    let retyped = NUMBERS.replace("'u64'", "'i64'");
    std::fs::write(&path, format!("{SMALL}{retyped}")).unwrap();
    assert!(stdout(&["validate", "--config", file]).contains("1 source\n"));
    // While the daemon runs, and when it does not.
    let refused = stderr_of_failure(&["validate", dir, "--config", file], 78);
    there.signal("-TERM");
    assert!(there.wait());
    assert_eq!(
        stderr_of_failure(&["validate", dir, "--config", file], 78),
        refused
    );
    assert!(refused.contains("field 'n'"), "{refused}");
    assert!(refused.contains(dir) && refused.contains(file), "{refused}");
    assert_eq!(refused.lines().count(), 1, "{refused}");
    let sizes = SMALL.replace("'4KiB'", "'8KiB'");
    std::fs::write(&path, format!("{sizes}{NUMBERS}")).unwrap();
    let kept = stdout(&["validate", dir, "--config", file]);
    assert!(kept.contains("chunk"), "{kept}");
}

#[test]
fn a_configuration_is_validated_for_what_a_daemon_would_open_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let config = root.path().join("loom.toml");
    let file = config.to_str().unwrap();
    std::fs::write(&config, format!("{SMALL}{NUMBERS}")).unwrap();
    let foreign = root.path().to_str().unwrap();
    for (dir, why) in [(foreign, "is not Loom's"), (file, "it is a file")] {
        let refused = stderr_of_failure(&["validate", dir, "--config", file], 1);
        let named = format!("{dir} is not a Loom directory");
        assert!(
            refused.contains(&named) && refused.contains(why),
            "{refused}"
        );
        let by_daemon = stderr_of_failure(&["run", dir, "--config", file], 1);
        assert_eq!(refused, by_daemon);
    }
    let loom = root.path().join("loom");
    let dir = loom.to_str().unwrap();
    std::fs::create_dir(&loom).unwrap();
    let empty = stdout(&["validate", dir, "--config", file]);
    assert!(empty.contains("not a Loom directory yet"), "{empty}");
    let fields = root.path().join("fields.toml");
    std::fs::write(&fields, NUMBERS).unwrap();
    let fields = fields.to_str().unwrap();
    stdout(&["source", "add", dir, "--fields", fields]);
    let retyped = NUMBERS.replace("'u64'", "'i64'");
    std::fs::write(&config, format!("{SMALL}{retyped}")).unwrap();
    // The copy says what the directory is, as it does for a daemon.
    std::fs::remove_file(loom.join("loom.json")).unwrap();
    let refused = stderr_of_failure(&["validate", dir, "--config", file], 78);
    assert!(refused.contains("field 'n'"), "{refused}");
    std::fs::remove_file(loom.join("loom.json.copy")).unwrap();
    let lost = stderr_of_failure(&["validate", dir, "--config", file], 1);
    assert!(lost.contains("loom.json"), "{lost}");
}

#[test]
fn errors_are_one_sentence_with_a_remedy() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_str().unwrap();
    let top = stderr_of_failure(&["top", dir], 1);
    assert!(top.contains("ingestd run"), "{top}");
    let list = stderr_of_failure(&["source", "list", dir], 1);
    assert_eq!(list.lines().count(), 1, "{list}");
    let close = stderr_of_failure(&["source", "close", "/nowhere", "--source", "x"], 1);
    assert!(close.contains("/nowhere"), "{close}");
    assert!(!Path::new("/nowhere").exists());
    stderr_of_failure(&["index", "add", dir, "--source", "x"], 2);
    stderr_of_failure(&["demo", dir, "--seconds", "0"], 2);
}

#[test]
fn each_command_shows_an_example() {
    for command in [
        "run",
        "demo",
        "load",
        "export",
        "source",
        "source add",
        "source close",
        "source list",
        "index",
        "index add",
        "index close",
        "index list",
        "status",
        "top",
        "check",
        "validate",
    ] {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        let help = stdout(&words);
        assert!(help.contains("Example"), "{command}: {help}");
    }
}

#[test]
fn the_configuration_with_every_key_is_sound() {
    let printed = stdout(&["validate", "--keys"]);
    let config = ingestd::config::Config::parse(&printed).unwrap();
    assert_eq!(config.log, ingestd::config::LogConfig::default());
    let names: Vec<&str> = config.sources.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["redis_request", "logs", "spans"]);
}

#[test]
fn a_list_of_sources_elides_hundreds_of_fields_unless_all_are_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("wide.toml");
    let fields = (0..300).map(|n| format!("[[source.field]]\nname = 'f{n}'\ntype = 'u8'\n"));
    let toml = format!("[[source]]\nname = 'wide'\n{}", fields.collect::<String>());
    std::fs::write(&file, toml).unwrap();
    let dir = root.path().join("loom");
    let dir = dir.to_str().unwrap();
    stdout(&["source", "add", dir, "--fields", file.to_str().unwrap()]);
    let list = stdout(&["source", "list", dir]);
    assert!(
        list.contains("f15 u8, … and 284 more (--all-fields)"),
        "{list}"
    );
    let all = stdout(&["source", "list", dir, "--all-fields"]);
    assert!(all.contains("f299 u8") && !all.contains('…'), "{all}");
}

#[test]
fn the_status_shows_the_disk_its_limit_and_the_oldest_record_and_top_has_rates_at_once() {
    let daemon = Here::start(&format!("{SMALL}[retention]\nmax_bytes = '64MiB'\n"));
    let dir = daemon.path().to_str().unwrap();
    let client = daemon.client();
    let source = client.define_one(NUMBERS).unwrap();
    client.push(source, &0u64.to_le_bytes()).unwrap();
    client.sync().unwrap();
    let status = stdout(&["status", dir]);
    let disk = status.lines().find(|line| line.starts_with("on disk "));
    let disk = disk.unwrap();
    assert!(
        disk.contains("of at most 64") && disk.contains("the oldest record arrived at 20"),
        "{disk}"
    );
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                client.push(source, &1u64.to_le_bytes()).unwrap();
                client.sync().unwrap();
            }
        });
        let mut top = super::support::ingestd();
        let pipes = top.args(["top", dir]).stdout(std::process::Stdio::piped());
        let mut child = pipes.spawn().unwrap();
        let lines = std::io::BufReader::new(child.stdout.take().unwrap());
        let first = std::io::BufRead::lines(lines)
            .map(Result::unwrap)
            .find(|line| line.starts_with("numbers "));
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        child.kill().unwrap();
        child.wait().unwrap();
        let first = first.unwrap();
        assert_ne!(first.split_whitespace().nth(1), Some("0"), "{first}");
    });
}
