//! The command line around the daemon: catalog, status, validation.

use std::path::Path;

use loom_tests::command::{Ended, file, ingestd, run, says, source, word};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{Here, NUMBERS, Place, SMALL, connect, numbers, push, stop};

fn stdout(arguments: &[&str]) -> String {
    run(arguments).ends(0).out
}

fn stderr_of_failure(arguments: &[&str], code: i32) -> String {
    run(arguments).ends(code).err
}

/// A folder with a configuration.
struct Configured {
    root: TempDir,
    file: String,
}

impl Configured {
    fn new(config: &str) -> Configured {
        let root = tempfile::tempdir().unwrap();
        let file = file(root.path(), "loom.toml", config);
        Configured { root, file }
    }

    fn change(&self, config: &str) {
        std::fs::write(&self.file, config).unwrap();
    }

    fn dir(&self) -> String {
        word(&self.root.path().join("loom")).to_owned()
    }

    /// Validates the configuration, for this directory if one is given.
    fn validate(&self, dir: Option<&str>) -> Ended {
        let words = ["validate"].into_iter().chain(dir);
        Ended::of(&mut ingestd(words.chain(["--config", &self.file])))
    }

    /// Holds that a daemon does not start with it.
    fn run(&self, dir: &str) -> Ended {
        run(&["run", dir, "--config", &self.file]).ends(1)
    }
}

