//! A real capture: `tcpdump` on loopback, while `redis-benchmark` loads a `redis-server`, piped into a running daemon that DuckDB queries
//! meanwhile. Every packet that tcpdump reports as captured must be there and agree with the capture file. The recording of a short
//! conversation describes it in names and texts.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use loom_tests::command::Running;
use loom_tests::daemon::{Daemon, wait_until};
use loom_tests::duckdb::{Session, Version};
use loom_tests::machine;
use rustix::process::{Pid, Signal, kill_process};

const REQUESTS: u32 = 60_000;
const LAST_WORD: &str = "the-end-of-the-capture";
const REQUEST: &[u8] = b"SET \"k\" 'v\\'\r\n";
/// The request as DuckDB prints it.
const REQUEST_SHOWN: &str = r"SET \x22k\x22 \x27v\x5C\x27\x0D\x0A";
const REPLY: &[u8] = b"+OK\r\n\xff";

#[test]
fn a_live_capture_of_redis_holds_every_packet() -> Result<()> {
    let name = "capture";
    if !machine::has(name, &["tcpdump", "tee", "redis-server", "redis-benchmark"])? {
        return Ok(());
    }
    let place = tempfile::tempdir()?;
    let dir = place.path().join("packets.loom");
    let daemon = Daemon::start(&dir, "[log]\nblock = \"8MiB\"\n")?;
    let port = free_port()?;
    let _redis = redis(port)?;
    let Some(capture) = Capture::start(&dir, place.path(), port)? else {
        return machine::skip(name, "this user may not capture on loopback");
    };

    let mut sessions = Session::all()?;
    let from = format!("loom_scan('{}', 'packets')", dir.display());
    let mut counts: [Vec<u64>; Version::ALL.len()] = Default::default();
    let mut load = benchmark(port)?;
    let seen = wait_until(|| {
        for (session, counts) in sessions.iter_mut().zip(&mut counts) {
            // The source exists once the first packets have arrived.
            if let Ok(count) = session.value(&format!("SELECT count(*) FROM {from}")) {
                counts.push(count.parse()?);
            }
        }
        let ended = load.try_wait()?.is_some();
        let seen = counts
            .iter()
            .all(|counts| counts.iter().any(|count| *count > 0));
        if ended && !seen {
            load = benchmark(port)?;
        }
        Ok(ended && seen)
    })?;
    ensure!(seen, "no packet was seen while it ran: {counts:?}");
    let captured = capture.stop(port, place.path())?;
    for counts in counts {
        ensure!(counts.is_sorted(), "counts went back: {counts:?}");
        ensure!(
            counts.iter().all(|count| *count <= captured),
            "{captured} were captured: {counts:?}"
        );
    }

    let expected = Packets::read(&place.path().join("capture.pcap"))?;
    ensure!(
        expected.wire_bytes.len() as u64 == captured,
        "tcpdump wrote {} packets",
        expected.wire_bytes.len()
    );
    for session in &mut sessions {
        expected.hold_against(session, &from, captured)?;
    }
    daemon.stop()
}

/// Redis's own port if it is free, otherwise any port.
fn free_port() -> Result<u16> {
    let listener =
        TcpListener::bind(("127.0.0.1", 6379)).or_else(|_| TcpListener::bind(("127.0.0.1", 0)))?;
    Ok(listener.local_addr()?.port())
}

fn benchmark(port: u16) -> Result<Child> {
    let mut command = Command::new("redis-benchmark");
    let words = format!("-h 127.0.0.1 -p {port} -c 20 -t set,get -d 300 -q -n {REQUESTS}");
    Ok(command
        .args(words.split(' '))
        .stdout(Stdio::null())
        .spawn()?)
}

/// Starts Redis on a port and waits until it answers.
fn redis(port: u16) -> Result<Running> {
    let mut command = Command::new("redis-server");
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
    command.args(["--save", "", "--appendonly", "no"]);
    let redis = Running::start(&mut command);
    let answers = wait_until(|| Ok(TcpStream::connect(("127.0.0.1", port)).is_ok()))?;
    ensure!(answers, "redis-server does not answer");
    Ok(redis)
}

/// `tcpdump -i lo -U -w - port N | tee capture.pcap | ingestd load DIR --source packets --format pcap -`
struct Capture {
    tcpdump: Child,
    tee: Child,
    load: Child,
    said: std::path::PathBuf,
}

