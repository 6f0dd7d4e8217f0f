//! The score of `loom_why`: how much evidence there is, in bits, that a difference is no coincidence.
//!
//! It is the likelihood-ratio (G) test of a table of two rows and two columns, less the number of tables that were compared (Bonferroni). By
//! chance alone, some row of an answer has a score of `b` or more with a probability of about `2^-b`.

/// How many records of each side have a value, and how many there are.
#[derive(Copy, Clone, Debug)]
pub struct Table {
    pub selected: u64,
    pub selected_all: u64,
    pub others: u64,
    pub others_all: u64,
}

/// The score of one of `compared` tables.
pub fn of_shares(table: Table, compared: f64) -> f64 {
    let Table {
        selected,
        selected_all,
        others,
        others_all,
    } = table;
    let all = (selected_all + others_all) as f64;
    let having = (selected + others) as f64;
    let cells = [
        (selected, selected_all, having),
        (others, others_all, having),
        (selected_all - selected, selected_all, all - having),
        (others_all - others, others_all, all - having),
    ];
    let bits = cells
        .map(|(found, of_side, of_value)| surprise(found as f64, of_side as f64 * of_value / all));
    corrected(bits.iter().sum(), compared)
}

/// The score of one of `compared` pairs of counts, of which the first is expected to have this share.
pub fn of_counts(now: u64, before: u64, share: f64, compared: f64) -> f64 {
    let all = now as f64 + before as f64;
    let bits = surprise(now as f64, all * share) + surprise(before as f64, all * (1.0 - share));
    corrected(bits, compared)
}

/// The part of a cell in half of G, in bits.
fn surprise(found: f64, expected: f64) -> f64 {
    if found == 0.0 {
        return 0.0;
    }
    found * (found / expected).log2()
}

fn corrected(bits: f64, compared: f64) -> f64 {
    (bits - compared.log2()).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score(selected: u64, selected_all: u64, others: u64, others_all: u64, compared: f64) -> f64 {
        let table = Table {
            selected,
            selected_all,
            others,
            others_all,
        };
        of_shares(table, compared)
    }

    // case SQL: loom_why
    #[test]
    fn a_difference_scores_and_equal_shares_do_not() {
        assert!(score(6, 6, 20, 1000, 10.0) > 20.0);
        assert!(score(5, 50, 100, 1000, 1.0) < 1e-9);
        // All of one side and none of the other: one bit for each record.
        assert!((score(8, 8, 0, 8, 1.0) - 16.0).abs() < 1e-9);
        assert!((score(8, 8, 0, 8, 4.0) - 14.0).abs() < 1e-9);
    }

    #[test]
    fn a_number_that_each_record_has_alone_scores_nothing() {
        let records = 30_000_000;
        assert_eq!(score(1, 6, 0, records - 6, records as f64), 0.0);
    }

    #[test]
    fn a_side_without_records_scores_nothing() {
        assert_eq!(score(0, 0, 5, 9, 1.0), 0.0);
        assert_eq!(score(5, 9, 0, 0, 1.0), 0.0);
    }

    #[test]
    fn equal_rates_score_nothing() {
        assert_eq!(of_counts(0, 0, 0.5, 3.0), 0.0);
        assert_eq!(of_counts(7, 7, 0.5, 1.0), 0.0);
        assert_eq!(of_counts(30, 10, 0.75, 1.0), 0.0);
        assert!((of_counts(16, 0, 0.5, 1.0) - 16.0).abs() < 1e-9);
    }
}
