//! Records packets with `tcpdump`, its filter language and its privileges.
//!
//! The program's standard output is read like a capture file. It reports the packets that the kernel dropped at its end, and on SIGUSR1.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use crossbeam_channel::{Receiver, RecvTimeoutError, unbounded};
use loom_engine::schema::SourceDef;
use rustix::process::Signal;

use super::outlet::Outlet;
use super::packet_counts::{Lost, PacketCounts};
use super::rows::{Rows, store};
use super::{Capture, Ending, names_in};
use crate::child::{Line, Program, Stream, send_lines};
use crate::input::{Format, InputBatch, Interfaces, LoadOptions, Refusals};
use crate::quoted;
use crate::wall_clock;

/// How long the capture waits for packets before it does other work.
const TICK: Duration = Duration::from_millis(20);
/// The kernel passes a block of packets to `tcpdump` when it is full or after a second. A recording goes on for this time after its end, so that it
/// has all packets of the time before.
const BLOCK: Duration = Duration::from_millis(1100);
/// The interval of requests to `tcpdump` for its counters.
const SECOND: Duration = Duration::from_secs(1);
const FULL: &str = "the kernel's buffer for tcpdump was full";
/// The kernel's buffer for the capture, in KiB.
const BUFFER_KIB: &str = "65536";
/// The kernel's list of interfaces.
const INTERFACES: &str = "/sys/class/net";
/// The name of `tcpdump` for all interfaces.
const ANY: &str = "any";
/// The interface of packets that stay on this host.
const LOOPBACK: &str = "lo";

#[derive(Clone, Debug, Default)]
pub struct Packets {
    pub source: String,
    /// The interface; `None` for the first that `tcpdump` finds.
    pub interface: Option<String>,
    /// A filter in the language of `tcpdump`.
    pub filter: Vec<String>,
}

struct PacketCapture {
    interface: String,
    /// A sentence about the interface, if the user named none.
    choice: Option<String>,
    program: Program,
    messages: Receiver<Line>,
    rows: Rows,
    counts: PacketCounts,
}

impl Packets {
    pub fn open(&self) -> anyhow::Result<Box<dyn Capture>> {
        let mut command = Command::new("tcpdump");
        command.args(["-w", "-", "-U", "-B", BUFFER_KIB]);
        command.arg("--time-stamp-precision=nano");
        if let Some(interface) = &self.interface {
            command.args(["-i", interface]);
        }
        let filter = self.whole_filter()?;
        command
            .arg("--")
            .args(Some(filter).filter(|filter| !filter.is_empty()));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let why = ", which captures packets; install the package 'tcpdump'";
        let begun = wall_clock();
        let mut program = Program::start(&mut command, why)?;
        let (sender, messages) = unbounded();
        send_lines(program.errors(), Stream::Errors, sender)?;
        let interface = listening_on(&messages, self.interface.as_deref())?;
        let choice = self.interface.is_none().then(|| {
            format!("it has the packets of interface '{interface}'; -i names another, or 'any'")
        });
        let mut options = LoadOptions::new(&self.source);
        options.ts_column = Some("captured".to_owned());
        options.indexes = vec!["wire_bytes".to_owned()];
        options.interfaces = match interface.as_str() {
            ANY => Interfaces::OfHost,
            name => Interfaces::One(name.into()),
        };
        let rows = Rows::open(program.output(), "tcpdump", Format::Pcap, options)?;
        let counts = PacketCounts::new(interface == LOOPBACK, begun);
        Ok(Box::new(PacketCapture {
            interface,
            choice,
            program,
            messages,
            rows,
            counts,
        }))
    }

    /// The complete filter. On `any`, loopback shows two copies of a packet: the kernel would count both, and `tcpdump` captures only the one that
    /// arrives.
    fn whole_filter(&self) -> anyhow::Result<String> {
        let filter = self.filter.join(" ");
        if self.interface.as_deref() != Some(ANY) {
            return Ok(filter);
        }
        let path = format!("{INTERFACES}/{LOOPBACK}/ifindex");
        let number = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read '{path}'; name an interface with -i"))?;
        let once = format!("not (outbound and ifindex {})", number.trim());
        Ok(if filter.is_empty() {
            once
        } else {
            format!("({filter}) and {once}")
        })
    }
}

impl Capture for PacketCapture {
    fn source(&self) -> &SourceDef {
        self.rows.source()
    }

    fn query(&self, dir: &str) -> String {
        format!(
            "SELECT src_addr, dst_addr, dst_port, count(*), sum(wire_bytes) FROM loom_scan({dir}, {}, last := INTERVAL 10 SECOND) GROUP BY ALL ORDER BY 4 DESC",
            quoted(&self.source().name)
        )
    }

    fn choice(&self) -> Option<String> {
        self.choice.clone()
    }

