//! The records of the benchmark, which are drawn once and pushed in turn, and the right answers of queries over them.
//!
//! Latencies are log-normal, like those of requests: most are within a few octaves, one in ten thousand is far out.

use anyhow::{Context, Result};
use loom_tests::seed::Seed;

pub const SOURCE: &str = "request";
pub const INDEX: &str = "latency";
/// The size of a record of the queries; it has eight fields.
pub const RECORD_BYTES: usize = 48;
/// Columns of `loom_scan` over such records that the peers have too: source, two times, eight fields, address.
pub const COLUMNS: usize = 12;
/// The status of one record in `FAILURE_OF`.
pub const FAILED: u32 = 500;
const FAILURE_OF: u64 = 20_000;

/// Payloads of one length, back to back. Each begins with its latency, a `u64`.
pub struct Payloads {
    pub bytes: Vec<u8>,
    pub record_bytes: usize,
    values: Vec<u64>,
    failed: Vec<bool>,
}

/// Exact answers over the first records.
#[derive(Clone, Debug, PartialEq)]
pub struct Expected {
    pub count: u64,
    pub sum: u128,
    pub min: u64,
    pub max: u64,
    pub failed: u64,
    sorted: Vec<u64>,
}

impl Expected {
    /// The value of a quantile given in ten thousandths.
    pub fn quantile(&self, ten_thousandths: u64) -> u64 {
        let rank = (u128::from(self.count) * u128::from(ten_thousandths)).div_ceil(10_000);
        self.of_rank(rank.max(1) as u64)
    }

    /// A value that about one record in `of` exceeds.
    pub fn exceeded_by_one_in(&self, of: u64) -> u64 {
        self.of_rank(self.count - self.count / of)
    }

    fn of_rank(&self, rank: u64) -> u64 {
        // The rank is that among the drawn values. Each was pushed equally often, except in the last turn.
        let drawn = self.sorted.len() as u64;
        let at = (u128::from(rank) * u128::from(drawn)).div_ceil(u128::from(self.count.max(1)));
        let at = (at as usize).clamp(1, self.sorted.len());
        self.sorted.get(at - 1).copied().unwrap_or_default()
    }
}

impl Payloads {
    /// Draws `records` payloads of `record_bytes` bytes, at least 8.
    pub fn draw(record_bytes: usize, records: usize) -> Payloads {
        let mut seed = Seed::of(1);
        let mut drawn = Payloads {
            bytes: Vec::with_capacity(record_bytes * records),
            record_bytes,
            values: Vec::with_capacity(records),
            failed: Vec::with_capacity(records),
        };
        for ordinal in 0..records as u64 {
            let latency = latency_ns(&mut seed);
            let failed = seed.draw().is_multiple_of(FAILURE_OF);
            drawn.push(&fields(ordinal, latency, failed, &mut seed));
            drawn.values.push(latency);
            drawn.failed.push(failed);
        }
        drawn
    }

    /// Cuts or repeats the fields to the payload's length.
    fn push(&mut self, fields: &[u8; RECORD_BYTES]) {
        self.bytes
            .extend(fields.iter().cycle().take(self.record_bytes));
    }

    pub fn len(&self) -> u64 {
        self.values.len() as u64
    }

    /// Rounds a number of records up to whole turns.
    pub fn whole_turns(&self, records: u64) -> u64 {
        records.div_ceil(self.len()).max(1) * self.len()
    }

    /// The right answers over the first `records`, which must be whole turns.
    pub fn expected(&self, records: u64) -> Expected {
        let turns = records / self.len();
        let mut sorted = self.values.clone();
        sorted.sort_unstable();
        let sum: u128 = sorted.iter().copied().map(u128::from).sum();
        Expected {
            count: records,
            sum: sum * u128::from(turns),
            min: sorted.first().copied().unwrap_or_default(),
            max: sorted.last().copied().unwrap_or_default(),
            failed: turns * self.failed.iter().filter(|failed| **failed).count() as u64,
            sorted,
        }
    }

    /// The payloads of one turn from a place in it, up to `records` of them.
    pub fn slice(&self, from: u64, records: u64) -> Result<&[u8]> {
        let start = (from % self.len()) as usize * self.record_bytes;
        let room = self.bytes.len() - start;
        let length = usize::try_from(records)?.saturating_mul(self.record_bytes);
        self.bytes
            .get(start..start + length.min(room))
            .context("a slice past the payloads")
    }
}

/// e^(σ·z) around 25 µs, where z is normal.
fn latency_ns(seed: &mut Seed) -> u64 {
    const MEDIAN_NS: f64 = 25_000.0;
    const SIGMA: f64 = 0.8;
    let mut uniform = || (seed.draw() >> 11) as f64 / (1u64 << 53) as f64;
    let (radius, angle) = (1.0 - uniform(), uniform());
    let normal = (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos();
    (MEDIAN_NS * (SIGMA * normal).exp()) as u64
}

fn fields(ordinal: u64, latency: u64, failed: bool, seed: &mut Seed) -> [u8; RECORD_BYTES] {
    let mut payload = [0; RECORD_BYTES];
    let wide = [latency, ordinal, seed.draw(), 40_000 + seed.draw() % 1000];
    let status = if failed { FAILED } else { 200 };
    let narrow = [
        seed.draw() as u32 % 65_536,
        seed.draw() as u32 % 64,
        seed.draw() as u32 % 8,
        status,
    ];
    let wide = wide.iter().flat_map(|field| field.to_le_bytes());
    let narrow = narrow.iter().flat_map(|field| field.to_le_bytes());
    for (place, byte) in payload.iter_mut().zip(wide.chain(narrow)) {
        *place = byte;
    }
    payload
}

/// The TOML of `sources` sources with such payloads, each with `indexes` `auto` indexes.
pub fn sources_toml(sources: usize, indexes: usize, record_bytes: usize) -> String {
    const WIDE: [&str; 4] = ["latency_ns", "request", "key_hash", "client"];
    const NARROW: [&str; 4] = ["bytes", "thread", "op", "status"];
    let mut text = String::new();
    for source in 0..sources {
        let name = if source == 0 {
            SOURCE.to_owned()
        } else {
            format!("{SOURCE}_{source}")
        };
        text.push_str(&format!("[[source]]\nname = \"{name}\"\n"));
        let mut field = |name: &str, kind: &str| {
            text.push_str(&format!(
                "[[source.field]]\nname = \"{name}\"\ntype = \"{kind}\"\n"
            ));
        };
        if record_bytes == RECORD_BYTES {
            WIDE.iter().for_each(|name| field(name, "u64"));
            NARROW.iter().for_each(|name| field(name, "u32"));
        } else {
            field("latency_ns", "u64");
            if record_bytes > 8 {
                field("rest", &format!("bytes[{}]", record_bytes - 8));
            }
        }
        for index in 0..indexes {
            let value = WIDE.iter().chain(&NARROW).nth(index % 8).copied();
            let value = value
                .filter(|_| record_bytes == RECORD_BYTES)
                .unwrap_or("latency_ns");
            let name = if index == 0 {
                INDEX.to_owned()
            } else {
                format!("{INDEX}_{index}")
            };
            text.push_str(&format!(
                "[[source.index]]\nname = \"{name}\"\nvalue = \"{value}\"\n"
            ));
        }
    }
    text
}
