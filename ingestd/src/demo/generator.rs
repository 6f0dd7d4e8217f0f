//! Ordinary traffic of a Redis host at a given rate: requests, system calls and packets in the proportions of the
//! paper's example (§2.1).

use std::time::Duration;

use fastrand::Rng;

use super::latencies::Latencies;
use super::sources::{PUSH_ACK, Packet, RECVFROM, REDIS_PORT, Request, SENDTO, Syscall};

/// Millions of records a second in the paper: requests, system calls, packets.
const SHARES: [f64; 3] = [0.865, 2.7, 3.6];

#[derive(Default)]
pub(super) struct Batches {
    pub(super) requests: Vec<u8>,
    pub(super) syscalls: Vec<u8>,
    pub(super) packets: Vec<u8>,
}

pub(super) struct Generator {
    pub(super) random: Rng,
    get_latency: Latencies,
    set_latency: Latencies,
    recv_latency: Latencies,
    send_latency: Latencies,
    other_latency: Latencies,
    requests: Schedule,
    syscalls: Schedule,
    packets: Schedule,
}

/// Counts the records of a source that were made, against those that are due.
struct Schedule {
    records_per_s: f64,
    made: u64,
    /// Records beside the schedule also have ids.
    next_id: u64,
}

impl Schedule {
    fn new(records_per_s: f64) -> Self {
        Schedule {
            records_per_s,
            made: 0,
            next_id: 1,
        }
    }

    fn due(&self, elapsed: Duration) -> u64 {
        ((self.records_per_s * elapsed.as_secs_f64()).round() as u64).saturating_sub(self.made)
    }

    #[inline]
    fn id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }
}

impl Generator {
    /// Makes `rate` records a second in all.
    pub(super) fn new(seed: u64, rate: f64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut latencies = |median_ns, sigma| Latencies::new(&mut random, median_ns, sigma);
        let (get_latency, set_latency) = (latencies(95_000.0, 0.30), latencies(120_000.0, 0.32));
        let (recv_latency, send_latency) = (latencies(4_200.0, 0.45), latencies(9_500.0, 0.40));
        let other_latency = latencies(1_900.0, 0.60);
        let total: f64 = SHARES.iter().sum();
        let [requests, syscalls, packets] = SHARES.map(|share| Schedule::new(rate * share / total));
        Generator {
            random,
            get_latency,
            set_latency,
            recv_latency,
            send_latency,
            other_latency,
            requests,
            syscalls,
            packets,
        }
    }

    /// Appends the records that are due `elapsed` after the start.
    pub(super) fn fill(&mut self, elapsed: Duration, batches: &mut Batches) {
        for _ in 0..self.requests.due(elapsed) {
            self.requests.made += 1;
            self.request(None, &mut batches.requests);
        }
        for _ in 0..self.syscalls.due(elapsed) {
            self.syscalls.made += 1;
            self.syscall(&mut batches.syscalls);
        }
        for _ in 0..self.packets.due(elapsed) {
            self.packets.made += 1;
            self.packet(None, &mut batches.packets);
        }
    }

    /// Appends a request, and returns its id. A `slow` one has that latency.
    #[inline]
    pub(super) fn request(&mut self, slow_ns: Option<u64>, out: &mut Vec<u8>) -> u64 {
        let bits = self.random.u64(..);
        // Ten of 16 are GET, three SET, and one each of the others.
        let op = match bits & 15 {
            0..10 => 1,
            10..13 => 2,
            rest => rest as u8 - 10,
        };
        let table = if op == 2 {
            &self.set_latency
        } else {
            &self.get_latency
        };
        let latency_ns = slow_ns.unwrap_or_else(|| table.pick(&mut self.random));
        let id = self.requests.id();
        Request {
            id,
            latency_ns,
            key_hash: bits.wrapping_mul(0x9E37_79B9_7F4A_7C15),
            client_port: client_port(bits >> 8),
            op,
            hit: bits >> 60 != 0,
            request_bytes: 32 + (bits >> 16 & 63) as u32,
            response_bytes: 5 + (bits >> 24 & 1023) as u32,
            tid: 2420 + (bits >> 40 & 3) as u32,
        }
        .encode(out);
        id
    }

    #[inline]
    fn syscall(&mut self, out: &mut Vec<u8>) {
        let bits = self.random.u64(..);
        // Five of 16 are recvfrom, five sendto, four epoll_wait, one read, one futex.
        let (number, table) = match bits & 15 {
            0..5 => (RECVFROM, &self.recv_latency),
            5..10 => (SENDTO, &self.send_latency),
            10..14 => (232, &self.other_latency),
            14 => (0, &self.other_latency),
            _ => (202, &self.other_latency),
        };
        let latency_ns = table.pick(&mut self.random);
        self.syscall_of(number, latency_ns, bits, out);
    }