impl Capture {
    /// Starts the capture; `None` if this user may not capture.
    fn start(dir: &Path, place: &Path, port: u16) -> Result<Option<Capture>> {
        let said = place.join("tcpdump.said");
        let mut tcpdump = Command::new("tcpdump")
            .args(format!("-i lo -U -B 65536 -w - port {port}").split(' '))
            .stdout(Stdio::piped())
            .stderr(File::create(&said)?)
            .spawn()?;
        let mut tee = Command::new("tee")
            .arg(place.join("capture.pcap"))
            .stdin(tcpdump.stdout.take().context("tcpdump has no output")?)
            .stdout(Stdio::piped())
            .spawn()?;
        let load = Command::new(machine::ingestd()?)
            .arg("load")
            .arg(dir)
            .args(["--source", "packets", "--format", "pcap", "-"])
            .stdin(tee.stdout.take().context("tee has no output")?)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut capture = Capture {
            tcpdump,
            tee,
            load,
            said,
        };
        let listening = |capture: &Capture| {
            Ok::<bool, anyhow::Error>(capture.messages()?.contains("listening on"))
        };
        wait_until(|| Ok(listening(&capture)? || capture.tcpdump.try_wait()?.is_some()))?;
        if listening(&capture)? {
            return Ok(Some(capture));
        }
        let messages = capture.messages()?;
        if messages.contains("permission") || messages.contains("not permitted") {
            return Ok(None);
        }
        bail!("tcpdump does not capture: {messages}")
    }

    fn messages(&self) -> Result<String> {
        Ok(std::fs::read_to_string(&self.said)?)
    }

    /// Ends the capture and returns the number of packets that tcpdump reports as captured.
    ///
    /// A signal that interrupts tcpdump in a write to a full pipe tears the packet that it writes. So a last word is sent first, and once
    /// it has come through, nothing is under way. Its connection stays open, so that nothing follows.
    fn stop(mut self, port: u16, place: &Path) -> Result<u64> {
        let mut last = TcpStream::connect(("127.0.0.1", port))?;
        last.write_all(format!("PING {LAST_WORD}\r\n").as_bytes())?;
        let file = place.join("capture.pcap");
        let came = wait_until(|| {
            Ok(String::from_utf8_lossy(&end_of(&file)?)
                .matches(LAST_WORD)
                .count()
                == 2)
        })?;
        ensure!(
            came,
            "the last request and its reply were not captured: {}",
            self.messages()?
        );
        kill_process(Pid::from_child(&self.tcpdump), Signal::INT)?;
        self.tcpdump.wait()?;
        self.tee.wait()?;
        let mut counts = String::new();
        self.load
            .stdout
            .take()
            .context("load has no output")?
            .read_to_string(&mut counts)?;
        ensure!(self.load.wait()?.success(), "load failed: {counts}");
        let messages = self.messages()?;
        let line = messages
            .lines()
            .find_map(|line| line.strip_suffix(" packets captured"));
        let captured: u64 = line
            .with_context(|| format!("tcpdump printed no count: {messages}"))?
            .parse()?;
        ensure!(
            captured > u64::from(REQUESTS),
            "tcpdump captured only {captured} packets"
        );
        let expected = format!("received={captured} stored={captured} refused=0 dropped=0");
        ensure!(
            counts.trim_end().ends_with(&expected),
            "tcpdump captured {captured}, load said {counts}"
        );
        Ok(captured)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        for process in [&mut self.tcpdump, &mut self.tee, &mut self.load] {
            let _already_ended = process.kill();
            let _status = process.wait();
        }
    }
}

/// The content of the capture file, read here without the code under test: IPv4 and TCP in Ethernet frames.
#[derive(Default)]
struct Packets {
    wire_bytes: Vec<u32>,
    by_port: HashMap<u16, u64>,
}

impl Packets {
    fn read(file: &Path) -> Result<Packets> {
        let bytes = std::fs::read(file)?;
        let (header, mut rest) = bytes.split_at_checked(24).context("no pcap header")?;
        ensure!(
            header.starts_with(&[0xd4, 0xc3, 0xb2, 0xa1]),
            "not a little-endian pcap file of microseconds"
        );
        let mut packets = Packets::default();
        while let Some((record, after)) = rest.split_at_checked(16) {
            let captured = u32_at(record, 8).context("a short record")? as usize;
            let (packet, after) = after
                .split_at_checked(captured)
                .context("a packet is cut short")?;
            packets
                .wire_bytes
                .push(u32_at(record, 12).context("a short record")?);
            for offset in [34, 36] {
                let port = packet.get(offset..offset + 2).context("no ports")?;
                *packets
                    .by_port
                    .entry(u16::from_be_bytes(port.try_into()?))
                    .or_default() += 1;
            }
            rest = after;
        }
        Ok(packets)
    }

