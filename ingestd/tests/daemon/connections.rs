//! Clients that are hostile, slow, too many, or gone.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use ingestd::client::{Client, ClientError};
use ingestd::config::Config;
use ingestd::daemon::{CONNECTIONS_MAX, Daemon};
use ingestd::protocol::{
    Depth, ErrorCode, HEADER_BYTES, Header, REPLY_BODY_BYTES_MAX, Reply, Request, RequestId,
    VERSION,
};
use loom_engine::SourceId;

use loom_engine::testkit::paths;
use loom_tests::command::{eventually, says, until};

use super::support::{Here, NUMBERS, SMALL, connect, daemon, numbers, push};

pub fn hello() -> Vec<u8> {
    let (version, client) = (VERSION, "raw");
    encoded(Request::Hello { version, client })
}

fn raw(dir: &Path) -> UnixStream {
    UnixStream::connect(dir.join("ingest.sock")).unwrap()
}

/// All that the daemon answers to these bytes, until it closes the connection.
fn answers(dir: &Path, bytes: &[u8]) -> Vec<Reply> {
    let mut stream = raw(dir);
    // The daemon may close before all of it is sent.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received);
    let mut rest = received.as_slice();
    let mut replies = Vec::new();
    while let Some(header) = Header::decode(rest, REPLY_BODY_BYTES_MAX) {
        let header = header.unwrap();
        let (frame, after) = rest.split_at(HEADER_BYTES + header.body_bytes);
        replies.push(Reply::decode(header, &frame[HEADER_BYTES..]).unwrap());
        rest = after;
    }
    assert!(rest.is_empty());
    replies
}

/// Holds that a daemon answers these bytes with an error that ends their connection.
#[track_caller]
pub fn ends(dir: &Path, bytes: &[u8], wanted: ErrorCode) {
    let replies = answers(dir, bytes);
    match replies.last() {
        Some(Reply::Error {
            request: None,
            code,
            ..
        }) => assert_eq!(*code, wanted, "{bytes:?}"),
        other => panic!("no error that ends the connection: {other:?}"),
    }
}

fn encoded(request: Request<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes);
    bytes
}

// case Network and input: half frames
#[test]
fn bytes_that_are_no_frames_end_their_connection_and_nothing_else() {
    let here = Here::start(SMALL);
    let (client, source) = connect(here.path());
    let after_hello = |bytes: &[u8]| [hello().as_slice(), bytes].concat();
    for bytes in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xFF; 100_000],
        after_hello(&[0, 0, 0, 0, 0x77, 0, 0, 0]),
        after_hello(&[0xFF, 0xFF, 0xFF, 0x7F, 0x02, 0, 1, 0]),
        after_hello(&[5, 0, 0, 0, 0x02, 0, 1, 0, 2, 0, 0, 0, 9]),
        after_hello(&[2, 0, 0, 0, 0x03, 0, 1, 0, 9, 0]),
        after_hello(&hello()),
        // A push before the hello.
        vec![4, 0, 0, 0, 0x02, 0, 1, 0, 2, 0, 0, 0],
    ] {
        ends(here.path(), &bytes, ErrorCode::Malformed);
    }
    let (version, client_name) = (99, "");
    let other = encoded(Request::Hello {
        version,
        client: client_name,
    });
    ends(here.path(), &other, ErrorCode::Version);

    push(&client, source, [1]);
    assert_eq!(numbers(here.path()), [1]);
}

// case Network and input: half frames
#[test]
fn what_came_before_a_malformed_frame_is_kept_and_half_a_frame_is_not() {
    let here = Here::start(SMALL);
    let source = here.client().define_one(NUMBERS).unwrap();
    let [low, high] = source.0.to_le_bytes();
    let push = |n: u64| {
        let header = [12, 0, 0, 0, 0x02, 0, low, high, 8, 0, 0, 0];
        [&header[..], &n.to_le_bytes()].concat()
    };
    let bytes = [hello(), push(1), push(2), vec![0; 8], push(3)].concat();
    ends(here.path(), &bytes, ErrorCode::Malformed);
    let half = push(5);
    let bytes = [hello(), push(4), half[..half.len() - 1].to_vec()].concat();
    let answered = answers(here.path(), &bytes);
    assert!(matches!(answered.as_slice(), [Reply::Welcome(_)]));
    until(|| numbers(here.path()) == [1, 2, 4]);
}

