//! The Python client, run by the machine's Python.

use std::path::Path;
use std::process::Command;

use loom_tests::command::Ended;
use loom_tests::machine;

use super::support::{Here, payloads};

const SCRIPT: &str = r#"
import struct, sys
sys.path.insert(0, sys.argv[2])
import loom_client

TOML = '''
[[source]]
name = "fixed"
[[source.field]]
name = "n"
type = "u64"
[[source.field]]
name = "op"
type = "u8"
labels = { 1 = "GET", 2 = "SET" }

[[source]]
name = "rich"
time = "own"
[[source.field]]
name = "host"
type = "char[8]"
[[source.field]]
name = "load"
type = "f64"
nullable = true
[[source.field]]
name = "up"
type = "bool"
nullable = true
[[source.field]]
name = "note"
type = "utf8"
nullable = true

[[source]]
name = "raw"
'''

loom = loom_client.connect(sys.argv[1])
ids = loom.define(TOML)
with loom_client.connect(sys.argv[1]) as brief:
    assert brief.define(TOML) == ids
assert brief.socket.fileno() == -1
assert loom.define(TOML) == ids and list(ids) == ["fixed", "rich", "raw"], ids
loom.push("fixed", [(1, "GET"), {"n": 2, "op": "SET"}, (3, 7)])
loom.push("fixed", struct.pack("<QBQB", 4, 1, 5, 2))
loom.push("fixed", b"".join(struct.pack("<QB", n, 1) for n in range(6, 50001)))
loom.push("rich", [(-5, "web1", -0.0, True, "caf\u00e9"), {"ts": 7, "host": "db", "note": None}])
loom.push("raw", [(b"any bytes",), (b"",)])
counts = loom.sync()
assert counts["stored"] == counts["received"] == 50004, counts
loom.push("raw", [(bytes(60000),)] * 20)
assert loom.sync(durable=True)["stored"] == 50024
try:
    loom.push("nothing", [(1,)])
    raise AssertionError("an unknown source")
except loom_client.LoomError as error:
    assert error.code == 5
try:
    loom.define("[[source]]\nname = 'loom_x'")
    raise AssertionError("a reserved name")
except loom_client.LoomError as error:
    assert error.code == 6 and "built in" in str(error)
for wrong in [(1,), {"n": 1, "what": 2}]:
    try:
        loom.push("fixed", [wrong])
        raise AssertionError(wrong)
    except ValueError:
        pass
# Of a list, what stands before a bad row is pushed; every fault of a row raises one kind of error.
for bad, why in [((-1, 1), "n is u64, not -1"), (("x", 1), "n is u64, not 'x'"), ((1, "NONE"), "op is u8 or one of ['GET', 'SET'], not 'NONE'"),
                 ((None, 1), "n cannot be NULL"), (7, ""), ((1, 2, 3), "3 values")]:
    try:
        loom.push("fixed", [(60000, 1), (60001, 2), bad, (60002, 1)])
        raise AssertionError(bad)
    except loom_client.LoomError as error:
        assert error.pushed == 2 and "row 2 of fixed" in str(error) and why in str(error), error
for bad, why in [((0, "db", None, None, 5), "note is utf8, not 5"), ((0, "db", "high", None, None), "load is f64, not 'high'"),
                 ((0, "db", None, "maybe", None), "up is bool, not 'maybe'"), ((0, "db", None, "false", None), "up is bool, not 'false'"),
                 (("now", "db", None, None, None), "ts is nanoseconds"), ((0, "a long host", None, None, None), "host is char[8], not 11 bytes")]:
    try:
        loom.push("rich", [bad])
        raise AssertionError(bad)
    except loom_client.LoomError as error:
        assert why in str(error), error
assert loom.sync()["stored"] == 50024 + 12
try:
    loom_client.connect("/nowhere")
    raise AssertionError("no directory")
except loom_client.LoomError:
    pass
assert loom.status()["sources"][0]["stored"] == 50012
# A client whose connection is gone goes on with a new one.
other = loom_client.connect(sys.argv[1])
other.socket.shutdown(2)
other.sync()
other.push("fixed", [(1, 1)])
other.sync()
loom.close()
print("done")
"#;

