//! The demo's sources: their definition, and the encoding of their records.

/// The three sources, as a client defines them.
pub const SOURCES: &str = r#"
[[source]]
name = "redis_request"
field = [
  { name = "id", type = "u64" },
  { name = "latency_ns", type = "u64" },
  { name = "key_hash", type = "u64" },
  { name = "client_port", type = "u16" },
  { name = "op", type = "u8", labels = { 1 = "GET", 2 = "SET", 3 = "INCR", 4 = "HGET", 5 = "LPUSH" } },
  { name = "hit", type = "bool" },
  { name = "request_bytes", type = "u32" },
  { name = "response_bytes", type = "u32" },
  { name = "tid", type = "u32" },
  { name = "key", type = "char[8]" },
]
index = [
  { name = "latency", value = "latency_ns" },
  { name = "set_latency", value = "latency_ns", where = "op = 'SET'" },
]

[[source]]
name = "syscall"
field = [
  { name = "id", type = "u64" },
  { name = "latency_ns", type = "u64" },
  { name = "result", type = "i64" },
  { name = "number", type = "u16", labels = { 0 = "read", 1 = "write", 44 = "sendto", 45 = "recvfrom", 202 = "futex", 232 = "epoll_wait" } },
  { name = "cpu", type = "u16" },
  { name = "fd", type = "i32" },
  { name = "pid", type = "u32" },
  { name = "tid", type = "u32" },
  { name = "comm", type = "char[8]" },
]
index = [
  { name = "latency", value = "latency_ns" },
  { name = "recv_latency", value = "latency_ns", where = "number = 'recvfrom'" },
  { name = "sendto_latency", value = "latency_ns", where = "number = 'sendto'" },
]

[[source]]
name = "packet"
field = [
  { name = "id", type = "u64" },
  { name = "src_addr", type = "char[12]" },
  { name = "dst_addr", type = "char[12]" },
  { name = "src_port", type = "u16" },
  { name = "dst_port", type = "u16" },
  { name = "seq", type = "u32" },
  { name = "wire_bytes", type = "u32" },
  { name = "tcp_flags", type = "u8", labels = { 2 = "SYN", 4 = "RST", 16 = "ACK", 17 = "FIN ACK", 18 = "SYN ACK", 24 = "PSH ACK" } },
  { name = "ttl", type = "u8" },
]
index = [
  { name = "wire_bytes", value = "wire_bytes" },
]
"#;

pub(super) const REDIS_PORT: u16 = 6379;
pub(super) const RECVFROM: u16 = 45;
pub(super) const SENDTO: u16 = 44;
/// `tcp_flags` of a packet with data.
pub(super) const PUSH_ACK: u8 = 24;

pub(super) const REQUEST_BYTES: u16 = 48;
pub(super) const SYSCALL_BYTES: u16 = 48;
pub(super) const PACKET_BYTES: u16 = 46;

pub(super) struct Request {
    pub(super) id: u64,
    pub(super) latency_ns: u64,
    pub(super) key_hash: u64,
    pub(super) client_port: u16,
    pub(super) op: u8,
    pub(super) hit: bool,
    pub(super) request_bytes: u32,
    pub(super) response_bytes: u32,
    pub(super) tid: u32,
}

pub(super) struct Syscall {
    pub(super) id: u64,
    pub(super) latency_ns: u64,
    pub(super) result: i64,
    pub(super) number: u16,
    pub(super) cpu: u16,
    pub(super) fd: i32,
    pub(super) tid: u32,
}

pub(super) struct Packet {
    pub(super) id: u64,
    pub(super) from_client: bool,
    /// The client's last octet, and its port.
    pub(super) client_host: u8,
    pub(super) src_port: u16,
    pub(super) dst_port: u16,
    pub(super) seq: u32,
    pub(super) wire_bytes: u32,
    pub(super) tcp_flags: u8,
}

impl Request {
    #[inline]
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.latency_ns.to_le_bytes());
        out.extend_from_slice(&self.key_hash.to_le_bytes());
        out.extend_from_slice(&self.client_port.to_le_bytes());
        out.extend_from_slice(&[self.op, u8::from(self.hit)]);
        out.extend_from_slice(&self.request_bytes.to_le_bytes());
        out.extend_from_slice(&self.response_bytes.to_le_bytes());
        out.extend_from_slice(&self.tid.to_le_bytes());
        let [hash @ .., _] = self.key_hash.to_le_bytes();
        out.extend_from_slice(b"k");
        out.extend_from_slice(&hash.map(|byte| b'a' + byte % 26));
    }
}

impl Syscall {
    #[inline]
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&self.latency_ns.to_le_bytes());
        out.extend_from_slice(&self.result.to_le_bytes());
        out.extend_from_slice(&self.number.to_le_bytes());
        out.extend_from_slice(&self.cpu.to_le_bytes());
        out.extend_from_slice(&self.fd.to_le_bytes());
        out.extend_from_slice(&REDIS_PID.to_le_bytes());
        out.extend_from_slice(&self.tid.to_le_bytes());
        out.extend_from_slice(b"redis\0\0\0");
    }
}

/// The process whose system calls are traced.
const REDIS_PID: u32 = 2417;
const SERVER: [u8; 12] = *b"10.0.0.5\0\0\0\0";

impl Packet {
    #[inline]
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut client = *b"10.0.1.100\0\0";
        let [.., units, _, _] = &mut client;
        *units = b'0' + self.client_host % 10;
        let (from, to) = if self.from_client {
            (client, SERVER)
        } else {
            (SERVER, client)
        };
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&from);
        out.extend_from_slice(&to);
        out.extend_from_slice(&self.src_port.to_le_bytes());
        out.extend_from_slice(&self.dst_port.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.wire_bytes.to_le_bytes());
        out.extend_from_slice(&[self.tcp_flags, 64]);
    }
}
