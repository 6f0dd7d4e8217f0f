//! The six needles: a mangled packet, the `recvfrom` that waits for it, and the request that is slow because of that.

use std::io::{self, Write};
use std::ops::Range;
use std::time::Duration;

use fastrand::Rng;
use serde::Serialize;

use super::generator::{Batches, Generator};
use super::sources::REDIS_PORT;
use crate::wall_clock;

/// The number of needles, as in the paper's Figure 3.
pub const NEEDLES: usize = 6;
/// A needle waits while the generator is later than this, because its parts would arrive too far apart.
const LATENESS_MAX: Duration = Duration::from_millis(2);

/// One needle: a line of the truth file. Times are those of the hand-over to the client library.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Needle {
    /// Counted from 1.
    pub needle: usize,
    pub packet: u64,
    pub packet_time_ns: i64,
    pub dst_port: u16,
    pub syscall: u64,
    pub syscall_time_ns: i64,
    pub syscall_latency_ns: u64,
    pub request: u64,
    pub request_time_ns: i64,
    pub request_latency_ns: u64,
}

/// Plans the needles and carries them out one after the other.
pub(super) struct Needles {
    /// The times when needles are due, after the start; the latest first.
    due: Vec<Duration>,
    /// After this time a needle waits for nothing.
    deadline: Duration,
    state: State,
    done: Vec<Needle>,
}

enum State {
    Idle,
    /// The packet is sent; the `recvfrom` returns at `recv_at`.
    PacketSent {
        recv_at: Duration,
        request_at: Duration,
        needle: Needle,
    },
    /// The `recvfrom` has returned; the request ends at `request_at`.
    RecvReturned {
        request_at: Duration,
        needle: Needle,
    },
}

impl Needles {
    /// Plans one at a random moment of each sixth of the first 60 % of `time`, so that all are found while the run goes on.
    pub(super) fn plan(random: &mut Rng, time: Range<Duration>) -> Self {
        let length = time.end - time.start;
        let slot = 0.58 / (NEEDLES as f64);
        let mut at =
            |i| time.start + length.mul_f64(0.02 + slot * (i as f64 + 0.1 + 0.7 * random.f64()));
        let mut due: Vec<Duration> = (0..NEEDLES).map(&mut at).collect();
        due.reverse();
        Needles {
            due,
            deadline: time.start + length.mul_f64(0.7),
            state: State::Idle,
            done: Vec::new(),
        }
    }

    /// Appends the records of needles that are due `elapsed` after the start, with the generator `late` by so much. Returns a
    /// needle that is complete.
    pub(super) fn advance(
        &mut self,
        elapsed: Duration,
        late: Duration,
        generator: &mut Generator,
        batches: &mut Batches,
    ) -> Option<&Needle> {
        let now = wall_clock().0;
        self.state = match std::mem::replace(&mut self.state, State::Idle) {
            State::Idle => {
                self.due.pop_if(|due| {
                    *due <= elapsed && (late <= LATENESS_MAX || elapsed >= self.deadline)
                })?;
                send_packet(elapsed, now, generator, batches)
            }
            State::PacketSent {
                recv_at,
                request_at,
                mut needle,
            } if elapsed >= recv_at => {
                needle.syscall =
                    generator.slow_recv(needle.syscall_latency_ns, &mut batches.syscalls);
                needle.syscall_time_ns = now;
                State::RecvReturned { request_at, needle }
            }
            State::RecvReturned {
                request_at,
                mut needle,
            } if elapsed >= request_at => {
                let slow_ns = Some(needle.request_latency_ns);
                needle.request = generator.request(slow_ns, &mut batches.requests);
                needle.request_time_ns = now;
                needle.needle = self.done.len() + 1;
                self.done.push(needle);
                return self.done.last();
            }
            waiting => waiting,
        };
        None
    }

    pub(super) fn into_done(self) -> Vec<Needle> {
        self.done
    }
}

/// Sends the mangled packet and decides the rest: the `recvfrom` returns when the retransmission arrives, a few
/// milliseconds later, and the request ends soon after.
fn send_packet(
    elapsed: Duration,
    now_ns: i64,
    generator: &mut Generator,
    batches: &mut Batches,
) -> State {
    let random = &mut generator.random;
    // One or several flipped bits: never the right port, and none that a client has.
    let dst_port = REDIS_PORT ^ (1 + random.u16(..4095));
    let syscall_latency_ns = 3_000_000 + random.u64(..2_500_000);
    let request_latency_ns = syscall_latency_ns + 400_000 + random.u64(..600_000);
    let recv_at = elapsed + Duration::from_nanos(syscall_latency_ns);
    let request_at = elapsed + Duration::from_nanos(request_latency_ns) + Duration::from_millis(1);
    let packet = generator.packet(Some(dst_port), &mut batches.packets);
    let needle = Needle {
        needle: 0,
        packet,
        packet_time_ns: now_ns,
        dst_port,
        syscall: 0,
        syscall_time_ns: now_ns,
        syscall_latency_ns,
        request: 0,
        request_time_ns: now_ns,
        request_latency_ns,
    };
    State::PacketSent {
        recv_at,
        request_at,
        needle,
    }
}

impl Needle {
    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", serde_json::to_string(self)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Range<Duration> = Duration::from_secs(2)..Duration::from_secs(12);

    /// Runs the needles in steps of a millisecond; `late` is the lateness of each.
    fn run(late: impl Fn(u64) -> Duration) -> (Vec<Needle>, Batches) {
        let mut generator = Generator::new(5, 0.0);
        let mut needles = Needles::plan(&mut Rng::with_seed(11), RUN);
        assert!(needles.due.iter().all(|due| RUN.contains(due)));
        let mut batches = Batches::default();
        for millis in 0..12_000 {
            let elapsed = Duration::from_millis(millis);
            needles.advance(elapsed, late(millis), &mut generator, &mut batches);
        }
        assert!(matches!(needles.state, State::Idle));
        (needles.into_done(), batches)
    }

    #[test]
    fn each_mangled_packet_causes_one_slow_recv_and_one_slow_request() {
        let (done, batches) = run(|_| Duration::ZERO);
        assert_eq!(done.len(), NEEDLES);
        assert_eq!(batches.requests.len(), 48 * NEEDLES);
        assert_eq!(batches.syscalls.len(), 48 * NEEDLES);
        assert_eq!(batches.packets.len(), 46 * NEEDLES);
        for needle in &done {
            assert_ne!(needle.dst_port, REDIS_PORT);
            assert!(needle.dst_port < 40_000);
            assert!(needle.syscall_latency_ns >= 3_000_000);
            assert!(needle.request_latency_ns > needle.syscall_latency_ns);
        }
        let numbers: Vec<usize> = done.iter().map(|needle| needle.needle).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn needles_wait_while_the_generator_is_late_and_come_all_the_same() {
        let (done, _) = run(|millis| Duration::from_millis(if millis < 8000 { 50 } else { 0 }));
        assert_eq!(done.len(), NEEDLES);
        let (done, _) = run(|_| Duration::from_millis(50));
        assert_eq!(done.len(), NEEDLES);
    }

    #[test]
    fn a_truth_file_has_a_json_object_a_line() {
        let (done, _) = run(|_| Duration::ZERO);
        let mut file = Vec::new();
        for needle in &done {
            needle.write(&mut file).unwrap();
        }
        let text = String::from_utf8(file).unwrap();
        assert_eq!(text.lines().count(), NEEDLES);
        for (line, needle) in text.lines().zip(&done) {
            let value: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(value["packet"], needle.packet);
            assert_eq!(value["request_latency_ns"], needle.request_latency_ns);
        }
    }
}
