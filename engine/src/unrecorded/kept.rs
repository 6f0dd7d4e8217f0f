//! What the file of unrecorded losses was found to say, and whether that is all of it.

use super::entry::Entry;

/// How a file was found.
#[derive(Copy, Clone, PartialEq, Eq, Debug, Default)]
pub enum Condition {
    Sound,
    /// The newest of its slots does not verify, or may be that one: what it added is not known, and what the other says may have been
    /// recorded since.
    Half,
    /// Neither slot verifies.
    #[default]
    Lost,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kept {
    /// Of the newest slot that verifies; 0 if none does.
    pub sequence: u64,
    pub entries: Vec<Entry>,
    pub condition: Condition,
}

impl Kept {
    /// Of a directory that has no such file.
    pub fn none() -> Kept {
        Kept {
            condition: Condition::Sound,
            ..Kept::default()
        }
    }

    /// What is wrong where this may not be all, in words that follow the file's name.
    pub fn what(&self) -> Option<&'static str> {
        match self.condition {
            Condition::Sound => None,
            Condition::Half => Some(
                "one of its two slots does not verify, and may have been the newer; the next start enters a loss of unknown number and writes it anew",
            ),
            Condition::Lost => Some(
                "neither of its slots verifies; the next start enters a loss of unknown number and writes it anew",
            ),
        }
    }
}