/// Adds, lists and closes; the same with a daemon and without.
fn change_the_catalog(dir: &Path, fields: &str) {
    let dir = word(dir);
    stdout(&["source", "add", dir, "--fields", fields]);
    stdout(&["source", "add", dir, "--fields", fields]);
    let index = |verb: &str, more: &[&str]| {
        let small = [
            "index", verb, dir, "--source", "numbers", "--index", "small",
        ];
        stdout(&[&small[..], more].concat());
    };
    let bins = ["--bins", "[0, 10, 100]"];
    index(
        "add",
        &[&["--value", "n", "--where", "n < 100"], &bins[..]].concat(),
    );
    let look_up = |option: &str, field: &str| {
        run(&["index", "add", dir, "--source", "numbers", option, field])
    };
    look_up("--lookup", "n").ends(0);
    look_up("--words", "n")
        .ends(1)
        .says("'n' is u64; only utf8 has words");
    look_up("--words", "m")
        .ends(1)
        .says("source 'numbers' has no field 'm'");
    let sources = run(&["source", "list", dir]).ends(0).says("numbers");
    sources.says("n u64").says("open");
    let indexes = stdout(&["index", "list", dir, "--source", "numbers"]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let indexes: Vec<Vec<String>> = indexes.lines().map(words).collect();
    for defined in [
        "numbers n n - auto open",
        "numbers small n n < 100 [0, 10, 100] open",
    ] {
        assert!(indexes.contains(&words(defined)), "{indexes:?}");
    }
    index("close", &[]);
    says(&stdout(&["index", "list", dir]), "closed");
    stdout(&["source", "close", dir, "--source", "numbers"]);
    says(&stdout(&["source", "list", dir]), "closed");

    let unknown = run(&["source", "close", dir, "--source", "nmbers"]).ends(1);
    assert_eq!(unknown.err.lines().count(), 1, "{unknown:?}");
    unknown.says("did you mean 'numbers'");
}

#[test]
fn the_catalog_is_changed_through_the_daemon_or_directly() {
    let place = Place::new();
    let fields = file(place.root.path(), "fields.toml", NUMBERS);
    let there = place.start("");
    let dir = word(&place.dir);
    change_the_catalog(&place.dir, &fields);
    let (client, source) = connect(&place.dir);
    push(&client, source, [5]);
    let status = stdout(&["status", dir]);
    says(&status, "running as process");
    let mut lines = status.lines();
    let counted = lines.any(|line| line.starts_with("numbers") && line.contains('1'));
    assert!(counted, "{status}");
    stop(there);
    says(&stdout(&["status", dir]), "not running");
    assert_eq!(numbers(&place.dir), [5]);

    let without = place.root.path().join("without");
    change_the_catalog(&without, &fields);
    let staging = without.join("staging");
    assert!(
        !staging.exists(),
        "a refused change leaves nothing to recover"
    );
}

#[test]
fn a_configuration_is_validated_with_the_line_that_is_wrong() {
    let config = Configured::new(&format!("{SMALL}{NUMBERS}"));
    let (file, dir) = (&config.file, word(config.root.path()));
    config.validate(None).ends(0).says("1 source\n");
    config.change(&format!("{SMALL}on_fire = true\n"));
    let wrong = config.validate(None).ends(78);
    assert_eq!(wrong.err.lines().count(), 1);
    wrong.says(&format!("{file}:5: unknown field `on_fire`"));
    config.run(dir).says("line 5");
    let nowhere = ["--config", "/nowhere/loom.toml"];
    for (command, code) in [(&["validate"][..], 78), (&["run", dir], 1)] {
        let missing = stderr_of_failure(&[command, &nowhere].concat(), code);
        assert_eq!(missing.matches("/nowhere").count(), 1, "{missing}");
    }
    config.change(&format!("{SMALL}[retention]\nmax_bytes = '1MiB'\n"));
    let small = config.validate(None).ends(78).says("raise it to");
    small.says(&format!("{file}:6: max_bytes is 1MiB"));
    config.change("[access]\ngroup = 'no_such_group'\n");
    let nobody = "group 'no_such_group' does not exist";
    let refused = config.validate(None).ends(78);
    refused.says(&format!("{file}:2: {nobody}"));
    config.run(dir).says(&format!("line 2: {nobody}"));
}

/// `validate` refuses the same configurations as a start, in the same words, with or without the directory.
// case Network and input: a configuration that the next start would refuse
#[test]
fn a_configuration_that_cannot_be_used_exits_78() {
    let config = Configured::new("");
    let dir = config.dir();
    let empty = file(config.root.path(), "empty", "");
    let rule =
        "[[rule]]\nname = 'r'\nsource = 'numbers'\nindex = 'n'\nover = '1s'\nwhen = 'p99 > 5ms'";
    let otlp = "[otlp]\nlisten = ['127.0.0.1:0']";
    let tls = |file: &str| format!("{otlp}\ntls = {{ cert = '{file}', key = '{file}' }}");
    let token = |file: &str| format!("{otlp}\nbearer_file = '{file}'");
    for (text, why) in [
        ("[log", "loom.toml"),
        ("[log]\nchunk = '5KiB'", "chunk is 5KiB"),
        ("[log]\nsegment = '1152921504606846976B'", "segment is"),
        ("[log]\nstaging = 'here'", "staging is a relative path"),
        ("[metrics]\nlisten = '0.0.0.0:9464'", "loopback"),
        ("[archive]\nrequired = true", "to is missing"),
        ("[access]\nsocket = 'group'", "group"),
        (&format!("{NUMBERS}{NUMBERS}"), "numbers"),
        (&format!("{NUMBERS}{rule}"), "is not known"),
        (
            "[otlp]\nlisten = ['0.0.0.0:4317']",
            "add tls with cert and key",
        ),
        (&tls("/no/such.pem"), "cannot use /no/such.pem for TLS"),
        (&tls(&config.file), "for TLS"),
        (
            &token("/no/such"),
            "cannot read [otlp] bearer_file /no/such",
        ),
        (&token(&empty), "holds no token"),
    ] {
        config.change(text);
        for dir in [None, Some(dir.as_str())] {
            config.validate(dir).ends(78).says(why);
        }
        config.run(&dir).says(why);
    }
}

#[test]
fn what_a_daemon_would_start_with_and_could_not_do_is_noted() {
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
    let config = Configured::new(&text);
    let wanted = [
        "rule 'astray' cannot be evaluated yet: unknown source 'nmbers'; did you mean 'numbers'?",
        "rule 'absent': cannot run '/no/such/page': No such file",
        "rule 'absent': run has the unknown placeholder {rle}, which is not replaced; did you mean {rule}?",
        "job 'token' cannot be scraped yet: cannot read bearer_file /no/such/token: No such file",
        "job 'tls' cannot be scraped yet: cannot read /no/such/ca.pem: No such file",
        "[archive] sources counts for 'nmbers' once it is defined: unknown source 'nmbers'; did you mean 'numbers'?",
    ];
    for dir in [None, Some(config.dir().as_str())] {
        let mut noted = config.validate(dir).ends(0);
        assert!(!noted.out.contains("'well'"), "{noted:?}");
        for note in wanted {
            noted = noted.says(&format!("note: {note}"));
        }
    }
}

// case Network and input: a configuration that the next start would refuse
#[test]
fn a_configuration_is_validated_against_the_catalog_of_a_directory() {
    let place = Place::new();
    let dir = word(&place.dir);
    let config = Configured::new(&format!("{SMALL}{NUMBERS}"));
    let validated = || config.validate(Some(dir));
    validated().ends(0).says("not a Loom directory yet");
    assert!(!place.dir.exists(), "nothing is created");
    let there = place.start(&format!("{SMALL}{NUMBERS}"));
    validated().ends(0).says("1 source\n");
    let retyped = NUMBERS.replace("'u64'", "'i64'");
    config.change(&format!("{SMALL}{retyped}"));
    config.validate(None).ends(0).says("1 source\n");
    // While the daemon runs, and when it does not.
    let refused = validated().ends(78).err;
    stop(there);
    assert_eq!(validated().ends(78).err, refused);
    for words in ["field 'n'", dir, &config.file] {
        says(&refused, words);
    }
    assert_eq!(refused.lines().count(), 1, "{refused}");
    let sizes = SMALL.replace("'4KiB'", "'8KiB'");
    let sizes = sizes.replace("'64KiB'", "'128KiB'");
    config.change(&format!("{sizes}{NUMBERS}"));
    validated().ends(0).says("chunk");
}

#[test]
fn a_configuration_is_validated_for_what_a_daemon_would_open_and_nothing_else() {
    let config = Configured::new(&format!("{SMALL}{NUMBERS}"));
    let foreign = word(config.root.path());
    for (dir, why) in [(foreign, "is not Loom's"), (&config.file, "it is a file")] {
        let refused = config.validate(Some(dir)).ends(1).says(why);
        let refused = refused.says(&format!("{dir} is not a Loom directory"));
        assert_eq!(refused.err, config.run(dir).err);
    }
    let dir = config.dir();
    let loom = Path::new(&dir);
    std::fs::create_dir(loom).unwrap();
    let validated = || config.validate(Some(&dir));
    validated().ends(0).says("not a Loom directory yet");
    let fields = file(config.root.path(), "fields.toml", NUMBERS);
    stdout(&["source", "add", &dir, "--fields", &fields]);
    let retyped = NUMBERS.replace("'u64'", "'i64'");
    config.change(&format!("{SMALL}{retyped}"));
    // The copy says what the directory is, as it does for a daemon.
    std::fs::remove_file(loom.join("loom.json")).unwrap();
    validated().ends(78).says("field 'n'");
    std::fs::remove_file(loom.join("loom.json.copy")).unwrap();
    validated().ends(1).says("loom.json");
}

#[test]
fn errors_are_one_sentence_with_a_remedy() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().to_str().unwrap();
    run(&["top", dir]).ends(1).says("ingestd run");
    let list = stderr_of_failure(&["source", "list", dir], 1);
    assert_eq!(list.lines().count(), 1, "{list}");
    let close = run(&["source", "close", "/nowhere", "--source", "x"]).ends(1);
    close.says("/nowhere");
    assert!(!Path::new("/nowhere").exists());
    stderr_of_failure(&["index", "add", dir, "--source", "x"], 2);
    stderr_of_failure(&["demo", dir, "--seconds", "0"], 2);
}

