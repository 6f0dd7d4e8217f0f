//! The paper's Redis case (§2.1), generated: three sources at a steady rate, and six mangled packets that each cause
//! one slow `recvfrom` and one slow request.
//!
//! | source | field: type | indexes |
//! |---|---|---|
//! | `redis_request` | `id` u64, `latency_ns` u64, `key_hash` u64, `client_port` u16, `op` u8 (GET, SET, INCR, HGET, LPUSH), `hit` bool, `request_bytes` u32, `response_bytes` u32, `tid` u32, `key` char[8] | `latency` on latency_ns; `set_latency` on latency_ns where op = 'SET' |
//! | `syscall` | `id` u64, `latency_ns` u64, `result` i64, `number` u16 (read, write, sendto, recvfrom, futex, epoll_wait), `cpu` u16, `fd` i32, `pid` u32, `tid` u32, `comm` char[8] | `latency` on latency_ns; `recv_latency` where number = 'recvfrom'; `sendto_latency` where number = 'sendto' |
//! | `packet` | `id` u64, `src_addr` char[12], `dst_addr` char[12], `src_port` u16, `dst_port` u16, `seq` u32, `wire_bytes` u32, `tcp_flags` u8 (SYN, RST, ACK, FIN ACK, SYN ACK, PSH ACK), `ttl` u8 | `wire_bytes` |
//!
//! An ordinary request takes less than 1 ms, an ordinary system call less than 0.2 ms. A needle is a packet from a
//! client whose `dst_port` is not 6379; a `recvfrom` of 3 to 5.5 ms that is recorded that much later; and a request of
//! 3.4 to 6.5 ms, recorded 1.4 to 2 ms after it. So the six greatest latencies of `redis_request` and of `syscall` are
//! the needles', and everything of one needle lies within 10 ms before the record of its request. Nothing links
//! the three records but time: ids count up from 1 in each source, and the packet's ports are not in the others.
//!
//! A truth file has one JSON object a line, written when a needle is complete: `needle`, `packet`, `packet_time_ns`,
//! `dst_port`, `syscall`, `syscall_time_ns`, `syscall_latency_ns`, `request`, `request_time_ns`, `request_latency_ns`;
//! `packet`, `syscall` and `request` are ids. The times are those of the hand-over; a record's arrival is up to a few
//! milliseconds later.

mod generator;
mod latencies;
mod needles;
mod sources;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use loom_engine::SourceId;
use thiserror::Error;

use crate::client::{Client, ClientError};
use crate::protocol::{Counts, Shape};
use generator::{Batches, Generator};
use needles::Needles;
pub use needles::{NEEDLES, Needle};
pub use sources::SOURCES;
use sources::{PACKET_BYTES, REQUEST_BYTES, SYSCALL_BYTES};

/// The interval of making records and handing them over.
const TICK: Duration = Duration::from_millis(1);
/// The size of a file of the record log: a few seconds of the demo, so that retention never removes much at once.
pub const SEGMENT_BYTES: u64 = 128 << 20;
/// The needles lie in this time before the end of a run, or in all of it.
const NEEDLES_SPAN: Duration = Duration::from_secs(30);
/// The most that a record takes in all log files.
const RECORD_BYTES: u64 = 58;
/// The part of the schedule that a late generator makes up for at once.
const CATCH_UP: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub struct DemoOptions {
    /// Records a second, of all sources together.
    pub rate: u64,
    pub duration: Duration,
    /// Size of all log files; the needles lie in what is left at the end.
    pub keep_bytes: u64,
    pub seed: u64,
    /// The file that names the needles.
    pub truth: Option<PathBuf>,
}

impl DemoOptions {
    /// The begin of the time in which the needles lie.
    fn needles_from(&self) -> Duration {
        // Retention removes whole files, and one more is allocated.
        let kept_bytes = self.keep_bytes.saturating_sub(2 * SEGMENT_BYTES);
        let kept =
            Duration::from_secs(1).mul_f64(kept_bytes as f64 / (self.rate * RECORD_BYTES) as f64);
        self.duration.saturating_sub(kept.min(NEEDLES_SPAN))
    }
}

#[derive(Clone, Debug)]
pub struct Generated {
    pub elapsed: Duration,
    pub counts: Counts,
    pub needles: Vec<Needle>,
}

