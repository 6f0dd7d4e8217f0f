//! Refusals of one request over OTLP, or of one answer of a target, by reason: a sender learns of them, and the ledger counts them.

use std::collections::BTreeMap;

use loom_engine::SourceId;
use loom_engine::schema::LossReason;
use loom_otlp::{NotTaken, REPAIRED, Taken};

use super::answer::Gone;
use super::inlet::Inlet;

/// Reasons of one request that are kept apart.
const WORDS_MAX: usize = 16;

/// Counts the refused records of a request by reason.
#[derive(Clone, Default)]
pub(crate) struct Refused {
    by_why: BTreeMap<(LossReason, String), u64>,
    /// Texts were not UTF-8, and are stored with U+FFFD in place of what is wrong.
    pub(crate) is_repaired: bool,
}

impl Refused {
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

    /// Adds one record with an example. The first example stands for the others of the same cause.
    pub(crate) fn add_such(
        &mut self,
        reason: LossReason,
        why: &str,
        example: impl FnOnce() -> String,
    ) {
        let words = self.causes().find(|words| words.starts_with(why));
        let words = words.cloned();
        let words = words.unwrap_or_else(|| match example().as_str() {
            "" => why.to_owned(),
            example => format!("{why}, such as {example}"),
        });
        self.add(reason, &words, 1);
    }

    pub(crate) fn causes(&self) -> impl Iterator<Item = &String> {
        self.by_why.keys().map(|(_, words)| words)
    }

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

    pub(crate) fn count(&self) -> u64 {
        self.by_why.values().sum()
    }

    /// Notes them as losses, of a source if they have one.
    pub(crate) fn enter(&self, inlet: &mut Inlet, source: Option<SourceId>) {
        self.enter_as(inlet, source, "");
    }

    /// Notes them as losses, with these words before the reasons.
    pub(crate) fn enter_as(&self, inlet: &mut Inlet, source: Option<SourceId>, before: &str) {
        for reason in [
            LossReason::Malformed,
            LossReason::TooLong,
            LossReason::Overload,
        ] {
            if let Some((records, words)) = self.of(reason) {
                inlet.lose(source, reason, records, format!("{before}{words}"));
            }
        }
    }

    /// The count and the words of one reason, because the ledger keeps the words of one loss of a reason.
    fn of(&self, reason: LossReason) -> Option<(u64, String)> {
        let all = self.by_why.iter();
        let such = all.filter(|((found, _), _)| *found == reason);
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