#[test]
fn a_push_to_a_source_that_does_not_exist_ends_the_connection() {
    let here = Here::start(SMALL);
    let client = here.client();
    client.push(SourceId(77), b"lost").unwrap();
    is_refused(client.sync(), ErrorCode::NotFound, "");
    let again = client.push(SourceId(77), b"lost");
    assert!(again.and_then(|()| client.flush()).is_err());
}

/// Holds that the daemon refused something for this reason.
#[track_caller]
pub fn is_refused(result: Result<impl Sized, ClientError>, wanted: ErrorCode, why: &str) {
    match result.map(drop) {
        Err(ClientError::Daemon { code, message }) if code == wanted => says(&message, why),
        other => panic!("not refused for '{why}': {other:?}"),
    }
}

// case Network and input: slow clients
#[test]
fn a_client_that_is_silent_in_mid_frame_stalls_no_other() {
    let here = Here::start(SMALL);
    let mut silent = raw(here.path());
    let half = [hello().as_slice(), &[200, 0, 0, 0, 0x02]].concat();
    silent.write_all(&half).unwrap();
    let (client, source) = connect(here.path());
    assert_eq!(push(&client, source, 0..50_000).stored, 50_000);
    here.stop();
}

// case Network and input: slow clients
#[test]
fn a_client_that_reads_no_answers_is_disconnected_and_stalls_no_other() {
    let here = Here::start(SMALL);
    let mut deaf = raw(here.path());
    deaf.write_all(&hello()).unwrap();
    let request = RequestId::new(1).unwrap();
    let depth = Depth::Configured;
    let syncs = encoded(Request::Sync { request, depth }).repeat(1000);
    let sending = std::thread::spawn(move || while deaf.write_all(&syncs).is_ok() {});
    let (client, source) = connect(here.path());
    push(&client, source, [1]);
    sending.join().unwrap();
    until(|| here.daemon().status().unwrap().connections == 1);
}

// case Network and input: slow clients
#[test]
fn a_client_that_reads_its_answers_slowly_does_not_hold_up_a_stop() {
    let here = Here::start(SMALL);
    let fields: Vec<String> = (0..50).map(|n| format!("field_{n} u64")).collect();
    let fields = fields.join(", ");
    let sources = (0..40).map(|n| loom_tests::command::source(&format!("source_{n}"), &fields));
    let sources: String = sources.collect();
    here.client().define(&sources).unwrap();
    let mut slow = raw(here.path());
    slow.write_all(&hello()).unwrap();
    let request = RequestId::new(1).unwrap();
    let catalog = encoded(Request::Catalog { request });
    slow.write_all(&catalog.repeat(400)).unwrap();
    let mut piece = vec![0; 64 << 10];
    slow.read_exact(&mut piece).unwrap();
    let began = Instant::now();
    let reading = std::thread::spawn(move || {
        // It takes something well within the time that each answer has; at last it gives in.
        while slow.read(&mut piece).is_ok_and(|bytes| bytes > 0) {
            if began.elapsed() < Duration::from_secs(30) {
                std::thread::sleep(Duration::from_millis(500));
            }
        }
    });
    here.stop();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "the stop took {took:?}");
    drop(reading);
}

// case Network and input: very many connections
#[test]
fn one_connection_too_many_is_told_so() {
    let here = Here::start(SMALL);
    let mut clients: Vec<Client> = (0..CONNECTIONS_MAX).map(|_| here.client()).collect();
    let refused = Client::connect(here.path());
    is_refused(refused, ErrorCode::TooManyConnections, "");
    clients.pop();
    eventually(|| Client::connect(here.path()).ok());
    here.stop();
}