#[derive(Debug, Error)]
pub enum DemoError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("cannot write truth file '{}': {source}", path.display())]
    Truth { path: PathBuf, source: io::Error },
}

/// Generates until the time is over or `stop` is set, and returns when everything is durable.
pub fn run(
    client: &Client,
    options: &DemoOptions,
    stop: &AtomicBool,
) -> Result<Generated, DemoError> {
    let mut truth = Truth::create(options.truth.clone())?;
    let mut generator = Generator::new(options.seed, options.rate as f64);
    let mut needles = Needles::plan(
        &mut generator.random,
        options.needles_from()..options.duration,
    );
    let mut feed = Feed::define(client)?;
    let start = Instant::now();
    // The schedule is made up to here.
    let mut made = Duration::ZERO;
    let mut over = false;
    while !over {
        let elapsed = start.elapsed();
        over = elapsed >= options.duration || stop.load(Ordering::Relaxed);
        let target = elapsed.min(options.duration).min(made + CATCH_UP);
        generator.fill(target, &mut feed.batches);
        let late = elapsed - target;
        if let Some(needle) = needles.advance(elapsed, late, &mut generator, &mut feed.batches) {
            truth.append(needle)?;
        }
        made = target;
        feed.push(client)?;
        // Sleeps to the next tick of the schedule, so that one late tick delays no other.
        let past_tick = Duration::from_nanos_u128(made.as_nanos() % TICK.as_nanos());
        let next = made - past_tick + TICK;
        std::thread::sleep(next.saturating_sub(start.elapsed()));
    }
    let synced = client.sync_durable()?;
    Ok(Generated {
        elapsed: start.elapsed(),
        counts: synced.counts,
        needles: needles.into_done(),
    })
}

/// The three sources and their due records.
struct Feed {
    requests: SourceId,
    syscalls: SourceId,
    packets: SourceId,
    batches: Batches,
}

impl Feed {
    fn define(client: &Client) -> Result<Feed, ClientError> {
        let ids = client.define(SOURCES)?;
        let [(requests, _), (syscalls, _), (packets, _)] = ids.as_slice() else {
            return Err(ClientError::Protocol(format!(
                "{} ids for three sources",
                ids.len()
            )));
        };
        Ok(Feed {
            requests: *requests,
            syscalls: *syscalls,
            packets: *packets,
            batches: Batches::default(),
        })
    }

    /// Hands the batches over, causes before effects.
    fn push(&mut self, client: &Client) -> Result<(), ClientError> {
        for (source, record_bytes, bytes) in [
            (self.packets, PACKET_BYTES, &self.batches.packets),
            (self.syscalls, SYSCALL_BYTES, &self.batches.syscalls),
            (self.requests, REQUEST_BYTES, &self.batches.requests),
        ] {
            client.push_batch(source, Shape::Fixed { record_bytes }, bytes)?;
        }
        self.batches.clear();
        client.flush()
    }
}

struct Truth(Option<(PathBuf, File)>);

impl Truth {
    fn create(path: Option<PathBuf>) -> Result<Truth, DemoError> {
        let Some(path) = path else {
            return Ok(Truth(None));
        };
        match File::create(&path) {
            Ok(file) => Ok(Truth(Some((path, file)))),
            Err(source) => Err(DemoError::Truth { path, source }),
        }
    }

    fn append(&mut self, needle: &Needle) -> Result<(), DemoError> {
        let Some((path, file)) = &mut self.0 else {
            return Ok(());
        };
        needle.write(file).map_err(|source| DemoError::Truth {
            path: path.clone(),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needles_from_s(rate: u64, seconds: u64, keep_bytes: u64) -> f64 {
        let options = DemoOptions {
            rate,
            duration: Duration::from_secs(seconds),
            keep_bytes,
            seed: 1,
            truth: None,
        };
        options.needles_from().as_secs_f64()
    }

    #[test]
    fn the_needles_lie_in_the_end_of_a_run_that_is_kept() {
        assert_eq!(needles_from_s(1_000_000, 20, 2 << 30), 0.0);
        assert_eq!(needles_from_s(1_000_000, 300, 2 << 30), 270.0);
        let twice_as_fast = needles_from_s(2_000_000, 300, 2 << 30);
        assert!((283.0..285.0).contains(&twice_as_fast), "{twice_as_fast}");
    }
}