#[test]
fn each_command_shows_an_example() {
    let commands = "run, demo, load, export, source, source add, source close, source list, index, \
                    index add, index close, index list, pin, pins, status, top, check, validate";
    for command in commands.split(", ") {
        let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
        run(&words).ends(0).says("Example");
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
    let fields: Vec<String> = (0..300).map(|n| format!("f{n} u8")).collect();
    let fields = file(root.path(), "wide.toml", source("wide", &fields.join(", ")));
    let dir = word(&root.path().join("loom")).to_owned();
    stdout(&["source", "add", &dir, "--fields", &fields]);
    let list = stdout(&["source", "list", &dir]);
    says(&list, "f15 u8, … and 284 more (--all-fields)");
    let all = stdout(&["source", "list", &dir, "--all-fields"]);
    assert!(all.contains("f299 u8") && !all.contains('…'), "{all}");
}

#[test]
fn the_status_shows_the_disk_its_limit_and_the_oldest_record_and_top_has_rates_at_once() {
    let daemon = Here::start(&format!("{SMALL}[retention]\nmax_bytes = '64MiB'\n"));
    let dir = word(daemon.path());
    let (client, source) = connect(daemon.path());
    push(&client, source, [0]);
    let status = stdout(&["status", dir]);
    let disk = status.lines().find(|line| line.starts_with("on disk "));
    says(disk.unwrap(), "of at most 64");
    says(disk.unwrap(), "the oldest record arrived at 20");
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                push(&client, source, [1]);
            }
        });
        let mut top = ingestd(["top", dir]);
        let mut child = top.stdout(std::process::Stdio::piped()).spawn().unwrap();
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