    /// Appends a `recvfrom` of this latency, and returns its id.
    pub(super) fn slow_recv(&mut self, latency_ns: u64, out: &mut Vec<u8>) -> u64 {
        let bits = self.random.u64(..);
        self.syscall_of(RECVFROM, latency_ns, bits, out)
    }

    #[inline]
    fn syscall_of(&mut self, number: u16, latency_ns: u64, bits: u64, out: &mut Vec<u8>) -> u64 {
        let id = self.syscalls.id();
        Syscall {
            id,
            latency_ns,
            result: (bits >> 8 & 1023) as i64,
            number,
            cpu: (bits >> 20 & 7) as u16,
            fd: 8 + (bits >> 24 & 255) as i32,
            tid: 2420 + (bits >> 40 & 3) as u32,
        }
        .encode(out);
        id
    }

    /// Appends a packet between a client and Redis, and returns its id. A mangled one goes from a client to another port than Redis's.
    #[inline]
    pub(super) fn packet(&mut self, mangled_port: Option<u16>, out: &mut Vec<u8>) -> u64 {
        let bits = self.random.u64(..);
        let from_client = bits & 1 == 0 || mangled_port.is_some();
        let client = client_port(bits >> 8);
        let with_data = bits & 2 == 0 || mangled_port.is_some();
        let (src_port, dst_port) = if from_client {
            (client, mangled_port.unwrap_or(REDIS_PORT))
        } else {
            (REDIS_PORT, client)
        };
        let id = self.packets.id();
        Packet {
            id,
            from_client,
            client_host: (bits >> 4 & 7) as u8,
            src_port,
            dst_port,
            seq: (bits >> 32) as u32,
            wire_bytes: if with_data {
                66 + 32 + (bits >> 16 & 1023) as u32
            } else {
                66
            },
            tcp_flags: if with_data { PUSH_ACK } else { 16 },
        }
        .encode(out);
        id
    }
}

impl Batches {
    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.syscalls.clear();
        self.packets.clear();
    }
}

/// One of the 512 ports that clients connect from.
#[inline]
fn client_port(bits: u64) -> u16 {
    40_000 + (bits & 511) as u16
}

#[cfg(test)]
mod tests {
    use loom_engine::schema::{Layout, parse_sources};

    use super::super::sources::{PACKET_BYTES, REQUEST_BYTES, SOURCES, SYSCALL_BYTES};
    use super::*;

    #[test]
    fn the_rate_is_kept_in_the_proportions_of_the_paper() {
        let mut generator = Generator::new(3, 716_500.0);
        let mut batches = Batches::default();
        for millis in 1..=1000 {
            generator.fill(Duration::from_millis(millis), &mut batches);
        }
        assert_eq!(batches.requests.len() / 48, 86_500);
        assert_eq!(batches.syscalls.len() / 48, 270_000);
        assert_eq!(batches.packets.len() / 46, 360_000);
    }

    #[test]
    fn records_have_the_layout_that_their_source_declares() {
        let sources = parse_sources(SOURCES).unwrap();
        let mut generator = Generator::new(1, 1000.0);
        let mut batches = Batches::default();
        generator.fill(Duration::from_secs(1), &mut batches);
        let payloads = [
            (&batches.requests, REQUEST_BYTES),
            (&batches.syscalls, SYSCALL_BYTES),
            (&batches.packets, PACKET_BYTES),
        ];
        for (source, (bytes, each)) in sources.iter().zip(payloads) {
            let layout = Layout::new(source.time, &source.fields).unwrap();
            assert!(!bytes.is_empty());
            for payload in bytes.chunks(usize::from(each)) {
                layout.validate(payload).unwrap();
            }
        }
        let packet = Layout::new(sources[2].time, &sources[2].fields).unwrap();
        let payload = &batches.packets[..usize::from(PACKET_BYTES)];
        let address = packet.bytes(1, payload).unwrap();
        assert!(address.starts_with(b"10.0."));
    }

    #[test]
    fn ordinary_latencies_stay_below_a_millisecond_and_ports_are_of_redis() {
        let mut generator = Generator::new(9, 1_000_000.0);
        let mut batches = Batches::default();
        generator.fill(Duration::from_secs(1), &mut batches);
        let u64_at =
            |record: &[u8], at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        let slowest = |bytes: &[u8]| {
            bytes
                .chunks(48)
                .map(|record| u64_at(record, 8))
                .max()
                .unwrap()
        };
        assert!(slowest(&batches.requests) < 1_000_000);
        assert!(slowest(&batches.syscalls) < 200_000);
        for packet in batches.packets.chunks(46) {
            let port = |at: usize| u16::from_le_bytes([packet[at], packet[at + 1]]);
            assert!(port(32) == REDIS_PORT || port(34) == REDIS_PORT);
        }
    }
}
