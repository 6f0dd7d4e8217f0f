//! Hostile clients: names that look like paths, far too much of everything, and one byte at a time.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use ingestd::client::{Client, ClientError};
use ingestd::daemon::CONNECTIONS_MAX;
use ingestd::protocol::{ErrorCode, HEADER_BYTES, Header, REPLY_BODY_BYTES_MAX, Reply};
use loom_engine::log::LogReader;
use loom_engine::schema::{SOURCES_MAX, SourceDef, decode_catalog, encode_line};
use loom_engine::testkit::paths;
use loom_tests::command::{eventually, until};

use super::connections::{ends, hello};
use super::support::{Here, NUMBERS, Place, SMALL, connect, daemon, numbers, payloads, push, stop};

/// All paths below a folder except segments, whose names begin with a digit: the flusher makes them when it wants.
fn below(dir: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for path in paths(dir) {
        if path.is_dir() {
            found.extend(below(&path));
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        if !name.starts_with(|first: char| first.is_ascii_digit()) {
            found.insert(path);
        }
    }
    found
}

/// A definition of a source without fields. JSON's strings are TOML's.
fn named(name: &str) -> String {
    format!("[[source]]\nname = {}\n", serde_json::Value::from(name))
}

fn is_refused(result: Result<impl Sized, ClientError>, why: &str) {
    super::connections::is_refused(result, ErrorCode::Definition, why);
}

// case Network and input: strange names
#[test]
fn names_never_become_paths_and_those_that_are_none_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let daemon = daemon(&dir, SMALL);
    let client = Client::connect(&dir).unwrap();
    let before = below(root.path());
    let long = "x".repeat(255);
    let names =
        "../../x, /etc/passwd, a/b, ., .., records, '; DROP TABLE x; --, \", ingest.sock, ünï 😀";
    let names: Vec<&str> = names.split(", ").chain([long.as_str()]).collect();
    for name in &names {
        let source = client.define_one(&named(name)).unwrap();
        client.push(source, name.as_bytes()).unwrap();
    }
    assert_eq!(client.sync().unwrap().counts.stored, names.len() as u64);
    for name in names {
        assert_eq!(payloads(&dir, name), [name.as_bytes()]);
    }
    assert_eq!(below(root.path()), before, "a name became a path");

    for (name, why) in [
        ("", "the name of the source is empty"),
        ("a\u{0}b", "control character"),
        ("a\nb", "control character"),
        (&"x".repeat(256), "256 bytes"),
        (&"x".repeat(200_000), "200000 bytes"),
        ("loom_losses", "loom_losses"),
    ] {
        is_refused(client.define_one(&named(name)), why);
    }
    client.sync().unwrap();
    daemon.stop().unwrap();
}

/// A frame of a definition, whatever its document holds.
fn define_frame(document: &[u8]) -> Vec<u8> {
    let body_bytes = ((document.len() + 4) as u32).to_le_bytes();
    [&body_bytes[..], &[5, 0, 0, 0], &[1, 0, 0, 0], document].concat()
}

// case Network and input: strange names
#[test]
fn a_name_of_a_megabyte_and_one_that_is_no_text_end_their_connection_alone() {
    let here = Here::start(SMALL);
    let (client, source) = connect(here.path());
    for document in [
        named(&"x".repeat(1 << 20)).into_bytes(),
        b"[[source]]\nname = \"\xFF\xFE\"\n".to_vec(),
    ] {
        let bytes = [hello(), define_frame(&document)].concat();
        ends(here.path(), &bytes, ErrorCode::Malformed);
    }
    push(&client, source, [1]);
    assert_eq!(numbers(here.path()), [1]);
}

// case Network and input: slow clients
#[test]
fn a_client_that_sends_byte_by_byte_is_served_and_stalls_no_other() {
    let here = Here::start(SMALL);
    let (client, source) = connect(here.path());
    let [low, high] = source.0.to_le_bytes();
    let header = [12, 0, 0, 0, 2, 0, low, high, 8, 0, 0, 0];
    let pushed = [&header[..], &77u64.to_le_bytes()].concat();
    let mut slow = UnixStream::connect(here.path().join("ingest.sock")).unwrap();
    for byte in [hello(), pushed].concat() {
        slow.write_all(&[byte]).unwrap();
        push(&client, source, [1]);
    }
    until(|| numbers(here.path()).contains(&77));
}

