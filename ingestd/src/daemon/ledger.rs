//! Counts the outcome of every record that reached the daemon, by source: `received = stored + refused + dropped` at any
//! time, because a batch is entered whole once its fate is known.

use std::collections::BTreeMap;

use loom_engine::{SourceId, Timestamp};

use crate::protocol::Counts;

/// The counts of one source since the daemon started.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceAccount {
    pub counts: Counts,
    /// Payload bytes stored.
    pub stored_bytes: u64,
    /// Arrival time of the latest batch.
    pub last_push: Option<Timestamp>,
}

#[derive(Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<SourceId, SourceAccount>,
}

impl Ledger {
    pub fn enter(&mut self, source: SourceId, counts: Counts, stored_bytes: u64, at: Timestamp) {
        assert_eq!(
            counts.received,
            counts.stored + counts.refused + counts.dropped,
            "received = stored + refused + dropped"
        );
        let account = self.accounts.entry(source).or_default();
        account.counts.add(counts);
        account.stored_bytes += stored_bytes;
        account.last_push = Some(at);
    }

    /// The account of a source; zeroes if nothing came for it.
    pub fn account(&self, source: SourceId) -> SourceAccount {
        let account = self.accounts.get(&source);
        account.map_or_else(SourceAccount::default, |account| *account)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_own_account() {
        let mut ledger = Ledger::default();
        let counts = Counts {
            received: 10,
            stored: 7,
            refused: 1,
            dropped: 2,
        };
        ledger.enter(SourceId(3), counts, 56, Timestamp(100));
        ledger.enter(SourceId(3), counts, 56, Timestamp(200));
        let account = ledger.account(SourceId(3));
        assert_eq!(account.counts.received, 20);
        assert_eq!(account.counts.stored, 14);
        assert_eq!(account.stored_bytes, 112);
        assert_eq!(account.last_push, Some(Timestamp(200)));
        assert_eq!(ledger.account(SourceId(2)), SourceAccount::default());
        assert_eq!(ledger.account(SourceId(60_000)), SourceAccount::default());
    }
}