/// The document that a command prints, and nothing else. Its keys are plain.
fn document(words: &[&str]) -> Value {
    fn require_plain(value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(require_plain),
            Value::Object(values) => {
                for (key, value) in values {
                    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
                    assert!(key.bytes().all(is_plain), "{key}");
                    // The labels of a field are data.
                    if key != "labels" {
                        require_plain(value);
                    }
                }
            }
            _ => {}
        }
    }
    let ended = run(&[words, &["--json"]].concat()).ends(0);
    assert_eq!((ended.out.lines().count(), ended.err.as_str()), (1, ""));
    let document = serde_json::from_str(&ended.out).unwrap();
    require_plain(&document);
    document
}

#[test]
fn each_state_and_list_is_a_document_too_and_what_is_unknown_is_null() {
    let place = Place::new();
    let there = place.start(NUMBERS);
    let dir = word(&place.dir);
    let (client, source) = connect(&place.dir);
    push(&client, source, [5, 6, 7]);
    let of = |state: &Value, keys: &[&str]| -> Value {
        keys.iter().map(|&key| state[key].clone()).collect()
    };
    let status = document(&["status", dir]);
    assert_eq!(
        of(&status, &["daemon", "interval_ns"]),
        json!(["running", null])
    );
    assert_eq!(status["pid"], there.id());
    assert!(
        status["oldest_at"].as_str().unwrap().ends_with('Z'),
        "{status}"
    );
    let counts = [
        "name",
        "received",
        "stored",
        "payload_bytes",
        "records",
        "closed",
    ];
    let numbers = of(&status["sources"][0], &counts);
    assert_eq!(numbers, json!(["numbers", 3, 3, 24, null, null]));
    let top = document(&["top", dir]);
    assert!(top["interval_ns"].as_u64() >= Some(250_000_000), "{top}");
    assert_eq!(
        of(&top["sources"][0], &["stored", "records_per_s"]),
        json!([3, 0.0])
    );
    assert_eq!(
        stdout(&["top", dir, "--once"]).matches("numbers").count(),
        1
    );

    let rule = "--name low --source numbers --index n --over 1s --when";
    let words: Vec<&str> = rule.split(' ').collect();
    stdout(&[&["rule", "add", dir], &words[..], &["min < 1"]].concat());
    let rule = document(&["rule", "list", dir])["rules"][0].clone();
    assert_eq!(
        of(&rule, &["name", "added", "state", "trouble"]),
        json!(["low", true, "normal", null])
    );
    assert!(
        rule["evaluations"].is_u64() && rule["busy_ns"].is_u64(),
        "{rule}"
    );

    stop(there);
    let status = document(&["status", dir]);
    assert_eq!(
        of(&status, &["daemon", "pid", "durability"]),
        json!(["not_running", null, null])
    );
    let numbers = of(&status["sources"][0], &counts);
    assert_eq!(numbers, json!(["numbers", null, null, null, 3, false]));
    let field = json!({"name": "n", "type": "u64", "nullable": false, "labels": {}});
    assert_eq!(
        document(&["source", "list", dir])["sources"][0]["fields"],
        json!([field])
    );
    let rule = document(&["rule", "list", dir])["rules"][0].clone();
    assert_eq!(
        of(&rule, &["name", "evaluations", "busy_ns"]),
        json!(["low", null, null])
    );
    assert!(
        rule["evaluated_to"].as_str().unwrap().ends_with('Z'),
        "{rule}"
    );
    assert_eq!(document(&["pins", dir]), json!({"pins": []}));
    let empty = tempfile::tempdir().unwrap();
    let empty = format!("--staging={}", word(empty.path()));
    assert_eq!(document(&["status", &empty]), json!({"staging_files": []}));
}
