//! `libloom_client` as programs in C and Python use it, and a producer that only follows PROTOCOL.md.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use loom_engine::query::{Directory, Poll};
use loom_engine::testkit::payloads;
use loom_tests::command::Ended;
use loom_tests::daemon::Daemon;
use loom_tests::machine;
use rustix::process::Signal;

/// The folder of the library's header and example.
fn home() -> std::path::PathBuf {
    machine::root().join("ingestd/clients/c")
}

/// A script with the folder of the Python clients, the directory and the library as arguments.
fn python(script: &str, dir: &Path) -> Result<Command> {
    let mut command = Command::new("python3");
    command.args(["-B", "-c", script]);
    command.arg(machine::root().join("ingestd/clients/python"));
    command.arg(dir).arg(machine::client_library()?);
    Ok(command)
}

#[test]
fn the_header_is_what_cbindgen_makes_of_the_source() -> Result<()> {
    if !machine::has("client_library", &["cbindgen"])? {
        return Ok(());
    }
    let mut cbindgen = Command::new("cbindgen");
    cbindgen.args(["--config", "cbindgen.toml", "src/lib.rs"]);
    let made = Ended::of(cbindgen.current_dir(home())).ends(0).out;
    let kept = std::fs::read_to_string(home().join("loom_client.h"))?;
    ensure!(
        made == kept,
        "loom_client.h differs; run 'cbindgen --config cbindgen.toml --output loom_client.h src/lib.rs' in ingestd/clients/c"
    );
    Ok(())
}

#[test]
fn a_program_in_c_pushes_a_million_records_with_their_time() -> Result<()> {
    let place = tempfile::tempdir()?;
    let library = machine::client_library()?;
    let folder = library.parent().context("a library without a folder")?;
    let program = place.path().join("example");
    let mut cc = Command::new("cc");
    cc.args("-std=c11 -O2 -Wall -Wextra -Werror example.c -o".split(' '));
    cc.arg(&program).arg("-L").arg(folder).arg("-lloom_client");
    Ended::of(cc.current_dir(home())).ends(0);
    let daemon = Daemon::start(&place.path().join("c.loom"), "")?;
    let run = |dir: &Path| {
        let mut program = Command::new(&program);
        program.arg(dir).arg("1000000");
        Ended::of(program.env("LD_LIBRARY_PATH", folder))
    };
    let pushed = run(daemon.dir()).ends(0);
    pushed.prints("received=1000000 stored=1000000 refused=0 dropped=0\n");
    let nowhere = run(place.path()).says("no daemon runs on");
    ensure!(nowhere.code != Some(0), "{nowhere:?}");
    daemon.stop()
}

const BY_LIBRARY: &str = r#"
import os, struct, sys, time
sys.path.insert(0, sys.argv[1])
import loom_ring

TOML = '[[source]]\nname = "ticks"\ntime = "own"\n[[source.field]]\nname = "n"\ntype = "u64"'
loom = loom_ring.connect(sys.argv[2], library=sys.argv[3])
source = loom.define(TOML)
for n in range(10000):
    loom.push(source, struct.pack("<Q", n))
counts = loom.sync()
assert counts["received"] == counts["stored"] == 10000, counts
child = os.fork()
if child == 0:  # every call of a fork is refused by name
    calls = [lambda: loom.push(source, bytes(8)), loom.sync, lambda: loom.define(TOML)]
    refused = 0
    for call in calls:
        try:
            call()
        except loom_ring.LoomError as error:
            refused += "fork" in str(error)
    loom.close()
    own = loom_ring.connect(sys.argv[2], library=sys.argv[3])  # and it may connect for itself
    own.push(own.define(TOML), bytes(8))
    refused += own.sync()["stored"]
    os._exit(refused)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
loom.push(source, bytes(8))
assert loom.sync()["stored"] == 10001
for call, why in [(lambda: loom.push(77, bytes(8)), "was not defined"),
                  (lambda: loom.define("[[source]]"), "name"),
                  (lambda: loom_ring.connect("/nowhere", library=sys.argv[3]), "no daemon runs"),
                  (lambda: loom.push(source, bytes(70000)), "longer than the limit")]:
    try:
        call()
        raise AssertionError(why)
    except loom_ring.LoomError as error:
        assert why in str(error), error
loom.push(source, b"short")
assert loom.sync()["refused"] == 1
loom.close()
print("done")
"#;

#[test]
fn python_pushes_through_the_library_and_a_fork_is_refused_by_name() -> Result<()> {
    let place = tempfile::tempdir()?;
    let daemon = Daemon::start(&place.path().join("python.loom"), "")?;
    let ended = Ended::of(&mut python(BY_LIBRARY, daemon.dir())?);
    ended.ends(0).prints("done\n");
    daemon.stop()
}

/// Threads that push until the input ends. After each line of it, all have pushed more.
const RESTARTED: &str = r#"
import struct, sys, threading, time
sys.path.insert(0, sys.argv[1])
import loom_ring

TOML = '[[source]]\nname = "ticks"\n[[source.field]]\nname = "n"\ntype = "u64"'
pushed, ends = [0, 0], False

def produce(thread):
    with loom_ring.connect(sys.argv[2], library=sys.argv[3]) as loom:
        source = loom.define(TOML)
        while not ends:
            loom.push(source, struct.pack("<Q", thread << 40 | pushed[thread]))
            pushed[thread] += 1

threads = [threading.Thread(target=produce, args=(thread,)) for thread in range(len(pushed))]
for thread in threads:
    thread.start()
