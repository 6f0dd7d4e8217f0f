//! Random numbers that a printed seed repeats. Every randomised test takes its `Seed` here and prints it.

use std::hash::{BuildHasher, RandomState};

use loom_engine::testkit::Random;

pub struct Seed(Random);

impl Seed {
    /// The seed from the environment's `LOOM_SEED`, otherwise a new one. Both are printed, so that a failure can be repeated.
    pub fn announced(test: &str) -> Seed {
        let given = std::env::var("LOOM_SEED")
            .ok()
            .and_then(|text| text.parse().ok());
        let state = given.unwrap_or_else(|| RandomState::new().hash_one(test) >> 32);
        println!("{test}: LOOM_SEED={state}");
        Seed::of(state)
    }

    pub fn of(state: u64) -> Seed {
        Seed(Random(state))
    }

    pub fn value(&self) -> u64 {
        self.0.0
    }

    pub fn draw(&mut self) -> u64 {
        self.0.next()
    }

    /// A number in `low..high`; `low` if the range is empty.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let width = high.saturating_sub(low).max(1).unsigned_abs();
        low.saturating_add_unsigned(self.draw() % width)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.draw() % 100 < percent
    }

    /// One of `choices`. Panics if there are none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        *self.0.pick(choices)
    }
}

#[cfg(test)]
mod tests {
    use super::Seed;

    #[test]
    fn a_seed_repeats_its_numbers() {
        let draw = |seed| {
            let mut seed = Seed::of(seed);
            (seed.draw(), seed.between(-5, 5), seed.chance(50))
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn a_range_holds_its_numbers() {
        let mut seed = Seed::of(1);
        assert!((0..1000).all(|_| (-3..4).contains(&seed.between(-3, 4))));
        assert_eq!(seed.between(9, 9), 9);
    }
}