    /// Asks an operator's questions about the capture, and compares the answers with the file.
    fn hold_against(&self, session: &mut Session, from: &str, captured: u64) -> Result<()> {
        let total: u64 = self.wire_bytes.iter().copied().map(u64::from).sum();
        let totals = session.numbers(&format!("SELECT count(*), sum(wire_bytes) FROM {from}"))?;
        assert_eq!(totals, [captured, total]);

        let per_window = format!(
            "SELECT time_bucket(INTERVAL 100 MILLISECOND, ts) AS w, count(*) AS n FROM {from} GROUP BY w"
        );
        assert_eq!(
            session.value(&format!("SELECT sum(n) FROM ({per_window})"))?,
            captured.to_string()
        );

        let mut sizes = self.wire_bytes.clone();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let largest = session.numbers(&format!(
            "SELECT wire_bytes FROM {from} ORDER BY wire_bytes DESC LIMIT 10"
        ))?;
        let sizes = sizes.into_iter().map(u64::from).take(10);
        assert!(largest.len() == 10 && largest.iter().copied().eq(sizes));

        let clients = self.by_port.iter().filter(|(_, count)| **count < captured);
        let (port, count) = clients
            .max_by_key(|(port, count)| (**count, **port))
            .context("no connection")?;
        let connection =
            format!("SELECT count(*) FROM {from} WHERE src_port = {port} OR dst_port = {port}");
        assert_eq!(
            session.value(&connection)?,
            count.to_string(),
            "the packets of port {port}"
        );
        Ok(())
    }
}

/// The last bytes of a file that grows.
fn end_of(file: &Path) -> Result<Vec<u8>> {
    let mut file = File::open(file)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(4096)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[test]
fn a_recording_names_interfaces_and_macros_name_flags_and_payloads() -> Result<()> {
    let name = "packets";
    if !machine::has(name, &["tcpdump"])? {
        return Ok(());
    }
    for interface in ["lo", "any"] {
        let place = tempfile::tempdir()?;
        let dir = place.path().join("packets.loom");
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let port = listener.local_addr()?.port();
        let Some(mut recording) = record(&dir, place.path(), interface, port)? else {
            return machine::skip(name, "this user may not capture on loopback");
        };
        converse(&listener)?;
        let mut sessions = Version::ALL
            .into_iter()
            .map(|version| Session::open(version)?.with_macros())
            .collect::<Result<Vec<_>>>()?;
        let from = format!("FROM loom_scan('{}', 'packet')", dir.display());
        let ends = format!("SELECT count(*) {from} WHERE loom_tcp_flags(tcp_flags) LIKE '%FIN%'");
        let both_ended = |session: &mut Session| Ok(session.value(&ends).is_ok_and(|n| n == "2"));
        for session in &mut sessions {
            ensure!(wait_until(|| both_ended(session))?, "no end was recorded");
        }
        kill_process(Pid::from_child(&recording), Signal::INT)?;
        ensure!(recording.wait()?.success(), "the recording failed");
        for session in &mut sessions {
            check_conversation(session, &from, port)?;
        }
    }
    Ok(())
}

/// Records the packets of a port; `None` if this user may not capture.
fn record(dir: &Path, place: &Path, interface: &str, port: u16) -> Result<Option<Child>> {
    let said = place.join("record.said");
    let mut recording = Command::new(machine::ingestd()?)
        .arg("record")
        .arg(dir)
        .args(["packets", "-i", interface, "tcp", "port", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(File::create(&said)?)
        .spawn()?;
    let words = || Ok::<String, anyhow::Error>(std::fs::read_to_string(&said)?);
    wait_until(|| Ok(words()?.contains("recording into") || recording.try_wait()?.is_some()))?;
    let words = words()?;
    if words.contains("recording into") {
        return Ok(Some(recording));
    }
    recording.wait()?;
    ensure!(words.contains("CAP_NET_RAW"), "no recording: {words}");
    Ok(None)
}

/// A client asks, the server answers, and both close.
fn converse(listener: &TcpListener) -> Result<()> {
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(REQUEST)?;
    server.read_exact(&mut vec![0; REQUEST.len()])?;
    server.write_all(REPLY)?;
    client.read_exact(&mut vec![0; REPLY.len()])?;
    Ok(())
}

fn check_conversation(session: &mut Session, from: &str, port: u16) -> Result<()> {
    let names = format!("SELECT DISTINCT interface {from}");
    assert_eq!(session.value(&names)?, "lo");
    let flags = format!(
        "SELECT string_agg(flags, '; ' ORDER BY ts_ns) FROM (SELECT ts_ns, loom_tcp_flags(tcp_flags) AS flags {from} ORDER BY ts_ns LIMIT 3)"
    );
    assert_eq!(session.value(&flags)?, "SYN; SYN, ACK; ACK");
    let said = format!(
        "SELECT dst_port = {port}, loom_tcp_flags(tcp_flags), loom_payload(packet), loom_text(loom_payload(packet)) {from}
        WHERE loom_payload(packet) <> ''::BLOB ORDER BY ts_ns"
    );
    let row = |row: [&str; 4]| row.map(|cell| Some(cell.to_owned())).to_vec();
    assert_eq!(
        session.query(&said)?,
        [
            row(["true", "PSH, ACK", REQUEST_SHOWN, "SET \"k\" 'v\\'.."]),
            row(["false", "PSH, ACK", r"+OK\x0D\x0A\xFF", "+OK..."]),
        ]
    );
    Ok(())
}
