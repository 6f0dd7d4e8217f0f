//! Decides whether the next summary is worth opening. After many that answered nothing, most are passed over until one answers something
//! again.

/// After this many summaries that answered nothing, the distance to the next one that is opened doubles, up to a limit.
const FUTILE_MOST: u32 = 16;
const PASSED_OVER_MOST: u32 = 256;

/// The benefit of the summaries that one thread opened.
#[derive(Default)]
pub(crate) struct SummaryBenefit {
    /// Summaries that were passed over or answered nothing since one last answered something.
    futile: u32,
}

impl SummaryBenefit {
    /// Whether to open the next summary.
    pub fn opens_next(&mut self) -> bool {
        self.futile = self.futile.saturating_add(1);
        self.futile <= FUTILE_MOST
            || self.futile.is_power_of_two()
            || self.futile.is_multiple_of(PASSED_OVER_MOST)
    }

    /// Notes that the opened summary answered something.
    pub fn answered(&mut self) {
        self.futile = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_opened_where_they_answer_nothing_and_all_where_they_do() {
        let mut benefit = SummaryBenefit::default();
        // It opens the 32nd, 64th and 128th, and then every 256th.
        assert_eq!(
            (0..1600).filter(|_| benefit.opens_next()).count(),
            16 + 3 + 6
        );
        benefit.answered();
        assert!((0..100).all(|_| {
            let opens = benefit.opens_next();
            benefit.answered();
            opens
        }));
    }
}
