//! Packets, as `tcpdump` captures them: its filter language and its privileges.
//!
//! The program's standard output is read like a capture file. It reports what the kernel dropped before it at its end, and each time that
//! it is asked by SIGUSR1.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use loom_engine::schema::SourceDef;
use rustix::process::Signal;

use super::outlet::Outlet;
use super::packet_counts::PacketCounts;
use super::rows::{Rows, store};
use super::{Capture, Ending};
use crate::child::{Line, Program, Stream, send_lines};
use crate::input::{Format, LoadOptions};

/// How long the capture waits for packets before it looks for other things to do.
const TICK: Duration = Duration::from_millis(20);
/// The kernel hands a block of packets to `tcpdump` when it is full, or after a second. So long a recording goes on once it is asked to
/// end, so that it has all packets of the time before.
const BLOCK: Duration = Duration::from_millis(1100);
/// How often `tcpdump` is asked what was dropped.
const SECOND: Duration = Duration::from_secs(1);
/// Why packets are lost.
const FULL: &str = "the kernel's buffer for tcpdump was full";
/// The kernel's buffer for the capture, in KiB.
const BUFFER_KIB: &str = "65536";

/// Which packets to record.
#[derive(Clone, Debug, Default)]
pub struct Packets {
    pub source: String,
    /// The interface; without one, the first that `tcpdump` finds.
    pub interface: Option<String>,
    /// A filter in the language of `tcpdump`.
    pub filter: Vec<String>,
}

struct PacketCapture {
    interface: Option<String>,
    program: Program,
    messages: Receiver<Line>,
    rows: Rows,
}

impl Packets {
    /// Starts `tcpdump`, and returns when it captures.
    pub fn open(&self) -> anyhow::Result<Box<dyn Capture>> {
        let mut command = Command::new("tcpdump");
        command.args(["-w", "-", "-U", "-B", BUFFER_KIB]);
        command.arg("--time-stamp-precision=nano");
        if let Some(interface) = &self.interface {
            command.args(["-i", interface]);
        }
        command.arg("--").args(&self.filter);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let why = ", which captures packets; install the package 'tcpdump'";
        let mut program = Program::start(&mut command, why)?;
        let (sender, messages) = unbounded();
        send_lines(program.errors(), Stream::Errors, sender)?;
        wait_until_it_listens(&messages)?;
        let mut options = LoadOptions::new(&self.source);
        options.ts_column = Some("captured".to_owned());
        options.indexes = vec!["wire_bytes".to_owned()];
        let rows = Rows::open(program.output(), Format::Pcap, options)?;
        Ok(Box::new(PacketCapture {
            interface: self.interface.clone(),
            program,
            messages,
            rows,
        }))
    }
}

impl Capture for PacketCapture {
    fn source(&self) -> &SourceDef {
        self.rows.source()
    }

    fn query(&self, dir: &str) -> String {
        format!(
            "SELECT src_addr, dst_addr, dst_port, count(*), sum(wire_bytes) FROM loom_scan('{dir}', '{}', last := INTERVAL 10 SECOND) GROUP BY ALL ORDER BY 4 DESC",
            self.source().name
        )
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        let PacketCapture {
            interface,
            mut program,
            messages,
            rows,
        } = *self;
        let mut counts = follow(
            &program,
            interface.as_deref(),
            &messages,
            rows,
            outlet,
            stop,
        )?;
        let is_asked = stop.load(Ordering::Relaxed);
        let status = program.wait_a_little()?;
        let mut last_words = String::new();
        for line in messages.iter() {
            if !counts.read(&line.text) {
                last_words = line.text;
            }
        }
        outlet.lost(counts.take_lost_at_the_end(), FULL)?;
        if !is_asked {
            let said = last_words.trim_start_matches("tcpdump: ");
            bail!("tcpdump ended by itself ({status}): {said}");
        }
        Ok(Ending::default())
    }
}

/// Stores packets until their stream ends. `stop` ends `tcpdump` in time, which then ends the stream.
fn follow(
    program: &Program,
    interface: Option<&str>,
    messages: &Receiver<Line>,
    rows: Rows,
    outlet: &Outlet,
    stop: &AtomicBool,
) -> anyhow::Result<PacketCounts> {
    let batches = rows.read()?;
    let mut counts = PacketCounts::new(interface == Some("lo"));
    let mut asked = Instant::now();
    let mut was_up = true;
    let mut end_at = None;
    let mut is_ending = false;
    loop {
        if end_at.is_none() && stop.load(Ordering::Relaxed) {
            end_at = Some(Instant::now() + BLOCK);
        }
        if !is_ending && end_at.is_some_and(|end_at| Instant::now() >= end_at) {
            is_ending = true;
            program.signal(Signal::TERM);
        }
        if end_at.is_none() && asked.elapsed() >= SECOND {
            asked = Instant::now();
            program.signal(Signal::USR1);
            let is_up = interface.is_none_or(is_up);
            if was_up && !is_up {
                tracing::warn!(
                    "interface '{}' is down; its packets are recorded again when it is up",
                    interface.unwrap_or_default()
                );
            }
            was_up = is_up;
            for line in messages.try_iter() {
                counts.read(&line.text);
            }
            outlet.lost(counts.take_lost(), FULL)?;
        }
        match batches.recv_timeout(TICK) {
            Ok(batch) => store(&batch?, outlet)?,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(counts),
        }
    }
}

/// Whether the kernel says that the interface is up, or says nothing of it.
fn is_up(interface: &str) -> bool {
    let flags = std::fs::read_to_string(format!("/sys/class/net/{interface}/flags"));
    let flags = flags.unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16);
    flags.map_or(true, |flags| flags & 1 == 1)
}

/// Returns when `tcpdump` captures; fails with what it said if it does not.
fn wait_until_it_listens(messages: &Receiver<Line>) -> anyhow::Result<()> {
    let mut said = Vec::new();
    for Line { text, .. } in messages {
        if text.contains("listening on ") {
            return Ok(());
        }
        said.push(text.trim_start_matches("tcpdump: ").to_owned());
    }
    let said = said.join(" ");
    if said.contains("permission") {
        bail!("tcpdump cannot capture: {said}; it needs CAP_NET_RAW, as root has it");
    }
    bail!("tcpdump cannot capture: {said}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_up_and_what_is_not_known_is_not_down() {
        assert!(is_up("lo") && is_up("no-such-interface"));
    }
}