for line in sys.stdin:
    before = list(pushed)
    while not all(now > then + 1000 for now, then in zip(pushed, before)):
        time.sleep(0.001)
    print("more", flush=True)
ends = True
for thread in threads:
    thread.join()
print(sum(pushed))
"#;

// G9
#[test]
fn python_and_the_library_in_c_push_on_over_restarts_of_the_daemon() -> Result<()> {
    let place = tempfile::tempdir()?;
    let dir = place.path().join("restarted.loom");
    let mut daemon = Daemon::start(&dir, "")?;
    let mut producer = python(RESTARTED, &dir)?;
    let producer = producer.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut producer = producer.spawn()?;
    let mut to = producer.stdin.take().context("a pipe")?;
    let mut lines = BufReader::new(producer.stdout.take().context("a pipe")?).lines();
    let mut more = || -> Result<()> {
        writeln!(to)?;
        let said = lines.next().context("the producer ended")??;
        ensure!(said == "more", "{said}");
        Ok(())
    };
    more()?;
    for signal in [Signal::KILL, Signal::TERM, Signal::KILL] {
        daemon.end(signal)?;
        // No daemon runs.
        more()?;
        daemon = Daemon::start(&dir, "")?;
        more()?;
    }
    drop(to);
    let pushed: u64 = lines.next().context("the producer ended")??.parse()?;
    ensure!(producer.wait()?.success());
    daemon.stop()?;
    let mut stored = payloads(&dir, "ticks");
    let all = stored.len() as u64;
    stored.sort_unstable();
    stored.dedup();
    let losses = Directory::open(&dir)?.snapshot()?.losses(&Poll::never())?;
    let lost: u64 = losses.iter().filter_map(|loss| loss.records).sum();
    ensure!(
        stored.len() as u64 == all && all + lost >= pushed && all <= pushed,
        "{all} stored, {} of them once, {lost} lost of {pushed}",
        stored.len()
    );
    Ok(())
}

/// A producer that follows PROTOCOL.md alone. With the name of a fault as an argument, it leaves that fault in the ring.
const BY_THE_BOOK: &str = r#"
import mmap, os, socket, struct, sys, time
sys.path.insert(0, sys.argv[1])
import loom_client

CAPACITY = 1 << 16
def ring(loom, source):
    loom.flush()
    loom.request += 1
    loom.socket.sendall(struct.pack("<IBBHIHHQ", 16, 0x0C, 0, 0, loom.request, source, 0, CAPACITY))
    frame, descriptors, _, _ = socket.recv_fds(loom.socket, 20, 1)
    assert frame[4] == 0x8C and struct.unpack("<Q", frame[12:]) == (CAPACITY,), frame
    # As words: each is stored whole. The descriptor stays open.
    return descriptors[0], memoryview(mmap.mmap(descriptors[0], CAPACITY + 12288)).cast("Q")

def given_back(descriptor):
    while os.fstat(descriptor).st_blocks * 512 > 2 * mmap.PAGESIZE:
        time.sleep(0.01)

def word(at, value=None):
    if value is None:
        return memory[at // 8]
    memory[at // 8] = value

def push(payload):
    tail = word(8192)
    record = struct.pack("<Q", len(payload)) + payload + bytes(-len(payload) % 8)
    for at, (value,) in enumerate(struct.iter_unpack("<Q", record)):
        word(12288 + (tail + 8 * at) % CAPACITY, value)
    word(8192, tail + len(record))

for fault, why in [(None, None), ((8192, 7), "producer's counter"), ((8192, 1 << 40), "producer's counter"),
                   ((12288, 1 << 40), "does not begin a record"), ((12288, 4000), "are published"),
                   ((8256, 1 << 63), "dropped records")]:
    loom = loom_client.connect(sys.argv[2])
    source = loom.define('[[source]]\nname = "book"\n[[source.field]]\nname = "n"\ntype = "u64"')["book"]
    descriptor, memory = ring(loom, source)
    assert bytes(memory[:1]) == b"LOOMRING" and [word(at) for at in (8, 16, 24, 32)] == [1, CAPACITY, 0, 0]
    pushed = 0
    while pushed < (20000 if fault is None else 0):
        if word(8192) + 16 - word(4096) <= CAPACITY:
            push(struct.pack("<Q", pushed))
            pushed += 1
    if fault is None:
        word(8256, 3)
        counts = loom.sync()
        assert (counts["stored"], counts["dropped"]) == (20000, 3), counts
        loom.close()
        given_back(descriptor)
        continue
    word(*fault)
    if fault[0] == 12288:
        word(8192, 16)
    try:
        loom._receive(None)
        raise AssertionError("a broken ring is accepted")
    except loom_client.LoomError as error:
        assert error.code == 1 and why in str(error), error
    given_back(descriptor)
loom = loom_client.connect(sys.argv[2])
status = loom.status()
while status["rings"]:
    status = loom.status()
assert status["ring_bytes"] == 0, status
book = status["sources"][0]
assert (book["stored"], book["dropped"], book["refused"]) == (20000, 3, 5), book
print("done")
"#;

// G8
#[test]
fn a_producer_by_the_book_is_understood_and_a_hostile_one_is_disconnected_by_name() -> Result<()> {
    let place = tempfile::tempdir()?;
    let daemon = Daemon::start(&place.path().join("book.loom"), "")?;
    let ended = Ended::of(&mut python(BY_THE_BOOK, daemon.dir())?);
    ended.ends(0).prints("done\n");
    daemon.stop()
}