#[test]
fn the_directory_and_the_socket_are_the_owners() {
    let here = Here::start(SMALL);
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&here.path().join("ingest.sock")), 0o600);
    assert_eq!(mode(&here.path().join("catalog")), 0o600);
}

/// The modes of a directory's entries, by path, but the socket.
fn modes(dir: &Path) -> Vec<(std::path::PathBuf, u32)> {
    let mut found = Vec::new();
    for path in paths(dir) {
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        if metadata.is_dir() {
            found.extend(modes(&path));
        }
        if metadata.is_dir() || metadata.is_file() {
            found.push((path, metadata.permissions().mode() & 0o7777));
        }
    }
    found
}

#[test]
fn a_group_may_read_everything_and_push_only_where_it_is_told_so() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("loom");
    let group = std::fs::metadata(root.path()).unwrap().gid();
    let push = |config: &str| {
        let daemon = daemon(&dir, config);
        let (client, source) = connect(&dir);
        push(&client, source, 0..100_000);
        client.sync_durable().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let staging = std::fs::read(dir.join("staging")).unwrap();
        let staging: serde_json::Value = serde_json::from_slice(&staging).unwrap();
        let staging = dir.join(staging["path"].as_str().unwrap());
        let modes = (mode(&dir.join("ingest.sock")), mode(&staging));
        daemon.stop().unwrap();
        modes
    };
    assert_eq!(push(SMALL), (0o600, 0o600));
    assert!(modes(root.path()).iter().all(|(_, mode)| mode & 0o077 == 0));
    let shared = format!("{SMALL}[access]\ngroup = '{group}'\n");
    assert_eq!(push(&shared), (0o600, 0o640));
    for (path, mode) in modes(root.path()) {
        let wanted = if path.is_dir() { 0o750 } else { 0o640 };
        assert_eq!(mode, wanted, "{}", path.display());
        assert_eq!(std::fs::metadata(&path).unwrap().gid(), group);
    }
    assert_eq!(push(&format!("{shared}socket = 'group'\n")), (0o660, 0o640));
    let unknown = format!("{SMALL}[access]\ngroup = 'no such group'\n");
    let error = Daemon::start(&dir, &Config::parse(&unknown).unwrap(), false);
    says(&error.map(drop).unwrap_err().to_string(), "no such group");
}

#[test]
fn a_socket_that_a_killed_daemon_left_is_replaced_and_anything_else_in_its_place_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("ingest.sock");
    // The second was killed before it listened.
    for left in [&socket, &dir.path().join("ingest.sock.tmp")] {
        drop(std::os::unix::net::UnixListener::bind(left).unwrap());
    }
    let running = daemon(dir.path(), SMALL);
    drop(Client::connect(dir.path()).unwrap());
    running.stop().unwrap();
    std::fs::write(&socket, "precious").unwrap();
    let error = Daemon::start(dir.path(), &Config::parse(SMALL).unwrap(), false);
    says(&error.map(drop).unwrap_err().to_string(), "not a socket");
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
    let staging = dir.path().join("staging");
    assert!(!staging.exists(), "nothing is left to recover");
}

// case Concurrency: two writers
#[test]
fn a_second_daemon_is_refused_and_the_first_goes_on() {
    let here = Here::start(SMALL);
    let config = Config::parse(SMALL).unwrap();
    assert!(Daemon::start(here.path(), &config, false).is_err());
    here.client().sync().unwrap();
}

#[test]
fn a_directory_with_a_long_path_can_be_pushed_to() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("a".repeat(100)).join("b".repeat(100));
    std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
    let daemon = daemon(&dir, SMALL);
    let (client, source) = connect(&dir);
    push(&client, source, [1]);
    assert_eq!(numbers(&dir), [1]);
    daemon.stop().unwrap();
}
