//! What became of every record that reached the daemon, by source: `received = stored + refused + dropped` at any
//! time, for a batch is entered whole once its fate is known.

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

/// The accounts of all sources, by id.
#[derive(Debug, Default)]
pub struct Ledger {
    accounts: Vec<SourceAccount>,
}

impl Ledger {
    /// Enters what became of some records of a source.
    pub fn enter(&mut self, source: SourceId, counts: Counts, stored_bytes: u64, at: Timestamp) {
        debug_assert_eq!(
            counts.received,
            counts.stored + counts.refused + counts.dropped
        );
        let place = usize::from(source.0);
        if self.accounts.len() <= place {
            self.accounts.resize(place + 1, SourceAccount::default());
        }
        if let Some(account) = self.accounts.get_mut(place) {
            account.counts.add(counts);
            account.stored_bytes += stored_bytes;
            account.last_push = Some(at);
        }
    }

    /// The account of a source; zeroes where nothing came for it.
    pub fn account(&self, source: SourceId) -> SourceAccount {
        self.accounts
            .get(usize::from(source.0))
            .copied()
            .unwrap_or_default()
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
