//! Records changes of TCP connections, segments that are sent again, and resets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aya::include_bytes_aligned;

use crate::framed::{self, take};
use crate::probe::{Hook, Payloads};
use crate::{Probe, ProbeError, Selection};

/// The longest payload with its length: two addresses as texts beside numbers.
const PAYLOAD_BYTES_MAX: usize = 256;
/// The families of addresses.
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// The events, as in `bpf/tcp.bpf.c`.
pub const TCP_EVENTS: [(u8, &str); 4] = [
    (0, "state"),
    (1, "retransmit"),
    (2, "reset sent"),
    (3, "reset received"),
];

/// The states of a connection, by the kernel's numbers; 0 where there is no connection.
pub const TCP_STATES: [(u8, &str); 13] = [
    (0, "none"),
    (1, "established"),
    (2, "syn_sent"),
    (3, "syn_recv"),
    (4, "fin_wait1"),
    (5, "fin_wait2"),
    (6, "time_wait"),
    (7, "close"),
    (8, "close_wait"),
    (9, "last_ack"),
    (10, "listen"),
    (11, "closing"),
    (12, "new_syn_recv"),
];

/// Selects the events to record.
#[derive(Clone, Debug, Default)]
pub struct Tcp {
    /// By the process that connected or listened, and by the control group of the socket.
    pub selection: Selection,
    /// Ports of either end; all if there is none.
    pub ports: Vec<u16>,
}

impl Tcp {
    /// Attaches the programs. Nothing is recorded yet.
    pub fn open(&self) -> Result<Probe, ProbeError> {
        self.selection.check()?;
        let mut globals = self.selection.globals().to_vec();
        let by_port = u32::from(!self.ports.is_empty()).to_ne_bytes();
        globals.push(("by_port", by_port.to_vec()));
        let mut probe = Probe::open(
            "'tcp'",
            include_bytes_aligned!("../bpf/tcp.o"),
            Payloads::Framed {
                bytes_max: PAYLOAD_BYTES_MAX,
                write: payload,
            },
            &globals,
            &[
                ("set_state", Hook::Raw("inet_sock_set_state")),
                ("retransmit", Hook::Raw("tcp_retransmit_skb")),
                ("receive_reset", Hook::Raw("tcp_receive_reset")),
                ("send_reset", Hook::Raw("tcp_send_reset")),
            ],
        )?;
        self.selection.fill(&mut probe)?;
        let mut ports = probe.hash::<u16, u32>("ports")?;
        for port in &self.ports {
            ports.insert(port, 1, 0)?;
        }
        Ok(probe)
    }
}

/// Writes a payload of the source `tcp` after its length.
fn payload(at_ns: i64, mut rest: &[u8], out: &mut Vec<u8>) {
    let in_state_ns: [u8; 8] = take(&mut rest);
    let cgroup: [u8; 8] = take(&mut rest);
    let pid: [u8; 4] = take(&mut rest);
    let [event, from_state, state, _] = take(&mut rest);
    let addresses: [[u8; 16]; 2] = [take(&mut rest), take(&mut rest)];
    let [family, src_port, dst_port, _]: [[u8; 2]; 4] = std::array::from_fn(|_| take(&mut rest));
    let comm: [u8; 16] = take(&mut rest);
    let family = u16::from_ne_bytes(family);
    let [src_addr, dst_addr] = addresses.map(|bytes| address(family, bytes));
    let is_unknown = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let nulls = [
        event != 0,
        is_unknown(&in_state_ns),
        is_unknown(&src_port),
        is_unknown(&dst_port),
        is_unknown(&pid),
        is_unknown(&pid),
        src_addr.is_none(),
        dst_addr.is_none(),
        is_unknown(&cgroup),
    ];
    let fixed: [&[u8]; 9] = [
        &[event],
        &[from_state],
        &[state],
        &in_state_ns,
        &src_port,
        &dst_port,
        &pid,
        &comm,
        &cgroup,
    ];
    let [src_addr, dst_addr] = [src_addr, dst_addr].map(Option::unwrap_or_default);
    framed::payload(out, at_ns, nulls, &fixed, [&src_addr, &dst_addr]);
}

/// An address as text; an IPv4 address in an IPv6 socket as itself.
fn address(family: u16, bytes: [u8; 16]) -> Option<String> {
    let [a, b, c, d, ..] = bytes;
    let address = match family {
        AF_INET => IpAddr::V4(Ipv4Addr::new(a, b, c, d)),
        AF_INET6 => Ipv6Addr::from(bytes).to_canonical(),
        _ => return None,
    };
    Some(address.to_string())
}