    fn run(self: Box<Self>, outlet: &Outlet, stop: &AtomicBool) -> anyhow::Result<Ending> {
        let PacketCapture {
            interface,
            choice: _,
            mut program,
            messages,
            rows,
            mut counts,
        } = *self;
        let batches = rows.read()?;
        let mut following = Following {
            program: &program,
            interface: &interface,
            messages: &messages,
            counts: &mut counts,
        };
        following.store_all(&batches, outlet, stop)?;
        let is_asked = stop.load(Ordering::Relaxed);
        let status = program.wait_a_little()?;
        let mut last_words = String::new();
        for line in messages.iter() {
            if !counts.read(&line.text) {
                last_words = line.text;
            }
        }
        report(counts.take_lost_at_the_end(wall_clock()), outlet)?;
        if !is_asked {
            let said = last_words.trim_start_matches("tcpdump: ");
            let colon = if said.is_empty() { "" } else { ": " };
            bail!("tcpdump ended by itself ({status}){colon}{said}");
        }
        Ok(Ending::default())
    }
}

/// A running `tcpdump`.
struct Following<'a> {
    program: &'a Program,
    interface: &'a str,
    messages: &'a Receiver<Line>,
    counts: &'a mut PacketCounts,
}

impl Following<'_> {
    /// Stores packets until the stream ends. `stop` ends `tcpdump` after a delay, which ends the stream.
    fn store_all(
        &mut self,
        batches: &Receiver<anyhow::Result<InputBatch>>,
        outlet: &Outlet,
        stop: &AtomicBool,
    ) -> anyhow::Result<()> {
        let mut refusals = Refusals::default();
        let mut looked = Instant::now();
        let mut was_up = true;
        let mut end_at = None;
        let mut is_ending = false;
        loop {
            if end_at.is_none() && stop.load(Ordering::Relaxed) {
                end_at = Some(Instant::now() + BLOCK);
            }
            if !is_ending && end_at.is_some_and(|end_at| Instant::now() >= end_at) {
                is_ending = true;
                self.program.signal(Signal::TERM);
            }
            if end_at.is_none() && looked.elapsed() >= SECOND {
                looked = Instant::now();
                was_up = self.look(was_up, outlet)?;
            }
            match batches.recv_timeout(TICK) {
                Ok(batch) => store(&batch?, &mut refusals, outlet)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Reports lost packets and a change of the interface's state, which it returns, and requests the next counters.
    fn look(&mut self, was_up: bool, outlet: &Outlet) -> anyhow::Result<bool> {
        for line in self.messages.try_iter() {
            if self.counts.read(&line.text) {
                report(self.counts.take_lost(line.at), outlet)?;
            }
        }
        self.counts.ask(wall_clock());
        self.program.signal(Signal::USR1);
        let interface = self.interface;
        let is_up = is_up(interface);
        match (was_up, is_up) {
            (true, false) => tracing::warn!(
                "interface '{interface}' is down; its packets are recorded again when it is up"
            ),
            (false, true) => {
                tracing::warn!("interface '{interface}' is up again; its packets are recorded");
            }
            _ => {}
        }
        Ok(is_up)
    }
}

fn report((records, span): Lost, outlet: &Outlet) -> anyhow::Result<()> {
    outlet.lost(records, span, FULL)
}

/// Whether the interface is up; true if the kernel does not know it.
fn is_up(interface: &str) -> bool {
    let flags = std::fs::read_to_string(format!("{INTERFACES}/{interface}/flags"));
    let flags = flags.unwrap_or_default();
    let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16);
    flags.map_or(true, |flags| flags & 1 == 1)
}

/// Waits until `tcpdump` captures, and returns the interface. Fails with its message if it ends.
fn listening_on(messages: &Receiver<Line>, asked: Option<&str>) -> anyhow::Result<String> {
    let mut said = Vec::new();
    for Line { text, .. } in messages {
        if let Some((_, rest)) = text.split_once("listening on ") {
            let interface = rest.split_once(',').map_or(rest, |(name, _)| name);
            return Ok(interface.to_owned());
        }
        said.push(text.trim_start_matches("tcpdump: ").to_owned());
    }
    let said = said.join(" ");
    if said.contains("permission") {
        bail!("tcpdump cannot capture: {said}; it needs CAP_NET_RAW, as root has it");
    }
    if let Some(asked) = asked
        && !Path::new(INTERFACES).join(asked).exists()
    {
        let known = names_in(INTERFACES);
        bail!(
            "cannot record packets of interface '{asked}': tcpdump says '{said}'; give one of {known}, or 'any'"
        );
    }
    bail!("tcpdump cannot capture: {said}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_up_and_what_is_not_known_is_not_down() {
        assert!(is_up(LOOPBACK) && is_up("no-such-interface"));
    }

    #[test]
    fn the_filter_of_any_interface_leaves_out_the_second_copy_of_packets_on_loopback() {
        let filter = |interface: &str, words: &[&str]| {
            let packets = Packets {
                interface: Some(interface.to_owned()),
                filter: words.iter().map(|&word| word.to_owned()).collect(),
                ..Packets::default()
            };
            packets.whole_filter().unwrap()
        };
        let words = ["tcp", "or", "udp"];
        assert_eq!(filter("eth0", &words), "tcp or udp");
        assert_eq!(filter("lo", &[]), "");
        assert!(filter("any", &[]).starts_with("not (outbound and ifindex "));
        assert!(filter("any", &words).starts_with("(tcp or udp) and not (outbound and "));
    }
}