/// Runs a script with a directory, the folder of the client and the program as arguments.
fn python(script: &str, dir: &Path) {
    let mut command = Command::new("python3");
    command.args(["-B", "-c", script]).arg(dir);
    command.arg(machine::root().join("ingestd/clients/python"));
    let ended = Ended::of(command.arg(machine::ingestd().unwrap()));
    ended.ends(0).prints("done\n");
}

#[test]
fn the_python_client_defines_pushes_rows_and_bytes_and_syncs() {
    let large = "[log]\nchunk = '64KiB'\nblock = '1MiB'\nsegment = '1MiB'\n";
    let here = Here::start(large);
    python(SCRIPT, here.path());

    let fixed = payloads(here.path(), "fixed");
    assert_eq!(fixed.len(), 50_013);
    let mut first = fixed[..50_000].iter().zip(1u64..);
    assert!(first.all(|(payload, n)| payload[..8] == n.to_le_bytes()));
    let labels: Vec<u8> = fixed[..3].iter().map(|payload| payload[8]).collect();
    assert_eq!(labels, [1, 2, 7]);

    let rich = payloads(here.path(), "rich");
    let first = [
        &(-5i64).to_le_bytes()[..],
        &[0],
        b"web1\0\0\0\0",
        &(-0.0f64).to_le_bytes(),
        &[1],
        &5u16.to_le_bytes(),
        "caf\u{e9}".as_bytes(),
    ];
    let second = [
        &7i64.to_le_bytes()[..],
        &[0b111],
        b"db\0\0\0\0\0\0",
        &[0; 8],
        &[0],
        &[0, 0],
    ];
    assert_eq!(rich, [first.concat(), second.concat()]);

    let raw = payloads(here.path(), "raw");
    assert_eq!(raw.len(), 22);
    assert_eq!(raw[..2], [b"any bytes".to_vec(), Vec::new()]);
    assert!(raw[2..].iter().all(|payload| payload.len() == 60_000));
}

const RESTARTED: &str = r#"
import os, signal, subprocess, sys, time
sys.path.insert(0, sys.argv[2])
import loom_client

def daemon():
    # A daemon that was killed leaves its socket.
    if os.path.exists(sys.argv[1] + "/ingest.sock"):
        os.remove(sys.argv[1] + "/ingest.sock")
    started = subprocess.Popen([sys.argv[3], "run", sys.argv[1]], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not os.path.exists(sys.argv[1] + "/ingest.sock"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return started

TOML = '[[source]]\nname = "t"\n[[source.field]]\nname = "n"\ntype = "u64"'
for end in (signal.SIGKILL, signal.SIGTERM):
    running = daemon()
    loom = loom_client.connect(sys.argv[1])
    loom.define(TOML)
    loom.push("t", [(n,) for n in range(1000)])
    assert loom.sync()["stored"] == 1000
    running.send_signal(end)
    running.wait()
    running = daemon()
    # Nothing was unsure: the call goes on as if nothing had been.
    assert [source["name"] for source in loom.catalog()] == ["t"]
    loom.push("t", [(n,) for n in range(1000, 1500)])
    running.send_signal(end)
    running.wait()
    running = daemon()
    try:
        loom.sync()
        raise AssertionError("nobody confirmed these records")
    except loom_client.Disconnected as error:
        assert error.unsure == 500, error
    loom.push("t", [(7,)])
    assert loom.sync()["stored"] == 1
    running.terminate()
    running.wait()
impatient = time.monotonic()
loom.patience = 0.1
try:
    loom.status()
    raise AssertionError("no daemon runs")
except loom_client.Disconnected as error:
    assert error.unsure == 0 and time.monotonic() - impatient < 30, error
print("done")
"#;

#[test]
fn the_python_client_goes_on_with_the_next_daemon_and_counts_what_is_unsure() {
    let place = tempfile::tempdir().unwrap();
    python(RESTARTED, &place.path().join("loom"));
}
