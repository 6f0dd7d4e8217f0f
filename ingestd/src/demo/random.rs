//! Cheap randomness for generated telemetry: a generator of a few instructions, and tables of latencies.

/// xorshift64*: fast, and random enough for telemetry.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        // The state must not be 0.
        Random(seed | 1)
    }

    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        let mut x = self.0;
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0 = x;
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `bound`, which is at most 2^32 and above 0.
    #[inline]
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((self.next() >> 32) * bound) >> 32
    }

    /// A number in [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// How many latencies a table holds; a power of two.
const TABLE: usize = 1 << 16;

/// Lognormal latencies, drawn once and then looked up.
pub(super) struct Latencies(Box<[u32]>);

impl Latencies {
    /// Latencies around a median, in ns. The logarithm's deviation is `sigma`, and no latency is further than 4.5
    /// deviations off.
    pub(super) fn new(random: &mut Random, median_ns: f64, sigma: f64) -> Self {
        let draw = |_| {
            let radius = (-2.0 * (1.0 - random.unit()).ln()).sqrt();
            let normal = radius * (std::f64::consts::TAU * random.unit()).cos();
            (median_ns * (sigma * normal.clamp(-4.5, 4.5)).exp()) as u32
        };
        Latencies((0..TABLE).map(draw).collect())
    }

    /// One of them, with a few ns of jitter so that values do not repeat.
    #[inline]
    pub(super) fn pick(&self, random: &mut Random) -> u64 {
        let bits = random.next();
        let latency = self
            .0
            .get((bits >> 48) as usize % TABLE)
            .copied()
            .unwrap_or_default();
        u64::from(latency) + (bits & 127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_lognormal_around_their_median() {
        let mut random = Random::new(42);
        let table = Latencies::new(&mut random, 100_000.0, 0.3);
        let mut drawn: Vec<u64> = (0..100_000).map(|_| table.pick(&mut random)).collect();
        drawn.sort_unstable();
        let median = drawn[50_000];
        assert!((98_000..102_500).contains(&median), "{median}");
        let p84 = drawn[84_134] as f64 / median as f64;
        assert!(
            (1.3..1.4).contains(&p84),
            "one deviation up is a factor of e^0.3: {p84}"
        );
        assert!(drawn[99_999] < 500_000);
    }

    #[test]
    fn numbers_below_a_bound_reach_all_of_it() {
        let mut random = Random::new(7);
        let mut seen = [0u32; 10];
        for _ in 0..10_000 {
            seen[random.below(10) as usize] += 1;
        }
        assert!(
            seen.iter().all(|count| (800..1200).contains(count)),
            "{seen:?}"
        );
    }
}
