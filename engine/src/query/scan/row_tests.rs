//! The tests that rows must pass, and those that rows may fail: the latter rest while they omit too few rows to be worth their time.

use std::sync::Arc;

use crate::query::predicate::Test;
use crate::schema::Expr;

/// The rows after which it is known how many are omitted.
const TRIAL_ROWS: usize = 8192;
/// The rows that are not tested after a trial that omitted less than a quarter.
const REST_ROWS: usize = 16 * TRIAL_ROWS;

pub(super) struct Tests {
    /// The test that each returned row passes.
    exact: Test,
    /// The same, and the tests that a returned row may fail.
    pub all: Test,
    is_all_exact: bool,
    is_resting: bool,
    /// The rows of this trial, and those that passed.
    tried: usize,
    passed: usize,
    /// The rows until the next trial.
    rest: usize,
}

impl Tests {
    pub fn of(exact: Test, others: &[Expr]) -> Tests {
        let is_all_exact = others.is_empty();
        let others = others.iter();
        let others = others.map(|test| Test::Fields(Arc::new(test.clone())));
        Tests {
            all: Test::and(std::iter::once(exact.clone()).chain(others)),
            exact,
            is_all_exact,
            is_resting: false,
            tried: 0,
            passed: 0,
            rest: 0,
        }
    }

    /// The test in use.
    pub fn now(&self) -> &Test {
        match self.is_resting {
            true => &self.exact,
            false => &self.all,
        }
    }

    /// Changes the test in use if it is time to. Returns whether it did.
    pub fn turn(&mut self) -> bool {
        let is_resting = !self.is_all_exact && self.rest > 0;
        std::mem::replace(&mut self.is_resting, is_resting) != is_resting
    }

    /// Counts rows that were tested.
    pub fn count(&mut self, tried: usize, passed: usize) {
        if self.is_resting {
            return;
        }
        self.tried += tried;
        self.passed += passed;
        if self.tried >= TRIAL_ROWS {
            if self.passed > self.tried - self.tried / 4 {
                self.rest = REST_ROWS;
            }
            (self.tried, self.passed) = (0, 0);
        }
    }

    /// Counts rows that are returned.
    pub fn rest(&mut self, rows: usize) {
        if self.is_resting {
            self.rest = self.rest.saturating_sub(rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn null(field: usize) -> Expr {
        Expr::Null {
            field,
            is_null: true,
        }
    }

    #[test]
    fn tests_that_omit_little_rest_and_are_tried_again() {
        let exact = Test::Fields(Arc::new(null(1)));
        let mut tests = Tests::of(exact, &[null(2)]);
        let is_all = |tests: &Tests| matches!(tests.now(), Test::And(_));
        tests.count(TRIAL_ROWS - 1, TRIAL_ROWS - 1);
        assert!(!tests.turn() && is_all(&tests));
        tests.count(1, 1);
        assert!(is_all(&tests), "the test in use changes at a turn only");
        assert!(tests.turn() && !is_all(&tests));
        tests.rest(REST_ROWS - 1);
        assert!(!tests.turn() && !is_all(&tests));
        tests.rest(7);
        assert!(tests.turn() && is_all(&tests));
        tests.count(4 * TRIAL_ROWS, 3 * TRIAL_ROWS);
        assert!(!tests.turn() && is_all(&tests), "a quarter is enough");
    }

    #[test]
    fn exact_tests_never_rest() {
        let mut tests = Tests::of(Test::Fields(Arc::new(null(1))), &[]);
        tests.count(TRIAL_ROWS, TRIAL_ROWS);
        assert!(!tests.turn());
        assert!(matches!(tests.now(), Test::Fields(_)));
    }
}