/// Kibibytes of a process that are its own, from a line of its status.
fn own_kib(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let found = status.lines().find_map(|found| found.strip_prefix(line));
    let kib = found.unwrap().trim().trim_end_matches(" kB");
    kib.parse().unwrap()
}

// case Network and input: very many connections
#[test]
fn thousands_of_connections_are_told_so_and_cost_no_other_client_anything() {
    const CONNECTIONS: usize = 3000;
    let place = Place::new();
    let loom = &place.dir;
    let there = place.start(SMALL);
    let (client, source) = connect(loom);
    let mut held = Vec::new();
    let mut refused = 0;
    for n in 0..CONNECTIONS {
        let stream = UnixStream::connect(loom.join("ingest.sock")).unwrap();
        if held.len() < CONNECTIONS_MAX - 1 {
            held.push(stream);
        } else {
            let mut stream = stream;
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            // One that was held and never said hello may be cut off by now, and then there was room.
            if said.is_empty() {
                continue;
            }
            let header = Header::decode(&said, REPLY_BODY_BYTES_MAX);
            let header = header.unwrap().unwrap();
            let reply = Reply::decode(header, &said[HEADER_BYTES..]).unwrap();
            let too_many = ErrorCode::TooManyConnections;
            let is_told = matches!(reply, Reply::Error { code, .. } if code == too_many);
            refused += usize::from(is_told);
        }
        if n % 100 == 0 {
            push(&client, source, [n as u64]);
        }
    }
    let least = CONNECTIONS - 2 * CONNECTIONS_MAX;
    assert!(refused > least, "{refused} were refused");
    let kib = own_kib(there.id(), "RssAnon:");
    assert!(kib < 256 << 10, "{kib} KiB");
    drop(held);
    eventually(|| Client::connect(loom).ok());
    assert_eq!(numbers(loom).len(), CONNECTIONS / 100);
    stop(there);
}

/// Appends so many definitions to the catalog of a directory that nobody writes, as a daemon would, without the waiting.
fn define_directly(dir: &Path, count: usize) {
    let reader = LogReader::open(dir).unwrap();
    let uuid = reader.meta().uuid;
    let (mut catalog, mut lines, _) =
        decode_catalog(&uuid, &reader.catalog_bytes().unwrap()).unwrap();
    let mut text = String::new();
    for n in 0..count {
        let def = SourceDef::new(format!("source {n}"));
        let at = catalog.latest_at();
        let (_, events) = catalog.define_source(&def, at).unwrap();
        for event in events {
            text.push_str(&encode_line(&uuid, lines as u64, &event));
            lines += 1;
        }
    }
    let catalog = std::fs::OpenOptions::new()
        .append(true)
        .open(dir.join("catalog"));
    catalog.unwrap().write_all(text.as_bytes()).unwrap();
}

// case Network and input: very many sources
#[test]
fn sources_beyond_the_limit_are_refused_and_the_daemon_goes_on() {
    const LEFT: usize = 5;
    let dir = tempfile::tempdir().unwrap();
    let start = || daemon(dir.path(), SMALL);
    let running = start();
    let built_in: usize = {
        let client = Client::connect(dir.path()).unwrap();
        client.define_one(NUMBERS).unwrap();
        let reader = LogReader::open(dir.path()).unwrap();
        let bytes = reader.catalog_bytes().unwrap();
        let decoded = decode_catalog(&reader.meta().uuid, &bytes).unwrap();
        decoded.0.sources().count()
    };
    running.stop().unwrap();
    define_directly(dir.path(), SOURCES_MAX - built_in - LEFT);

    let running = start();
    let client = Client::connect(dir.path()).unwrap();
    // More than are left are refused together, and none of them is made.
    let many: String = (0..1000).map(|n| named(&format!("late {n}"))).collect();
    is_refused(client.define(&many), &SOURCES_MAX.to_string());
    let mut made = 0;
    let refusal = loop {
        match client.define_one(&named(&format!("last {made}"))) {
            Ok(_) => made += 1,
            refusal => break refusal,
        }
    };
    is_refused(refusal, &SOURCES_MAX.to_string());
    assert!((1..=LEFT).contains(&made), "{made}");
    let source = client.define_one(NUMBERS).unwrap();
    push(&client, source, [5]);
    assert_eq!(numbers(dir.path()), [5]);
    assert!(client.status().unwrap().contains("\"last 0\""));
    drop(client);
    running.stop().unwrap();
}
