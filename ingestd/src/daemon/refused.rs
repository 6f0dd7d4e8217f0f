//! Refusals of one request over OTLP, by reason: its sender learns of them, and the ledger counts them.

use std::collections::BTreeMap;

use loom_engine::SourceId;
use loom_engine::schema::LossReason;
use loom_otlp::{NotTaken, REPAIRED, Taken};

use super::answer::Gone;
use super::inlet::Inlet;

/// How many reasons of one request are kept apart.
const WORDS_MAX: usize = 16;

/// How many records of a request are refused, by why.
#[derive(Clone, Default)]
pub(crate) struct Refused {
    by_why: BTreeMap<(LossReason, String), u64>,
    /// Texts were not UTF-8, and are stored with U+FFFD in place of what is wrong.
    pub(crate) is_repaired: bool,
}

impl Refused {
    /// What could not be read.
    pub(crate) fn unread(records: u64, why: &str) -> Refused {
        let mut refused = Refused::default();
        refused.add(LossReason::Malformed, why, records);
        refused
    }

    pub(crate) fn add(&mut self, reason: LossReason, why: &str, records: u64) {
        let mut why = why.to_owned();
        if self.by_why.len() >= WORDS_MAX && !self.by_why.contains_key(&(reason, why.clone())) {
            why = "several".to_owned();
        }
        *self.by_why.entry((reason, why)).or_default() += records;
    }

    /// The words that stand already for this reason, with an example behind them.
    pub(crate) fn words_for(&self, why: &str) -> Option<String> {
        let mut known = self.by_why.keys().map(|(_, words)| words);
        known.find(|words| words.starts_with(why)).cloned()
    }

    /// As the sender learns of it.
    pub(crate) fn taken(&self) -> Taken {
        let mut taken = Taken {
            refused: self.count(),
            why: said(self.by_why.iter()),
        };
        if self.is_repaired {
            taken.refuse(0, REPAIRED);
        }
        taken
    }

    /// How many they are.
    pub(crate) fn count(&self) -> u64 {
        self.by_why.values().sum()
    }

    /// Counts them, for a source if they are of one.
    pub(crate) fn enter(&self, inlet: &mut Inlet, source: Option<SourceId>) -> Result<(), Gone> {
        for reason in [
            LossReason::Malformed,
            LossReason::TooLong,
            LossReason::Overload,
        ] {
            if let Some((records, words)) = self.of(reason) {
                inlet.lose(source, reason, records, words)?;
            }
        }
        Ok(())
    }

    /// How many for one reason, and what is said of them: the ledger keeps the words of one loss of a reason.
    fn of(&self, reason: LossReason) -> Option<(u64, String)> {
        let such = self
            .by_why
            .iter()
            .filter(|((found, _), _)| *found == reason);
        let records = such.clone().map(|(_, records)| records).sum();
        (records > 0).then(|| (records, said(such)))
    }
}

fn said<'a>(refused: impl Iterator<Item = (&'a (LossReason, String), &'a u64)>) -> String {
    let each = refused.map(|((_, why), records)| format!("{records}: {why}"));
    each.collect::<Vec<_>>().join("; ")
}

impl From<Gone> for NotTaken {
    fn from(_: Gone) -> NotTaken {
        NotTaken::Busy("the daemon stops; try again".to_owned())
    }
}
