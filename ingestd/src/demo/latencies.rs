//! Tables of random latencies, for generated telemetry.

use fastrand::Rng;
use loom_engine::proven;

/// The number of latencies in a table; a power of two.
const TABLE: usize = 1 << 16;

/// Lognormal latencies, drawn once and then looked up.
pub(super) struct Latencies(Box<[u32]>);

impl Latencies {
    /// Latencies around a median, in ns. The logarithm's deviation is `sigma`, and no latency is further than 4.5
    /// deviations off.
    pub(super) fn new(random: &mut Rng, median_ns: f64, sigma: f64) -> Self {
        let draw = |_| {
            let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
            let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
            (median_ns * (sigma * normal.clamp(-4.5, 4.5)).exp()) as u32
        };
        Latencies((0..TABLE).map(draw).collect())
    }

    /// Picks a latency, with a few ns of jitter so that values do not repeat.
    #[inline]
    pub(super) fn pick(&self, random: &mut Rng) -> u64 {
        let bits = random.u64(..);
        let latency = proven::at(&self.0, (bits >> 48) as usize % TABLE);
        u64::from(*latency) + (bits & 127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_lognormal_around_their_median() {
        let mut random = Rng::with_seed(42);
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
}
